"""`experiments check` on CUDA files as they are published: headers that are not here, host code, several kernels."""

from __future__ import annotations

import pytest

from experiments.check.command import open_file
from experiments.check.cuda import parameters, syntax
from experiments.check.cuda.compile import Unit
from experiments.check.messages import Note
from experiments.check.subject import Options
from experiments.records.request import UsageError
from tests.experiments.check.helpers import MULTIPLY, SIGNATURE, SIZE, check_file, kernel_body, values

BODY = """{
  int row = blockIdx.y * T + threadIdx.y, col = blockIdx.x * T + threadIdx.x;
  float sum = 0;
  if (row < M && col < N) for (int k = 0; k < K; ++k) sum += A[row * K + k] * B[k * N + col];
  if (row < M && col < N) C[row * N + col] = sum;
}
"""
KERNEL = f"__global__ void multiply{SIGNATURE} {BODY}"


def test_headers_that_are_not_here(run_text):
    """One of the project is found where it lies, others are stood in for, and what still fails is left out."""
    header = "constexpr int T = 16;\nconstexpr int twice(int x) { return 2 * x; }\n"
    found = run_text(
        f"""#include "tile.h"
#include <cublas_v2.h>
#include <helper_cuda.h>
#include <of_nobody/matrix.hpp>
{KERNEL.replace("float sum = 0;", "float sum = twice(0);")}
cublasHandle_t handle = nullptr;
int compare(float* a, float* b, float* c, int n) {{
  float one = 1;
  if (cublasCreate(&handle) != CUBLAS_STATUS_SUCCESS) return 1;
  return cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_T, n, n, n, &one, a, n, b, n, &one, c, n);
}}
int main(int argc, char** argv) {{ of_nobody::Matrix m(argc); return m.rows(); }}
""",
        files={"include/tile.h": header},
    )
    assert found.sound
    headers = "cublas_v2.h, helper_cuda.h, of_nobody/matrix.hpp"
    assert values(found.notes, Note.HEADERS_REPLACED) == {"headers": headers}
    assert values(found.notes, Note.HOST_CODE_LEFT_OUT) == {"names": "main"}


@pytest.mark.parametrize("top", [".git/HEAD", "LICENSE", "CMakeLists.txt"])
def test_a_header_at_the_top_of_a_project_whose_folders_have_a_readme(run_text, top):
    names = (top, "src/README.md" if top != "CMakeLists.txt" else "src/Makefile", "common/tiles/side.h")
    assert run_text(f"#include <side.h>\n{KERNEL}", files=dict.fromkeys(names, "#define T 16\n")).sound


def test_a_kernel_that_does_not_compile_is_told_with_what_is_missing(run_text):
    with pytest.raises(UsageError, match=r"pass the folder that has it with -I"):
        run_text(f"#include <of_nobody/tile.hpp>\n{KERNEL}", block="16,16", grid="1")


def test_the_only_kernel_that_takes_three_matrices_is_meant(run_text):
    others = "__global__ void fill(float *x, int n, float value) {}\n__global__ void show(const float x[], int n) {}\n"
    found = run_text(f"#define T 16\n{others}{KERNEL}")
    assert found.sound and found.name == "multiply"


def test_flags_reach_the_compiler(run_text):
    assert run_text(f"#define T SIDE\n{KERNEL}", flags="-DSIDE=8").sound


@pytest.mark.parametrize(
    "head",
    [
        "\n__launch_bounds__(T * T) __global__ void",
        "void __global__",
        "__global__ void __cluster_dims__(((T + 15) / 16), 1, 1)",
    ],
    ids=["bounds", "void_first", "cluster"],
)
def test_what_may_stand_around_global(run_text, head):
    assert run_text(f"template <int T> {head} multiply{SIGNATURE} {BODY}", template="16").sound


def test_an_instance_of_several(run_text):
    """Host code launches two: the first without a word, and --template decides. An assert means a build without it."""
    kernel = f"namespace v1 {{ template <int T> __global__ void multiply{SIGNATURE} {BODY} }} using v1::multiply;"
    kernel += "bool fits(int m) {\nassert(m < absent);\nreturn m > 0; }"
    grid = "dim3((N + {0} - 1) / {0}, (M - 1) / {0} + 1)"
    launches = "".join(
        f"multiply<{side}><<<{grid.format(side)}, dim3({side}, {side})>>>(A, B, C, M, N, K);" for side in (4, 8)
    )
    text = f"{kernel} void start{SIGNATURE} {{ if (fits(M)) {{ {launches} }} }}"
    first, second = run_text(text), run_text(text, template="8")
    assert first.sound and first.how.endswith("grid (cdiv(N, 4), cdiv(M, 4)), block (4, 4)")
    assert second.sound and second.how.endswith("grid (cdiv(N, 8), cdiv(M, 8)), block (8, 8)")
    recorded = values(second.notes, Note.LAUNCH_RECORDED)
    assert (recorded["function"], recorded["place"]) == ("start", "kernel.cu:9")
    assert recorded["options"] == ": --grid 'cdiv(N, 8),cdiv(M, 8)' --block '8,8'"
    assert values(second.notes, Note.STATEMENTS_LEFT_OUT) == {"names": "fits"}


def test_a_sibling_that_cannot_be_run_here(run_text):
    sibling = "struct Pair { float* first; int second; };\n__global__ void fill(Pair p) { p.first[0] = p.second; }\n"
    asserted = KERNEL.replace("float sum", "assert(K > 0); float sum")  # with no header for it
    assert run_text(f"#define T 16\n{sibling}{asserted}", kernel="multiply").sound


def test_the_size_that_is_left():
    declared = syntax.read_parameters("float* C, const float* A, const float* B, int inner, int wC, int hC")
    assert parameters.roles_by_name(declared) == ["C", "A", "B", "K", "N", "M"]


def test_a_main_is_run_once_and_its_launch_carried_over(run_text):
    """The names of sizes say what they are, one is in the grid alone, and the program would fail after its launch."""
    product, store = "A[row * wA + k] * B[k * wB + col]", "C[row * wB + col] = sum"
    body = kernel_body(product, m=1 << 20, n="wB", k="wA", store=store)
    found = run_text(
        f"""#include <cstdlib>
__global__ void multiply(float* C, float* A, float* B, int wA, int wB) {{ {body} }}
int main(int argc, const char** argv) {{
  const int rows = 96, inner = 64, columns = 160;
  float *a, *b, *c;
  if (cudaMalloc(&a, rows * inner * 4) || cudaMalloc(&b, inner * columns * 4)) exit(1);
  cudaMalloc(&c, rows * columns * 4);
  dim3 block(16, 8), grid;
  grid.x = columns / block.x;
  grid.y = rows / block.y;
  multiply<<<grid, block>>>(c, a, b, inner, columns);
  abort();
}}
""",
        sizes=("24x32x5",),
    )
    assert found.sound
    assert found.how == "multiply(C, A, B, wA = K, wB = N), grid (cdiv(N, 16), cdiv(M, 8)), block (16, 8)"


def test_sizes_that_are_constants_of_the_source(tmp_path):
    """They are not what is called M and N, which are a tile's; smaller ones stand in their places."""
    path, store = tmp_path / "kernel.cu", "C[row * N_SIZE + col] = sum"
    body = kernel_body("A[row * K_SIZE + k] * B[k * N_SIZE + col]", store, m="M_GLOBAL", n="N_SIZE", k="K_SIZE")
    path.write_text(
        f"""#define M 16
#define N 8
#define M_TILES 64
#define M_GLOBAL (M * M_TILES)  // the rows
const int N_TILES = 96, N_SIZE = N * N_TILES;
const int K_SIZE = 576;
__global__ void multiply(const float* A, const float* B, float* C) {{ {body} }}"""
    )
    kernel = open_file(path, Options(grid="N_TILES,M_TILES", block="8,16"))
    assert kernel.fixed == {"m": 256, "n": 128, "k": 192}
    assert {"name": "M_TILES", "value": 16} in [note.values for note in kernel.notes]


def test_half_in_float_out_and_b_by_columns(run_text):
    """A template of the type, launched by a function that PyTorch calls, which gives it a C of its own."""
    product = "float(A[row * K + k]) * float(B[col * K + k])"
    body = kernel_body(product)
    found = run_text(
        f"""#include <cuda_fp16.h>
#include <torch/extension.h>
template <typename T> __global__ void multiply(const T* A, const T* B, float* C, int M, int N, int K) {{ {body} }}
torch::Tensor linear(torch::Tensor a, torch::Tensor b) {{
  TORCH_CHECK(a.is_cuda(), "on a GPU");
  int M = a.size(0), K = a.size(1), N = b.size(1);
  torch::Tensor c = torch::empty({{M, N}}, a.options().dtype(torch::kFloat32));
  multiply<<<dim3((N + 15) / 16, (M + 15) / 16), dim3(16, 16)>>>(
      (half*)a.data_ptr(), (half*)b.data_ptr(), c.data_ptr<float>(), M, N, K);
  return c;
}}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {{ m.def("linear", &linear, "C"); }}
"""
    )
    assert found.sound and found.how.endswith("block (16, 16), B stored as N x K")
    assert values(found.notes, Note.LAYOUT_FOUND)["option"] == ": --layout B=NxK"


def test_a_separate_result_and_what_each_size_launches(run_text):
    """D = alpha A B + beta C, in one of two instances, by size."""
    product, store = "A[row * lda + k] * B[k * N + col]", "D[row * N + col] = alpha * sum + beta * C[row * N + col]"
    body = kernel_body(product, store=store)
    found = run_text(
        f"""
template <int T> __global__ void multiply(int M, int N, int K, float alpha, const float* A, int lda, const float* B,
                                          float beta, const float* C, float* D) {{ {body} }}
template <typename E>
void start(int M, int N, int K, const E* alpha, E* A, E* B, const E* beta, E* C, E* D) {{
  dim3 block(M >= 128 ? 8 : 4, 4), grid((N - 1) / block.x + 1, (M + 3) / 4);
  if (M >= 128) multiply<8><<<grid, block>>>(M, N, K, *alpha, A, K, B, *beta, C, D);
  else multiply<4><<<grid, block>>>(M, N, K, *alpha, A, K, B, *beta, C, D);
}}
""",
        sizes=("19x21x5", "131x9x5"),
    )
    assert found.sound


START = "multiply<<<dim3((n + 7) / 8, (m + 3) / 4), dim3(8, 4)>>>(a, b, c, m, n, k);"
GRID = "grid (cdiv(N, 8), cdiv(M, 4)), block (8, 4)"


def test_structs_by_value_in_a_header_that_needs_what_includes_it(uncounted, tmp_path):
    """The types of the file that includes it, a struct that host code fills, and host code that is too old."""
    kernel = """#pragma once
void print() { cudaDeviceProp device; cudaGetDeviceProperties(&device, 0); printf("%d", device.clockRate); }
__global__ void other(Matrix x) { no_such_function(x); }
__global__ void multiply(const Matrix A, const Matrix B, Matrix C) {
  int row = blockIdx.y * TILE + threadIdx.y, col = blockIdx.x * TILE + threadIdx.x;
  if (row >= C.height || col >= C.width) return;
  number sum = 0;
  for (int k = 0; k < A.width; ++k) sum += A.elements[row * A.width + k] * B.elements[k * B.width + col];
  C.elements[row * C.width + col] = sum;
}
"""
    main = """#include <cstdio>
typedef float number;
typedef struct { int width, height;  // (columns, rows)
  number* elements; } Matrix;
#define TILE 8
#include "multiply.cuh"
Matrix on_device(const Matrix& host) {
  Matrix made = host;
  cudaMalloc(&made.elements, host.width * host.height * sizeof(number));
  cudaMemcpy(made.elements, host.elements, host.width * host.height * sizeof(number), cudaMemcpyHostToDevice);
  return made;
}
void product(Matrix a, Matrix b, Matrix c) {
  print();
  Matrix target = c;
  cudaMalloc(&target.elements, c.width * c.height * sizeof(number));
  multiply<<<dim3((c.width + TILE - 1) / TILE, (c.height + TILE - 1) / TILE), dim3(TILE, TILE)>>>(
      on_device(a), on_device(b), target);
}
"""
    header = tmp_path / "multiply.cuh"
    header.write_text(kernel, encoding="utf-8")
    (tmp_path / "main.cu").write_text(main, encoding="utf-8")
    found = check_file(header, SIZE, kernel="multiply")
    assert found.sound and found.how == "multiply(A, B, C), grid (cdiv(N, 8), cdiv(M, 8)), block (8, 8)"
    recorded = values(found.notes, Note.LAUNCH_RECORDED)
    assert (recorded["function"], recorded["place"]) == ("product", "main.cu:13")
    assert values(found.notes, Note.HOST_CODE_LEFT_OUT) == {"names": "print"}


@pytest.mark.parametrize(
    "head",
    [
        'if (argc != 5 || strcmp(argv[1], "-s")) exit(1);\n'
        "int m = atoi(argv[2]), k = atoi(argv[3]), n = atoi(argv[4]);",
        'int m, n, k;\n scanf("%d", &m);\n scanf("%d %d", &k, &n);',
        "int m = 8192, n = 4096;\n const int k = K_TOTAL;",
    ],
    ids=["argv", "stdin", "own"],
)
def test_a_main_is_told_sizes(run_text, head):
    """By the words of its command line, by what it reads, and in place of those that it has."""
    found = run_text(
        f"""#include <cstdio>
#include <cstdlib>
#include <cstring>
#include "missing.hpp"
#define T 16
#define K_TOTAL (T * 512)
{MULTIPLY}
int main(int argc, char** argv) {{
  {head}
  missing::Timer timer(m);
  timer.start();
  float *a, *b, *c;
  cudaMalloc(&a, 4 * m * k), cudaMalloc(&b, 4 * k * n), cudaMalloc(&c, 4 * m * n);
  cudaDeviceProp device;
  cudaGetDeviceProperties(&device, 0);
  if (device.sharedMemPerMultiprocessor > 65536) return 0;
  {START}
}}
"""
    )
    assert found.sound and found.how.endswith(GRID)
    assert "little shared memory" in values(found.notes, Note.LAUNCH_RECORDED)["place"]


def test_a_main_whose_matrices_are_in_a_file_goes_on_without_them(run_text):
    found = run_text(
        f"""#include <cstdio>
#include <vector>
{MULTIPLY}
bool read(std::vector<float>& x, int& m, int& n, int& k) {{ return fopen("matrices.bin", "rb") != nullptr; }}
int main() {{
  int m, n, k;
  std::vector<float> x;
  if (!read(x, m, n, k)) return -1;
  float *a, *b, *c;
  cudaMalloc(&a, 4 * m * k), cudaMalloc(&b, 4 * k * n), cudaMalloc(&c, 4 * m * n);
  cudaMemcpy(a, x.data(), 4 * m * k, cudaMemcpyHostToDevice);
  {START}
}}
"""
    )
    assert found.sound and found.how.endswith(GRID)
    assert "exit with an error" in values(found.notes, Note.LAUNCH_RECORDED)["place"]


def test_a_launch_in_a_macro_with_flags_that_nothing_tells(run_text):
    """PyTorch's tensors, whose types are checked and printed, and a choice of stages."""
    found = run_text(
        f"""#include <torch/extension.h>
template <int STAGES, bool SWIZZLE> {MULTIPLY}
#define CHECK_TYPE(x, type) \\
  if (x.options().dtype() != type) {{ std::cout << x.options() << std::endl; throw std::runtime_error("no " #type); }}
#define LAUNCH(stages, swizzle) \\
  multiply<stages, swizzle><<<dim3((n + 7) / 8, (m + 3) / 4), dim3(8, 4)>>>( \\
      reinterpret_cast<float*>(x.data_ptr()), y.data_ptr<float>(), out.data_ptr<float>(), m, n, k)
namespace project {{
void product(torch::Tensor x, torch::Tensor y, torch::Tensor out, int stages, bool swizzle) {{
  CHECK_TYPE(x, torch::kFloat32)
  const int m = x.size(0), k = x.size(1), n = y.size(1);
  if (!swizzle) return;
  if (stages == 2) LAUNCH(2, true);
  else LAUNCH(3, true);
}}
}}
"""
    )
    assert found.sound and found.how == f"multiply<2, true>(A, B, C, M, N, K), {GRID}"
    assert values(found.notes, Note.LAUNCH_RECORDED)["assumed"] == " with stages = 2, swizzle = true"


def test_whole_numbers_without_a_sign(run_text):
    words = MULTIPLY.replace("const float*", "const unsigned int*").replace("float* C", "float* C")
    assert run_text(words.replace("float sum", "unsigned sum"), block="8,4", grid="cdiv(N,8),cdiv(M,4)").sound


BYTES = """
using Word = int;
{head}__global__ void other(float* x) {{ helper(x); }}
__global__ void products(const unsigned char* a, const unsigned char* b, Word* c, int m, int n, int k, int alpha,
                         int beta) {{
  int row = blockIdx.y * 8 + threadIdx.y, col = blockIdx.x * 8 + threadIdx.x;
  if (row >= m || col >= n) return;
  Word sum = 0;
  for (int i = 0; i < k; ++i) sum += a[row * k + i] * b[i * n + col];
  c[row * n + col] = alpha * sum + beta * c[row * n + col];
}}
"""
HELPER = """#include <cooperative_groups.h>
namespace cg = cooperative_groups;
__device__ void helper(float* x) { cg::this_thread_block().sync(); x[0] = 1; }
"""
LINKED = """
using Word = int;
__global__ void products(const unsigned char*, const unsigned char*, Word*, int, int, int, int, int);
__global__ void other(float*);
void start(int which, const unsigned char* a, const unsigned char* b, Word* c, int M, int N, int K, int alpha,
           int beta) {
  if (which == 0) other<<<1, 32>>>(nullptr);
  else if (which == 7) products<<<dim3((N + 7) / 8, (M + 7) / 8), dim3(8, 8)>>>(a, b, c, M, N, K, alpha, beta);
}
"""


def test_a_kernel_that_is_linked_with_what_launches_it_by_a_number(run_text, tmp_path):
    """Bytes without a sign, whole alpha and beta; what another kernel alone needs is not compiled."""
    found = run_text(BYTES.format(head=HELPER), files={"src/start.cu": LINKED}, kernel="products")
    assert found.sound and values(found.notes, Note.LAUNCH_RECORDED)["assumed"] == " with which = 7"
    path = tmp_path / "project" / "src" / "kernel.cu"
    given = Unit(path, (), (), tmp_path, "products", path).compose()
    assert "cooperative_groups" not in given and "helper" not in given and "void other(float* x)" in given
    assert "cooperative_groups" in Unit(path, (), (), tmp_path, "other", path).compose()
