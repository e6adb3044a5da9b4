"""s20 emulated: fp32 from products of 16-bit parts, the largest of which are added outside the tensor core.

Idea: fp32 operands as sums of 16-bit parts; products of first parts are added in fp32 every so many k.
Changed from s18: an operand has parts (PARTS, rows, columns), two or three, and a power of two for each of its lines;
    a tile has three sets of sums.
Held equal: the products and their order, the arithmetic of the powers, the order of tiles, and in fp16x3 PROMOTE. Left
    to the compiler: everything that runs at a time. Not here: additions beside products of the same program, since
    Triton waits for a product whose result it adds; and a PROMOTE that is not the depth of a slice.
Cost: of each slice PARTS times what s18 reads, and PARTS * (PARTS + 1) / 2 products. Requires: as s18.
"""

import torch
import triton
import triton.language as tl

from gemm_ref.call import Launcher, Plan
from gemm_ref.compute import MATHS, WIDE
from gemm_ref.operands.split import Split
from triton_kernels import launcher
from triton_kernels.descriptors import Operand, describe, describe_parts
from triton_kernels.schedule import tile_place

WARPS = 8  # two warpgroups, with 192 sums in a thread
PIECE_BYTES = 8 * 1024  # of C that TMA stores at once: what three slices leave of shared memory
WIDE_LINE: tl.constexpr = tl.constexpr(WIDE)


# Part `which` of a slice, transposed where it is stored so.
@triton.jit
def _load_part(desc, which: tl.constexpr, row, col, TRANSPOSED: tl.constexpr):
    x = desc.load([which, row, col])
    x = x.reshape(x.shape[1], x.shape[2])
    if TRANSPOSED:
        x = x.T
    return x


@triton.jit
def _load_part_of_b(b_desc, which: tl.constexpr, k, col, B_LAYOUT: tl.constexpr):
    if B_LAYOUT == "kn":
        b = _load_part(b_desc, which, k, col, False)
    else:
        b = _load_part(b_desc, which, col, k, True)
    return b


# 2^-e for e of about -63 to 63.
@triton.jit
def _power(e):
    return ((127 - e) << 23).to(tl.float32, bitcast=True)


# Elements (row.., col..) of C in fp32 as SGEMM has them, one product after another, from the operands themselves.
@triton.jit
def _summed(m, n, M, N, K, a_ptr, b_ptr, a_step, b_step, B_LAYOUT: tl.constexpr):
    a_ptrs = a_ptr + m.to(tl.int64) * a_step
    if B_LAYOUT == "kn":
        b_ptrs = b_ptr + n
        step = b_step.to(tl.int64)
    else:
        b_ptrs = b_ptr + n.to(tl.int64) * b_step
        step = tl.full((), 1, tl.int64)
    total = tl.zeros((m.shape[0], n.shape[0]), tl.float32)
    for k in range(K):
        a = tl.load(a_ptrs + k, mask=m < M, other=0.0)
        b = tl.load(b_ptrs + k * step, mask=n < N, other=0.0)
        total = tl.fma(a[:, None], b[None, :], total)
    return total


# The sums at (row, col) to C, with the powers of their lines taken back and, where a line is wide, summed afresh: half
# of the columns at a time until they are as many as a block of c_desc has.
@triton.jit
def _store(
    c_desc, row, col, x, M, N, K, a_exponents, b_exponents, a_ptr, b_ptr, a_step, b_step, B_LAYOUT: tl.constexpr
):  # fmt: skip
    COLUMNS: tl.constexpr = x.shape[1]
    if COLUMNS == c_desc.block_shape[1]:
        m = row + tl.arange(0, x.shape[0])
        n = col + tl.arange(0, COLUMNS)
        of_a = tl.load(a_exponents + m, mask=m < M, other=0)
        of_b = tl.load(b_exponents + n, mask=n < N, other=0)
        half_a = of_a >> 1
        half_b = of_b >> 1
        x *= _power(half_a)[:, None] * _power(half_b)[None, :]  # in halves: neither leaves the range of fp32
        x *= _power(of_a - half_a)[:, None] * _power(of_b - half_b)[None, :]
        wide = (of_a == WIDE_LINE)[:, None] | (of_b == WIDE_LINE)[None, :]
        if tl.max(wide.to(tl.float32)) > 0:
            x = tl.where(wide, _summed(m, n, M, N, K, a_ptr, b_ptr, a_step, b_step, B_LAYOUT), x)
        c_desc.store([row, col], x)
    else:
        left, right = x.reshape(x.shape[0], 2, COLUMNS // 2).permute(0, 2, 1).split()
        _store(c_desc, row, col, left, M, N, K, a_exponents, b_exponents, a_ptr, b_ptr, a_step, b_step, B_LAYOUT)
        _store(c_desc, row, col + COLUMNS // 2, right, M, N, K, a_exponents, b_exponents, a_ptr, b_ptr, a_step, b_step,
               B_LAYOUT)  # fmt: skip


@triton.jit(do_not_specialize=["M", "N", "K", "a_step", "b_step"])
def _gemm_kernel(
    a_desc, b_desc, c_desc, a_exponents, b_exponents, a_ptr, b_ptr,
    M, N, K, a_step, b_step,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
    B_LAYOUT: tl.constexpr, PARTS: tl.constexpr, SMALL: tl.constexpr,
):  # fmt: skip
    tiles_m = tl.cdiv(M, BLOCK_M)
    tiles_n = tl.cdiv(N, BLOCK_N)
    steps = tl.cdiv(K, BLOCK_K)
    tl.assume(steps > 0)  # a loop that may be skipped has ptxas wait after every wgmma
    for tile in tl.range(tl.program_id(0), tiles_m * tiles_n, tl.num_programs(0), flatten=True):
        tile_m, tile_n = tile_place(tile, tiles_m, tiles_n, GROUP_M)
        row = tile_m * BLOCK_M
        col = tile_n * BLOCK_N

        acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
        small = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
        for step in range(steps):
            # Load.
            k = step * BLOCK_K
            a0 = _load_part(a_desc, 0, row, k, False)  # (BLOCK_M, BLOCK_K)
            a1 = _load_part(a_desc, 1, row, k, False)
            b0 = _load_part_of_b(b_desc, 0, k, col, B_LAYOUT)  # (BLOCK_K, BLOCK_N)
            b1 = _load_part_of_b(b_desc, 1, k, col, B_LAYOUT)
            # Multiply: small products first.
            small = tl.dot(a0, b1, small)
            small = tl.dot(a1, b0, small)
            if PARTS == 3:
                a2 = _load_part(a_desc, 2, row, k, False)
                b2 = _load_part_of_b(b_desc, 2, k, col, B_LAYOUT)
                small = tl.dot(a0, b2, small)
                small = tl.dot(a1, b1, small)
                small = tl.dot(a2, b0, small)
            first = tl.dot(a0, b0)
            acc = tl.fma(first, 1.0, acc)  # as a plain sum it would become a part of the product

        # Store.
        _store(c_desc, row, col, tl.fma(small, SMALL, acc), M, N, K, a_exponents, b_exponents, a_ptr, b_ptr,
               a_step, b_step, B_LAYOUT)  # fmt: skip


def prepare(plan: Plan, a: Split, b: Split, c: torch.Tensor) -> Launcher:
    """What runs the kernel on operands like a and b, and a matrix like c (M, N): `gemm_ref.call.Prepare`."""
    config, mode = plan.implementation.config, MATHS[plan.problem.math]
    depth = config.PROMOTE if mode.parts == 2 else config.PROMOTE // 2  # so that three slices have room

    def described(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> tuple[Operand, ...]:
        of_c = describe(c, config.BLOCK_M, PIECE_BYTES // config.BLOCK_M // c.itemsize)
        return *describe_parts(plan, a, b, depth), of_c

    return launcher.prepare_split(_gemm_kernel, plan, a, b, describe=described, num_stages=config.NUM_STAGES // 2,
                                  num_warps=WARPS, BLOCK_K=depth)  # fmt: skip
