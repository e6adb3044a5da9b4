"""Files that look for a good grade in other ways than by reaching the goals; each is a solution with some changes."""

from __future__ import annotations

import pytest

from experiments.learn import course

LAUNCH = "    gemm_kernel<BLOCK_M, BLOCK_N><<<grid, block>>>(A, B, C, M, N, K);\n"
GUARD = "    if (row >= M || col >= N) return;\n"
STORE = "    C[(size_t)row * N + col] = acc;\n"
LOOP = "    for (int k = 0; k < K; ++k) {\n"
IMPORT = "import torch\n"
CALL = "    _gemm_kernel[grid]("

# What it does, the exercise, changes to the solution as (old, new), and the goal that it misses; empty for a refusal.
CHEATS = [
    (
        "is right at whole tiles only",
        ("01_guard", "cuda"),
        [(GUARD, "    if (M % 16 || N % 16) return;\n" + GUARD)],
        "faultless",
    ),
    (
        "has the K of one grade in its source",
        ("01_guard", "cuda"),
        [("k < K", "k < (K < 16 ? K : 16)")],
        "right",
    ),
    (
        "writes C only where a sample would look",
        ("02_coalescing", "cuda"),
        [(STORE, "    if ((row * 7 + col) % 5 == 0 || row == 0 || row == M - 1)" + STORE)],
        "faultless",
    ),
    (
        "has blocks of one thread, so that no request has two lanes",
        ("02_coalescing", "cuda"),
        [
            ("threadIdx.y;\n", "threadIdx.x;\n"),
            ("BLOCK_N + threadIdx.x;", "BLOCK_N;"),
            ("gemm_kernel<BLOCK_M, BLOCK_N>", "gemm_kernel<1, 1>"),
            ("constexpr int BLOCK_M = 32;\nconstexpr int BLOCK_N = 32;", "constexpr int BLOCK_M = 1, BLOCK_N = 1;"),
            ("block(32, 32)", "block(1)"),
        ],
        "global_bytes",
    ),
    (
        "does nothing at sizes that take too long to be compared",
        ("02_coalescing", "cuda"),
        [(GUARD, "    if (M > 1024) return;\n" + GUARD)],
        "speed",
    ),
    (
        "adds fewer products at such sizes",
        ("02_coalescing", "cuda"),
        [(LOOP, "    if (M > 1024) K = 64;\n" + LOOP)],
        "speed",
    ),
    (
        "computes only the block whose time is predicted at such sizes",
        ("02_coalescing", "cuda"),
        [(LAUNCH, "    if (M > 1024) M = 32;\n" + LAUNCH)],
        "speed",
    ),
    (
        "does nothing where A begins with zeros, as those that the time is predicted with",
        ("02_coalescing", "cuda"),
        [
            (
                GUARD,
                "    if (M > 1024 && A[0] == 0 && A[1] == 0 && A[2] == 0 && A[3] == 0) K = 1;\n" + GUARD,
            )
        ],
        "speed",
    ),
    (
        "keeps the name of the shared tile and reads global memory",
        ("03_two_barriers", "cuda"),
        [
            (
                "acc += a_smem[threadIdx.y][k] * b_smem[k][threadIdx.x];",
                "if (row < M && col < N && k_start + k < K)\n"
                "                acc += A[(size_t)row * K + k_start + k] * B[(size_t)(k_start + k) * N + col];",
            )
        ],
        "global_bytes",
    ),
    (
        "waits some time in place of a barrier",
        ("03_two_barriers", "cuda"),
        [("__syncthreads();  // the whole", "__nanosleep(1000);  // the whole")],
        "faultless",
    ),
    (
        "looks for the expected C in memory",
        ("01_guard", "cuda"),
        [(STORE, "    C[(size_t)row * N + col] = C[(size_t)row * N + col + (size_t)M * N];\n")],
        "faultless",
    ),
    (
        "has a library multiply beside a kernel that does nothing",
        ("01_guard", "cuda"),
        [
            ("\n#include", "\n#include <cublas_v2.h>\n#include"),
            (GUARD, "    return;\n"),
            (
                LAUNCH,
                LAUNCH + "    cublasHandle_t handle;\n    cublasCreate(&handle);\n    const float one = 1, zero = 0;\n"
                "    cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, N, M, K, &one, B, N, A, K, &zero, C, N);\n",
            ),
        ],
        "faultless",
    ),
    (
        "has torch multiply in the launcher",
        ("01_guard", "triton"),
        [(CALL, "    torch.matmul(a, b, out=c)\n    return\n" + CALL)],
        "",
    ),
    (
        "has torch multiply, and the kernel multiply the product by ones",
        ("01_guard", "triton"),
        [(CALL, "    a, b, K = torch.matmul(a, b), torch.eye(N), N\n" + CALL)],
        "right",
    ),
    (
        "has torch multiply after a kernel that leaves something else",
        ("01_guard", "triton"),
        [("num_stages=1)", "num_stages=1)\n    torch.matmul(a, b, out=c)"), ("range(K)", "range(1)")],
        "right",
    ),
    (
        "patches the grader",
        ("01_guard", "triton"),
        [
            (
                IMPORT,
                "from experiments.check import report\nfrom experiments.learn import grading\n"
                "report.Report.faults = report.Report.why = ()\ngrading._wrong = lambda *_: ('', 0)\n"
                "grading.Grade.passed = grading.Result.passed = True\n" + IMPORT,
            ),
            ("range(K)", "range(1)"),
        ],
        "right",
    ),
    (
        "prints a verdict and ends with exit code 0",
        ("01_guard", "triton"),
        [(IMPORT, "import os\nprint('passed')\nos._exit(0)\n" + IMPORT)],
        "",
    ),
]


@pytest.mark.parametrize(("what", "of", "changes", "goal"), CHEATS, ids=[cheat[0] for cheat in CHEATS])
def test_a_cheat_fails(grade, what, of, changes, goal):
    exercise = course.find(*of)
    text = exercise.solution
    for old, new in changes:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    found = grade(exercise, text)
    print(found)
    assert not found.passed
    assert bool(found.refusal) == (goal == ""), found
    assert goal == (found.first_failing.goal if found.first_failing else ""), found.results
