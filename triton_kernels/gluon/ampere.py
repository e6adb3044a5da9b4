"""What the rungs on mma.sync share: slices of A (m, k) and B (k, n) in shared memory, and fragments of them."""

import torch
import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import async_copy

# Triton 3.9 calls it `async_load`.
copy_async = getattr(async_copy, "async_load", None) or async_copy.async_copy_global_to_shared

CHUNK = 16  # bytes that a thread can move at once


# Which elements a thread copies of a slice with so many columns: chunks, side by side along a row.
@triton.constexpr_function
def copy_layout(columns, dtype, warps):
    chunk = CHUNK * 8 // dtype.primitive_bitwidth
    lanes = min(32, columns // chunk)
    return gl.BlockedLayout([1, chunk], [32 // lanes, lanes], [warps, 1], [1, 0])


# A slice with so many columns: where 8 rows would have a chunk in the same banks, they have it elsewhere. ldmatrix
# reads a chunk of each of 8 rows; of B in 32-bit types a lane reads its own element, a warp 8 columns of 4 rows.
@triton.constexpr_function
def slice_layout(columns, dtype, operand):
    chunk = CHUNK * 8 // dtype.primitive_bitwidth
    if operand == 1 and dtype.primitive_bitwidth == 32:
        return gl.SwizzledSharedLayout(8, 1, 4, [1, 0])
    rows = max(1, 8 * chunk // columns)  # that fill the 32 banks
    return gl.SwizzledSharedLayout(chunk, rows, 8 // rows, [1, 0])


# Which elements of C a lane holds of the sums: 16 x 8 an instruction.
@triton.constexpr_function
def sums_layout(warps_m, warps_n):
    return gl.NVMMADistributedLayout([2, 0], [warps_m, warps_n], [16, 8])


# Operand 0 (A) or 1 (B) of it: a lane has 4 bytes along k at a time.
@triton.constexpr_function
def fragments(operand, sums, dtype):
    return gl.DotOperandLayout(operand, sums, 32 // dtype.primitive_bitwidth)


# A slice on its way to shared memory: by cp.async, whose smallest copy is 4 bytes, or through registers.
@gluon.jit
def copy_slice(smem, pointers, mask, CHUNKS: gl.constexpr):
    if CHUNKS:
        copy_async(smem, pointers, mask=mask)
    else:
        smem.store(gl.load(pointers, mask=mask, other=0.0))


def copies_chunks(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether Triton knows that rows of a (M, K) and b (K, N) are made of whole chunks: it looks at multiples of 16."""
    return all(x.data_ptr() % CHUNK == 0 and x.shape[1] % 16 == 0 for x in (a, b))
