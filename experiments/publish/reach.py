"""What the dialects reach over some problems or at one, and the rule that says which of them to take."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import pandas as pd

from experiments.grouping import group_pairs
from experiments.publish.numbers import format_fixed, format_percent
from experiments.records import frames, shape_classes, stats
from experiments.records.source_lines import lines_of
from gemm_ref import DIALECTS
from gemm_ref.dialect import BY_HAND

TOLERANCE = 0.05  # of the speed: what keeps up in the median may lose no more than this on average
_VERDICTS = {
    stats.SAME: ", level",
    stats.FASTER: ", {percent}% faster",
    stats.SLOWER: ", {percent}% slower",
    stats.UNSURE: ", not told apart",
}
OTHER_COMMIT = "‡"  # the mark of a mean over rows of another commit than that of the tables at one size

Sizes = tuple[int, int, int]
Rows = Mapping[Sizes, Any]  # one row per problem, as `itertuples` gives it


@functools.cache
def words_of(language: str) -> dict[str, Any]:
    """The words of README's tables in one language, and the rungs' ideas if the registry is in another."""
    return tomllib.loads((Path(__file__).parent / "readme.toml").read_text(encoding="utf-8"))[language]


def title_of(take: str) -> str:
    """The title of a dialect; what is to take but no dialect, a library, is a title itself."""
    return DIALECTS[take].title if take in DIALECTS else take


def keeps_up(rows: Rows, beside: Rows) -> bool:
    """Whether kernels are level with the kernels `beside` them, or faster.

    By verdict at no less than half of the problems, and on average within TOLERANCE.
    """
    level = [frames.verdict(beside[size], row) in (stats.SAME, stats.FASTER) for size, row in rows.items()]
    others = {size: beside[size] for size in rows}
    return 2 * sum(level) >= len(level) and _mean(rows) >= (1 - TOLERANCE) * _mean(others)


@dataclass(frozen=True)
class Reach:
    """What a dialect reaches over some problems, or at one."""

    dialect: str
    fastest: Rows  # its fastest kernel at each problem, of any rung and variant
    rung: str  # with the fewest lines of those that keep up with the fastest of all dialects, or else of this one
    rung_rows: Rows  # the fastest variant of that rung at each problem

    @classmethod
    def of(cls, dialect: str, rows: Sequence[Any], beside: Rows) -> Reach:
        """From all rows of the dialect, with the rows of the fastest dialect beside it."""
        fastest = _fastest(rows)
        rungs = {stage: _fastest(own) for stage, own in group_pairs((row.stage, row) for row in rows).items()}
        whole = {stage: own for stage, own in rungs.items() if own.keys() == fastest.keys()} or rungs
        for other in (beside, fastest):
            able = {stage: own for stage, own in whole.items() if own.keys() <= other.keys() and keeps_up(own, other)}
            if able:
                break
        shares = {stage: _mean(own) for stage, own in (able or whole).items()}
        rung = min(shares, key=lambda stage: (lines_of(stage, dialect).lines, -shares[stage]))
        return cls(dialect, fastest, rung, rungs[rung])

    @property
    def mean(self) -> float:
        """The geometric mean of its fastest kernels' shares of cuBLAS."""
        return _mean(self.fastest)

    @property
    def median(self) -> float:
        """The median of the same shares."""
        return median(row.vs_cublas for row in self.fastest.values())

    @property
    def worst(self) -> Any:
        """The row of its fastest kernel at the problem where that is furthest behind cuBLAS."""
        return min(self.fastest.values(), key=lambda row: row.vs_cublas)

    def count(self, verdict: str) -> int:
        """At how many problems its fastest kernel has this verdict beside cuBLAS."""
        return sum(row.verdict == verdict for row in self.fastest.values())

    @property
    def lines(self) -> int:
        """The lines of code of the rung's own file and of the files that it shares."""
        return lines_of(self.rung, self.dialect).lines

    @property
    def number(self) -> str:
        """The rung's number: s12."""
        return self.rung.split("_")[0]

    @property
    def row(self) -> Any:
        """The rung's row, where there is one problem."""
        (row,) = self.rung_rows.values()
        return row

    @property
    def percent(self) -> str:
        """The rung's share of cuBLAS, where there is one problem."""
        return format_percent(self.row.vs_cublas)


@dataclass(frozen=True)
class Answered:
    """What each dialect reaches over some problems in one compute type, and which of them is to take."""

    math: str
    best: Mapping[str, Reach]  # by dialect, in the registry's order

    @classmethod
    def of(cls, math: str, rows: pd.DataFrame) -> Answered:
        """From the rows of the ladder's kernels."""
        by_dialect = group_pairs((row.dialect, row) for row in rows.itertuples())
        found = {name: by_dialect[name] for name in DIALECTS if name in by_dialect}
        first = max((_fastest(own) for own in found.values()), key=_mean, default={})
        return cls(math, {name: Reach.of(name, own, first) for name, own in found.items()})

    @property
    def fastest(self) -> Reach:
        """The dialect with the largest mean; CUDA, where the verdicts leave open whether that keeps up with it."""
        first = max(self.best.values(), key=lambda each: each.mean)
        hand = self.best.get(BY_HAND, first)
        return first if _keeps_up(first, hand) else hand

    @property
    def library(self) -> str:
        """What shares are of."""
        return frames.reference(self.math)

    @property
    def take(self) -> str | None:
        """The dialect with the fewest lines of those that keep up with the fastest; None without CUDA.

        The library, where it is faster than the fastest dialect at more than half of the problems and on average.
        """
        if BY_HAND not in self.best:
            return None
        first = self.fastest
        if 2 * first.count(stats.SLOWER) > len(first.fastest) > 1 and first.mean < 1 - TOLERANCE:
            return self.library
        able = [each for each in self.best.values() if _keeps_up(each, self.fastest)]
        return min(able, key=lambda each: each.lines).dialect

    def describe_verdict(self, dialect: str) -> str:
        """The verdict beside CUDA's fastest in words, behind a comma; empty for CUDA, and where CUDA was not timed."""
        if dialect == BY_HAND or BY_HAND not in self.best:
            return ""
        (hand,) = self.best[BY_HAND].fastest.values()
        ratio, verdict = frames.speedup(hand, self.best[dialect].row), frames.verdict(hand, self.best[dialect].row)
        return _VERDICTS[verdict].format(percent=format_fixed(100 * abs(ratio.median - 1)) if ratio else "")


@dataclass(frozen=True)
class Mode(Answered):
    """One compute type at the size of the tables."""

    size: str  # of the cube's edge, with its mark where the control failed
    cublas_tflops: float
    layout: str  # of gemm_ref.B_LAYOUTS: how B is stored
    is_layout_named: bool  # where B is not stored by rows alone
    cutlass: str  # CUTLASS's share of cuBLAS, where it was timed


@dataclass(frozen=True)
class ShapeClass(Answered):
    """One compute type over the problems of one class."""

    name: str  # of shape_classes.CLASSES
    problems: shape_classes.Problems

    @property
    def count(self) -> int:
        """How many problems there are."""
        return len(self.fastest.fastest)

    @property
    def choice(self) -> str:
        """The title of what to take: a dialect's, or the library's; empty without CUDA."""
        return title_of(self.take or "")

    @property
    def means(self) -> str:
        """The means of the dialects, in their order, in percent: `97 / 88 / 90%`."""
        return " / ".join(format_fixed(100 * reach.mean) for reach in self.best.values()) + "%" + self.mark

    @property
    def mark(self) -> str:
        """OTHER_COMMIT where rows are not of the commit of the tables at one size."""
        return OTHER_COMMIT if self.problems.other_commits else ""


def _mean(rows: Rows) -> float:
    """The geometric mean of shares of cuBLAS."""
    return stats.geometric_mean([row.vs_cublas for row in rows.values()])


def _keeps_up(reach: Reach, beside: Reach) -> bool:
    """Whether a dialect's fastest kernels keep up with another's, which were timed at all of their problems."""
    if reach is beside:
        return True
    return reach.fastest.keys() <= beside.fastest.keys() and keeps_up(reach.fastest, beside.fastest)


def _fastest(rows: Iterable[Any]) -> dict[Sizes, Any]:
    """The row with the least time of each problem."""
    found: dict[Sizes, Any] = {}
    for row in rows:
        sizes = (row.m, row.n, row.k)
        if sizes not in found or row.median_us < found[sizes].median_us:
            found[sizes] = row
    return found
