"""Sentences about the result of `shapes`, made from its rows."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from experiments.publish.numbers import format_fixed
from experiments.publish.reach import words_of
from experiments.publish.wording import DIALECT_TITLES, join_words
from experiments.records import frames, shape_classes, stats
from gemm_ref import DIALECTS

_MATHS = ("fp32", "bf16")  # the page's answer has all compute types


def describe(frame: pd.DataFrame) -> Iterator[str]:
    """Sentences on the rows of the study, a class of problems at a time; none where the rows say nothing."""
    judged = {math: _select_last_rung(frame, math) for math in _MATHS}
    for name in shape_classes.CLASSES:
        own = {math: rows[rows["shape_class"] == name] for math, rows in judged.items()}
        each = [f"{_describe_means(rows)} in {frames.in_mode(math)}" for math, rows in own.items() if len(rows)]
        if each:
            title = words_of("en")["classes"][name].capitalize()
            yield f"{title}: the last rung in {DIALECT_TITLES} reaches of cuBLAS' speed {join_words(each)}"
    library = frames.timed(frame)
    library = library[library["backend"] == "cublaslt"]
    if len(library):
        problems = [len(rows[list(frames.SIZES)].drop_duplicates()) for rows in (_faster(library), library)]
        faster, count = problems
        yield f"At {faster} of {count} another algorithm of cuBLASLt is faster than the one that cuBLAS chose"


def _select_last_rung(frame: pd.DataFrame, math: str) -> pd.DataFrame:
    """The judged rows of the last rung, which all of its dialects were timed with in the same runs."""
    rows = frames.rungs(shape_classes.with_classes(frames.timed(frame, math)))
    return rows[rows["stage"] == rows["stage"].max()]


def _describe_means(rows: pd.DataFrame) -> str:
    """`105 / 97 / 103% (geometric mean of 86 problems; faster at 61 / 19 / 46)`."""
    by_dialect = {name: own for name in DIALECTS if len(own := rows[rows["dialect"] == name])}
    means = " / ".join(format_fixed(100 * stats.geometric_mean(own["vs_cublas"])) for own in by_dialect.values())
    wins = " / ".join(str(len(_faster(own))) for own in by_dialect.values())
    count = len(rows[list(frames.SIZES)].drop_duplicates())
    return f"{means}% (geometric mean of {count}; faster at {wins})"


def _faster(rows: pd.DataFrame) -> pd.DataFrame:
    return rows[rows["verdict"] == stats.FASTER]
