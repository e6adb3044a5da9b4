"""s19 any shape: small tiles, tiles of C^T for few rows, and the K of the last tiles in equal shares to all programs.

Idea: small tiles, the product turned round for few rows, K dealt evenly to all blocks; chosen by shape.
Changed from s18: the tile is one of a family, and the number of programs is chosen with it (gemm_ref/choice). A
    consumer leaves its sums of a share of a tile in memory; the program that has the tile's first slice adds them to
    its own, or where shares are many and large, all programs of the tile add parts of it. Threads store a C whose rows
    TMA cannot.
Held equal: BLOCK_M, BLOCK_N, BLOCK_K, NUM_STAGES, the order of tiles, 64 rows of a tile per consumer, what is dealt to
    the programs. Left to the compiler: barriers within a partition, and how many loads of a share are on their way.
    Not here: clusters, and the order in which shares are added: those that are loaded together are added to each other
    first. Sides are powers of 2 in Gluon, so a tile of 192 columns is two products of 128 and 64, and A is read for
    each.
Cost: as s18's; of each tile that is shared, each share but the first is written and read once, 4 * BLOCK_M * BLOCK_N
    bytes. The order in which shares are added is fixed: the same bits in every run of one grid.
Requires: as s18, with B either way round in 16-bit types and tf32; cooperative launches where all add, as in Triton.
"""

import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma, warpgroup_mma, warpgroup_mma_wait

from gemm_ref.call import Launcher, Plan
from triton_kernels import launcher
from triton_kernels.descriptors import Operand, block_k, describe, describe_operands
from triton_kernels.finish import apply_epilogue
from triton_kernels.gluon.hopper import (
    PIECES,
    as_kn,
    columns,
    load_columns,
    load_slice,
    scaled,
    store_part,
    sums_layout,
    swizzled,
)
from triton_kernels.gluon.shares import (
    WGMMA_M,
    add_part,
    add_sums,
    barrier,
    part_of,
    schedule,
    shares_behind,
    store_sums,
)
from triton_kernels.launcher import ALL_ADD
from triton_kernels.schedule import tile_place

WARPGROUP = 4  # warps that one wgmma takes
TRANSPOSED_ROWS = 32  # of C that are stored at once where the tile is of C^T
PRODUCER_REGISTERS: gl.constexpr = gl.constexpr(40)
CONSUMER_REGISTERS: gl.constexpr = gl.constexpr(232)  # of each of two; one alone has what is left


@gluon.jit
def _produce(
    left_desc, right_desc, narrow_desc, left_smem, right_smem, narrow_smem, full, empty, M, N, K, shared,
    BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, BLOCK_K: gl.constexpr, NUM_STAGES: gl.constexpr,
    GROUP_M: gl.constexpr, LEFT_LAYOUT: gl.constexpr, RIGHT_LAYOUT: gl.constexpr, NARROW: gl.constexpr,
    ROUNDS: gl.constexpr, SHARES: gl.constexpr,
):  # fmt: skip
    tiles_m = gl.cdiv(M, BLOCK_M)
    tiles_n = gl.cdiv(N, BLOCK_N)
    slices = gl.cdiv(K, BLOCK_K)
    rounds, parts, begin, end = schedule(tiles_m * tiles_n, shared, slices, ROUNDS, SHARES)
    loaded = 0  # slices so far
    for part in range(parts):
        tile, first, count = part_of(part, tiles_m * tiles_n - shared, slices, rounds, begin, end, SHARES)
        tile_m, tile_n = tile_place(tile, tiles_m, tiles_n, GROUP_M)
        for step in range(first, first + count):
            stage = loaded % NUM_STAGES
            mbarrier.wait(empty.index(stage), loaded // NUM_STAGES & 1 ^ 1)  # at first nobody has anything to free
            load_slice(left_desc, right_desc, tile_m * BLOCK_M, tile_n * BLOCK_N, step * BLOCK_K, True,
                       left_smem.index(stage), right_smem.index(stage), full.index(stage),
                       RIGHT_LAYOUT, LEFT_LAYOUT, narrow_desc.block_type.nbytes if NARROW else 0)  # fmt: skip
            if NARROW:
                load_columns(narrow_desc, tile_n * BLOCK_N + BLOCK_N - NARROW, step * BLOCK_K, True,
                             narrow_smem.index(stage), full.index(stage), RIGHT_LAYOUT)  # fmt: skip
            loaded += 1


# x, from piece number `first` on of a consumer's part of the tile at (row, col), which has PARTS pieces.
@gluon.jit
def _store(
    c, row, col, x, first: gl.constexpr, PARTS: gl.constexpr, c_smem, buffer: gl.constexpr, M, N,
    bias_ptr, addend_ptr, addend_step, alpha, beta, PIECE: gl.constexpr, C_BY_THREADS: gl.constexpr,
    TRANSPOSE_C: gl.constexpr, FINISHES: gl.constexpr, ACTIVATION: gl.constexpr, BIAS_BY_ROWS: gl.constexpr,
    VECTOR: gl.constexpr,
):  # fmt: skip
    COUNT: gl.constexpr = x.shape[1] // PIECE
    pieces = columns(x, COUNT)
    for i in gl.static_range(COUNT):
        x = pieces[i]
        if FINISHES:
            m = row + gl.arange(0, x.shape[0], gl.SliceLayout(1, x.type.layout))
            n = col + (first + i) * PIECE + gl.arange(0, PIECE, gl.SliceLayout(0, x.type.layout))
            x = apply_epilogue(x, m, n, M, N, bias_ptr, addend_ptr, addend_step, alpha, beta,
                               ACTIVATION, BIAS_BY_ROWS, VECTOR, TRANSPOSE_C)  # fmt: skip
        store_part(c, row, col, x, first + i, PARTS, c_smem, buffer, M, N, C_BY_THREADS, TRANSPOSE_C)


# The sums of both products to memory, and one more program that has stored its sums.
@gluon.jit
def _store_shares(to_ptr, arrived_ptr, acc, more, NARROW: gl.constexpr):
    store_sums(to_ptr, acc)
    if NARROW:
        store_sums(to_ptr + WGMMA_M * acc.shape[1], more)
    barrier()  # all threads have stored their sums
    gl.atomic_add(arrived_ptr, 1, sem="release", scope="gpu")


# Add parts of a consumer's rows of the tile, from (row, col) on, over the tile's shares, and finish them. `splits`
# programs share the tile, and program number `share` of them adds every splits-th part from that on, each of PART sums.
# Its own share is at own_ptr, and each share is `step` elements in front of the one before it.
@gluon.jit
def _add_parts(
    own_ptr, arrived_ptr, share, splits, step: gl.constexpr, c, row, col, c_smem, M, N, scale_a, scale_b,
    bias_ptr, addend_ptr, addend_step, alpha, beta, BLOCK_N: gl.constexpr, PART: gl.constexpr,
    TRANSPOSE_C: gl.constexpr, FINISHES: gl.constexpr, ACTIVATION: gl.constexpr, BIAS_BY_ROWS: gl.constexpr,
    VECTOR: gl.constexpr,
):  # fmt: skip
    PARTS: gl.constexpr = WGMMA_M * BLOCK_N // PART
    if share < PARTS:
        while gl.atomic_add(arrived_ptr, 0, sem="acquire", scope="gpu") < splits:
            pass
        first_ptr = own_ptr + share.to(gl.int64) * step
        for part in range(share, PARTS, splits):
            x = scaled(add_part(first_ptr, part, splits, step, PART), scale_a, scale_b)
            ABOVE: gl.constexpr = WGMMA_M // x.shape[0]  # parts of the same columns
            _store(c, row + part % ABOVE * x.shape[0], col + part // ABOVE * x.shape[1], x, 0, 1, c_smem, 0, M, N,
                   bias_ptr, addend_ptr, addend_step, alpha, beta, x.shape[1], 1, TRANSPOSE_C, FINISHES, ACTIVATION,
                   BIAS_BY_ROWS, VECTOR)  # fmt: skip
        # The last of those that waited sets the flag to 0 for the next launch.
        if gl.atomic_add(arrived_ptr, 1, sem="relaxed", scope="gpu") == splits + gl.minimum(splits, PARTS) - 1:
            gl.atomic_xchg(arrived_ptr, 0, sem="relaxed", scope="gpu")


@gluon.jit
def _consume(
    which: gl.constexpr, c, partials_ptr, flags_ptr, left_smem, right_smem, narrow_smem, c_smem, full, empty,
    M, N, K, shared, scale_a, scale_b, bias_ptr, addend_ptr, addend_step, alpha, beta,
    BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, BLOCK_K: gl.constexpr, NUM_STAGES: gl.constexpr,
    GROUP_M: gl.constexpr, TRANSPOSE_C: gl.constexpr, LEFT_LAYOUT: gl.constexpr, RIGHT_LAYOUT: gl.constexpr,
    PIECE: gl.constexpr, C_BY_THREADS: gl.constexpr, FINISHES: gl.constexpr, ACTIVATION: gl.constexpr,
    BIAS_BY_ROWS: gl.constexpr, VECTOR: gl.constexpr, NARROW: gl.constexpr,
    ROUNDS: gl.constexpr, SHARES: gl.constexpr, PART: gl.constexpr,
):  # fmt: skip
    WIDE: gl.constexpr = BLOCK_N - NARROW
    CONSUMERS: gl.constexpr = BLOCK_M // WGMMA_M
    SUMS: gl.constexpr = WGMMA_M * BLOCK_N  # of a consumer
    # wgmma reads its left operand from shared memory along k, or in 16-bit types along m; else it is in registers.
    BY_REGISTERS: gl.constexpr = LEFT_LAYOUT == "km" and left_smem.dtype.primitive_bitwidth != 16
    layout: gl.constexpr = sums_layout(gl.num_warps(), WIDE, left_smem.dtype)
    MORE: gl.constexpr = NARROW if NARROW else 8
    narrow_layout: gl.constexpr = sums_layout(gl.num_warps(), MORE, left_smem.dtype)
    tiles_m = gl.cdiv(M, BLOCK_M)
    tiles_n = gl.cdiv(N, BLOCK_N)
    slices = gl.cdiv(K, BLOCK_K)
    rounds, parts, begin, end = schedule(tiles_m * tiles_n, shared, slices, ROUNDS, SHARES)
    program = gl.program_id(0)
    used = 0  # slices so far
    for part in range(parts):
        tile, first, count = part_of(part, tiles_m * tiles_n - shared, slices, rounds, begin, end, SHARES)
        gl.assume(count > 0)  # a loop that may be skipped has ptxas wait after every wgmma
        acc = gl.zeros((WGMMA_M, WIDE), gl.float32, layout)
        more = gl.zeros((WGMMA_M, MORE), gl.float32, narrow_layout)
        for step in range(count):
            stage = used % NUM_STAGES
            before = (used + NUM_STAGES - 1) % NUM_STAGES
            mbarrier.wait(full.index(stage), used // NUM_STAGES & 1)
            right = as_kn(right_smem.index(stage), RIGHT_LAYOUT)
            if LEFT_LAYOUT == "km":
                left = left_smem.index(stage).slice(which * WGMMA_M, WGMMA_M, dim=1).permute((1, 0))
            else:
                left = left_smem.index(stage).slice(which * WGMMA_M, WGMMA_M)
            if BY_REGISTERS:
                left = left.load(gl.DotOperandLayout(0, layout, 1))
                acc = warpgroup_mma(left, right, acc, use_acc=step > 0, is_async=True)
                if NARROW:
                    narrow = as_kn(narrow_smem.index(stage), RIGHT_LAYOUT)
                    more = warpgroup_mma(left, narrow, more, use_acc=step > 0, is_async=True)
                    more = warpgroup_mma_wait(0, deps=(more,))
                acc, left = warpgroup_mma_wait(0, deps=(acc, left))  # before other values get these registers
                mbarrier.arrive(empty.index(stage), count=1)
            else:
                acc = warpgroup_mma(left, right, acc, use_acc=step > 0, is_async=True)
                if NARROW:
                    narrow = as_kn(narrow_smem.index(stage), RIGHT_LAYOUT)
                    more = warpgroup_mma(left, narrow, more, use_acc=step > 0, is_async=True)
                    acc, more = warpgroup_mma_wait(2, deps=(acc, more))  # the step before is done
                else:
                    acc = warpgroup_mma_wait(1, deps=(acc,))
                mbarrier.arrive(empty.index(before), count=1, pred=step > 0)
            used += 1
        if not BY_REGISTERS:
            acc, more = warpgroup_mma_wait(0, deps=(acc, more))
            mbarrier.arrive(empty.index((used + NUM_STAGES - 1) % NUM_STAGES), count=1)

        if SHARES:
            # How many programs have stored their sums of a tile that is shared
            arrived_ptr = flags_ptr + (tile - (tiles_m * tiles_n - shared)) * CONSUMERS + which
        if SHARES == ALL_ADD:
            tile_m, tile_n = tile_place(tile, tiles_m, tiles_n, GROUP_M)
            splits = gl.num_programs(0) // shared
            to_ptr = partials_ptr + (program * CONSUMERS + which).to(gl.int64) * SUMS
            _store_shares(to_ptr, arrived_ptr, acc, more, NARROW)
            _add_parts(to_ptr, arrived_ptr, (gl.num_programs(0) - 1 - program) % splits, splits, CONSUMERS * SUMS,
                       c, tile_m * BLOCK_M + which * WGMMA_M, tile_n * BLOCK_N, c_smem, M, N, scale_a, scale_b,
                       bias_ptr, addend_ptr, addend_step, alpha, beta, BLOCK_N, PART, TRANSPOSE_C, FINISHES,
                       ACTIVATION, BIAS_BY_ROWS, VECTOR)  # fmt: skip
        else:
            is_first = True
            if SHARES:
                is_first = first == 0
                if first > 0:  # another program has the tile's first slice
                    to_ptr = partials_ptr + (program * CONSUMERS + which).to(gl.int64) * SUMS
                    _store_shares(to_ptr, arrived_ptr, acc, more, NARROW)
                elif part >= rounds:
                    # Add what the others have of it: the program before this has the next slices, the one before that
                    # those after them.
                    others = shares_behind(begin + (part - rounds) * slices, shared, slices)
                    if others > 0:
                        while gl.atomic_cas(arrived_ptr, others, 0, sem="acquire", scope="gpu") != others:
                            pass  # the flag is 0 again for the next launch
                    from_ptr = partials_ptr + ((program - 1) * CONSUMERS + which).to(gl.int64) * SUMS
                    acc = add_sums(acc, from_ptr, others, CONSUMERS * SUMS, layout)
                    if NARROW:
                        more = add_sums(more, from_ptr + WGMMA_M * WIDE, others, CONSUMERS * SUMS, narrow_layout)
            if is_first:
                # Store, while the other consumer still multiplies and the producer runs ahead.
                tile_m, tile_n = tile_place(tile, tiles_m, tiles_n, GROUP_M)
                row = tile_m * BLOCK_M + which * WGMMA_M
                col = tile_n * BLOCK_N
                _store(c, row, col, scaled(acc, scale_a, scale_b), 0, BLOCK_N // PIECE, c_smem, which * PIECES, M, N,
                       bias_ptr, addend_ptr, addend_step, alpha, beta, PIECE, C_BY_THREADS, TRANSPOSE_C, FINISHES,
                       ACTIVATION, BIAS_BY_ROWS, VECTOR)  # fmt: skip
                if NARROW:
                    _store(c, row, col, scaled(more, scale_a, scale_b), WIDE // PIECE, BLOCK_N // PIECE, c_smem,
                           which * PIECES, M, N, bias_ptr, addend_ptr, addend_step, alpha, beta, PIECE, C_BY_THREADS,
                           TRANSPOSE_C, FINISHES, ACTIVATION, BIAS_BY_ROWS, VECTOR)  # fmt: skip
    tma.store_wait(0)  # shared memory lives as long as its block


@gluon.jit(do_not_specialize=["M", "N", "K", "shared", "addend_step"])
def _gemm_kernel(
    left_desc, right_desc, narrow_desc, c, partials_ptr, flags_ptr,
    M, N, K, shared, scale_a, scale_b, bias_ptr, addend_ptr, addend_step, alpha, beta,
    BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, BLOCK_K: gl.constexpr, NUM_STAGES: gl.constexpr,
    GROUP_M: gl.constexpr, TRANSPOSE_C: gl.constexpr, B_LAYOUT: gl.constexpr, PIECE: gl.constexpr,
    C_BY_THREADS: gl.constexpr, FINISHES: gl.constexpr, ACTIVATION: gl.constexpr, BIAS_BY_ROWS: gl.constexpr,
    VECTOR: gl.constexpr, NARROW: gl.constexpr,
    ROUNDS: gl.constexpr, SHARES: gl.constexpr, PART: gl.constexpr,
):  # fmt: skip
    CONSUMERS: gl.constexpr = BLOCK_M // WGMMA_M
    # Of C^T = B^T @ A^T the left operand is B, and A, whose rows are along k, the right one.
    LEFT_LAYOUT: gl.constexpr = "km" if TRANSPOSE_C and B_LAYOUT == "kn" else "mk"
    RIGHT_LAYOUT: gl.constexpr = "nk" if TRANSPOSE_C else B_LAYOUT
    left_smem = gl.allocate_shared_memory(left_desc.dtype, [NUM_STAGES] + left_desc.block_shape, left_desc.layout)
    right_smem = gl.allocate_shared_memory(right_desc.dtype, [NUM_STAGES] + right_desc.block_shape, right_desc.layout)
    if NARROW:
        narrow_smem = gl.allocate_shared_memory(
            narrow_desc.dtype, [NUM_STAGES] + narrow_desc.block_shape, narrow_desc.layout
        )
    else:
        narrow_smem = right_smem
    full = gl.allocate_shared_memory(gl.int64, [NUM_STAGES, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [NUM_STAGES, 1], mbarrier.MBarrierLayout())
    if C_BY_THREADS:
        c_smem = full  # nothing is stored from there
    else:
        c_smem = gl.allocate_shared_memory(c.dtype, [CONSUMERS * PIECES] + c.block_shape, c.layout)
    for i in gl.static_range(NUM_STAGES):
        mbarrier.init(full.index(i), count=1)
        mbarrier.init(empty.index(i), count=CONSUMERS)
    if CONSUMERS == 2:
        gl.warp_specialize([
            (_consume, (gl.constexpr(0), c, partials_ptr, flags_ptr, left_smem, right_smem, narrow_smem, c_smem,
                        full, empty, M, N, K, shared, scale_a, scale_b, bias_ptr, addend_ptr, addend_step, alpha, beta,
                        BLOCK_M, BLOCK_N, BLOCK_K, NUM_STAGES, GROUP_M, TRANSPOSE_C, LEFT_LAYOUT, RIGHT_LAYOUT,
                        PIECE, C_BY_THREADS, FINISHES, ACTIVATION, BIAS_BY_ROWS, VECTOR, NARROW, ROUNDS, SHARES, PART)),
            (_consume, (gl.constexpr(1), c, partials_ptr, flags_ptr, left_smem, right_smem, narrow_smem, c_smem,
                        full, empty, M, N, K, shared, scale_a, scale_b, bias_ptr, addend_ptr, addend_step, alpha, beta,
                        BLOCK_M, BLOCK_N, BLOCK_K, NUM_STAGES, GROUP_M, TRANSPOSE_C, LEFT_LAYOUT, RIGHT_LAYOUT,
                        PIECE, C_BY_THREADS, FINISHES, ACTIVATION, BIAS_BY_ROWS, VECTOR, NARROW, ROUNDS, SHARES, PART)),
            (_produce, (left_desc, right_desc, narrow_desc, left_smem, right_smem, narrow_smem, full, empty,
                        M, N, K, shared, BLOCK_M, BLOCK_N, BLOCK_K, NUM_STAGES, GROUP_M, LEFT_LAYOUT, RIGHT_LAYOUT,
                        NARROW, ROUNDS, SHARES)),
        ], [4, 1], [CONSUMER_REGISTERS, PRODUCER_REGISTERS])  # fmt: skip
    else:
        gl.warp_specialize([
            (_consume, (gl.constexpr(0), c, partials_ptr, flags_ptr, left_smem, right_smem, narrow_smem, c_smem,
                        full, empty, M, N, K, shared, scale_a, scale_b, bias_ptr, addend_ptr, addend_step, alpha, beta,
                        BLOCK_M, BLOCK_N, BLOCK_K, NUM_STAGES, GROUP_M, TRANSPOSE_C, LEFT_LAYOUT, RIGHT_LAYOUT,
                        PIECE, C_BY_THREADS, FINISHES, ACTIVATION, BIAS_BY_ROWS, VECTOR, NARROW, ROUNDS, SHARES, PART)),
            (_produce, (left_desc, right_desc, narrow_desc, left_smem, right_smem, narrow_smem, full, empty,
                        M, N, K, shared, BLOCK_M, BLOCK_N, BLOCK_K, NUM_STAGES, GROUP_M, LEFT_LAYOUT, RIGHT_LAYOUT,
                        NARROW, ROUNDS, SHARES)),
        ], [1], [PRODUCER_REGISTERS])  # fmt: skip


def prepare(plan: Plan, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> Launcher:
    """What runs the kernel on matrices like a (M, K), b (K, N) and c (M, N): `gemm_ref.call.Prepare`."""
    config, transpose_c = plan.implementation.config, plan.implementation.transpose_c
    widths = (config.BLOCK_N - config.NARROW, config.NARROW or config.BLOCK_N)
    piece = min(*widths, TRANSPOSED_ROWS if transpose_c else 128 // c.itemsize)  # columns of the product

    phases = launcher.phases(plan)
    c_by_threads = plan.implementation.c_by_threads or phases["SHARES"] == ALL_ADD.value

    def described(left: torch.Tensor, right: torch.Tensor, _: torch.Tensor, c: torch.Tensor) -> tuple[Operand, ...]:
        rows, columns = (piece, WGMMA_M.value) if transpose_c else (WGMMA_M.value, piece)
        of_c = c if c_by_threads else describe(c, rows, columns, swizzled(c.dtype, columns))
        return *describe_operands(plan, left, right, swizzled, widths), of_c

    return launcher.prepare_shared(
        _gemm_kernel, plan, a.device, describe=described, num_stages=1, num_warps=WARPGROUP,
        other_warps=plan.launch.num_warps - WARPGROUP, BLOCK_K=block_k(plan), PIECE=piece,
        C_BY_THREADS=int(c_by_threads), **phases,
    )  # fmt: skip
