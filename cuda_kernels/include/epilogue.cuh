// From a warpgroup's accumulators through shared memory to C: in pieces of 8 KB, of rows of 128 bytes in the swizzle,
// which the TMA unit stores one after another while the next is written.
#pragma once
#include "cluster.cuh"
#include "tensor_tile.cuh"

constexpr int PIECES = 2;                                            // of a warpgroup: one is written, one is stored
constexpr int LINE = SWIZZLE_ROW_BYTES / sizeof(Result);             // elements of C in a row of a piece
constexpr int PIECE_COLUMNS = TURNED ? WGMMA_M / 2 : LINE;           // columns of D in a piece
constexpr int TURNED_PANEL_BYTES = WGMMA_M / 2 * SWIZZLE_ROW_BYTES;  // of the two that a piece of C^T has

struct Piece {
    char bytes[WGMMA_M * SWIZZLE_ROW_BYTES];
};

// stmatrix.x4 (PTX ISA, 'Warp-level matrix store instruction'): four 8 x 8 matrices of 16 bits; lane l gives the place
// of row l % 8 of matrix l / 8.
__device__ __forceinline__ void stmatrix_x4(void* row, unsigned a, unsigned b, unsigned c, unsigned d) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(shared_address(row)), "r"(a),
                 "r"(b), "r"(c), "r"(d)
                 : "memory");
}

// Writes PIECE_COLUMNS columns of D, from FIRST on, as C has them.
template <int FIRST>
__device__ __forceinline__ void write_piece(Piece& piece, const float (&acc)[WGMMA_ACCUMULATORS], float scale) {
    const int warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
    if constexpr (TURNED) {
        // Two panels of 32 x 32 elements of C: a lane has two neighbouring columns of C in each of its rows
        char* const panel = piece.bytes + turned_panel() * TURNED_PANEL_BYTES + lane / 4 % 2 * 8;
#pragma unroll
        for (int i = FIRST / 2; i < (FIRST + PIECE_COLUMNS) / 2; i += 4) {
#pragma unroll
            for (int next = 0; next < 2; ++next) {
                const int row = (i - FIRST / 2) * 2 + lane % 4 * 2 + next;
                store_pair(reinterpret_cast<Result*>(panel + swizzled_128(row, turned_chunk())), acc[i + next],
                           acc[i + 2 + next]);
            }
        }
    } else if constexpr (sizeof(Result) == 2) {
        const int row = warp * 16 + lane % 16, right = lane / 16;  // 8 columns are one row of a matrix
#pragma unroll
        for (int chunk = 0; chunk < LINE / 8; chunk += 2) {
            const int i = FIRST / 2 + chunk * 4;
            unsigned pairs[4];
#pragma unroll
            for (int p = 0; p < 4; ++p) {
                store_pair(reinterpret_cast<Result*>(&pairs[p]), acc[i + 2 * p] * scale, acc[i + 2 * p + 1] * scale);
            }
            stmatrix_x4(piece.bytes + swizzled_128(row, chunk + right), pairs[0], pairs[1], pairs[2], pairs[3]);
        }
    } else {
        const int row = warp * 16 + lane / 4;
#pragma unroll
        for (int column = 0; column < LINE; column += 8) {
            const int i = (FIRST + column) / 2, chunk = column / 4 + lane % 4 / 2;
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                char* const to = piece.bytes + swizzled_128(row + half * 8, chunk) + lane % 2 * 8;
                store_pair(reinterpret_cast<Result*>(to), acc[i + 2 * half], acc[i + 2 * half + 1]);
            }
        }
    }
}

// Stores a warpgroup's 64 x 256 sums at (row, col) of D; `pieces` are PIECES of its own, `barrier` a number of its own.
template <int FIRST = 0>
__device__ __forceinline__ void store_tile(const CUtensorMap& C, const float (&acc)[WGMMA_ACCUMULATORS], float scale,
                                           Piece* pieces, int row, int col, int barrier) {
    const bool storer = threadIdx.x % WARPGROUP == 0;
    Piece& piece = pieces[FIRST / PIECE_COLUMNS % PIECES];
    if (storer) tma_store_wait_read<PIECES - 1>();
    bar_sync(barrier, WARPGROUP);  // the piece before the last has been read
    write_piece<FIRST>(piece, acc, scale);
    fence_proxy_async();
    bar_sync(barrier, WARPGROUP);  // the piece is written, and visible to the TMA unit
    if (storer) {
        if constexpr (TURNED) {
            tma_store(C, piece.bytes, row, col + FIRST);
            tma_store(C, piece.bytes + TURNED_PANEL_BYTES, row + LINE, col + FIRST);
        } else {
            tma_store(C, piece.bytes, col + FIRST, row);
        }
        tma_store_commit();
    }
    if constexpr (FIRST + PIECE_COLUMNS < WGMMA_N) {
        store_tile<FIRST + PIECE_COLUMNS>(C, acc, scale, pieces, row, col, barrier);
    }
}
