"""What `check` makes of kernels that looked sound once, and of sound ones that looked wrong: each in a few lines."""

from __future__ import annotations

import pytest

from experiments.check import sizes
from experiments.check.command import open_file
from experiments.check.faults import FaultKind
from experiments.check.messages import Limit, Note, Why
from experiments.check.report import Outcome, Word
from experiments.check.subject import Options, Survey
from gemm_ref import ptx
from tests.experiments.check.helpers import codes, values
from tests.experiments.check.test_planted import KERNELS, OPTIONS, Planted

SHAPE = {"block": "16,16", "grid": "cdiv(N,16),cdiv(M,16)"}
HEAD = """
__global__ void k(const float* A, const float* B, float* C, int M, int N, int K%s) {
    int row = blockIdx.y * 16 + threadIdx.y, col = blockIdx.x * 16 + threadIdx.x;
    float sum = 0;
"""
SUM = "if (row < M && col < N) for (int i = 0; i < K; ++i) sum += A[(size_t)row * K + i] * B[(size_t)i * N + col];"
STORE = "if (row < M && col < N) C[(size_t)row * N + col] = %s;"


def kernel(*body: str, more: str = "") -> str:
    return HEAD % more + "\n".join(body) + "\n}\n"


@pytest.fixture
def report(run_text):
    """`report(text, *sizes)`: the report on a kernel."""
    return lambda text, *sizes, **options: run_text(text, sizes, **SHAPE | options)


@pytest.mark.parametrize(("stored", "wrong"), [
    ("sum", "alpha or beta"),
    ("alpha * sum", "beta"),
    ("sum + beta * C[(size_t)row * N + col]", "alpha"),
])  # fmt: skip
def test_alpha_and_beta_that_are_not_used(report, stored, wrong):
    """Runs with plain ones are not in the map of the others."""
    found = report(
        kernel(SUM, STORE % stored, more=", float alpha, float beta"), *["33x17x9"] * (stored != "alpha * sum")
    )
    assert codes(found.why) == [Why.SCALARS_IGNORED] and found.why[0].values["wrong"] == wrong
    assert {verdict.problem for verdict in found.verdicts if verdict.right} <= {"1x1x1"}


TILES = """
    __shared__ float a[16][16], b[16][16];
    int x = threadIdx.x, y = threadIdx.y;
    bool last = blockIdx.x == gridDim.x - 1 || blockIdx.y == gridDim.y - 1;
    for (int k = 0; k < K; k += 16) {
        %s
        __syncthreads();
        for (int i = 0; i < 16; ++i) sum += a[y][i] * b[i][x];
        __syncthreads();
    }
"""


def test_tiles_that_test_k_only_where_they_are_the_last(report):
    """One tile is the last of its row and column, so K shows where there are more."""
    loads = """a[y][x] = last && (row >= M || k + x >= K) ? 0 : A[row * K + k + x];
        b[y][x] = last && (col >= N || k + y >= K) ? 0 : B[(k + y) * N + col];"""
    found = report(kernel(TILES % loads, STORE % "sum"))
    assert found.headline.startswith("right for K % 16, any M and N; elsewhere"), found.headline
    assert Why.NEEDS_DEPTH not in codes(found.why)


def test_shared_memory_that_is_read_unwritten_for_nothing(report):
    """Rows and columns past C's are not loaded, and their sums are not stored."""
    loads = """if (row < M) a[y][x] = k + x < K ? A[row * K + k + x] : 0;
        if (col < N) b[y][x] = k + y < K ? B[(k + y) * N + col] : 0;"""
    found = report(kernel(TILES % loads, STORE % "sum"))
    assert found.sound and codes(found.limits)[0] is Limit.UNUSED_UNWRITTEN_READ
    used = report(kernel(TILES % loads.replace("row < M", "row < M && k + x < K"), STORE % "sum"))
    assert FaultKind.UNWRITTEN_READ in {fault.kind for fault in used.faults}


def test_products_left_out_of_a_short_sum(report):
    """K / 32 rounds down, as for 31; 128 would, too."""
    found = report(kernel(SUM.replace("i < K", "i < K / 32 * 32"), STORE % "sum"), "17x33x31")
    assert values(found.why, Why.K_TAIL_DROPPED) == {"step": 32, "missing": 31, "depth": 31}


def test_a_beta_of_zero_that_reads_c(report):
    reads, tests = "beta * C[(size_t)row * N + col]", "(beta == 0 ? 0 : beta * C[(size_t)row * N + col])"
    for term, limits in ((reads, 1), (tests, 0)):
        found = report(kernel(SUM, STORE % f"alpha * sum + {term}", more=", float alpha, float beta"), "33x17x9")
        assert found.sound and len(found.limits) == limits
    assert found.limits == [] and values(found.notes, Note.SCALARS_VARY) == {"names": "alpha and beta are"}


def test_a_size_that_the_kernel_refuses_says_nothing_of_the_others(report):
    check_ = "assert(K % 2 == 0);"
    found = report("#include <cassert>\n" + kernel(check_, SUM, STORE % "sum"), "32x16x8", "32x16x7")
    assert found.sound and [each.outcome for each in found.verdicts].count(Outcome.REFUSED) == 1
    with pytest.raises(ValueError, match="k refuses to run: kernel.cu:6: .*K % 2 == 0"):
        report("#include <cassert>\n" + kernel(check_, SUM, STORE % "sum"), "32x16x7")


@pytest.mark.parametrize(("kind", "bits"), [("int", [31, 31]), ("unsigned", [32, 32]), ("size_t", [])])
def test_offsets_of_32_bits_are_limits(report, kind, bits):
    narrow = kernel(f"{kind} n = N, d = K, r = row, c = col;", SUM, STORE % "sum")
    narrow = narrow.replace("(size_t)row * N + col", "r * n + c").replace("(size_t)row * K + i", "r * d + i")
    found = report(narrow, "33x17x9")
    assert found.sound and [limit.values["bits"] for limit in found.limits] == bits


def test_threads_that_have_left_do_not_count_at_a_barrier(report):
    found = report(kernel("if (row >= M) return;", SUM, "__syncthreads();", STORE % "sum"), "33x17x9")
    assert found.sound and not found.limits


def test_matching_barriers_in_two_branches_are_a_note(report):
    both = "if (threadIdx.y < 4) __syncthreads(); else { sum = 1; __syncthreads(); sum = 0; }"
    found = report(kernel("__shared__ float s; if (col < 0) s = 1;", both, SUM, STORE % "sum"), "32x16x8")
    assert found.sound and codes(found.limits) == [Limit.NOT_PROMISED]


def test_a_ring_is_gone_round(uncounted, tmp_path):
    """One whose slices are never held back is right until the first of its buffers is filled again."""
    found = sizes.first_block(open_file(KERNELS / "ring.cu", Options(**OPTIONS["ring.cu"])))[0]
    assert found == Survey((32, 32), 16, 128)
    late = Planted("ring.cu", "", "        __syncthreads();  //", "        if (s < 4) __syncthreads();  //")
    assert {fault.kind for fault in late.check(tmp_path).faults} == {FaultKind.RACE}


def test_a_launch_that_a_gpu_refuses(report):
    found = report(kernel(SUM, STORE % "sum").replace("void k", "void __launch_bounds__(128) k"), "33x17x9")
    assert found.word is Word.FAULTY and [fault.kind for fault in found.faults] == [FaultKind.LAUNCH_REFUSED]
    assert "compiled for blocks of 128 threads at most" in found.faults[0].text


def test_what_is_stored_by_columns_is_said_first(report):
    by_columns = SUM.replace("(size_t)i * N + col", "(size_t)col * K + i")
    found = report(kernel(by_columns, STORE % "sum"))
    assert found.sound and found.headline.startswith("sound, with B stored as N x K: ")
    assert report(kernel(by_columns, STORE % "sum"), layout="B=KxN").word is Word.FAULTY


def test_a_bias_is_drawn(report):
    added = kernel(SUM, STORE % "sum + bias[%s]", more=", const float* bias")
    assert report(added % "col", "33x17x9").sound
    assert values(report(added % "col / 2", "33x17x9").why, Why.SCALARS_IGNORED)["wrong"] == "bias"


TF32 = """
#include <mma.h>
using namespace nvcuda;
__global__ void k(const float* A, const float* B, float* C, int M, int N, int K) {
    wmma::fragment<wmma::matrix_a, 16, 16, 8, wmma::precision::tf32, wmma::row_major> a;
    wmma::fragment<wmma::matrix_b, 16, 16, 8, wmma::precision::tf32, wmma::row_major> b;
    wmma::fragment<wmma::accumulator, 16, 16, 8, float> c;
    wmma::fill_fragment(c, 0);
    for (int k0 = 0; k0 < K; k0 += 8) {
        wmma::load_matrix_sync(a, A + blockIdx.y * 16 * K + k0, K);
        wmma::load_matrix_sync(b, B + k0 * N + blockIdx.x * 16, N);
        wmma::mma_sync(c, a, b, c);
    }
    wmma::store_matrix_sync(C + blockIdx.y * 16 * N + blockIdx.x * 16, c, N, wmma::mem_row_major);
}
"""


def test_tf32_is_judged_as_such_unless_fp32_is_meant(report):
    found = report(TF32, "48x32x16", block="32")
    assert found.sound and Note.REDUCED_BY_TENSOR_CORES in codes(found.notes)
    assert report(TF32, "48x32x16", block="32", math="fp32").word is Word.FAULTY


@pytest.mark.parametrize("kept, word", [("__half2float(__float2half(%s))", Word.SOUND), ("%s", Word.FAULTY)])
def test_fp32_that_is_cut_to_fp16_is_judged_as_such(report, kept, word):
    """But not what loses more: here the sum, which begins at each of its products anew, keeps 7 bits."""
    summed = SUM.replace("A[(size_t)row * K + i]", kept % "A[(size_t)row * K + i]")
    lost = "__uint_as_float(__float_as_uint(sum) & 0xffff0000)" if word is Word.FAULTY else "sum"
    found = report("#include <cuda_fp16.h>\n" + kernel(summed, STORE % lost), "33x17x9")
    assert found.word is word
    assert ("with operands cut to fp16" in found.headline) == (word is Word.SOUND)


def test_c_times_a_zero_of_the_source(report):
    found = report(kernel(SUM, STORE % "1 * sum + 0 * C[(size_t)row * N + col]"), "33x17x9", "5x3x2")
    assert found.sound and codes(found.limits)[0] is Limit.FINITE_C and not found.why
    assert report(kernel(SUM, STORE % "sum + C[(size_t)row * N + col]"), "33x17x9").word is Word.FAULTY


def test_sizes_that_are_not_refused_are_looked_for(report):
    """A kernel that its assertion keeps from ragged sizes, and that leaves out what is past its slices of 16."""
    summed = SUM.replace("i < K", "i < K / 16 * 16")
    head = "#include <cassert>\n"
    found = report(head + kernel("assert(M % 8 == 0 && N % 8 == 0 && K % 8 == 0);", summed, STORE % "sum"))
    assert found.word is Word.PARTIAL and "K % 16" in found.headline


WHOLE, STORE_WHOLE = (text.removeprefix("if (row < M && col < N) ") for text in (SUM, STORE))
SQUARE = kernel(WHOLE, STORE_WHOLE % "sum").replace("int M, int N, int K) {", "int N) { int M = N, K = N;")
ROW = """#define M 1
__global__ void k(const float* A, const float* B, float* C, int N, int K) {
    float sum = 0;
    for (int i = 0; i < K; ++i) sum += A[i] * B[(size_t)(blockIdx.x * 16 + threadIdx.x) * K + i];
    C[blockIdx.x * 16 + threadIdx.x] = sum;
}"""
RENAMED = kernel(
    "if (row < M && col < K) for (int i = 0; i < N; ++i) sum += A[row * N + i] * B[i * K + col];",
    "if (row < M && col < K) C[row * K + col] = sum;",
)  # A of m x n and B of n x k
EVEN = """
__shared__ float a[16][240]; for (int slice = 0; slice < K / 8; ++slice) {
  if (threadIdx.x < 8) a[threadIdx.y][threadIdx.x] = A[(size_t)row * K + slice * 8 + threadIdx.x];
  __syncthreads(); for (int i = 0; i < 8; ++i)
    sum += a[threadIdx.y][i] * B[(size_t)(slice * 8 + (K / 8 % 2 ? 7 - i : i)) * N + col];
  __syncthreads(); }
C[(size_t)row * N + col] = sum;
"""  # an even number of slices, of which the first K that is tried has 17
# Text, grid and beginning of the headline. The axes of some grids are exchanged.
HEADLINES = {
    "two equal": (kernel(SUM, STORE % "sum"), "cdiv(M,16),cdiv(N,16)", "right for M = N; elsewhere"),
    "equal and whole": (kernel(WHOLE, STORE_WHOLE % "sum"), "M/16,N/16", "right for M = N % 16, any K; elsewhere"),
    "square and whole": (SQUARE, "N/16,N/16", "right for M = N = K % 16; elsewhere"),
    "whole with alpha": (
        kernel(WHOLE, STORE_WHOLE % "alpha * sum", more=", float alpha"),
        "M/16,N/16",
        "right for M = N % 16, any K; elsewhere",
    ),
    "fixed": (ROW, "cdiv(N,16)", "right for N % 16, any K, with B stored as N x K; elsewhere"),
    "other names": (RENAMED, "cdiv(K,16),cdiv(M,16)", "sound, with its (M, N, K) being (M, K, N)"),
    "right where sizes differ": (kernel(EVEN), SHAPE["grid"], "right for M, N, K % 16; elsewhere"),
    "equal beside whole": (kernel(EVEN), "M/16,N/16", "right for M = N % 16 and K % 16; elsewhere"),
}


@pytest.mark.parametrize("case", HEADLINES)
def test_what_sizes_must_be(report, case):
    text, grid, headline = HEADLINES[case]
    found = report(text, grid=grid, block="16" if case == "fixed" else "16,16")
    assert found.headline.startswith(headline)
    if case == "two equal":
        assert values(found.why, Why.GRID_EXCHANGED) == {"grid": "cdiv(N,16),cdiv(M,16)"}


def test_several_mistakes_at_once(report):
    """A sum added to C, a dropped tail, and no test of M and N."""
    slices = WHOLE.replace("i < K", "i < K / 16 * 16")
    found = report(kernel(slices, STORE_WHOLE.replace("=", "+=") % "sum"))
    assert {Why.NEEDS_ZEROED_C, Why.K_TAIL_DROPPED} <= {*codes(found.why)}
    assert {("m", 16), ("n", 16)} <= {(need.axis, need.multiple) for need in found.needs}
    assert {FaultKind.UNWRITTEN_READ, FaultKind.OUT_OF_BOUNDS} <= {fault.kind for fault in found.faults}


@pytest.mark.parametrize("tile, slice_", [((49, 64), 8), ((64, 128), 500)])
def test_a_square_of_sides_that_share_no_factor_stays_small(tile, slice_):
    assert 128 <= sizes.squared(tile, slice_, 128).m < 1024


def test_a_block_that_has_whole_rows_of_c_is_not_run_to_its_end(tmp_path):
    """A thread with a row of 512 sums takes long; which rows a block has shows with the first of them."""
    path = tmp_path / "kernel.cu"
    path.write_text(
        "__global__ void k(const float* A, const float* B, float* C, int N) {\n"
        "  int row = blockIdx.x * blockDim.x + threadIdx.x;\n"
        "  for (int col = 0; row < N && col < N; ++col) {\n"
        "    float sum = 0;\n"
        "    for (int i = 0; i < N; ++i) sum += A[row * N + i] * B[i * N + col];\n"
        "    C[row * N + col] = sum;\n  }\n}\n"
    )
    subject = open_file(path, Options(block="64", grid="cdiv(N,64)"))
    with ptx.watched(clock := Clock()):
        seen = sizes.first_block(subject)[0]
    assert seen.walks and seen.tile == (64, 1) and clock.instructions < 512 * 512
    assert sizes.squared(seen.tile, seen.slice, seen.depth, seen.walks).m == 64


class Clock(ptx.Observer):
    instructions = 0

    def on_instruction(self, instruction, mask, machine) -> None:
        self.instructions += 1
