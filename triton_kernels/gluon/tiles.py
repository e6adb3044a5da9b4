"""In which order the tiles of C are computed, for the rungs from s16 on."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl


# Tile number `tile`, as `triton_kernels.tiles.tile_place` has it.
@gluon.jit
def tile_place(tile, tiles_m, tiles_n, GROUP_M: gl.constexpr):
    group = tile // (GROUP_M * tiles_n)
    in_group = tile % (GROUP_M * tiles_n)
    rows = gl.minimum(GROUP_M, tiles_m - group * GROUP_M)
    return group * GROUP_M + in_group % rows, in_group // rows
