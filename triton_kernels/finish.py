"""The epilogue of a call (gemm_ref/epilogue.py), applied to the sums before they are rounded: in both dialects."""

import triton
import triton.language as tl

from triton_kernels.tiles import store_elements


# One of gemm_ref.epilogue.ACTIVATIONS, or none; cuda_kernels/include/finish.cuh says why in this form.
@triton.jit
def activate(x, ACTIVATION: tl.constexpr):
    LOG2_E: tl.constexpr = 1.442695041
    TWO_U: tl.constexpr = 1.595769122 * LOG2_E
    if ACTIVATION == "relu":
        x = tl.maximum(x, 0.0, propagate_nan=tl.PropagateNan.ALL)
    elif ACTIVATION == "gelu":
        y = tl.minimum(tl.abs(x), 12.0)
        log2 = ((-0.00050032996 * y + 0.0072827372) * y - 0.052343761) * y - 0.4594139
        log2 = (log2 * y - 1.151052) * y - 1.0000018
        x = tl.maximum(x, 0.0, propagate_nan=tl.PropagateNan.ALL) - y * tl.exp2(log2)
    elif ACTIVATION == "gelu_tanh":
        x *= _reciprocal(1.0 + tl.exp2(x * (-TWO_U - TWO_U * 0.044715 * (x * x))))
    elif ACTIVATION == "silu":
        x *= _reciprocal(1.0 + tl.exp2(-LOG2_E * x))
    return x


@triton.jit
def _reciprocal(x):
    return tl.inline_asm_elementwise("rcp.approx.ftz.f32 $0, $1;", "=f,f", [x], tl.float32, True, 1)


# x, whose elements are at m (rows) and n (columns) of what is multiplied (rows, columns): C or, TRANSPOSE_C, C^T. Bias
# and addend are C's. A row of the addend is addend_step vectors of VECTOR elements, and is read in whole vectors.
@triton.jit
def apply_epilogue(
    x, m, n, rows, columns, bias_ptr, addend_ptr, addend_step, alpha, beta,
    ACTIVATION: tl.constexpr, BIAS_BY_ROWS: tl.constexpr, VECTOR: tl.constexpr, TRANSPOSE_C: tl.constexpr,
):  # fmt: skip
    x *= alpha
    if addend_ptr is not None:
        step = addend_step * VECTOR
        if TRANSPOSE_C:
            at = n.to(tl.int64)[None, :] * step + m[:, None]
            inside = (m < rows)[:, None] & (n < columns)[None, :]
        else:
            at = m.to(tl.int64)[:, None] * step + n[None, :]
            inside = (m < rows)[:, None] & (n < tl.cdiv(columns, VECTOR) * VECTOR)[None, :]
        x += beta * tl.load(addend_ptr + at, mask=inside).to(tl.float32)
    if bias_ptr is not None:
        if TRANSPOSE_C != BIAS_BY_ROWS:
            x += tl.load(bias_ptr + m, mask=m < rows)[:, None].to(tl.float32)
        else:
            x += tl.load(bias_ptr + n, mask=n < columns)[None, :].to(tl.float32)
    return activate(x, ACTIVATION)


# The tile at (row, col) of C (rows, columns), PIECE columns of it at a time: finished, and stored by TMA or by threads.
@triton.jit
def store_finished(
    c, row, col, x, rows, columns, bias_ptr, addend_ptr, addend_step, alpha, beta, PIECE: tl.constexpr,
    C_BY_THREADS: tl.constexpr, FINISHES: tl.constexpr, ACTIVATION: tl.constexpr, BIAS_BY_ROWS: tl.constexpr,
    VECTOR: tl.constexpr,
):  # fmt: skip
    COLUMNS: tl.constexpr = x.shape[1]
    if COLUMNS == PIECE:
        if FINISHES:
            m = row + tl.arange(0, x.shape[0])
            n = col + tl.arange(0, x.shape[1])
            x = apply_epilogue(x, m, n, rows, columns, bias_ptr, addend_ptr, addend_step, alpha, beta,
                               ACTIVATION, BIAS_BY_ROWS, VECTOR, False)  # fmt: skip
        if C_BY_THREADS:
            store_elements(c, row, col, x, rows, columns)
        else:
            c.store([row, col], x.to(c.dtype))
    else:
        left, right = x.reshape(x.shape[0], 2, COLUMNS // 2).permute(0, 2, 1).split()
        store_finished(c, row, col, left, rows, columns, bias_ptr, addend_ptr, addend_step, alpha, beta,
                       PIECE, C_BY_THREADS, FINISHES, ACTIVATION, BIAS_BY_ROWS, VECTOR)  # fmt: skip
        store_finished(c, row, col + COLUMNS // 2, right, rows, columns, bias_ptr, addend_ptr, addend_step,
                       alpha, beta, PIECE, C_BY_THREADS, FINISHES, ACTIVATION, BIAS_BY_ROWS, VECTOR)  # fmt: skip
