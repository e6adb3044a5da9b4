"""The layouts that are written bit by bit, for the rungs from s11 on."""

import triton
from triton.experimental.gluon import language as gl


# Which elements of the tile a thread computes: where each bit of the number of its register, lane and warp leads in
# (m, n). A thread has quadrants of 4 x 4, next to those of the other lanes. Lanes i and i ^ 1 share their rows of A, i
# and i ^ 2 their columns of B, and then one wavefront serves the 16-byte reads of half a warp, not of a quarter.
@triton.constexpr_function
def warp_layout(BLOCK_M, BLOCK_N, WARP_M, WARP_N, THREAD_M, THREAD_N):
    step_m, step_n = WARP_M // THREAD_M * 4, WARP_N // THREAD_N * 4
    assert step_m * step_n == 32 * 16, "WARP_M, WARP_N: 32 threads cover a warp's tile"
    registers = [[0, 1], [0, 2], [1, 0], [2, 0], *steps(1, step_n, WARP_N), *steps(0, step_m, WARP_M)]
    lanes = [[0, 4], [4, 0], *steps(1, 8, step_n), *steps(0, 8, step_m)]
    warps = [*steps(1, WARP_N, BLOCK_N), *steps(0, WARP_M, BLOCK_M)]
    return gl.DistributedLinearLayout(registers, lanes, warps, [], [BLOCK_M, BLOCK_N])


# first, 2 * first, ... end / 2 along an axis.
@triton.constexpr_function
def steps(axis, first, end):
    found = []
    while first < end:
        found.append([0, first] if axis else [first, 0])
        first *= 2
    return found
