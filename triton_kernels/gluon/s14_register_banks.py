"""s14 register banks: products column by column, sums in any register; tiles dealt to the programs.

Idea: registers have two banks, and each gives one operand a clock: the products go column by column, and the sums are
    free to be in any register, so that hardly an FFMA waits for its operands.
Changed from s12: the order of the registers in the layout of the sums, which is that of the products; fragments that
    are read a step ahead, in the compiler's order all but the first of a trip; and what is dealt to the programs: whole
    tiles first, and the K of the tiles that are left in equal shares. Tile and shares are chosen by shape
    (gemm_ref/choice).
Held equal: BLOCK_M, BLOCK_N, BLOCK_K, WARP_M, WARP_N, THREAD_M, THREAD_N, COPY_N, the thread of each element,
    NUM_STAGES, the shares and the order in which they are added, fp32 fused multiply-adds. A trip is two slices, in two
    sets of buffers that the compiler can tell apart: in a loop over single slices each got a barrier more. Shares
    of an odd number of slices are filled up with zeros. Columns do not go back and forth: a layout's base must not move
    in m and n at once.
Cost: as s12's; of each tile that is shared, each share is written and read once more, 4 * BLOCK_M * BLOCK_N bytes.
    Shares are added in order: the same bits in every run of one grid.
Requires: as s12.
"""

import torch
import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import async_copy
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from gemm_ref.call import Launcher, Plan
from gemm_ref.config.cuda_cores import VECTOR
from triton_kernels import launcher
from triton_kernels.gluon.layouts import steps, warp_layout
from triton_kernels.schedule import tile_place

# Triton 3.9 calls it `async_load`.
copy_async = getattr(async_copy, "async_load", None) or async_copy.async_copy_global_to_shared
UNROLL: gl.constexpr = gl.constexpr(2)  # slices of a trip, and sets of buffers
ADD_AT_ONCE: gl.constexpr = gl.constexpr(4)  # shares whose loads do not wait for each other


# The slice of A, transposed: where each bit of an element's place leads in (m, k).
@triton.constexpr_function
def _a_shared(BLOCK_M, BLOCK_K):
    near = min(16, BLOCK_M)
    return gl.SharedLinearLayout([*steps(0, 1, near), [0, 1], *steps(0, near, BLOCK_M), *steps(1, 2, BLOCK_K)])


# For the loads of B the block's threads lie side by side, a warp on a row where that is long enough.
@triton.constexpr_function
def _b_layout(BLOCK_N, warps):
    lanes = min(32, BLOCK_N // VECTOR)
    across = min(warps, BLOCK_N // (VECTOR * lanes))
    return gl.BlockedLayout([1, VECTOR], [32 // lanes, lanes], [warps // across, across], [1, 0])


# The layout with the registers of a thread in another order, column after column: the compiler writes the products down
# in the order of the registers.
@triton.constexpr_function
def _by_columns(layout):
    registers = sorted(layout.reg_bases, key=lambda base: base[1] > 0)
    return gl.DistributedLinearLayout(registers, layout.lane_bases, layout.warp_bases, [], layout.shape)


# What is dealt to the programs: whole tiles in turn, and of the tiles that are then left the slices of K, all in a row,
# to each program as many. How many rounds of whole tiles, slices of a tile, of a share, and of all shares together.
@gluon.jit
def _schedule(M, N, K, programs, BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, BLOCK_K: gl.constexpr):
    tiles = gl.cdiv(M, BLOCK_M) * gl.cdiv(N, BLOCK_N)
    slices = gl.maximum(gl.cdiv(K, BLOCK_K), 1)
    rounds = tiles // programs
    shared = (tiles - rounds * programs) * slices
    return rounds, slices, gl.cdiv(shared, programs), shared


# Where slice UNROLL * trip + ahead is, in UNROLL sets of NUM_STAGES / UNROLL buffers.
@gluon.jit
def _buffer(sets, trip, ahead: gl.constexpr, NUM_STAGES: gl.constexpr):
    return sets[ahead % UNROLL].index((trip + ahead // UNROLL) % (NUM_STAGES // UNROLL))


# What is multiplied at one k, counted from the first of a trip: (BLOCK_M, 1) of A and (1, BLOCK_N) of B.
@gluon.jit
def _fragments(a_smem, b_smem, trip, k: gl.constexpr, layout: gl.constexpr, NUM_STAGES: gl.constexpr):
    BLOCK_K: gl.constexpr = a_smem[0].shape[2]
    a = _buffer(a_smem, trip, k // BLOCK_K, NUM_STAGES).slice(k % BLOCK_K, 1, dim=1)
    b = _buffer(b_smem, trip, k // BLOCK_K, NUM_STAGES).slice(k % BLOCK_K, 1, dim=0)
    return a.load(layout), b.load(layout)


# Start to copy what the pointers point to, where it is inside, to the buffers of a slice.
@gluon.jit
def _copy_slice(
    a_smem, b_smem, trip, ahead: gl.constexpr, a_ptrs, b_ptrs, a_inside, b_inside, NUM_STAGES: gl.constexpr
):
    copy_async(_buffer(a_smem, trip, ahead, NUM_STAGES), a_ptrs, mask=a_inside)
    copy_async(_buffer(b_smem, trip, ahead, NUM_STAGES), b_ptrs, mask=b_inside)
    async_copy.commit_group()


# The compiler is told where rows of B and C are whole vectors (COPY_N), and nothing else of the sizes.
@gluon.jit(do_not_specialize=["M", "N", "K"])
def _gemm_kernel(
    a_ptr, b_ptr, c_ptr, partials_ptr,
    M, N, K,
    BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, BLOCK_K: gl.constexpr, WARP_M: gl.constexpr,
    WARP_N: gl.constexpr, THREAD_M: gl.constexpr, THREAD_N: gl.constexpr, NUM_STAGES: gl.constexpr,
    GROUP_M: gl.constexpr, COPY_N: gl.constexpr, WHOLE_SLICES: gl.constexpr, EARLY: gl.constexpr,
):  # fmt: skip
    if EARLY:
        gdc_launch_dependents()  # the kernel that adds shares may start, up to where it waits
    if COPY_N == 4:
        N = N // 4 * 4
    # Who am I.
    warps: gl.constexpr = gl.num_warps()
    a_layout: gl.constexpr = gl.BlockedLayout([1, 1], [4, 8], [warps, 1], [1, 0])
    b_layout: gl.constexpr = _b_layout(BLOCK_N, warps)
    layout: gl.constexpr = warp_layout(BLOCK_M, BLOCK_N, WARP_M, WARP_N, THREAD_M, THREAD_N)
    by_columns: gl.constexpr = _by_columns(layout)
    a_m = gl.arange(0, BLOCK_M, gl.SliceLayout(1, a_layout))[:, None]  # (BLOCK_M, 1)
    a_k = gl.arange(0, BLOCK_K, gl.SliceLayout(0, a_layout))[None, :]  # (1, BLOCK_K): along the columns of A
    b_k = gl.arange(0, BLOCK_K, gl.SliceLayout(1, b_layout))[:, None]  # (BLOCK_K, 1): along the rows of B
    b_n = gl.arange(0, BLOCK_N, gl.SliceLayout(0, b_layout))[None, :]  # (1, BLOCK_N)
    # A slice is inside of K as a whole, or element by element.
    a_last = 0 if WHOLE_SLICES else a_k
    b_last = 0 if WHOLE_SLICES else b_k
    c_m = gl.arange(0, BLOCK_M, gl.SliceLayout(1, layout))[:, None]  # (BLOCK_M, 1)
    c_n = gl.arange(0, BLOCK_N, gl.SliceLayout(0, layout))[None, :]  # (1, BLOCK_N)
    a_shared: gl.constexpr = _a_shared(BLOCK_M, BLOCK_K)
    b_shared: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [1, 0])
    a_smem = ()
    b_smem = ()
    for _ in gl.static_range(UNROLL):
        a_smem += (gl.allocate_shared_memory(gl.float32, (NUM_STAGES // UNROLL, BLOCK_M, BLOCK_K), a_shared),)
        b_smem += (gl.allocate_shared_memory(gl.float32, (NUM_STAGES // UNROLL, BLOCK_K, BLOCK_N), b_shared),)

    programs = gl.num_programs(0)
    program = gl.program_id(0)
    rounds, slices, share, shared = _schedule(M, N, K, programs, BLOCK_M, BLOCK_N, BLOCK_K)
    begin = gl.minimum(program * share, shared)
    end = gl.minimum(begin + share, shared)
    shares = gl.where(begin < end, gl.cdiv(end, slices) - begin // slices, 0)  # the tiles that mine are of
    for part in range(rounds + shares):
        # A whole tile, or a share of one.
        tile = part * programs + program
        first = 0
        count = slices
        if part >= rounds:
            at = gl.maximum(begin, (begin // slices + part - rounds) * slices)
            tile = rounds * programs + at // slices
            first = at % slices
            count = gl.minimum(slices - first, end - at)
        tile_m, tile_n = tile_place(tile, gl.cdiv(M, BLOCK_M), gl.cdiv(N, BLOCK_N), GROUP_M)
        row = tile_m * BLOCK_M  # the tile starts at C[row, col]
        col = tile_n * BLOCK_N
        # A row past M repeats the last one, in sums that are never stored. What is past the share or N is 0.
        k_next = first * BLOCK_K
        k_end = gl.minimum(K, k_next + count * BLOCK_K)
        a_offsets = gl.minimum(row + a_m, M - 1).to(gl.int64) * K + a_k  # (BLOCK_M, BLOCK_K)
        b_offsets = b_k.to(gl.int64) * N + (col + b_n).to(gl.int64)  # (BLOCK_K, BLOCK_N)
        a_from = a_ptr + k_next
        b_from = b_ptr + k_next.to(gl.int64) * N
        b_inside = col + b_n < N

        acc = gl.zeros((BLOCK_M, BLOCK_N), gl.float32, by_columns)
        # Start to copy the first slices.
        for ahead in gl.static_range(NUM_STAGES - 1):
            _copy_slice(a_smem, b_smem, 0, ahead, a_from + a_offsets, b_from + b_offsets,
                        k_next + a_last < k_end, b_inside & (k_next + b_last < k_end), NUM_STAGES)  # fmt: skip
            a_from += BLOCK_K
            b_from += BLOCK_K * N.to(gl.int64)
            k_next += BLOCK_K
        async_copy.wait_group(NUM_STAGES - 2)
        a, b = _fragments(a_smem, b_smem, 0, 0, layout, NUM_STAGES)
        for trip in range(gl.cdiv(count, UNROLL)):
            for k in gl.static_range(UNROLL * BLOCK_K):
                # Read the next fragments, while these are multiplied.
                if (k + 1) % BLOCK_K == 0:
                    async_copy.wait_group(NUM_STAGES - 2)  # the next slice has landed, and everyone has read this one
                a_next, b_next = _fragments(a_smem, b_smem, trip, k + 1, layout, NUM_STAGES)
                if k % BLOCK_K == 2:  # start to copy another slice, behind the reads for the first products
                    _copy_slice(a_smem, b_smem, trip, k // BLOCK_K + NUM_STAGES - 1,
                                a_from + a_offsets, b_from + b_offsets,
                                k_next + a_last < k_end, b_inside & (k_next + b_last < k_end), NUM_STAGES)  # fmt: skip
                    a_from += BLOCK_K
                    b_from += BLOCK_K * N.to(gl.int64)
                    k_next += BLOCK_K
                acc = gl.fma(gl.convert_layout(a, by_columns), gl.convert_layout(b, by_columns), acc)
                a = a_next
                b = b_next
        async_copy.wait_group(0)  # for slices past the share, which nobody reads

        # Four neighbouring sums are stored at once, and so ptxas would have them in four neighbouring registers from
        # the first product on. What is stored is another value, if by a one that it cannot know.
        acc = gl.convert_layout(acc * (K >= 0).to(gl.float32), layout)
        # Store.
        if part < rounds:
            c_row = (row + c_m).to(gl.int64)
            c_col = (col + c_n).to(gl.int64)
            gl.store(c_ptr + c_row * N + c_col, acc, mask=(c_row < M) & (c_col < N))
        else:  # (program, 2, m, n)
            to_ptr = partials_ptr + (2 * program + part - rounds).to(gl.int64) * (BLOCK_M * BLOCK_N)
            gl.store(to_ptr + c_m * BLOCK_N + c_n, acc)


# Adds the shares of a tile in the order of K: program_id(1) is the tile, a thread has 4 columns of it.
@gluon.jit(do_not_specialize=["M", "N", "K", "programs"])
def _add_kernel(
    partials_ptr, c_ptr,
    M, N, K, programs,
    BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, BLOCK_K: gl.constexpr, GROUP_M: gl.constexpr, COPY_N: gl.constexpr,
    EARLY: gl.constexpr,
):  # fmt: skip
    if COPY_N == 4:
        N = N // 4 * 4
    THREADS: gl.constexpr = 32 * gl.num_warps()
    rounds, slices, share, _ = _schedule(M, N, K, programs, BLOCK_M, BLOCK_N, BLOCK_K)
    tile_m, tile_n = tile_place(rounds * programs + gl.program_id(1), gl.cdiv(M, BLOCK_M), gl.cdiv(N, BLOCK_N), GROUP_M)
    layout: gl.constexpr = gl.BlockedLayout([4], [32], [gl.num_warps()], [0])
    i = gl.program_id(0) * (4 * THREADS) + gl.arange(0, 4 * THREADS, layout)
    first = gl.program_id(1) * slices  # of the tile's slices
    last_program = (first + slices - 1) // share
    if EARLY:
        gdc_wait()  # for the partial sums
    total = gl.zeros((4 * THREADS,), gl.float32, layout)
    for next_program in range(first // share, last_program + 1, ADD_AT_ONCE):
        for more in gl.static_range(ADD_AT_ONCE):
            of = next_program + more
            place = 2 * of + (of * share < first).to(gl.int32)  # a program's second share is in its second tile
            from_ptr = partials_ptr + place.to(gl.int64) * (BLOCK_M * BLOCK_N)
            inside = (i < BLOCK_M * BLOCK_N) & (of <= last_program)
            total += gl.load(from_ptr + i, mask=inside, other=0.0)
    row = (tile_m * BLOCK_M + i // BLOCK_N).to(gl.int64)
    col = (tile_n * BLOCK_N + i % BLOCK_N).to(gl.int64)
    gl.store(c_ptr + row * N + col, total, mask=(i < BLOCK_M * BLOCK_N) & (row < M) & (col < N))


def prepare(plan: Plan, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> Launcher:
    """What runs the kernels on matrices like a (M, K), b (K, N) and c (M, N): `gemm_ref.call.Prepare`."""
    problem, shape = plan.problem, plan.launch
    whole = problem.k % plan.implementation.config.BLOCK_K == 0
    names = "A", "B", "C", "partials"
    early = launcher.early(a)
    multiply = launcher.prepare(_gemm_kernel, plan, num_stages=1, names=names, WHOLE_SLICES=whole, **early)
    if shape.then is None:
        return launcher.TwoKernels(multiply, None, 0)
    constants = plan.implementation.config.constants()
    constants = {name: constants[name] for name in ("BLOCK_M", "BLOCK_N", "BLOCK_K", "COPY_N", "GROUP_M")}
    sizes = problem.m, problem.n, problem.k, shape.parts
    constants |= {"launch_pdl": bool(early["EARLY"]), **early}
    add = launcher.Prepared(_add_kernel, shape.then, ("partials", "C"), sizes, **constants)
    return launcher.TwoKernels(multiply, add, shape.partials)
