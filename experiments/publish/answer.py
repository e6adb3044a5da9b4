"""The answer to the project's question, from the data: which dialect is how fast, where, and at how many lines.

README, the report and the demo say the same sentences and show the same table. Their words are in answer.LANGUAGE.j2;
every 'level', 'faster' and 'slower' in them is a verdict (`experiments.records.stats.verdict`) on two named kernels.
What to take: the dialect with the fewest lines of those whose best kernel is level with CUDA's or faster.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

import gemm_ref
from experiments.grouped import grouped
from experiments.publish.drawing import style
from experiments.publish.markdown import listed
from experiments.publish.templates import templates
from experiments.records import frames, stats, store
from experiments.records.controls import Controls
from experiments.records.source_lines import lines_of
from gemm_ref import DIALECTS
from gemm_ref.dialect import BY_HAND, OTHERS

NOTABLE = 5  # % of CUDA's speed, by which one layout of B is worth a sentence beside the other
_JOINTS = {"en": (", ", " and "), "zh": ("、", " 和 ")}  # between the words of a list, and before its last
LANGUAGES = tuple(_JOINTS)


@dataclass(frozen=True)
class Best:
    """The fastest of a dialect's kernels at one problem, its rungs in their default variants."""

    dialect: str
    row: Any  # of the CSV, as `itertuples` gives it
    beside_hand: str  # its verdict beside CUDA's best; SAME for CUDA itself, empty where CUDA was not timed
    ratio: stats.Ratio | None  # its speed over CUDA's best

    @property
    def percent(self) -> str:
        """Its share of cuBLAS, in %."""
        return style.number(100 * self.row.vs_cublas)

    @property
    def size(self) -> str:
        """The problem: M x N x K."""
        return " x ".join(str(getattr(self.row, name)) for name in frames.SIZES)

    @property
    def beside_others(self) -> bool:
        """Whether something is said of it beside CUDA's best: it is another's, and CUDA was timed."""
        return self.dialect != BY_HAND and bool(self.beside_hand)

    @property
    def differs(self) -> str:
        """By how many % it is faster or slower than CUDA's best; empty where it is neither."""
        return f"{abs(self.percent_apart):.0f}" if self.percent_apart else ""

    @property
    def percent_apart(self) -> float:
        """By how many % it is faster than CUDA's best, negative where it is slower; 0 where it is neither."""
        told_apart = self.ratio and self.beside_hand in (stats.FASTER, stats.SLOWER)
        return 100 * (self.ratio.median - 1) if self.ratio and told_apart else 0.0

    @property
    def number(self) -> str:
        """The rung's number: s12."""
        return self.row.stage.split("_")[0]

    @property
    def lines(self) -> int:
        """The lines of code of the rung's own file and of the files that it shares."""
        return lines_of(self.row.stage, self.dialect).lines


@dataclass(frozen=True)
class Mode:
    """One math mode at the size of the tables."""

    math: str
    size: str  # of the cube's edge, with its mark where the control failed
    cublas_tflops: float
    best: Mapping[str, Best]  # by dialect
    layout: str  # of gemm_ref.B_LAYOUTS: how B is stored
    cutlass: str = ""  # CUTLASS's share of cuBLAS, in %, where it was timed
    other: Mode | None = None  # the same with B stored the other way, where somebody is NOTABLE nearer or further

    @property
    def library(self) -> str:
        """What shares are of."""
        return frames.reference(self.math)

    @property
    def take(self) -> str | None:
        """The dialect with the fewest lines among those level with CUDA's best or faster; None without CUDA."""
        able = [best for best in self.best.values() if best.beside_hand in (stats.SAME, stats.FASTER)]
        return min(able, key=lambda best: best.lines).dialect if able else None


@dataclass(frozen=True)
class Shapes:
    """The problems that are no cubes, in one math mode."""

    count: int
    mean: Mapping[str, float]  # by dialect: geometric mean of its best kernel's share of cuBLAS, in %
    worst: Mapping[str, Best]  # by dialect: its best kernel at the problem where that is furthest behind cuBLAS
    beats: Mapping[str, int]  # by dialect: at how many its best is FASTER than cuBLAS
    slower: Mapping[str, int]  # by dialect: at how many its best is SLOWER than CUDA's best
    lacking: Mapping[str, dict[str, int]]  # by dialect: the rungs that it has no kernel of, and at how many of the
    # problems each is CUDA's best, where that is more than a quarter
    library: str = "cuBLAS"  # what shares are of

    @property
    def take(self) -> str | None:
        """CUDA, where each other dialect is SLOWER at more than half of them; None where nothing is clear."""
        behind = [2 * count > self.count for name, count in self.slower.items() if name != BY_HAND]
        return BY_HAND if behind and all(behind) and BY_HAND in self.mean else None


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
        turned = next(each for each in gemm_ref.B_LAYOUTS if each != layout)
        rows = frames.defaults(frames.at_tables(self._folder, math, turned))
        other = None if frames.rungs(rows).empty else _mode(math, rows, turned)
        return replace(mode, other=other) if other and _differs(mode, other) else mode

    @property
    def take(self) -> dict[str, list[str]]:
        """Dialect -> the math modes in which it is the one to take."""
        return grouped((mode.take, mode.math) for mode in self.modes if mode.take)

    @property
    def libraries(self) -> dict[str, list[str]]:
        """What shares are of -> the math modes."""
        return grouped((mode.library, mode.math) for mode in self.modes)

    @cached_property
    def shapes(self) -> Shapes | None:
        """In fp32; None where they were not timed."""
        return self._shapes("fp32")

    @cached_property
    def tensor_shapes(self) -> dict[str, Shapes]:
        """By math mode of tensor cores, where they were timed."""
        return {math: found for math in gemm_ref.MATHS if math != "fp32" and (found := self._shapes(math))}

    def _shapes(self, math: str) -> Shapes | None:
        rows = frames.defaults(frames.timed(store.read(self._folder, "shapes"), math))
        rows = frames.with_last_rung(frames.rungs(Controls(rows).passed(rows)))
        found = grouped(((row.m, row.n, row.k), row) for row in rows.itertuples())
        problems = [_best(own) for size, own in found.items() if len(set(size)) > 1]
        if not problems:
            return None
        of = {name: [best[name] for best in problems if name in best] for name in DIALECTS}
        of = {name: found for name, found in of.items() if found}
        return Shapes(
            library=frames.reference(math),
            count=len(problems),
            mean={
                name: 100 * stats.geometric_mean([each.row.vs_cublas for each in found]) for name, found in of.items()
            },
            worst={name: min(found, key=lambda best: best.row.vs_cublas) for name, found in of.items()},
            beats={name: sum(best.row.verdict == stats.FASTER for best in found) for name, found in of.items()},
            slower={name: sum(best.beside_hand == stats.SLOWER for best in found) for name, found in of.items()},
            lacking={name: rungs for name in of if (rungs := _lacking(math, name, of.get(BY_HAND, [])))},
        )

    @cached_property
    def all_shapes(self) -> dict[str, Shapes]:
        """By math mode, fp32 first."""
        return ({"fp32": self.shapes} if self.shapes else {}) | self.tensor_shapes

    def paragraphs(self, language: str = "en") -> list[str]:
        """In Markdown: what to take; the table of modes, fp32 first, and what its cells are; other shapes."""
        settings = templates()
        settings.filters |= {"listed": lambda words: listed(words, *_JOINTS[language]), "number": style.number}
        template = settings.get_template(f"answer.{language}.j2")
        text = template.render(answer=self, dialects=DIALECTS, others=OTHERS, hand=BY_HAND)
        return [_folded(paragraph.strip()) for paragraph in text.split("%%%") if paragraph.strip()]


def _folded(text: str) -> str:
    """Markdown without the line breaks and the blanks of its template; a table keeps a line for each row."""
    lines = [("\n" if line.startswith("|") else " ") + " ".join(line.split()) for line in text.splitlines()]
    return "".join(lines).strip()


def _differs(mode: Mode, other: Mode) -> bool:
    """Whether somebody is NOTABLE % further from CUDA's best in one of them, or nearer."""
    return any(
        abs(best.percent_apart - other.best[name].percent_apart) >= NOTABLE
        for name, best in mode.best.items()
        if name in other.best
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
        cutlass=style.number(100 * shares.iloc[0]) if len(shares := cutlass["vs_cublas"].dropna()) else "",
    )


def _best(rows: Iterable[Any]) -> dict[str, Best]:
    """The fastest row of each dialect at one problem, beside CUDA's; `rows` as `itertuples` gives them."""
    found = grouped((row.dialect, row) for row in rows)
    fastest = {name: min(found[name], key=lambda row: row.median_us) for name in DIALECTS if name in found}
    hand = fastest.get(BY_HAND)
    return {dialect: _beside(hand, row, dialect) for dialect, row in fastest.items()}


def _beside(hand: Any, row: Any, dialect: str) -> Best:
    if hand is None or dialect == BY_HAND:
        return Best(dialect, row, stats.SAME if dialect == BY_HAND else "", None)
    return Best(dialect, row, frames.verdict(hand, row), frames.speedup(hand, row))


def _lacking(math: str, dialect: str, by_hand: Sequence[Best]) -> dict[str, int]:
    led = Counter(best.row.stage for best in by_hand)
    absent = [stage.id for stage in gemm_ref.stages_in(math) if dialect not in stage.dialects]
    return {stage: led[stage] for stage in absent if 4 * led[stage] > len(by_hand)}
