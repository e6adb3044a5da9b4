"""A section a rung: its idea, its numbers at the README's size, what compilers decided, its resources, its sources."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

import gemm_ref
from experiments.progress import Bars
from experiments.publish import markdown
from experiments.publish.answer import Mode
from experiments.publish.compilers import compiler_findings
from experiments.publish.drawing import style
from experiments.publish.kernel_rows import gain, row_of
from experiments.publish.report.sources import Source, header, sources
from experiments.publish.report.tables import Table, table_of
from experiments.publish.report.views import View
from experiments.records import frames, workloads
from gemm_ref import DIALECTS, Launch, Rung
from gemm_ref.rung import DEFAULT_VARIANT

_RESOURCES = ("variant", "dialect", "arch", "registers", "spill_bytes", "shared_bytes", "blocks_per_sm", "occupancy")


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
class Speeds:
    """The kernels of a rung in one math mode, from one machine."""

    math: str
    size: str  # of the cube's edge
    library: str  # what shares are of, and
    cublas: str  # its TFLOP/s
    best: dict[str, Cell]  # by dialect
    variants: list[tuple[str, dict[str, Cell]]]


@dataclass(frozen=True)
class Numbers:
    """What one machine found out about a rung."""

    speeds: dict[str, Speeds]  # by math mode
    checks: dict[str, tuple[int, int]]  # by dialect: how many passed, of how many
    resources: Table | None


@dataclass(frozen=True)
class RungSection:
    """All that the page says of a rung; `numbers` are by view, the rest is the same for all of them."""

    stage: Rung
    number: str
    header: dict[str, str]
    below: str  # the number of the rung below, or nothing
    shape: Shape
    findings: list[tuple[str, str]]  # (dialect, what its compiler decided)
    sources: list[Source]
    numbers: dict[str, Numbers]
    page: str  # of docs/ that has its section


@dataclass(frozen=True)
class Group:
    """The rungs of a table, whose numbers can be compared: those in fp32, and those on tensor cores."""

    id: str
    title: str
    maths: tuple[str, ...]
    modes: dict[str, dict[str, Mode]]  # by view and math mode: its size and cuBLAS


def groups(views: Sequence[View]) -> list[Group]:
    """fp32, then tensor cores."""

    def modes(view: View, maths: Sequence[str]) -> dict[str, Mode]:
        return {mode.math: mode for mode in view.answer.modes if mode.math in maths}

    return [
        Group(name, title, maths, {view.slug: modes(view, maths) for view in views})
        for name, title, maths in (
            ("fp32", "In fp32", ("fp32",)),
            ("tensor-cores", "On tensor cores", frames.TENSOR_CORE_MATHS),
        )
    ]


def rungs(views: Sequence[View], bars: Bars) -> list[RungSection]:
    """Every rung of the registry, with what each machine found out about it."""
    ladder = list(gemm_ref.STAGES.values())
    bars.begin("rungs", len(ladder))
    found = []
    for below, stage in zip([None, *ladder], ladder, strict=False):
        bars.doing(stage.id)
        found.append(_rung(stage, below if below and below.maths[0] == stage.maths[0] else None, views))
        bars.done()
    return found


def _rung(stage: Rung, below: Rung | None, views: Sequence[View]) -> RungSection:
    return RungSection(
        stage=stage,
        number=stage.id.split("_")[0],
        header=header(stage),
        below=below.id.split("_")[0] if below else "",
        shape=_shape(stage, workloads.LARGEST),
        findings=[(DIALECTS[dialect].title, text) for dialect, text in compiler_findings(stage).items()],
        sources=sources(stage),
        numbers={view.slug: _numbers(stage, below, view) for view in views},
        page=f"{markdown.page(stage)}#{stage.id}",
    )


def _numbers(stage: Rung, below: Rung | None, view: View) -> Numbers:
    own = view.checked[view.checked["stage"] == stage.id]
    return Numbers(
        speeds={
            mode.math: _speeds(stage, below, mode, view.at_size[mode.math])
            for mode in view.answer.modes
            if mode.math in stage.maths
        },
        checks={d: frames.tally(rows) for d in stage.dialects if not (rows := own[own["dialect"] == d]).empty},
        resources=resources(stage, view.compiled),
    )


def _speeds(stage: Rung, below: Rung | None, mode: Mode, at_size: pd.DataFrame) -> Speeds:
    at_size = at_size[at_size["math"] == mode.math]
    return Speeds(
        math=mode.math,
        size=mode.size,
        library=mode.library,
        cublas=style.number(mode.cublas_tflops),
        best={d: cell(stage, DEFAULT_VARIANT, d, below, at_size) for d in DIALECTS},
        variants=[(v, {d: cell(stage, v, d, below, at_size) for d in DIALECTS}) for v in stage.variants],
    )


def cell(stage: Rung, variant: str, dialect: str, below: Rung | None, at_size: pd.DataFrame) -> Cell:
    """One kernel at the size of the tables; `"default"` is the dialect's best variant."""
    if dialect not in stage.dialects:
        return Cell(note="no kernel")
    best = variant == DEFAULT_VARIANT
    if best:
        variant = stage.find_variant(variant, dialect)
    if variant not in stage.variants_in(dialect):
        return Cell(note="–")
    row = row_of(at_size, stage, variant, dialect)
    if row is None:
        return Cell(note="not measured")
    times = gain(below, stage, variant, dialect, at_size)
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


def resources(stage: Rung, compiled: pd.DataFrame) -> Table | None:
    """What the compilers made of each kernel of the rung, from the rows of the `instructions` experiment."""
    if compiled.empty:
        return None
    own = compiled[compiled["stage"] == stage.id]
    return table_of(own[[name for name in _RESOURCES if name in own]])


def _shape(stage: Rung, edge: int) -> Shape:
    launches = [stage.launch(edge, edge, edge, variant) for variant in stage.variants]
    constants = [config.constants() for config in stage.variants.values()]
    dialects = {v: [DIALECTS[d].title for d in stage.dialects if v in stage.variants_in(d)] for v in stage.variants}
    lines = [("written in", [", ".join(names) for names in dialects.values()])]
    for name in dict.fromkeys(name for own in constants for name in own):
        lines.append((name, [str(own.get(name, "")) for own in constants]))
    lines.append(("threads per block", [str(launch.threads) for launch in launches]))
    lines.append((f"blocks at {edge}", [_by(launch.grid) for launch in launches]))
    lines.append(("dynamic shared memory, bytes", [str(launch.shared_bytes) for launch in launches]))
    if any(launch.then for launch in launches):
        lines.append(("then, to finish", [_then(launch.then) for launch in launches]))
    return Shape(tuple(stage.variants), tuple((what, tuple(texts)) for what, texts in lines))


def _then(launch: Launch | None) -> str:
    return "" if launch is None else f"{_by(launch.grid)} blocks of {launch.threads} threads"


def _by(sizes: tuple[int, ...]) -> str:
    """`32 × 32`: sizes along x, y and z without those at the end that are 1."""
    kept = [size for index, size in enumerate(sizes) if index == 0 or any(other != 1 for other in sizes[index:])]
    return " × ".join(map(str, kept))
