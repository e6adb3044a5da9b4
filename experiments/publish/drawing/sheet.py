"""A figure with its words: title and subtitle on top, what went wrong and a key below them, a caption at the bottom."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.artist import Artist
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from experiments.publish.drawing import style
from experiments.publish.drawing.maps import Scale, key

_MOST_LISTED = 12  # lines of what went wrong
_LINE = 0.19  # inches from one of them to the next


class Sheet:
    """`figure` is for axes; `place` or `fit` puts them between the words, and returns the figure.

    What is drawn must be there before `fit`.
    """

    def __init__(
        self,
        size: tuple[float, float],
        title: str,
        subtitle: str,
        caption: str,
        *,
        failed: Sequence[str] = (),
        scale: Scale | None = None,
    ) -> None:
        """size: inches across and up, without the lines `failed`; scale: whose steps a key names."""
        more = [f"and {len(failed) - _MOST_LISTED} more"] if len(failed) > _MOST_LISTED else []
        lines = [*failed[:_MOST_LISTED], *more]
        self.figure = Figure(figsize=(size[0], size[1] + _LINE * len(lines)))
        self._inch = 1 / self.figure.get_figheight()
        self._top = _heading(self.figure, title, subtitle)
        for line in lines:
            self.figure.text(style.LEFT, self._top, line, va="top", size=8.5, color=style.FAILED)
            self._top -= _LINE * self._inch
        if scale:
            self._top = key(self.figure, scale, self._top)
        self._bottom = _footer(self.figure, caption)

    def head(self, x: float, text: str) -> None:
        """Write a title over several axes, its middle at `x` of the width."""
        self.figure.text(x, self._top - 0.04 * self._inch, text, ha="center", va="top", size=9.5, color=style.MUTED)

    def legend(self, handles: Sequence[Artist]) -> None:
        """A key at the right, below the title."""
        place = {"loc": "upper right", "bbox_to_anchor": (0.99, self._top)}
        self.figure.legend(handles=handles, ncols=len(handles), frameon=False, **place)

    def name_colours(self, colours: Mapping[str, str]) -> None:
        """Name what colours stand for, in a line below the subtitle that takes 0.42 inches."""
        handles = [Patch(color=colour, label=name, lw=0) for name, colour in colours.items()]
        place = {"loc": "upper left", "bbox_to_anchor": (0.005, self._top + 0.06 * self._inch), "columnspacing": 1.6}
        self.figure.legend(handles=handles, ncols=len(handles), frameon=False, fontsize=8, handlelength=1, **place)

    def place(self, above: float, below: float, left: float, right: float, **more: float) -> Figure:
        """Leave inches `above` and `below` the axes, which go from `left` to `right` of the width.

        more: as for matplotlib's `subplots_adjust`.
        """
        top, bottom = self._top - above * self._inch, self._bottom + below * self._inch
        self.figure.subplots_adjust(left=left, right=right, top=top, bottom=bottom, **more)
        return self.figure

    def fit(self) -> Figure:
        """Give the axes all the room that their own texts leave."""
        self.figure.tight_layout(rect=(0, self._bottom, 1, self._top))
        return self.figure


def _heading(figure: Figure, title: str, subtitle: str) -> float:
    """Write title and subtitle, of one line or more, at the top left.

    Returns the height that is left below, as a share of the figure's.
    """
    inch = 1 / figure.get_figheight()
    figure.text(style.LEFT, 1 - 0.12 * inch, title, va="top", size=13, weight="bold")
    figure.text(style.LEFT, 1 - 0.40 * inch, subtitle, va="top", size=9.5, color=style.MUTED)
    return 1 - (0.66 + 0.18 * subtitle.count("\n")) * inch


def _footer(figure: Figure, caption: str) -> float:
    """Write the caption at the bottom left, wrapped at its separators; return the height it takes, likewise."""
    lines: list[str] = []
    line = ""
    for part in caption.split(" · "):
        joined = f"{line} · {part}" if line else part
        if len(joined) > 15 * figure.get_figwidth():
            lines, joined = [*lines, line], part
        line = joined
    lines.append(line)
    inch = 1 / figure.get_figheight()
    figure.text(style.LEFT, 0.08 * inch, "\n".join(lines), va="bottom", size=7.5, color=style.MUTED, linespacing=1.4)
    return (0.16 + 0.16 * len(lines)) * inch
