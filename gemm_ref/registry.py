"""The ladder's registry: every rung that exists, in order.

Kernels, tests, experiments, plots and the README's tables all loop over `STAGES`. CONTRIBUTING.md says what a new rung
takes; a test fails when an entry, a file, a README row or a section of the docs is missing or left over.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from types import MappingProxyType

from gemm_ref import tiles
from gemm_ref.compute import EMULATED
from gemm_ref.config import Config
from gemm_ref.config.cuda_cores import (
    SLICE_LAYOUTS,
    AsyncConfig,
    BufferConfig,
    ColumnConfig,
    FragmentConfig,
    LayoutConfig,
    MmaConfig,
    RowConfig,
    SliceConfig,
    SplitKConfig,
    ThreadConfig,
    WmmaConfig,
)
from gemm_ref.config.hopper import PersistentConfig, WgmmaConfig
from gemm_ref.dialect import DIALECTS
from gemm_ref.epilogue import Epilogue
from gemm_ref.rung import DEFAULT_VARIANT, Rung, Tma, unknown


def _only(config: Config) -> Mapping[str, Config]:
    return MappingProxyType({DEFAULT_VARIANT: config})


_SQUARE = SliceConfig(BLOCK_M=32, BLOCK_N=32, BLOCK_K=32)
_THREADS = ThreadConfig(BLOCK_M=128, BLOCK_N=128, BLOCK_K=16, THREAD_M=8, THREAD_N=8, BLOCKS_PER_SM=2)
_OCCUPANCIES = {"one_block": replace(_THREADS, BLOCKS_PER_SM=1), "two_blocks": _THREADS}
# The sides of the tiles of s10 to s13. "narrow" is what suits Triton's pipeliner best, of those tried.
_TILE128 = {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 16, "THREAD_M": 8, "THREAD_N": 8, "BLOCKS_PER_SM": 1}
_NARROW = {**_TILE128, "BLOCK_M": 64, "BLOCK_K": 32}
_WARP128 = {**_TILE128, "WARP_M": 32, "WARP_N": 64}
_WARP_TILES = {
    "tile128": _WARP128,
    "wide": {**_WARP128, "BLOCK_N": 256, "BLOCK_K": 8, "WARP_M": 64, "THREAD_N": 16},
    "narrow": {**_WARP128, **_NARROW},
}
_BUFFERS = {
    **{name: BufferConfig(**vars(config), NUM_STAGES=2) for name, config in _OCCUPANCIES.items()},
    "narrow": BufferConfig(**_NARROW, NUM_STAGES=2),
}
_FRAGMENTS = {
    name: FragmentConfig(**sides, NUM_STAGES=2, FRAGMENT_SETS=1, LOAD_AT=0) for name, sides in _WARP_TILES.items()
}
_FRAGMENTS["late"] = replace(_FRAGMENTS["wide"], LOAD_AT=1)
_FRAGMENTS["two_sets"] = replace(_FRAGMENTS["wide"], LOAD_AT=1, FRAGMENT_SETS=2)
_ASYNC = {name: AsyncConfig(**sides, NUM_STAGES=3, FRAGMENT_SETS=2) for name, sides in _WARP_TILES.items()}
_ASYNC["one_set"] = replace(_ASYNC["wide"], FRAGMENT_SETS=1)

# Slices of as many bytes in every compute type: BLOCK_K counts elements of 16 bits, and tf32 has half as many.
_WMMA = WmmaConfig(BLOCK_M=128, BLOCK_N=128, BLOCK_K=64, WARP_M=64, WARP_N=64, NUM_STAGES=3, BLOCKS_PER_SM=2)
_MMA = MmaConfig(BLOCK_M=128, BLOCK_N=256, BLOCK_K=32, WARP_M=64, WARP_N=64, GROUP_M=16, NUM_STAGES=4, BLOCKS_PER_SM=1)
_MMA_TILES = {
    "tile128x256": _MMA,
    "tile128": replace(_MMA, BLOCK_N=128, BLOCKS_PER_SM=2),
    "deep": replace(_MMA, BLOCK_K=64, NUM_STAGES=3),  # what suits Triton's wgmma best, of those tried
}
_HOPPER_MATHS = ("bf16", "fp16", "tf32", "fp8")
_WGMMA = WgmmaConfig(BLOCK_M=128, BLOCK_N=256, BLOCK_K_BYTES=128, NUM_STAGES=4, GROUP_M=16)
_ROLES = PersistentConfig(**vars(_WGMMA), CLUSTER_M=1, PERSISTENT=1, OVERLAP=1)
_PAIRS = replace(_ROLES, CLUSTER_M=2, GROUP_M=8)


def _per_dialect(**dialects: str | tuple[str, ...]) -> Mapping:
    """A value for each dialect, by name."""
    return MappingProxyType(dialects)


_LADDER = (
    Rung(
        id="s01_naive",
        title="Naive",
        idea="one thread per element of C, threadIdx.x walks the rows: uncoalesced",
        variants=_only(RowConfig(BLOCK_M=32, BLOCK_N=32)),
    ),
    Rung(
        id="s02_coalesced",
        title="Coalesced",
        idea="threadIdx.x walks the columns, so a warp touches neighbouring addresses",
        variants=_only(Config(BLOCK_M=32, BLOCK_N=32)),
    ),
    Rung(
        id="s03_block_tile",
        title="Block tile",
        idea="a block owns a tile of C and walks K in slices, still from global memory only",
        variants=_only(_SQUARE),
    ),
    Rung(
        id="s04_shared_tile",
        title="Shared tile",
        idea="the slices of A and B are staged in shared memory and read from there",
        variants=_only(_SQUARE),
    ),
    Rung(
        id="s05_bank_conflict",
        title="Bank conflict",
        idea="the same slices stored four ways in the 32 banks of shared memory",
        variants={layout: LayoutConfig(**vars(_SQUARE), LAYOUT=layout, BLOCKS_PER_SM=2) for layout in SLICE_LAYOUTS},
        best=_per_dialect(cuda="padded", gluon="padded"),
        only=_per_dialect(cuda=SLICE_LAYOUTS[:-1], triton=SLICE_LAYOUTS[-1:], gluon=SLICE_LAYOUTS[:-1]),
    ),
    Rung(
        id="s06_thread_coarsen",
        title="Thread coarsening",
        idea="a thread computes a column of outputs, and reuses what it read of B",
        variants=_only(ColumnConfig(BLOCK_M=64, BLOCK_N=64, BLOCK_K=16, THREAD_M=8, BLOCKS_PER_SM=2)),
    ),
    Rung(
        id="s07_thread_tile",
        title="Thread tile",
        idea="a thread computes an 8 x 8 tile in registers, an outer product at each k",
        variants=_only(_THREADS),
    ),
    Rung(
        id="s08_vectorized",
        title="Vectorized",
        idea="global and shared memory are accessed 16 bytes at a time (float4)",
        variants=_only(_THREADS),
    ),
    Rung(
        id="s09_conflict_free",
        title="Conflict free",
        idea="A transposed in shared memory, the thread's tile cut into quadrants: no bank conflicts",
        variants=_OCCUPANCIES,
        best=_per_dialect(cuda="two_blocks", triton="two_blocks", gluon="two_blocks"),
    ),
    Rung(
        id="s10_double_buffer",
        title="Double buffer",
        idea="the next slice is loaded while this one is multiplied; one barrier per slice",
        variants=_BUFFERS,
        best=_per_dialect(cuda="one_block", triton="narrow", gluon="two_blocks"),
        only=_per_dialect(cuda=tuple(_OCCUPANCIES), gluon=tuple(_OCCUPANCIES)),
    ),
    Rung(
        id="s11_warp_tile",
        title="Warp tile",
        idea="a warp owns a compact sub-tile, so its lanes share more of what they read",
        variants=_FRAGMENTS,
        best=_per_dialect(cuda="wide", triton="narrow", gluon="wide"),
        only=_per_dialect(
            cuda=("tile128", "wide", "late", "two_sets"), triton=("tile128", "narrow"), gluon=("tile128", "wide")
        ),
    ),
    Rung(
        id="s12_async_copy",
        title="Async copy",
        idea="cp.async copies slices straight to shared memory, NUM_STAGES deep",
        variants=_ASYNC,
        best=_per_dialect(cuda="wide", triton="narrow", gluon="wide"),
        only=_per_dialect(cuda=("tile128", "wide", "one_set"), triton=("tile128", "narrow"), gluon=("tile128", "wide")),
    ),
    Rung(
        id="s13_split_k",
        title="Split K",
        idea="K is split over blocks where M x N alone has too few tiles; a second kernel adds the partial sums",
        variants=_only(SplitKConfig(**_WARP128, NUM_STAGES=3)),
        dialects=("cuda", "triton"),
        splits_k_by_shape=True,
        second_kernel="s13_add_partials",
    ),
    Rung(
        id="s14_register_banks",
        title="Register banks",
        idea="products ordered and sums freed so that no FFMA waits for its registers; tile and split chosen by shape",
        variants=_only(tiles.REGISTER_BANKS["cuda"]["tile128"]),
        tiles=tiles.REGISTER_BANKS,
        second_kernel="s14_add_shares",
    ),
    Rung(
        id="s15_wmma",
        title="WMMA",
        idea="tensor cores through the WMMA API: a warp multiplies fragments of 16 x 16 x 16 with one call",
        variants=_only(_WMMA),
        maths=("bf16", "fp16", "tf32"),
    ),
    Rung(
        id="s16_mma_sync",
        title="mma.sync",
        idea="mma.sync on fragments that ldmatrix reads from swizzled slices, one set while another is multiplied",
        variants=_MMA_TILES,
        best=_per_dialect(triton="deep"),
        only=_per_dialect(
            cuda=("tile128x256", "tile128"), triton=("tile128x256", "deep"), gluon=("tile128x256", "tile128")
        ),
        maths=("bf16", "fp16", "tf32"),
        min_capability=(8, 0),
    ),
    Rung(
        id="s17_wgmma_tma",
        title="wgmma and TMA",
        idea="Hopper's units: one thread copies boxes (TMA), warpgroups multiply from shared memory (wgmma)",
        variants=_only(_WGMMA),
        tma=Tma(),
        maths=_HOPPER_MATHS,
    ),
    Rung(
        id="s18_warp_specialized",
        title="Warp specialised",
        idea="one warpgroup loads and two multiply, tile after tile; blocks in pairs share B; TMA stores C meanwhile",
        variants={
            "pairs": _PAIRS,
            # What each idea is worth: one of them left out, and all but the warpgroup that loads
            "alone": _ROLES,
            "one_tile": replace(_PAIRS, PERSISTENT=0),
            "waits": replace(_PAIRS, OVERLAP=0),
            "roles": replace(_ROLES, PERSISTENT=0),
            "group8": replace(_ROLES, GROUP_M=8),  # what suits Triton and Gluon best, of those tried
        },
        only=_per_dialect(cuda=("pairs", "alone", "one_tile", "waits", "roles"), triton=("group8",), gluon=("group8",)),
        tma=Tma(transpose_tf32=("cuda",)),
        maths=_HOPPER_MATHS,
    ),
    Rung(
        id="s19_any_shape",
        title="Any shape",
        idea="small tiles, C^T for few rows, K of the last tiles divided evenly among all blocks; chosen by shape",
        variants=_only(tiles.ANY_SHAPE["cuda"]["tile128x256"]),
        tiles=tiles.ANY_SHAPE,
        tma=Tma(
            transpose_tf32=("cuda", "gluon"),
            sync_tf32=("triton",),
            c_by_threads=("cuda", "triton", "gluon"),
            a_in_phases=("cuda",),
            boxes_past_edges=("triton", "gluon"),
            edge_maps=True,
        ),
        maths=_HOPPER_MATHS,
        epilogues=("cuda", "triton", "gluon"),
    ),
    Rung(
        id="s20_emulated",
        title="Emulated",
        idea="fp32 in and out: operands split into parts of 16 bits; partial sums added outside tensor cores",
        variants={
            DEFAULT_VARIANT: tiles.EMULATED["cuda"]["pair128"],
            "tile128": tiles.EMULATED["cuda"]["tile128"],
        },
        only=_per_dialect(cuda=(DEFAULT_VARIANT,), triton=("tile128",), gluon=(DEFAULT_VARIANT,)),
        tiles=tiles.EMULATED,
        tma=Tma(c_by_threads=("cuda", "gluon")),
        maths=EMULATED,
    ),
)

STAGES: Mapping[str, Rung] = MappingProxyType({stage.id: stage for stage in _LADDER})


def get_stage(name: str) -> Rung:
    """The rung called `name`: its id (`s04_shared_tile`) or its number (`s04`).

    Raises ValueError naming the closest ids when there is none.
    """
    if not isinstance(name, str):
        raise ValueError(f"a stage is named by its id, such as 's01_naive' or 's01', not by {name!r}")
    if name in STAGES:
        return STAGES[name]
    by_number = {stage.id.split("_")[0]: stage for stage in STAGES.values()}
    if name in by_number:
        return by_number[name]
    lower = name.lower()  # S04 for s04
    if missing := _missing_rung(lower):
        raise ValueError(missing)
    if (short := re.fullmatch(r"s?(\d)", lower)) and f"s0{short[1]}" in by_number:  # s4 for s04
        raise ValueError(f"unknown stage {name!r}: did you mean {by_number[f's0{short[1]}'].id}?")
    raise ValueError(unknown("stage", name, STAGES))


def _missing_rung(name: str) -> str:
    """Why no rung has the number that `name` begins with; empty where one has, or where it begins with none."""
    if not (match := re.fullmatch(r"s?(\d+)(_\w*)?", name)):
        return ""
    number, stages = int(match[1]), list(STAGES.values())
    if number > stages[-1].number:
        return f"there is no s{number:02d}: the last rung is {stages[-1].id}"
    for below, above in pairwise(stages):
        if below.number < number < above.number:
            return f"s{number:02d} is not written yet: {above.id} comes after {below.id}"
    return ""


@dataclass(frozen=True)
class Implementation:
    """One kernel that can be run: a rung's variant, written in a dialect, in a math mode."""

    stage: Rung
    variant: str
    dialect: str
    math: str
    b_layout: str = "kn"  # of compute.B_LAYOUTS: how its kernel reads B
    epilogue: Epilogue = Epilogue()
    c_by_threads: bool = False  # who stores C: threads, where its rows are not as the TMA unit wants them
    adds_together: bool = False  # the blocks that share a tile add it together, and store C from registers
    a_phases: int = 1  # as how many matrices the TMA unit reads A (`operands.phases_at`)

    @property
    def backend(self) -> str:
        """Who compiles it: `cuda` or `triton`."""
        return DIALECTS[self.dialect].backend

    @property
    def config(self) -> Config:
        return self.stage.config(self.variant, self.dialect)

    @property
    def threads_store_c(self) -> bool:
        """Whether C is stored without the TMA unit."""
        return self.c_by_threads or self.adds_together

    @property
    def transpose_c(self) -> bool:
        """Whether the kernel computes C^T = B^T @ A^T: its left operand is B^T."""
        return self.config.is_transposed(self.math, self.b_layout)

    @property
    def first_tile(self) -> Implementation:
        """The kernel that is meant where there is no shape to choose one for: itself, or the first of its tiles."""
        tiles = self.stage.tiles.get(self.dialect)
        return replace(self, variant=next(iter(tiles))) if tiles and self.variant == DEFAULT_VARIANT else self

    def __str__(self) -> str:
        variant = "" if self.variant == DEFAULT_VARIANT else f":{self.variant}"
        layout = "" if self.b_layout == "kn" else f"-{self.b_layout}"
        epilogue = f"-{self.epilogue}" if self.epilogue else ""
        stores = "-c_by_threads" if self.c_by_threads else ""
        stores += "-adds_together" if self.adds_together else ""
        phases = f"-a_phases{self.a_phases}" if self.a_phases > 1 else ""
        return f"{self.stage.id}{variant}-{self.dialect}-{self.math}{layout}{epilogue}{stores}{phases}"


def stages_in(math: str) -> list[Rung]:
    """The rungs that compute in one math mode, in ladder order."""
    return [stage for stage in STAGES.values() if math in stage.maths]


def implementations(dialects: Collection[str] = tuple(DIALECTS)) -> list[Implementation]:
    """Every rung x variant x dialect x math mode of the registry, in ladder order."""
    return [
        Implementation(stage, variant, dialect, math)
        for stage in STAGES.values()
        for variant in stage.variants
        for dialect in stage.dialects
        if dialect in dialects and variant in stage.variants_in(dialect)
        for math in stage.maths
    ]
