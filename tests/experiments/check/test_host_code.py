"""`experiments check` on CUDA files as they are published: launches in host code, and headers that are absent."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from experiments.check.command import open_file
from experiments.check.cuda import headers, parameters, syntax
from experiments.check.cuda.compile import Unit
from experiments.check.messages import Note, Why
from experiments.check.subject import Options
from experiments.records.request import UsageError
from tests.experiments.check.helpers import MULTIPLY, PRODUCT, SIGNATURE, SIZE, check_file, codes, kernel_body, values

GRID = "grid (cdiv(N, 8), cdiv(M, 4)), block (8, 4)"
LAUNCH = "<<<dim3((N + 7) / 8, (M + 3) / 4), dim3(8, 4)>>>"
ALLOCATED = "float *a, *b, *c; cudaMalloc(&a, 4 * M * K), cudaMalloc(&b, 4 * K * N), cudaMalloc(&c, 4 * M * N);"
START = f"{ALLOCATED} multiply{LAUNCH}(a, b, c, M, N, K);"


class Case(NamedTuple):
    """A sound file, the end of what the report says of its launch, and the values of a note of each code."""

    text: str
    how: str = GRID
    notes: dict[Note, dict[str, str]] = {}
    options: dict = {}
    files: dict[str, str] = {}


OF_M_N_P = kernel_body("A[row * n + k] * B[k * p + col]", m="m", n="p", k="n", store="C[row * p + col] = sum")
ROWS_IN_BYTES = kernel_body(
    "A[row * (pitchA / 4) + k] * B[k * (pitchB / 4) + col]", store="C[row * (pitchC / 4) + col] = sum"
)
PITCHED = "float* A, float* B, float* C, int M, int N, int K, size_t pitchA, size_t pitchB, size_t pitchC"
UNKNOWN_SIZE = kernel_body(
    "A[row * wA + k] * B[k * wB + col]", m=1 << 20, n="wB", k="wA", store="C[row * wB + col] = sum"
)
WHOLE_NUMBERS = kernel_body("a[row * n + k] * b[k * n + col]", m="n", n="n", k="n", store="c[row * n + col] = sum")
HALVES = kernel_body("float(A[row * K + k]) * float(B[col * K + k])")
RESULT = kernel_body(
    "A[row * lda + k] * B[k * N + col]", store="D[row * N + col] = alpha * sum + beta * C[row * N + col]"
)
SIDE = """{
  int row = blockIdx.y * T + threadIdx.y, col = blockIdx.x * T + threadIdx.x;
  float sum = TWICE(0);
  if (row < M && col < N) for (int k = 0; k < K; ++k) sum += A[row * K + k] * B[k * N + col];
  if (row < M && col < N) C[row * N + col] = sum;
}"""
CASES = {
    # A main is given other sizes than its own, and a grid of numbers does not follow them.
    "grid of numbers": Case(
        MULTIPLY.replace("if (row >= M || col >= N) return;", "")
        + f"int main() {{ const int M = 512, N = 256, K = 128; {ALLOCATED} dim3 grid(32, 64);\n"
        "  multiply<<<grid, dim3(8, 8)>>>(a, b, c, M, N, K); }",
        "grid (cdiv(N, 8), cdiv(M, 8)), block (8, 8)",
        options={"sizes": ("16x24x5",)},
    ),
    # A is of m x n and B of n x p; the program takes one size or three.
    "one size or three, m, n and p": Case(
        "#include <cstdlib>\n"
        f"__global__ void multiply(float* A, float* B, float* C, int m, int n, int p) {{ {OF_M_N_P} }}\n"
        "int main(int argc, char** argv) { int m = 2048, n = 2048, p = 2048; float *a, *b, *c;\n"
        "  if (argc == 2) { m = n = p = atoi(argv[1]); }\n"
        "  else if (argc == 4) { m = atoi(argv[1]); n = atoi(argv[2]); p = atoi(argv[3]); }\n"
        "  cudaMalloc(&a, 4 * m * n), cudaMalloc(&b, 4 * n * p), cudaMalloc(&c, 4 * m * p);\n"
        "  multiply<<<dim3((p + 7) / 8, (m + 3) / 4), dim3(8, 4)>>>(a, b, c, m, n, p); }",
        f"(A, B, C, m, n = K, p = N), {GRID}",
    ),
    # The template has defaults before a parameter without one; what is also written has memory of its own.
    "template with defaults": Case(
        "template <int SIDE, bool CUT, class T>\n"
        "__global__ void multiply(const T* A, const T* B, T* C, T* positive, int M, int N, int K) {\n"
        f"  {PRODUCT}\n  if (CUT) positive[row * N + col] = sum > 0 ? sum : 0;\n}}\n"
        "template <int SIDE = 8, int ROWS = SIDE / 2, bool CUT, class T>\n"
        "void product(const T* A, const T* B, T* C, T* positive, int M, int N, int K) {\n"
        "  dim3 grid((N + SIDE - 1) / SIDE, (M + ROWS - 1) / ROWS);\n"
        "  multiply<SIDE, CUT><<<grid, dim3(SIDE, ROWS)>>>(A, B, C, positive, M, N, K);\n}"
    ),
    "bytes of a row": Case(
        f"__global__ void multiply({PITCHED}) {{ {ROWS_IN_BYTES} }}\n"
        f"void product({PITCHED.replace('pitch', 'pitch_')}) {{\n"
        f"  multiply{LAUNCH}(A, B, C, M, N, K, pitch_A, pitch_B, pitch_C);\n}}"
    ),
    "method of matrices": Case(
        "class Matrix {\n public:\n  Matrix(int rows, int cols);\n"
        "  void multiply(const Matrix& right, Matrix& out) const;\n"
        f" private:\n  float* data_;\n  int rows_, cols_, threads_;\n}};\n{MULTIPLY}"
        "Matrix::Matrix(int rows, int cols) : rows_(rows), cols_(cols) {\n"
        "  threads_ = 1024;\n  cudaMalloc(&data_, 4 * rows * cols);\n}\n"
        "void Matrix::multiply(const Matrix& right, Matrix& out) const {\n"
        "  dim3 block(8, threads_ / 128), grid((out.cols_ + 7) / 8, (out.rows_ + block.y - 1) / block.y);\n"
        "  ::multiply<<<grid, block>>>(data_, right.data_, out.data_, rows_, right.cols_, cols_);\n}\n",
        "(A, B, C, M, N, K), grid (cdiv(N, 8), cdiv(M, 8)), block (8, 8)",
        {Note.LAUNCH_RECORDED: {"function": "multiply"}},
    ),
    # One header of the project is found where it lies, others are stood in for; what still fails is left out. Beside
    # the only kernel that takes three matrices lie others, of which one cannot be run here; flags reach the compiler.
    "headers that are absent": Case(
        '#include "tile.h"\n#include <cublas_v2.h>\n#include <helper_cuda.h>\n#include <of_nobody/matrix.hpp>\n'
        "struct Pair { float* first; int second; };\n__global__ void fill(Pair p) { p.first[0] = p.second; }\n"
        "__global__ void show(const float x[], int n) {}\n"
        f"__global__ void multiply{SIGNATURE} {SIDE.replace('int row', 'assert(K > 0); int row', 1)}\n"
        "cublasHandle_t handle = nullptr;\n"
        "int compare(float* a, float* b, float* c, int n) {\n  float one = 1;\n"
        "  if (cublasCreate(&handle) != CUBLAS_STATUS_SUCCESS) return 1;\n"
        "  return cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_T, n, n, n, &one, a, n, b, n, &one, c, n);\n}\n"
        "int main(int argc, char** argv) { of_nobody::Matrix m(argc); return m.rows(); }\n",
        "grid (cdiv(N, T), cdiv(M, T)), block (T, T)",
        {
            Note.HEADERS_REPLACED: {"headers": "cublas_v2.h, helper_cuda.h, of_nobody/matrix.hpp"},
            Note.HOST_CODE_LEFT_OUT: {"names": "main"},
        },
        {"flags": "-DTWICE=twice"},
        {"include/tile.h": "constexpr int T = 16;\nconstexpr int twice(int x) { return 2 * x; }\n"},
    ),
    # The names of sizes say what they are, one is in the grid alone, and the program would fail after its launch.
    "one run of a main": Case(
        "#include <cstdlib>\n"
        f"__global__ void multiply(float* C, float* A, float* B, int wA, int wB) {{ {UNKNOWN_SIZE} }}\n"
        "int main() {\n  const int rows = 96, inner = 64, columns = 160;\n  float *a, *b, *c;\n"
        "  if (cudaMalloc(&a, rows * inner * 4) || cudaMalloc(&b, inner * columns * 4)) exit(1);\n"
        "  cudaMalloc(&c, rows * columns * 4);\n  dim3 block(16, 8), grid;\n"
        "  grid.x = columns / block.x;\n  grid.y = rows / block.y;\n"
        "  multiply<<<grid, block>>>(c, a, b, inner, columns);\n  abort();\n}\n",
        "multiply(C, A, B, wA = K, wB = N), grid (cdiv(N, 16), cdiv(M, 8)), block (16, 8)",
        options={"sizes": ("24x32x5",)},
    ),
    # A function that PyTorch calls takes two tensors of any name, half, and returns a C of its own, in fp32.
    "tensors of half, B by columns": Case(
        "#include <cuda_fp16.h>\n#include <torch/extension.h>\n"
        "template <typename T>\n"
        f"__global__ void multiply(const T* A, const T* B, float* C, int M, int N, int K) {{ {HALVES} }}\n"
        "torch::Tensor linear(const torch::Tensor& first, torch::Tensor second) {\n"
        '  TORCH_CHECK(first.is_cuda(), "on a GPU");\n'
        "  int M = first.size(0), K = first.sizes()[1], N = second.size(1);\n"
        "  torch::Tensor c = torch::empty({M, N}, first.options().dtype(torch::kFloat32));\n"
        f"  multiply{LAUNCH}((half*)first.data_ptr(), (half*)second.data_ptr(), c.data_ptr<float>(), M, N, K);\n"
        '  return c;\n}\nPYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("linear", &linear, "C"); }\n',
        "block (8, 4), B stored as N x K",
        {Note.LAYOUT_FOUND: {"option": ": --layout B=NxK"}, Note.LAUNCH_RECORDED: {"function": "linear"}},
    ),
    # D = alpha A B + beta C, in one of two instances, by size.
    "separate result": Case(
        "template <int T> __global__ void multiply(int M, int N, int K, float alpha, const float* A, int lda,\n"
        f"  const float* B, float beta, const float* C, float* D) {{ {RESULT} }}\n"
        "template <typename E>\n"
        "void start(int M, int N, int K, const E* alpha, E* A, E* B, const E* beta, E* C, E* D) {\n"
        "  dim3 block(M >= 128 ? 8 : 4, 4), grid((N - 1) / block.x + 1, (M + 3) / 4);\n"
        "  if (M >= 128) multiply<8><<<grid, block>>>(M, N, K, *alpha, A, K, B, *beta, C, D);\n"
        "  else multiply<4><<<grid, block>>>(M, N, K, *alpha, A, K, B, *beta, C, D);\n}\n",
        "grid and block as its host code has them",
        options={"sizes": ("19x21x5", "131x9x5")},
    ),
    # A main is told sizes by its command line, by what it reads, and in place of its own.
    "sizes of argv": Case(
        f"#include <cstdlib>\n#include <cstring>\n{MULTIPLY}int main(int argc, char** argv) {{\n"
        '  if (argc != 5 || strcmp(argv[1], "-s")) exit(1);\n'
        f"  int M = atoi(argv[2]), K = atoi(argv[3]), N = atoi(argv[4]);\n  {START} }}"
    ),
    "sizes of the input": Case(
        f"#include <cstdio>\n{MULTIPLY}int main() {{\n"
        f'  int M, N, K;\n  scanf("%d", &M);\n  scanf("%d %d", &K, &N);\n  {START} }}'
    ),
    "sizes of its own, for a small GPU": Case(
        f"#define T 16\n#define K_TOTAL (T * 512)\n{MULTIPLY}int main() {{\n"
        "  int M = 8192, N = 4096;\n  const int K = K_TOTAL;\n"
        "  cudaDeviceProp device;\n  cudaGetDeviceProperties(&device, 0);\n"
        f"  if (device.sharedMemPerMultiprocessor > 65536) return 0;\n  {START} }}",
        notes={Note.LAUNCH_RECORDED: {"place": "kernel.cu:9, on a GPU with little shared memory"}},
    ),
    "size that a function of main reads": Case(
        "#include <cstdio>\n#include <cstdlib>\n"
        "__global__ void multiply(unsigned a[], unsigned b[], unsigned c[], unsigned n) "
        f"{{ {WHOLE_NUMBERS.replace('float', 'unsigned')} }}\n"
        "static void begin(unsigned& N, unsigned& seed, unsigned** a, unsigned** b, unsigned** c) {\n"
        '  if (scanf("%u %u", &N, &seed) != 2) exit(1);\n  if (seed > 1) exit(1);\n'
        "  cudaMalloc(a, 4 * N * N), cudaMalloc(b, 4 * N * N), cudaMalloc(c, 4 * N * N);\n}\n"
        "int main() {\n  unsigned N, seed, *a, *b, *c;\n  begin(N, seed, &a, &b, &c);\n"
        "  multiply<<<dim3((N + 7) / 8, (N + 3) / 4), dim3(8, 4)>>>(a, b, c, N);\n}\n",
        "grid (cdiv(N, 8), cdiv(N, 4)), block (8, 4)",
    ),
    "matrices in a file that is absent": Case(
        f"#include <cstdio>\n#include <vector>\n{MULTIPLY}"
        'bool read(std::vector<float>& x, int& m, int& n, int& k) { return fopen("data.bin", "rb") != nullptr; }\n'
        "int main() {\n  int M, N, K;\n  std::vector<float> x;\n  if (!read(x, M, N, K)) return -1;\n"
        f"  {START.replace('; multiply', '; cudaMemcpy(a, x.data(), 4 * M * K, cudaMemcpyHostToDevice); multiply')} }}",
        notes={Note.LAUNCH_RECORDED: {"place": "kernel.cu:10, which continues where it would exit with an error"}},
    ),
    # PyTorch's tensors, whose types are checked and printed, and a choice of stages and flags that nothing tells.
    "launch in a macro": Case(
        f"#include <torch/extension.h>\ntemplate <int STAGES, bool SWIZZLE> {MULTIPLY}"
        "#define CHECK_TYPE(x, type) \\\n"
        '  if (x.options().dtype() != type) { std::cout << x.options(); throw std::runtime_error("no " #type); }\n'
        f"#define LAUNCH(stages, swizzle) \\\n  multiply<stages, swizzle>{LAUNCH}( \\\n"
        "      reinterpret_cast<float*>(x.data_ptr()), y.data_ptr<float>(), out.data_ptr<float>(), M, N, K)\n"
        "namespace project {\n"
        "void product(torch::Tensor x, torch::Tensor y, torch::Tensor out, int stages, bool swizzle) {\n"
        "  CHECK_TYPE(x, torch::kFloat32)\n  const int M = x.size(0), K = x.size(1), N = y.size(1);\n"
        "  if (!swizzle) return;\n  if (stages == 2) LAUNCH(2, true);\n  else LAUNCH(3, true);\n}\n}\n",
        f"multiply<2, true>(A, B, C, M, N, K), {GRID}",
        {Note.LAUNCH_RECORDED: {"assumed": " with stages = 2, swizzle = true"}},
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_launch_is_read_from_host_code(run_text, case):
    text, how, notes, options, files = CASES[case]
    found = run_text(text, files=files, **options)
    assert found.sound and found.how.endswith(how), (found.headline, found.how, found.why)
    for code, expected in notes.items():
        assert expected.items() <= values(found.notes, code).items(), found.notes


def test_an_instance_of_several(run_text):
    """Host code launches two: the first without a word, and --template decides. An assert means a build without it."""
    kernel = f"namespace v1 {{ template <int T> __global__ void multiply{SIGNATURE} {SIDE.replace('TWICE', '')} }}\n"
    kernel += "using v1::multiply; bool fits(int m) {\nassert(m < absent);\nreturn m > 0; }"
    grid = "dim3((N + {0} - 1) / {0}, (M - 1) / {0} + 1)"
    launches = "".join(
        f"multiply<{side}><<<{grid.format(side)}, dim3({side}, {side})>>>(A, B, C, M, N, K);" for side in (4, 8)
    )
    text = f"{kernel} void start{SIGNATURE} {{ if (fits(M)) {{ {launches} }} }}"
    first, second = run_text(text), run_text(text, template="8")
    assert first.sound and first.how.endswith("grid (cdiv(N, 4), cdiv(M, 4)), block (4, 4)")
    assert second.sound and second.how.endswith("grid (cdiv(N, 8), cdiv(M, 8)), block (8, 8)")
    recorded = values(second.notes, Note.LAUNCH_RECORDED)
    assert recorded["options"] == ": --grid 'cdiv(N, 8),cdiv(M, 8)' --block '8,8'" and recorded["function"] == "start"
    assert values(second.notes, Note.STATEMENTS_LEFT_OUT) == {"names": "fits"}


def test_shares_of_k_that_atomics_add_to_c(run_text):
    body = PRODUCT.replace("C[row * N + col] = sum", "atomicAdd(&C[row * N + col], sum)")
    body = body.replace("int k = 0; k < K; ++k", "int k = blockIdx.z; k < K; k += gridDim.z")
    launch = LAUNCH.replace("/ 4)", "/ 4, 2)")
    found = run_text(
        f"__global__ void multiply{SIGNATURE} {{ {body} }}\n"
        f"void product{SIGNATURE} {{ multiply{launch}(A, B, C, M, N, K); }}"
    )
    assert codes(found.why) == [Why.NEEDS_ZEROED_C]


# Without a launcher: the launch is not what is looked at.
ADDED = """
__global__ void shifted(const float* A, const float* B, float* C, int N) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < N) C[i] = fmaxf(A[i] + B[i], 0.0f);
}
"""
PAGES = kernel_body("A[row * depth + k] * B[k * N + col]", m="pages * lines", k="depth")
OF_PAGES = "const float* A, const float* B, float* C, int pages, int lines, int depth, int N"
MAPS = "const CUtensorMap* a, const CUtensorMap* b, float* C, int M, int N, int K"
NO_PRODUCT = r"kernel\.cu has no kernel of a product of matrices.* and shifted does not"
REFUSED = {
    # Names say what one of its sizes is, and the launcher is given 1 for the others.
    "numbers that nothing tells": (
        f"__global__ void multiply({OF_PAGES}) {{ {PAGES} }}\n"
        f"void product({OF_PAGES}) {{\n  int M = pages * lines;\n"
        f"  multiply{LAUNCH}(A, B, C, pages, lines, depth, N);\n}}",
        {},
        "what is pages = 1 and what is lines = 1 and what is depth = 1[?] multiply",
    ),
    "no product": (ADDED, {}, NO_PRODUCT),
    "no product in the kernel that is named": (ADDED, {"kernel": "shifted"}, NO_PRODUCT),
    "tensor maps behind pointers": (
        f"#include <cuda.h>\n__global__ void multiply({MAPS}) {{ while (K--); }}\n",
        {},
        r"multiply takes tensor maps behind pointers \(a, b\).*: pass each by value",
    ),
    "a header that is absent and needed": (
        f"#include <of_nobody/tile.hpp>\n__global__ void multiply{SIGNATURE} {SIDE}",
        {"block": "16,16", "grid": "1"},
        "pass the folder that has it with -I",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_missing_is_said(run_text, case):
    text, options, said = REFUSED[case]
    with pytest.raises(UsageError, match=said):
        run_text(text, **options)


def test_signatures_and_roles_as_they_are_written():
    for head in (
        "\n__launch_bounds__(T * T) __global__ void",
        "void __global__",
        "__global__ void __cluster_dims__(((T + 15) / 16), 1, 1)",
    ):
        found = syntax.kernels(f"template <int T> {head} multiply{SIGNATURE} {SIDE}{ADDED}")
        assert [(each.name, len(each.template)) for each in found] == [("multiply", 1), ("shifted", 0)]
        assert syntax.choose_kernel(found, "", "kernel.cu").name == "multiply"  # the other sums nothing
    declared = syntax.read_parameters("float* C, const float* A, const float* B, int inner, int wC, int hC")
    assert parameters.roles_by_name(declared) == ["C", "A", "B", "K", "N", "M"]


@pytest.mark.parametrize("top", [".git/HEAD", "LICENSE", "CMakeLists.txt"])
def test_a_header_at_the_top_of_a_project_whose_folders_have_a_readme(tmp_path, top):
    for name in (top, "src/README.md" if top != "CMakeLists.txt" else "src/Makefile", "common/tiles/side.h"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert headers.project_folder(tmp_path / "src" / "kernel.cu", "side.h") == tmp_path / "common" / "tiles"


def test_sizes_that_are_constants_of_the_source(tmp_path):
    """They are not what is called M and N, which are a tile's; smaller ones stand in their places."""
    path, store = tmp_path / "kernel.cu", "C[row * N_SIZE + col] = sum"
    body = kernel_body("A[row * K_SIZE + k] * B[k * N_SIZE + col]", store, m="M_GLOBAL", n="N_SIZE", k="K_SIZE")
    path.write_text(
        "#define M 16\n#define N 8\n#define M_TILES 64\n#define M_GLOBAL (M * M_TILES)  // the rows\n"
        "const int N_TILES = 96, N_SIZE = N * N_TILES;\nconst int K_SIZE = 576;\n"
        f"__global__ void multiply(const float* A, const float* B, float* C) {{ {body} }}"
    )
    kernel = open_file(path, Options(grid="N_TILES,M_TILES", block="8,16"))
    assert kernel.fixed == {"m": 256, "n": 128, "k": 192}
    assert {"name": "M_TILES", "value": 16} in [note.values for note in kernel.notes]


STRUCTS = """#pragma once
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
OF_STRUCTS = """#include <cstdio>
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


def test_structs_by_value_in_a_header_that_needs_what_includes_it(uncounted, tmp_path):
    """The types of the file that includes it, a struct that host code fills, and host code that is too old."""
    header = tmp_path / "multiply.cuh"
    header.write_text(STRUCTS, encoding="utf-8")
    (tmp_path / "main.cu").write_text(OF_STRUCTS, encoding="utf-8")
    found = check_file(header, SIZE, kernel="multiply")
    assert found.sound and found.how == "multiply(A, B, C), grid (cdiv(N, 8), cdiv(M, 8)), block (8, 8)"
    recorded = values(found.notes, Note.LAUNCH_RECORDED)
    assert (recorded["function"], recorded["place"]) == ("product", "main.cu:13")
    assert values(found.notes, Note.HOST_CODE_LEFT_OUT) == {"names": "print"}


BYTES = """
#include <cooperative_groups.h>
namespace cg = cooperative_groups;
using Word = int;
__device__ void helper(float* x) { cg::this_thread_block().sync(); x[0] = 1; }
__global__ void other(float* x) { helper(x); }
__global__ void products(const unsigned char* a, const unsigned char* b, Word* c, int m, int n, int k, int alpha,
                         int beta) {
  int row = blockIdx.y * 8 + threadIdx.y, col = blockIdx.x * 8 + threadIdx.x;
  if (row >= m || col >= n) return;
  Word sum = 0;
  for (int i = 0; i < k; ++i) sum += a[row * k + i] * b[i * n + col];
  c[row * n + col] = alpha * sum + beta * c[row * n + col];
}
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
    found = run_text(BYTES, files={"src/start.cu": LINKED}, kernel="products")
    assert found.sound and values(found.notes, Note.LAUNCH_RECORDED)["assumed"] == " with which = 7"
    path = tmp_path / "project" / "src" / "kernel.cu"
    given = Unit(path, (), (), tmp_path, "products", path).compose()
    assert "cooperative_groups" not in given and "helper" not in given and "void other(float* x)" in given
    assert "cooperative_groups" in Unit(path, (), (), tmp_path, "other", path).compose()
