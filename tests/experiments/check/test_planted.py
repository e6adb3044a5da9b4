"""Faults planted in sound kernels, each by a change of their text, are reported.

One of each kind is planted in two files that are checked quickly; with --thorough, all are.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest

from experiments.check.report import Report, Word
from tests.experiments.check.helpers import check_file

KERNELS = Path(__file__).parent / "kernels"
OPTIONS = {
    "tile.cu": {"block": "16,16", "grid": "cdiv(N,64),cdiv(M,64)"},
    "ring.cu": {"block": "16,16", "grid": "cdiv(N,32),cdiv(M,32)"},
    "scaled.cu": {"block": "16,16", "grid": "cdiv(N,16),cdiv(M,16)"},
    "warp.cu": {"block": "128", "grid": "cdiv(M*N,4)"},
    "wmma.cu": {"block": "64", "grid": "cdiv(N,32),cdiv(M,16)"},
    "split.cu": {"block": "16,16", "grid": "cdiv(N,16),cdiv(M,16),2"},
    "triton_.py": {},
    "gluon_.py": {},
}
LIMITS = ("offsets", "finite C")  # kinds that are reported as limits


class Planted(NamedTuple):
    """A change of a kernel's text that makes it wrong: its first `old` becomes `new`; none where both are empty."""

    file: str  # in KERNELS
    kind: str = "none"  # of the mistake
    old: str = ""
    new: str = ""

    def __str__(self) -> str:
        return f"{self.file}-{self.kind}-{self.new[:20]}"

    def check(self, folder: Path) -> Report:
        """The report on the changed kernel."""
        path, text = folder / self.file, (KERNELS / self.file).read_text(encoding="utf-8")
        assert self.old in text and (self.old != self.new) == bool(self.old), self
        path.write_text(text.replace(self.old, self.new, 1), encoding="utf-8")
        return check_file(path, **OPTIONS[self.file])


CHANGES = {
    "tile.cu": [
        ("barrier", "    __syncthreads();  // the first", "    // the first"),
        ("barrier", "        __syncthreads();  // the next", "        // the next"),
        ("barrier", "__syncthreads();  // the next", "if (threadIdx.y < 8) __syncthreads();  // the next"),
        ("barrier", "        __syncthreads();  // the next", "        if (k0 % 16 == 0) __syncthreads();  // the next"),
        ("buffer", "load(stage ^ 1, k0 + BK)", "load(stage, k0 + BK)"),
        ("buffer", "k0 / BK % 2", "0"),
        ("bounds", "row0 + m < M && k0 + k < K ?", "k0 + k < K ?"),
        ("bounds", "row0 + m < M && k0 + k < K ?", "row0 + m < M ?"),
        ("bounds", "row0 + m < M && k0 + k < K ?", "row0 + m <= M && k0 + k < K ?"),
        ("bounds", "k0 + k < K && col0 + n < N ?", "col0 + n < N ?"),
        ("bounds", "if (row < M && col < N) C", "if (row < M) C"),
        ("bounds", "if (row < M && col < N) C", "if (row < M && col < N - 1) C"),
        ("bounds", "if (row < M && col < N) C", "if ((size_t)row * N + col < (size_t)M * N) C"),
        ("k tail", "k0 < K; k0 += BK", "k0 + BK <= K; k0 += BK"),
        ("k tail", "if (k0 + BK < K) load", "if (k0 + 2 * BK <= K) load"),
        ("index", "* K + k0 + k]", "* M + k0 + k]"),
        ("index", "a_smem[stage][k][threadIdx.y * 4 + m]", "a_smem[stage][k][threadIdx.y + 4 * m]"),
        ("index", "C[(size_t)row * N + col] = acc[m][n]", "C[(size_t)row * N + col] = acc[n][m]"),
        ("index", "int m = i / BK, k = i % BK;", "int m = i % BK, k = i / BK;"),
        ("index", "blockIdx.y * BM, col0 = blockIdx.x * BN", "blockIdx.x * BM, col0 = blockIdx.y * BN"),
        ("uninitialised", "float acc[4][4] = {};", "float acc[4][4];"),
        ("uninitialised", "for (int i = tid; i < BM * BK; i += 256)", "for (int i = tid; i < BM * BK - 1; i += 256)"),
        ("overlap", "threadIdx.y * 4 + m, col = ", "threadIdx.y * 3 + m, col = "),
        ("offsets", "(size_t)row * N + col", "row * N + col"),
        ("offsets", "(size_t)row * N + col", "(unsigned)row * N + col"),
        ("offsets", "(size_t)(row0 + m) * K", "(row0 + m) * K"),
        ("arithmetic", "acc[m][n] +=", "acc[m][n] = __uint_as_float(__float_as_uint(acc[m][n]) & 0xffffe000) +"),
    ],
    "ring.cu": [
        ("async wait", "__pipeline_wait_prior(STAGES - 2)", "__pipeline_wait_prior(STAGES - 1)"),
        ("async wait", "        __pipeline_wait_prior(STAGES - 2);\n", ""),
        ("async wait", "        __pipeline_commit();\n        int stage", "        int stage"),
        ("barrier", "        __syncthreads();  //", "        //"),
        ("barrier", "        __syncthreads();  //", "        if (s < STAGES - 1) __syncthreads();  //"),
        (
            "buffer",
            "fetch(s + STAGES - 1);\n        __pipeline_commit();\n        int",
            "fetch(s + STAGES);\n        __pipeline_commit();\n        int",
        ),
        ("buffer", "int stage = slice % STAGES", "int stage = slice % (STAGES - 1)"),
        ("k tail", "(K + BK - 1) / BK", "K / BK"),
        ("bounds", "bool there = row0 + m < M && k0 + k < K;", "bool there = row0 + m < M;"),
    ],
    "scaled.cu": [
        ("scalars", "alpha * acc + old", "acc + old"),
        ("scalars", "alpha * acc + old", "alpha * acc"),
        ("scalars", "alpha * acc + old", "alpha * (acc + old)"),
        ("finite C", "beta == 0.0f ? 0.0f : beta", "beta"),
        ("scalars", "beta == 0.0f ? 0.0f : beta * C", "beta == 0.0f ? 0.0f : C"),
        ("arithmetic", "A[(size_t)row * K + k]", "__uint_as_float(__float_as_uint(A[(size_t)row * K + k]) & ~0x1fff)"),
        ("bounds", "row >= M || col >= N", "row > M || col >= N"),
        ("index", "B[(size_t)k * N + col]", "B[(size_t)col * K + k]"),
    ],
    "warp.cu": [
        ("warp", "int step = 16;", "int step = 8;"),
        ("warp", "0xffffffff, sum", "0x0000ffff, sum"),
        ("warp", "    if (row < M)\n", "    if (lane >= K) return;\n    if (row < M)\n"),
        ("barrier", "    __syncthreads();\n", ""),
        ("warp", "sums[warp] = sum", "sums[warp / 2] = sum"),
        ("bounds", "threadIdx.x < 4 && out < (size_t)M * N", "threadIdx.x < 4"),
        ("bounds", "threadIdx.x < 4 && out", "threadIdx.x <= 4 && out"),
    ],
    "wmma.cu": [
        ("barrier", "        __syncthreads();  // the slice is there\n", ""),
        ("barrier", "        __syncthreads();  // it is read\n", ""),
        ("barrier", "    __syncwarp();\n", ""),
        ("index", "&b_smem[0][16 * warp], 32", "&b_smem[0][16 * warp], 16"),
        ("index", "wmma::row_major> b;", "wmma::col_major> b;"),
        ("uninitialised", "    wmma::fill_fragment(acc, 0.0f);\n", ""),
        ("collective", "wmma::mma_sync(acc, a, b, acc);", "if (lane < 16) wmma::mma_sync(acc, a, b, acc);"),
    ],
    "split.cu": [
        ("blocks", "    __threadfence();\n    __syncthreads();\n", "    __syncthreads();\n"),
        ("blocks", "    __threadfence();\n    __syncthreads();\n", "    __threadfence();\n"),
        ("blocks", "atomicAdd(ticket, 1) == 1", "atomicAdd(ticket, 1) == 0"),
        ("blocks", "if (last && inside)", "if (inside)"),
        ("k tail", "(K + 1) / 2", "K / 2"),
    ],
    "triton_.py": [
        ("bounds", "mask=(row < M) & (k[None, :] < K)", "mask=row < M"),
        ("bounds", "mask=(k[:, None] < K) & (col < N)", "mask=col < N"),
        ("bounds", "acc, mask=(row < M) & (col < N)", "acc, mask=row < M"),
        ("grid", "min(rows - first, GROUP_M)", "GROUP_M"),
        ("grid", "pid % (GROUP_M * columns) // size", "pid % (GROUP_M * rows) // size"),
        ("grid", "triton.cdiv(M, 32) * triton.cdiv(N, 64)", "triton.cdiv(M, 32) * (N // 64)"),
        ("arithmetic", 'input_precision="ieee"', 'input_precision="tf32"'),
        ("k tail", "range(0, K, BLOCK_K)", "range(0, K - BLOCK_K + 1, BLOCK_K)"),
    ],
    "gluon_.py": [
        ("async wait", "async_copy.wait_group(STAGES - 2)", "async_copy.wait_group(STAGES - 1)"),
        ("async wait", "        async_copy.wait_group(STAGES - 2)\n", ""),
        ("buffer", "(start // BLOCK_K + STAGES - 1) % STAGES", "(start // BLOCK_K) % STAGES"),
        ("bounds", "acc, mask=(row < M) & (col < N)", "acc, mask=row < M"),
        (
            "index",
            "row * K + k + a_k, mask=(row < M) & (k + a_k < K))\n        copy_async(b_smem.index(fill)",
            "row * M + k + a_k, mask=(row < M) & (k + a_k < K))\n        copy_async(b_smem.index(fill)",
        ),
    ],
}  # of each kernel: kind of mistake, text, and what takes its place
FAULTS = [Planted(file, *change) for file, changes in CHANGES.items() for change in changes]


QUICK = {planted.kind: planted for planted in FAULTS if planted.file in ("warp.cu", "split.cu")}.values()


@pytest.mark.cases("planted", list(QUICK), FAULTS)
def test_a_planted_fault_is_reported(uncounted, tmp_path, planted):
    """As a limit where it is one, else as a fault, or as an unusual property."""
    report = planted.check(tmp_path)
    if planted.kind in LIMITS:
        assert report.limits
    else:
        assert report.word in (Word.FAULTY, Word.PARTIAL) or report.assumed, report.headline


@pytest.mark.cases("file", ["split.cu"], list(OPTIONS))
def test_without_it_the_kernel_is_sound(uncounted, tmp_path, file):
    report = Planted(file).check(tmp_path)
    assert report.sound and not report.limits and not report.assumed


def test_faults_of_twelve_kinds_are_planted():
    assert len(FAULTS) >= 76 and len({planted.kind for planted in FAULTS}) >= 12
    kernels = {path.name for pattern in ("*_.py", "*.cu") for path in KERNELS.glob(pattern)}
    assert {planted.file for planted in FAULTS} == set(OPTIONS) == kernels
    for planted in FAULTS:
        assert planted.old in (KERNELS / planted.file).read_text(encoding="utf-8"), planted
