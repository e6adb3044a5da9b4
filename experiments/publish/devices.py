"""docs/devices.md: what changes from one published card to another; a verdict is on an interval, as everywhere.

The first card is the README's, and each other stands beside it. The words are in devices.md.j2.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pandas as pd

from experiments.publish import markdown, rounding
from experiments.publish.drawing import style
from experiments.publish.outcomes.shapes import percent_over
from experiments.publish.templates import templates
from experiments.records import environment, frames, stats, store, studies
from experiments.records.ceilings import Roofs
from experiments.records.controls import Controls
from gemm_ref import DIALECTS, Problem
from gemm_ref.choice import costs

BOUND = 0.7  # of a kernel's time, that reading A, B and writing C takes alone: from here on memory decides
MOST = 20  # rows of a table; the CSVs have the others
_COMPARED = ("ladder", "tensor_cores", "squares", "shapes")


def render(published: Path = store.PUBLISHED) -> str:
    """The whole page, of all published cards; `published` is the first of them."""
    cards = [Card(folder) for folder in store.published(published.parent)]
    template = templates().get_template("devices.md.j2")
    pairs = [Pair(cards[0], other) for other in cards[1:]]
    return template.render(cards=cards, pairs=pairs, table=markdown.table, number=style.number, most=MOST, bound=BOUND)


class Card:
    """One published folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @cached_property
    def _runs(self) -> list[dict]:
        return [run for run in store.runs_of(store.read(self.folder, "ladder"), self.folder) if run["gpu"]]

    @property
    def name(self) -> str:
        return self._runs[-1]["device"]

    @property
    def caption(self) -> str:
        return environment.caption(self._runs)

    @property
    def gpu(self) -> dict:
        return self._runs[-1]["gpu"]

    @cached_property
    def roofs(self) -> Roofs | None:
        return Roofs.of(self.folder)

    @cached_property
    def fp32(self) -> pd.DataFrame:
        """The fp32 rows at the size of the tables."""
        return frames.at_tables(self.folder, "fp32")

    def cublas(self) -> float:
        """TFLOP/s."""
        return self.fp32[self.fp32["backend"] == "cublas"].iloc[0].tflops

    def best(self) -> str:
        """Its fastest rung in fp32, with its share of cuBLAS."""
        row = frames.rungs(self.fp32).sort_values("median_us").iloc[0]
        return f"`{row.stage[:3]}` in {DIALECTS[row.dialect].title}: {style.number(100 * row.vs_cublas)}%"

    @cached_property
    def has_table(self) -> bool:
        """Whether the rungs in `choice` have costs of this card in `gemm_ref.choice`, not those of the first one."""
        own, first = costs.load_devices().get(self.name), costs.find_device()
        if own is None or own is first:
            return own is first
        stages = frames.rungs(store.read(self.folder, "choice"))["stage"].unique()
        return any(family.fitted for each in stages for family in own.rungs[each].values())

    def regrets(self) -> Iterator[list[str]]:
        """What the choice loses: dialect, card, how many problems, geometric mean and worst.

        Of problems that the card's own table is not fitted on: without one, of all.
        """
        tried = frames.tried(store.read(self.folder, "choice"))
        found = frames.regrets(frames.held_out(tried) if self.has_table else tried)
        for (math, dialect), own in found[found["regret"].notna()].groupby(["math", "dialect"], sort=False):
            worst = f"{100 * own['regret'].max():.1f}%"
            yield [f"{DIALECTS[dialect].title} {math}", self.name, str(len(own)), percent_over(own["regret"]), worst]

    def bits(self) -> tuple[str, ...]:
        """Its name; instructions, random vectors and those with other bits than predicted; products and such of them.

        Nothing where the card has not been asked.
        """
        frame = store.read(self.folder, "rounding")
        asked, made = frame[frame["vectors"].notna()], rounding.pairs(frame)
        if asked.empty and made.empty:
            return ()
        apart = (made["checksum_predicted"] != made["checksum_hardware"]).sum()
        counts = len(asked), asked["vectors"].sum(), asked["mismatches"].sum(), len(made), apart
        return self.name, *(f"{int(count):,}" for count in counts)

    @cached_property
    def bound(self) -> dict[str, tuple[int, int]]:
        """Rung -> at how many fp32 problems memory decides its time in CUDA, of how many; empty without roofs."""
        found: dict[str, tuple[int, int]] = {}
        rows = pd.concat([frames.timed(store.read(self.folder, name)) for name in ("squares", "shapes")])
        for row in frames.defaults(rows[rows["dialect"] == "cuda"]).itertuples():
            if self.roofs:
                share = self.roofs.read_us(Problem(row.m, row.n, row.k, row.math)) / row.median_us
                some, of = found.get(row.stage, (0, 0))
                found[row.stage] = some + (share >= BOUND), of + 1
        return found


@dataclass(frozen=True)
class Difference:
    """Something that two cards have otherwise."""

    kernel: str
    problem: str
    here: str
    there: str


class Pair:
    """Another card beside the first."""

    def __init__(self, first: Card, other: Card) -> None:
        self.first, self.other = first, other

    @cached_property
    def verdicts(self) -> dict[str, tuple[int, list[Difference]]]:
        """Experiment -> how many kernels are judged beside cuBLAS on both cards, and where the verdicts differ."""
        return {name: (len(both), list(_differences(both))) for name in _COMPARED if len(both := self._both(name))}

    def _both(self, name: str) -> pd.DataFrame:
        rows = []
        for card in (self.first, self.other):
            frame = frames.defaults(store.read(card.folder, name))
            frame = Controls(frame).passed(frames.rungs(frame))
            rows.append(frame[frame["verdict"].isin((stats.FASTER, stats.SAME, stats.SLOWER))])
        return rows[0].merge(rows[1], on=list(studies.row_type(name).KEY), suffixes=("", "_there"))

    @cached_property
    def bound(self) -> list[tuple[str, str, str]]:
        """Rungs that are bound by memory on one card at other problems than on the other: counts of both."""
        both = {stage: (here, self.other.bound.get(stage)) for stage, here in self.first.bound.items()}
        return [
            (f"`{stage}`", "{} of {}".format(*here), "{} of {}".format(*there))
            for stage, (here, there) in both.items()
            if there and (here[0] or there[0])
        ]

    @cached_property
    def regrets(self) -> list[list[str]]:
        """What the choice loses, on each card."""
        return sorted((row for card in (self.first, self.other) for row in card.regrets()), key=lambda row: row[0])

    @property
    def bits(self) -> list[tuple[str, ...]]:
        """What both cards' tensor cores made, beside what was predicted."""
        return [said for card in (self.first, self.other) if (said := card.bits())]

    @cached_property
    def choices(self) -> tuple[int, list[Difference]]:
        """At how many problems both cards chose a tile and blocks (s14, s19), and where they chose otherwise."""
        key = ["stage", "dialect", "math", *frames.SIZES]
        tried = (frames.tried(store.read(card.folder, "choice")) for card in (self.first, self.other))
        chosen = [own[own["chosen"] == 1] for own in map(frames.rungs, tried)]
        both = chosen[0].merge(chosen[1], on=key, suffixes=("", "_there"))
        apart = both[(both["variant"] != both["variant_there"]) | (both["blocks"] != both["blocks_there"])]
        here, there = (apart[f"variant{end}"] + ", " + apart[f"blocks{end}"].astype(str) for end in ("", "_there"))
        words = zip(apart.itertuples(), here + " blocks", there + " blocks", strict=True)
        return len(both), [Difference(_kernel(row), _size(row), *of_each) for row, *of_each in words]


def _differences(both: pd.DataFrame) -> Iterator[Difference]:
    for row in both[both["verdict"] != both["verdict_there"]].itertuples():
        here, there = (
            f"{style.number(100 * share)}% {verdict}"
            for share, verdict in ((row.vs_cublas, row.verdict), (row.vs_cublas_there, row.verdict_there))
        )
        yield Difference(_kernel(row), _size(row), here, there)


def _kernel(row) -> str:
    return f"`{row.stage[:3]}` {DIALECTS[row.dialect].title} {row.math}"


def _size(row) -> str:
    size = str(row.m) if row.m == row.n == row.k else f"{row.m} x {row.n} x {row.k}"
    return f"{size}, {frames.LAYOUT_WORDS[layout]}" if (layout := getattr(row, "b_layout", "")) else size
