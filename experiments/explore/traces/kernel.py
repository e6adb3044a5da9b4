"""One kernel of the registry, traced: the small problem, its runs on the reference GPU, and the trace made of them."""

from __future__ import annotations

import re

import numpy as np
import torch

from experiments.explore.traces import limits, owners
from experiments.explore.traces.observe import Watcher
from experiments.explore.traces.origin import Ids, Operands
from experiments.explore.traces.record import NOWHERE, Array, KernelLaunch, Tile, Trace
from experiments.explore.traces.tables import Tables, staged_bytes
from experiments.records.contenders import gemm_of
from experiments.records.source_lines import kernel_file
from gemm_ref import Implementation, Problem, ptx
from gemm_ref.call import Plan
from gemm_ref.call.choose import select_tile
from gemm_ref.compute import MATHS
from gemm_ref.config.cuda_cores import MIN_SLICES
from gemm_ref.inputs import aligned
from gemm_ref.launch import Launch, cdiv
from gemm_ref.operands.split import Split
from gemm_ref.ptx.core.events import KernelInfo

_HALF = 2  # bytes of the elements that BLOCK_K counts in rungs for tensor cores
_ALONE = 16  # elements of K where a rung has no slices: each is one
_EVEN = 16  # K is a multiple of it, for which compilers make the code that large problems run


def name_of(item: Implementation) -> str:
    """What the trace of a kernel will be called (`Trace.name`)."""
    return "-".join((item.stage.id, item.dialect, item.variant, item.math))


def depth_of(item: Implementation) -> int:
    """Elements of K in a slice; 1 for a rung that has none."""
    return item.config.depth(MATHS[item.math].part_dtype.itemsize) or 1


def problem_of(item: Implementation) -> Problem:
    """2 x 2 tiles of C; of K as many slices as make the ring of slices in shared memory wrap round once, at least 2.

    Where K is always split, it has the slices that make two splits.
    """
    config, depth = item.config, depth_of(item)
    slices = config.NUM_STAGES // MATHS[item.math].parts + 1 if depth > 1 else _ALONE
    if item.stage.second_kernel and not item.stage.tiles:
        slices = 2 * MIN_SLICES
    while slices * depth % _EVEN:
        slices += 1
    layout = item.stage.reads_b(item.math, item.dialect)[0]
    return Problem(2 * config.BLOCK_M, 2 * config.BLOCK_N, slices * depth, item.math, layout)


def shown_block(launch: Launch) -> int:
    """The block that is shown: the last of the first part of K, in whose addresses rows and columns both tell."""
    return launch.grid[0] * launch.grid[1] - 1


def trace(item: Implementation, compiler: str) -> Trace:
    """The trace of one kernel; `compiler` is who compiles it, with its version.

    Raises `gemm_ref.build.BuildError` without nvcc, ModuleNotFoundError without Triton.
    """
    problem, depth, file = problem_of(item), depth_of(item), kernel_file(item.stage.id, item.dialect)
    ids = Ids(problem)
    watched = _run(item, problem, ids.operands(0))
    others = [_run(item, problem, ids.operands(number), again=True) for number in range(1, ids.passes)]
    for seen, *again in zip(watched.accesses, *(each.accesses for each in others), strict=True):
        contents = [found for each in (seen, *again) if (found := each.contents) is not None]
        if contents and seen.size >= ids.element_bytes:
            seen.ids = np.where(seen.active[:, None], ids.origins(contents), NOWHERE)
    tiles = owners.tiles(watched, item.config, ids)
    tile = next((tile for tile in tiles if tile.block == watched.block), Tile(watched.block, 0, 0, 0, 0))
    if staged := owners.epilogue_steps(watched):
        sums = [_run(item, problem, ids.products(column), again=True) for column in (False, True)]
        owners.assign_sum_ids(watched, staged, sums, tile, ids)
    arrays = (*_matrices(watched, ids), *_shared_arrays(*watched.launches[0]))
    tables = Tables(file, ids, depth, arrays)
    for seen in watched.steps:
        tables.add(seen)
    held, started = owners.owners(watched, tile, ids), _kernel_launch(*watched.launches[0])
    slice_bytes = (tile.rows + tile.columns) * depth * ids.element_bytes
    return Trace(
        stage=item.stage.id,
        variant=item.variant,
        dialect=item.dialect,
        math=item.math,
        compiler=compiler,
        file=file,
        m=problem.m,
        n=problem.n,
        k=problem.k,
        depth=depth,
        ring=cdiv(staged_bytes(watched.steps, ids, started.shared_bytes), slice_bytes),
        launches=(started, *(_kernel_launch(*launch) for launch in watched.launches[1:])),
        block=watched.block,
        row=tile.row,
        column=tile.column,
        tiles=tiles,
        owners=held,
        arrays=arrays,
        operations=tables.operations,
        steps=tables.steps,
        patterns=tables.patterns,
        counts=tables.counts,
        origins=tables.origins,
        missing=limits.describe_limits(watched, held, tables.operations, MATHS[item.math].parts),
    )


def _run(item: Implementation, problem: Problem, operands: Operands, again: bool = False) -> Watcher:
    """The kernel on the reference GPU, watched."""
    item = item.first_tile  # not what such small sizes choose
    a, b = operands
    c = aligned(torch.empty(problem.m, problem.n, dtype=MATHS[problem.math].out_dtype))
    launch = select_tile(Plan(item, problem), a, b).launch
    # a kernel may compute C transposed, and call A and B something else
    names: dict[int, str] = {}
    for name, x in zip("AB", operands, strict=True):
        if isinstance(x, Split):
            names |= {x.matrix.data_ptr(): f"{name} in fp32", x.parts.data_ptr(): name}
        else:
            names[x.data_ptr()] = name
    watcher = Watcher(shown_block(launch), names, again)
    with ptx.watched(watcher):
        gemm_of(item)(a, b, out=c)
    return watcher


def _matrices(watched: Watcher, ids: Ids) -> list[Array]:
    """A, B and C or the partial sums, as the first kernel is given them."""
    problem, found = ids.problem, []
    for name, tensor in watched.arrays.items():
        rows, columns = ids.shapes.get(name, (problem.m, problem.n))
        by_columns = name == "B" and problem.b_layout == "nk"
        first = ids.first["C"] if name in owners.RESULTS else ids.first.get(name, NOWHERE)
        about = (rows, columns, tensor.owner.element_size(), by_columns, first)
        found.append(Array(name, "global", 0, tensor.size, *about))
    return found


def _shared_arrays(kernel: KernelInfo, launch: Launch) -> list[Array]:
    """The arrays in shared memory that have a name in the source."""
    static, names = kernel.static_shared, {each.name: each for each in kernel.entry.variables}
    found = [
        Array(names[name].source_name, "shared", offset, names[name].size)
        for name, offset in sorted(static.offsets.items(), key=lambda pair: pair[1])
    ]
    if launch.shared_bytes:
        found += [
            Array(names[name].source_name, "shared", static.size, launch.shared_bytes) for name in kernel.dynamic_shared
        ]
    return found


def _kernel_launch(kernel: KernelInfo, launch: Launch) -> KernelLaunch:
    shared = kernel.static_shared.size + launch.shared_bytes
    return KernelLaunch(_source_name(kernel.name), launch.grid, launch.block, launch.cluster, shared)


def _source_name(entry: str) -> str:
    """The name of a kernel without C++'s mangling, which has the name's length before it."""
    found = re.match(r"_Z(\d+)", entry)
    return entry[found.end() :][: int(found[1])] if found else entry
