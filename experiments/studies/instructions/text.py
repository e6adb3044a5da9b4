"""The tables of docs/compilers.md, from instructions.csv: all rungs beside each other, and a few rungs in full."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

import gemm_ref
from experiments.publish.drawing import style
from experiments.publish.numbers import format_fixed, format_percent
from experiments.publish.table import Table
from experiments.publish.wording import NOT_MEASURED, dialect_title, join_words, kernel_name, name_defaults
from experiments.records import compiled, environment, store
from experiments.records.compiled import MAIN_ARCHITECTURE
from experiments.studies.instructions.row import REASONS
from gemm_ref import DIALECTS
from gemm_ref.rung import DEFAULT_VARIANT
from gemm_ref.sass.mix import GROUPS


@dataclass(frozen=True)
class _Reading:
    """A block that shows some kernels of one rung in full; an empty `variant` is each dialect's default."""

    stage: str
    variant: str = ""
    archs: tuple[str, ...] = (MAIN_ARCHITECTURE,)


_READINGS = {
    "instructions-tail": _Reading("s02_coalesced"),
    "instructions-ldmatrix": _Reading("s04_shared_tile"),
    "instructions-tile": _Reading("s09_conflict_free", "one_block"),
    "instructions-copies": _Reading("s12_async_copy", "tile128"),
    "instructions-ffma2": _Reading("s09_conflict_free", "one_block", (MAIN_ARCHITECTURE, "sm_100a")),
}
_TENSOR_CORES = "instructions-tensor-cores"
_MMA_MATH, _MMA_K = "bf16", 64
# The blocks that `block` writes -> the page of docs/ that has them
BLOCKS = dict.fromkeys(("instructions", *_READINGS, _TENSOR_CORES), "compilers.md")


def block(name: str, published: Path) -> str:
    """The Markdown of one of BLOCKS from the CSV in `published`; it says so where the rows are not there."""
    frame = compiled.at_one_size(store.read(published, "instructions"))
    if name == _TENSOR_CORES:
        return _tensor_cores(frame[frame["arch"] == MAIN_ARCHITECTURE])
    if name != "instructions":
        return _in_full(_READINGS[name], frame)
    shown = compiled.defaults(frame[(frame["arch"] == MAIN_ARCHITECTURE) & (frame["math"] == "fp32")])
    if shown.empty:
        return NOT_MEASURED
    caption = environment.compilers_caption(store.runs_of(shown, published))
    return f"{_side_by_side(shown)}\n\nCUDA / Triton / Gluon on {MAIN_ARCHITECTURE}. {caption}."


def _side_by_side(frame: pd.DataFrame) -> str:
    """A line per rung; in each cell a number for each dialect."""
    columns: dict[str, Callable[..., str]] = {
        "registers": lambda row: format_fixed(row.registers),
        "spilled bytes": lambda row: format_fixed(row.spill_bytes),
        "blocks per SM": lambda row: format_fixed(row.blocks_per_sm),
        "multiply-adds, %": lambda row: format_fixed(100 * row.ffma_share, 1),
        "bytes a shared read": _bytes_a_shared_read,
        "integer per 100 multiply-adds": lambda row: format_fixed(_per_100(row, row.integer), 1),
        "clocks per FFMA, least": lambda row: (
            "–" if pd.isna(row.port_clocks) else format_fixed(row.port_clocks / row.ffma, 2)
        ),
    }
    rows = []
    for stage in style.rungs_of(frame):
        own = {row.dialect: row for row in frame[frame["stage"] == stage].itertuples()}
        cells = [
            " / ".join(text(own[dialect]) if dialect in own else "–" for dialect in DIALECTS)
            for text in columns.values()
        ]
        rows.append([f"`{stage}` {name_defaults(gemm_ref.get_stage(stage))}".strip(), *cells])
    return Table.of(["rung", *columns], rows).to_markdown()


def _in_full(reading: _Reading, frame: pd.DataFrame) -> str:
    """A line for each kernel of one rung: instructions for 100 multiply-adds, by group."""
    several, rung = len(reading.archs) > 1, gemm_ref.get_stage(reading.stage)
    rows = []
    for arch in reading.archs:
        for dialect in rung.dialects:
            variant = reading.variant or rung.find_variant(DEFAULT_VARIANT, dialect)
            who = {"stage": rung.id, "variant": variant, "dialect": dialect, "math": rung.maths[0], "arch": arch}
            own = frame[(frame[list(who)] == pd.Series(who)).all(axis=1)]
            if own.empty:
                return NOT_MEASURED
            row = next(own.itertuples())
            groups = [sum(getattr(row, kind) for kind in kinds) for kinds in GROUPS.values()]
            counts = [format_fixed(_per_100(row, count), 1) for count in (row.instructions, *groups)]
            own_variant = "" if variant in (DEFAULT_VARIANT, reading.variant) else f" {variant}"
            name = DIALECTS[dialect].title + own_variant + (f", {arch}" if several else "")
            rows.append(
                [name, format_fixed(row.registers), format_fixed(row.spill_bytes), f"{row.k_per_trip:g}", *counts]
            )
    variant = f" {reading.variant}" if reading.variant else ""
    where = "" if several else f" on {reading.archs[0]}"
    said = f"`{reading.stage}`{variant}{where}: instructions for 100 multiply-adds, by what they do."
    head = ["kernel", "registers", "spilled bytes", "k per trip", "all", *GROUPS]
    return f"{Table.of(head, rows).to_markdown()}\n\n{said}"


def _tensor_cores(frame: pd.DataFrame) -> str:
    """A line for each rung on tensor cores and dialect: instructions of a thread for _MMA_K of k, by group."""
    groups = {"MMA" if group == "multiply-add" else group: kinds for group, kinds in GROUPS.items()}
    head, rows = ["kernel", "registers", "threads", "all", *groups], []
    frame = frame[frame["math"] == _MMA_MATH]
    if frame.empty:
        return NOT_MEASURED
    for stage in gemm_ref.stages_in(_MMA_MATH):
        for dialect in stage.dialects:
            variant = stage.find_variant(DEFAULT_VARIANT, dialect)
            kernel = f"{kernel_name(stage.id, variant)} {DIALECTS[dialect].title}"
            own = frame[(frame["stage"] == stage.id) & (frame["dialect"] == dialect) & (frame["variant"] == variant)]
            if own.empty:
                rows.append([kernel, NOT_MEASURED, *[""] * (len(head) - 2)])
                continue
            row = next(own.itertuples())
            counts = [row.instructions, *(sum(getattr(row, kind) for kind in kinds) for kinds in groups.values())]
            each = [format_fixed(count * _MMA_K / row.k_per_trip, 1) for count in counts]
            rows.append([kernel, format_fixed(row.registers), format_fixed(row.threads), *each])
    said = f"{_MMA_MATH} on {MAIN_ARCHITECTURE}, each dialect's default variant: instructions that a thread executes "
    return f"{Table.of(head, rows).to_markdown()}\n\n{said}for {_MMA_K} of k of its block's tile, by what they do."


def _per_100(row, count: float) -> float:
    return 100 * count / (row.flop_per_trip / 2)


def _bytes_a_shared_read(row) -> str:
    reads = sum(getattr(row, kind) for kind in GROUPS["shared read"])
    if not reads:
        return "–"
    return format_fixed(row.flop_per_trip / 2 / row.ffma_per_lds_byte / reads, 1)


def describe(frame: pd.DataFrame) -> Iterator[str]:
    """Yields the sentences about the result; none where the rows say nothing."""
    rows = compiled.at_one_size(frame[frame["arch"] == compiled.MAIN_ARCHITECTURE])
    fp32 = compiled.defaults(rows[rows["math"] == "fp32"])
    if fp32.empty:
        return
    best = fp32.loc[fp32.groupby("dialect")["ffma_share"].idxmax()].set_index("dialect")
    each = [
        f"{format_percent(best.loc[name].ffma_share, 0)} in {dialect.title} (`{best.loc[name].stage[:3]}`)"
        for name, dialect in gemm_ref.DIALECTS.items()
        if name in best.index
    ]
    yield f"Of the instructions of a main loop in fp32, multiply-adds are at most {join_words(each)}"
    waits = rows[(rows["math"] == "fp32") & (rows["ffma_share"] >= compiled.MIN_FFMA_SHARE) & rows["clocks"].notna()]
    if len(waits):
        longest = waits[[f"wait_{reason}" for reason in REASONS]].idxmax(axis=1)
        most = (longest == "wait_registers").sum()
        loops = "fp32 loops that are mostly multiply-adds wait for registers longer than for anything else"
        yield f"By their machine code {most} of {len(waits)} {loops}"
    spilled = rows[rows["spill_bytes"] > 0]
    worst = rows.loc[rows["spill_bytes"].idxmax()]
    most = f", the most by `{worst.stage[:3]}` in {dialect_title(worst.dialect)}: {worst.spill_bytes:.0f} bytes"
    yield f"{len(spilled)} of {len(rows)} kernels spill registers" + (most if len(spilled) else "")
