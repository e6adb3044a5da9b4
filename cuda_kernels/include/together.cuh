// Shares of a tile, added by the blocks that have computed them: each adds some columns over all shares, applies the
// epilogue and stores them. It is possible where every tile has equally many shares. From 8 on it takes less time
// (`Config.columns_added`) than an owner that adds them all (shares.cuh), whose multiprocessor reads all sums of a tile.
//
// A block waits for blocks of any number, which may not be resident. So it waits for a limited time, and leaves its
// columns to the block that stores the last share, which never waits. Who adds a column makes no difference to its bits.
#pragma once
#include "destination.cuh"
#include "finish.cuh"
#include "shares.cuh"

// What the warpgroups with the same rows of a tile know of each other. It is 0 before and after a launch.
using Meeting = unsigned long long;  // from bit 0 on: the chunks that are left to the last block; arrivals; departures
inline constexpr Meeting ARRIVAL = 1ull << 32, DEPARTURE = 1ull << 48;
inline constexpr int MOST_POLLS = 100;  // each takes 0.6 us or more, and blocks with equal shares end within a few us
__device__ __forceinline__ int arrivals_of(Meeting meeting) { return meeting >> 32 & 0xFFFF; }
__device__ __forceinline__ int departures_of(Meeting meeting) { return meeting >> 48; }

__device__ __forceinline__ Meeting add_acq_rel(Meeting* meeting, Meeting x) {
    Meeting before;
    asm volatile("atom.acq_rel.gpu.global.add.u64 %0, [%1], %2;" : "=l"(before) : "l"(meeting), "l"(x) : "memory");
    return before;
}
__device__ __forceinline__ Meeting add_relaxed(Meeting* meeting, Meeting x) {
    Meeting before;
    asm volatile("atom.relaxed.gpu.global.add.u64 %0, [%1], %2;" : "=l"(before) : "l"(meeting), "l"(x) : "memory");
    return before;
}
__device__ __forceinline__ bool is_complete(const Meeting* meeting, int shares) {
    Meeting now;
    asm volatile("ld.acquire.gpu.global.u64 %0, [%1];" : "=l"(now) : "l"(meeting) : "memory");
    return arrivals_of(now) == shares;
}

// Arrives at a meeting of `shares` warpgroups, and returns the chunks that this one has to add, a bit each: the local
// ones if all have arrived in time, and if it is the last one also those of warpgroups that have given up. `departed` is
// the meeting when it left, for `end_meeting`. One thread calls both.
__device__ __forceinline__ unsigned meet(Meeting* meeting, unsigned local, int shares, Meeting& departed) {
    const Meeting before = add_acq_rel(meeting, local ? ARRIVAL : ARRIVAL + DEPARTURE);
    const bool last = arrivals_of(before) == shares - 1;
    const unsigned left = last ? static_cast<unsigned>(before) : 0;
    departed = before;
    if (!local) return left;
    bool complete = last;
#pragma unroll 1
    for (int poll = 0; poll < MOST_POLLS && !complete; ++poll) {
        complete = is_complete(meeting, shares);
        if (!complete) __nanosleep(32);
    }
    if (complete) {
        departed = add_relaxed(meeting, DEPARTURE);
        return local | left;
    }
    departed = add_acq_rel(meeting, DEPARTURE | local);
    return arrivals_of(departed) == shares ? local : 0;
}
__device__ __forceinline__ void end_meeting(Meeting* meeting, Meeting departed, int shares) {
    if (departures_of(departed) < shares - 1) return;
    asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(meeting), "l"(0ull) : "memory");  // for the next launch
}

// Groups of 8 columns of D, of which a thread has a vector of sums each; a chunk has WIDTH of them.
inline constexpr int GROUPS = ACCUMULATORS / 4;

// Adds a chunk from group `first` on over all shares, `step` elements apart, in the order of K. Group g becomes
// total[g % MAX_WIDTH]. Reads of IN_FLIGHT vectors are in flight together.
inline constexpr int MAX_WIDTH = 4;
template <int WIDTH, int IN_FLIGHT>
__device__ __forceinline__ void
add_chunk(float4 (&total)[MAX_WIDTH], const Sums* sums, int step, int shares, int first) {
    constexpr int AT_ONCE = IN_FLIGHT / WIDTH;
    const int thread = threadIdx.x % WARPGROUP;
#pragma unroll
    for (int w = 0; w < WIDTH; ++w) total[w] = make_float4(-0.0f, -0.0f, -0.0f, -0.0f);  // changes no addend
#pragma unroll 1
    for (int share = 0; share < shares; share += AT_ONCE) {
        float4 part[AT_ONCE][WIDTH];
#pragma unroll
        for (int i = 0; i < AT_ONCE; ++i) {
#pragma unroll
            for (int w = 0; w < WIDTH; ++w) {
                const float4* const from = &sums[(share + i) * (size_t)step][min(first + w, GROUPS - 1)][thread];
                part[i][w] = share + i < shares ? *from : float4();  // else never added, but in no register before
            }
        }
#pragma unroll
        for (int i = 0; i < AT_ONCE; ++i) {
            if (share + i >= shares) break;
#pragma unroll
            for (int w = 0; w < WIDTH; ++w) {
                total[w].x += part[i][w].x, total[w].y += part[i][w].y;
                total[w].z += part[i][w].z, total[w].w += part[i][w].w;
            }
        }
    }
#pragma unroll
    for (int w = WIDTH; w < MAX_WIDTH; ++w) total[w] = total[w % WIDTH];
}

// Stores a warpgroup's sums and adds its chunks of the tile over all shares; calls store(total, first column, columns)
// for each. `sums` are those of share 0, the others `step` elements apart. `chunks` is in shared memory.
template <int IN_FLIGHT, typename Store>
__device__ __forceinline__ void add_together(const float (&acc)[ACCUMULATORS], Sums* sums, int step, Meeting* meeting,
                                             int share, int shares, unsigned& chunks, int barrier, Store store) {
    store_sums(sums[share * step], acc, barrier);
    int width = 1;  // the narrowest of which no block adds more than one chunk, if possible
    while (width < MAX_WIDTH && width * shares < GROUPS) width *= 2;
    const bool first_thread = threadIdx.x % WARPGROUP == 0;
    Meeting departed = 0;
    if (first_thread) {
        unsigned local = 0;
        for (int chunk = share; chunk * width < GROUPS; chunk += shares) local |= 1u << chunk;
        chunks = meet(meeting, local, shares, departed);
    }
    bar_sync(barrier, WARPGROUP);
    for (unsigned rest = uniform(chunks); rest; rest &= rest - 1) {
        const int first = (__ffs(rest) - 1) * width;
        float4 total[MAX_WIDTH];
        if (width == 1) add_chunk<1, IN_FLIGHT>(total, sums, step, shares, first);
        else if (width == 2) add_chunk<2, IN_FLIGHT>(total, sums, step, shares, first);
        else add_chunk<4, IN_FLIGHT>(total, sums, step, shares, first);
        store(total, first * 8, width * 8);
    }
    if (first_thread) end_meeting(meeting, departed, shares);
}

// Applies the epilogue to `columns` columns of D from `first` on, both multiples of 8. Of columns 8 i to 8 i + 7 each
// thread has sums[i % COUNT].
template <int FIRST = 0, int COUNT, typename Epilogue>
__device__ __forceinline__ void apply_to_columns(float4 (&sums)[COUNT], int first, int columns, Epilogue& epilogue) {
    if (first < FIRST + PIECE_COLUMNS && first + columns > FIRST) {
        float acc[ACCUMULATORS];
#pragma unroll
        for (int i = FIRST / 2; i < (FIRST + PIECE_COLUMNS) / 2; i += 4) {
            const float4 sum = sums[i / 4 % COUNT];
            acc[i] = sum.x, acc[i + 1] = sum.y, acc[i + 2] = sum.z, acc[i + 3] = sum.w;
        }
        if constexpr (config::ADDS_C) epilogue.template read_c<FIRST>();
        epilogue.template apply<FIRST>(acc);
#pragma unroll
        for (int i = FIRST / 2; i < (FIRST + PIECE_COLUMNS) / 2; i += 4) {
            if (2 * i < first || 2 * i >= first + columns) continue;
            sums[i / 4 % COUNT] = make_float4(acc[i], acc[i + 1], acc[i + 2], acc[i + 3]);
        }
    }
    if constexpr (FIRST + PIECE_COLUMNS < config::BLOCK_N) {
        apply_to_columns<FIRST + PIECE_COLUMNS>(sums, first, columns, epilogue);
    }
}

// Stores one element, rounded to nearest.
__device__ __forceinline__ void store_element(float* to, float x) { *to = x; }
__device__ __forceinline__ void store_element(__half* to, float x) { *to = __float2half_rn(x); }
__device__ __forceinline__ void store_element(__nv_bfloat16* to, float x) { *to = __float2bfloat16_rn(x); }

// Stores such columns of a warpgroup's 64 rows at (row, col) of D from registers, which takes less time than
// `store_tile` if they are few.
template <int PHASES, int COUNT>
__device__ __forceinline__ void store_columns(const Rows<PHASES>& C, const float4 (&sums)[COUNT], float scale,
                                              int first, int columns, int row, int col) {
    row += lane_row(), col += threadIdx.x % 4 * 2;
#pragma unroll
    for (int i = 0; i < COUNT; ++i) {
        const int column = first / (8 * COUNT) * (8 * COUNT) + i * 8;
        if (column < first || column >= min(first + columns, config::BLOCK_N)) continue;
        const float of_lane[] = {sums[i].x, sums[i].y, sums[i].z, sums[i].w};
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            const int d_row = row + j / 2 * NEXT_ROW, d_col = col + column + j % 2;
            const int down = TRANSPOSE_C ? d_col : d_row, across = TRANSPOSE_C ? d_row : d_col;
            if (down >= C.rows || across >= C.columns) continue;
            store_element(C.first + static_cast<size_t>(down) * PHASES * C.columns + across, of_lane[j] * scale);
        }
    }
}
