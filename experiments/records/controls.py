"""The A-against-A control: a problem has a verdict only if cuBLAS, timed against itself in the same rounds, is SAME.

Else the machine was not quiet enough, and tables and plots mark the problem (docs/method.md, 'Control').
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from experiments.records import stats

CONTROL = "control"  # the stage and backend of the A-against-A row
MARK = "†"
LEGEND = f"{MARK} cuBLAS against itself was not SAME at this problem, so no verdict there can be trusted"
_PROBLEM = ("math", "m", "n", "k", "mode", "b_layout")


class Controls:
    """The control rows of a frame whose verdict is not SAME. A frame without control rows has none."""

    def __init__(self, frame: pd.DataFrame) -> None:
        timed = "verdict" in frame
        doubtful = frame[(frame["stage"] == CONTROL) & (frame["verdict"] != stats.SAME)] if timed else frame[:0]
        self._doubtful = doubtful.to_dict("records")  # few, and looked up for each row of a table

    def mark(self, **problem: object) -> str:
        """Returns MARK if a failed control has all of these columns' values, such as `m=128, n=1024`; else nothing."""
        columns = problem.items()
        return MARK if any(all(row[name] == value for name, value in columns) for row in self._doubtful) else ""

    def mark_row(self, row) -> str:
        """MARK for a row, as `itertuples` gives it, of a problem whose control failed; else nothing."""
        return self.mark(**{name: getattr(row, name) for name in _PROBLEM if hasattr(row, name)})

    def passed(self, frame: pd.DataFrame) -> pd.DataFrame:
        """The rows of problems whose control did not fail."""
        return frame[np.array([not self.mark_row(row) for row in frame.itertuples()], dtype=bool)]


def explained(caption: str, *texts: str) -> str:
    """A caption, with LEGEND where one of the texts above it has the mark."""
    return f"{caption} · {LEGEND}" if any(MARK in text for text in texts) else caption


def size_name(frame: pd.DataFrame) -> str:
    """`4096 x 4096 x 4096` of a frame that holds one problem, marked where its control failed."""
    first = frame.iloc[0]
    return f"{first.m:.0f} × {first.n:.0f} × {first.k:.0f}{Controls(frame).mark()}"


def panels_by_size(frame: pd.DataFrame) -> tuple[pd.DataFrame, dict[int, str]]:
    """The rows without the control's, and by edge the titles of the panels, marked where the control failed."""
    controls, frame = Controls(frame), frame[frame["stage"] != CONTROL]
    edges = sorted(set(frame["m"]))
    return frame, {edge: f"M = N = K = {edge}{controls.mark(m=edge, n=edge, k=edge)}" for edge in edges}
