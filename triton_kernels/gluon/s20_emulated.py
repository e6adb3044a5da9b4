"""s20 emulated: fp32 from products of 16-bit parts, the largest of which are added outside the tensor core.

Idea: fp32 operands as sums of 16-bit parts; products of first parts are added in fp32 every so many k.
Changed from s19: an operand has parts (PARTS, rows, columns), two or three, and a power of two for each of its lines;
    a consumer has three sets of sums, and adds one to another while the third is still multiplied.
Held equal: BLOCK_M, BLOCK_N, BLOCK_K, PROMOTE, the products and their order, the arithmetic of the powers, the order of
    tiles, 64 rows of a tile per consumer, what is dealt to the programs. Left to the compiler: barriers within a
    partition. Not here: clusters, and a tile of 96 columns.
Cost: of each slice PARTS times what s19 reads, and PARTS * (PARTS + 1) / 2 products. Requires: as s19.
"""

import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma, warpgroup_mma, warpgroup_mma_wait

from gemm_ref.call import Launcher, Plan
from gemm_ref.compute import MATHS, WIDE
from gemm_ref.operands.split import Split
from triton_kernels import launcher
from triton_kernels.descriptors import Operand, describe, describe_parts
from triton_kernels.gluon.hopper import (
    PIECES,
    SWIZZLE,
    columns,
    store_part,
    sums_layout,
    swizzled,
    tma_load,
)
from triton_kernels.gluon.shares import WGMMA_M, as_sums, barrier, in_a_row, part_of, schedule, shares_behind
from triton_kernels.schedule import tile_place

WARPGROUP = 4  # warps that one wgmma takes
TRANSPOSED_ROWS = 32  # of C that are stored at once where the tile is of C^T
PRODUCER_REGISTERS: gl.constexpr = gl.constexpr(24)  # and two times 232: of the 504 that three warpgroups share
CONSUMER_REGISTERS: gl.constexpr = gl.constexpr(240)
WIDE_LINE: gl.constexpr = gl.constexpr(WIDE)


@gluon.jit
def _produce(
    left_desc, right_desc, left_smem, right_smem, full, empty, M, N, K, shared,
    BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, BLOCK_K: gl.constexpr, STAGES: gl.constexpr, PARTS: gl.constexpr,
    GROUP_M: gl.constexpr, LEFT_LAYOUT: gl.constexpr, RIGHT_LAYOUT: gl.constexpr,
):  # fmt: skip
    tiles_m = gl.cdiv(M, BLOCK_M)
    tiles_n = gl.cdiv(N, BLOCK_N)
    slices = gl.cdiv(K, BLOCK_K)
    rounds, pieces, begin, end = schedule(tiles_m * tiles_n, shared, slices, 2, True)
    loaded = 0  # slices so far
    for piece in range(pieces):
        tile, first, count = part_of(piece, tiles_m * tiles_n - shared, slices, rounds, begin, end, True)
        tile_m, tile_n = tile_place(tile, tiles_m, tiles_n, GROUP_M)
        row = tile_m * BLOCK_M
        col = tile_n * BLOCK_N
        for step in range(first, first + count):
            stage = loaded % STAGES
            k = step * BLOCK_K
            mbarrier.wait(empty.index(stage), loaded // STAGES & 1 ^ 1)  # at first nobody has anything to free
            for part in gl.static_range(PARTS):
                bar = full.index(stage * PARTS + part)
                mbarrier.expect(bar, left_desc.block_type.nbytes + right_desc.block_type.nbytes)
                if LEFT_LAYOUT == "mk":
                    tma_load(left_desc, [part, row, k], bar, left_smem.index(stage * PARTS + part))
                else:
                    tma_load(left_desc, [part, k, row], bar, left_smem.index(stage * PARTS + part))
                if RIGHT_LAYOUT == "kn":
                    tma_load(right_desc, [part, k, col], bar, right_smem.index(stage * PARTS + part))
                else:
                    tma_load(right_desc, [part, col, k], bar, right_smem.index(stage * PARTS + part))
            loaded += 1


# Part `part` of the slice in `stage`: a consumer's rows of the left operand, and the right one as (BLOCK_K, BLOCK_N).
@gluon.jit
def _part_of_left(smem, stage, part: gl.constexpr, which: gl.constexpr, PARTS: gl.constexpr, LAYOUT: gl.constexpr):
    x = smem.index(stage * PARTS + part)
    x = x.reshape((x.shape[1], x.shape[2]))
    if LAYOUT == "mk":
        x = x.slice(which * WGMMA_M, WGMMA_M)
    else:
        x = x.slice(which * WGMMA_M, WGMMA_M, dim=1).permute((1, 0))
    return x


@gluon.jit
def _part_of_right(smem, stage, part: gl.constexpr, PARTS: gl.constexpr, LAYOUT: gl.constexpr):
    x = smem.index(stage * PARTS + part)
    x = x.reshape((x.shape[1], x.shape[2]))
    if LAYOUT == "nk":
        x = x.permute((1, 0))
    return x


# 2^-e for e of about -63 to 63.
@gluon.jit
def _power(e):
    return ((127 - e) << 23).to(gl.float32, bitcast=True)


# Elements (m, n) of left @ right in fp32 as SGEMM has them, one product after another, from the operands themselves.
@gluon.jit
def _summed(
    m, n, M, N, K, left_ptr, right_ptr, left_step, right_step, layout: gl.constexpr,
    LEFT_LAYOUT: gl.constexpr, RIGHT_LAYOUT: gl.constexpr,
):  # fmt: skip
    total = gl.zeros((m.shape[0], n.shape[0]), gl.float32, layout)
    for k in range(K):
        if LEFT_LAYOUT == "mk":
            left_ptrs = left_ptr + m.to(gl.int64) * left_step + k
        else:
            left_ptrs = left_ptr + k.to(gl.int64) * left_step + m
        if RIGHT_LAYOUT == "kn":
            right_ptrs = right_ptr + k.to(gl.int64) * right_step + n
        else:
            right_ptrs = right_ptr + n.to(gl.int64) * right_step + k
        x = gl.load(left_ptrs, mask=m < M, other=0.0)
        y = gl.load(right_ptrs, mask=n < N, other=0.0)
        total = gl.fma(gl.expand_dims(x, 1).broadcast_to(total.shape), gl.expand_dims(y, 0).broadcast_to(total.shape),
                       total)  # fmt: skip
    return total


# The sums at (row, col) with the powers of their lines taken back and, where a line is wide, summed afresh.
@gluon.jit
def _finished(
    x, row, col, M, N, K, of_rows, of_columns, left_ptr, right_ptr, left_step, right_step,
    LEFT_LAYOUT: gl.constexpr, RIGHT_LAYOUT: gl.constexpr,
):  # fmt: skip
    layout: gl.constexpr = x.type.layout
    m = row + gl.arange(0, x.shape[0], gl.SliceLayout(1, layout))
    n = col + gl.arange(0, x.shape[1], gl.SliceLayout(0, layout))
    of_m = gl.load(of_rows + m, mask=m < M, other=0)
    of_n = gl.load(of_columns + n, mask=n < N, other=0)
    half_m = of_m >> 1
    half_n = of_n >> 1
    x *= _power(half_m)[:, None] * _power(half_n)[None, :]  # in halves: neither leaves the range of fp32
    x *= _power(of_m - half_m)[:, None] * _power(of_n - half_n)[None, :]
    if gl.maximum(gl.max(of_m, 0), gl.max(of_n, 0)) == WIDE_LINE:
        wide = (of_m == WIDE_LINE)[:, None] | (of_n == WIDE_LINE)[None, :]
        x = gl.where(wide, _summed(m, n, M, N, K, left_ptr, right_ptr, left_step, right_step, layout, LEFT_LAYOUT,
                                   RIGHT_LAYOUT), x)  # fmt: skip
    return x


@gluon.jit
def _consume(
    which: gl.constexpr, c, partials_ptr, flags_ptr, left_smem, right_smem, c_smem, full, empty,
    of_rows, of_columns, left_ptr, right_ptr, M, N, K, left_step, right_step, shared,
    BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, BLOCK_K: gl.constexpr, STAGES: gl.constexpr, PARTS: gl.constexpr,
    GROUP_M: gl.constexpr, PROMOTE: gl.constexpr, SMALL: gl.constexpr, TRANSPOSE_C: gl.constexpr,
    LEFT_LAYOUT: gl.constexpr, RIGHT_LAYOUT: gl.constexpr, PIECE: gl.constexpr, C_BY_THREADS: gl.constexpr,
):  # fmt: skip
    CONSUMERS: gl.constexpr = BLOCK_M // WGMMA_M
    SUMS: gl.constexpr = WGMMA_M * BLOCK_N  # of a consumer
    PRODUCTS: gl.constexpr = PARTS * (PARTS + 1) // 2
    AT_ONCE: gl.constexpr = PROMOTE // BLOCK_K  # slices whose first products the tensor cores add
    layout: gl.constexpr = sums_layout(gl.num_warps(), BLOCK_N, left_smem.dtype)
    tiles_m = gl.cdiv(M, BLOCK_M)
    tiles_n = gl.cdiv(N, BLOCK_N)
    slices = gl.cdiv(K, BLOCK_K)
    rounds, pieces, begin, end = schedule(tiles_m * tiles_n, shared, slices, 2, True)
    program = gl.program_id(0)
    place = gl.arange(0, SUMS, gl.BlockedLayout([4], [32], [4], [0]))
    used = 0  # slices so far
    for piece in range(pieces):
        tile, begins, steps = part_of(piece, tiles_m * tiles_n - shared, slices, rounds, begin, end, True)
        gl.assume(steps > 0)  # a loop that may be skipped has ptxas wait after every wgmma
        tile_m, tile_n = tile_place(tile, tiles_m, tiles_n, GROUP_M)
        acc = gl.zeros((WGMMA_M, BLOCK_N), gl.float32, layout)
        small = gl.zeros((WGMMA_M, BLOCK_N), gl.float32, layout)
        first = gl.zeros((WGMMA_M, BLOCK_N), gl.float32, layout)
        for step in range(steps):
            stage = used % STAGES
            mbarrier.wait(full.index(stage * PARTS), used // STAGES & 1)
            left = _part_of_left(left_smem, stage, 0, which, PARTS, LEFT_LAYOUT)
            right = _part_of_right(right_smem, stage, 0, PARTS, RIGHT_LAYOUT)
            first = warpgroup_mma(left, right, first, use_acc=step % AT_ONCE > 0, is_async=True)
            # Small products, part by part as they come; of A's parts the largest first.
            for sum_of_parts in gl.static_range(1, PARTS):
                mbarrier.wait(full.index(stage * PARTS + sum_of_parts), used // STAGES & 1)
                for i in gl.static_range(sum_of_parts + 1):
                    left = _part_of_left(left_smem, stage, sum_of_parts - i if TRANSPOSE_C else i, which, PARTS,
                                         LEFT_LAYOUT)  # fmt: skip
                    right = _part_of_right(
                        right_smem, stage, i if TRANSPOSE_C else sum_of_parts - i, PARTS, RIGHT_LAYOUT
                    )
                    small = warpgroup_mma(left, right, small, is_async=True)
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
        acc = gl.fma(small, gl.full_like(small, SMALL), acc)

        if begins > 0:  # a share of a tile whose first slice another program has
            to_ptr = partials_ptr + (program * CONSUMERS + which).to(gl.int64) * SUMS
            gl.store(to_ptr + place, in_a_row(acc))
            barrier()  # all threads have stored their sums
            gl.atomic_xchg(flags_ptr + program * CONSUMERS + which, 1, sem="release", scope="gpu")
        else:
            # Add what the others have of it, in the order of K.
            others = 0
            if piece >= rounds:
                others = shares_behind(begin + (piece - rounds) * slices, shared, slices)
            for other in range(1, others + 1):
                flag_ptr = flags_ptr + (program - other) * CONSUMERS + which
                while gl.atomic_cas(flag_ptr, 1, 0, sem="acquire", scope="gpu") == 0:  # and 0 for the next launch
                    pass
            for other in range(1, others + 1):
                from_ptr = partials_ptr + ((program - other) * CONSUMERS + which).to(gl.int64) * SUMS
                acc += as_sums(gl.load(from_ptr + place), layout)

            # Store, while the other consumer still multiplies and the producer runs ahead.
            row = tile_m * BLOCK_M + which * WGMMA_M
            col = tile_n * BLOCK_N
            PIECES_OF_TILE: gl.constexpr = BLOCK_N // PIECE
            parts = columns(acc, PIECES_OF_TILE)
            for i in gl.static_range(PIECES_OF_TILE):
                x = _finished(parts[i], row, col + i * PIECE, M, N, K, of_rows, of_columns, left_ptr, right_ptr,
                              left_step, right_step, LEFT_LAYOUT, RIGHT_LAYOUT)  # fmt: skip
                store_part(c, row, col, x, i, PIECES_OF_TILE, c_smem, which * PIECES, M, N, C_BY_THREADS, TRANSPOSE_C)
    tma.store_wait(0)  # shared memory lives as long as its block


@gluon.jit(do_not_specialize=["M", "N", "K", "left_step", "right_step", "shared"])
def _gemm_kernel(
    left_desc, right_desc, c, partials_ptr, flags_ptr, of_rows, of_columns, left_ptr, right_ptr,
    M, N, K, left_step, right_step, shared,
    BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, BLOCK_K: gl.constexpr, STAGES: gl.constexpr, PARTS: gl.constexpr,
    GROUP_M: gl.constexpr, PROMOTE: gl.constexpr, SMALL: gl.constexpr, TRANSPOSE_C: gl.constexpr,
    B_LAYOUT: gl.constexpr, PIECE: gl.constexpr, C_BY_THREADS: gl.constexpr,
):  # fmt: skip
    CONSUMERS: gl.constexpr = BLOCK_M // WGMMA_M
    # Of C^T = B^T @ A^T the left operand is B, and A, whose rows are along k, the right one.
    LEFT_LAYOUT: gl.constexpr = "km" if TRANSPOSE_C and B_LAYOUT == "kn" else "mk"
    RIGHT_LAYOUT: gl.constexpr = "nk" if TRANSPOSE_C else B_LAYOUT
    left_smem = gl.allocate_shared_memory(left_desc.dtype, [STAGES * PARTS] + left_desc.block_shape, left_desc.layout)
    right_smem = gl.allocate_shared_memory(right_desc.dtype, [STAGES * PARTS] + right_desc.block_shape,
                                           right_desc.layout)  # fmt: skip
    full = gl.allocate_shared_memory(gl.int64, [STAGES * PARTS, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    if C_BY_THREADS:
        c_smem = full  # nothing is stored from there
    else:
        c_smem = gl.allocate_shared_memory(c.dtype, [CONSUMERS * PIECES] + c.block_shape, c.layout)
    for i in gl.static_range(STAGES * PARTS):
        mbarrier.init(full.index(i), count=1)
    for i in gl.static_range(STAGES):
        mbarrier.init(empty.index(i), count=CONSUMERS)
    if CONSUMERS == 2:
        gl.warp_specialize([
            (_consume, (gl.constexpr(0), c, partials_ptr, flags_ptr, left_smem, right_smem, c_smem, full, empty,
                        of_rows, of_columns, left_ptr, right_ptr, M, N, K, left_step, right_step, shared,
                        BLOCK_M, BLOCK_N, BLOCK_K, STAGES, PARTS, GROUP_M, PROMOTE, SMALL, TRANSPOSE_C,
                        LEFT_LAYOUT, RIGHT_LAYOUT, PIECE, C_BY_THREADS)),
            (_consume, (gl.constexpr(1), c, partials_ptr, flags_ptr, left_smem, right_smem, c_smem, full, empty,
                        of_rows, of_columns, left_ptr, right_ptr, M, N, K, left_step, right_step, shared,
                        BLOCK_M, BLOCK_N, BLOCK_K, STAGES, PARTS, GROUP_M, PROMOTE, SMALL, TRANSPOSE_C,
                        LEFT_LAYOUT, RIGHT_LAYOUT, PIECE, C_BY_THREADS)),
            (_produce, (left_desc, right_desc, left_smem, right_smem, full, empty, M, N, K, shared,
                        BLOCK_M, BLOCK_N, BLOCK_K, STAGES, PARTS, GROUP_M, LEFT_LAYOUT, RIGHT_LAYOUT)),
        ], [4, 1], [CONSUMER_REGISTERS, PRODUCER_REGISTERS])  # fmt: skip
    else:
        gl.warp_specialize([
            (_consume, (gl.constexpr(0), c, partials_ptr, flags_ptr, left_smem, right_smem, c_smem, full, empty,
                        of_rows, of_columns, left_ptr, right_ptr, M, N, K, left_step, right_step, shared,
                        BLOCK_M, BLOCK_N, BLOCK_K, STAGES, PARTS, GROUP_M, PROMOTE, SMALL, TRANSPOSE_C,
                        LEFT_LAYOUT, RIGHT_LAYOUT, PIECE, C_BY_THREADS)),
            (_produce, (left_desc, right_desc, left_smem, right_smem, full, empty, M, N, K, shared,
                        BLOCK_M, BLOCK_N, BLOCK_K, STAGES, PARTS, GROUP_M, LEFT_LAYOUT, RIGHT_LAYOUT)),
        ], [1], [PRODUCER_REGISTERS])  # fmt: skip


def prepare(plan: Plan, a: Split, b: Split, c: torch.Tensor) -> Launcher:
    """What runs the kernel on operands like a and b, and a matrix like c (M, N): `gemm_ref.call.Prepare`."""
    config, mode = plan.implementation.config, MATHS[plan.problem.math]
    depth = config.BLOCK_K_BYTES // mode.part_dtype.itemsize
    transpose_c = plan.implementation.transpose_c
    piece = min(
        config.BLOCK_N, TRANSPOSED_ROWS if transpose_c else SWIZZLE // c.itemsize
    )  # columns of what is multiplied

    def layout(columns: int) -> gl.NVMMASharedLayout:
        return gl.NVMMASharedLayout(min(SWIZZLE, columns * mode.part_dtype.itemsize), 8 * mode.part_dtype.itemsize, 3)

    def described(left: torch.Tensor, right: torch.Tensor, c: torch.Tensor) -> tuple[Operand, ...]:
        rows, across = (piece, WGMMA_M.value) if transpose_c else (WGMMA_M.value, piece)
        by_threads = plan.implementation.c_by_threads
        of_c = c if by_threads else describe(c, rows, across, swizzled(c.dtype, across))
        return *describe_parts(plan, left, right, depth, layout), of_c

    return launcher.prepare_split(
        _gemm_kernel, plan, a, b, describe=described, num_stages=1, num_warps=WARPGROUP,
        other_warps=plan.launch.num_warps - WARPGROUP, BLOCK_K=depth, STAGES=config.NUM_STAGES // mode.parts,
        PIECE=piece,
    )  # fmt: skip
