"""A section for each rung: its idea, its speeds, what compilers decided, its shape, its resources and its sources."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

import gemm_ref
from experiments.progress import Bars
from experiments.publish.answer import Mode
from experiments.publish.compilers import compiler_findings
from experiments.publish.kernels import KernelCell, best_cell_of, cell_of
from experiments.publish.report.sources import Source, read_header, read_sources
from experiments.publish.report.tables import ResultTable, tabulate
from experiments.publish.report.views import View
from experiments.publish.table import Table
from experiments.publish.wording import docs_page
from experiments.records import frames, workloads
from gemm_ref import DIALECTS, Launch, Rung

_RESOURCES = ("variant", "dialect", "arch", "registers", "spill_bytes", "shared_bytes", "blocks_per_sm", "occupancy")


@dataclass(frozen=True)
class Speeds:
    """The kernels of a rung in one math mode, from one machine."""

    mode: Mode
    best: dict[str, KernelCell]  # by dialect
    variants: list[tuple[str, dict[str, KernelCell]]]


@dataclass(frozen=True)
class Measured:
    """What one machine found out about a rung."""

    speeds: dict[str, Speeds]  # by math mode
    checks: dict[str, tuple[int, int]]  # by dialect: how many passed, of how many
    resources: ResultTable | None


@dataclass(frozen=True)
class RungSection:
    """All that the page says of a rung; `measured` is by view, the rest is the same for all of them."""

    stage: Rung
    header: dict[str, str]
    below: str  # the number of the rung below, or nothing
    shape: Table
    findings: list[tuple[str, str]]  # (dialect, what its compiler decided)
    sources: list[Source]
    measured: dict[str, Measured]
    page: str  # of docs/ that has its section


@dataclass(frozen=True)
class Group:
    """The rungs of a table, whose speeds can be compared: those in fp32, and those on tensor cores."""

    id: str
    title: str
    maths: tuple[str, ...]
    modes: dict[str, dict[str, Mode]]  # by view and math mode: its size and cuBLAS


def group_rungs(views: Sequence[View]) -> list[Group]:
    """Returns the groups: fp32, then tensor cores."""
    tensor_cores = tuple(math for math in gemm_ref.MATHS if math != "fp32")
    return [
        Group(
            name,
            title,
            maths,
            {view.slug: {mode.math: mode for mode in view.answer.modes if mode.math in maths} for view in views},
        )
        for name, title, maths in (
            ("fp32", "In fp32", ("fp32",)),
            ("tensor-cores", "On tensor cores", tensor_cores),
        )
    ]


def describe_rungs(views: Sequence[View], bars: Bars) -> list[RungSection]:
    """Returns a section for each rung of the registry, with what each machine found out about it."""
    ladder = list(gemm_ref.STAGES.values())
    bars.begin("rungs", len(ladder))
    sections = []
    for below, stage in zip([None, *ladder], ladder, strict=False):
        bars.doing(stage.id)
        below = below if below and below.maths[0] == stage.maths[0] else None
        sections.append(
            RungSection(
                stage=stage,
                header=read_header(stage),
                below=below.id[:3] if below else "",
                shape=tabulate_shape(stage, workloads.LARGEST),
                findings=[(DIALECTS[dialect].title, text) for dialect, text in compiler_findings(stage).items()],
                sources=read_sources(stage),
                measured={view.slug: _measured(stage, below, view) for view in views},
                page=f"{docs_page(stage)}#{stage.id}",
            )
        )
        bars.done()
    return sections


def _measured(stage: Rung, below: Rung | None, view: View) -> Measured:
    checks = view.checked[view.checked["stage"] == stage.id]
    modes = [mode for mode in view.answer.modes if mode.math in stage.maths]
    return Measured(
        speeds={mode.math: _speeds(stage, below, mode, view.at_size[mode.math]) for mode in modes},
        checks={d: frames.tally(rows) for d in stage.dialects if not (rows := checks[checks["dialect"] == d]).empty},
        resources=tabulate_resources(stage, view.rows("instructions")),
    )


def _speeds(stage: Rung, below: Rung | None, mode: Mode, rows: pd.DataFrame) -> Speeds:
    rows = rows[rows["math"] == mode.math]

    best = {dialect: best_cell_of(rows, stage, dialect) for dialect in DIALECTS}
    variants = [(v, {d: cell_of(rows, stage, v, d, below) for d in DIALECTS}) for v in stage.variants]
    return Speeds(mode, best, variants)


def tabulate_resources(stage: Rung, compiled: pd.DataFrame) -> ResultTable | None:
    """What the compilers made of each kernel of the rung, from the rows of the `instructions` experiment."""
    if compiled.empty:
        return None
    own = compiled[compiled["stage"] == stage.id]
    return tabulate(own[[name for name in _RESOURCES if name in own]])


def tabulate_shape(stage: Rung, edge: int) -> Table:
    """A column for each variant: its compile-time shape, and how it is launched at a cube of this edge."""
    launches = [stage.launch(edge, edge, edge, variant) for variant in stage.variants]
    constants = [config.constants() for config in stage.variants.values()]
    dialects = {v: [DIALECTS[d].title for d in stage.dialects if v in stage.variants_in(d)] for v in stage.variants}
    lines = [["written in", *(", ".join(names) for names in dialects.values())]]
    for name in dict.fromkeys(name for own in constants for name in own):
        lines.append([name, *(str(own.get(name, "")) for own in constants)])
    lines.append(["threads per block", *(str(launch.threads) for launch in launches)])
    lines.append([f"blocks at {edge}", *(_format_grid(launch.grid) for launch in launches)])
    lines.append(["dynamic shared memory, bytes", *(str(launch.shared_bytes) for launch in launches)])
    if any(launch.then for launch in launches):
        lines.append(["then, to finish", *(_format_second(launch.then) for launch in launches)])
    head = ["variant", *stage.variants] if len(stage.variants) > 1 else ["", *("" for _ in stage.variants)]
    return Table.of(head, lines)


def _format_second(launch: Launch | None) -> str:
    return "" if launch is None else f"{_format_grid(launch.grid)} blocks of {launch.threads} threads"


def _format_grid(sizes: tuple[int, ...]) -> str:
    """`32 × 32`: sizes along x, y and z without those at the end that are 1."""
    kept = [size for index, size in enumerate(sizes) if index == 0 or any(other != 1 for other in sizes[index:])]
    return " × ".join(map(str, kept))
