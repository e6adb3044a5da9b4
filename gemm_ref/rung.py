"""What a rung is: the compile-time shape of its kernels, how they are launched, and where they can run.

Sizes are always in the order M, N, K, for C[M, N] = A[M, K] @ B[K, N], all row-major.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from gemm_ref.dialect import BY_HAND, DIALECTS
from gemm_ref.launch import REFERENCE_SMS, Launch

DEFAULT_VARIANT = "default"
SLICE_LAYOUTS = ("conflicted", "transposed", "padded", "swizzled", "natural")  # of a slice in shared memory (s05)

# The CUDA programming guide, 'Technical Specifications per Compute Capability': the largest grid.
MAX_GRID = (2**31 - 1, 65535, 65535)


_UNUSED: Any = None  # typed as the field: a kernel and its grid read those alone that their rung sets


@dataclass(frozen=True)
class Config:
    """Compile-time shape of a kernel, in the field's words; a field a rung does not use stays None, and is not read.

    The CUDA rung sees each as `config::BLOCK_M`, the Triton and Gluon twins as a `tl.constexpr` of the same
    name where its kernel has one. What Triton decides by itself it is not told: docs/method.md, 'What the dialects
    hold equal'.
    """

    BLOCK_M: int  # rows of C that a block owns
    BLOCK_N: int  # columns of C that a block owns
    BLOCK_K: int = _UNUSED  # depth of one step along K
    BLOCK_K_BYTES: int = _UNUSED  # the same in bytes, where it is as many of any type
    WARP_M: int = _UNUSED  # rows of C that a warp owns
    WARP_N: int = _UNUSED  # columns of C that a warp owns
    THREAD_M: int = _UNUSED  # rows of C that a thread owns
    THREAD_N: int = _UNUSED  # columns of C that a thread owns
    DOT_M: int = _UNUSED  # rows of C that Triton multiplies at once, in one `tl.dot`
    DOT_N: int = _UNUSED  # columns of C that it multiplies at once
    COPY_N: int = _UNUSED  # neighbouring floats of B that a thread copies at once: 4, or 1 where rows are no vectors
    COPIED_B: int = _UNUSED  # 1 where B is copied first, to rows that begin at lines of the L2 cache
    GROUP_M: int = _UNUSED  # tiles along M that blocks walk down before they go on along N, for L2
    NUM_STAGES: int = _UNUSED  # slices of A and B that shared memory holds at a time
    FRAGMENT_SETS: int = _UNUSED  # sets of registers for what a thread multiplies; with 2 the next k is read ahead
    LOAD_AT: int = _UNUSED  # k of a slice at which the next is loaded: 0 before all reads, else behind those of that k
    WARPS: int = _UNUSED  # of a block that has a strip of C, one row or one column; 0 where it has a tile
    BLOCKS_PER_SM: int = _UNUSED  # blocks that a multiprocessor shall have registers for (CUDA's launch bounds)
    CLUSTER_M: int = _UNUSED  # blocks of a cluster, one below the other, that share what they load of B
    CLUSTER_K: int = _UNUSED  # blocks of a cluster that share the K of one tile, and add through their shared memory
    PERSISTENT: int = _UNUSED  # 1: as many blocks as the GPU holds take tile after tile; 0: a block for each tile
    PROMOTE: int = _UNUSED  # k after which the sums of an emulated product's largest parts leave the tensor core
    OVERLAP: int = _UNUSED  # 1: a tile is stored while the next is multiplied; 0: its store is waited for
    SWAPPED: int = _UNUSED  # 1 where the tile is of C^T = B^T @ A^T, and BLOCK_M and BLOCK_N are its rows and columns
    LAYOUT: str = _UNUSED  # one of SLICE_LAYOUTS: how a slice is stored in shared memory

    def constants(self) -> dict[str, int | str]:
        """The fields that are set, in declaration order."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        return {name: value for name, value in values.items() if value is not None}


@dataclass(frozen=True)
class Box:
    """What the TMA unit copies of an operand at once, into shared memory with the 128-byte swizzle.

    `rows` of `columns` neighbouring elements as they are stored: for B as (N, K), rows are columns of B.
    """

    rows: int
    columns: int


def _no_boxes(config: Config, math: str, b_layout: str) -> Mapping[str, Box]:
    return {}


@dataclass(frozen=True, eq=False)  # a rung is itself: compared and hashed by identity
class Rung:
    """One rung: its id (the stem of its files), its idea, its variants and where it can run."""

    id: str
    title: str
    idea: str  # one line: what this rung changes
    variants: Mapping[str, Config]  # by name; a rung that has one calls it "default"
    launch_shape: Callable[[Config, int, int, int, int], Launch]  # (config, m, n, k, SMs) -> the launch
    deal: Callable[[Config, int, int, int, int, int], Launch] | None = None  # the same, tiles dealt to so many blocks
    second_kernel: str = ""  # of the .cu, if any: what its launch's `then` starts; the first is called as the rung
    dialects: tuple[str, ...] = tuple(DIALECTS)
    tiles: Mapping[str, Mapping[str, Config]] = field(default_factory=dict)  # dialect -> what "default" is chosen from
    best: Mapping[str, str] = field(default_factory=dict)  # dialect -> the variant that `"default"` is; else the first
    only: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # dialect -> the variants it has, if not all
    maths: tuple[str, ...] = ("fp32",)
    b_layouts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # math -> those it reads, if not rows alone
    turned: tuple[str, ...] = ()  # dialects that compute C^T = B^T @ A^T in tf32 where B is stored by rows
    boxes: Callable[[Config, str, str], Mapping[str, Box]] = _no_boxes  # (config, math, B's layout) -> TMA's boxes
    epilogues: tuple[str, ...] = ()  # dialects in which it has them (`gemm_ref.epilogue`)
    waits: bool = False  # whether its .cu waits for a kernel that still copies its operands (`wait_for_kernel_before`)
    tma: tuple[str, ...] = ()  # the matrices that the TMA unit moves, of "A", "B" and "C"
    edges: bool = False  # whether its .cu is given maps of its own for what is at the edges of A and B
    any_c: tuple[str, ...] = ()  # dialects in which threads store a C whose rows that unit cannot
    any_a: tuple[str, ...] = ()  # dialects in which that unit reads an A whose rows it cannot, as several matrices
    min_capability: tuple[int, int] = (7, 0)  # the oldest compute capability that runs it
    only_capability: tuple[int, int] | None = None  # set when it runs on this architecture alone

    @property
    def number(self) -> int:
        """Its place on the ladder: 4 of s04_shared_tile."""
        return int(self.id[1:].split("_")[0])

    def reads_b(self, math: str, dialect: str) -> tuple[str, ...]:
        """The layouts (`operands.B_LAYOUTS`) in which a kernel reads B; from others it is copied to the first."""
        return ("kn", "nk") if math == "tf32" and dialect in self.turned else self.b_layouts.get(math, ("kn",))

    def config(self, variant: str, dialect: str) -> Config:
        """The compile-time shape of a variant, or of a tile that its default variant is chosen from."""
        tiles = self.tiles.get(dialect, {})
        if tiles and variant == DEFAULT_VARIANT:  # chosen by shape: where there is none, the first
            return next(iter(tiles.values()))
        return tiles[variant] if variant in tiles else self.variants[variant]

    def variants_in(self, dialect: str) -> tuple[str, ...]:
        """The names of the variants that are written in one dialect."""
        return self.only.get(dialect, tuple(self.variants))

    def find_variant(self, name: str, dialect: str) -> str:
        """The variant called `name`, where `"default"` is the dialect's `best`, or else the first that it has.

        Raises ValueError for one that does not exist, or not in this dialect.
        """
        there = self.variants_in(dialect)
        if name == DEFAULT_VARIANT:
            return self.best.get(dialect, there[0])
        if name in self.tiles.get(dialect, ()):
            return name
        if name not in self.variants:
            raise ValueError(unknown(f"variant of {self.id}", name, self.variants))
        if name not in there:
            raise ValueError(f"{self.id} has no variant {name!r} in {dialect}: there it has {', '.join(there)}")
        return name

    def launch(
        self,
        m: int,
        n: int,
        k: int,
        variant: str = DEFAULT_VARIANT,
        *,
        dialect: str = BY_HAND,
        sms: int = REFERENCE_SMS,
    ) -> Launch:
        """The launch that computes an M x N result of depth K on a GPU of `sms` multiprocessors (`call.sms_of`).

        `"default"` is the first variant.

        Raises ValueError for a variant that the rung has not, and where the grid would pass the GPU's limits.
        """
        name = next(iter(self.variants)) if variant == DEFAULT_VARIANT else variant
        if name not in self.variants and name not in self.tiles.get(dialect, ()):
            raise ValueError(unknown(f"variant of {self.id}", name, self.variants))
        launch = self.launch_shape(self.config(name, dialect), m, n, k, sms)
        for axis, size, limit in zip("xyz", launch.grid, MAX_GRID, strict=True):
            if size > limit:
                raise ValueError(
                    f"{self.id} would need {size} blocks along {axis} for C of {m} x {n}, and a GPU takes "
                    f"{limit}: split the matrix, or use a rung with larger tiles"
                )
        return launch

    def refusal(self, capability: tuple[int, int]) -> str | None:
        """Why a GPU of this compute capability cannot run the rung, or None if it can."""
        return capability_refusal(self.id, capability, self.min_capability, self.only_capability)


def capability_refusal(
    name: str, capability: tuple[int, int], least: tuple[int, int], only: tuple[int, int] | None = None
) -> str | None:
    """Why a GPU of this compute capability cannot run what needs `least` or `only`, or None if it can."""
    if only is not None and capability != only:
        needs = f"{_dotted(only)} exactly"
    elif capability < least:
        needs = f"{_dotted(least)} or newer"
    else:
        return None
    return f"{name} needs compute capability {needs}; this GPU has {_dotted(capability)}"


def _dotted(capability: tuple[int, int]) -> str:
    return f"{capability[0]}.{capability[1]}"


def unknown(what: str, name: str, known: Collection[str]) -> str:
    close = difflib.get_close_matches(str(name).lower(), known, n=3, cutoff=0.3)
    hint = f"did you mean {' or '.join(close)}?" if close else f"there are {', '.join(known)}"
    return f"unknown {what} {name!r}: {hint}"
