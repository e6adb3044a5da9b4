"""Results as tables for people: what is the same in every row is said once, what is empty is left out."""

from __future__ import annotations

import math
from dataclasses import dataclass

import pandas as pd

from experiments.publish.numbers import format_edges, format_fixed, format_precise
from experiments.publish.table import NUMBER, PROSE, SIZE, TEXT, Column, Select, Table
from experiments.records import frames, stats
from experiments.records.controls import Controls
from experiments.records.rows import ERROR, FAIL, PASS, SKIPPED
from gemm_ref import DIALECTS
from gemm_ref.rung import DEFAULT_VARIANT

MANY_ROWS = 2000  # beyond them rows without a time are summed up by kernel, and of candidates a few are shown
LONG_CHARACTERS = 40  # beyond which a text may be broken into lines
_KERNEL = ["stage", "variant", "dialect"]
_SIZES = list(frames.SIZES)
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
class ResultTable:
    """What the page shows of a CSV."""

    table: Table
    constants: tuple[tuple[str, str], ...] = ()  # (label, value) of columns that are the same in all rows
    summed: int = 0  # of how many rows of the CSV it is a summary; 0 if it has them all
    shown: str = ""  # what a summary shows of them


def tabulate(frame: pd.DataFrame) -> ResultTable | None:
    """The table of one experiment's rows, as `store.read` gives them; None where there are none."""
    if frame.empty:
        return None
    timed = "median_us" in frame and frame["median_us"].notna().any()
    if len(frame) > MANY_ROWS and not timed and set(_KERNEL) <= set(frame):
        return ResultTable(*_columns(_sum_up(frame), is_summary=True), len(frame), "a row per kernel")
    if len(frame) > MANY_ROWS and "chosen" in frame:
        return ResultTable(*_columns(_leading(frame)), len(frame), "what was chosen, and the fastest")
    return ResultTable(*_columns(frame))


def _leading(frame: pd.DataFrame) -> pd.DataFrame:
    """Of the candidates for a problem those that were chosen, the fastest, and what has no time; and the libraries."""
    untimed = frame["median_us"].isna()
    fastest = frame.index.isin(frames.leaders(frame[~untimed]).index)
    return frame[fastest | untimed | (frame["chosen"] == 1) | (frame["dialect"] == "")]


def _sum_up(frame: pd.DataFrame) -> pd.DataFrame:
    """A row per kernel: how many rows it has, how many passed, failed and so on, and the largest of each measure."""
    groups = frame.groupby(_KERNEL, sort=False)
    found = groups.size().rename("rows").to_frame()
    for status, word in ((PASS, "passed"), (FAIL, "failed"), (ERROR, "errors"), (SKIPPED, "skipped")):
        if status in (PASS, FAIL) or (frame["status"] == status).any():
            found[word] = (frame["status"] == status).groupby([frame[key] for key in _KERNEL], sort=False).sum()
    measures = [name for name in frame.select_dtypes("number") if name not in _SIZES and frame[name].notna().any()]
    return found.join(groups[measures].max().add_prefix("largest_")).reset_index()


def _columns(frame: pd.DataFrame, is_summary: bool = False) -> tuple[Table, tuple[tuple[str, str], ...]]:
    """The table of the columns that differ from row to row, and the others as constants."""
    frame = _add_sizes(_add_controls(frame).drop(columns=[name for name in _UNSAID if name in frame]))
    columns, texts, constants = [], [], []
    for name in frame:
        cells = _texts(frame[name], name)
        if not any(cells):
            continue
        column = Column(name, _label(name), _kind(frame[name], name, cells))
        if len(set(cells)) == 1 and len(cells) > 1 and name not in _KERNEL and not is_summary:
            constants.append((column.label, cells[0]))
        else:
            columns.append(column)
            texts.append(cells)
    rows = tuple(zip(*texts, strict=True))
    return Table(tuple(columns), rows, tuple(_selects(columns, texts))), tuple(constants)


def _add_controls(frame: pd.DataFrame) -> pd.DataFrame:
    """With a column that says at which problems no verdict can be trusted, beside the verdicts."""
    if "verdict" not in frame:
        return frame
    controls = Controls(frame)
    marks = [f"not {stats.SAME}" if controls.mark_row(row) else "" for row in frame.itertuples()]
    frame = frame.copy()
    frame.insert(frame.columns.get_loc("verdict") + 1, "control", marks)
    return frame


def _add_sizes(frame: pd.DataFrame) -> pd.DataFrame:
    """m, n and k in one column: a cube by its edge."""
    if not set(_SIZES) <= set(frame):
        return frame
    sizes = [format_edges(row, "×") for row in frame[_SIZES].astype("int64").itertuples()]
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
        return SIZE
    if pd.api.types.is_numeric_dtype(values):
        return NUMBER
    return PROSE if max(map(len, cells)) > LONG_CHARACTERS else TEXT


def _texts(values: pd.Series, name: str) -> list[str]:
    if name == "dialect":
        return [DIALECTS[value].title if value in DIALECTS else value for value in values]
    if name == "variant":
        return ["" if value == DEFAULT_VARIANT else str(value) for value in values]
    if not pd.api.types.is_numeric_dtype(values):
        return [
            "" if is_missing else str(value) for value, is_missing in zip(values.tolist(), values.isna(), strict=True)
        ]
    form = format_fixed if bool((values.dropna() % 1 == 0).all()) else format_precise
    return ["" if math.isnan(value) else form(value) for value in values.astype(float).tolist()]


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
