"""The ladder's registry: every rung that exists, what it claims, and how it is launched.

Kernels, tests, experiments, plots and the README's tables all loop over `STAGES`. To add a rung, add its
entry here and one file of the same stem to `cuda_kernels/`, `triton_kernels/` and (where `dialects` says
so) `triton_kernels/gluon/`; a test fails when an entry, a file or a README row is missing or left over.

Sizes are always in the order M, N, K, for C[M, N] = A[M, K] @ B[K, N], all row-major.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from types import MappingProxyType

DIALECTS = ("cuda", "triton", "gluon")  # the columns of every table and plot, in this order
BACKENDS = {"cuda": "cuda", "triton": "triton", "gluon": "triton"}  # dialect -> package
DEFAULT_VARIANT = "default"

# The CUDA programming guide, 'Technical Specifications per Compute Capability': the largest grid and block.
MAX_GRID = (2**31 - 1, 65535, 65535)
MAX_BLOCK_THREADS = 1024


def cdiv(a: int, b: int) -> int:
    """How many tiles of size `b` cover `a` elements (0 for a = 0)."""
    return -(-a // b)


@dataclass(frozen=True)
class Config:
    """Compile-time shape of a kernel, in the field's words; a field a rung does not use stays None.

    The CUDA rung sees each as `config::BLOCK_M`, the Triton and Gluon twins as a `tl.constexpr` of the same
    name, so 'the same tile on both sides' is checked by construction.
    """

    BLOCK_M: int  # rows of C that a block owns
    BLOCK_N: int  # columns of C that a block owns
    BLOCK_K: int | None = None  # depth of one step along K

    def constants(self) -> dict[str, int]:
        """The fields that are set, in declaration order."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        return {name: value for name, value in values.items() if value is not None}


@dataclass(frozen=True)
class Launch:
    """A CUDA launch: `grid` and `block` as (x, y, z), dynamic shared memory in bytes."""

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int = 0

    @property
    def threads(self) -> int:
        """Threads in one block."""
        return self.block[0] * self.block[1] * self.block[2]

    @property
    def num_warps(self) -> int:
        """Warps in one block: what the Triton and Gluon twins are given as `num_warps`."""
        return cdiv(self.threads, 32)


@dataclass(frozen=True, eq=False)  # a rung is itself: compared and hashed by identity
class Stage:
    """One rung: its id (the stem of its files), its idea, its variants and where it can run."""

    id: str
    title: str
    idea: str  # one line: what this rung changes
    variants: Mapping[str, Config]  # by name, the default first
    launch_shape: Callable[[Config, int, int], Launch]  # (config, m, n) -> the launch
    dialects: tuple[str, ...] = DIALECTS
    maths: tuple[str, ...] = ("fp32",)
    min_capability: tuple[int, int] = (7, 0)  # the oldest compute capability that runs it
    only_capability: tuple[int, int] | None = None  # set when it runs on this architecture alone
    compiler: Mapping[str, str] = field(default_factory=dict)  # dialect -> what it decides: '<Triton> keeps ...'

    def config(self, variant: str = DEFAULT_VARIANT) -> Config:
        """The compile-time shape of one variant; `"default"` is the first. Raises ValueError if unknown."""
        if variant == DEFAULT_VARIANT:
            return next(iter(self.variants.values()))
        if variant not in self.variants:
            raise ValueError(_unknown(f"variant of {self.id}", variant, self.variants))
        return self.variants[variant]

    def launch(self, m: int, n: int, variant: str = DEFAULT_VARIANT) -> Launch:
        """The launch that covers an M x N result. Raises ValueError where it would pass the GPU's grid limits."""
        launch = self.launch_shape(self.config(variant), m, n)
        for axis, size, limit in zip("xyz", launch.grid, MAX_GRID, strict=True):
            if size > limit:
                raise ValueError(
                    f"{self.id} would need {size} blocks along {axis} for C of {m} x {n}, and a GPU takes "
                    f"{limit}: split the matrix, or use a rung with larger tiles"
                )
        return launch

    def refusal(self, capability: tuple[int, int]) -> str | None:
        """Why a GPU of this compute capability cannot run the rung, or None if it can."""
        if self.only_capability is not None and capability != self.only_capability:
            needs = f"{_dotted(self.only_capability)} exactly"
        elif capability < self.min_capability:
            needs = f"{_dotted(self.min_capability)} or newer"
        else:
            return None
        return f"{self.id} needs compute capability {needs}; this GPU has {_dotted(capability)}"


def _dotted(capability: tuple[int, int]) -> str:
    return f"{capability[0]}.{capability[1]}"


def _rows_on_x(config: Config, m: int, n: int) -> Launch:
    """threadIdx.x walks the rows of C: neighbouring lanes are a whole row apart in memory."""
    grid = (cdiv(m, config.BLOCK_M), cdiv(n, config.BLOCK_N), 1)
    return Launch(grid, (config.BLOCK_M, config.BLOCK_N, 1))


def _columns_on_x(config: Config, m: int, n: int) -> Launch:
    """threadIdx.x walks the columns of C: neighbouring lanes are neighbours in memory."""
    grid = (cdiv(n, config.BLOCK_N), cdiv(m, config.BLOCK_M), 1)
    return Launch(grid, (config.BLOCK_N, config.BLOCK_M, 1))


def _only(config: Config) -> Mapping[str, Config]:
    return MappingProxyType({DEFAULT_VARIANT: config})


_LADDER = (
    Stage(
        id="s01_naive",
        title="Naive",
        idea="one thread an element of C, threadIdx.x walks the rows: uncoalesced",
        variants=_only(Config(BLOCK_M=32, BLOCK_N=32)),
        launch_shape=_rows_on_x,
        compiler=MappingProxyType(
            {
                "triton": (
                    "cannot place lanes, so the tile is written transposed: the loads of A stay strided by K "
                    "(TTGIR: 32 lanes down the rows), but the compiler gives C's store the other order and turns "
                    "the tile round through 4 KiB of shared memory (one convert_layout)."
                ),
                "gluon": (
                    "obeys: the loads of A and the store of C are both strided, as written (no convert_layout, no "
                    "shared memory)."
                ),
            }
        ),
    ),
    Stage(
        id="s02_coalesced",
        title="Coalesced",
        idea="threadIdx.x walks the columns, so a warp touches neighbouring addresses",
        variants=_only(Config(BLOCK_M=32, BLOCK_N=32)),
        launch_shape=_columns_on_x,
        compiler=MappingProxyType(
            {
                "triton": (
                    "runs a warp along the columns by default: its PTX has the same instructions, each as often, "
                    "as the Gluon twin's. It leaves unrolling to ptxas, which makes 4 k a trip (SASS, Triton 3.6) "
                    "where nvcc's loop has 16, so fewer loads are in flight."
                ),
                "gluon": "obeys: lanes run along the columns in every load and store, without shared memory.",
            }
        ),
    ),
    Stage(
        id="s03_block_tile",
        title="Block tile",
        idea="a block owns a tile of C and walks K in slices, still from global memory alone",
        variants=_only(Config(BLOCK_M=32, BLOCK_N=32, BLOCK_K=32)),
        launch_shape=_columns_on_x,
        compiler=MappingProxyType(
            {
                "cuda": (
                    "(nvcc and ptxas) unrolls both this rung's loop and s02's to 16 k a trip (SASS), with the "
                    "same two loads for each FFMA; here the loop starts anew in every slice and sets up its "
                    "bounds and addresses again, K / 32 times, and nothing is won for it: no byte is asked for "
                    "less often."
                ),
                "triton": (
                    "keeps no tile that the source does not ask for: 64 global loads for 32 fma a slice, the same "
                    "instructions as the Gluon twin. The inner loop of fixed length is unrolled whole: 32 k a trip."
                ),
                "gluon": "obeys: 64 global loads for 32 fma a slice, no shared memory.",
            }
        ),
    ),
    Stage(
        id="s04_shared_tile",
        title="Shared tile",
        idea="the slices of A and B are staged in shared memory and read from there",
        variants=_only(Config(BLOCK_M=32, BLOCK_N=32, BLOCK_K=32)),
        launch_shape=_columns_on_x,
        compiler=MappingProxyType(
            {
                "triton": (
                    "stages both tiles of `tl.dot` in shared memory unasked (TTGIR: two local_alloc, unswizzled, "
                    "two barriers a slice) and on sm_90 reads them with 8 ld.shared.v4 and 8 ldmatrix.x4 for 32 "
                    "fma, also in fp32: the same instructions as the Gluon twin."
                ),
                "gluon": (
                    "takes the tiles and their layout from the kernel; the two barriers a slice and the 16-byte "
                    "reads (8 ld.shared.v4 and 8 ldmatrix.x4 for 32 fma) are the compiler's."
                ),
            }
        ),
    ),
)

STAGES: Mapping[str, Stage] = MappingProxyType({stage.id: stage for stage in _LADDER})


def get_stage(name: str) -> Stage:
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
    if close := difflib.get_close_matches(name, by_number, n=1, cutoff=0.7):  # s4 for s04
        raise ValueError(f"unknown stage {name!r}: did you mean {by_number[close[0]].id}?")
    raise ValueError(_unknown("stage", name, STAGES))


def _unknown(what: str, name: str, known: Mapping[str, object]) -> str:
    close = difflib.get_close_matches(str(name), known, n=3, cutoff=0.3)
    hint = f"did you mean {' or '.join(close)}?" if close else f"there are {', '.join(known)}"
    return f"unknown {what} {name!r}: {hint}"


@dataclass(frozen=True)
class Implementation:
    """One kernel that can be run: a rung's variant, written in a dialect, in a math mode."""

    stage: Stage
    variant: str
    dialect: str
    math: str

    @property
    def backend(self) -> str:
        """The package that holds it: `cuda` or `triton`."""
        return BACKENDS[self.dialect]

    @property
    def config(self) -> Config:
        return self.stage.config(self.variant)

    def __str__(self) -> str:
        variant = "" if self.variant == DEFAULT_VARIANT else f":{self.variant}"
        return f"{self.stage.id}{variant}-{self.dialect}-{self.math}"


def implementations(dialects: tuple[str, ...] = DIALECTS) -> list[Implementation]:
    """Every rung x variant x dialect x math mode of the registry, in ladder order."""
    return [
        Implementation(stage, variant, dialect, math)
        for stage in STAGES.values()
        for variant in stage.variants
        for dialect in stage.dialects
        if dialect in dialects
        for math in stage.maths
    ]
