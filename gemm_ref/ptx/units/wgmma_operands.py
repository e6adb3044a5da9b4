"""Operands of wgmma (PTX ISA, 9.7.15.5): matrix descriptors, tiles in shared memory, fragments in registers.

A tile is made of pieces of 16 bytes. Where they lie (CUTLASS's cute/arch/mma_sm90_desc.hpp names the layouts; S is the
swizzle's span, 16 without one; LBO and SBO are the descriptor's leading and stride byte offsets):

    K-major   row r, bytes 16 j .. of k:    r % 8 * S + r // 8 * SBO + j * (LBO without a swizzle, else 16)
    MN-major  row k, elements 8 j .. of mn: k % 8 * S + k // 8 * (LBO without a swizzle, else SBO)
                                            + j % (S // 16) * 16 + j // (S // 16) * (SBO without a swizzle, else LBO)

from the start address on, swizzled by the bits of the address (`tile.swizzle`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gemm_ref.ptx.core.machine import Machine
from gemm_ref.ptx.core.memory import SHARED_BASE
from gemm_ref.ptx.text.errors import AsyncFault, MemoryFault
from gemm_ref.ptx.units.tile import swizzle

K_BYTES = 32  # of k in one instruction, of whatever type
ROWS = 64  # of A and D
WARPGROUP = 128  # lanes
_SPANS = np.array([0, 128, 64, 32])  # by the swizzle field of a descriptor


@dataclass(frozen=True)
class Descriptors:
    """The fields of some matrix descriptors, in bytes, an int64 array each; `span` is the one swizzle of them all.

    start: in the block's own shared memory.
    """

    start: np.ndarray
    leading: np.ndarray
    stride: np.ndarray
    span: int

    @classmethod
    def unpack(cls, words: np.ndarray, place: str) -> Descriptors:
        """Raises AsyncFault for descriptors of different swizzles, or with a base offset."""
        bits = words.astype(np.uint64)
        start, leading, stride = (
            ((bits >> np.uint64(shift) & np.uint64(0x3FFF)) << np.uint64(4)).astype(np.int64) for shift in (0, 16, 32)
        )
        spans = np.unique(_SPANS[(bits >> np.uint64(62)).astype(np.int64)])
        if spans.size > 1 or (bits >> np.uint64(49) & np.uint64(7)).any():
            raise AsyncFault(
                f"{place}: matrix descriptors of different swizzles in one instruction, or with a base offset: start "
                "the tile at a multiple of 1024 bytes"
            )
        return cls(start - SHARED_BASE, leading, stride, int(spans[0]))


def tile_addresses(
    machine: Machine, place: str, descriptors: Descriptors, rows: int, transposed: bool, dtype: np.dtype
) -> np.ndarray:
    """Return the addresses of the pieces of tiles of `dtype`: (tiles, rows, pieces), (tiles, k, pieces) if MN-major.

    Raises MemoryFault for a tile that is not all in shared memory.
    """
    offsets = _pieces(descriptors, rows, K_BYTES // dtype.itemsize, transposed)
    addresses = swizzle(descriptors.start[:, None, None] + offsets, descriptors.span)
    low, high = int(addresses.min()), int(addresses.max())
    if low < 0 or high + 16 > machine.shared.size:
        raise MemoryFault(
            f"{place}: the operand's matrix descriptor reaches bytes {low} to {high + 15} of shared memory "
            f"({machine.shared.size} bytes)"
        )
    return addresses


def read_tiles(machine: Machine, addresses: np.ndarray, blocks: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Return the elements of tiles, (tiles, rows, k) or (tiles, k, rows); blocks: of the machine, one per tile."""
    chunks = (addresses + (blocks * machine.shared.stride)[:, None, None]) // 16
    pieces = machine.shared.data.view(np.uint64).reshape(-1, 2)[chunks]
    return pieces.reshape(*chunks.shape[:2], -1).view(dtype)


def _pieces(descriptors: Descriptors, rows: int, depth: int, transposed: bool) -> np.ndarray:
    """(tiles, lines, pieces of a line): bytes from the tile's start to each piece before swizzling."""
    leading, stride = descriptors.leading[:, None, None], descriptors.stride[:, None, None]
    span = descriptors.span or 16
    if not transposed:
        row, piece = np.arange(rows)[:, None], np.arange(K_BYTES // 16)[None]
        return row % 8 * span + row // 8 * stride + piece * (16 if descriptors.span else leading)
    if not descriptors.span:
        leading, stride = stride, leading
    k, piece = np.arange(depth)[:, None], np.arange(rows // 8)[None]
    wide = span // 16
    return k % 8 * span + k // 8 * stride + piece % wide * 16 + piece // wide * leading


def accumulators_to_matrix(registers: np.ndarray, sums: np.dtype) -> np.ndarray:
    """(registers, warpgroups, 128 lanes) of 32 bits, an fp32 or two fp16 in each, as (warpgroups, 64, N).

    PTX ISA, figure 'WGMMA .m64nNk16 D'.
    """
    count, groups, _ = registers.shape
    held = 4 // sums.itemsize
    # j, half, odd, warpgroup, warp, row, pair, odd of a register
    parts = registers.view(sums).reshape(count * held // 4, 2, 2 // held, groups, 4, 8, 4, held)
    return parts.transpose(3, 4, 1, 5, 0, 6, 2, 7).reshape(groups, ROWS, 2 * count * held)


def matrix_to_accumulators(matrix: np.ndarray) -> np.ndarray:
    """The inverse of `accumulators_to_matrix`: fp32, or uint32 of two fp16."""
    groups, _, columns = matrix.shape
    held = 4 // matrix.itemsize
    parts = matrix.reshape(groups, 4, 2, 8, columns // 8, 4, 2 // held, held)
    flat = np.ascontiguousarray(parts.transpose(4, 2, 6, 0, 1, 3, 5, 7))
    words = flat if held == 1 else flat.view(np.uint32)
    return words.reshape(columns // 2 // held, groups, WARPGROUP)


def fragments_to_matrix(registers: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """(4, warpgroups, 128 lanes) 32-bit registers of A as (warpgroups, 64, k) elements of `dtype`."""
    groups = registers.shape[1]
    parts = registers.reshape(2, 2, groups, 4, 8, 4)  # half of k, half of the rows, warpgroup, warp, row, word of k
    words = np.ascontiguousarray(parts.transpose(2, 3, 1, 4, 0, 5)).reshape(groups, ROWS, K_BYTES // 4)
    return words.view(dtype)
