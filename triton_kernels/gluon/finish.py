"""What a call asks for beside the product (gemm_ref/epilogue.py), done to the sums before they are rounded."""

import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

EVERY_NAN: gl.constexpr = gl.constexpr(tl.PropagateNan.ALL)


# One of gemm_ref.epilogue.ACTIVATIONS, or none; cuda_kernels/include/finish.cuh says why in this form.
@gluon.jit
def activate(x, ACTIVATION: gl.constexpr):
    LOG2_E: gl.constexpr = 1.442695041
    TWO_U: gl.constexpr = 1.595769122 * LOG2_E
    if ACTIVATION == "relu":
        x = gl.maximum(x, 0.0, propagate_nan=EVERY_NAN)
    elif ACTIVATION == "gelu":
        y = gl.minimum(gl.abs(x), 12.0)
        log2 = ((-0.00050032996 * y + 0.0072827372) * y - 0.052343761) * y - 0.4594139
        log2 = (log2 * y - 1.151052) * y - 1.0000018
        x = gl.maximum(x, 0.0, propagate_nan=EVERY_NAN) - y * gl.exp2(log2)
    elif ACTIVATION == "gelu_tanh":
        x *= _reciprocal(1.0 + gl.exp2(x * (-TWO_U - TWO_U * 0.044715 * (x * x))))
    elif ACTIVATION == "silu":
        x *= _reciprocal(1.0 + gl.exp2(-LOG2_E * x))
    return x


@gluon.jit
def _reciprocal(x):
    return gl.inline_asm_elementwise("rcp.approx.ftz.f32 $0, $1;", "=f,f", [x], gl.float32, True, 1)


# x, at (row, col) of what is multiplied (rows, columns), which is C or, TRANSPOSE_C, C^T. Of bias and addend, which are
# C's, each row that x has side by side is in whole vectors of VECTOR, addend_step of them in a row of the addend.
@gluon.jit
def finished(
    x, row, col, rows, columns, bias_ptr, addend_ptr, addend_step, alpha, beta,
    ACTIVATION: gl.constexpr, BIAS_BY_ROWS: gl.constexpr, VECTOR: gl.constexpr, TRANSPOSE_C: gl.constexpr,
):  # fmt: skip
    layout: gl.constexpr = x.type.layout
    m = row + gl.arange(0, x.shape[0], gl.SliceLayout(1, layout))
    n = col + gl.arange(0, x.shape[1], gl.SliceLayout(0, layout))
    x *= alpha
    if addend_ptr is not None:
        step = addend_step * VECTOR
        if TRANSPOSE_C:
            at = n.to(gl.int64)[None, :] * step + m[:, None]
            inside = (m < rows)[:, None] & (n < columns)[None, :]
        else:
            at = m.to(gl.int64)[:, None] * step + n[None, :]
            inside = (m < rows)[:, None] & (n < gl.cdiv(columns, VECTOR) * VECTOR)[None, :]
        x += beta * gl.load(addend_ptr + at, mask=inside).to(gl.float32)
    if bias_ptr is not None:
        if TRANSPOSE_C != BIAS_BY_ROWS:
            x += gl.load(bias_ptr + m, mask=m < rows)[:, None].to(gl.float32)
        else:
            x += gl.load(bias_ptr + n, mask=n < columns)[None, :].to(gl.float32)
    return activate(x, ACTIVATION)
