"""s14 register banks: sums are freed, tiles multiplied in pieces; programs get tiles, and shares of the last ones.

Idea: registers have two banks, and each gives one operand a clock: where sums may be in any register, and a thread
    needs few operands for its products, FFMA wait less for their registers.
Changed from s12: a tile is multiplied in pieces, a `tl.dot` each, and its sums are multiplied by a one before they are
    stored. A program gets whole tiles in turn, and then an equal share of the K of the tiles that are left. Tile and
    shares are chosen by shape (gemm_ref/choice).
Held equal: what is dealt to the programs, the order in which shares are added, fp32 fused multiply-adds. Left to the
    compiler: what a thread has of a piece, and the order of its products (experiments/publish/compilers.toml). The
    tiles differ from CUDA's: they are those that are fastest in Triton, of those tried.
Cost: as s12's; of each tile that is shared, each share is written and read once more, 4 * BLOCK_M * BLOCK_N bytes.
Requires: as s12.
"""

import torch
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from gemm_ref.call import Launcher, Plan
from gemm_ref.config.cuda_cores import VECTOR
from triton_kernels import launcher
from triton_kernels.schedule import tile_place

UNROLL = 4  # shares of an element that the second kernel loads at a time


# What is dealt to the programs: how many slices K has; how many tiles are whole; of those left the slices, which are
# shared, of a program and of all.
@triton.jit
def _schedule(tiles, K, programs, BLOCK_K: tl.constexpr):
    slices = tl.maximum(tl.cdiv(K, BLOCK_K), 1)
    whole = tiles // programs * programs
    shared = (tiles - whole) * slices
    return slices, whole, tl.cdiv(shared, programs), shared


# The compiler is told when N, K or an address is a multiple of 16, and may then move 4 neighbours at once. The
# annotations keep a size of 1 a variable like any other.
@triton.jit(do_not_specialize=["M"])
def _gemm_kernel(
    a_ptr, b_ptr, c_ptr, partials_ptr,
    M, N: tl.int32, K: tl.int32,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, DOT_M: tl.constexpr, DOT_N: tl.constexpr,
    GROUP_M: tl.constexpr, COPY_N: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    if EARLY:
        gdc_launch_dependents()  # the kernel that adds shares may start, up to where it waits
    # Who am I. Where all rows are whole vectors of COPY_N floats, the compiler is told.
    N = N // COPY_N * COPY_N
    K = K // COPY_N * COPY_N
    program = tl.program_id(0)
    programs = tl.num_programs(0)
    tiles_m = tl.cdiv(M, BLOCK_M)
    tiles_n = tl.cdiv(N, BLOCK_N)
    slices, whole, share, shared = _schedule(tiles_m * tiles_n, K, programs, BLOCK_K)
    rounds = whole // programs  # tiles that are mine alone
    first = program * share  # of the slices that are shared, the first of mine, and the first that is not
    end = min(first + share, shared)
    shares = tl.where(first < end, (end - 1) // slices - first // slices + 1, 0)  # tiles that they are of: two at most
    ROWS: tl.constexpr = BLOCK_M // DOT_M  # of pieces
    COLUMNS: tl.constexpr = BLOCK_N // DOT_N
    m = tl.arange(0, DOT_M)[:, None]  # (DOT_M, 1)
    n = tl.arange(0, DOT_N)[None, :]  # (1, DOT_N)
    k = tl.arange(0, BLOCK_K)
    one = (K >= 0).to(tl.float32)  # which the compiler cannot know

    for part in range(rounds + shares):
        # A whole tile, or a share of one.
        is_whole = part < rounds
        of_shared = first // slices + part - rounds  # which of the shared tiles
        tile = tl.where(is_whole, program + part * programs, whole + of_shared)
        k_begin = tl.where(is_whole, 0, tl.maximum(first - of_shared * slices, 0)) * BLOCK_K
        k_end = tl.where(is_whole, slices, tl.minimum(end - of_shared * slices, slices)) * BLOCK_K
        tile_m, tile_n = tile_place(tile, tiles_m, tiles_n, GROUP_M)
        row = tile_m.to(tl.int64) * BLOCK_M + m
        col = tile_n.to(tl.int64) * BLOCK_N + n
        a_ptrs = ()
        acc = ()
        for i in tl.static_range(ROWS):  # a row past M repeats the last one, in sums that are never stored
            a_ptrs += (a_ptr + tl.minimum(row + i * DOT_M, M - 1) * K + (k_begin + k)[None, :],)  # (DOT_M, BLOCK_K)
            for _ in tl.static_range(COLUMNS):
                acc += (tl.zeros((DOT_M, DOT_N), tl.float32),)
        b_ptrs = b_ptr + (k_begin + k)[:, None].to(tl.int64) * N + col  # (BLOCK_K, DOT_N)

        for k_start in range(k_begin, k_end, BLOCK_K):
            # Load.
            in_k = k_start + k < K
            a = ()
            b = ()
            for i in tl.static_range(ROWS):
                a += (tl.load(a_ptrs[i], mask=in_k[None, :], other=0.0),)  # (DOT_M, BLOCK_K)
            for j in tl.static_range(COLUMNS):
                mask = (col + j * DOT_N < N) & in_k[:, None]
                b += (tl.load(b_ptrs + j * DOT_N, mask=mask, other=0.0),)  # (BLOCK_K, DOT_N)
            # Multiply.
            sums = ()
            a_next = ()
            for i in tl.static_range(ROWS):
                for j in tl.static_range(COLUMNS):
                    sums += (tl.dot(a[i], b[j], acc[i * COLUMNS + j], input_precision="ieee"),)
                a_next += (a_ptrs[i] + BLOCK_K,)
            acc = sums
            a_ptrs = a_next
            b_ptrs += BLOCK_K * N.to(tl.int64)

        # Store. Neighbouring sums are stored at once, and so ptxas would have them in neighbouring registers from the
        # first product on. What is stored is another value, if by one: the sums may be anywhere.
        freed = ()
        for i in tl.static_range(ROWS * COLUMNS):
            freed += (acc[i] * one,)
        if is_whole:
            for i in tl.static_range(ROWS):
                for j in tl.static_range(COLUMNS):
                    c_row = row + i * DOT_M
                    c_col = col + j * DOT_N
                    tl.store(c_ptr + c_row * N + c_col, freed[i * COLUMNS + j], mask=(c_row < M) & (c_col < N))
        else:
            place = program.to(tl.int64) * 2 + part - rounds
            for i in tl.static_range(ROWS):
                for j in tl.static_range(COLUMNS):
                    to = partials_ptr + place * (BLOCK_M * BLOCK_N) + (m + i * DOT_M) * BLOCK_N + n + j * DOT_N
                    tl.store(to, freed[i * COLUMNS + j])


# Adds the shares of a tile in the order of K: program_id(1) is the tile, a program has BLOCK elements of it.
@triton.jit(do_not_specialize=["M", "K", "programs"])
def _add_kernel(
    partials_ptr, c_ptr,
    M, N: tl.int32, K, programs,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr, BLOCK: tl.constexpr,
    UNROLL: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    tiles_m = tl.cdiv(M, BLOCK_M)
    tiles_n = tl.cdiv(N, BLOCK_N)
    slices, whole, share, _ = _schedule(tiles_m * tiles_n, K, programs, BLOCK_K)
    tile_m, tile_n = tile_place(whole + tl.program_id(1), tiles_m, tiles_n, GROUP_M)
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    row = tile_m.to(tl.int64) * BLOCK_M + i // BLOCK_N
    col = tile_n.to(tl.int64) * BLOCK_N + i % BLOCK_N
    inside = (i < BLOCK_M * BLOCK_N) & (row < M) & (col < N)
    first = tl.program_id(1) * slices  # of its slices
    begin = first // share
    end = (first + slices - 1) // share + 1

    if EARLY:
        gdc_wait()  # for the partial sums
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(begin, end, UNROLL):
        for j in tl.static_range(UNROLL):
            program = start + j
            place = program.to(tl.int64) * 2 + (program * share < first)  # its second share is in its second tile
            total += tl.load(partials_ptr + place * (BLOCK_M * BLOCK_N) + i, mask=inside & (program < end), other=0.0)
    tl.store(c_ptr + row * N + col, total, mask=inside)


def prepare(plan: Plan, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> Launcher:
    """What runs the kernel on matrices like a (M, K), b (K, N) and c (M, N): `gemm_ref.call.Prepare`."""
    problem, shape, config = plan.problem, plan.launch, plan.implementation.config
    num_stages = config.NUM_STAGES + 1  # the pipeliner keeps one buffer fewer
    early = launcher.early(a)
    multiply = launcher.prepare(_gemm_kernel, plan, names=("A", "B", "C", "partials"), num_stages=num_stages, **early)
    if shape.then is None:
        return launcher.TwoKernels(multiply, None, 0)
    sizes = problem.m, problem.n, problem.k, shape.parts
    tile = {name: getattr(config, name) for name in ("BLOCK_M", "BLOCK_N", "BLOCK_K", "GROUP_M")}
    block = VECTOR * shape.then.block[0]
    more = {"BLOCK": block, "UNROLL": UNROLL, "launch_pdl": bool(early["EARLY"]), **early, **tile}
    add = launcher.Prepared(_add_kernel, shape.then, ("partials", "C"), sizes, **more)
    return launcher.TwoKernels(multiply, add, shape.partials)
