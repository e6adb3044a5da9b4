"""Labels on the right of the points of a plot, none over another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from matplotlib.axes import Axes
from matplotlib.transforms import Bbox

from experiments.publish.drawing import style

_SIZE = 8.0  # points
_LINE = 1.12 * _SIZE  # from one label to the next
_GAP = 13.0  # from the points to their labels
_WIDTH = 2.2 * _SIZE  # of a label
_MARK = 4.0  # half of a mark's width


def label_line_ends(
    ax: Axes, anchors: Mapping[str, tuple[float, float]], top: float, is_one_column: bool = False
) -> None:
    """Write each text to the right of its anchor (x, y), with a line to it, and none above `top`.

    Texts that would lie over one another form a column beside the rightmost of their anchors, in the order of their
    heights; all texts are in one column where `is_one_column`. The axes' limits and place in the figure must be final.
    """
    scale = 72 / ax.figure.dpi
    at = {text: ax.transData.transform(anchor) * scale for text, anchor in anchors.items()}
    ceiling = ax.transData.transform((1.0, top))[1] * scale
    columns: list[tuple[float, dict[str, float]]] = []  # the most that its first label may reach; text -> height
    for text in sorted(at, key=lambda text: -at[text][1]):
        x, y = at[text]
        across = [entry for entry in columns if is_one_column or _overlap(x, [at[other][0] for other in entry[1]])]
        above = min(across, key=lambda entry: min(entry[1].values()), default=None)
        highest = min(above[1].values()) - _LINE if above else ceiling - 0.6 * _LINE
        if above is None or y < highest:
            above = (highest, {})
            columns.append(above)
        above[1][text] = min(y, highest)
    for highest, column in columns:
        x = max(at[text][0] for text in (at if is_one_column else column)) + _GAP
        pushed = [at[text][1] - y for text, y in column.items()]  # downwards; half of it is taken back
        up = min(highest - max(column.values()), sum(pushed) / len(pushed))
        for text, y in column.items():
            ax.annotate(
                text,
                anchors[text],
                (x - at[text][0], y + up - at[text][1]),
                textcoords="offset points",
                va="center",
                size=_SIZE,
                color=style.INK,
                arrowprops={
                    "arrowstyle": "-",
                    "color": style.MUTED,
                    "lw": 0.5,
                    "relpos": (0, 0.5),  # from the left of its text: it crosses no other
                    "shrinkA": 0,
                    "shrinkB": 3,
                },
                bbox={"boxstyle": "square,pad=0.05", "fc": "white", "ec": "none", "alpha": 0.8},
                zorder=5,
            )


def _overlap(x: float, column: list[float]) -> bool:
    """Whether a point at x with its label beside it shares horizontal room with points and the column beside them."""
    return x - _MARK < max(column) + _GAP + _WIDTH and min(column) - _MARK < x + _GAP + _WIDTH


@dataclass(frozen=True)
class Spot:
    """A text beside the point (x, y) of a plot, in a colour."""

    text: str
    x: float
    y: float
    colour: str


def around(ax: Axes, spots: Sequence[Spot], lines: Sequence[Sequence[tuple[float, float]]]) -> None:
    """Write each text near its point, over no point and no other text and over as little of `lines` as possible.

    lines: polylines through data points. A text that finds no room is left out; those further up have the first choice.
    The axes' limits and place in the figure must be final.
    """
    scale = 72 / ax.figure.dpi
    low, high = (corner * scale for corner in ax.transAxes.transform([(0, 0), (1, 1)]))
    taken = [Bbox.from_bounds(*(_at(ax, spot.x, spot.y) - _MARK), 2 * _MARK, 2 * _MARK) for spot in spots]
    on_lines = np.vstack([_along(np.array([_at(ax, *point) for point in line])) for line in lines])
    for spot in sorted(spots, key=lambda spot: (-spot.y, spot.x)):
        point, size = _at(ax, spot.x, spot.y), np.array([_WIDTH * len(spot.text) / 3, _LINE])
        free = []
        for offset in _OFFSETS:
            box = Bbox.from_bounds(*(point + offset * (size / 2 + _MARK) - size / 2), *size)
            inside = (box.min > low).all() and (box.max < high).all()
            if inside and not any(box.overlaps(other) for other in taken):
                crossed = ((on_lines > box.min) & (on_lines < box.max)).all(axis=1).sum()
                free.append((crossed + np.hypot(*offset), tuple(offset), box))
        if free and (best := min(free)[2]):
            taken.append(best)
            middle = tuple((best.min + best.max) / 2 - point)
            form = {"ha": "center", "va": "center", "size": _SIZE, "color": spot.colour, "zorder": 5}
            ax.annotate(spot.text, (spot.x, spot.y), middle, textcoords="offset points", **form)


_OFFSETS = tuple(  # of a label's middle from its point, in half its size and the mark's: all around, and further away
    distance * np.array([np.cos(angle), np.sin(angle)])
    for distance in (1.05, 1.35)
    for angle in np.linspace(0, 2 * np.pi, 16, endpoint=False)
)


def _at(ax: Axes, x: float, y: float) -> np.ndarray:
    """A point of the data, in points (1/72 inch) of the figure."""
    return np.array(ax.transData.transform((x, y))) * 72 / ax.figure.dpi


def _along(corners: np.ndarray) -> np.ndarray:
    """Places on a polyline, close to each other."""
    shares = np.linspace(0, 1, 40)[:, None]
    return np.vstack([corners, *(begin + shares * (end - begin) for begin, end in pairwise(corners))])
