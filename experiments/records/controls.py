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
    """Holds the control rows of a frame whose verdict is not SAME; none if the frame has no control rows."""

    def __init__(self, frame: pd.DataFrame) -> None:
        timed = "verdict" in frame
        doubtful = frame[(frame["stage"] == CONTROL) & (frame["verdict"] != stats.SAME)] if timed else frame[:0]
        self._doubtful = doubtful.to_dict("records")  # few, and looked up for each row of a table

    def mark(self, **problem: object) -> str:
        """Returns MARK if a failed control has these values, such as `m=128, n=1024`, else an empty string."""
        columns = problem.items()
        return MARK if any(all(row[name] == value for name, value in columns) for row in self._doubtful) else ""

    def mark_row(self, row) -> str:
        """Returns MARK for a row of `itertuples` if its problem's control failed, else an empty string."""
        return self.mark(**{name: getattr(row, name) for name in _PROBLEM if hasattr(row, name)})

    def passed(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Returns the rows of problems whose control did not fail."""
        return frame[np.array([not self.mark_row(row) for row in frame.itertuples()], dtype=bool)]


def explained(caption: str, *texts: str) -> str:
    """Returns the caption, followed by LEGEND if one of the texts above it has the mark."""
    return f"{caption} · {LEGEND}" if any(MARK in text for text in texts) else caption


def size_name(frame: pd.DataFrame) -> str:
    """Returns the size of a frame's only problem, `4096 x 4096 x 4096`, with the mark if its control failed."""
    first = frame.iloc[0]
    return f"{first.m:.0f} × {first.n:.0f} × {first.k:.0f}{Controls(frame).mark()}"


def panels_by_size(frame: pd.DataFrame) -> tuple[pd.DataFrame, dict[int, str]]:
    """Returns the rows without controls, and the panels' titles by edge, with the mark if the control failed."""
    controls, frame = Controls(frame), frame[frame["stage"] != CONTROL]
    edges = sorted(set(frame["m"]))
    return frame, {edge: f"M = N = K = {edge}{controls.mark(m=edge, n=edge, k=edge)}" for edge in edges}
