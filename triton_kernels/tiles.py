"""What the rungs on tensor cores share: in which order the tiles of C are computed."""

import triton
import triton.language as tl


# Tile number `tile` of tiles_m x tiles_n, as (which down, which to the right): GROUP_M rows of tiles at a time, column by
# column, so that the tiles that are computed at the same time are compact, and their slices stay in the L2 cache.
@triton.jit
def tile_place(tile, tiles_m, tiles_n, GROUP_M: tl.constexpr):
    group = tile // (GROUP_M * tiles_n)
    in_group = tile % (GROUP_M * tiles_n)
    rows = tl.minimum(GROUP_M, tiles_m - group * GROUP_M)
    return group * GROUP_M + in_group % rows, in_group // rows


# Slice k .. k + BLOCK_K, columns col .. col + BLOCK_N of B, as (BLOCK_K, BLOCK_N).
@triton.jit
def load_b(b_desc, k, col, B_LAYOUT: tl.constexpr):
    if B_LAYOUT == "kn":
        b = b_desc.load([k, col])
    else:
        b = b_desc.load([col, k]).T
    return b


# The sums as elements of C, multiplied by the scales of A and B where there are any.
@triton.jit
def scaled(acc, scale_a, scale_b):
    if scale_a is not None:
        acc *= tl.load(scale_a)
    if scale_b is not None:
        acc *= tl.load(scale_b)
    return acc
