"""s19 any shape: small tiles, tiles of C^T for few rows, and the K of the last tiles in equal shares to all programs.

Idea: small tiles, the product turned round for few rows, K dealt evenly to all blocks; chosen by shape.
Changed from s18: the tile is one of a family, and the number of programs is chosen with it (gemm_ref/choice). After
    its whole tiles a program multiplies its share of the others, and leaves the sums in memory; the program that has
    the tile's first slice adds them to its own. Threads store a C whose rows TMA cannot.
Held equal: BLOCK_M, BLOCK_N, BLOCK_K, NUM_STAGES, the order of tiles, what is dealt to the programs, the order in
    which shares are added. Left to the compiler: as in s18, and who holds which sums of a share. Not here: clusters,
    and sides that are no powers of 2, which Triton does not have.
Cost: as s18's; of each tile that is shared, each share but the first is written and read once, 4 * BLOCK_M * BLOCK_N
    bytes. Shares are added in the order of K: the same bits in every run of one grid.
Requires: as s18.
"""

import torch
import triton
import triton.language as tl

from gemm_ref.call import Launcher, Plan
from gemm_ref.config.hopper import WGMMA_M
from triton_kernels import launcher
from triton_kernels.descriptors import Operand, block_k, describe, describe_operands
from triton_kernels.finish import store_finished
from triton_kernels.schedule import count_sharers, first_slice_of, tile_place
from triton_kernels.tiles import STORE_BYTES, load_b, scaled

WARPGROUP = 4  # warps that one wgmma takes
ADD_AT_ONCE: tl.constexpr = tl.constexpr(128 * 128)  # sums of a tile that are added at a time: 64 of a thread or 128


# Slice k .. k + BLOCK_K of A, or of B^T where the tile is of C^T = B^T @ A^T; and of B or A^T.
@triton.jit
def _load_slices(left_desc, right_desc, row, col, k, TRANSPOSE_C: tl.constexpr, B_LAYOUT: tl.constexpr):
    if TRANSPOSE_C and B_LAYOUT == "kn":
        left = left_desc.load([k, row]).T
    else:
        left = left_desc.load([row, k])
    return left, load_b(right_desc, k, col, "nk" if TRANSPOSE_C else B_LAYOUT)


# The tile at (row, col) of what is multiplied, which is M x N, to its place in C.
@triton.jit
def _store(
    c, row, col, acc, M, N, scale_a, scale_b, bias_ptr, addend_ptr, addend_step, alpha, beta,
    TRANSPOSE_C: tl.constexpr, PIECE: tl.constexpr, C_BY_THREADS: tl.constexpr, FINISHES: tl.constexpr,
    ACTIVATION: tl.constexpr, BIAS_BY_ROWS: tl.constexpr, VECTOR: tl.constexpr,
):  # fmt: skip
    x = scaled(acc, scale_a, scale_b)
    if TRANSPOSE_C:
        row, col = col, row
        M, N = N, M
        x = x.T
    store_finished(c, row, col, x, M, N, bias_ptr, addend_ptr, addend_step, alpha, beta,
                   PIECE, C_BY_THREADS, FINISHES, ACTIVATION, BIAS_BY_ROWS, VECTOR)  # fmt: skip


# The columns of a tile from `first` on, and what the programs before this one have of them: half of them at a time
# until they are few.
@triton.jit
def _add_shares(x, partials_ptr, others, first: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    COLUMNS: tl.constexpr = x.shape[1]
    if BLOCK_M * COLUMNS <= ADD_AT_ONCE:
        m = tl.arange(0, BLOCK_M)[:, None]
        n = first + tl.arange(0, COLUMNS)[None, :]
        for other in range(1, others + 1):
            from_ptr = partials_ptr + (tl.program_id(0) - other).to(tl.int64) * (BLOCK_M * BLOCK_N)
            x += tl.load(from_ptr + m * BLOCK_N + n)
        added = x
    else:
        left, right = x.reshape(BLOCK_M, 2, COLUMNS // 2).permute(0, 2, 1).split()
        left = _add_shares(left, partials_ptr, others, first, BLOCK_M, BLOCK_N)
        right = _add_shares(right, partials_ptr, others, first + COLUMNS // 2, BLOCK_M, BLOCK_N)
        added = tl.join(left, right).permute(0, 2, 1).reshape(BLOCK_M, COLUMNS)
    return added


# M and N are those of what is multiplied.
@triton.jit(do_not_specialize=["M", "N", "K", "shared", "addend_step"])
def _gemm_kernel(
    left_desc, right_desc, c, partials_ptr, flags_ptr,
    M, N, K, shared, scale_a, scale_b, bias_ptr, addend_ptr, addend_step, alpha, beta,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
    TRANSPOSE_C: tl.constexpr, B_LAYOUT: tl.constexpr, PIECE: tl.constexpr, C_BY_THREADS: tl.constexpr,
    FINISHES: tl.constexpr, ACTIVATION: tl.constexpr, BIAS_BY_ROWS: tl.constexpr, VECTOR: tl.constexpr,
):  # fmt: skip
    tl.assume(K > 0)  # a loop that may be skipped has ptxas wait after every wgmma
    tiles_m = tl.cdiv(M, BLOCK_M)
    tiles_n = tl.cdiv(N, BLOCK_N)
    slices = tl.cdiv(K, BLOCK_K)
    whole = tiles_m * tiles_n - shared
    program = tl.program_id(0)
    programs = tl.num_programs(0)
    for tile in tl.range(program, whole, programs, flatten=True):
        tile_m, tile_n = tile_place(tile, tiles_m, tiles_n, GROUP_M)
        row = tile_m * BLOCK_M
        col = tile_n * BLOCK_N
        acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
        for step in range(slices):
            left, right = _load_slices(left_desc, right_desc, row, col, step * BLOCK_K, TRANSPOSE_C, B_LAYOUT)
            acc = tl.dot(left, right, acc, input_precision="tf32")
        _store(c, row, col, acc, M, N, scale_a, scale_b, bias_ptr, addend_ptr, addend_step, alpha, beta,
               TRANSPOSE_C, PIECE, C_BY_THREADS, FINISHES, ACTIVATION, BIAS_BY_ROWS, VECTOR)  # fmt: skip

    # My share of the slices of the other tiles, all in a row. Programs go down as slices go up: whoever has the first
    # slice of a tile waits for programs that were started before it.
    begin = first_slice_of(programs - 1 - program, shared * slices)
    end = first_slice_of(programs - program, shared * slices)
    at = begin
    while at < end:
        of_shared = at // slices  # which of the tiles that are shared
        first = at % slices
        count = tl.minimum(slices - first, end - at)
        tl.assume(count > 0)
        tile_m, tile_n = tile_place(whole + of_shared, tiles_m, tiles_n, GROUP_M)
        row = tile_m * BLOCK_M
        col = tile_n * BLOCK_N
        acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
        for step in range(first, first + count):
            left, right = _load_slices(left_desc, right_desc, row, col, step * BLOCK_K, TRANSPOSE_C, B_LAYOUT)
            acc = tl.dot(left, right, acc, input_precision="tf32")
        if first > 0:  # another program has the tile's first slice
            to_ptr = partials_ptr + program.to(tl.int64) * (BLOCK_M * BLOCK_N)
            tl.store(to_ptr + tl.arange(0, BLOCK_M)[:, None] * BLOCK_N + tl.arange(0, BLOCK_N)[None, :], acc)
            tl.debug_barrier()  # all threads have stored their sums
            tl.atomic_xchg(flags_ptr + program, 1, sem="release", scope="gpu")
        else:
            # Add what the others have of it: the program before this has the next slices, the one before that those
            # after them. The last share of it is that which has its last slice.
            end_of_tile = (of_shared + 1).to(tl.int64) * slices
            last = ((end_of_tile * count_sharers(shared * slices) - 1) // (shared * slices)).to(tl.int32)
            others = last - (programs - 1 - program)
            for other in range(1, others + 1):
                flag_ptr = flags_ptr + program - other
                while tl.atomic_cas(flag_ptr, 1, 0, sem="acquire", scope="gpu") == 0:  # and 0 for the next launch
                    pass
            acc = _add_shares(acc, partials_ptr, others, 0, BLOCK_M, BLOCK_N)
            _store(c, row, col, acc, M, N, scale_a, scale_b, bias_ptr, addend_ptr, addend_step, alpha, beta,
                   TRANSPOSE_C, PIECE, C_BY_THREADS, FINISHES, ACTIVATION, BIAS_BY_ROWS, VECTOR)  # fmt: skip
        at += count


def prepare(plan: Plan, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> Launcher:
    """What runs the kernel on matrices like a (M, K), b (K, N) and c (M, N): `gemm_ref.call.Prepare`."""
    item = plan.implementation
    config, adds_c = item.config, item.epilogue.adds_c
    rows, columns = (config.BLOCK_N, config.BLOCK_M) if item.transpose_c else (config.BLOCK_M, config.BLOCK_N)
    most = STORE_BYTES // 2 if adds_c else STORE_BYTES
    piece = min(columns, most // rows // c.itemsize)

    def described(left: torch.Tensor, right: torch.Tensor, c: torch.Tensor) -> tuple[Operand, ...]:
        of_c = c if item.c_by_threads else describe(c, rows, piece)
        return *describe_operands(plan, left, right), of_c

    # What is added to a piece is arranged in shared memory as floats: so half as much at once, and beside the small
    # slices of C^T one stage less.
    num_stages = config.NUM_STAGES - (adds_c and config.TRANSPOSE_C)
    return launcher.prepare_shared(
        _gemm_kernel, plan, a.device, describe=described, num_stages=num_stages,
        num_warps=config.BLOCK_M // WGMMA_M * WARPGROUP, BLOCK_K=block_k(plan), PIECE=piece,
    )  # fmt: skip
