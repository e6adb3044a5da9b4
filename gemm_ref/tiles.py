"""The families of tiles that s14 and s19 choose from by shape (`gemm_ref.choice`), in each dialect by name."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import TypeVar

from gemm_ref.config.cuda_cores import DotConfig, RegisterBankConfig, StreamKConfig
from gemm_ref.config.hopper import DotWgmmaConfig, EmulatedConfig, StreamKWgmmaConfig, TwoPartConfig

Tile = TypeVar("Tile", bound=StreamKConfig)
HopperTile = TypeVar("HopperTile", bound=StreamKWgmmaConfig)


def _tile(
    BLOCK_M: int, BLOCK_N: int, WARP_M: int, WARP_N: int, *, THREAD_N: int, BLOCKS_PER_SM: int,
    THREAD_M: int = 8, NUM_STAGES: int = 4, BLOCK_K: int = 8,
) -> RegisterBankConfig:  # fmt: skip
    """A tile of s14, whose slices of B are copied as vectors."""
    return RegisterBankConfig(
        BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N, BLOCK_K=BLOCK_K, WARP_M=WARP_M, WARP_N=WARP_N,
        THREAD_M=THREAD_M, THREAD_N=THREAD_N, COPY_N=4, GROUP_M=8, NUM_STAGES=NUM_STAGES, BLOCKS_PER_SM=BLOCKS_PER_SM,
    )  # fmt: skip


def _strip(BLOCK_M: int, BLOCK_N: int, *, SPLIT_WARPS: int, NUM_STAGES: int, BLOCKS_PER_SM: int) -> RegisterBankConfig:
    """One row or one column of C; NUM_STAGES loads of a thread are under way, in registers."""
    depth = 32 * SPLIT_WARPS // BLOCK_M // max(1, BLOCK_N // 4) * NUM_STAGES * (4 if BLOCK_N == 1 else 1)
    return RegisterBankConfig(
        BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N, BLOCK_K=depth, WARP_M=1, WARP_N=BLOCK_N, THREAD_M=1, THREAD_N=1, COPY_N=1,
        GROUP_M=1, NUM_STAGES=NUM_STAGES, BLOCKS_PER_SM=BLOCKS_PER_SM, SPLIT_WARPS=SPLIT_WARPS,
    )  # fmt: skip


_TILES = {
    "tile128": _tile(128, 128, 64, 64, THREAD_N=16, BLOCKS_PER_SM=2),
    "tile64x128": _tile(64, 128, 64, 64, THREAD_N=16, BLOCKS_PER_SM=4),
    "tile64": _tile(64, 64, 32, 64, THREAD_N=8, BLOCKS_PER_SM=6),
    "tile32x128": _tile(32, 128, 32, 64, THREAD_N=8, BLOCKS_PER_SM=6),
    "tile32": _tile(32, 32, 16, 32, THREAD_M=4, THREAD_N=4, BLOCKS_PER_SM=12),
    "tile16x128": _tile(16, 128, 16, 128, THREAD_N=8, BLOCKS_PER_SM=11),
    "tile8x64": _tile(8, 64, 8, 64, THREAD_M=4, THREAD_N=4, NUM_STAGES=8, BLOCKS_PER_SM=11),
    "tile64x16": _tile(64, 16, 32, 16, THREAD_M=4, THREAD_N=4, NUM_STAGES=6, BLOCKS_PER_SM=10),
}
_CUDA_TILES = {
    **_TILES,
    "tile8x64": replace(_TILES["tile8x64"], BLOCK_K=16, NUM_STAGES=4),
    "tile128x32": _tile(128, 32, 64, 32, THREAD_N=8, BLOCKS_PER_SM=6),
    # Of so few columns a slice has fewer vectors than a block has threads.
    "tile64x16": replace(_TILES["tile64x16"], COPY_N=1),
    "tile256x8": replace(
        _tile(256, 8, 64, 8, THREAD_M=4, THREAD_N=4, NUM_STAGES=3, BLOCKS_PER_SM=3, BLOCK_K=16), COPY_N=1
    ),
    "tile1x32": _strip(1, 32, SPLIT_WARPS=32, NUM_STAGES=4, BLOCKS_PER_SM=2),
    "tile1x16": _strip(1, 16, SPLIT_WARPS=16, NUM_STAGES=8, BLOCKS_PER_SM=2),
    "tile4x1": _strip(4, 1, SPLIT_WARPS=4, NUM_STAGES=8, BLOCKS_PER_SM=6),
    "tile1x1": _strip(1, 1, SPLIT_WARPS=8, NUM_STAGES=4, BLOCKS_PER_SM=4),
    # Of an odd B, to be copied first: the tiles that lose much where they copy it float by float, and have much to do.
    **{
        f"{name}_copied": replace(_TILES[name], ALIGN_B=1) for name in ("tile128", "tile64x128", "tile64", "tile32x128")
    },
}
# In Gluon one program of 128 x 256 is faster than two of 128 x 128.
_GLUON_TILES = {
    "tile128x256": _tile(128, 256, 64, 64, THREAD_N=16, BLOCKS_PER_SM=1),
    **{name: _TILES[name] for name in ("tile64x128", "tile64", "tile32x128", "tile32", "tile8x64", "tile64x16")},
    "tile16x256": _tile(16, 256, 16, 128, THREAD_N=8, BLOCKS_PER_SM=6),
    "tile8x256": _tile(8, 256, 8, 128, THREAD_M=4, THREAD_N=8, BLOCKS_PER_SM=6),
}


def _triton_tile(
    BLOCK_M: int, BLOCK_N: int, BLOCK_K: int, dot: tuple[int, int], warps: int, NUM_STAGES: int, BLOCKS_PER_SM: int
) -> DotConfig:
    """A tile of s14 in Triton, multiplied in pieces of `dot`; what each warp has of it Triton decides."""
    return DotConfig(
        BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N, BLOCK_K=BLOCK_K, WARP_M=BLOCK_M, WARP_N=BLOCK_N // warps,
        DOT_M=dot[0], DOT_N=dot[1], COPY_N=4, GROUP_M=8, NUM_STAGES=NUM_STAGES, BLOCKS_PER_SM=BLOCKS_PER_SM,
    )  # fmt: skip


_TRITON_TILES = {
    "tile128x256": _triton_tile(128, 256, 16, (64, 128), warps=8, NUM_STAGES=3, BLOCKS_PER_SM=1),
    "tile64x256": _triton_tile(64, 256, 16, (32, 128), warps=4, NUM_STAGES=3, BLOCKS_PER_SM=2),
    "tile128": _triton_tile(128, 128, 16, (128, 64), warps=8, NUM_STAGES=3, BLOCKS_PER_SM=1),
    "tile64x128": _triton_tile(64, 128, 16, (32, 64), warps=4, NUM_STAGES=3, BLOCKS_PER_SM=2),
    "tile64": _triton_tile(64, 64, 16, (64, 32), warps=2, NUM_STAGES=3, BLOCKS_PER_SM=4),
    "tile32x256": _triton_tile(32, 256, 16, (32, 128), warps=4, NUM_STAGES=3, BLOCKS_PER_SM=2),
    "tile32x64": _triton_tile(32, 64, 32, (32, 64), warps=2, NUM_STAGES=3, BLOCKS_PER_SM=6),
    "tile16x256": _triton_tile(16, 256, 32, (16, 256), warps=4, NUM_STAGES=2, BLOCKS_PER_SM=3),
    "tile16x128": _triton_tile(16, 128, 32, (16, 128), warps=2, NUM_STAGES=3, BLOCKS_PER_SM=4),
    "tile8x128": _triton_tile(8, 128, 32, (8, 128), warps=4, NUM_STAGES=3, BLOCKS_PER_SM=4),
    "tile1x256": _triton_tile(1, 256, 64, (1, 256), warps=4, NUM_STAGES=2, BLOCKS_PER_SM=1),
    "tile128x32": _triton_tile(128, 32, 16, (128, 32), warps=4, NUM_STAGES=3, BLOCKS_PER_SM=4),
    "tile64x16": _triton_tile(64, 16, 32, (64, 16), warps=2, NUM_STAGES=3, BLOCKS_PER_SM=7),
}


def _with_floats(tiles: Mapping[str, Tile]) -> Mapping[str, Tile]:
    """The tiles, and those that copy B as vectors again float by float, for rows that are no whole vectors."""
    floats = {
        f"{name}_floats": replace(config, COPY_N=1)
        for name, config in tiles.items()
        if config.COPY_N > 1 and not config.ALIGN_B
    }
    return MappingProxyType({**tiles, **floats})


REGISTER_BANKS: Mapping[str, Mapping[str, StreamKConfig]] = MappingProxyType(
    {"cuda": _with_floats(_CUDA_TILES), "triton": _with_floats(_TRITON_TILES), "gluon": _with_floats(_GLUON_TILES)}
)


def _hopper_tile(kind: type[HopperTile], BLOCK_M: int, BLOCK_N: int, *, NUM_STAGES: int, **more: int) -> HopperTile:
    """A tile for wgmma, with slices of 128 bytes unless `more` has others."""
    values = {"BLOCK_K_BYTES": 128, "GROUP_M": 8, **more}
    return kind(BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N, NUM_STAGES=NUM_STAGES, **values)


_wgmma_tile = functools.partial(_hopper_tile, StreamKWgmmaConfig)  # of s19 in CUDA
_two_part_tile = functools.partial(_hopper_tile, TwoPartConfig)  # of s19 in Gluon
_dot_tile = functools.partial(_hopper_tile, DotWgmmaConfig)  # of s19 in Triton
_emulated_tile = functools.partial(_hopper_tile, EmulatedConfig, PROMOTE=64)  # of s20: NUM_STAGES slices of one part


_WGMMA_TILES = MappingProxyType(
    {
        "pair128x256": _wgmma_tile(128, 256, NUM_STAGES=4, CLUSTER_M=2),
        "pair128": _wgmma_tile(128, 128, NUM_STAGES=6, CLUSTER_M=2),
        "pair128x64": _wgmma_tile(128, 64, NUM_STAGES=8, CLUSTER_M=2),
        "pair64x128": _wgmma_tile(64, 128, NUM_STAGES=8, CLUSTER_M=2),
        "quad128": _wgmma_tile(128, 128, NUM_STAGES=6, CLUSTER_M=4),
        "quad128x64": _wgmma_tile(128, 64, NUM_STAGES=8, CLUSTER_M=4),
        "quad64x128": _wgmma_tile(64, 128, NUM_STAGES=8, CLUSTER_M=4),
        "quad64": _wgmma_tile(64, 64, NUM_STAGES=12, CLUSTER_M=4),
        "tile192": _wgmma_tile(192, 192, NUM_STAGES=4),
        "tile128x256": _wgmma_tile(128, 256, NUM_STAGES=4),
        "tile128x224": _wgmma_tile(128, 224, NUM_STAGES=4),
        "tile128x192": _wgmma_tile(128, 192, NUM_STAGES=4),
        "tile128x160": _wgmma_tile(128, 160, NUM_STAGES=4),
        "tile128": _wgmma_tile(128, 128, NUM_STAGES=6),
        "tile128x64": _wgmma_tile(128, 64, NUM_STAGES=8, GROUP_M=4),
        "tile64x256": _wgmma_tile(64, 256, NUM_STAGES=5),
        "tile64x192": _wgmma_tile(64, 192, NUM_STAGES=6),
        "tile64x128": _wgmma_tile(64, 128, NUM_STAGES=8, GROUP_M=4),
        "tile64": _wgmma_tile(64, 64, NUM_STAGES=5, BLOCKS_PER_SM=2),
        "tile64x32": _wgmma_tile(64, 32, NUM_STAGES=5, BLOCKS_PER_SM=2),
        "swappedpair192": _wgmma_tile(192, 192, NUM_STAGES=4, TRANSPOSE_C=1, CLUSTER_M=2),
        "swappedpair128x256": _wgmma_tile(128, 256, NUM_STAGES=4, TRANSPOSE_C=1, CLUSTER_M=2),
        "swappedpair128x192": _wgmma_tile(128, 192, NUM_STAGES=4, TRANSPOSE_C=1, CLUSTER_M=2),
        "swappedpair64x96": _wgmma_tile(64, 96, NUM_STAGES=8, TRANSPOSE_C=1, CLUSTER_M=2),
        "swappedpair64x32": _wgmma_tile(64, 32, NUM_STAGES=7, BLOCKS_PER_SM=2, TRANSPOSE_C=1, CLUSTER_M=2),
        "swapped128x256": _wgmma_tile(128, 256, NUM_STAGES=4, TRANSPOSE_C=1),
        "swapped128x192": _wgmma_tile(128, 192, NUM_STAGES=4, TRANSPOSE_C=1),
        "swapped128x160": _wgmma_tile(128, 160, NUM_STAGES=4, TRANSPOSE_C=1),
        "swapped128": _wgmma_tile(128, 128, NUM_STAGES=6, TRANSPOSE_C=1),
        "swapped128x96": _wgmma_tile(128, 96, NUM_STAGES=6, TRANSPOSE_C=1, GROUP_M=4),
        "swapped128x64": _wgmma_tile(128, 64, NUM_STAGES=8, TRANSPOSE_C=1, GROUP_M=4),
        "swapped128x32": _wgmma_tile(128, 32, NUM_STAGES=9, TRANSPOSE_C=1),
        "swapped64x96": _wgmma_tile(64, 96, NUM_STAGES=8, TRANSPOSE_C=1),
        "swapped64x32": _wgmma_tile(64, 32, NUM_STAGES=7, BLOCKS_PER_SM=2, TRANSPOSE_C=1),
        "swapped64x16": _wgmma_tile(64, 16, NUM_STAGES=5, BLOCKS_PER_SM=2, TRANSPOSE_C=1, BLOCK_K_BYTES=256),
        "split2swapped128x32": _wgmma_tile(128, 32, NUM_STAGES=8, TRANSPOSE_C=1, CLUSTER_K=2),
        "split2swapped64x64": _wgmma_tile(64, 64, NUM_STAGES=12, TRANSPOSE_C=1, CLUSTER_K=2),
        "split2swapped64x16": _wgmma_tile(64, 16, NUM_STAGES=9, TRANSPOSE_C=1, CLUSTER_K=2, BLOCK_K_BYTES=256),
    }
)


# Without clusters, which Triton and Gluon do not have here. `_deep`: slices of 256 bytes; `_two`: for two blocks per
# multiprocessor, where there is another tile of the same size.
_SWAPPED = {"TRANSPOSE_C": 1}
_GLUON_WGMMA_TILES = {
    "tile128x256": _two_part_tile(128, 256, NUM_STAGES=4),
    "tile128x192": _two_part_tile(128, 192, NUM_STAGES=4, NARROW=64),
    "tile128x160": _two_part_tile(128, 160, NUM_STAGES=5, NARROW=32),
    "tile128": _two_part_tile(128, 128, NUM_STAGES=6),
    "tile128x64": _two_part_tile(128, 64, NUM_STAGES=8),
    "tile64x192": _two_part_tile(64, 192, NUM_STAGES=6, NARROW=64),
    "tile64x128": _two_part_tile(64, 128, NUM_STAGES=8),
    "tile64": _two_part_tile(64, 64, NUM_STAGES=12),
    "tile64_deep": _two_part_tile(64, 64, NUM_STAGES=6, BLOCK_K_BYTES=256),
    "tile64_two": _two_part_tile(64, 64, NUM_STAGES=5, BLOCKS_PER_SM=2),
    "tile64x32": _two_part_tile(64, 32, NUM_STAGES=7, BLOCKS_PER_SM=2),
    "swapped128x256": _two_part_tile(128, 256, NUM_STAGES=4, **_SWAPPED),
    "swapped128x192": _two_part_tile(128, 192, NUM_STAGES=4, NARROW=64, **_SWAPPED),
    "swapped128x160": _two_part_tile(128, 160, NUM_STAGES=5, NARROW=32, **_SWAPPED),
    "swapped128": _two_part_tile(128, 128, NUM_STAGES=6, **_SWAPPED),
    "swapped128x64": _two_part_tile(128, 64, NUM_STAGES=8, **_SWAPPED),
    "swapped64x128": _two_part_tile(64, 128, NUM_STAGES=8, **_SWAPPED),
    "swapped64x96": _two_part_tile(64, 96, NUM_STAGES=8, NARROW=32, **_SWAPPED),
    "swapped64x32_deep": _two_part_tile(64, 32, NUM_STAGES=4, BLOCKS_PER_SM=2, BLOCK_K_BYTES=256, **_SWAPPED),
    "swapped64x16_deep": _two_part_tile(64, 16, NUM_STAGES=5, BLOCKS_PER_SM=2, BLOCK_K_BYTES=256, **_SWAPPED),
}
# Those of fewer than 64 rows, and `tile64_sync`, whose two warps are less than wgmma takes, are multiplied by mma.sync.
_TRITON_WGMMA_TILES = {
    "tile128x256": _dot_tile(128, 256, NUM_STAGES=4, WARPS=8),
    "tile256x128": _dot_tile(256, 128, NUM_STAGES=4, WARPS=8),
    "tile128x192": _dot_tile(128, 192, NUM_STAGES=4, WARPS=8, NARROW=64),
    "tile128": _dot_tile(128, 128, NUM_STAGES=6, WARPS=8),
    "tile128x64_two": _dot_tile(128, 64, NUM_STAGES=4, WARPS=4, BLOCKS_PER_SM=2),
    "tile64x256": _dot_tile(64, 256, NUM_STAGES=5, WARPS=4),
    "tile64x192": _dot_tile(64, 192, NUM_STAGES=6, WARPS=4, NARROW=64),
    "tile64x128": _dot_tile(64, 128, NUM_STAGES=8, WARPS=4),
    "tile64x128_deep": _dot_tile(64, 128, NUM_STAGES=4, WARPS=4, BLOCK_K_BYTES=256),
    "tile64_deep": _dot_tile(64, 64, NUM_STAGES=6, WARPS=4, BLOCK_K_BYTES=256),
    "tile64_two": _dot_tile(64, 64, NUM_STAGES=6, WARPS=4, BLOCKS_PER_SM=2),
    "tile64x32": _dot_tile(64, 32, NUM_STAGES=7, WARPS=4, BLOCKS_PER_SM=2),
    "swapped64x128": _dot_tile(64, 128, NUM_STAGES=8, WARPS=4, **_SWAPPED),
    "swapped64x32_deep": _dot_tile(64, 32, NUM_STAGES=4, WARPS=4, BLOCKS_PER_SM=2, BLOCK_K_BYTES=256, **_SWAPPED),
    "swapped64x16_deep": _dot_tile(64, 16, NUM_STAGES=5, WARPS=4, BLOCKS_PER_SM=2, BLOCK_K_BYTES=256, **_SWAPPED),
    "tile64_sync": _dot_tile(64, 64, NUM_STAGES=6, WARPS=2, BLOCKS_PER_SM=2),
    "tile32x64": _dot_tile(32, 64, NUM_STAGES=7, WARPS=4, BLOCKS_PER_SM=2),
    "tile16x128": _dot_tile(16, 128, NUM_STAGES=5, WARPS=4, BLOCKS_PER_SM=2),
    "tile16x64_deep": _dot_tile(16, 64, NUM_STAGES=5, WARPS=4, BLOCKS_PER_SM=2, BLOCK_K_BYTES=256),
}
ANY_SHAPE: Mapping[str, Mapping[str, StreamKWgmmaConfig]] = MappingProxyType(
    {
        "cuda": _WGMMA_TILES,
        "triton": MappingProxyType(_TRITON_WGMMA_TILES),
        "gluon": MappingProxyType(_GLUON_WGMMA_TILES),
    }
)

# Of s20, named as s19's. Three sums of a thread have BLOCK_N / 2 registers each, so no tile has more than 128 columns.
_PARTS_TILES = {
    "pair128": _emulated_tile(128, 128, NUM_STAGES=6, CLUSTER_M=2),
    "tile128": _emulated_tile(128, 128, NUM_STAGES=6),
    "tile128x64": _emulated_tile(128, 64, NUM_STAGES=8),
    "tile64x128": _emulated_tile(64, 128, NUM_STAGES=8),
    "tile64": _emulated_tile(64, 64, NUM_STAGES=12),
    "swapped128x96": _emulated_tile(128, 96, NUM_STAGES=6, TRANSPOSE_C=1),
    "swapped128x32": _emulated_tile(128, 32, NUM_STAGES=9, TRANSPOSE_C=1),
    "swapped64x16": _emulated_tile(64, 16, NUM_STAGES=9, BLOCKS_PER_SM=2, TRANSPOSE_C=1),
}
_GLUON_PARTS_TILES = {
    **{name: _PARTS_TILES[name] for name in ("tile128", "tile128x64", "tile64x128", "tile64", "swapped64x16")},
    "swapped128x64": _emulated_tile(128, 64, NUM_STAGES=8, TRANSPOSE_C=1),
}
EMULATED: Mapping[str, Mapping[str, EmulatedConfig]] = MappingProxyType(
    {"cuda": MappingProxyType(_PARTS_TILES), "gluon": MappingProxyType(_GLUON_PARTS_TILES)}
)
