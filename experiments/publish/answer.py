"""The answer to the project's question, from the data: which dialect is how fast, where, and at how many lines.

README, the report and the demo say the same sentences and show the same numbers. Their words are in answer.LANGUAGE.j2
and readme.toml; every 'level', 'faster' and 'slower' in them is a verdict (`experiments.records.stats.verdict`) on
two named kernels. What to take: the dialect with the fewest lines of those whose best kernel is level with CUDA's or
faster.
"""

from __future__ import annotations

import functools
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

import gemm_ref
from experiments.grouping import group_pairs
from experiments.publish.numbers import format_fixed, format_number, format_percent, format_size
from experiments.publish.table import Table
from experiments.publish.templates import make_templates
from experiments.publish.wording import join_words
from experiments.records import frames, stats, store
from experiments.records.controls import Controls
from experiments.records.source_lines import lines_of
from gemm_ref import DIALECTS
from gemm_ref.dialect import BY_HAND

NOTABLE = 0.05  # of CUDA's speed, by which one layout of B is worth a line beside the other
_JOINTS = {"en": (", ", " and "), "zh": ("、", " 和 ")}  # between the words of a list, and before its last
LANGUAGES = tuple(_JOINTS)
_FOLDER = Path(__file__).parent


@functools.cache
def words_of(language: str) -> dict[str, Any]:
    """The words of README's tables in one language, and the rungs' ideas if the registry is in another."""
    return tomllib.loads((_FOLDER / "readme.toml").read_text(encoding="utf-8"))[language]


@dataclass(frozen=True)
class Best:
    """The fastest of a dialect's kernels at one problem, its rungs in their default variants."""

    dialect: str
    row: Any  # of the CSV, as `itertuples` gives it
    verdict: str  # beside CUDA's best; SAME for CUDA itself, empty where CUDA was not timed
    ratio: stats.Ratio | None  # its speed over CUDA's best

    @property
    def percent(self) -> str:
        """Its share of cuBLAS."""
        return format_percent(self.row.vs_cublas)

    @property
    def size(self) -> str:
        """The problem: M x N x K."""
        return format_size(self.row)

    @property
    def gain(self) -> float:
        """By which share it is faster than CUDA's best, negative where it is slower; 0 where it is neither."""
        return self.ratio.median - 1 if self.ratio and self.verdict in (stats.FASTER, stats.SLOWER) else 0.0

    @property
    def number(self) -> str:
        """The rung's number: s12."""
        return self.row.stage.split("_")[0]

    @property
    def lines(self) -> int:
        """The lines of code of the rung's own file and of the files that it shares."""
        return lines_of(self.row.stage, self.dialect).lines

    def describe_verdict(self, language: str = "en") -> str:
        """Its verdict beside CUDA's best in words, behind a comma; empty for CUDA, and where CUDA was not timed."""
        if self.dialect == BY_HAND or not self.verdict:
            return ""
        return words_of(language)["verdicts"][self.verdict].format(percent=format_fixed(100 * abs(self.gain)))


@dataclass(frozen=True)
class Mode:
    """One math mode at the size of the tables."""

    math: str
    size: str  # of the cube's edge, with its mark where the control failed
    cublas_tflops: float
    best: Mapping[str, Best]  # by dialect
    layout: str  # of gemm_ref.B_LAYOUTS: how B is stored
    cutlass: str = ""  # CUTLASS's share of cuBLAS, where it was timed
    other: Mode | None = None  # the same with B stored the other way, where a dialect's gain changes by NOTABLE

    @property
    def library(self) -> str:
        """What shares are of."""
        return frames.reference(self.math)

    @property
    def take(self) -> str | None:
        """The dialect with the fewest lines among those level with CUDA's best or faster; None without CUDA."""
        able = [best for best in self.best.values() if best.verdict in (stats.SAME, stats.FASTER)]
        return min(able, key=lambda best: best.lines).dialect if able else None


@dataclass(frozen=True)
class Shapes:
    """The problems that are no cubes, in one math mode."""

    count: int
    mean: Mapping[str, float]  # by dialect: geometric mean of its best kernel's share of cuBLAS
    worst: Mapping[str, Best]  # by dialect: its best kernel at the problem where that is furthest behind cuBLAS
    beats: Mapping[str, int]  # by dialect: at how many its best is FASTER than cuBLAS
    slower: Mapping[str, int]  # by dialect: at how many its best is SLOWER than CUDA's best
    missing: Mapping[str, dict[str, int]]  # by dialect: the rungs that it has no kernel of, and at how many of the
    # problems each is CUDA's best, where that is more than a quarter

    @property
    def take(self) -> str | None:
        """CUDA, where each other dialect is SLOWER at more than half of them; None where nothing is clear."""
        behind = [2 * count > self.count for name, count in self.slower.items() if name != BY_HAND]
        return BY_HAND if behind and all(behind) and BY_HAND in self.mean else None


@dataclass(frozen=True)
class AnswerLine:
    """A line of the answer's table."""

    mode: Mode
    is_layout_named: bool  # where B is not stored by rows alone
    shapes: Shapes | None


class Answer:
    """What a folder of results answers; parts that were not measured are empty."""

    def __init__(self, folder: Path = store.PUBLISHED) -> None:
        self._folder = folder
        self._at_size: dict[str, pd.DataFrame] = {}

    def at_size(self, math: str) -> pd.DataFrame:
        """The rows of one math mode at the size of the tables, each rung in its default variants, and baselines."""
        if math not in self._at_size:
            self._at_size[math] = frames.defaults(frames.at_tables(self._folder, math))
        return self._at_size[math]

    @cached_property
    def modes(self) -> tuple[Mode, ...]:
        """The math modes that were timed, fp32 first."""
        return tuple(mode for math in gemm_ref.MATHS if (mode := self._mode(math)))

    def _mode(self, math: str) -> Mode | None:
        """None where no rung was timed in it."""
        rows, layout = self.at_size(math), frames.LAYOUT[math]
        if frames.rungs(rows).empty:
            return None
        mode = _mode(math, rows, layout)
        if math == "fp32":  # timed with B by rows alone
            return mode
        transposed = next(each for each in gemm_ref.B_LAYOUTS if each != layout)
        rows = frames.defaults(frames.at_tables(self._folder, math, transposed))
        other = None if frames.rungs(rows).empty else _mode(math, rows, transposed)
        return replace(mode, other=other) if other and _differ(mode, other) else mode

    @property
    def take(self) -> dict[str, list[str]]:
        """Dialect -> the math modes in which it is the one to take."""
        return group_pairs((mode.take, mode.math) for mode in self.modes if mode.take)

    @property
    def libraries(self) -> dict[str, list[str]]:
        """What shares are of -> the math modes."""
        return group_pairs((mode.library, mode.math) for mode in self.modes)

    @cached_property
    def shapes(self) -> dict[str, Shapes]:
        """By math mode, fp32 first, where shapes were timed."""
        return {math: shapes for math in gemm_ref.MATHS if (shapes := self._shapes(math))}

    def _shapes(self, math: str) -> Shapes | None:
        rows = frames.defaults(frames.timed(store.read(self._folder, "shapes"), math))
        rows = frames.with_last_rung(frames.rungs(Controls(rows).passed(rows)))
        by_size = group_pairs(((row.m, row.n, row.k), row) for row in rows.itertuples())
        problems = [_best(own) for size, own in by_size.items() if len(set(size)) > 1]
        if not problems:
            return None
        of = {name: found for name in DIALECTS if (found := [best[name] for best in problems if name in best])}
        shares = {name: [best.row.vs_cublas for best in found] for name, found in of.items()}
        return Shapes(
            count=len(problems),
            mean={name: stats.geometric_mean(each) for name, each in shares.items()},
            worst={name: min(found, key=lambda best: best.row.vs_cublas) for name, found in of.items()},
            beats={name: sum(best.row.verdict == stats.FASTER for best in found) for name, found in of.items()},
            slower={name: sum(best.verdict == stats.SLOWER for best in found) for name, found in of.items()},
            missing={name: rungs for name in of if (rungs := _missing_rungs(math, name, of.get(BY_HAND, [])))},
        )

    @property
    def lines(self) -> list[AnswerLine]:
        """The lines of the table: each mode, and below it the mode with B stored the other way."""
        found = []
        for mode in self.modes:
            found.append(AnswerLine(mode, bool(mode.other) or mode.layout != "kn", self.shapes.get(mode.math)))
            found += [AnswerLine(mode.other, True, None)] if mode.other else []
        return found

    def tabulate(self, language: str = "en") -> Table:
        """The table of math modes, in README's words."""
        words = words_of(language)
        sizes, cublas, cutlass, other_shapes = words["sizes"]
        head = [sizes, cublas, *(dialect.title for dialect in DIALECTS.values()), cutlass, other_shapes]
        rows = []
        for line in self.lines:
            mode = line.mode
            problem = words["problem"].format(math=mode.math, size=mode.size)
            problem += words["layouts"][mode.layout] if line.is_layout_named else ""
            cells = [_cell(mode, name, language) for name in DIALECTS]
            means = ""
            if line.shapes:
                each = " / ".join(format_fixed(100 * mean) for mean in line.shapes.mean.values())
                means = words["means"].format(means=each, count=line.shapes.count)
            rows.append([problem, format_number(mode.cublas_tflops), *cells, mode.cutlass, means])
        return Table.of(head, rows, (0, *range(2, 2 + len(DIALECTS))))

    def sentences(self, language: str = "en") -> list[str]:
        """What to take; then what the table's cells are, and other shapes. Empty where nothing was timed."""
        settings = make_templates(_FOLDER)
        settings.filters["listed"] = lambda words: join_words(words, *_JOINTS[language])
        text = settings.get_template(f"answer.{language}.j2").render(answer=self)
        return [" ".join(paragraph.split()) for paragraph in text.split("%%%") if paragraph.strip()]

    def paragraphs(self, language: str = "en") -> list[str]:
        """In Markdown: the sentences, and before the last of them the table."""
        *first, last = self.sentences(language) or [""]
        return [*first, self.tabulate(language).to_markdown(is_compact=True), last] if self.modes else []


def _cell(mode: Mode, dialect: str, language: str) -> str:
    """The dialect's best kernel, its share in bold where it is the one to take."""
    words, best = words_of(language), mode.best.get(dialect)
    if best is None:
        return words["not_measured"]
    share = f"**{best.percent}**" if dialect == mode.take else best.percent
    return words["best"].format(share=share, rung=best.number, lines=best.lines) + best.describe_verdict(language)


def _differ(mode: Mode, other: Mode) -> bool:
    """Whether a dialect's gain over CUDA's best differs by NOTABLE between the two layouts."""
    return any(
        abs(best.gain - other.best[name].gain) >= NOTABLE for name, best in mode.best.items() if name in other.best
    )


def _mode(math: str, rows: pd.DataFrame, layout: str) -> Mode:
    size = int(rows["m"].iloc[0])
    reference, cutlass = (rows[rows["backend"] == backend] for backend in ("cublas", "cutlass"))
    return Mode(
        math=math,
        size=f"{size}{Controls(rows).mark(m=size, math=math)}",
        cublas_tflops=float(reference["tflops"].iloc[0]) if len(reference) else float("nan"),
        best=_best(frames.rungs(rows).itertuples()),
        layout=layout,
        cutlass=format_percent(shares.iloc[0]) if len(shares := cutlass["vs_cublas"].dropna()) else "",
    )


def _best(rows: Iterable[Any]) -> dict[str, Best]:
    """The fastest row of each dialect at one problem, beside CUDA's; `rows` as `itertuples` gives them."""
    found = group_pairs((row.dialect, row) for row in rows)
    fastest = {name: min(found[name], key=lambda row: row.median_us) for name in DIALECTS if name in found}
    hand = fastest.get(BY_HAND)
    return {dialect: _compare(hand, row, dialect) for dialect, row in fastest.items()}


def _compare(hand: Any, row: Any, dialect: str) -> Best:
    if hand is None or dialect == BY_HAND:
        return Best(dialect, row, stats.SAME if dialect == BY_HAND else "", None)
    return Best(dialect, row, frames.verdict(hand, row), frames.speedup(hand, row))


def _missing_rungs(math: str, dialect: str, by_hand: Sequence[Best]) -> dict[str, int]:
    led = Counter(best.row.stage for best in by_hand)
    absent = [stage.id for stage in gemm_ref.stages_in(math) if dialect not in stage.dialects]
    return {stage: led[stage] for stage in absent if 4 * led[stage] > len(by_hand)}
