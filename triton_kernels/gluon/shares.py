"""Tiles dealt to programs, the K of the last ones in equal shares: what s19 and s20 have of it in Gluon."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from triton_kernels.schedule import count_sharers, first_slice_of

# Triton 3.9 calls it `barrier`.
barrier = getattr(gl, "barrier", None) or gl.thread_barrier
WGMMA_M: gl.constexpr = gl.constexpr(64)  # rows that one wgmma gives


# The schedule of a program: whole tiles in turn, so many rounds, and of the `shared` tiles that come last the slices
# of K, all in a row, in equal shares, but for one slice. Programs go down as slices go up: whoever has the first slice
# of a tile waits for programs that were started before it. ROUNDS and SHARES: as in `launcher.phases`; what they say is
# not computed.
@gluon.jit
def schedule(tiles, shared, slices, ROUNDS: gl.constexpr, SHARES: gl.constexpr):
    program = gl.program_id(0)
    programs = gl.num_programs(0)
    rounds = ROUNDS
    if ROUNDS > 1:
        rounds = gl.cdiv(tiles - shared - program, programs)
        rounds = gl.maximum(rounds, 0)
    begin = 0
    end = 0
    shares = 0
    if SHARES:
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
def part_of(part, whole, slices, rounds, begin, end, SHARES: gl.constexpr):
    tile = part * gl.num_programs(0) + gl.program_id(0)
    first = 0
    count = slices
    if SHARES:
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


# The sums of a warpgroup to memory.
@gluon.jit
def store_sums(to_ptr, acc):
    x = in_a_row(acc)
    gl.store(to_ptr + gl.arange(0, x.shape[0], x.type.layout), x)


# x and the sums of so many shares, of which the first is at from_ptr and the next ones `step` elements before.
@gluon.jit
def add_sums(x, from_ptr, others, step: gl.constexpr, layout: gl.constexpr):
    AT_ONCE: gl.constexpr = max(1, 256 // x.shape[1])  # shares whose loads are in flight at the same time
    wide: gl.constexpr = gl.BlockedLayout([1, 4], [1, 32], [1, 4], [1, 0])
    place = gl.arange(0, x.shape[0] * x.shape[1], gl.SliceLayout(0, wide))[None, :]
    for behind in range(0, others, AT_ONCE):
        other = behind + gl.arange(0, AT_ONCE, gl.SliceLayout(1, wide))[:, None]
        shares = gl.load(from_ptr - other.to(gl.int64) * step + place, mask=other < others, other=0.0)
        x += as_sums(gl.sum(shares, axis=0), layout)
    return x


# Part number `part`, of PART sums, of a warpgroup's sums in a row, added up from so many shares: the first one is at
# from_ptr, and the next ones `step` elements before.
@gluon.jit
def add_part(from_ptr, part, splits, step: gl.constexpr, PART: gl.constexpr):
    AT_ONCE: gl.constexpr = 8192 // PART  # shares whose loads are in flight at the same time
    ROWS: gl.constexpr = min(WGMMA_M, PART // 8)
    ACROSS: gl.constexpr = min(4, PART // 128)  # warps that load the same share
    wide: gl.constexpr = gl.BlockedLayout([1, 4], [1, 32], [4 // ACROSS, ACROSS], [1, 0])
    result: gl.constexpr = gl.BlockedLayout([1, 1], [4, 8], [4, 1], [1, 0])
    place = part * PART + gl.arange(0, PART, gl.SliceLayout(0, wide))[None, :]
    total = gl.zeros((AT_ONCE, PART), gl.float32, wide)
    for before in range(0, splits, AT_ONCE):
        other = before + gl.arange(0, AT_ONCE, gl.SliceLayout(1, wide))[:, None]
        total += gl.load(from_ptr - other.to(gl.int64) * step + place, mask=other < splits, other=0.0)
    total = total.reshape(AT_ONCE, 1, ROWS // 16, 8, 4, 2, 2).permute(0, 2, 5, 3, 1, 4, 6)
    return gl.convert_layout(gl.sum(total.reshape(AT_ONCE, ROWS, 8), axis=0), result)
