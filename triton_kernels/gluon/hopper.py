"""What Hopper's rungs share: slices of A and B in shared memory as TMA writes them and wgmma reads them, and C."""

import torch
import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, mbarrier, tma

# Triton 3.9 calls them so.
tma_load = getattr(tma, "async_load", None) or tma.async_copy_global_to_shared
tma_store = getattr(tma, "async_store", None) or tma.async_copy_shared_to_global

SWIZZLE = 128  # bytes of a row in TMA's widest swizzle
PIECES: gl.constexpr = gl.constexpr(2)  # of C in shared memory, of a partition: one is written, one is stored
WGMMA_K_BYTES = 32  # of k in one instruction, of whatever type
_BY_ROWS: gl.constexpr = gl.constexpr("mk")  # Triton 3.6 takes no plain string for a parameter that is left out
_NO_BYTES: gl.constexpr = gl.constexpr(0)


def swizzled(dtype: torch.dtype, columns: int = SWIZZLE) -> gl.NVMMASharedLayout:
    """How elements of this type lie in shared memory: 16-byte chunk i of row r at i ^ r % 8, or fewer in short rows."""
    return gl.NVMMASharedLayout(min(SWIZZLE, columns * dtype.itemsize), 8 * dtype.itemsize, 2)


# Which elements of 64 rows a warpgroup's lanes hold of the sums.
@triton.constexpr_function
def sums_layout(warps, columns, dtype):
    return gl.NVMMADistributedLayout([3, 0], [warps, 1], [16, columns, WGMMA_K_BYTES * 8 // dtype.primitive_bitwidth])


# Have slice k .. k + BLOCK_K of A's rows from `row` on, and of B's columns from `col` on, copied where `wanted`.
@gluon.jit
def load_slice(
    a_desc, b_desc, row, col, k, wanted, a_smem, b_smem, full, B_LAYOUT: gl.constexpr,
    A_LAYOUT: gl.constexpr = _BY_ROWS, MORE_BYTES: gl.constexpr = _NO_BYTES,
):  # fmt: skip
    mbarrier.expect(full, a_desc.block_type.nbytes + b_desc.block_type.nbytes + MORE_BYTES, pred=wanted)
    if A_LAYOUT == "mk":
        tma_load(a_desc, [row, k], full, a_smem, pred=wanted)
    else:
        tma_load(a_desc, [k, row], full, a_smem, pred=wanted)
    load_columns(b_desc, col, k, wanted, b_smem, full, B_LAYOUT)


@gluon.jit
def load_columns(b_desc, col, k, wanted, b_smem, full, B_LAYOUT: gl.constexpr):
    if B_LAYOUT == "kn":
        tma_load(b_desc, [k, col], full, b_smem, pred=wanted)
    else:
        tma_load(b_desc, [col, k], full, b_smem, pred=wanted)


# A slice of B as (BLOCK_K, BLOCK_N), however it lies.
@gluon.jit
def as_kn(b_smem, B_LAYOUT: gl.constexpr):
    if B_LAYOUT == "kn":
        b = b_smem
    else:
        b = b_smem.permute((1, 0))
    return b


# The sums multiplied by the scales of A and B where there are any.
@gluon.jit
def scaled(acc, scale_a, scale_b):
    if scale_a is not None:
        acc *= gl.load(scale_a)
    if scale_b is not None:
        acc *= gl.load(scale_b)
    return acc


# x (rows, n) in so many parts of neighbouring columns, each of which is in its thread's registers already.
@gluon.jit
def columns(x, PARTS: gl.constexpr):
    if PARTS == 1:
        parts = (x,)
    else:
        left, right = x.reshape(x.shape[0], 2, x.shape[1] // 2).permute(0, 2, 1).split()
        parts = columns(left, PARTS // 2) + columns(right, PARTS // 2)
    return parts


# A piece by threads, where c_ptr points to rows of C that TMA cannot store. x is of what is multiplied, which is M x N.
# Lanes are side by side in a row of C.
@gluon.jit
def _store_elements(c_ptr, row, col, x, M, N, TRANSPOSE_C: gl.constexpr):
    ACROSS: gl.constexpr = 0 if TRANSPOSE_C else 1  # of x, where C's rows go
    LANES: gl.constexpr = min(32, x.shape[ACROSS])  # of a warp in the same row
    layout: gl.constexpr = gl.BlockedLayout(
        [1, 1], [LANES, 32 // LANES] if TRANSPOSE_C else [32 // LANES, LANES],
        [1, gl.num_warps()] if TRANSPOSE_C else [gl.num_warps(), 1], [ACROSS, 1 - ACROSS]
    )  # fmt: skip
    m = row + gl.arange(0, x.shape[0], gl.SliceLayout(1, layout))[:, None]
    n = col + gl.arange(0, x.shape[1], gl.SliceLayout(0, layout))[None, :]
    at = n.to(gl.int64) * M + m if TRANSPOSE_C else m.to(gl.int64) * N + n
    gl.store(c_ptr + at, gl.convert_layout(x.to(c_ptr.dtype.element_ty), layout), mask=(m < M) & (n < N))


# x, part i of PARTS of neighbouring columns, to its place in the tile at (row, col) of what is multiplied, which is
# M x N, and C or, TRANSPOSE_C, C^T: by TMA, as a block of c, by way of the PIECES of `pieces` from `first` on in turn;
# or BY_THREADS.
@gluon.jit
def store_part(
    c, row, col, x, i: gl.constexpr, PARTS: gl.constexpr, pieces, first: gl.constexpr, M, N,
    BY_THREADS: gl.constexpr, TRANSPOSE_C: gl.constexpr,
):  # fmt: skip
    col += i * x.shape[1]
    if BY_THREADS:
        _store_elements(c, row, col, x, M, N, TRANSPOSE_C)
    else:
        IN_TURN: gl.constexpr = min(PIECES, PARTS)
        piece = pieces.index(first + i % IN_TURN)
        # What was stored from here has been read; of an odd number, the last piece of a tile was stored from the first.
        tma.store_wait(0 if i == 0 and PARTS % IN_TURN else IN_TURN - 1)
        if TRANSPOSE_C:
            piece.store(x.to(c.dtype).permute((1, 0)))
        else:
            piece.store(x.to(c.dtype))
        fence_async_shared()
        if TRANSPOSE_C:
            tma_store(c, [col, row], piece)
        else:
            tma_store(c, [row, col], piece)


# x, the tile at (row, col) of C, part by part, as blocks of c_desc.
@gluon.jit
def store_tile(c_desc, row, col, x, pieces, first: gl.constexpr):
    PARTS: gl.constexpr = x.shape[1] // c_desc.block_shape[1]
    parts = columns(x, PARTS)
    for i in gl.static_range(PARTS):
        store_part(c_desc, row, col, parts[i], i, PARTS, pieces, first, 0, 0, False, False)
