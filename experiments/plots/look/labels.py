"""Labels on the right of the points of a plot, none over another."""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib.axes import Axes

from experiments.plots.look import style

_SIZE = 8.0  # points
_LINE = 1.12 * _SIZE  # from one label to the next
_GAP = 13.0  # from the points to their labels
_WIDTH = 2.2 * _SIZE  # of a label
_MARK = 4.0  # half of a mark's width


def beside(ax: Axes, anchors: Mapping[str, tuple[float, float]], top: float) -> None:
    """Write each text to the right of its anchor (x, y), with a line to it, and none above `top`.

    Texts that would lie over one another form a column beside the rightmost of their anchors, in the order of their
    heights. The axes' limits and place in the figure must be final.
    """
    scale = 72 / ax.figure.dpi
    at = {text: ax.transData.transform(anchor) * scale for text, anchor in anchors.items()}
    ceiling = ax.transData.transform((1.0, top))[1] * scale
    columns: list[tuple[float, dict[str, float]]] = []  # the most that its first label may reach; text -> height
    for text in sorted(at, key=lambda text: -at[text][1]):
        x, y = at[text]
        across = [entry for entry in columns if _overlap(x, [at[other][0] for other in entry[1]])]
        above = min(across, key=lambda entry: min(entry[1].values()), default=None)
        highest = min(above[1].values()) - _LINE if above else ceiling - 0.6 * _LINE
        if above is None or y < highest:
            above = (highest, {})
            columns.append(above)
        above[1][text] = min(y, highest)
    for highest, column in columns:
        x = max(at[text][0] for text in column) + _GAP
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
                arrowprops={"arrowstyle": "-", "color": style.MUTED, "lw": 0.5, "shrinkA": 0, "shrinkB": 3},
                bbox={"boxstyle": "square,pad=0.05", "fc": "white", "ec": "none", "alpha": 0.8},
                zorder=5,
            )


def _overlap(x: float, column: list[float]) -> bool:
    """Whether a point at x with its label beside it shares horizontal room with points and the column beside them."""
    return x - _MARK < max(column) + _GAP + _WIDTH and min(column) - _MARK < x + _GAP + _WIDTH
