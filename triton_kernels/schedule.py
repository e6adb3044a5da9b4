"""Which program computes what, and in which order: functions of scalars, the same in Triton and Gluon."""

import triton
import triton.language as tl


# The row and column of tile number `tile` of tiles_m x tiles_n: GROUP_M rows of tiles at a time, column by column, so
# the tiles that are computed at the same time are compact, and their slices stay in the L2 cache.
@triton.jit
def tile_place(tile, tiles_m, tiles_n, GROUP_M: tl.constexpr):
    group = tile // (GROUP_M * tiles_n)
    in_group = tile % (GROUP_M * tiles_n)
    rows = tl.minimum(GROUP_M, tiles_m - group * GROUP_M)
    return group * GROUP_M + in_group % rows, in_group // rows


# How many programs have a share of so many slices: none has an empty one, for which others would wait.
@triton.jit
def count_sharers(slices):
    return tl.maximum(tl.minimum(tl.num_programs(0), slices), 1)


# The first slice of a share, of so many slices in a row: slices * share / sharers, without a product past 2^31.
@triton.jit
def first_slice_of(share, slices):
    sharers = count_sharers(slices)
    share = tl.minimum(share, sharers)
    return slices // sharers * share + slices % sharers * share // sharers
