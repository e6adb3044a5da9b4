"""What a function takes: types, layouts, batches, factors, alpha, beta and a bias are found by name and by trying."""

from __future__ import annotations

import pytest

from experiments.check.messages import Note, Why
from tests.experiments.check.helpers import codes, values
from tests.experiments.check.python.sources import GLUON, TRITON, TUNED, Case, report

SCALED = (
    GLUON.replace("BLOCK: gl.constexpr", "alpha, beta, d_ptr, BLOCK: gl.constexpr")
    .replace("    gl.store(", "    d = gl.load(d_ptr + row * N + col, mask=(row < M) & (col < N))\n    gl.store(")
    .replace("+ col, acc, mask", "+ col, alpha * acc + beta * d, mask")
    .replace("matmul(a, b)", "addmm(input, mat1, mat2, *, beta=1, alpha=1)")
    .replace("    (M, K), N", "    a, b = mat1, mat2\n    (M, K), N")
    .replace("M, N, K, BLOCK=32", "M, N, K, alpha, beta, input, BLOCK=32")
)


INT8 = (
    GLUON.replace("def matmul(a, b):", "def int8_matmul(a, b):\n    assert a.dtype == b.dtype == torch.int8")
    .replace("gl.float32", "gl.int32")
    .replace("acc += a * b", "acc += a.to(gl.int32) * b")
)
MIXED = "(a, quant_w):\n    b = quant_w\n    assert (a.dtype, b.dtype) == (torch.half, torch.int8)"
BLOCKS = "    assert a_s.shape == (M, -(-K // block_size[1])) and b_s.shape == (-(-N // 128), a_s.shape[1])\n    c ="
# C is M x K; A is stored by columns; the kernel is for its caller to say.
ORDERED = TRITON.replace("gemm(a, b, c, block=32)", "solve(a, b, c, M, N, K)").replace(
    "(M, K), N = a.shape, b.shape[1]", "N, K, block = K, N, 32"
)
TURNED = (
    TRITON.replace("row * K + k[None, :]", "k[None, :] * M + row")
    .replace("(a, b, c, block=32)", "(a, b, c, kernel_fn, block=32)")
    .replace("(M, K), N = a.shape", "(K, M), N = a.shape")
    .replace("kernel[grid]", "kernel_fn[grid]")
    .replace("@triton.jit", "@triton.jit\ndef one(x):\n    return x + 1\n\n\n@triton.jit")
)


BIASED = (
    GLUON.replace("BLOCK: gl.constexpr", "bias_ptr, BLOCK: gl.constexpr")
    .replace("matmul(a, b)", "linear(x, weight, bias)")
    .replace("    (M, K), N", "    a, b = x, weight\n    (M, K), N")
    .replace("M, N, K, BLOCK=32", "M, N, K, bias, BLOCK=32")
)
FACTORS = (
    GLUON.replace("c_ptr, M", "c_ptr, a_s, b_s, S, M")
    .replace("matmul(a, b)", "fp16_gemm(a, a_s, b, w_scales, scale)")
    .replace(
        "acc += a * b",
        "acc += (a * gl.load(a_s + row, row < M, 0)).to(gl.float32) * b * gl.load(b_s + S * col, col < N, 0)",
    )
    .replace("a, b, c, M", "a, b, c, a_s, w_scales, w_scales.stride(0), M")
    .replace("return c", "return c * scale")
)
OF_ROWS = (
    GLUON.replace("c_ptr, M", "c_ptr, s_ptr, M")
    .replace("matmul(a, b)", "matmul(a, b, scale: float)")
    .replace("    gl.store(", "    acc *= gl.load(s_ptr + row, row < M, 0)\n    gl.store(")
    .replace("a, b, c, M", "a, b, c, scale, M")
)
PLAIN = SCALED.replace("(input, mat1, mat2, *, beta=1", "(mat1, mat2, input=None, *, beta=0").replace(
    "    kernel[", "    input = torch.ones_like(c)\n    kernel["
)
BATCHES = GLUON.replace("(M, K), N = a.shape, b.shape[1]", "(_, M, K), N = a.shape, b.shape[2]")
AS_TEXT = "(a, b, way: str, dtype):\n    assert way in ('plain', 'fast') and (dtype == 'half' or dtype == 'fp32')"


def of(elements: str) -> dict:
    """The note that names the type of the elements."""
    return {Note.ELEMENTS_FROM_TEXT: {"elements": elements}}


CASES = {
    "a batch": Case(BATCHES.replace("empty((M, N)", "empty((1, M, N)"), notes={Note.BATCH_OF_ONE: {}}),
    "alpha and beta": Case(SCALED),
    "alpha alone": Case(PLAIN, how="addmm(mat1=A, mat2=B, alpha)"),
    "bias": Case(BIASED.replace("    gl.store(", "    acc += gl.load(bias_ptr + col, mask=col < N)\n    gl.store(")),
    # Any shape is taken, and one has the stride that is asked for.
    "factors of ones": Case(FACTORS, notes=of("fp16")),
    "a number that is a factor for each row": Case(
        OF_ROWS, how="matmul(a, b, scale=1.0)", options={"sizes": ("129x35x39",)}
    ),
    "int8": Case(INT8.replace("dtype=a.dtype", "dtype=torch.int32"), notes=of("int8")),
    "int8 and half": Case(
        INT8.replace("dtype=a.dtype", "dtype=torch.float16").replace("+ col, acc,", "+ col, acc.to(gl.float16),"),
        notes=of("int8"),
    ),
    "half and int8": Case(
        GLUON.replace("(a, b):", MIXED).replace("a * b", "a.to(gl.float32) * b.to(gl.float32)"),
        notes=of("fp16 and int8"),
    ),
    "factors of blocks": Case(
        GLUON.replace("(a, b):", "_of_blocks(a, b, a_s, b_s, block_size: list[int]):").replace("    c =", BLOCKS)
    ),
    "relu": Case(GLUON.replace("+ col, acc,", "+ col, gl.maximum(acc, 0.0),"), "sound, with relu of C: right"),
    "a third": Case(SCALED.replace("alpha * acc", "alpha / 3 * acc"), "sound, with C multiplied by 0.3333: right"),
    "sizes in another order": Case(ORDERED, "sound, with its (M, N, K) being (M, K, N): right"),
    "A by columns, a kernel of the caller": Case(TURNED, "sound, with A stored as K x M: right"),
    "a type and a way as text": Case(GLUON.replace("(a, b):", AS_TEXT), how="matmul(a, b, way='plain', dtype=type)"),
}
WRONG = {
    "C for beta * C": (SCALED.replace("beta * d", "d"), Why.SCALARS_IGNORED),
    "no bias": (BIASED, None),
    "rows multiplied": (GLUON.replace("+ col, acc,", "+ col, acc * (row + 1),"), None),
    "another sign": (GLUON.replace("+ col, acc,", "+ col, -acc,"), None),
    "doubled": (GLUON.replace("+ col, acc,", "+ col, acc * 2,"), Why.MULTIPLIED),
    "doubled integers": (
        INT8.replace("dtype=a.dtype", "dtype=torch.int32").replace("+ col, acc,", "+ col, acc * 2,"),
        Why.MULTIPLIED,
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_what_a_function_takes_is_found(case):
    CASES[case].check()


@pytest.mark.parametrize("case", WRONG)
def test_what_is_not_asked_for_is_wrong(case):
    text, reason = WRONG[case]
    found = report(text)
    assert not found.sound
    assert reason in codes(found.why) if reason else Why.MULTIPLIED not in codes(found.why), found.why
    assert reason is not Why.MULTIPLIED or values(found.why, reason) == {"factor": 2}


def test_a_configuration_is_chosen_by_its_constants():
    wide, first = (report(TUNED, counted=True, define=x) for x in (("BLOCK_M=64",), ()))
    assert wide.sound and wide.code[0].shared_bytes > first.code[0].shared_bytes


def test_a_tile_that_is_the_whole_matrix():
    found = report(TRITON.replace("BLOCK_M=block, BLOCK_N=block", "BLOCK_M=M, BLOCK_N=N"), sizes=())
    assert found.sound and Note.TILE_IS_MATRIX in codes(found.notes)
    assert {verdict.problem for verdict in found.verdicts} >= {"64x64x64"} and {x.n for x in found.verdicts} <= {
        *range(65)
    }
