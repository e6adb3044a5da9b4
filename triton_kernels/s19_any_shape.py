"""s19 any shape: small tiles, tiles of C^T for few rows, and the K of the last tiles in equal shares to all programs.

Idea: small tiles, the product turned round for few rows, K dealt evenly to all blocks; chosen by shape.
Changed from s18: the tile is one of a family, and the number of programs is chosen with it (gemm_ref/choice). After
    its whole tiles a program multiplies its share of the others, and leaves the sums in memory; the program that has
    the tile's first slice adds them to its own, or where shares are many and large, all programs of the tile add parts
    of it. Threads store a C whose rows TMA cannot. A kernel has no code for what its programs do not do: several tiles,
    or shares.
Held equal: BLOCK_M, BLOCK_N, BLOCK_K, NUM_STAGES, the order of tiles, what is dealt to the programs. Left to the
    compiler: as in s18, and who holds which sums of a share. Not here: clusters, and the order in which shares are
    added: those that are loaded together are added to each other first.
    Sides are powers of 2 in Triton, so a tile of 192 columns is two products of 128 and 64, and A is read for each.
Cost: as s18's; of each tile that is shared, each share but the first is written and read once, 4 * BLOCK_M * BLOCK_N
    bytes. The order in which shares are added is fixed: the same bits in every run of one grid.
Requires: as s18; programs that add parts wait for each other, and are launched cooperatively. In tf32 the tiles that
    mma.sync multiplies, of fewer than 64 rows or of two warps, read a B by rows without a copy.
"""

import torch
import triton
import triton.language as tl

from gemm_ref.call import Launcher, Plan
from triton_kernels import launcher
from triton_kernels.descriptors import Operand, block_k, describe, describe_operands
from triton_kernels.finish import store_finished
from triton_kernels.launcher import ALL_ADD
from triton_kernels.schedule import count_sharers, first_slice_of, tile_place
from triton_kernels.tiles import STORE_BYTES, load_b, scaled

SM_BYTES, BLOCK_BYTES = 228 * 1024, 1536  # of shared memory: of a multiprocessor, and of a block beside slices and C
ADD_AT_ONCE: tl.constexpr = tl.constexpr(128 * 128)  # sums of shares that are loaded at a time: 64 of a thread or 128
PARTS_AT_ONCE: tl.constexpr = tl.constexpr(8192)  # the same where each program adds parts of the tile


# Slice k .. k + BLOCK_K of A, or of B^T where the tile is of C^T = B^T @ A^T; and of B or A^T.
@triton.jit
def _load_slices(left_desc, right_desc, row, col, k, TRANSPOSE_C: tl.constexpr, B_LAYOUT: tl.constexpr):
    if TRANSPOSE_C and B_LAYOUT == "kn":
        left = left_desc.load([k, row]).T
    else:
        left = left_desc.load([row, k])
    return left, load_b(right_desc, k, col, "nk" if TRANSPOSE_C else B_LAYOUT)


# The two parts of the tile at (row, col) of what is multiplied, which is M x N, to their place in C.
@triton.jit
def _store(
    c, row, col, acc, more, M, N, scale_a, scale_b, bias_ptr, addend_ptr, addend_step, alpha, beta,
    NARROW: tl.constexpr, TRANSPOSE_C: tl.constexpr, PIECE: tl.constexpr, C_BY_THREADS: tl.constexpr,
    FINISHES: tl.constexpr, ACTIVATION: tl.constexpr, BIAS_BY_ROWS: tl.constexpr, VECTOR: tl.constexpr,
):  # fmt: skip
    x = scaled(acc, scale_a, scale_b)
    if TRANSPOSE_C:
        store_finished(c, col, row, x.T, N, M, bias_ptr, addend_ptr, addend_step, alpha, beta,
                       PIECE, C_BY_THREADS, FINISHES, ACTIVATION, BIAS_BY_ROWS, VECTOR)  # fmt: skip
    else:
        store_finished(c, row, col, x, M, N, bias_ptr, addend_ptr, addend_step, alpha, beta,
                       PIECE, C_BY_THREADS, FINISHES, ACTIVATION, BIAS_BY_ROWS, VECTOR)  # fmt: skip
    if NARROW:
        store_finished(c, row, col + acc.shape[1], scaled(more, scale_a, scale_b), M, N, bias_ptr, addend_ptr,
                       addend_step, alpha, beta, PIECE, C_BY_THREADS, FINISHES, ACTIVATION, BIAS_BY_ROWS,
                       VECTOR)  # fmt: skip


# The sums of a tile in a row, and back: in the order in which wgmma leaves them in registers, so each thread stores
# and loads 16 bytes at a time without an exchange among threads (a warp has rows r and r + 8, four lanes a row of 8).
@triton.jit
def _in_a_row(acc):
    x = acc.reshape(acc.shape[0] // 16, 2, 8, acc.shape[1] // 8, 4, 2)
    return x.permute(3, 0, 2, 4, 1, 5).reshape(acc.shape[0] * acc.shape[1])


@triton.jit
def _as_sums(x, BLOCK_M: tl.constexpr, COLUMNS: tl.constexpr):
    return x.reshape(COLUMNS // 8, BLOCK_M // 16, 8, 4, 2, 2).permute(1, 4, 2, 0, 3, 5).reshape(BLOCK_M, COLUMNS)


# x and what the programs before this one have of it, the first of them at from_ptr, `step` elements behind the next:
# half of the columns at a time until they are few.
@triton.jit
def _add_shares(x, from_ptr, others, step: tl.constexpr):
    BLOCK_M: tl.constexpr = x.shape[0]
    COLUMNS: tl.constexpr = x.shape[1]
    if BLOCK_M * COLUMNS <= ADD_AT_ONCE:
        AT_ONCE: tl.constexpr = ADD_AT_ONCE // (BLOCK_M * COLUMNS)
        place = tl.arange(0, BLOCK_M * COLUMNS)[None, :]
        for behind in range(0, others, AT_ONCE):
            other = behind + tl.arange(0, AT_ONCE)[:, None]
            shares = tl.load(from_ptr - other.to(tl.int64) * step + place, mask=other < others, other=0.0)
            x += _as_sums(tl.sum(shares, axis=0), BLOCK_M, COLUMNS)
        added = x
    else:
        left, right = x.reshape(BLOCK_M, 2, COLUMNS // 2).permute(0, 2, 1).split()
        left = _add_shares(left, from_ptr, others, step)
        right = _add_shares(right, from_ptr + BLOCK_M * COLUMNS // 2, others, step)
        added = tl.join(left, right).permute(0, 2, 1).reshape(BLOCK_M, COLUMNS)
    return added


@triton.jit
def _store_share(to_ptr, acc):
    x = _in_a_row(acc)
    tl.store(to_ptr + tl.arange(0, x.shape[0]), x)


# The sums of both products to memory, and one more program that has stored its sums.
@triton.jit
def _store_shares(to_ptr, arrived_ptr, acc, more, NARROW: tl.constexpr):
    _store_share(to_ptr, acc)
    if NARROW:
        _store_share(to_ptr + acc.shape[0] * acc.shape[1], more)
    tl.debug_barrier()  # all threads have stored their sums
    tl.atomic_add(arrived_ptr, 1, sem="release", scope="gpu")


# Add parts of the tile at (row, col) over its shares, and finish them. `splits` programs share the tile, and program
# number `share` of them adds every splits-th part from that on, each of PART sums in a row. Its own share is at
# own_ptr, and each share is in front of the one before it.
@triton.jit
def _add_parts(
    own_ptr, arrived_ptr, share, splits, c, row, col, M, N, scale_a, scale_b, bias_ptr, addend_ptr, addend_step,
    alpha, beta, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, PART: tl.constexpr, TRANSPOSE_C: tl.constexpr,
    FINISHES: tl.constexpr, ACTIVATION: tl.constexpr, BIAS_BY_ROWS: tl.constexpr, VECTOR: tl.constexpr,
):  # fmt: skip
    PARTS: tl.constexpr = BLOCK_M * BLOCK_N // PART
    ROWS: tl.constexpr = min(BLOCK_M, PART // 8)  # `_in_a_row` has all rows of 8 columns, then of the next 8
    COLUMNS: tl.constexpr = PART // ROWS
    AT_ONCE: tl.constexpr = PARTS_AT_ONCE // PART
    if share < PARTS:
        while tl.atomic_add(arrived_ptr, 0, sem="acquire", scope="gpu") < splits:
            pass
        first_ptr = own_ptr + share.to(tl.int64) * (BLOCK_M * BLOCK_N)
        for part in range(share, PARTS, splits):
            place = part * PART + tl.arange(0, PART)[None, :]
            total = tl.zeros((AT_ONCE, PART), tl.float32)
            for before in range(0, splits, AT_ONCE):
                other = before + tl.arange(0, AT_ONCE)[:, None]
                at = place - other.to(tl.int64) * (BLOCK_M * BLOCK_N)
                total += tl.load(first_ptr + at, mask=other < splits, other=0.0)
            total = total.reshape(AT_ONCE, COLUMNS // 8, ROWS // 16, 8, 4, 2, 2).permute(0, 2, 5, 3, 1, 4, 6)
            x = tl.sum(total.reshape(AT_ONCE, ROWS, COLUMNS), axis=0)
            _store(c, row + part % (BLOCK_M // ROWS) * ROWS, col + part // (BLOCK_M // ROWS) * COLUMNS, x, x, M, N,
                   scale_a, scale_b, bias_ptr, addend_ptr, addend_step, alpha, beta, 0, TRANSPOSE_C,
                   ROWS if TRANSPOSE_C else COLUMNS, 1, FINISHES, ACTIVATION, BIAS_BY_ROWS, VECTOR)  # fmt: skip
        # The last of those that waited sets the flag to 0 for the next launch.
        if tl.atomic_add(arrived_ptr, 1, sem="relaxed", scope="gpu") == splits + tl.minimum(splits, PARTS) - 1:
            tl.atomic_xchg(arrived_ptr, 0, sem="relaxed", scope="gpu")


# Where a tile is, and slices first .. first + count of its product: of its first columns, and of the NARROW others.
@triton.jit
def _multiply(
    left_desc, right_desc, narrow_desc, tile, tiles_m, tiles_n, first, count,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr, NARROW: tl.constexpr,
    TRANSPOSE_C: tl.constexpr, B_LAYOUT: tl.constexpr,
):  # fmt: skip
    WIDE: tl.constexpr = BLOCK_N - NARROW
    tile_m, tile_n = tile_place(tile, tiles_m, tiles_n, GROUP_M)
    row = tile_m * BLOCK_M
    col = tile_n * BLOCK_N
    acc = tl.zeros((BLOCK_M, WIDE), tl.float32)
    more = tl.zeros((BLOCK_M, NARROW if NARROW else 16), tl.float32)
    tl.assume(count > 0)  # a loop that may be skipped has ptxas wait after every wgmma
    for step in range(first, first + count):
        k = step * BLOCK_K
        left, right = _load_slices(left_desc, right_desc, row, col, k, TRANSPOSE_C, B_LAYOUT)
        acc = tl.dot(left, right, acc, input_precision="tf32")
        if NARROW:
            more = tl.dot(left, load_b(narrow_desc, k, col + WIDE, B_LAYOUT), more, input_precision="tf32")
    return row, col, acc, more


# M and N are those of what is multiplied. ROUNDS: complete tiles of a program: none, one, or 2 for any number; SHARES:
# whether the last tiles are shared, and who adds them (`launcher.phases`). A kernel without either has no code for it,
# which would be fetched.
@triton.jit(do_not_specialize=["M", "N", "K", "shared", "addend_step"])
def _gemm_kernel(
    left_desc, right_desc, narrow_desc, c, partials_ptr, flags_ptr,
    M, N, K, shared, scale_a, scale_b, bias_ptr, addend_ptr, addend_step, alpha, beta,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
    TRANSPOSE_C: tl.constexpr, B_LAYOUT: tl.constexpr, PIECE: tl.constexpr, C_BY_THREADS: tl.constexpr,
    FINISHES: tl.constexpr, ACTIVATION: tl.constexpr, BIAS_BY_ROWS: tl.constexpr, VECTOR: tl.constexpr,
    NARROW: tl.constexpr, ROUNDS: tl.constexpr, SHARES: tl.constexpr, PART: tl.constexpr,
):  # fmt: skip
    tl.assume(K > 0)
    tiles_m = tl.cdiv(M, BLOCK_M)
    tiles_n = tl.cdiv(N, BLOCK_N)
    slices = tl.cdiv(K, BLOCK_K)
    whole = tiles_m * tiles_n - shared
    program = tl.program_id(0)
    programs = tl.num_programs(0)
    if ROUNDS == 1:
        row, col, acc, more = _multiply(left_desc, right_desc, narrow_desc, program, tiles_m, tiles_n, 0, slices,
                                        BLOCK_M, BLOCK_N, BLOCK_K, GROUP_M, NARROW, TRANSPOSE_C, B_LAYOUT)  # fmt: skip
        _store(c, row, col, acc, more, M, N, scale_a, scale_b, bias_ptr, addend_ptr, addend_step, alpha, beta,
               NARROW, TRANSPOSE_C, PIECE, C_BY_THREADS, FINISHES, ACTIVATION, BIAS_BY_ROWS, VECTOR)  # fmt: skip
    if ROUNDS > 1:
        # Two sums in one flattened loop would be set to zero by other instructions than wgmma, which then wait.
        for tile in tl.range(program, whole, programs, flatten=NARROW == 0):
            row, col, acc, more = _multiply(left_desc, right_desc, narrow_desc, tile, tiles_m, tiles_n, 0, slices,
                                            BLOCK_M, BLOCK_N, BLOCK_K, GROUP_M, NARROW, TRANSPOSE_C,
                                            B_LAYOUT)  # fmt: skip
            _store(c, row, col, acc, more, M, N, scale_a, scale_b, bias_ptr, addend_ptr, addend_step, alpha, beta,
                   NARROW, TRANSPOSE_C, PIECE, C_BY_THREADS, FINISHES, ACTIVATION, BIAS_BY_ROWS, VECTOR)  # fmt: skip
    if SHARES:
        # My share of the slices of the other tiles, all in a row. Programs go down as slices go up: whoever has the
        # first slice of a tile waits for programs that were started before it.
        begin = first_slice_of(programs - 1 - program, shared * slices)
        end = first_slice_of(programs - program, shared * slices)
        at = begin
        while at < end:
            of_shared = at // slices  # which of the tiles that are shared
            first = at % slices
            count = tl.minimum(slices - first, end - at)
            row, col, acc, more = _multiply(left_desc, right_desc, narrow_desc, whole + of_shared, tiles_m, tiles_n,
                                            first, count, BLOCK_M, BLOCK_N, BLOCK_K, GROUP_M, NARROW, TRANSPOSE_C,
                                            B_LAYOUT)  # fmt: skip
            arrived_ptr = flags_ptr + of_shared  # how many programs have stored their sums of the tile
            if SHARES == ALL_ADD:
                splits = programs // shared
                to_ptr = partials_ptr + program.to(tl.int64) * (BLOCK_M * BLOCK_N)
                _store_shares(to_ptr, arrived_ptr, acc, more, NARROW)
                _add_parts(to_ptr, arrived_ptr, (programs - 1 - program) % splits, splits, c, row, col, M, N,
                           scale_a, scale_b, bias_ptr, addend_ptr, addend_step, alpha, beta, BLOCK_M, BLOCK_N,
                           PART, TRANSPOSE_C, FINISHES, ACTIVATION, BIAS_BY_ROWS, VECTOR)  # fmt: skip
            elif first > 0:  # another program has the tile's first slice
                to_ptr = partials_ptr + program.to(tl.int64) * (BLOCK_M * BLOCK_N)
                _store_shares(to_ptr, arrived_ptr, acc, more, NARROW)
            else:
                # Add what the others have of it: the program before this has the next slices, the one before that
                # those after them. The last share of it is that which has its last slice.
                end_of_tile = (of_shared + 1).to(tl.int64) * slices
                last = ((end_of_tile * count_sharers(shared * slices) - 1) // (shared * slices)).to(tl.int32)
                others = last - (programs - 1 - program)
                if others > 0:
                    while tl.atomic_cas(arrived_ptr, others, 0, sem="acquire", scope="gpu") != others:
                        pass  # the flag is 0 again for the next launch
                from_ptr = partials_ptr + (program - 1).to(tl.int64) * (BLOCK_M * BLOCK_N)
                acc = _add_shares(acc, from_ptr, others, BLOCK_M * BLOCK_N)
                if NARROW:
                    more = _add_shares(more, from_ptr + BLOCK_M * acc.shape[1], others, BLOCK_M * BLOCK_N)
                _store(c, row, col, acc, more, M, N, scale_a, scale_b, bias_ptr, addend_ptr, addend_step, alpha, beta,
                       NARROW, TRANSPOSE_C, PIECE, C_BY_THREADS, FINISHES, ACTIVATION, BIAS_BY_ROWS,
                       VECTOR)  # fmt: skip
            at += count


def prepare(plan: Plan, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> Launcher:
    """What runs the kernel on matrices like a (M, K), b (K, N) and c (M, N): `gemm_ref.call.Prepare`."""
    item = plan.implementation
    config, adds_c = item.config, item.epilogue.adds_c
    rows, columns = (config.BLOCK_N, config.BLOCK_M) if item.transpose_c else (config.BLOCK_M, config.BLOCK_N)
    slices = config.NUM_STAGES * (config.BLOCK_M + config.BLOCK_N) * config.BLOCK_K_BYTES
    left = SM_BYTES // config.BLOCKS_PER_SM - BLOCK_BYTES - slices
    most = min(STORE_BYTES // config.BLOCKS_PER_SM, 1 << left.bit_length() - 1) // (2 if adds_c else 1)
    widths = (config.BLOCK_N - config.NARROW, config.NARROW or config.BLOCK_N)
    piece = min(columns, *([] if item.transpose_c else [min(widths)]), most // rows // c.itemsize)

    phases = launcher.phases(plan)
    c_by_threads = item.c_by_threads or phases["SHARES"] == ALL_ADD.value

    def described(left: torch.Tensor, right: torch.Tensor, _: torch.Tensor, c: torch.Tensor) -> tuple[Operand, ...]:
        of_c = c if c_by_threads else describe(c, rows, piece)
        return *describe_operands(plan, left, right, widths=widths), of_c

    # What is added to a piece is arranged in shared memory as floats: so half as much at once, and beside the small
    # slices of C^T one stage less.
    num_stages = config.NUM_STAGES - (adds_c and config.TRANSPOSE_C)
    return launcher.prepare_shared(
        _gemm_kernel, plan, a.device, describe=described, num_stages=num_stages, num_warps=config.WARPS,
        BLOCK_K=block_k(plan), PIECE=piece, **phases,
    )  # fmt: skip
