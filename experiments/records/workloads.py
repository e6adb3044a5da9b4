"""Every size that is measured, with the reason for it: one leaf for questions, pictures and documents.

A size is (M, N, K), or one number for a cube. Real-world problems are in workloads.toml, with their reasons.
"""

from __future__ import annotations

import functools
import random
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from experiments.records.request import DEFAULT, FULL


def cube(edge: int) -> tuple[int, int, int]:
    """Returns the sizes (M, N, K) of a cube."""
    return edge, edge, edge


LARGEST = 4096  # the cube of the tables: the largest that is published, up to this

# --- correctness ---------------------------------------------------------------------------------------------

# Nothing, one, less than a warp, and one beside a tile edge on either side.
EDGES = (0, 1, 2, 31, 33, 127, 129, 257)
ON_CPU = (
    (0, 33, 127),  # no rows
    (31, 0, 2),  # no columns
    (129, 127, 0),  # nothing to sum: zeros
    (1, 1, 1),  # one element
    (2, 257, 33),  # two rows across many tiles
    (257, 31, 31),  # many tiles down, K inside one
    (33, 129, 257),  # K in several steps with a tail, one past the tile on each side
    (127, 2, 129),  # one short of a tile edge, two columns
    (33, 31, 33),  # around one tile on every side
    (1, 127, 1),  # an outer product of one row
    (129, 1, 31),  # a matrix times a vector
    (2, 2, 127),  # a deep, tiny product
)
# The default preset has all kinds of inputs at these; at the others of ON_CPU it has normal ones, and in fp32 alone,
# since kernels for tensor cores take seconds each to compile and to run.
ON_CPU_FEW = ((0, 33, 127), (1, 1, 1), (257, 31, 31), (33, 129, 257))
ALL_EDGES_PARTIAL = (1021, 509, 131)  # primes: the last tile is partial on every side
FEW_EDGES_PARTIAL = (263, 139, 67)  # the same for the default preset on a CPU, with 3 x 2 of the largest tiles
ON_GPU_LARGE = {
    DEFAULT: ((8192, 8192, 512), (65537, 33, 65537)),  # a C that people use; offsets into A past 2^31
    FULL: ((8192, 8192, 8192), (65537, 33, 65537)),
}

# --- times ---------------------------------------------------------------------------------------------------

DEEP = (128, 128, 65536)  # one tile of C and a deep K, for s13; on a GPU alone
LADDER = {"cuda": (cube(LARGEST), DEEP), "cpu": (cube(512),)}  # at 512 the CPU loop takes a moment

POWERS = tuple(2**n for n in range(7, 15))  # 128 to 16384
PRIMES = (509, 1021, 2039, 4093, 8191)  # 127 and 257 are neighbours of powers already
NEIGHBOURS = tuple(2**n + one for n in range(7, 13) for one in (-1, 1))
BETWEEN = (1536, 3000)  # whole tiles that fill no whole wave; and partial ones, with rows of 8 elements' multiple
SQUARES = {
    DEFAULT: (127, 128, 129, 256, 512, 1021, 1024, 1025, 2048, 4095, 4096, 4097, 8192),
    FULL: tuple(sorted({*POWERS, *PRIMES, *NEIGHBOURS, *BETWEEN})),
}
FEW_SQUARES = (256, 1024, 1025, 4096)  # the default preset's in each math mode of tensor cores
SQUARES_ON_CPU = (128, 256, 512, 1024)
AWKWARD = {4095: 4096, 4097: 4096, 1021: 1024, 1025: 1024}  # size -> the power of two beside it

MAP_K = 4096
MAP_SIDES = {DEFAULT: (128, 1024, 8192), FULL: (128, 256, 512, 1024, 2048, 4096, 8192)}

TIMERS = MODES = (256, 1024, 4096)  # all fits the L2 cache, and a launch counts; some of both; neither
HOST = (64, 256)  # the kernel is done sooner than its call
TENSOR_CORES = {DEFAULT: (4096,), FULL: (2048, 4096, 8192)}
# A square, where all forms are timed; a larger one; a layer's three products in training and in decoding
EPILOGUES = (cube(4096), cube(8192), (2048, 11008, 4096), (512, 4096, 14336), (16, 4096, 4096))
# Layers, N and K: a square, Llama 3's queries, keys and values, its gate and up, and its down; and their rows
INVARIANCE = ((4096, 4096), (6144, 4096), (28672, 4096), (4096, 14336))
INVARIANCE_ROWS = {DEFAULT: (1, 16, 128, 1024, 4096), FULL: tuple(2**n for n in range(13))}
ENERGY = {DEFAULT: (8192,), FULL: (LARGEST, 8192)}  # long enough calls to hold a GPU at its power cap

# From where the links count most to where hardly; on a CPU, what two ranks divide unevenly.
SCALING = {DEFAULT: (cube(8192), cube(16384)), FULL: (cube(4096), cube(8192), cube(16384), cube(32768))}
SCALING_WEAK_MOST = 16384  # every GPU draws the whole A and B, which are so many times larger
SCALING_ON_CPU = ((71, 67, 45),)

# Of `choice`: nobody chose them, and the model is judged at none that it was fitted on.
FLOPS, MOST_BYTES = (1e8, 4e11), 1e9


# From which powers of 2 M, N and K are drawn, and the unit that they are multiples of.
_ANY, _LAYERS = ((0, 14, 1), (0, 14, 1), (0, 16, 1)), ((7, 14, 64), (7, 14, 64), (7, 16, 64))
_FEW_ROWS, _FEW_COLUMNS = ((0, 7, 1), (10, 15, 64), (8, 15, 64)), ((10, 15, 64), (3, 7, 8), (8, 15, 64))


def sample_problems(
    count: int, seed: int, *kinds: tuple[tuple[int, int, int], ...]
) -> tuple[tuple[int, int, int], ...]:
    """Returns random sizes (M, N, K), log-uniform in each, of these kinds in turn; the same for one seed.

    Within FLOPS, and MOST_BYTES of A, B and C.
    """
    dice, found = random.Random(seed), dict[tuple[int, int, int], None]()
    while len(found) < count:
        kind = kinds[len(found) % len(kinds)]
        sizes = [(2 ** (least + (most - least) * dice.random()), unit) for least, most, unit in kind]
        m, n, k = (unit * round(size / unit) for size, unit in sizes)
        if FLOPS[0] <= 2 * m * n * k <= FLOPS[1] and 4 * (m * k + k * n + m * n) <= MOST_BYTES:
            found[m, n, k] = None
    return tuple(found)


# What `experiments fit` makes the table of a device from: random ones, small ones, strips, and C with hardly any depth.
_SMALL = ((257, 257, 257), (384, 384, 384), (513, 513, 513), (767, 767, 767), (1000, 1000, 1000), (1500, 1500, 1500))
_STRIPS = (
    *((65536, 1, 64), (4096, 1, 4096), (16384, 3, 1000), (20000, 5, 300), (500, 2, 9000), (3000, 8, 1000)),
    *((8192, 32, 2048), (1, 1000, 2048), (2, 2000, 3001), (5, 1001, 5001)),
)
_SHALLOW = (
    *((2048, 3000, 1), (1500, 2502, 2), (5000, 3001, 3), (12000, 2000, 4)),
    *((9000, 1001, 5), (3000, 5001, 9), (4000, 8000, 12), (700, 9001, 20)),
)
_FITTED = (*sample_problems(84, 1, _ANY, _LAYERS), *_SMALL, *_STRIPS, *_SHALLOW)
# On tensor cores rows of whole vectors alone, which the TMA unit needs no copy of: it takes the same for any tile. Rows
# of _WITHIN begin within a line of the L2 cache.
_WITHIN = ((7, 14, 16), (7, 14, 16), (7, 16, 16))
_FOR_TMA = (_LAYERS, _FEW_ROWS, _WITHIN, _FEW_COLUMNS)
_FITTED_FOR_TMA = sample_problems(120, 3, *_FOR_TMA)


def fitted(math: str) -> tuple[tuple[int, int, int], ...]:
    """Returns the sizes (M, N, K) on which `experiments fit` fits a device's costs for one compute type."""
    return _FITTED if math == "fp32" else _FITTED_FOR_TMA


def unseen(preset: str, math: str) -> tuple[tuple[int, int, int], ...]:
    """Returns the sizes (M, N, K) at which the choice of tiles is evaluated for one compute type."""
    count = {DEFAULT: 12, FULL: 40}[preset]
    return sample_problems(count, 2, _ANY, _LAYERS) if math == "fp32" else sample_problems(count, 4, *_FOR_TMA)


# --- errors, and counts --------------------------------------------------------------------------------------

ACCURACY_SIDE = 256
ACCURACY_DEPTHS = {"cuda": tuple(4**n for n in range(2, 10)), "cpu": tuple(4**n for n in range(2, 9))}
ROUNDING_DEPTHS = {DEFAULT: tuple(4**n for n in range(2, 6)), FULL: tuple(4**n for n in range(2, 10))}
ROUNDING_DEPTHS_ON_CPU = {DEFAULT: (16, 64, 256), FULL: ROUNDING_DEPTHS[FULL]}
ROUNDING_WHOLE, ROUNDING_KNOWN = 4**7, 4**5  # K up to which a laptop takes whole rungs; that tells how they add
EMULATION_SIDE, EMULATION_DEPTHS = 64, {DEFAULT: (256, 4096), FULL: (256, 4096, 65536)}
COUNTED = 256  # whole tiles of every rung; counts grow with the blocks, and shares do not change
ALIGNED = 4096  # what machine code is compiled for: Triton compiles anew where 16 divides a size
PREDICTED = (512, 1024, 2048, 4096, 8192)  # cubes of the full preset: from less than a wave of blocks to many


@dataclass(frozen=True)
class Shape:
    """A named problem, the reason to measure it, and its source."""

    group: str
    title: str  # of the group
    name: str
    why: str
    source: str  # of the group: where sizes can be looked up
    sizes: tuple[int, int, int]


@functools.cache
def _tables() -> dict[str, Any]:
    return tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))


@functools.cache
def named_shapes() -> tuple[Shape, ...]:
    """Returns the problems of the sets of workloads.toml in file order."""
    return tuple(
        Shape(group["name"], group["title"], each["name"], each["why"], group["source"], tuple(each[x] for x in "mnk"))
        for group in _tables()["set"]
        for each in group["problems"]
    )


def covering(edges: Sequence[int] = EDGES, depths: Sequence[int] = EDGES) -> list[tuple[int, int, int]]:
    """Returns a Latin square: triples (m, n, k) in which any two dimensions take every pair of values.

    edges are the values of m and n, depths, as many, those of k; 8 of them make 64 triples.
    """
    count = len(edges)
    return [(edges[i], edges[j], depths[(i + j) % count]) for i in range(count) for j in range(count)]


def squares(preset: str, math: str) -> tuple[int, ...]:
    """Returns the edges of the cubes to time in one compute type."""
    return SQUARES[preset] if math == "fp32" or preset == FULL else FEW_SQUARES


def shapes(preset: str, math: str) -> list[tuple[int, int, int]]:
    """Returns the sizes of `shapes` in one compute type: the named problems and, in fp32, the map.

    The default preset has every fourth of the named ones, so that each group has some.
    """
    named = [shape.sizes for shape in named_shapes()][:: 1 if preset == FULL else 4]
    return list(dict.fromkeys(named + (map_sizes(preset) if math == "fp32" else [])))


def decode(preset: str) -> list[tuple[int, int, int]]:
    """Returns the sizes of `decode`: each layer with each number of rows; in the default preset every third of both."""
    layers, rows = (_tables()["decode"][name][:: 1 if preset == FULL else 3] for name in ("layers", "rows"))
    return [(m, layer["n"], layer["k"]) for layer in layers for m in rows]


def invariance(preset: str) -> list[tuple[int, int, int]]:
    """Returns the sizes of `invariance`: each layer at each number of rows."""
    return [(m, n, k) for n, k in INVARIANCE for m in INVARIANCE_ROWS[preset]]


def map_sizes(preset: str) -> list[tuple[int, int, int]]:
    """Returns the sizes of the map over M x N, at one K."""
    return [(m, n, MAP_K) for m, n in product(MAP_SIDES[preset], repeat=2)]
