"""What s06 to s12 share: where slices of A and B lie in global memory, their product, and the store of C."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl


# A block's first slices, of A from `row` on and of B from `col` on: where their rows and columns are, (BLOCK_M, 1) and
# (1, BLOCK_K) of A, (BLOCK_K, 1) and (1, BLOCK_N) of B, and pointers to their elements.
@gluon.jit
def locate_slices(
    a_ptr, b_ptr, row, col, N, K,
    BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, BLOCK_K: gl.constexpr, a_layout: gl.constexpr, b_layout: gl.constexpr,
):  # fmt: skip
    a_row = (row + gl.arange(0, BLOCK_M, gl.SliceLayout(1, a_layout)))[:, None].to(gl.int64)
    a_k = gl.arange(0, BLOCK_K, gl.SliceLayout(0, a_layout))[None, :]
    b_k = gl.arange(0, BLOCK_K, gl.SliceLayout(1, b_layout))[:, None]
    b_col = (col + gl.arange(0, BLOCK_N, gl.SliceLayout(0, b_layout)))[None, :].to(gl.int64)
    return a_row, a_k, b_k, b_col, a_ptr + a_row * K + a_k, b_ptr + b_k.to(gl.int64) * N + b_col


# acc + a @ b, read from shared memory in the layout of acc, whose products the compiler orders.
@gluon.jit
def multiply(a_smem, b_smem, acc):
    layout: gl.constexpr = acc.type.layout
    a = a_smem.load(gl.DotOperandLayout(0, layout, 0))
    b = b_smem.load(gl.DotOperandLayout(1, layout, 0))
    return gl.dot_fma(a, b, acc)


# The same k by k, for a layout that `dot_fma` does not take.
@gluon.jit
def multiply_by_k(a_smem, b_smem, acc):
    layout: gl.constexpr = acc.type.layout
    BLOCK_K: gl.constexpr = a_smem.shape[1]
    for k in gl.static_range(BLOCK_K):
        a = a_smem.slice(k, 1, dim=1).load(layout)  # (BLOCK_M, 1)
        b = b_smem.slice(k, 1, dim=0).load(layout)  # (1, BLOCK_N)
        acc = gl.fma(a, b, acc)
    return acc


# NUM_STAGES buffers for slices of A, and of B. Each is an allocation of its own, chosen when the kernel is compiled, so
# the compiler knows that they do not overlap.
@gluon.jit
def allocate_slices(
    BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, BLOCK_K: gl.constexpr,
    a_shared: gl.constexpr, b_shared: gl.constexpr, NUM_STAGES: gl.constexpr,
):  # fmt: skip
    a_smem = ()
    b_smem = ()
    for _ in gl.static_range(NUM_STAGES):
        a_smem += (gl.allocate_shared_memory(gl.float32, (BLOCK_M, BLOCK_K), a_shared),)
        b_smem += (gl.allocate_shared_memory(gl.float32, (BLOCK_K, BLOCK_N), b_shared),)
    return a_smem, b_smem


# The tile of C that begins at (row, col), in the layout of acc.
@gluon.jit
def store_tile(c_ptr, row, col, acc, M, N):
    layout: gl.constexpr = acc.type.layout
    c_row = (row + gl.arange(0, acc.shape[0], gl.SliceLayout(1, layout)))[:, None].to(gl.int64)
    c_col = (col + gl.arange(0, acc.shape[1], gl.SliceLayout(0, layout)))[None, :].to(gl.int64)
    gl.store(c_ptr + c_row * N + c_col, acc, mask=(c_row < M) & (c_col < N))
