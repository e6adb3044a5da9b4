"""`experiments check` on CUDA kernels whose launch nobody makes here: launchers that are asked, and what is tried."""

from __future__ import annotations

import pytest

from experiments.check.faults import FaultKind
from experiments.check.messages import Note
from experiments.records.request import UsageError
from tests.experiments.check.helpers import codes, kernel_body, values


def test_a_square_kernel_that_nobody_launches(run_text):
    """The arrays say how many threads a block has."""
    body = kernel_body("A[row * n + k] * B[k * n + col]", m="n", n="n", k="n", store="C[row * n + col] = sum")
    found = run_text(
        "#define T 8\n"
        f"__global__ void multiply(float* A, float* B, float* C, int n) {{ __shared__ float s[T][T]; {body} }}"
    )
    assert found.sound and found.how.endswith("grid (cdiv(N, T), cdiv(N, T)), block (T, T)")


def test_a_lambda_for_the_gpu(run_text):
    """Which nvcc takes with an option that it names."""
    body = kernel_body("term(row, col, k)")
    term = "auto term = [=] __device__(int row, int col, int k) { return A[row * K + k] * B[k * N + col]; };"
    found = run_text(f"__global__ void multiply(float* A, float* B, float* C, int M, int N, int K) {{ {term} {body} }}")
    assert found.sound


def test_a_size_that_a_function_of_main_reads(run_text):
    """Beside a number that is no size."""
    body = kernel_body("a[row * n + k] * b[k * n + col]", m="n", n="n", k="n", store="c[row * n + col] = sum")
    found = run_text(
        f"""#include <cstdio>
#include <cstdlib>
__global__ void multiply(unsigned a[], unsigned b[], unsigned c[], unsigned n) {{ {body.replace("float", "unsigned")} }}
static void begin(unsigned& N, unsigned& seed, unsigned** a, unsigned** b, unsigned** c) {{
  if (scanf("%u %u", &N, &seed) != 2) exit(1);
  if (seed > 1) exit(1);
  cudaMalloc(a, 4 * N * N), cudaMalloc(b, 4 * N * N), cudaMalloc(c, 4 * N * N);
}}
int main() {{
  unsigned N, seed, *a, *b, *c;
  begin(N, seed, &a, &b, &c);
  multiply<<<dim3((N + 7) / 8, (N + 3) / 4), dim3(8, 4)>>>(a, b, c, N);
}}
"""
    )
    assert found.sound and found.how.endswith("grid (cdiv(N, 8), cdiv(N, 4)), block (8, 4)")


NAMES = """
typedef const float* Given;
typedef float *Made;
using Count = const int;
__global__ void multiply(Given A, Given B, Made C, Count M, Count N, Count K) {
  int row = blockIdx.y * 8 + threadIdx.y;
  for (int col = blockIdx.x * 32 + threadIdx.x; col < blockIdx.x * 32 + 32 && col < K && row < M; col += 8) {
    float sum = 0;
    for (int i = 0; i < N; ++i) sum += A[row * N + i] * B[i * K + col];
    C[row * K + col] = sum;
  }
}
int main() {
  Count M = 256, N = 256, K = 256;
  float *a, *b, *c;
  cudaMalloc(&a, 4 * M * N), cudaMalloc(&b, 4 * N * K), cudaMalloc(&c, 4 * M * K);
  multiply<<<dim3((K + 31) / 32, (M + 7) / 8), dim3(8, 8)>>>(a, b, c, M, N, K);
}
"""


def test_types_of_its_own_names_and_equal_sizes_in_another_order(run_text):
    """The grid of a program with M = N = K does not tell which of them it is made of."""
    found = run_text(NAMES, ())
    assert found.headline.startswith("sound, with its (M, N, K) being (M, K, N)")
    assert values(found.notes, Note.GRID_FROM_OWN_SIZES)["launch"].grid == ("cdiv(K, 32)", "cdiv(M, 8)")


def test_a_side_and_the_length_of_rows(run_text):
    at = "a[row * stride + k] * b[k * stride + col]"
    body = kernel_body(at, m="size", n="size", k="size", store="c[row * stride + col] = sum")
    found = run_text(
        f"__global__ void multiply(const float* a, const float* b, float* c, int size, int stride) {{ {body} }}"
    )
    assert found.sound and "size = N, stride = N" in found.how


def test_sizes_in_another_order_and_a_side_that_nobody_tells(run_text):
    """The grid is of rows and columns of C, whatever they are called: A is of M x N here, and B of N x K."""
    found = run_text(
        "__global__ void multiply(const float* A, const float* B, float* C, int M, int N, int K, int blockSize) {\n"
        "  int row = blockIdx.x * blockSize + threadIdx.x / blockSize;\n"
        "  int col = blockIdx.y * blockSize + threadIdx.x % blockSize;\n"
        "  float sum = 0;\n"
        "  for (int i = 0; row < M && col < K && i < N; ++i) sum += A[row * N + i] * B[i * K + col];\n"
        "  if (row < M && col < K) C[row * K + col] = sum;\n}"
    )
    assert found.headline.startswith("sound, with its (M, N, K) being (M, K, N)") and "blockSize = 16" in found.how
    assert found.how.endswith("grid (cdiv(M, 16), cdiv(K, 16)), block (256)")


def test_two_tensors_of_any_name_and_the_product_that_is_returned(run_text):
    body = kernel_body("x[row * k + i] * y[i * n + col]", m="m", n="n", k="k", store="z[row * n + col] = sum")
    found = run_text(
        "#include <torch/torch.h>\n"
        "__global__ void multiply(const float* x, const float* y, float* z, int m, int k, int n) {"
        f"{body.replace('int k = 0; k < k; ++k', 'int i = 0; i < k; ++i')}}}\n"
        "torch::Tensor product(const torch::Tensor& first, const torch::Tensor& second) {\n"
        "  auto m = first.sizes()[0], k = first.sizes()[1], n = second.sizes()[1];\n"
        "  auto made = torch::empty({m, n}, first.options());\n"
        "  multiply<<<dim3((n + 7) / 8, (m + 3) / 4), dim3(8, 4)>>>(\n"
        "      first.data_ptr<float>(), second.data_ptr<float>(), made.data_ptr<float>(), m, k, n);\n"
        "  return made;\n}"
    )
    assert found.sound and values(found.notes, Note.LAUNCH_RECORDED)["function"] == "product"


RING = """
#define STAGES 3
template <int BM, int BN, int BK, int BLOCK_SIZE>
__global__ void ring(const float* A, const float* B, float* C, int M, int N, int K) {
  __shared__ float a[STAGES][BK][BM], b[STAGES][BK][BN];
  float sum[BM * BN / BLOCK_SIZE] = {};
  auto fetch = [&](int k0) {
    for (int i = threadIdx.x; i < BK * BM; i += BLOCK_SIZE)
      a[k0 / BK % STAGES][i / BM][i % BM] = A[(blockIdx.y * BM + i % BM) * K + k0 + i / BM];
    for (int i = threadIdx.x; i < BK * BN; i += BLOCK_SIZE)
      b[k0 / BK % STAGES][i / BN][i % BN] = B[(k0 + i / BN) * N + blockIdx.x * BN + i % BN];
  };
  for (int stage = 0; stage + 1 < STAGES; ++stage) fetch(stage * BK);
  for (int k0 = 0; k0 < K; k0 += BK) {
    __syncthreads();
    if (k0 + (STAGES - 1) * BK < K) fetch(k0 + (STAGES - 1) * BK);
    for (int i = 0; i < BM * BN / BLOCK_SIZE; ++i)
      for (int k = 0; k < BK; ++k)
        sum[i] += a[k0 / BK % STAGES][k][(threadIdx.x + i * BLOCK_SIZE) / BN] *
                  b[k0 / BK % STAGES][k][(threadIdx.x + i * BLOCK_SIZE) % BN];
  }
  for (int i = 0; i < BM * BN / BLOCK_SIZE; ++i) {
    int at = threadIdx.x + i * BLOCK_SIZE;
    C[(blockIdx.y * BM + at / BN) * N + blockIdx.x * BN + at % BN] = sum[i];
  }
}
"""


def test_a_ring_that_nobody_launches_and_that_needs_a_least_k(run_text):
    """The template from constants of the project; `texture`, which toolkits lack now, is left out."""
    others = "const int BM = 16, BN = 16, BK = 32, BLOCK_SIZE = 64;\n"
    found = run_text("texture<float, 2> unused;\n" + RING, sizes=(), files={"src/others.cu": others})
    assert "ring<16, 16, 32, 64>" in found.how and "grid (cdiv(N, 16), cdiv(M, 16)), block (64)" in found.how
    assert found.headline.startswith("right for M, N % 16 and K % 32 and K >= 64; elsewhere")
    assert Note.LAUNCH_TRIED in codes(found.notes)


LAUNCHER = """
#include <torch/extension.h>
namespace project {
template <typename T, int SIDE> __global__ void multiply(const T* a, const T* b, T* c, int MM, int NN, int KK) { BODY }
template <typename T> concept Number = sizeof(T) == 4;
template <Number T, int SIDE> struct Launcher {
  int unused = 0;
  bool operator()(int x) const { return x > unused; }
  static at::Tensor run(at::Tensor a, at::Tensor b) {
    const int M = a.size(0), K = a.size(1), N = b.size(0);
    if (N % SIDE == 0) TORCH_CHECK(b.size(1) == K, "b is N x K")
    at::Tensor c = torch::empty({M, N}, a.options());
    multiply<T, SIDE><<<dim3((N + SIDE - 1) / SIDE, (M + SIDE - 1) / SIDE), dim3(SIDE, SIDE)>>>(
        a.data_ptr<T>(), b.data_ptr<T>(), c.data_ptr<T>(), M, N, K);
    return c;
  }
};
}
"""


def test_a_launcher_in_a_template_of_a_class(run_text):
    """Another file has what the template is instantiated with; C++20, and B is a tensor of N x K."""
    body = kernel_body("a[row * KK + k] * b[col * KK + k]", m="MM", n="NN", k="KK", store="c[row * NN + col] = sum")
    calls = "auto made = project::Launcher<float, 8>::run(x, y);\n"
    found = run_text(LAUNCHER.replace("BODY", body), files={"src/calls.cu": calls})
    assert found.sound and "multiply<float, 8>(a, b, c, MM = M, NN = N, KK = K)" in found.how
    assert found.how.endswith("grid (cdiv(N, 8), cdiv(M, 8)), block (8, 8), B stored as N x K")
    assert values(found.notes, Note.LAUNCH_RECORDED)["function"] == "run"


WARP = """
namespace {
template <int TILE, int STEP = TILE * 2>
__global__ void warp(const float* A, const float* B, float* C, int M, int N, int K, bool add, int offsetX) {
  const int row0 = blockIdx.y * TILE, col = blockIdx.x * TILE + threadIdx.x % TILE + offsetX;
  __shared__ float a[TILE][STEP];
  for (int row = threadIdx.x / TILE; row < TILE; row += 32 / TILE) {
    float sum = add ? C[(row0 + row) * N + col] : 0;
    for (int k0 = 0; k0 < K; k0 += STEP) {
      __syncwarp();
      for (int k = threadIdx.x % TILE; k < STEP; k += TILE)
        a[row][k] = k0 + k < K || k0 + row < M ? A[(row0 + row) * K + k0 + k] : 0;
      __syncwarp();
      for (int k = 0; k < STEP && k0 + k < K; ++k) sum += a[row][k] * B[(k0 + k) * N + col];
    }
    C[(row0 + row) * N + col] = sum;
  }
}
}
"""


def test_a_block_of_one_warp_with_flags_that_are_off(run_text):
    """The first blocks that are tried race; where there are more rows than products, it reads behind A."""
    found = run_text(WARP, sizes=())
    assert "warp<16, 16 * 2>" in found.how and "add = 0, offsetX = 0" in found.how
    assert found.how.endswith("grid (cdiv(N, 16), cdiv(M, 16)), block (32)")
    assert found.headline.startswith("right for M, N % 16 and K % 32; elsewhere")


OWN = """#include <cstdlib>
{kernel}
#define EDGE 2048
void on_the_host(float* c, int n) {{
  for (int i = 0; i < n; ++i) for (int j = 0; j < n; ++j) for (int k = 0; k < n; ++k) c[i * n + j] += k;
}}
int main(int argc, char** argv) {{
  int which = atoi(argv[1]);
  float* c = new float[EDGE * EDGE];
  on_the_host(c, EDGE);
  float *a, *b, *d;
  cudaMalloc(&a, EDGE * EDGE * 4), cudaMalloc(&b, EDGE * EDGE * 4), cudaMalloc(&c, EDGE * EDGE * 4);
  cudaMalloc(&d, EDGE * EDGE * 4);
  switch (which) {{ case 1: return 0; case 2: {launch}; }}
}}
"""


def test_a_sum_with_c_whose_rows_lie_along_x(run_text):
    """D = A B + C; its program has one size for all three, which does not tell M from N in the grid."""
    body = kernel_body("A[col * K + k] * B[k * N + row]", "D[col * N + row] = sum + C[col * N + row]", m="N", n="M")
    kernel = f"__global__ void add(float* A, float* B, float* C, float* D, int M, int N, int K) {{ {body} }}"
    launch = "add<<<dim3(EDGE / 8, EDGE / 4), dim3(8, 4)>>>(a, b, c, d, EDGE, EDGE, EDGE)"
    found = run_text(OWN.format(kernel=kernel, launch=launch), sizes=("19x21x5", "8x64x16"))
    assert found.sound and found.how.endswith("grid (cdiv(M, 8), cdiv(N, 4)), block (8, 4)")


def test_a_constant_that_is_every_size(run_text):
    """The kernel is told K alone, and uses a constant for what it multiplies by."""
    body = kernel_body("A[row * WIDE + k] * B[k * WIDE + col]", m="WIDE", n="WIDE", store="C[row * WIDE + col] = sum")
    kernel = "const int N = 8192;\n#define WIDE N\n"
    kernel += f"__global__ void fixed(float* A, float* B, float* C, int K) {{ {body} }}"
    text = OWN.format(kernel=kernel, launch="fixed<<<dim3(N / 32, N / 32), dim3(32, 32)>>>(a, b, c, N)")
    found = run_text(text.replace("#define EDGE 2048", "").replace("EDGE", "N"), sizes=())
    assert found.sound and found.fixed == {"m": 256, "n": 256, "k": 256}


def test_a_tile_that_no_parameter_divides_has_a_thread_for_each_element(run_text):
    """Nothing launches it: the sides of its tile are guessed, and where that is wrong, the message says so."""
    kernel = """
template <int BLOCK_M, int BLOCK_N>
__global__ void multiply(const float* A, const float* B, float* C, int M, int N, int K) {
    const int row = blockIdx.y * BLOCK_M + threadIdx.y, col = blockIdx.x * BLOCK_N + threadIdx.x;
    float sum = 0;
    if (row >= M || col >= N) return;
    for (int k = 0; k < K; ++k) sum += A[row * K + k] * B[k * N + col];
    C[row * N + col] = sum;
}
"""
    found = run_text(kernel)
    assert found.sound and "multiply<32, 32>" in found.how
    narrow = kernel.replace("float sum", "static_assert(BLOCK_N == 16); float sum")
    with pytest.raises(UsageError, match="<32, 32> was guessed, .*: tell its <int BLOCK_M, int BLOCK_N> with"):
        run_text(narrow)
    assert run_text(narrow, template="32,16").sound


def test_a_barrier_that_is_missing_where_nobody_launches(run_text):
    """What is right, and stores each element once, is the launch that is meant."""
    text = """#define LANES 64
__global__ void multiply(const float* A, const float* B, float* C, int M, int N, int K) {
  __shared__ float a[LANES];
  float sums[2] = {0, 0};
  for (int k0 = 0; k0 < K; k0 += LANES) {
    a[threadIdx.x] = A[blockIdx.y * K + k0 + threadIdx.x];
    __syncthreads();
    for (int i = 0; i < LANES; ++i)
      for (int j = 0; j < 2; ++j) sums[j] += a[i] * B[(k0 + i) * N + (blockIdx.x * 2 + j) * LANES + threadIdx.x];
    BARRIER
  }
  for (int j = 0; j < 2; ++j) C[blockIdx.y * N + (blockIdx.x * 2 + j) * LANES + threadIdx.x] = sums[j];
}
"""
    whole = ("4x256x128",)
    assert run_text(text.replace("BARRIER", "__syncthreads();"), whole).sound
    found = run_text(text.replace("BARRIER", ""), whole)
    assert {fault.kind for fault in found.faults} == {FaultKind.RACE} and "block (64)" in found.how
