"""What changed between two folders of results: a verdict for each row that both have.

A kernel has changed where both its time and its share of cuBLAS have: a share alone moves where cuBLAS does, a time
alone where the clock does. So a row is SAME where the interval of its share's change is within `margin`, or where its
time moved by no more. The margin is never less than CUDA's events resolve in the shorter time (`stats.margin_for`), and
grows by the difference of what two events around nothing took in the two runs (`events_us`), as a share of that time:
hosts differ by microseconds in it. cuBLAS' own rows go by time. A row whose status changed, or that only one folder
has, is listed as such.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd

from experiments.records import stats, store, studies
from experiments.records.request import UsageError
from experiments.records.rows import TimedRow

MARGIN = 0.03  # what the same code may differ by from machine to machine (docs/method.md has what was seen)
_ENVIRONMENT = ("device", "commit", "date", "torch", "triton", "cuda")


@dataclass(frozen=True)
class Change:
    """One row that both folders have a time for."""

    name: str  # rung, variant, dialect, math
    problem: str
    old: float  # share of cuBLAS
    new: float
    ratio: stats.Ratio  # of speed, new / old: by shares of cuBLAS, and for cuBLAS itself by times
    by_time: float  # the ratio of speed by times alone
    verdict: str
    is_control: bool


@dataclass(frozen=True)
class Comparison:
    """One experiment in two folders."""

    experiment: str
    changes: list[Change]
    statuses: list[str] = field(default_factory=list)  # rows that passed in one and not in the other, in words
    in_common: int = 0  # rows that both folders have,
    only_old: int = 0  # that the new folder lacks,
    only_new: int = 0  # and that the old one lacks

    def verdicts(self, control: bool = False) -> Counter[str]:
        """How many rows of each verdict: of the control rows, or of the others."""
        return Counter(change.verdict for change in self.changes if change.is_control == control)

    def summary(self) -> str:
        """One line: how many rows have which verdict, and what has none."""
        parts = []
        for control, what in ((False, "rows"), (True, "control rows")):
            verdicts = self.verdicts(control)
            if total := verdicts.total():
                said = ", ".join(f"{count} {verdict}" for verdict, count in verdicts.most_common())
                parts.append(f"{total} {what}: {said} ({100 * verdicts[stats.SAME] / total:.1f}% SAME)")
        parts.append(f"{len(self.statuses)} of {self.in_common} in both with another status")
        apart = (("old", self.only_old), ("new", self.only_new))
        parts += [f"{count} only in the {which} folder" for which, count in apart if count]
        return f"{self.experiment}: " + "; ".join(parts)


def compare(old: Path, new: Path, margin: float = MARGIN) -> list[Comparison]:
    """All experiments that both folders have.

    Raises UsageError where they have no row in common, for a folder that is not, and for a margin that is no share.
    """
    if not 0 <= margin < 1:
        raise UsageError(f"--margin {margin:g}: it is a share, such as {MARGIN:g} for {MARGIN:.0%}, from 0 up to 1")
    for folder in (old, new):
        if not folder.is_dir():
            raise UsageError(f"{folder} is not a folder of results: name one that `run --results FOLDER` wrote")
    shared = [name for name in studies.names() if all(store.csv_path(folder, name).exists() for folder in (old, new))]
    if not shared:
        raise UsageError(f"{old} and {new} have no experiment in common: name two folders of the same experiments")
    found = [_compare(name, _with_events(old, name), _with_events(new, name), margin) for name in shared]
    if not any(each.in_common for each in found):
        raise UsageError(
            f"{old} and {new} have no row in common, of {' or '.join(shared)}: name two folders in which the same "
            "kernels were measured at the same sizes"
        )
    return found


def environments(old: Path, new: Path) -> list[tuple[str, str, str]]:
    """(what, old, new) of the last run in each folder, on its GPU if any was; for what a reader must know."""

    def latest(folder: Path) -> dict:
        runs = store.read_runs(folder).values()
        return max(runs, key=lambda run: (run["gpu"] is not None, run["date"]), default={})

    before, after = latest(old), latest(new)
    return [(name, str(before.get(name) or "unknown"), str(after.get(name) or "unknown")) for name in _ENVIRONMENT]


def _with_events(folder: Path, name: str) -> pd.DataFrame:
    """The rows of an experiment, each with what two events around nothing took in its run, NaN where none is known."""
    frame = store.read(folder, name)
    took = {key: run.get("events_us") for key, run in store.read_runs(folder).items()}
    return frame.assign(events_us=frame["run"].map(took).astype(float))


def _compare(name: str, old: pd.DataFrame, new: pd.DataFrame, margin: float) -> Comparison:
    row_type = studies.row_type(name)
    both = old.merge(new, on=list(row_type.KEY), how="outer", suffixes=("_old", "_new"), indicator=True)
    shared = both[both["_merge"] == "both"]
    statuses = [
        f"{_name(row)} at {_problem(row)}: {row.status_old}, now {row.status_new}"
        for row in shared[shared["status_old"] != shared["status_new"]].itertuples()
    ]
    changes = []
    if issubclass(row_type, TimedRow):
        timed = shared[shared["vs_cublas_old"].notna() & shared["vs_cublas_new"].notna()]
        changes = [_change(row, margin) for row in timed.itertuples()]
    counts = both["_merge"].value_counts()
    return Comparison(name, changes, statuses, len(shared), int(counts["left_only"]), int(counts["right_only"]))


def _change(row, margin: float) -> Change:
    old, new = (
        stats.Ratio(*(getattr(row, f"{column}_{which}") for column in ("vs_cublas", "vs_cublas_low", "vs_cublas_high")))
        for which in ("old", "new")
    )
    by_time = row.median_us_old / row.median_us_new
    shorter_us = min(row.median_us_old, row.median_us_old * old.median)  # the kernel's time, and cuBLAS'
    apart_us = abs(row.events_us_new - row.events_us_old)
    margin = stats.margin_for(shorter_us, margin) + (0.0 if np.isnan(apart_us) else apart_us / shorter_us)
    if row.backend == "cublas":
        ratio = stats.Ratio(by_time, row.p20_us_old / row.p80_us_new, row.p80_us_old / row.p20_us_new)
    else:
        ratio = stats.change(old, new)
    same_time = abs(by_time - 1) <= margin
    verdict = stats.SAME if same_time else stats.verdict(ratio, margin)
    name, problem = _name(row), _problem(row)
    return Change(name, problem, old.median, new.median, ratio, by_time, verdict, row.backend == "control")


def _name(row) -> str:
    variant = "" if row.variant == "default" else f":{row.variant}"
    return f"{row.stage}{variant} {row.dialect} {row.math}".replace("  ", " ")


def _problem(row) -> str:
    extra = "".join(f" {getattr(row, name)}" for name in ("mode", "inputs", "b_layout") if getattr(row, name, ""))
    return f"{row.m}x{row.n}x{row.k}{extra}"
