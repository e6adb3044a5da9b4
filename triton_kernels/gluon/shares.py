"""Tiles dealt to programs, the K of the last ones in equal shares: what s19 and s20 have of it in Gluon."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from triton_kernels.schedule import count_sharers, first_slice_of

# Triton 3.9 calls it `barrier`.
barrier = getattr(gl, "barrier", None) or gl.thread_barrier
WGMMA_M: gl.constexpr = gl.constexpr(64)  # rows that one wgmma gives


# The schedule of a program: whole tiles in turn, so many rounds, and of the `shared` tiles that come last the slices
# of K, all in a row, in equal shares, but for one slice. Programs go down as slices go up: whoever has the first slice
# of a tile waits for programs that were started before it.
@gluon.jit
def schedule(tiles, shared, slices):
    program = gl.program_id(0)
    programs = gl.num_programs(0)
    rounds = gl.maximum(gl.cdiv(tiles - shared - program, programs), 0)
    begin = first_slice_of(programs - 1 - program, shared * slices)
    end = first_slice_of(programs - program, shared * slices)
    shares = gl.where(begin < end, gl.cdiv(end, slices) - begin // slices, 0)  # tiles that mine are of: two at most
    return rounds, rounds + shares, begin, end


# How many shares of the tile that slice `begin` is of come after mine: the last one is that which has its last slice.
@gluon.jit
def shares_behind(begin, shared, slices):
    end = (begin // slices + 1).to(gl.int64) * slices
    last = ((end * count_sharers(shared * slices) - 1) // (shared * slices)).to(gl.int32)
    return last - (gl.num_programs(0) - 1 - gl.program_id(0))


# Part number `part` of a program: of which tile, and of that which slices of K.
@gluon.jit
def part_of(part, whole, slices, rounds, begin, end):
    tile = part * gl.num_programs(0) + gl.program_id(0)
    first = 0
    count = slices
    if part >= rounds:
        at = gl.maximum(begin, (begin // slices + part - rounds) * slices)
        tile = whole + at // slices
        first = at % slices
        count = gl.minimum(slices - first, end - at)
    return tile, first, count


# The sums (64, n) of a warpgroup in a row, 4 of each thread next to those of its neighbour; and back.
@gluon.jit
def in_a_row(acc):
    x = acc.reshape(4, 2, 8, acc.shape[1] // 8, 4, 2).permute(3, 0, 2, 4, 1, 5).reshape(WGMMA_M * acc.shape[1])
    return gl.convert_layout(x, gl.BlockedLayout([4], [32], [4], [0]), assert_trivial=True)


@gluon.jit
def as_sums(x, layout: gl.constexpr):
    COLUMNS: gl.constexpr = x.shape[0] // WGMMA_M
    acc = x.reshape(COLUMNS // 8, 4, 8, 4, 2, 2).permute(1, 4, 2, 0, 3, 5).reshape(WGMMA_M, COLUMNS)
    return gl.convert_layout(acc, layout, assert_trivial=True)
