"""What the page says of each rung beyond its speeds: the shape of its variants, and what the compilers made of them."""

from __future__ import annotations

import pandas as pd

from experiments.publish.report.tables import ResultTable, tabulate
from experiments.publish.table import Table
from experiments.records import frames
from gemm_ref import DIALECTS, Launch, Rung

# Rungs whose speeds can be compared stand in one table: its id -> its title and its math modes.
GROUPS = {
    "fp32": ("In fp32", ("fp32",)),
    "tensor-cores": ("On tensor cores", frames.TENSOR_CORE_MATHS),
}
_RESOURCES = ("variant", "dialect", "arch", "registers", "spill_bytes", "shared_bytes", "blocks_per_sm", "occupancy")


def tabulate_resources(stage: Rung, compiled: pd.DataFrame) -> ResultTable | None:
    """What the compilers made of each kernel of the rung, from the rows of the `instructions` experiment."""
    if compiled.empty:
        return None
    rows = compiled[compiled["stage"] == stage.id]
    return tabulate(rows[[name for name in _RESOURCES if name in rows]])


def tabulate_shape(stage: Rung, edge: int) -> Table:
    """A column for each variant: its compile-time shape, and how it is launched at a cube of this edge."""
    launches = [stage.launch(edge, edge, edge, variant) for variant in stage.variants]
    constants = [config.constants() for config in stage.variants.values()]
    dialects = [[DIALECTS[d].title for d in stage.dialects if v in stage.variants_in(d)] for v in stage.variants]
    lines = [["written in", *map(", ".join, dialects)]]
    for name in dict.fromkeys(name for of_one in constants for name in of_one):
        lines.append([name, *(str(of_one.get(name, "")) for of_one in constants)])
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
