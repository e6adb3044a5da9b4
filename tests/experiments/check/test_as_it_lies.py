"""`experiments check` on CUDA files as they are published: headers that are not here, host code, several kernels."""

from __future__ import annotations

import pytest

from experiments.check import cost
from experiments.check.command import check
from experiments.check.cuda.cuda_file import Options
from experiments.records.request import UsageError
from experiments.selection import make_request

SIGNATURE = "(const float* A, const float* B, float* C, int M, int N, int K)"
BODY = """{
  int row = blockIdx.y * T + threadIdx.y, col = blockIdx.x * T + threadIdx.x;
  float sum = 0;
  for (int k = 0; k < K; ++k) sum += A[row * K + k] * B[k * N + col];
  if (row < M && col < N) C[row * N + col] = sum;
}
"""
BODY = BODY.replace("for (int k = 0; k < K", "if (row < M && col < N) for (int k = 0; k < K")
KERNEL = f"__global__ void multiply{SIGNATURE} {BODY}"
SIZE = ("19x21x5",)


@pytest.fixture(autouse=True)
def _uncounted(monkeypatch):
    monkeypatch.setattr(cost, "count", lambda subject, problem, quote: ([], [], ""))


@pytest.fixture
def run(tmp_path):
    def of(text: str, **options):
        path = tmp_path / "project" / "src" / "kernel.cu"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return check(path, Options(**options), make_request((), (), SIZE, "", "cpu"))

    return of


def test_headers_that_are_not_here(run, tmp_path):
    """One of the project is found where it lies, others are stood in for, and what still fails is left out."""
    header = tmp_path / "project" / "include" / "tile.h"
    header.parent.mkdir(parents=True)
    header.write_text("constexpr int T = 16;\nconstexpr int twice(int x) { return 2 * x; }\n", encoding="utf-8")
    found = run(
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
"""
    )
    assert found.sound
    notes = " / ".join(found.notes)
    assert "cublas_v2.h, helper_cuda.h, of_nobody/matrix.hpp was not found: a stand-in" in notes
    assert "left out: main" in notes and "compare" not in notes and "tile.h" not in notes


def test_a_kernel_that_does_not_compile_is_told_with_what_is_missing(run):
    with pytest.raises(UsageError, match=r"pass the folder that has it with -I"):
        run(f"#include <of_nobody/tile.hpp>\n{KERNEL}", block="16,16", grid="1")


def test_flags_reach_the_compiler(run):
    assert run(f"#define T SIDE\n{KERNEL}", flags="-DSIDE=8").sound


@pytest.mark.parametrize(
    ("head", "options"),
    [
        (f"template <int T>\n__launch_bounds__(T * T) __global__ void multiply{SIGNATURE}", {"template": "16"}),
        (f"template <int T> void __global__ multiply{SIGNATURE}", {"template": "16"}),
    ],
    ids=["bounds", "void_first"],
)
def test_what_may_stand_around_global(run, head, options):
    assert run(f"{head} {BODY}", **options).sound


def test_an_instance_of_several(run):
    """Those that host code launches are in the PTX as well."""
    kernel = f"template <int T> __global__ void multiply{SIGNATURE} {BODY}"
    launches = "".join(f"multiply<{side}><<<1, dim3({side}, {side})>>>(a, a, a, 1, 1, 1);" for side in (4, 8))
    assert run(f"{kernel} void start(float* a) {{ {launches} }}", template="8").sound


def test_a_sibling_that_cannot_be_run_here(run):
    sibling = "struct Pair { float* first; int second; };\n__global__ void fill(Pair p) { p.first[0] = p.second; }\n"
    assert run(f"#define T 16\n{sibling}{KERNEL}", kernel="multiply").sound
