"""What a rung is: its variants, the dialects and compute types that it has, and where it can run.

Sizes are always in the order M, N, K, for C[M, N] = A[M, K] @ B[K, N], all row-major.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from gemm_ref.compute import MATHS
from gemm_ref.config import Config
from gemm_ref.dialect import BY_HAND, COMPLETE
from gemm_ref.launch import REFERENCE_SMS, Launch

DEFAULT_VARIANT = "default"
ALWAYS, ON_REQUEST, NEVER = "always", "on request", "never"  # `Rung.batch_invariance`

# The CUDA programming guide, 'Technical Specifications per Compute Capability': the largest grid.
MAX_GRID = (2**31 - 1, 65535, 65535)
HOPPER = (9, 0)  # the one compute capability that has wgmma


@dataclass(frozen=True)
class Tma:
    """What a rung does whose matrices the TMA unit copies: beyond the plain case, by the dialects that have it."""

    transpose_tf32: tuple[str, ...] = ()  # C^T = B^T @ A^T is computed in tf32 where B is stored by rows
    sync_tf32: tuple[str, ...] = ()  # some tiles read a tf32 B by rows, with mma.sync; for the others it is copied
    c_by_threads: tuple[str, ...] = ()  # threads store a C whose rows the unit cannot
    a_in_phases: tuple[str, ...] = ()  # the unit reads an A whose rows it cannot take as several matrices
    boxes_past_edges: tuple[str, ...] = ()  # tiles are chosen so that boxes are not mostly outside of A and B
    edge_maps: bool = False  # its .cu is given tensor maps of their own for the edges of A and B


@dataclass(frozen=True, eq=False)  # identity semantics: compared and hashed by `is`
class Rung:
    """One rung: its id (the stem of its files), its idea, its variants and where it can run."""

    id: str
    title: str
    idea: str  # one line: what this rung changes
    variants: Mapping[str, Config]  # by name; a rung that has one calls it "default"
    dialects: tuple[str, ...] = COMPLETE
    best: Mapping[str, str] = field(default_factory=dict)  # dialect -> the variant that `"default"` is; else the first
    only: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # dialect -> the variants it has, if not all
    tiles: Mapping[str, Mapping[str, Config]] = field(default_factory=dict)  # dialect -> what "default" is chosen from
    maths: tuple[str, ...] = ("fp32",)
    tma: Tma | None = None  # for the rungs of Hopper
    splits_k_by_shape: bool = False  # M decides how many sums an element is added from, and so its last bits
    second_kernel: str = ""  # of the .cu, if any: what its launch's `then` starts; the first is called as the rung
    epilogues: tuple[str, ...] = ()  # dialects in which it has them (`gemm_ref.epilogue`)
    min_capability: tuple[int, int] = (7, 0)  # the oldest compute capability that runs it

    @property
    def number(self) -> int:
        """Its place on the ladder: 4 of s04_shared_tile."""
        return int(self.id[1:].split("_")[0])

    @property
    def only_capability(self) -> tuple[int, int] | None:
        """The one architecture that runs it, where there is but one."""
        return HOPPER if self.tma else None

    @property
    def waits_for_copies(self) -> bool:
        """Whether its .cu waits for a kernel that still copies its operands (`wait_for_previous_kernel`)."""
        return bool(self.tiles)

    def reads_b(self, math: str, dialect: str) -> tuple[str, ...]:
        """The layouts (`compute.B_LAYOUTS`) in which a kernel reads B; from others it is copied to the first."""
        if self.tma is None:
            return ("kn",)
        transposes = math == "tf32" and dialect in self.tma.transpose_tf32
        return ("kn", "nk") if transposes else MATHS[math].wgmma_b_layouts

    def batch_invariance(self, dialect: str) -> str:
        """When row i of A @ B has the same bits for any number of rows: ALWAYS, ON_REQUEST or NEVER.

        A kernel with one tile adds an element's products in the order of K, whatever M is. Where the tile and the
        blocks are chosen by shape, blocks may share the K of a tile: then `gemm(..., batch_invariant=True)` chooses
        among the tiles that no blocks share, whose bits are equal (`choice.usable_tiles`).
        """
        if self.splits_k_by_shape:
            return NEVER
        return ON_REQUEST if dialect in self.tiles else ALWAYS

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
        launch = self.config(name, dialect).launch(m, n, k, sms)
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
