"""Results as tables for people: what is the same in every row is said once, what is empty is left out."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, replace

import pandas as pd

from experiments.html import deflated
from experiments.records import frames, stats
from experiments.records.controls import Controls
from experiments.records.rows import ERROR, FAIL, PASS, SKIPPED
from gemm_ref import DIALECTS

MANY = 2000  # rows; beyond them those without a time are summed up by kernel, and of candidates a few are shown
LONG = 40  # characters beyond which a text may be broken into lines
_KERNEL = ["stage", "variant", "dialect"]
_SIZES = ["m", "n", "k"]
_UNSAID = ("experiment", "backend")  # the section and the other columns say them

_WORDS = {
    "stage": "rung",
    "size": "size",
    "median_us": "median, µs",
    "p20_us": "20%, µs",
    "p80_us": "80%, µs",
    "tflops": "TFLOP/s",
    "vs_cublas": "of cuBLAS",
    "vs_cublas_low": "95% from",
    "vs_cublas_high": "to",
    "rel_error": "relative error",
    "bound_share": "share of bound",
    "control": "cuBLAS beside itself",
}
_NAMES = {"cublas": "cuBLAS", "sm": "SM", "l2": "L2", "k": "K"}
_UNITS = {  # the last word of a column's name
    "us": "µs",
    "ms": "ms",
    "s": "s",
    "ghz": "GHz",
    "mhz": "MHz",
    "w": "W",
    "j": "J",
    "c": "°C",
    "bytes": "bytes",
    "gbs": "GB/s",
    "percent": "%",
    "tflops": "TFLOP/s",
}


@dataclass(frozen=True)
class Column:
    """The head of a column. `kind` says how it is set and sorted.

    It is number, size (4096, or 128×128×65536), text, or prose: text of which some is long.
    """

    name: str  # in the CSV
    label: str
    kind: str


@dataclass(frozen=True)
class Select:
    """A choice among the values of one column."""

    label: str
    column: int
    options: tuple[str, ...]


@dataclass(frozen=True)
class Table:
    """What the page shows of a CSV. `rows` holds a text for each column."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]
    constants: tuple[tuple[str, str], ...] = ()  # (label, value) of columns that are the same in all rows
    selects: tuple[Select, ...] = ()
    summed: int = 0  # of how many rows of the CSV it is a summary; 0 if it has them all
    shown: str = ""  # what a summary shows of them

    @property
    def packed(self) -> str:
        """Columns, choices and rows as JSON, in base64 of raw deflate: the page's script unpacks what is opened.

        A tenth of the rows' size as HTML, and the page opens without 100,000 cells.
        """
        content = {
            "columns": [asdict(column) for column in self.columns],
            "selects": [asdict(select) for select in self.selects],
            "rows": self.rows,
        }
        return deflated(json.dumps(content, separators=(",", ":")).encode())


def table_of(frame: pd.DataFrame) -> Table | None:
    """The table of one experiment's rows, as `store.read` gives them; None where there are none."""
    if frame.empty:
        return None
    timed = "median_us" in frame and frame["median_us"].notna().any()
    if len(frame) > MANY and not timed and set(_KERNEL) <= set(frame):
        return replace(_table(_summary(frame), summed=True), summed=len(frame), shown="a row per kernel")
    if len(frame) > MANY and "chosen" in frame:
        return replace(_table(_leading(frame)), summed=len(frame), shown="what was chosen, and the fastest")
    return _table(frame)


def _leading(frame: pd.DataFrame) -> pd.DataFrame:
    """Of the candidates for a problem those that were chosen, the fastest, and what has no time; and the libraries."""
    untimed = frame["median_us"].isna()
    fastest = frame.index.isin(frames.leaders(frame[~untimed]).index)
    return frame[fastest | untimed | (frame["chosen"] == 1) | (frame["dialect"] == "")]


def _summary(frame: pd.DataFrame) -> pd.DataFrame:
    """A row per kernel: how many rows it has, how many passed, failed and so on, and the largest of each measure."""
    groups = frame.groupby(_KERNEL, sort=False)
    found = groups.size().rename("rows").to_frame()
    for status, word in ((PASS, "passed"), (FAIL, "failed"), (ERROR, "errors"), (SKIPPED, "skipped")):
        if status in (PASS, FAIL) or (frame["status"] == status).any():
            found[word] = (frame["status"] == status).groupby([frame[key] for key in _KERNEL], sort=False).sum()
    measures = [name for name in frame.select_dtypes("number") if name not in _SIZES and frame[name].notna().any()]
    return found.join(groups[measures].max().add_prefix("largest_")).reset_index()


def _table(frame: pd.DataFrame, summed: bool = False) -> Table:
    frame = _with_sizes(_with_controls(frame).drop(columns=[name for name in _UNSAID if name in frame]))
    columns, texts, constants = [], [], []
    for name in frame:
        cells = _texts(frame[name], name)
        column = Column(name, _label(name), _kind(frame[name], name, cells))
        if not any(cells):
            continue
        if len(set(cells)) == 1 and len(cells) > 1 and name not in _KERNEL and not summed:
            constants.append((column.label, cells[0]))
        else:
            columns.append(column)
            texts.append(cells)
    rows = tuple(zip(*texts, strict=True))
    return Table(tuple(columns), rows, tuple(constants), tuple(_selects(columns, texts)))


def _with_controls(frame: pd.DataFrame) -> pd.DataFrame:
    """With a column that says at which problems no verdict can be trusted, beside the verdicts."""
    if "verdict" not in frame:
        return frame
    controls = Controls(frame)
    said = [f"not {stats.SAME}" if controls.mark_row(row) else "" for row in frame.itertuples()]
    frame = frame.copy()
    frame.insert(frame.columns.get_loc("verdict") + 1, "control", said)
    return frame


def _with_sizes(frame: pd.DataFrame) -> pd.DataFrame:
    """m, n and k in one column: a cube by its edge."""
    if not set(_SIZES) <= set(frame):
        return frame
    sizes = [
        f"{m}" if m == n == k else f"{m}×{n}×{k}"
        for m, n, k in frame[_SIZES].astype("int64").itertuples(index=False, name=None)
    ]
    place = frame.columns.get_loc("m")
    frame = frame.drop(columns=_SIZES)
    frame.insert(place, "size", sizes)
    return frame


def _selects(columns: list[Column], texts: list[list[str]]) -> list[Select]:
    """A choice by dialect and one by size, where there is more than one."""
    found = []
    places = {column.name: index for index, column in enumerate(columns)}
    for name in ("dialect", "size"):
        if name in places:
            there = set(texts[places[name]]) - {""}
            known = [dialect.title for dialect in DIALECTS.values() if dialect.title in there]
            options = known if name == "dialect" else sorted(there, key=_volume)
            if len(options) > 1:
                found.append(Select(name, places[name], tuple(options)))
    return found


def _volume(size: str) -> tuple[int, str]:
    """What sizes are sorted by: how many products they have."""
    edges = [int(edge) for edge in size.split("×")]
    return math.prod(edges if len(edges) == 3 else edges * 3), size


def _kind(values: pd.Series, name: str, cells: list[str]) -> str:
    if name == "size":
        return "size"
    if pd.api.types.is_numeric_dtype(values):
        return "number"
    return "prose" if max(map(len, cells)) > LONG else "text"


def _texts(values: pd.Series, name: str) -> list[str]:
    if name == "dialect":
        return [DIALECTS[value].title if value in DIALECTS else value for value in values]
    if name == "variant":
        return ["" if value == "default" else str(value) for value in values]
    if not pd.api.types.is_numeric_dtype(values):
        return ["" if pd.isna(value) else str(value) for value in values]
    whole = bool((values.dropna() % 1 == 0).all())
    return ["" if pd.isna(value) else f"{value:.0f}" if whole else figures_of(float(value)) for value in values]


def figures_of(value: float) -> str:
    """Four significant digits, as plain as they can be."""
    if value == 0:
        return "0"
    if 1e-3 <= abs(value) < 1e4:
        return f"{value:#.4g}".rstrip(".")
    return f"{value:,.0f}" if 1e4 <= abs(value) < 1e9 else f"{value:.3g}"


def _label(name: str) -> str:
    """A column's name in words, with its unit."""
    if name.startswith("largest_"):
        return f"largest {_label(name.removeprefix('largest_'))}"
    if name in _WORDS:
        return _WORDS[name]
    *words, last = name.split("_")
    if words and last in _UNITS:
        return f"{_label('_'.join(words))}, {_UNITS[last]}"
    if last in ("low", "high") and len(words) > 1 and words[-1] in _UNITS:
        return f"{_label('_'.join(words[:-1]))} ({last}), {_UNITS[words[-1]]}"
    return " ".join(_NAMES.get(word, word) for word in [*words, last])
