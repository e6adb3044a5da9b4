"""Maps: numbers in cells, shaded by steps, with a key to the steps.

The page's ink has a contrast of 4.5 and more on every shade, on the light page and on the dark page's twin of it. Steps
beside each other, and the two sides of the middle, are apart for colour-blind readers too. Tests hold both.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from experiments.publish.drawing import style
from experiments.publish.numbers import format_short_percent
from gemm_ref import DIALECTS

_ORANGE = ("#fee4c4", "#fdbf87", "#f4984f", "#e37120")  # lightest first
_BLUE = ("#aedaff", "#64aaf0")
_EDGE = "#cbd2d9"  # around the cells of a key, of which one is white


@dataclass(frozen=True)
class Scale:
    """The shade of a value, by steps."""

    steps: tuple[tuple[str, str], ...]  # name in the key, colour
    edges: tuple[float, ...]  # between the steps; a value on an edge is of the step above
    title: str = ""  # of its key, where it has one

    @classmethod
    def of(cls, names: Sequence[str], colours: Sequence[str], edges: tuple[float, ...], title: str = "") -> Scale:
        """Steps by their names and colours."""
        return cls(tuple(zip(names, colours, strict=True)), edges, title)

    def shade(self, value: float) -> str:
        """The colour of a number."""
        return self.steps[int(np.searchsorted(self.edges, value, side="right"))][1]


# % of cuBLAS' speed, as whole numbers: orange is slower, blue is faster.
SHARE = Scale.of(
    ("below 25", "25 to 49", "50 to 74", "75 to 94", "95 to 105", "106 to 125", "above 125"),
    (*reversed(_ORANGE), "#ffffff", *_BLUE),
    (25, 50, 75, 95, 106, 126),
    "% of cuBLAS' speed:",
)

# Times what is needed, as two digits: white is nothing wasted.
COST = Scale.of(
    ("1 or less", "up to 2", "up to 4", "up to 8", "above 8"),
    ("#ffffff", *_ORANGE),
    (1.01, 2.01, 4.01, 8.01),
    "times what is needed:",
)


def draw(
    ax: Axes,
    values: np.ndarray,
    texts: np.ndarray,
    rows: Sequence[str],
    columns: Sequence[str],
    scale: Scale,
    size: float = 8,
) -> None:
    """Shade `values` (rows, columns) by `scale` and write `texts` over them; columns are named on top.

    A cell whose value is NaN has no shade and its text is muted: the place of `style.absent`.
    """
    there = ~np.isnan(values)
    step = np.searchsorted(scale.edges, np.where(there, values, 0), side="right")
    shades = ListedColormap([colour for _, colour in scale.steps])
    cells = {"cmap": shades, "vmin": -0.5, "vmax": len(scale.steps) - 0.5, "edgecolors": "white", "lw": 1.2}
    ax.pcolormesh(np.ma.masked_array(step, ~there), **cells)
    for (y, x), text in np.ndenumerate(texts):
        colour = style.INK if there[y, x] else style.MUTED
        ax.text(x + 0.5, y + 0.5, text, size=size, color=colour, ha="center", va="center", linespacing=1.1)
    ax.set_xlim(0, len(columns))
    ax.set_ylim(len(rows), 0)
    ax.set_xticks(np.arange(len(columns)) + 0.5, columns)
    ax.set_yticks(np.arange(len(rows)) + 0.5, rows)
    ax.xaxis.tick_top()
    ax.tick_params(labelsize=7.5)
    style.bare(ax)


def share_map(
    ax: Axes,
    shares: np.ndarray,
    rows: Sequence[str],
    columns: Sequence[str],
    texts: np.ndarray | None = None,
) -> None:
    """Draw shares of cuBLAS in % (rows, columns); `texts` are in place of the numbers, where given."""
    if texts is None:
        texts = np.array([[format_short_percent(value) for value in line] for line in shares], dtype=object)
    draw(ax, np.round(shares), texts, rows, columns, SHARE, 6.5 if len(columns) > 14 else 8)


def kernel_map(
    ax: Axes,
    shares: np.ndarray,
    rows: Sequence[tuple[str, str]],
    columns: Sequence[str],
    texts: np.ndarray | None = None,
) -> None:
    """`share_map` of rows that are a rung and a dialect, or a library and ""; lines part the rungs."""
    titles = [
        f"{style.label_of(stage)} {DIALECTS[dialect].title if dialect else ''}".rstrip() for stage, dialect in rows
    ]
    share_map(ax, shares, titles, columns, texts)
    part(ax.axhline, [stage for stage, _ in rows], lw=0.5)


def part(line: Callable[..., object], groups: Sequence[object], shift: float = 0.0, lw: float = 0.8) -> None:
    """Draw `line`, `ax.axhline` or `ax.axvline`, where a group of rows or columns begins, `shift` from that place."""
    for place, (before, group) in enumerate(itertools.pairwise(groups), 1):
        if group != before:
            line(place + shift, color=style.MUTED, lw=lw)


def key(figure: Figure, scale: Scale, top: float) -> float:
    """Write the steps of a scale, after its title, in a line below `top`, a height; return the height left below."""
    inch, wide = 1 / figure.get_figheight(), 1 / figure.get_figwidth()
    figure.text(style.LEFT, top - 0.08 * inch, scale.title, size=8, va="center")
    figure.legend(
        handles=[Patch(facecolor=colour, edgecolor=_EDGE, lw=0.8, label=name) for name, colour in scale.steps],
        loc="center left",
        ncols=len(scale.steps),
        frameon=False,
        bbox_to_anchor=(style.LEFT + (0.062 * len(scale.title) + 0.05) * wide, top - 0.08 * inch),
        fontsize=8,
        borderaxespad=0,
        handlelength=1.4,
        handleheight=1.1,
        handletextpad=0.5,
        columnspacing=1.2,
    )
    return top - 0.3 * inch
