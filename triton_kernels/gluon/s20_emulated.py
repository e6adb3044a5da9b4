"""s20 emulated: fp32 from products of 16-bit parts, the largest of which are added outside the tensor core.

Idea: fp32 operands as sums of 16-bit parts; products of first parts are added in fp32 every so many k.
Changed from s18: an operand has parts (PARTS, rows, columns), two or three, and a power of two for each of its lines;
    a consumer has three sets of sums, and adds one to another while the third is still multiplied.
Held equal: BLOCK_M, BLOCK_N, BLOCK_K, PROMOTE, the products and their order, the arithmetic of the powers, the order of
    tiles, 64 rows of a tile per consumer. Left to the compiler: barriers within a partition. Not here: clusters.
Cost: of each slice PARTS times what s18 reads, and PARTS * (PARTS + 1) / 2 products. Requires: as s18.
"""

import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma, warpgroup_mma, warpgroup_mma_wait

from gemm_ref.call import Call
from gemm_ref.call.plan import Launcher
from gemm_ref.operands.split import Split
from gemm_ref.problem import MATHS, WIDE
from triton_kernels import launcher
from triton_kernels.descriptors import Operand, describe, describe_parts
from triton_kernels.gluon.hopper import PIECES, SWIZZLE, columns, store_tile, sums_layout, swizzled, tma_load
from triton_kernels.gluon.tiles import tile_place

WARPGROUP = 4  # warps that one wgmma takes
WGMMA_M: gl.constexpr = gl.constexpr(64)  # rows of C that it gives
PRODUCER_REGISTERS: gl.constexpr = gl.constexpr(24)  # and two times 232: of the 504 that three warpgroups share
CONSUMER_REGISTERS: gl.constexpr = gl.constexpr(240)
WIDE_LINE: gl.constexpr = gl.constexpr(WIDE)


@gluon.jit
def _produce(
    a_desc, b_desc, a_smem, b_smem, full, empty, M, N, K,
    BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, BLOCK_K: gl.constexpr, STAGES: gl.constexpr, PARTS: gl.constexpr,
    GROUP_M: gl.constexpr, B_LAYOUT: gl.constexpr,
):  # fmt: skip
    tiles_m = gl.cdiv(M, BLOCK_M)
    tiles_n = gl.cdiv(N, BLOCK_N)
    steps = gl.cdiv(K, BLOCK_K)
    loaded = 0  # slices so far
    for tile in range(gl.program_id(0), tiles_m * tiles_n, gl.num_programs(0)):
        tile_m, tile_n = tile_place(tile, tiles_m, tiles_n, GROUP_M)
        row = tile_m * BLOCK_M
        col = tile_n * BLOCK_N
        for step in range(steps):
            stage = loaded % STAGES
            k = step * BLOCK_K
            mbarrier.wait(empty.index(stage), loaded // STAGES & 1 ^ 1)  # at first nobody has anything to free
            bar = full.index(stage)
            mbarrier.expect(bar, PARTS * (a_desc.block_type.nbytes + b_desc.block_type.nbytes))
            for part in gl.static_range(PARTS):
                tma_load(a_desc, [part, row, k], bar, a_smem.index(stage * PARTS + part))
                if B_LAYOUT == "kn":
                    tma_load(b_desc, [part, k, col], bar, b_smem.index(stage * PARTS + part))
                else:
                    tma_load(b_desc, [part, col, k], bar, b_smem.index(stage * PARTS + part))
            loaded += 1


# Part `part` of the slice in `stage`: a consumer's rows of A, and B as (BLOCK_K, BLOCK_N).
@gluon.jit
def _part_of_a(a_smem, stage, part: gl.constexpr, which: gl.constexpr, PARTS: gl.constexpr):
    a = a_smem.index(stage * PARTS + part)
    return a.reshape((a.shape[1], a.shape[2])).slice(which * WGMMA_M, WGMMA_M)


@gluon.jit
def _part_of_b(b_smem, stage, part: gl.constexpr, PARTS: gl.constexpr, B_LAYOUT: gl.constexpr):
    b = b_smem.index(stage * PARTS + part)
    b = b.reshape((b.shape[1], b.shape[2]))
    if B_LAYOUT == "nk":
        b = b.permute((1, 0))
    return b


# 2^-e for e of about -63 to 63.
@gluon.jit
def _power(e):
    return ((127 - e) << 23).to(gl.float32, bitcast=True)


# Elements (m, n) of C in fp32 as SGEMM has them, one product after another, from the operands themselves.
@gluon.jit
def _summed(m, n, M, N, K, a_ptr, b_ptr, a_step, b_step, layout: gl.constexpr, B_LAYOUT: gl.constexpr):
    a_ptrs = a_ptr + m.to(gl.int64) * a_step
    total = gl.zeros((m.shape[0], n.shape[0]), gl.float32, layout)
    for k in range(K):
        if B_LAYOUT == "kn":
            b_ptrs = b_ptr + k.to(gl.int64) * b_step + n
        else:
            b_ptrs = b_ptr + n.to(gl.int64) * b_step + k
        a = gl.load(a_ptrs + k, mask=m < M, other=0.0)
        b = gl.load(b_ptrs, mask=n < N, other=0.0)
        total = gl.fma(gl.expand_dims(a, 1).broadcast_to(total.shape), gl.expand_dims(b, 0).broadcast_to(total.shape),
                       total)  # fmt: skip
    return total


# The sums at (row, col) with the powers of their lines taken back and, where a line is wide, summed afresh.
@gluon.jit
def _finished(
    x, row, col, M, N, K, a_exponents, b_exponents, a_ptr, b_ptr, a_step, b_step, B_LAYOUT: gl.constexpr
):  # fmt: skip
    layout: gl.constexpr = x.type.layout
    m = row + gl.arange(0, x.shape[0], gl.SliceLayout(1, layout))
    n = col + gl.arange(0, x.shape[1], gl.SliceLayout(0, layout))
    of_a = gl.load(a_exponents + m, mask=m < M, other=0)
    of_b = gl.load(b_exponents + n, mask=n < N, other=0)
    half_a = of_a >> 1
    half_b = of_b >> 1
    x *= _power(half_a)[:, None] * _power(half_b)[None, :]  # in halves: neither leaves the range of fp32
    x *= _power(of_a - half_a)[:, None] * _power(of_b - half_b)[None, :]
    if gl.maximum(gl.max(of_a, 0), gl.max(of_b, 0)) == WIDE_LINE:
        wide = (of_a == WIDE_LINE)[:, None] | (of_b == WIDE_LINE)[None, :]
        x = gl.where(wide, _summed(m, n, M, N, K, a_ptr, b_ptr, a_step, b_step, layout, B_LAYOUT), x)
    return x


@gluon.jit
def _consume(
    which: gl.constexpr, c_desc, a_smem, b_smem, c_smem, full, empty, a_exponents, b_exponents, a_ptr, b_ptr,
    M, N, K, a_step, b_step,
    BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, BLOCK_K: gl.constexpr, STAGES: gl.constexpr, PARTS: gl.constexpr,
    GROUP_M: gl.constexpr, PROMOTE: gl.constexpr, SMALL: gl.constexpr, B_LAYOUT: gl.constexpr,
):  # fmt: skip
    ROWS: gl.constexpr = c_desc.block_shape[0]
    PRODUCTS: gl.constexpr = PARTS * (PARTS + 1) // 2
    AT_ONCE: gl.constexpr = PROMOTE // BLOCK_K  # slices whose first products the tensor cores add
    layout: gl.constexpr = sums_layout(gl.num_warps(), BLOCK_N, a_smem.dtype)
    tiles_m = gl.cdiv(M, BLOCK_M)
    tiles_n = gl.cdiv(N, BLOCK_N)
    steps = gl.cdiv(K, BLOCK_K)
    gl.assume(steps > 0)  # a loop that may be skipped has ptxas wait after every wgmma
    used = 0  # slices so far
    for tile in range(gl.program_id(0), tiles_m * tiles_n, gl.num_programs(0)):
        tile_m, tile_n = tile_place(tile, tiles_m, tiles_n, GROUP_M)
        acc = gl.zeros((ROWS, BLOCK_N), gl.float32, layout)
        small = gl.zeros((ROWS, BLOCK_N), gl.float32, layout)
        first = gl.zeros((ROWS, BLOCK_N), gl.float32, layout)
        for step in range(steps):
            stage = used % STAGES
            mbarrier.wait(full.index(stage), used // STAGES & 1)
            a0 = _part_of_a(a_smem, stage, 0, which, PARTS)
            b0 = _part_of_b(b_smem, stage, 0, PARTS, B_LAYOUT)
            first = warpgroup_mma(a0, b0, first, use_acc=step % AT_ONCE > 0, is_async=True)
            # Small products, the smallest first.
            for sum_of_parts in gl.static_range(PARTS - 1, 0, -1):
                for i in gl.static_range(sum_of_parts + 1):
                    a = _part_of_a(a_smem, stage, i, which, PARTS)
                    b = _part_of_b(b_smem, stage, sum_of_parts - i, PARTS, B_LAYOUT)
                    small = warpgroup_mma(a, b, small, is_async=True)
            # Add the first products while the small ones are multiplied.
            first, small = warpgroup_mma_wait(PRODUCTS - 1, deps=(first, small))
            mbarrier.arrive(empty.index((used + STAGES - 1) % STAGES), count=1, pred=step > 0)
            if AT_ONCE == 1:
                acc += first
            elif step % AT_ONCE == AT_ONCE - 1:
                acc += first
            used += 1
        small = warpgroup_mma_wait(0, deps=(small,))
        mbarrier.arrive(empty.index((used + STAGES - 1) % STAGES), count=1)
        if AT_ONCE > 1:
            if steps % AT_ONCE > 0:
                acc += first

        # Store, while the other consumer still multiplies and the producer runs ahead.
        row = tile_m * BLOCK_M + which * ROWS
        col = tile_n * BLOCK_N
        COLUMNS: gl.constexpr = c_desc.block_shape[1]
        pieces = columns(gl.fma(small, gl.full_like(small, SMALL), acc), BLOCK_N // COLUMNS)
        for i in gl.static_range(BLOCK_N // COLUMNS):
            x = _finished(pieces[i], row, col + i * COLUMNS, M, N, K, a_exponents, b_exponents, a_ptr, b_ptr,
                          a_step, b_step, B_LAYOUT)  # fmt: skip
            store_tile(c_desc, row, col + i * COLUMNS, x, c_smem, which * PIECES + i % PIECES)
    tma.store_wait(0)  # shared memory lives as long as its block


@gluon.jit(do_not_specialize=["M", "N", "K", "a_step", "b_step"])
def _gemm_kernel(
    a_desc, b_desc, c_desc, a_exponents, b_exponents, a_ptr, b_ptr,
    M, N, K, a_step, b_step,
    BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, BLOCK_K: gl.constexpr, STAGES: gl.constexpr, PARTS: gl.constexpr,
    GROUP_M: gl.constexpr, PROMOTE: gl.constexpr, SMALL: gl.constexpr, B_LAYOUT: gl.constexpr,
):  # fmt: skip
    CONSUMERS: gl.constexpr = 2
    a_smem = gl.allocate_shared_memory(a_desc.dtype, [STAGES * PARTS] + a_desc.block_shape, a_desc.layout)
    b_smem = gl.allocate_shared_memory(b_desc.dtype, [STAGES * PARTS] + b_desc.block_shape, b_desc.layout)
    c_smem = gl.allocate_shared_memory(c_desc.dtype, [CONSUMERS * PIECES] + c_desc.block_shape, c_desc.layout)
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(STAGES):
        mbarrier.init(full.index(i), count=1)
        mbarrier.init(empty.index(i), count=CONSUMERS)
    gl.warp_specialize([
        (_consume, (gl.constexpr(0), c_desc, a_smem, b_smem, c_smem, full, empty,
                    a_exponents, b_exponents, a_ptr, b_ptr, M, N, K, a_step, b_step,
                    BLOCK_M, BLOCK_N, BLOCK_K, STAGES, PARTS, GROUP_M, PROMOTE, SMALL, B_LAYOUT)),
        (_consume, (gl.constexpr(1), c_desc, a_smem, b_smem, c_smem, full, empty,
                    a_exponents, b_exponents, a_ptr, b_ptr, M, N, K, a_step, b_step,
                    BLOCK_M, BLOCK_N, BLOCK_K, STAGES, PARTS, GROUP_M, PROMOTE, SMALL, B_LAYOUT)),
        (_produce, (a_desc, b_desc, a_smem, b_smem, full, empty, M, N, K,
                    BLOCK_M, BLOCK_N, BLOCK_K, STAGES, PARTS, GROUP_M, B_LAYOUT)),
    ], [4, 1], [CONSUMER_REGISTERS, PRODUCER_REGISTERS])  # fmt: skip


def prepare(call: Call, a: Split, b: Split, c: torch.Tensor) -> Launcher:
    """What runs the kernel on operands like a and b, and a matrix like c (M, N): `gemm_ref.call.plan.Prepare`."""
    config, mode = call.implementation.config, MATHS[call.problem.math]
    depth = config.BLOCK_K_BYTES // mode.part_dtype.itemsize
    layout = gl.NVMMASharedLayout(SWIZZLE, 8 * mode.part_dtype.itemsize, 3)

    def described(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, *lines: torch.Tensor) -> tuple[Operand, ...]:
        of_c = describe(c, WGMMA_M.value, SWIZZLE // c.itemsize, swizzled(c.dtype))
        return *describe_parts(call, a, b, depth, layout), of_c, *lines

    more = {"num_stages": 1, "num_warps": WARPGROUP, "BLOCK_K": depth, "STAGES": config.NUM_STAGES // mode.parts}
    return launcher.prepare_split(_gemm_kernel, call, a, b, describe=described, **more)
