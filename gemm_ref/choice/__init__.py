"""Which tile, and how many blocks, for which shape: what the default variant of a rung with a family of tiles runs.

A model of time, not a search: `work` counts what a candidate asks of the GPU, and `costs` has what that takes. It was
measured once per kind of GPU (`costs.toml`; `python -m experiments fit` makes the table of another); a GPU that is not
in it has the figures of the first one there. `experiments run choice` says how much is lost against trying everything.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace

from gemm_ref.choice.costs import TABLE, Cache, Costs, Device, Family, Shares, device, devices, took
from gemm_ref.choice.work import Wave, Work, blocks_for, tiles_of, work_of
from gemm_ref.compute import MATHS
from gemm_ref.config import Config
from gemm_ref.operands import TMA_BYTES, phases_at
from gemm_ref.problem import Problem
from gemm_ref.rung import Rung

__all__ = [
    "TABLE", "Cache", "Candidate", "Costs", "Device", "Family", "Shares", "Wave", "Work", "blocks_for", "choose",
    "device", "devices", "in_phases", "predict", "predictions", "tiles_for", "tiles_of", "took", "work_of",
]  # fmt: skip

FLOATS = "_floats"  # ends the name of a tile's twin that copies B float by float
COPIED = "_copied"  # ends the name of a tile's twin whose B is copied first, to rows of whole vectors
# Nanoseconds of a multiprocessor per element of a c that is added to a tile of C^T, beyond what a tile of C takes: that
# reads two neighbours at once. Measured on an H200 in CUDA, in bf16: 0.28 at 4096 cubed, 0.275 at 8192 cubed.
TURNED_C_NS = 0.28
# Nanoseconds that it takes to read A in phases, beyond what `Work` counts. A copy takes as long beyond its bytes, if
# B is not copied as well, in the same launch. On an H100 the better way is taken so at 60 of 65 problems in bf16, fp16
# and tf32, and 0.5% of the time is lost (geometric mean).
PHASES_NS = 1000


@dataclass(frozen=True)
class Candidate:
    """A tile, by name, and the blocks that the tiles of C are dealt to."""

    tile: str
    blocks: int


def predict(stage: Rung, dialect: str, candidate: Candidate, problem: Problem, sms: int, gpu: Device) -> float:
    """Nanoseconds that a product takes on `sms` multiprocessors of a kind of GPU; `problem`: as the kernel reads it."""
    family = gpu.family(stage.id, dialect, problem.math)
    work = work_of(stage.config(candidate.tile, dialect), problem, sms, candidate.blocks, gpu.l2_bytes)
    return took(work, family.tiles[candidate.tile], family.shares, family.cache, gpu)


def predictions(
    stage: Rung, dialect: str, problem: Problem, sms: int, vectors: bool, gpu: str = "", tile: str = "",
    adds_c: bool = False,
) -> dict[Candidate, float]:  # fmt: skip
    """Nanoseconds of every candidate; the arguments are those of `choose`."""
    kind = device(gpu)
    tiles = tiles_for(stage, dialect, vectors)
    if tile:
        tiles = {tile: tiles[tile]} if tile in tiles else {x: c for x, c in tiles.items() if _base(x) == _base(tile)}
    candidates = [
        Candidate(name, blocks) for name, config in tiles.items() for blocks in blocks_for(config, problem, sms)
    ]
    found = {each: predict(stage, dialect, each, problem, sms, kind) for each in candidates}
    if not adds_c:
        return found
    more = TURNED_C_NS * problem.m * problem.n / sms
    return {x: ns + more * tiles[x.tile].is_transposed(problem.math, problem.b_layout) for x, ns in found.items()}


@functools.lru_cache(maxsize=4096)
def choose(
    stage: Rung, dialect: str, problem: Problem, sms: int, vectors: bool, gpu: str = "", tile: str = "",
    adds_c: bool = False,
) -> Candidate:  # fmt: skip
    """What a rung's default variant runs for a problem, on a GPU with `sms` multiprocessors.

    vectors: whether rows of B are whole vectors of 16 bytes. gpu: its kind, as torch names it. tile: the name of one
    that is asked for, or of a twin where that does not read such a B; else any. adds_c: whether a c is added.
    """
    found = predictions(stage, dialect, problem, sms, vectors, gpu, tile, adds_c)
    return min(found, key=lambda each: (found[each], each.blocks, each.tile))


@functools.lru_cache(maxsize=4096)
def in_phases(stage: Rung, dialect: str, problem: Problem, sms: int, gpu: str = "") -> Problem:
    """The problem with A read in its phases (`operands.phases_at`), where that takes less time than a copy of A first.

    Rows of A and of B follow each other. It is the same for every tile.
    """
    copied, phases = replace(problem, a_phases=1), phases_at(problem)
    if not stage.tma or dialect not in stage.tma.a_in_phases or phases == 1:
        return copied
    element, apart = MATHS[problem.math].dtype.itemsize, replace(problem, a_phases=phases)
    as_copied, as_stored = (min(predictions(stage, dialect, x, sms, True, gpu).values()) for x in (copied, apart))
    as_copied += 2 * element * problem.m * problem.k / device(gpu).bytes_per_ns
    copies_b = problem.n * element % TMA_BYTES > 0
    return apart if as_stored + PHASES_NS * copies_b < as_copied else copied


def tiles_for(stage: Rung, dialect: str, vectors: bool) -> dict[str, Config]:
    """The tiles of a rung that read a B whose rows are whole vectors, or are not; all, where the TMA unit reads it."""
    tiles = stage.tiles[dialect]
    if stage.tma:
        return dict(tiles)
    if vectors:
        return {name: config for name, config in tiles.items() if name == _base(name)}
    return {name: config for name, config in tiles.items() if config.COPY_N == 1 or config.ALIGN_B}


def _base(tile: str) -> str:
    """The name of the tile of which this one is a twin; of any other its own."""
    return tile.removesuffix(FLOATS).removesuffix(COPIED)
