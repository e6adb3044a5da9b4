"""A section a rung: its idea, its numbers at the README's size, what compilers decided, its resources, its sources."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pandas as pd

import gemm_ref
from experiments.documents import blocks, tensor_tables
from experiments.plots.look import style
from experiments.records import store, workloads
from experiments.report.sources import Source, header, sources
from experiments.report.tables import Table, table_of
from gemm_ref import DIALECTS, Launch, Stage
from gemm_ref.stage import DEFAULT_VARIANT

_COMPILED = "instructions"  # the experiment that knows registers, spills and occupancy
_RESOURCES = (
    "variant",
    "dialect",
    "arch",
    "registers",
    "spill_bytes",
    "shared_bytes",
    "blocks_per_sm",
    "occupancy",
)


@dataclass(frozen=True)
class Cell:
    """A kernel's speed in a table, or in `note` why there is none."""

    note: str = ""
    variant: str = ""  # whose speed it is, where the rung has several and the table does not say
    tflops: str = ""
    percent: float | None = None  # of cuBLAS
    share: str = ""  # the same as text
    interval: str = ""
    times: str = ""  # over the rung below, in the same dialect


@dataclass(frozen=True)
class Shape:
    """The variants side by side: compile-time shape, and how they are launched at the size of the tables."""

    variants: tuple[str, ...]
    lines: tuple[tuple[str, tuple[str, ...]], ...]  # (what, a text for each variant)


@dataclass(frozen=True)
class Rung:
    """All that the page says of a rung."""

    stage: Stage
    number: str
    header: dict[str, str]
    best: dict[str, Cell]  # by dialect
    variants: list[tuple[str, dict[str, Cell]]]
    below: str  # the number of the rung below, or nothing
    shape: Shape
    findings: list[tuple[str, str]]  # (dialect, what its compiler decided)
    resources: Table | None
    sources: list[Source]


def rungs(at_size: pd.DataFrame, folder: Path) -> list[Rung]:
    """Every rung of the registry, with its timed rows and what `folder` has on resources.

    at_size: those of fp32 rungs; a tensor-core rung's are those of the first of its math modes in `tensor_cores`.
    """
    compiled = store.read(folder, _COMPILED)
    ladder = list(gemm_ref.STAGES.values())
    timed = {"fp32": at_size}
    found = []
    for below, stage in zip([None, *ladder], ladder, strict=False):
        math = stage.maths[0]
        if math not in timed:
            timed[math] = tensor_tables.at_size(folder, math)
        alike = below if below and below.maths[0] == math else None
        found.append(_rung(stage, alike, timed[math], compiled))
    return found


def _rung(stage: Stage, below: Stage | None, at_size: pd.DataFrame, compiled: pd.DataFrame) -> Rung:
    edge = workloads.LARGEST if at_size.empty else int(at_size["m"].iloc[0])
    return Rung(
        stage=stage,
        number=stage.id.split("_")[0],
        header=header(stage),
        best={d: cell(stage, DEFAULT_VARIANT, d, below, at_size) for d in DIALECTS},
        variants=[(v, {d: cell(stage, v, d, below, at_size) for d in DIALECTS}) for v in stage.variants],
        below=below.id.split("_")[0] if below else "",
        shape=_shape(stage, edge),
        findings=[(DIALECTS[dialect].title, text) for dialect, text in stage.compiler.items()],
        resources=resources(stage, compiled),
        sources=sources(stage),
    )


def cell(stage: Stage, variant: str, dialect: str, below: Stage | None, at_size: pd.DataFrame) -> Cell:
    """One kernel at the size of the tables; `"default"` is the dialect's best variant."""
    if dialect not in stage.dialects:
        return Cell(note="no kernel")
    best = variant == DEFAULT_VARIANT
    if best:
        variant = stage.find_variant(variant, dialect)
    if variant not in stage.variants_in(dialect):
        return Cell(note="–")
    row = blocks.row_of(at_size, stage, variant, dialect)
    if row is None:
        return Cell(note="not measured")
    times = blocks.gain(below, stage, variant, dialect, at_size)
    compared = pd.notna(row.vs_cublas)
    return Cell(
        variant=variant if best and variant != DEFAULT_VARIANT else "",
        tflops=style.number(row.tflops),
        percent=100 * row.vs_cublas if compared else None,
        share=f"{style.number(100 * row.vs_cublas)}%" if compared else "",
        interval=" to ".join(style.number(100 * v) for v in (row.vs_cublas_low, row.vs_cublas_high))
        if compared
        else "",
        times="" if times is None else f"×{style.number(times)}",
    )


def resources(stage: Stage, compiled: pd.DataFrame) -> Table | None:
    """What the compilers made of each kernel of the rung, from the rows of the `instructions` experiment."""
    if compiled.empty:
        return None
    own = compiled[compiled["stage"] == stage.id]
    return table_of(own[[name for name in _RESOURCES if name in own]])


def _shape(stage: Stage, edge: int) -> Shape:
    launches = [stage.launch(edge, edge, edge, variant) for variant in stage.variants]
    constants = [config.constants() for config in stage.variants.values()]
    lines = [("numbers are of", [stage.maths[0]] * len(stage.variants))] if stage.maths != ("fp32",) else []
    lines += [("written in", [_dialects(stage, variant) for variant in stage.variants])]
    for name in dict.fromkeys(name for own in constants for name in own):
        lines.append((name, [str(own.get(name, "")) for own in constants]))
    lines.append(("threads per block", [str(launch.threads) for launch in launches]))
    lines.append((f"blocks at {edge}", [_by(launch.grid) for launch in launches]))
    lines.append(("dynamic shared memory, bytes", [str(launch.shared_bytes) for launch in launches]))
    if any(launch.then for launch in launches):
        lines.append(("then, to finish", [_then(launch.then) for launch in launches]))
    return Shape(tuple(stage.variants), tuple((what, tuple(texts)) for what, texts in lines))


def _dialects(stage: Stage, variant: str) -> str:
    return ", ".join(DIALECTS[d].title for d in stage.dialects if variant in stage.variants_in(d))


def _then(launch: Launch | None) -> str:
    return "" if launch is None else f"{_by(launch.grid)} blocks of {launch.threads} threads"


def _by(sizes: tuple[int, ...]) -> str:
    """`32 × 32`: sizes along x, y and z without those at the end that are 1."""
    kept = [size for index, size in enumerate(sizes) if index == 0 or any(other != 1 for other in sizes[index:])]
    return " × ".join(map(str, kept))
