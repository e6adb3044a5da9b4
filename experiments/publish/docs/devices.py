"""docs/devices.md: what changes from one published card to another; a verdict is on an interval, as everywhere.

The first card is the README's, and each other stands beside it. The words are in devices.md.j2.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from experiments.publish.numbers import format_count, format_edges, format_mean_loss, format_number, format_percent
from experiments.publish.table import Table
from experiments.publish.templates import make_templates
from experiments.publish.wording import dialect_title
from experiments.records import environment, frames, stats, store, studies
from experiments.records.ceilings import Roofs
from experiments.records.controls import Controls
from gemm_ref import Problem
from gemm_ref.choice import costs
from gemm_ref.dialect import BY_HAND

BOUND_SHARE = 0.7  # of a kernel's time, that reading A, B and writing C takes alone: from here on memory decides
_COMPARED = ("ladder", "tensor_cores", "squares", "shapes")


def render(published: Path = store.PUBLISHED) -> str:
    """The whole page, of all published cards; `published` is the first of them."""
    cards = [Card(folder) for folder in store.published(published.parent)]
    pairs = [Pair(cards[0], other) for other in cards[1:]]
    template = make_templates(Path(__file__).parent).get_template("devices.md.j2")
    return template.render(cards=cards, pairs=pairs, table=_tabulate_cards(cards), bound_share=BOUND_SHARE)


class Card:
    """One published folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @cached_property
    def _runs(self) -> list[dict]:
        return [run for run in store.runs_of(store.read(self.folder, "ladder"), self.folder) if run["gpu"]]

    @property
    def name(self) -> str:
        """The GPU's name."""
        return self._runs[-1]["device"]

    @property
    def caption(self) -> str:
        """Device, versions, commit and date."""
        return environment.caption(self._runs)

    @cached_property
    def roofs(self) -> Roofs | None:
        """The measured roofs; None where `roofs` was not run."""
        return Roofs.of(self.folder)

    def describe(self) -> list[str]:
        """Its row of the table of cards; the last two cells are cuBLAS and the fastest rung in fp32."""
        gpu, fp32 = self._runs[-1]["gpu"], frames.at_tables(self.folder, "fp32")
        best = frames.rungs(fp32).sort_values("median_us").iloc[0]
        return [
            self.name,
            str(gpu["multiprocessors"]),
            str(gpu["max_sm_clock_mhz"]),
            format_number(self.roofs.read) if self.roofs else "–",
            format_number(frames.cublas_tflops(fp32)),
            f"`{best.stage[:3]}` in {dialect_title(best.dialect)}: {format_percent(best.vs_cublas)}",
        ]

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
            losses = format_mean_loss(own["regret"]), format_percent(own["regret"].max(), 1)
            yield [f"{dialect_title(dialect)} {math}", self.name, str(len(own)), *losses]

    def bits(self) -> list[str]:
        """Its name; instructions, random vectors and those with other bits than predicted; products and such of them.

        Nothing where the card has not been asked.
        """
        frame = store.read(self.folder, "rounding")
        asked, made = frame[frame["vectors"].notna()], frames.pair_products(frame)
        if asked.empty and made.empty:
            return []
        differing = (made["checksum_predicted"] != made["checksum_hardware"]).sum()
        counts = len(asked), asked["vectors"].sum(), asked["mismatches"].sum(), len(made), differing
        return [self.name, *map(format_count, counts)]

    @cached_property
    def memory_bound(self) -> dict[str, tuple[int, int]]:
        """Rung -> at how many fp32 problems memory decides its time in CUDA, of how many; empty without roofs."""
        found: dict[str, tuple[int, int]] = {}
        rows = pd.concat([frames.timed(store.read(self.folder, name)) for name in ("squares", "shapes")])
        for row in frames.defaults(rows[rows["dialect"] == BY_HAND]).itertuples():
            if self.roofs:
                share = self.roofs.read_us(Problem(row.m, row.n, row.k, row.math)) / row.median_us
                bound, count = found.get(row.stage, (0, 0))
                found[row.stage] = bound + (share >= BOUND_SHARE), count + 1
        return found


def _tabulate_cards(cards: Sequence[Card]) -> Table:
    head = ("card", "SMs", "highest clock, MHz", "memory read, TB/s", "cuBLAS in fp32 at 4096, TFLOP/s")
    return Table.of([*head, "fastest rung there, of cuBLAS"], [card.describe() for card in cards], (0, 5))


@dataclass(frozen=True)
class Comparison:
    """The verdicts of two cards in one experiment."""

    count: int  # of the kernels that have one on both
    same: int
    opposite: list[list[str]]  # kernel, problem and both shares, where one card says FASTER and the other SLOWER


class Pair:
    """Another card beside the first."""

    def __init__(self, first: Card, other: Card) -> None:
        self.first, self.other = first, other
        self._cards, self._names = (first, other), (first.name, other.name)

    @cached_property
    def verdicts(self) -> dict[str, Comparison]:
        """Experiment -> the kernels of one commit that are judged beside cuBLAS on both cards."""
        found: dict[str, Comparison] = {}
        for name in _COMPARED:
            both = self._merge_verdicts(name)
            is_same = both["verdict"] == both["verdict_there"]
            opposite = both[~is_same & (both["verdict"] != stats.SAME) & (both["verdict_there"] != stats.SAME)]
            lines = [
                [*_name(row), format_percent(row.vs_cublas), format_percent(row.vs_cublas_there)]
                for row in opposite.itertuples()
            ]
            found |= {name: Comparison(len(both), int(is_same.sum()), lines)} if len(both) else {}
        return found

    def tabulate_verdicts(self) -> str:
        """How many verdicts there are, how many are the same and how many opposite, by experiment."""
        lines = [
            [f"`{name}`", *map(str, (own.count, own.same, len(own.opposite)))] for name, own in self.verdicts.items()
        ]
        return Table.of(["experiment", "verdicts", "the same", "opposite"], lines).to_markdown()

    def tabulate_opposite(self) -> str:
        """The kernels with opposite verdicts; empty if there are none."""
        lines = [line for own in self.verdicts.values() for line in own.opposite]
        return Table.of(["kernel", "M x N x K", *self._names], lines, 2).to_markdown() if lines else ""

    def _merge_verdicts(self, name: str) -> pd.DataFrame:
        rows = []
        for card in self._cards:
            frame = frames.defaults(store.read(card.folder, name))
            frame = Controls(frame).passed(frames.rungs(frame))
            runs = store.read_runs(card.folder)
            frame = frame.assign(commit=frame["run"].map({key: run["commit"] for key, run in runs.items()}))
            rows.append(frame[frame["verdict"].isin((stats.FASTER, stats.SAME, stats.SLOWER))])
        return rows[0].merge(rows[1], on=[*studies.row_type(name).KEY, "commit"], suffixes=("", "_there"))

    @cached_property
    def choices(self) -> tuple[int, int]:
        """At how many problems both cards chose a tile and blocks (s14, s19), and at how many of them otherwise."""
        key = ["stage", "dialect", "math", *frames.SIZES]
        tried = (frames.tried(store.read(card.folder, "choice")) for card in self._cards)
        chosen = [own[own["chosen"] == 1] for own in map(frames.rungs, tried)]
        both = chosen[0].merge(chosen[1], on=key, suffixes=("", "_there"))
        differing = both[(both["variant"] != both["variant_there"]) | (both["blocks"] != both["blocks_there"])]
        return len(both), len(differing)

    @cached_property
    def memory_bound(self) -> list[tuple[str, str, str]]:
        """Rungs that are bound by memory on one card at other problems than on the other: counts of both."""
        both = {stage: (here, self.other.memory_bound.get(stage)) for stage, here in self.first.memory_bound.items()}
        return [
            (f"`{stage}`", "{} of {}".format(*here), "{} of {}".format(*there))
            for stage, (here, there) in both.items()
            if there and (here[0] or there[0])
        ]

    def tabulate_memory_bound(self) -> str:
        """The table of `memory_bound`."""
        return Table.of(["rung", *self._names], self.memory_bound).to_markdown()

    def tabulate_regrets(self) -> str:
        """What the choice loses on each card; empty where it was tried on none."""
        rows = sorted((row for card in self._cards for row in card.regrets()), key=lambda row: row[0])
        head = ["kernels", "card", "problems", "geometric mean", "at worst"]
        return Table.of(head, rows, 2).to_markdown() if rows else ""

    def tabulate_bits(self) -> str:
        """What both cards' tensor cores made, beside what was predicted."""
        head = ["card", "instructions", "vectors", "with other bits", "products", "with other bits"]
        return Table.of(head, filter(None, (card.bits() for card in self._cards))).to_markdown()


def _name(row: Any) -> list[str]:
    """The kernel and the problem of a row."""
    layout = getattr(row, "b_layout", "") if row.math != "fp32" else ""
    size = f"{format_edges(row)}, {frames.LAYOUT_WORDS[layout]}" if layout else format_edges(row)
    return [f"`{row.stage[:3]}` {dialect_title(row.dialect)} {row.math}", size]
