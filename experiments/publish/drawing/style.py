"""The look that all plots share, and how they are saved: the same data and libraries give the same bytes."""

from __future__ import annotations

import contextlib
import contextvars
import io
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib import rc_context, ticker
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from PIL import Image  # matplotlib brings it along

import gemm_ref
from gemm_ref import DIALECTS
from gemm_ref.baselines import BASELINES
from gemm_ref.build import write_whole
from gemm_ref.rung import DEFAULT_VARIANT

Picture = tuple[str, Figure]  # what its files are called, without their ends, and what is drawn

INK, MUTED, FAILED = "#1f2933", "#6b7280", "#b91c1c"
BASELINE, BAND = "#6b7280", "#f5f7fa"


@dataclass(frozen=True)
class Look:
    """How what belongs to a dialect is drawn."""

    colour: str
    dark: str  # the same on a dark page
    marker: str
    lane: int = 0  # beside the other dialects of a rung: steps from the middle of its row
    size: float = 4.5  # of its mark where marks may lie over one another: the larger are hollow, so that all are seen

    def overlaid(self, scale: float = 1.0) -> dict[str, Any]:
        """Its mark where others may be at the same point."""
        fill = {} if self.size == Look.size else {"mfc": "none", "mew": 1.2 * scale**0.5}
        return {"marker": self.marker, "ms": self.size * scale, "color": self.colour, **fill}


# Told apart under the three common kinds of colour blindness too; the marker says the same again.
LOOKS = {
    "cuda": Look("#76b900", "#84c41b", "o", -1),
    "triton": Look("#14467f", "#6ea6e8", "s", size=7),
    "gluon": Look("#d1495b", "#ee7b8b", "D", 1, size=9.5),
}
_LIBRARY = Look(BASELINE, BASELINE, "o")


def look_of(name: str) -> Look:
    """The look of a dialect; for a baseline's name, and the empty dialect of its rows, that of all libraries."""
    return LOOKS.get(name, _LIBRARY)


AT_THE_TOP: dict[str, Any] = {"loc": "upper right", "frameon": False, "bbox_to_anchor": (0.99, 0.995)}  # a key's place
OTHER = {"mfc": "none", "mew": 0.8, "ms": 4, "alpha": 0.6}  # the mark of a variant that is not a dialect's default
LANE = 0.24  # of a rung's row, from one dialect's mark to the next
WIDTH = 9.0  # inches; at 160 dots an inch it is sharp at a README's width
NARROW = 5.6  # inches: a text of 9 points is still read where the whole picture is as wide as a telephone
_DPI = 160
LEFT = 0.012  # of the width: where texts over the whole figure begin
NO_KERNEL, NOT_RUN = "–", "not run"  # there is none, by the registry; there is one, without data

_RC = {
    **sns.axes_style("whitegrid"),
    **sns.plotting_context("notebook", font_scale=0.85),
    "font.family": "DejaVu Sans",  # comes with matplotlib, so that every machine draws the same
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": "#cbd2d9",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.color": INK,
    "ytick.color": INK,
    "grid.color": "#e4e7eb",
    "axes.titlelocation": "left",
    "axes.titleweight": "bold",
    "svg.hashsalt": "gemm-ladder",
}


def rows_of(frame: pd.DataFrame) -> list[tuple[str, str]]:
    """(stage, variant) of the rows of a plot, from the bottom of the ladder up to its top and on to CUTLASS."""
    present = set(zip(frame["stage"], frame["variant"], strict=True))
    cpu = [(item.name, DEFAULT_VARIANT) for item in BASELINES.values() if item.device == "cpu"]
    rungs = [(stage.id, variant) for stage in gemm_ref.STAGES.values() for variant in stage.variants]
    cutlass = [(item.name, DEFAULT_VARIANT) for item in BASELINES.values() if item.backend == "cutlass"]
    return [key for key in cpu + rungs + cutlass if key in present]


def rungs_of(frame: pd.DataFrame) -> list[str]:
    """The stages of the rows of a plot that has one row for all variants, in the same order."""
    return list(dict.fromkeys(stage for stage, _ in rows_of(frame)))


def kernels_of(frame: pd.DataFrame) -> list[tuple[str, str]]:
    """(stage, dialect) of the rows of a plot that has one for each dialect of a rung, and for each library."""
    there = set(zip(frame["stage"], frame["dialect"], strict=True))
    return [key for key in itertools.product((*gemm_ref.STAGES, *BASELINES), (*DIALECTS, "")) if key in there]


def label_of(stage: str, variant: str = DEFAULT_VARIANT, joint: str = "\n") -> str:
    """What a row is called: a baseline's title, or a rung's number and words, with a variant that has a name."""
    if stage in BASELINES:
        return BASELINES[stage].title
    number, words = stage.split("_", 1)
    return f"{number} {words.replace('_', ' ')}" + ("" if variant == DEFAULT_VARIANT else f"{joint}{variant}")


def absent(stage: str, *variant_and_dialect: str) -> str:
    """What stands in the place of a value that the data lack: NO_KERNEL or NOT_RUN.

    Of a rung, or one variant of it, in a dialect; of a library, whose dialect is empty.
    """
    *variant, dialect = variant_and_dialect
    rung = gemm_ref.STAGES.get(stage)
    there = rung is None or (dialect in rung.dialects and set(variant) <= set(rung.variants_in(dialect)))
    return NOT_RUN if there else NO_KERNEL


def with_absent(caption: str, texts: Iterable[str]) -> str:
    """A caption that says what NO_KERNEL means, where one of the texts above it is that."""
    return f"{NO_KERNEL} there is no such kernel · {caption}" if NO_KERNEL in texts else caption


def kernel_name(stage: str, variant: str, dialect: str) -> str:
    """A kernel in one line: `s05 bank conflict · padded, CUDA`."""
    return f"{label_of(stage, variant, ' · ')}, {DIALECTS[dialect].title}"


def themed() -> rc_context:
    """A context in which figures are made and saved; the process's own settings are untouched."""
    return rc_context(_RC)


def bare(ax: Axes, axis: str = "both") -> None:
    """Take away what does not carry data: ticks, the frame, and the grid along `axis` ("x", "y" or "both")."""
    ax.tick_params(length=0)
    ax.grid(False, axis=axis, which="both")
    sns.despine(ax=ax, left=True, bottom=True)


def rows(ax: Axes, names: Sequence[str], **look: Any) -> None:
    """One row for each name, which is on its left, the first on top; every other is shaded. `look` is the names'."""
    ax.set_ylim(len(names) - 0.5, -0.5)
    ax.set_yticks(range(len(names)), names, **look)
    for index in range(0, len(names), 2):
        ax.axhspan(index - 0.5, index + 0.5, color=BAND, zorder=0, lw=0)
    bare(ax, "y")


def plain(*axes: Axis) -> None:
    """Write the numbers of logarithmic axes without exponents, and none between the main ones."""
    for axis in axes:
        axis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{value:g}"))
        axis.set_minor_locator(ticker.NullLocator())


def marks(dialects: Iterable[str], marker: str = "", overlaid: bool = False) -> list[Line2D]:
    """The handles of a key that names these dialects, in their order: by their own marks or all by one."""
    there = set(dialects)
    found = []
    for name, look in LOOKS.items():
        drawn = look.overlaid() if overlaid else {"marker": marker or look.marker, "color": look.colour, "ms": 6.5}
        found += [Line2D([], [], ls="", label=DIALECTS[name].title, **drawn)] if name in there else []
    return found


def legend(
    figure: Figure, dialects: Iterable[str], marker: str = "", overlaid: bool = False, library: str = ""
) -> None:
    """Name these dialects at the top right, and the library whose marks are beside theirs."""
    handles = marks(dialects, marker, overlaid)
    if library:
        handles += [Line2D([], [], ls="", label=library, marker=_LIBRARY.marker, color=_LIBRARY.colour, ms=6.5)]
    if handles:
        figure.legend(handles=handles, **AT_THE_TOP, ncols=len(handles))


def gaps(ax: Axes, rows: Sequence[str], frame: pd.DataFrame) -> None:
    """Say of each dialect of the frame that has no mark in a rung's row, in its lane there, why it has none."""
    there = set(zip(frame["stage"], frame["dialect"], strict=True))
    dialects = sorted({name for _, name in there if name})
    for y, stage in enumerate(rows):
        lacking = [name for name in dialects if (stage, name) not in there] if stage in gemm_ref.STAGES else []
        if lacking == dialects and lacking:
            note(ax, y, NOT_RUN)
            continue
        for name in lacking:
            title = DIALECTS[name].title
            text = f"no {title} kernel" if absent(stage, name) == NO_KERNEL else f"{title}: {NOT_RUN}"
            note(ax, y + LANE * look_of(name).lane, text)


def note(ax: Axes, y: float, text: str, right: bool = False) -> None:
    """Say in row `y`, from its left end on or up to its right end, why it has no marks."""
    x, side = (0.99, "right") if right else (0.01, "left")
    place = {"xycoords": ax.get_yaxis_transform(), "ha": side, "va": "center_baseline"}
    ax.annotate(text, (x, y), size=7.5, color=MUTED, **place)


def columns(ax: Axes, texts: Mapping[tuple[int, str], str], width: float, title: str = "", size: float = 9) -> None:
    """Write a column per dialect to the right of `ax`, each `width` inches wide: texts of (row, dialect).

    The dialects' names and marks stand over the columns, so that no other key is needed; libraries, of the empty
    dialect, come last. The axes' place and limits must be final.
    """
    step = width / (ax.get_position().width * ax.figure.get_figwidth())
    high = 1 / (ax.get_position().height * ax.figure.get_figheight())  # an inch
    there = [dialect for dialect in (*DIALECTS, "") if any(dialect == other for _, other in texts)]
    for place, dialect in enumerate(there, 1):
        name = DIALECTS[dialect].title if dialect else "library"
        ax.annotate(name, (1 + place * step, 1 + 0.08 * high), xycoords="axes fraction", ha="right", size=9)
        look, mark = look_of(dialect), (1 + (place - 0.22) * step, 1 + 0.3 * high)
        ax.plot(*mark, look.marker, color=look.colour, ms=6.5, transform=ax.transAxes, clip_on=False)
    middle = (1 + 0.5 * step * (len(there) + 0.4), 1 + 0.48 * high)
    ax.annotate(title, middle, xycoords="axes fraction", ha="center", size=9, color=MUTED)
    for (row, dialect), text in texts.items():
        weak = text in (NO_KERNEL, NOT_RUN)
        form = {"size": size - weak, "color": MUTED if weak else INK, "ha": "right", "va": "center_baseline"}
        right = 1 + (there.index(dialect) + 1) * step
        ax.annotate(text, (right, row), xycoords=ax.get_yaxis_transform(), **form)


PNG, SVG, PAGE = ".png", ".svg", ".page.svg"  # how files end; in the last texts stay texts, for the report's page
_AS_SVG = {"format": "svg", "metadata": {"Date": None, "Creator": None}}
_OPTIONS: dict[str, dict[str, Any]] = {
    PNG: {"dpi": _DPI, "pil_kwargs": {"compress_level": 0}},
    SVG: _AS_SVG,
    PAGE: _AS_SVG,
}
_forms: contextvars.ContextVar[tuple[str, ...]] = contextvars.ContextVar("forms", default=(PNG, SVG))


@contextlib.contextmanager
def forms(*ends: str) -> Iterator[None]:
    """Inside, `save` writes these of PNG, SVG and PAGE: a PNG takes as long as the rest of a plot."""
    before = _forms.set(ends)
    try:
        yield
    finally:
        _forms.reset(before)


def form_of(file: str) -> str:
    """PNG, SVG or PAGE, by a file's name."""
    return next(end for end in (PAGE, PNG, SVG) if file.endswith(end))


def save(figure: Figure, folder: Path, name: str) -> list[Path]:
    """Write `name`.png and `name`.svg, or what `forms` asks for, each whole or not at all; return their paths."""
    drawn = {folder / f"{name}{end}": _draw(figure, end) for end in _forms.get()}
    for path, image in drawn.items():
        write_whole(path, image)
    return list(drawn)


def _draw(figure: Figure, end: str) -> bytes:
    image = io.BytesIO()
    with rc_context({"svg.fonttype": "none"} if end == PAGE else {}):
        figure.savefig(image, **_OPTIONS[end])
    return _in_palette(image) if end == PNG else image.getvalue()


def _in_palette(image: io.BytesIO) -> bytes:
    """A PNG again, of 256 colours: a third of the bytes, and but for a few edges of letters the same picture."""
    few = Image.open(image).convert("RGB").quantize(256, Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
    small = io.BytesIO()
    few.save(small, "png", optimize=True)
    return small.getvalue()


def legible(colour: str) -> str:
    """The colour, nearer to the ink: for a text that is read on the light page and on the dark one."""
    return to_hex(0.38 * np.array(to_rgb(colour)) + 0.62 * np.array(to_rgb(INK)))
