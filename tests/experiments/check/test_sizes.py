"""Which sizes a kernel is checked at: a square of whole tiles, past the first turn of a ring of buffers."""

from __future__ import annotations

import pytest

from experiments.check import sizes
from experiments.check.command import open_file
from experiments.check.faults import FaultKind
from experiments.check.subject import Options, Survey
from gemm_ref import ptx
from tests.experiments.check.test_planted import KERNELS, OPTIONS, Planted


def test_a_ring_is_gone_round(uncounted, tmp_path):
    """One whose slices are never held back is right until the first of its buffers is filled again."""
    found = sizes.first_block(open_file(KERNELS / "ring.cu", Options(**OPTIONS["ring.cu"])))[0]
    assert found == Survey((32, 32), 16, 128)
    late = Planted("ring.cu", "", "        __syncthreads();  //", "        if (s < 4) __syncthreads();  //")
    assert {fault.kind for fault in late.check(tmp_path).faults} == {FaultKind.RACE}


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
