// The tiles of C are ordered in groups of GROUP_M rows of tiles, column by column in a group, so that the tiles that
// are computed at the same time form a compact region whose slices of A and B stay in the L2 cache.
#pragma once

struct TilePlace {
    int m, n;  // indices of the tile along M and N
};

template <int GROUP_M>
__device__ __forceinline__ TilePlace tile_place(int tile, int tiles_m, int tiles_n) {
    const int group = tile / (GROUP_M * tiles_n), in_group = tile % (GROUP_M * tiles_n);
    const int rows = min(GROUP_M, tiles_m - group * GROUP_M);
    return {group * GROUP_M + in_group % rows, in_group / rows};
}
