"""`experiments check` on files as editors leave them: Latin-1, a byte order mark, Windows line ends; and on no text."""

from __future__ import annotations

import pytest

KERNEL = """#define TILE 16
__global__ void gemm(const float* A, const float* B, float* C, int M, int N, int K) {
    size_t row = blockIdx.y * TILE + threadIdx.y, col = blockIdx.x * TILE + threadIdx.x;
    if (row >= M || col >= N) return;
    float sum = 0;  // na\u00efve, \u00e9l\u00e9ment par \u00e9l\u00e9ment
    for (int k = 0; k < K; ++k) sum += A[row * K + k] * B[k * N + col];
    C[row * N + col] = sum;
}
"""


@pytest.fixture
def check(invoke, tmp_path, uncounted):
    def run(content: bytes):
        path = tmp_path / "kernel.cu"
        path.write_bytes(content)
        return invoke("check", path, "--size", "17", "--device", "cpu")

    return run


@pytest.mark.parametrize("encoding", ["latin-1", "utf-8-sig"])
@pytest.mark.parametrize("newline", ["\n", "\r\n"], ids=["unix", "windows"])
def test_a_source_is_read_in_the_encoding_it_has(check, encoding, newline):
    result = check(KERNEL.replace("\n", newline).encode(encoding))
    assert result.exit_code == 0, result.output
    assert "right at 17x17x17" in result.output


def test_what_nvcc_quotes_may_be_in_any_encoding(check):
    result = check(KERNEL.replace("= 0;", "= \u00e9;").encode("latin-1"))
    assert result.exit_code == 2 and "does not compile" in result.output and "kernel.cu(5)" in result.output


@pytest.mark.parametrize("content", [bytes(range(256)), KERNEL.encode("utf-16")], ids=["binary", "utf-16"])
def test_what_is_no_text_is_refused(check, content):
    result = check(content)
    assert result.exit_code == 2 and "saved as UTF-8" in result.output
