"""The compile-time shape of a kernel: one class per family of rungs, which also knows the launch that the shape needs.

A class adds to the one that it extends what its rungs add to those below them. The CUDA rung sees each field as
`config::BLOCK_M`, the Triton and Gluon twins as a `tl.constexpr` of the same name where their kernel has one. What
Triton decides by itself it is not told: docs/method.md, 'What the dialects hold equal'.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

from gemm_ref.launch import Launch, cdiv
from gemm_ref.problem import Problem


@dataclass(frozen=True)
class Box:
    """What the TMA unit copies of an operand at once, into shared memory with the 128-byte swizzle.

    `rows` of `columns` neighbouring elements as they are stored: for B as (N, K), rows are columns of B.
    """

    rows: int
    columns: int


@dataclass(frozen=True, kw_only=True)
class Config:
    """A block owns BLOCK_M x BLOCK_N of C, a thread one element; threadIdx.x walks the columns of C."""

    BLOCK_M: int
    BLOCK_N: int
    # The values of fields that a family does not have, for code that reads any config. They reach no kernel.
    BLOCK_K = BLOCK_K_BYTES = SPLIT_WARPS = ALIGN_B = TRANSPOSE_C = NARROW = WARPS = ADDS_TOGETHER = 0
    THREAD_M = THREAD_N = BLOCKS_PER_SM = NUM_STAGES = COPY_N = GROUP_M = CLUSTER_M = CLUSTER_K = 1

    def constants(self) -> dict[str, int | str]:
        """The fields in the order of their declaration, as a kernel gets them."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @property
    def splits_tile(self) -> bool:
        """Whether warps or blocks share the K of one tile, and add their sums in an order of this tile alone."""
        return self.CLUSTER_K > 1 or self.SPLIT_WARPS > 0

    @property
    def uses_mma_sync(self) -> bool:
        """Whether a kernel that else multiplies with wgmma uses mma.sync for this tile."""
        return False

    def parts(self, tiles: int, blocks: int, slices: int) -> tuple[int, int]:
        """Where the blocks with a share of a tile add it in parts: sums of a part and parts of a block; else 0, 0."""
        return 0, 0

    def depth(self, element_bytes: int) -> int:
        """Elements of K in one slice; 0 where the kernel has no slices."""
        return self.BLOCK_K

    def launch(self, m: int, n: int, k: int, sms: int) -> Launch:
        """The launch that computes an M x N result of depth K on a GPU of `sms` multiprocessors."""
        return Launch(self.grid(m, n), (self.BLOCK_N // self.THREAD_N, self.BLOCK_M // self.THREAD_M, 1))

    def schedule(self, m: int, n: int, k: int, blocks: int, sms: int) -> Launch:
        """The launch that distributes the tiles over so many blocks; ValueError where it cannot."""
        raise ValueError(f"{type(self).__name__} has a block for each tile, whatever their number")

    def grid(self, m: int, n: int) -> tuple[int, int, int]:
        """A block for each tile of C; neighbouring blocks along x own neighbouring tiles of a row."""
        return cdiv(n, self.BLOCK_N), cdiv(m, self.BLOCK_M), 1

    def is_transposed(self, math: str, b_layout: str) -> bool:
        """Whether the kernel computes C^T = B^T @ A^T."""
        return False

    def copies_b(self, math: str, b_layout: str) -> bool:
        """Whether B, if it is stored so, is first copied to another layout because this tile cannot read it."""
        return bool(self.ALIGN_B)

    def sides(self, problem: Problem) -> tuple[int, int]:
        """Rows and columns of what the kernel computes, C or C^T."""
        return problem.m, problem.n

    def columns_added(self, problem: Problem, blocks: int) -> int:
        """Columns of a tile that each of its blocks adds over all shares; 0 where one adds all, or none share."""
        return 0

    def boxes(self, math: str, b_layout: str) -> Mapping[str, Box]:
        """What the TMA unit copies at once of A, B and C, where it copies them."""
        return {}
