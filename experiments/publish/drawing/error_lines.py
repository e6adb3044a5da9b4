"""Relative errors over K: one line for all kernels of a math mode that have the same errors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import matplotlib.ticker as ticker
import pandas as pd
from matplotlib.axes import Axes

from experiments.publish.drawing import style
from experiments.publish.drawing.labels import label_line_ends
from gemm_ref import DIALECTS, STAGES

_SAME = 0.03  # of an error: kernels that differ by no more at any K that they share are one line
_LEAST_SPAN = 10.0  # of the axis of errors, top over bottom: small differences shall look small
NAMES = 2.75  # inches on the right of a panel, for the names of its lines


@dataclass
class Group:
    """Kernels of one math mode with the same errors."""

    math: str
    kernels: list[tuple[str, str]]  # stage, dialect
    errors: pd.Series  # by K, of the first

    def has(self, errors: pd.Series) -> bool:
        """Whether a kernel with these errors is one of them: all its Ks are among the group's."""
        return set(errors.index) <= set(self.errors.index) and all(
            abs(error / self.errors[k] - 1) <= _SAME for k, error in errors.items()
        )


def panel(ax: Axes, rows: pd.DataFrame) -> None:
    """A line over K for all kernels of a math mode that have the same errors."""
    depths = sorted(set(rows["k"]))
    ax.set(xscale="log", yscale="log", xlim=(depths[0] / 1.5, depths[-1] * 1.5))
    low, high = rows["rel_error"].min(), rows["rel_error"].max()
    around = max(1.4, (_LEAST_SPAN * low / high) ** 0.5)
    ax.set_ylim(low / around, high * around)
    ax.xaxis.set_major_locator(ticker.FixedLocator(depths))
    style.plain(ax.xaxis)
    ax.tick_params(axis="x", labelsize=8)
    style.bare(ax, "x")
    ends = {}
    for group in _groups(rows):
        dialects = {dialect for _, dialect in group.kernels if dialect}
        alone = style.look_of(min(dialects)).colour if len(dialects) == 1 else style.INK
        look = {"color": alone, "lw": 1.8} if dialects else {"color": style.BASELINE, "lw": 1.4, "ls": (0, (4, 2))}
        ax.plot(group.errors.index, group.errors, zorder=2 + (not dialects), **look)
        words = _name(group.kernels, rows[rows["math"] == group.math])
        ends[f"{group.math} {words}" if rows["math"].nunique() > 1 else words] = (
            group.errors.index[-1],
            group.errors.iloc[-1],
        )
    label_line_ends(ax, ends, ax.get_ylim()[1], is_one_column=True)


def _groups(rows: pd.DataFrame) -> list[Group]:
    """The lines of a panel, those of rungs first."""
    found: list[Group] = []
    kernels = rows.assign(library=rows["dialect"] == "").sort_values(["library", "stage"], kind="stable")
    for (math, stage, dialect), own in kernels.groupby(["math", "stage", "dialect"], sort=False):
        errors = own.set_index("k")["rel_error"].sort_index()
        group = next((group for group in found if group.math == math and group.has(errors)), None)
        if group is None:
            found.append(Group(math, [(stage, dialect)], errors))
        else:
            group.kernels.append((stage, dialect))
    return found


def _name(kernels: Sequence[tuple[str, str]], rows: pd.DataFrame) -> str:
    """The rungs of a line, with their dialects where not all that there are have this line; then its libraries."""
    rungs = [name for name in STAGES if name in set(rows["stage"])]
    all_of = {name: set(rows.loc[rows["stage"] == name, "dialect"]) for name in rungs}
    by_dialects: dict[str, list[str]] = {}
    for name in rungs:
        own = [dialect for dialect in DIALECTS if (name, dialect) in kernels]
        words = "" if set(own) == all_of[name] else " " + ", ".join(DIALECTS[dialect].title for dialect in own)
        if own:
            by_dialects.setdefault(words, []).append(name)
    parts = [_range(names, rungs) + words for words, names in by_dialects.items()]
    return "; ".join(parts + [style.label_of(stage) for stage, dialect in kernels if not dialect])


def _range(names: list[str], rungs: list[str]) -> str:
    """`s01 to s12` where no rung is between that is not among them, else all of them."""
    first, last = rungs.index(names[0]), rungs.index(names[-1])
    if len(names) > 2 and last - first == len(names) - 1:
        return f"{names[0][:3]} to {names[-1][:3]}"
    return ", ".join(name[:3] for name in names)
