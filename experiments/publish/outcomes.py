"""What came of each experiment, in one to three sentences made from its rows; 'faster' and 'slower' are verdicts.

A study's sentences are those of `describe` in its outcome.py. A part that was not measured is left out.
"""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd

from experiments.publish.numbers import format_percent
from experiments.records import frames, stats, studies


def outcome(name: str, frame: pd.DataFrame) -> str:
    """The sentences on the study `name`, whose rows are `frame`; empty where the rows say nothing."""
    if frame.empty or not studies.has(name, "outcome"):
        return ""
    return " ".join(f"{sentence}." for sentence in studies.load(name, "outcome").describe(frame))


def in_order(names: Iterable[str]) -> list[str]:
    """The names of studies in the order of the report; one without a place in it comes last."""
    abouts = studies.abouts()
    return sorted(names, key=lambda name: abouts.get(name, {}).get("report_order", float("inf")))


def describe_trust(timed: Iterable[pd.DataFrame]) -> str:
    """How far the timed rows of several studies can be trusted, by cuBLAS timed against itself."""
    controls = [frames.controls(frame) for frame in timed if "vs_cublas" in frame]
    same, count = (sum(each[place] for each in controls) for place in (0, 1))
    if not count:
        return ""
    off = max(off for _, own, off in controls if own)
    return (
        f"cuBLAS was timed against itself beside every problem: {same} of {count} such rows say {stats.SAME}, and "
        f"the one furthest from 1 is off by {format_percent(off, 2)}."
    )
