"""Classes of problems in which kernels are judged apart, because what limits a product differs between them.

One mean over all shapes would mix them: where the rows of a matrix are not aligned, cuBLAS leaves its fast kernels, and
a few such problems outweigh all others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pandas as pd

import gemm_ref
from experiments.records import frames, store
from experiments.records.controls import Controls
from experiments.records.rows import FAIL

SQUARES, LAYERS, FEW_ROWS, UNALIGNED = "squares", "layers", "few_rows", "unaligned"
CLASSES = (SQUARES, LAYERS, FEW_ROWS, UNALIGNED)
MAX_FEW_ROWS = 64  # rows of A up to which reading B is what takes the time: decoding of a language model
VECTOR_BYTES = 16  # TMA and the widest loads need rows that begin at multiples of it
IEEE_ERROR = 1e-5  # relative: a product of TF32's rounded operands has 3e-4, one in IEEE fp32 less than 1e-6

# A problem that several studies have timed is taken from the first of them, which has the most kernels.
_STUDIES = ("ladder", "tensor_cores", "squares", "shapes")


def classify(math: str, m: int, n: int, k: int) -> str:
    """Return the class of a product of (m, k) by (k, n) in a compute type: one of CLASSES.

    A problem is unaligned if a row of A, B or C, with B stored either way, is no multiple of VECTOR_BYTES long.
    """
    elements = VECTOR_BYTES // gemm_ref.MATHS[math].dtype.itemsize
    if n % elements or k % elements:
        return UNALIGNED
    if m == n == k:
        return SQUARES
    return FEW_ROWS if m <= MAX_FEW_ROWS else LAYERS


def has_other_arithmetic(frame: pd.DataFrame) -> pd.Series:
    """Return whether cuBLAS computed a row's problem in IEEE fp32 although TF32 was allowed, as its error shows.

    A share of such a product compares two kinds of arithmetic.
    """
    own = frame[(frame["backend"] == "cublas") & (frame["math"] == "tf32") & (frame["rel_error"] < IEEE_ERROR)]
    problems = set(_sizes(own))
    return pd.Series([each in problems for each in _sizes(frame)], frame.index, bool) & (frame["math"] == "tf32")


def with_classes(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of one compute type that can be judged, with their class in the column `shape_class`.

    They are of problems at which the last rung was timed, whose control is SAME, and at which cuBLAS ran the same
    arithmetic.
    """
    rows = _controlled(rows)
    rows = rows[~has_other_arithmetic(rows)]
    return rows.assign(shape_class=[classify(row.math, row.m, row.n, row.k) for row in rows.itertuples()])


@dataclass(frozen=True)
class Problems:
    """The judged problems of one class in one compute type, with the rows of the ladder's kernels."""

    math: str
    name: str  # of CLASSES
    rows: pd.DataFrame
    other_commits: tuple[str, ...]  # of rows, beside that of the tables at one size


class ClassifiedProblems(NamedTuple):
    """The classes of problems of a folder of results."""

    problems: list[Problems]
    excluded: int  # problems at which cuBLAS computed in IEEE fp32 although TF32 was allowed
    wrong_baselines: int  # rows of baselines that were not timed, or whose time was rejected, since they are wrong


def read(folder: Path) -> ClassifiedProblems:
    """Return the problems of each compute type and class that were timed, with B stored as the tables have it.

    Of each study the rows of its latest commit are compared.
    """
    studied, runs = [store.read(folder, study) for study in _STUDIES], store.read_runs(folder)
    problems, excluded = list[Problems](), set[tuple[int, ...]]()
    for math in gemm_ref.MATHS:
        timed = [rows for frame in studied if len(rows := _timed(frame, math, runs))]
        problems += _classes(timed, math, runs)
        for rows in map(_controlled, timed):
            excluded.update(_sizes(rows[has_other_arithmetic(rows)]))
    wrong = sum(int(((frame["dialect"] == "") & (frame["status"] == FAIL)).sum()) for frame in studied)
    return ClassifiedProblems(problems, len(excluded), wrong)


def _classes(studied: Sequence[pd.DataFrame], math: str, runs: Mapping[str, dict]) -> Iterator[Problems]:
    """Yield the problems of each class in one compute type, from the timed rows of several studies."""
    if not studied:
        return
    found, seen, current = [], set[tuple[int, ...]](), frames.commits(studied[0], runs)
    for rows in map(with_classes, studied):
        sizes = _sizes(rows)
        found.append(rows[[each not in seen for each in sizes]])
        seen.update(sizes)
    rows = frames.rungs(pd.concat(found, ignore_index=True))
    for name in CLASSES:
        own = rows[rows["shape_class"] == name]
        if len(own):
            others = tuple(each for each in frames.commits(own, runs) if each not in current)
            yield Problems(math, name, own, others)


def _sizes(rows: pd.DataFrame) -> list[tuple[int, ...]]:
    return list(rows[list(frames.SIZES)].itertuples(index=False, name=None))


def _controlled(rows: pd.DataFrame) -> pd.DataFrame:
    return frames.with_last_rung(Controls(rows).passed(rows))


def _timed(frame: pd.DataFrame, math: str, runs: Mapping[str, dict]) -> pd.DataFrame:
    rows = frames.timed(frame, math)
    return frames.of_latest_commit(frames.shown(rows), runs)
