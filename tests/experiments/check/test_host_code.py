"""How `experiments check` reads CUDA files: signatures, headers, constants, and what is compiled of a file."""

from __future__ import annotations

import pytest

from experiments.check.command import open_file
from experiments.check.cuda import headers, parameters, syntax
from experiments.check.cuda.compile import Unit
from experiments.check.cuda.host_code import compiled
from experiments.check.subject import Options
from tests.experiments.check.helpers import MULTIPLY, SIGNATURE, SIZE, check_file, kernel_body

SIDE = """{
  int row = blockIdx.y * T + threadIdx.y, col = blockIdx.x * T + threadIdx.x;
  float sum = TWICE(0);
  if (row < M && col < N) for (int k = 0; k < K; ++k) sum += A[row * K + k] * B[k * N + col];
  if (row < M && col < N) C[row * N + col] = sum;
}"""
ADDED = """
__global__ void shifted(const float* A, const float* B, float* C, int N) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < N) C[i] = fmaxf(A[i] + B[i], 0.0f);
}
"""


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


def test_what_another_kernel_alone_needs_is_not_compiled(tmp_path):
    path = tmp_path / "kernel.cu"
    text = "#include <cooperative_groups.h>\n"
    text += "__device__ void helper(float* x) { cooperative_groups::this_thread_block().sync(); }\n"
    path.write_text(text + "__global__ void other(float* x) { helper(x); }\n" + MULTIPLY, encoding="utf-8")
    alone = Unit(path, (), (), tmp_path, "multiply", path).compose()
    assert "cooperative_groups" not in alone and "helper" not in alone and "void other(float* x)" in alone
    assert "cooperative_groups" in Unit(path, (), (), tmp_path, "other", path).compose()


def test_host_code_is_compiled_once_and_anew_with_another_header(uncounted, tmp_path, monkeypatch):
    path = tmp_path / "kernel.cu"
    path.write_text(
        f'#include "side.h"\n{MULTIPLY}void start{SIGNATURE} {{\n'
        "  multiply<<<dim3((N - 1) / SIDE + 1, (M - 1) / SIDE + 1), dim3(SIDE, SIDE)>>>(A, B, C, M, N, K);\n}"
    )

    def launch(side: int) -> str:
        (tmp_path / "side.h").write_text(f"#define SIDE {side}\n")
        return check_file(path, SIZE).how

    first, other = launch(8), launch(4)
    assert "block (8, 8)" in first and "block (4, 4)" in other
    steps, run_compiler = [], compiled.run_compiler
    monkeypatch.setattr(compiled, "run_compiler", lambda step, *more: steps.append(step) or run_compiler(step, *more))
    assert launch(8) == first
    assert steps and all(step.count(" -E ") == step.count("&&") + 1 for step in steps), "it was compiled again"
