"""Chooses the tile and the number of blocks by shape, for the default variant of a rung with a family of tiles.

A model of time, not a search: `work` counts what a candidate asks of the GPU, and `costs` says what that costs. Costs
were measured once per kind of GPU (`costs.toml`; `python -m experiments fit` makes the table of another); a GPU that is
not in it has those of the first, scaled by what its driver states. `experiments run choice` measures the loss against
trying every candidate.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, replace

from gemm_ref.choice.costs import Device, find_device, time_ns
from gemm_ref.choice.work import candidate_blocks, count_work, unshared_blocks
from gemm_ref.compute import MATHS
from gemm_ref.config import Config
from gemm_ref.operands import TMA_BYTES, phases_at
from gemm_ref.problem import Problem
from gemm_ref.rung import Rung

FLOATS = "_floats"  # suffix of a tile's twin that copies B float by float
COPIED = "_copied"  # suffix of a tile's twin whose B is first copied to rows of complete vectors
# Nanoseconds of a multiprocessor per element of a c that is added to a tile of C^T, beyond those for a tile of C, which
# reads two neighbours at once. Measured on an H200 in CUDA, in bf16: 0.28 at 4096 cubed, 0.275 at 8192 cubed.
TRANSPOSED_C_NS = 0.28
MIN_SIDE = 16  # a side of a tile that `filled_tiles` takes however small C is
# Nanoseconds to read A in phases, beyond what `Work` counts. A copy takes as long beyond its bytes, unless B is copied
# in the same launch. With it the faster way is chosen on an H100 at 60 of 65 problems in bf16, fp16 and tf32, and 0.5%
# of the time is lost (geometric mean).
PHASES_NS = 1000


@dataclass(frozen=True)
class Candidate:
    """A tile, by name, and the number of blocks that compute the tiles of C."""

    tile: str
    blocks: int


def predict_ns(stage: Rung, dialect: str, candidate: Candidate, problem: Problem, sms: int, device: Device) -> float:
    """Nanoseconds of a product on `sms` multiprocessors of a kind of GPU, for operands as the kernel reads them."""
    family = device.family(stage.id, dialect, problem.math)
    work = count_work(stage.config(candidate.tile, dialect), problem, sms, candidate.blocks, device.l2_bytes)
    return time_ns(work, family.tiles[candidate.tile], family.splitting, family.cache, device)


def predict_all(
    stage: Rung, dialect: str, problem: Problem, sms: int, vectors: bool, gpu: str = "", tile: str = "",
    adds_c: bool = False, batch_invariant: bool = False,
) -> dict[Candidate, float]:  # fmt: skip
    """Predicted nanoseconds of every candidate; the arguments are those of `choose`."""
    device, tiles = find_device(gpu), usable_tiles(stage, dialect, vectors)
    if tile:
        tiles = {tile: tiles[tile]} if tile in tiles else {x: c for x, c in tiles.items() if _base(x) == _base(tile)}
    elif batch_invariant:
        tiles = {name: config for name, config in tiles.items() if not config.splits_tile and not config.uses_mma_sync}
    if stage.tma and dialect in stage.tma.boxes_past_edges and not tile:
        tiles = filled_tiles(tiles, problem)
    predicted = {}
    for name, config in tiles.items():
        transposed = adds_c and config.is_transposed(problem.math, problem.b_layout)
        more_ns = TRANSPOSED_C_NS * problem.m * problem.n / sms if transposed else 0.0
        block_counts = candidate_blocks(config, problem, sms)
        for blocks in [unshared_blocks(config, problem)] if batch_invariant else block_counts:
            candidate = Candidate(name, blocks)
            predicted[candidate] = predict_ns(stage, dialect, candidate, problem, sms, device) + more_ns
    return predicted


@functools.lru_cache(maxsize=4096)
def choose(
    stage: Rung, dialect: str, problem: Problem, sms: int, vectors: bool, gpu: str = "", tile: str = "",
    adds_c: bool = False, batch_invariant: bool = False,
) -> Candidate:  # fmt: skip
    """The candidate that a rung's default variant runs for a problem, on a GPU with `sms` multiprocessors.

    vectors: whether rows of B are complete vectors of 16 bytes. gpu: its kind, as torch names it. tile: the name of a
    requested one, whose twin is taken if it cannot read such a B; else any. adds_c: whether a c is added.
    batch_invariant: whether a row of C must have the same bits for any M. Then no blocks share the K of a tile, and a
    tile is among the candidates only if one warp adds all products of an element, in the order of K: of such tiles the
    bits are equal, so that M may choose between them.
    """
    predicted = predict_all(stage, dialect, problem, sms, vectors, gpu, tile, adds_c, batch_invariant)
    return min(predicted, key=lambda candidate: (predicted[candidate], candidate.blocks, candidate.tile))


@functools.lru_cache(maxsize=4096)
def select_phases(stage: Rung, dialect: str, problem: Problem, sms: int, gpu: str = "") -> Problem:
    """The problem with A read in phases (`operands.phases_at`), if that takes less time than to copy A first.

    The rows of A and of B must be contiguous. The answer is the same for every tile.
    """
    copied, phases = replace(problem, a_phases=1), phases_at(problem)
    if not stage.tma or dialect not in stage.tma.a_in_phases or phases == 1:
        return copied
    element, in_phases = MATHS[problem.math].dtype.itemsize, replace(problem, a_phases=phases)
    copied_ns, phases_ns = (
        min(predict_all(stage, dialect, each, sms, True, gpu).values()) for each in (copied, in_phases)
    )
    copied_ns += 2 * element * problem.m * problem.k / find_device(gpu).bytes_per_ns
    copies_b = problem.n * element % TMA_BYTES > 0
    return in_phases if phases_ns + PHASES_NS * copies_b < copied_ns else copied


def usable_tiles(stage: Rung, dialect: str, vectors: bool) -> dict[str, Config]:
    """The tiles of a rung for a B whose rows are complete vectors, or are not; all tiles if the TMA unit reads B."""
    tiles = stage.tiles[dialect]
    if stage.tma:
        return dict(tiles)
    if vectors:
        return {name: config for name, config in tiles.items() if name == _base(name)}
    return {name: config for name, config in tiles.items() if config.COPY_N == 1 or config.ALIGN_B}


def filled_tiles(tiles: Mapping[str, Config], problem: Problem) -> dict[str, Config]:
    """The tiles of which at least half is inside of C along each side; all tiles if there are none.

    A row of a box outside of its matrix takes the TMA unit longer than one that it reads. Sides of up to MIN_SIDE pass
    for any C, since no tile is smaller.
    """
    filled = {}
    for name, config in tiles.items():
        rows, columns = config.sides(problem)
        if config.BLOCK_M <= max(2 * rows, MIN_SIDE) and config.BLOCK_N <= max(2 * columns, MIN_SIDE):
            filled[name] = config
    return filled or dict(tiles)


def _base(tile: str) -> str:
    """The name of a tile without the suffix of a twin."""
    return tile.removesuffix(FLOATS).removesuffix(COPIED)
