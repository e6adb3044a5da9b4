"""What the rungs on tensor cores share: slices of B, and the store of C."""

import triton
import triton.language as tl

STORE_BYTES = 32 * 1024  # of C that TMA stores at once: what four stages leave of an SM's shared memory


# Slice k .. k + BLOCK_K, columns col .. col + BLOCK_N of B, as (BLOCK_K, BLOCK_N).
@triton.jit
def load_b(b_desc, k, col, B_LAYOUT: tl.constexpr):
    if B_LAYOUT == "kn":
        b = b_desc.load([k, col])
    else:
        b = b_desc.load([col, k]).T
    return b


# The sums as elements of C, multiplied by the scales of A and B where there are any.
@triton.jit
def scaled(acc, scale_a, scale_b):
    if scale_a is not None:
        acc *= tl.load(scale_a)
    if scale_b is not None:
        acc *= tl.load(scale_b)
    return acc


# The tile at (row, col) of C, as the blocks of c_desc: half of its columns at a time until they are as wide as those.
@triton.jit
def store_tile(c_desc, row, col, acc):
    COLUMNS: tl.constexpr = acc.shape[1]
    if COLUMNS == c_desc.block_shape[1]:
        c_desc.store([row, col], acc.to(c_desc.dtype))
    else:
        left, right = acc.reshape(acc.shape[0], 2, COLUMNS // 2).permute(0, 2, 1).split()
        store_tile(c_desc, row, col, left)
        store_tile(c_desc, row, col + COLUMNS // 2, right)


# The same by threads, where c_ptr points to rows of C (rows, columns) that TMA cannot store.
@triton.jit
def store_elements(c_ptr, row, col, x, rows, columns):
    m = row + tl.arange(0, x.shape[0])
    n = col + tl.arange(0, x.shape[1])
    at = m.to(tl.int64)[:, None] * columns + n[None, :]
    tl.store(c_ptr + at, x.to(c_ptr.dtype.element_ty), mask=(m < rows)[:, None] & (n < columns)[None, :])
