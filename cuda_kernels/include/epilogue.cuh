// A warpgroup's accumulators go through shared memory to C in pieces of at most 8 KB, with swizzled rows of 128 bytes.
// The TMA unit stores one piece while the next is written; threads store them where it cannot (destination.cuh).
#pragma once
#include "tensor_tile.cuh"

constexpr int greatest_divisor(int a, int b) { return b == 0 ? a : greatest_divisor(b, a % b); }
constexpr int FULL_LINE = SWIZZLE_ROW_BYTES / sizeof(Result);
constexpr int LINE =
    TRANSPOSE_C ? FULL_LINE : greatest_divisor(config::BLOCK_N, FULL_LINE);  // elements of C per row of a piece
constexpr int LINE_BYTES = LINE * sizeof(Result);
constexpr int PANELS = TRANSPOSE_C ? WGMMA_M / LINE : 1;  // per piece: a piece of C^T has all 64 rows
constexpr int PIECE_COLUMNS = greatest_divisor(config::BLOCK_N, FULL_LINE);  // columns of D in a piece
constexpr int PIECE_PANEL_BYTES = (TRANSPOSE_C ? PIECE_COLUMNS : WGMMA_M) * LINE_BYTES;
constexpr int PIECES_OF_TILE = config::BLOCK_N / PIECE_COLUMNS;
// Pieces per warpgroup: one is written while the other is stored. Three warpgroups have one each, which frees memory
// for another stage: 3000 cubed in bf16 takes 84.4 us instead of 89.4 (H100, 192 x 192).
constexpr int PIECES = min_of(PIECES_OF_TILE, config::BLOCK_M > 2 * WGMMA_M ? 1 : 2);

// Returns the byte offset of chunk `chunk` of row `row` in a piece with the 128-byte or the 64-byte swizzle.
__device__ __forceinline__ int swizzled_line(int row, int chunk) {
    return LINE_BYTES == 128 ? swizzled_128(row, chunk) : row * LINE_BYTES + (chunk ^ row / 2 % 4) * 16;
}

struct Piece {
    std::byte bytes[PANELS * PIECE_PANEL_BYTES];
};

// stmatrix.x4 (PTX ISA, 'Warp-level matrix store instruction') stores four 8 x 8 matrices of 16-bit elements; lane l
// gives the address of row l % 8 of matrix l / 8.
__device__ __forceinline__ void stmatrix_x4(void* row, unsigned a, unsigned b, unsigned c, unsigned d) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(shared_address(row)), "r"(a),
                 "r"(b), "r"(c), "r"(d)
                 : "memory");
}
// Stores each matrix transposed: lane l gives the address of column l % 8.
__device__ __forceinline__ void stmatrix_x4_trans(void* row, unsigned a, unsigned b, unsigned c, unsigned d) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(shared_address(row)),
                 "r"(a), "r"(b), "r"(c), "r"(d)
                 : "memory");
}

// Writes PIECE_COLUMNS columns of D, from FIRST on, in the layout of C.
template <int FIRST>
__device__ __forceinline__ void write_piece(Piece& piece, const float (&acc)[ACCUMULATORS], float scale) {
    const int warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
    if constexpr (THROUGH_REGISTERS) {
        // Two panels of 32 columns of C: a lane has two neighbouring columns of C in each of its rows
        std::byte* const panel = piece.bytes + transposed_panel() * PIECE_PANEL_BYTES + lane / 4 % 2 * 8;
#pragma unroll
        for (int i = FIRST / 2; i < (FIRST + PIECE_COLUMNS) / 2; i += 4) {
#pragma unroll
            for (int next = 0; next < 2; ++next) {
                const int row = (i - FIRST / 2) * 2 + lane % 4 * 2 + next;
                store_pair(reinterpret_cast<Result*>(panel + swizzled_128(row, transposed_chunk())), acc[i + next],
                           acc[i + 2 + next]);
            }
        }
    } else if constexpr (sizeof(Result) == 2) {
        const int upper = lane % 16, right = lane / 16;  // row of two stacked matrices, and which pair
#pragma unroll
        for (int column = 0; column < PIECE_COLUMNS; column += 16) {
            const int i = (FIRST + column) / 2;
            unsigned pairs[4];
#pragma unroll
            for (int p = 0; p < 4; ++p) {
                store_pair(reinterpret_cast<Result*>(&pairs[p]), acc[i + 2 * p] * scale, acc[i + 2 * p + 1] * scale);
            }
            if constexpr (TRANSPOSE_C) {  // 8 rows of D are one column of a matrix
                std::byte* const to = piece.bytes + swizzled_128(column + right * 8 + upper % 8, warp * 2 + upper / 8);
                stmatrix_x4_trans(to, pairs[0], pairs[1], pairs[2], pairs[3]);
            } else {  // 8 columns of D are one row of a matrix
                std::byte* const to = piece.bytes + swizzled_line(warp * 16 + upper, column / 8 + right);
                stmatrix_x4(to, pairs[0], pairs[1], pairs[2], pairs[3]);
            }
        }
    } else if constexpr (TRANSPOSE_C) {
        const int chunk = warp % 2 * 4 + lane / 16;  // a warp has 16 rows of D; four warps share two panels
        std::byte* const panel = piece.bytes + warp / 2 * PIECE_PANEL_BYTES + lane / 4 % 4 * sizeof(Result);
#pragma unroll
        for (int i = FIRST / 2; i < (FIRST + PIECE_COLUMNS) / 2; ++i) {
            const int row = (i - FIRST / 2) / 4 * 8 + lane % 4 * 2 + i % 2;
            *reinterpret_cast<Result*>(panel + swizzled_128(row, chunk + i / 2 % 2 * 2)) = acc[i];
        }
    } else {
        const int row = warp * 16 + lane / 4;
#pragma unroll
        for (int column = 0; column < LINE; column += 8) {
            const int i = (FIRST + column) / 2, chunk = column / 4 + lane % 4 / 2;
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                std::byte* const to = piece.bytes + swizzled_128(row + half * 8, chunk) + lane % 2 * 8;
                store_pair(reinterpret_cast<Result*>(to), acc[i + 2 * half], acc[i + 2 * half + 1]);
            }
        }
    }
}

// The epilogue of a plain kernel: the sums stay as they are.
struct NoEpilogue {
    template <int FIRST>
    __device__ __forceinline__ void apply(float (&)[ACCUMULATORS]) {}
};

// Starts the store of a piece at (row `down`, column `across`) of C.
__device__ __forceinline__ void store_piece(const CUtensorMap& C, const Piece& piece, int down, int across) {
    if (threadIdx.x % WARPGROUP > 0) return;
#pragma unroll
    for (int panel = 0; panel < PANELS; ++panel) {
        tma_store(C, piece.bytes + panel * PIECE_PANEL_BYTES, across + panel * LINE, down);
    }
    tma_store_commit();
}

// Applies the epilogue to a warpgroup's 64 rows of sums and stores them at (row, col) of D. Each warpgroup has its own
// PIECES `pieces` and its own number `barrier`.
template <int FIRST = 0, typename To, typename Epilogue = NoEpilogue>
__device__ __forceinline__ void store_tile(const To& C, float (&acc)[ACCUMULATORS], float scale, Piece* pieces, int row,
                                           int col, int barrier, Epilogue&& epilogue = {}) {
    const bool storer = threadIdx.x % WARPGROUP == 0;
    Piece& piece = pieces[FIRST / PIECE_COLUMNS % PIECES];
    // Wait until the TMA unit has read this piece, the last one stored if a tile ended with it, else the one before
    if (storer) tma_store_wait_read<FIRST == 0 && PIECES_OF_TILE % 2 == 1 ? 0 : PIECES - 1>();
    bar_sync(barrier, WARPGROUP);
    epilogue.template apply<FIRST>(acc);
    write_piece<FIRST>(piece, acc, scale);
    fence_proxy_async();
    bar_sync(barrier, WARPGROUP);  // the piece is written, and visible to the TMA unit
    store_piece(C, piece, TRANSPOSE_C ? col + FIRST : row, TRANSPOSE_C ? row : col + FIRST);
    if constexpr (FIRST + PIECE_COLUMNS < config::BLOCK_N) {
        store_tile<FIRST + PIECE_COLUMNS>(C, acc, scale, pieces, row, col, barrier, epilogue);
    }
}
