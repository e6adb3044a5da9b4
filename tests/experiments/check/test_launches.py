"""`experiments check` on CUDA kernels whose launch nobody makes here: what their indices say, and what is tried."""

from __future__ import annotations

import pytest

from experiments.check.faults import FaultKind
from experiments.check.messages import Note
from experiments.records.request import UsageError
from tests.experiments.check.helpers import SIGNATURE, SIZE, codes, kernel_body, values

SQUARE = kernel_body("term(row, col, k)", m="size", n="size", k="size", store="c[row * stride + col] = sum")
TERM = "[=] __device__(int row, int col, int k) { return a[row * stride + k] * b[k * stride + col]; }"
OTHER_ORDER = """
typedef const float* Given;
using Count = const int;
__global__ void multiply(Given A, Given B, float* C, Count M, Count N, Count K, int blockSize) {
  int row = blockIdx.x * blockSize + threadIdx.x / blockSize, col = blockIdx.y * blockSize + threadIdx.x % blockSize;
  float sum = 0;
  for (int i = 0; row < M && col < K && i < N; ++i) sum += A[row * N + i] * B[i * K + col];
  if (row < M && col < K) C[row * K + col] = sum;
}
"""
OWN_SIZES = """
int main() {
  Count M = 256, N = 256, K = 256;
  float *a, *b, *c;
  cudaMalloc(&a, 4 * M * N), cudaMalloc(&b, 4 * N * K), cudaMalloc(&c, 4 * M * K);
  multiply<<<dim3((M + 7) / 8, (K + 7) / 8), dim3(64)>>>(a, b, c, M, N, K);
}
"""
RING = """
texture<float, 2> unused;
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
""".replace(
    "BODY",
    kernel_body("a[row * KK + k] * b[col * KK + k]", m="MM", n="NN", k="KK", store="c[row * NN + col] = sum"),
)
OWN = """#include <cstdlib>
{kernel}
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
WITH_C = kernel_body("A[col * K + k] * B[k * N + row]", "D[col * N + row] = sum + C[col * N + row]", m="N", n="M")
CONSTANT = kernel_body("A[row * WIDE + k] * B[k * WIDE + col]", m="WIDE", n="WIDE", store="C[row * WIDE + col] = sum")
CASES = {  # text, sizes, other files, beginning of the headline, parts of what is said of the launch
    # The arrays say how many threads a block has; a lambda for the GPU, which nvcc takes with an option that it names.
    "a side and the length of rows": (
        "#define T 8\n__global__ void multiply(const float* a, const float* b, float* c, int size, int stride) {\n"
        f"  __shared__ float s[T][T]; auto term = {TERM}; {SQUARE} }}",
        SIZE,
        {},
        "sound",
        ("size = N, stride = N), grid (cdiv(N, T), cdiv(N, T)), block (T, T)",),
    ),
    # The grid is of rows and columns of C, whatever they are called: A is of M x N here, and B of N x K.
    "sizes in another order and a side that nobody tells": (
        OTHER_ORDER,
        SIZE,
        {},
        "sound, with its (M, N, K) being (M, K, N)",
        ("blockSize = 16), grid (cdiv(M, 16), cdiv(K, 16)), block (256)",),
    ),
    # The grid of a program with M = N = K does not tell which of them it is made of.
    "equal sizes in another order": (
        OTHER_ORDER.replace(", int blockSize", "").replace("blockSize", "8") + OWN_SIZES,
        SIZE,
        {},
        "sound, with its (M, N, K) being (M, K, N)",
        ("grid (cdiv(M, 8), cdiv(K, 8)), block (64)",),
    ),
    # The template from constants of the project; `texture`, which toolkits lack now, is left out.
    "a ring that needs a least K": (
        RING,
        (),
        {"src/others.cu": "const int BM = 16, BN = 16, BK = 32, BLOCK_SIZE = 64;\n"},
        "right for M, N % 16 and K % 32 and K >= 64; elsewhere",
        ("ring<16, 16, 32, 64>", "grid (cdiv(N, 16), cdiv(M, 16)), block (64)"),
    ),
    # Another file has what the template of the class is instantiated with; C++20, and B is a tensor of N x K.
    "a launcher in a template of a class": (
        LAUNCHER,
        SIZE,
        {"src/calls.cu": "auto made = project::Launcher<float, 8>::run(x, y);\n"},
        "sound",
        (
            "multiply<float, 8>(a, b, c, MM = M, NN = N, KK = K)",
            "grid (cdiv(N, 8), cdiv(M, 8)), block (8, 8), B stored as N x K",
        ),
    ),
    # The first blocks that are tried race; where there are more rows than products, it reads behind A.
    "a block of one warp with flags that are off": (
        WARP,
        (),
        {},
        "right for M, N % 16 and K % 32; elsewhere",
        ("warp<16, 16 * 2>", "add = 0, offsetX = 0", "grid (cdiv(N, 16), cdiv(M, 16)), block (32)"),
    ),
    # D = A B + C, rows along x; its program has one size for all three, which does not tell M from N in the grid.
    "a sum with C whose rows lie along x": (
        OWN.format(
            kernel="#define EDGE 2048\n"
            f"__global__ void add(float* A, float* B, float* C, float* D, int M, int N, int K) {{ {WITH_C} }}",
            launch="add<<<dim3(EDGE / 8, EDGE / 4), dim3(8, 4)>>>(a, b, c, d, EDGE, EDGE, EDGE)",
        ),
        ("19x21x5", "8x64x16"),
        {},
        "sound",
        ("grid (cdiv(M, 8), cdiv(N, 4)), block (8, 4)",),
    ),
    # The kernel is told K alone, and uses a constant for what it multiplies by.
    "a constant that is every size": (
        OWN.replace("EDGE", "N").format(
            kernel="const int N = 8192;\n#define WIDE N\n"
            f"__global__ void fixed(float* A, float* B, float* C, int K) {{ {CONSTANT} }}",
            launch="fixed<<<dim3(N / 32, N / 32), dim3(32, 32)>>>(a, b, c, N)",
        ),
        (),
        {},
        "sound: right at the only size run",
        (),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_launch_is_found(run_text, case):
    text, sizes, files, headline, parts = CASES[case]
    found = run_text(text, sizes, files)
    assert found.headline.startswith(headline) and found.how.endswith(parts[-1:] or ""), (found.headline, found.how)
    assert all(part in found.how for part in parts), found.how
    if case == "equal sizes in another order":
        assert values(found.notes, Note.GRID_FROM_OWN_SIZES)["launch"].grid == ("cdiv(M, 8)", "cdiv(K, 8)")
    if case == "a constant that is every size":
        assert found.fixed == {"m": 256, "n": 256, "k": 256}
    assert (Note.LAUNCH_TRIED in codes(found.notes)) == (text in (OTHER_ORDER, RING, WARP))


def test_a_tile_that_no_parameter_divides_has_a_thread_for_each_element(run_text):
    """Nothing launches it: the sides of its tile are guessed, and where that is wrong, the message says so."""
    body = (
        kernel_body("A[row * K + k] * B[k * N + col]").replace("blockDim.y", "BLOCK_M").replace("blockDim.x", "BLOCK_N")
    )
    text = f"template <int BLOCK_M, int BLOCK_N>\n__global__ void multiply{SIGNATURE} {{ {body} }}"
    found = run_text(text)
    assert found.sound and "multiply<32, 32>" in found.how
    with pytest.raises(UsageError, match="<32, 32> was guessed, .*: tell its <int BLOCK_M, int BLOCK_N> with"):
        run_text(text.replace("float sum", "static_assert(BLOCK_N == 16); float sum"))


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
  }
  for (int j = 0; j < 2; ++j) C[blockIdx.y * N + (blockIdx.x * 2 + j) * LANES + threadIdx.x] = sums[j];
}
"""
    found = run_text(text, ("4x256x128",))
    assert {fault.kind for fault in found.faults} == {FaultKind.RACE} and "block (64)" in found.how
