"""`experiments check` on CUDA kernels whose launch is read by running host code: sizes, grids and arguments in it."""

from __future__ import annotations

import pytest

from experiments.check.messages import Note, Why
from experiments.records.request import UsageError
from tests.experiments.check.helpers import MULTIPLY, PRODUCT, SIGNATURE, codes, kernel_body, values

ALLOCATED = "float *a, *b, *c; cudaMalloc(&a, 4 * M * K), cudaMalloc(&b, 4 * K * N), cudaMalloc(&c, 4 * M * N);"


@pytest.mark.parametrize(
    ("sizes", "grid"),
    [("M = 512, N = 256, K = 128", "32, 64"), ("M = 512, N = 512, K = 512", "64, 64")],
    ids=["sizes that differ", "equal sizes"],
)
def test_a_grid_of_numbers_is_for_the_sizes_of_its_program(run_text, sizes, grid):
    """A main is given other sizes than its own, and such a grid does not follow them."""
    unguarded = MULTIPLY.replace("if (row >= M || col >= N) return;", "")
    found = run_text(
        unguarded + f"int main() {{ const int {sizes}; {ALLOCATED} dim3 grid({grid});\n"
        "  multiply<<<grid, dim3(8, 8)>>>(a, b, c, M, N, K); }",
        ("16x24x5",),
    )
    assert found.sound and found.how.endswith("grid (cdiv(N, 8), cdiv(M, 8)), block (8, 8)")


def test_sizes_called_m_n_and_p(run_text):
    """A is of m x n, and B of n x p."""
    body = kernel_body("A[row * n + k] * B[k * p + col]", m="m", n="p", k="n", store="C[row * p + col] = sum")
    found = run_text(
        f"__global__ void multiply(const float* A, const float* B, float* C, int m, int n, int p) {{ {body} }}\n"
        "int main() { int m = 1024, n = 1024, p = 1024; float *a, *b, *c;\n"
        "  cudaMalloc(&a, 4 * m * n), cudaMalloc(&b, 4 * n * p), cudaMalloc(&c, 4 * m * p);\n"
        "  multiply<<<dim3((p + 7) / 8, (m + 3) / 4), dim3(8, 4)>>>(a, b, c, m, n, p); }"
    )
    assert found.sound and not found.assumed
    assert "(A, B, C, m, n = K, p = N), grid (cdiv(N, 8), cdiv(M, 4)), block (8, 4)" in found.how


def test_a_program_that_takes_one_size_or_three(run_text):
    found = run_text(
        f"#include <cstdlib>\n{MULTIPLY}int main(int argc, char** argv) {{ int M = 2048, N = 2048, K = 2048;\n"
        "  if (argc == 2) { M = N = K = atoi(argv[1]); }\n"
        "  else if (argc == 4) { M = atoi(argv[1]); N = atoi(argv[2]); K = atoi(argv[3]); }\n"
        f"  {ALLOCATED} multiply<<<dim3((N + 7) / 8, (M + 3) / 4), dim3(8, 4)>>>(a, b, c, M, N, K); }}"
    )
    assert found.sound and found.how.endswith("(A, B, C, M, N, K), grid (cdiv(N, 8), cdiv(M, 4)), block (8, 4)")


def test_a_launcher_whose_template_has_defaults_before_what_has_none(run_text):
    """What it also writes, which nothing tells, has memory of its own, and need not be written as a whole."""
    found = run_text(
        "template <int SIDE, bool CUT, class T>\n"
        "__global__ void multiply(const T* A, const T* B, T* C, T* positive, int M, int N, int K) {\n"
        f"  {PRODUCT}\n  if (CUT) positive[row * N + col] = sum > 0 ? sum : 0;\n}}\n"
        "template <int SIDE = 8, int ROWS = SIDE / 2, bool CUT, class T>\n"
        "void product(const T* A, const T* B, T* C, T* positive, int M, int N, int K) {\n"
        "  dim3 grid((N + SIDE - 1) / SIDE, (M + ROWS - 1) / ROWS);\n"
        "  multiply<SIDE, CUT><<<grid, dim3(SIDE, ROWS)>>>(A, B, C, positive, M, N, K);\n}"
    )
    assert found.sound and "<8, true, float>" in found.how and found.how.endswith("block (8, 4)")


def test_the_bytes_of_a_row(run_text):
    product, store = "A[row * (pitchA / 4) + k] * B[k * (pitchB / 4) + col]", "C[row * (pitchC / 4) + col] = sum"
    body = kernel_body(product, store=store)
    parameters = "float* A, float* B, float* C, int M, int N, int K, size_t pitchA, size_t pitchB, size_t pitchC"
    found = run_text(
        f"__global__ void multiply({parameters}) {{ {body} }}\n"
        f"void product({parameters.replace('pitch', 'pitch_')}) {{\n"
        "  multiply<<<dim3((N + 7) / 8, (M + 3) / 4), dim3(8, 4)>>>(A, B, C, M, N, K, pitch_A, pitch_B, pitch_C);\n}"
    )
    assert found.sound and found.how.endswith("block (8, 4)")


def test_numbers_that_nothing_tells_are_asked_for_where_the_result_is_wrong(run_text):
    """Names say what one of its sizes is, and the launcher is given 1 for the others."""
    product, store = "A[row * depth + k] * B[k * N + col]", "C[row * N + col] = sum"
    body = kernel_body(product, m="pages * lines", k="depth", store=store)
    parameters = "const float* A, const float* B, float* C, int pages, int lines, int depth, int N"
    with pytest.raises(UsageError, match="what is pages = 1 and what is lines = 1 and what is depth = 1[?] multiply"):
        run_text(
            f"__global__ void multiply({parameters}) {{ {body} }}\n"
            f"void product({parameters}) {{\n  int rows = pages * lines;\n"
            "  multiply<<<dim3((N + 7) / 8, (rows + 3) / 4), dim3(8, 4)>>>(A, B, C, pages, lines, depth, N);\n}"
        )


ADDED = """
__global__ void shifted(const float* A, const float* B, float* C, int N) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < N) C[i] = fmaxf(A[i] + B[i], 0.0f);
}
"""


@pytest.mark.parametrize("asked", [{}, {"kernel": "shifted"}], ids=["alone", "asked for"])
def test_a_file_without_a_product(run_text, asked):
    with pytest.raises(UsageError, match=r"kernel\.cu has no kernel of a product of matrices.* and shifted does not"):
        run_text(ADDED, **asked)


def test_a_kernel_that_sums_nothing_is_not_meant(run_text):
    assert run_text(ADDED + MULTIPLY).name == "multiply"


def test_shares_of_k_that_are_added_to_c(run_text):
    """By atomics, which read no element by themselves."""
    body = PRODUCT.replace("C[row * N + col] = sum", "atomicAdd(&C[row * N + col], sum)")
    body = body.replace("int k = 0; k < K; ++k", "int k = blockIdx.z; k < K; k += gridDim.z")
    found = run_text(
        f"__global__ void multiply{SIGNATURE} {{ {body} }}\n"
        f"void product{SIGNATURE} {{\n"
        "  multiply<<<dim3((N + 7) / 8, (M + 3) / 4, 2), dim3(8, 4)>>>(A, B, C, M, N, K);\n}"
    )
    assert codes(found.why) == [Why.NEEDS_ZEROED_C]


def test_tensor_maps_behind_pointers(run_text):
    parameters = "const CUtensorMap* a, const CUtensorMap* b, float* C, int M, int N, int K"
    with pytest.raises(UsageError, match=r"multiply takes tensor maps behind pointers \(a, b\).*: pass each by value"):
        run_text(f"#include <cuda.h>\n__global__ void multiply({parameters}) {{ while (K--); }}\n")


def test_a_launcher_that_is_a_method_of_matrices(run_text):
    """It is made with its sides, and has its memory and its launch itself."""
    found = run_text(
        f"""
class Matrix {{
 public:
  Matrix(int rows, int cols);
  void multiply(const Matrix& right, Matrix& out) const;

 private:
  float* data_;
  int rows_, cols_, threads_;
}};
{MULTIPLY}
Matrix::Matrix(int rows, int cols) : rows_(rows), cols_(cols) {{
  threads_ = 1024;
  cudaMalloc(&data_, 4 * rows * cols);
}}
void Matrix::multiply(const Matrix& right, Matrix& out) const {{
  dim3 block(8, threads_ / 128), grid((out.cols_ + 7) / 8, (out.rows_ + block.y - 1) / block.y);
  ::multiply<<<grid, block>>>(data_, right.data_, out.data_, rows_, right.cols_, cols_);
}}
"""
    )
    assert found.sound and values(found.notes, Note.LAUNCH_RECORDED)["function"] == "multiply"
    assert "(A, B, C, M, N, K)" in found.how and found.how.endswith("block (8, 8)")
