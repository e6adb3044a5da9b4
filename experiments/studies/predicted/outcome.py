"""What came of `predicted`: how far predicted times are from measured ones."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pandas as pd

from experiments.publish.numbers import format_percent
from experiments.records.frames import SIZES

SAID = (
    "half of {0.times} predicted times are within {0.median} of the measured ones, nine in ten within {0.ninetieth}, "
    "and {0.order} of pairs more than 10% apart are in the right order"
)
APART = 1.1  # factor between two measured times beyond which their order counts


class Errors(NamedTuple):
    """The errors of rows that have a predicted and a measured time, as texts."""

    times: int
    median: str  # of |predicted / measured - 1|
    ninetieth: str  # its 90th percentile
    pairs: int  # of kernels at one problem whose measured times are APART
    order: str  # share of these pairs of which the faster one is predicted to be it


def errors_of(rows: pd.DataFrame) -> Errors:
    """The errors of rows with a `ratio`, of which there is at least one."""
    off = (rows["ratio"] - 1).abs()
    pairs = ordered = 0
    for _, own in rows.groupby(["card", "math", *SIZES]):
        measured, predicted = (np.log(own[name].to_numpy()) for name in ("measured_us", "predicted_us"))
        slower = np.subtract.outer(measured, measured) > np.log(APART)  # has each pair once
        pairs += int(slower.sum())
        ordered += int((slower & (np.subtract.outer(predicted, predicted) > 0)).sum())
    shares = format_percent(off.median(), 1), format_percent(off.quantile(0.9), 1)
    return Errors(len(rows), *shares, pairs, format_percent(ordered / pairs, 1) if pairs else "–")


def reason_of(detail: str) -> str:
    """Why a kernel is refused, without its name."""
    return detail.split(": ", 1)[-1]


def describe(frame: pd.DataFrame) -> Iterator[str]:
    """A sentence on the rows of the study; none where nothing was measured."""
    if frame["ratio"].notna().any():
        said = SAID.format(errors_of(frame[frame["ratio"].notna()]))
        yield said[0].upper() + said[1:]
