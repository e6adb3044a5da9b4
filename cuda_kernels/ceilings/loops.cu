// Measures how many clocks instructions take: kernels that each repeat one piece of PTX, which loops.py appends as
// LOOP(...) lines.
//
// A piece of PTX has these operands:
//   %0 to %3   four words of a chain: a piece that reads what it writes depends on the one CHAINS before it
//   %4         a pointer into `data`, which starts at the thread's part of it and which the PTX may advance
//   %5, %8     the thread's address in shared memory, and %4: both plus OFFSET for each piece since the trip began
//   %6, %7     two words that the compiler does not know
//   %9, %10    Walk's `step` and `mask`
//   %11, %12   where %4 starts, and a tensor map in global memory
//   %13        where shared memory starts, the same for all threads
#include <cuda_runtime.h>

// Where threads read and write; an address is that of the block's, warp's and lane's part.
struct Walk {
    unsigned step, mask;                            // bytes, for the PTX that advances %4
    unsigned lane_bytes, warp_bytes, block_bytes;   // from one to the next in global memory
    unsigned shared_lane_bytes, shared_warp_bytes;  // and in shared memory
    unsigned shared_step;                           // of a trip there
    unsigned filled_bytes, filled_mask;             // words there hold their own address & filled_mask
    unsigned a, b, spread;                          // %6 and %7 of lane 0, and what later lanes add
};

#define OPERANDS(CHAIN, BYTES)                                                                             \
    : "+r"(x[CHAIN][0]), "+r"(x[CHAIN][1]), "+r"(x[CHAIN][2]), "+r"(x[CHAIN][3]), "+l"(p)                  \
    : "r"(shared + (BYTES)), "r"(a), "r"(b), "l"(p + (BYTES)), "r"(walk.step), "r"(walk.mask), "l"(start), \
      "l"(map), "r"(first)                                                                                 \
    : "memory"

// A trip is UNROLL times BODY, then AFTER. Before the first trip come DECLARE, once, and SETUP, for each chain; after
// the last comes FINISH, for each chain. `clocks` is (blocks, warps, 3): when a warp began and ended, and on which
// multiprocessor.
#define LOOP(NAME, THREADS, CHAINS, UNROLL, OFFSET, DECLARE, SETUP, BODY, AFTER, FINISH)                               \
    extern "C" __global__ void __launch_bounds__(THREADS, 1) NAME(                                                     \
        const char* data, const void* map, long long* clocks, unsigned* sink, int trips, Walk walk) {                  \
        extern __shared__ __align__(1024) char smem[];                                                                 \
        const unsigned first = static_cast<unsigned>(__cvta_generic_to_shared(smem));                                  \
        const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;                                               \
        const unsigned a = walk.a + lane * walk.spread, b = walk.b + lane * walk.spread;                               \
        for (unsigned i = 4 * threadIdx.x; i < walk.filled_bytes; i += 4 * blockDim.x) {                               \
            *reinterpret_cast<unsigned*>(smem + i) = first + (i & walk.filled_mask);                                   \
        }                                                                                                              \
        unsigned shared = first + lane * walk.shared_lane_bytes + warp * walk.shared_warp_bytes;                       \
        const char* const start = data + blockIdx.x * static_cast<size_t>(walk.block_bytes) + warp * walk.warp_bytes + \
                                  lane * walk.lane_bytes;                                                              \
        const char* p = start;                                                                                         \
        unsigned x[CHAINS][4];                                                                                         \
        for (int i = 0; i < 4 * CHAINS; ++i) x[i / 4][i % 4] = a + i * walk.spread;                                    \
        asm volatile(DECLARE);                                                                                         \
        _Pragma("unroll") for (int i = 0; i < CHAINS; ++i) asm volatile(SETUP OPERANDS(i, i * OFFSET));                \
        __syncthreads();                                                                                               \
        const long long begin = clock64();                                                                             \
        _Pragma("unroll 1") for (int trip = 0; trip < trips; ++trip) {                                                 \
            _Pragma("unroll") for (int i = 0; i < UNROLL; ++i) asm volatile(BODY OPERANDS(i % CHAINS, i * OFFSET));    \
            asm volatile(AFTER OPERANDS(0, 0));                                                                        \
            shared += walk.shared_step;                                                                                \
        }                                                                                                              \
        _Pragma("unroll") for (int i = 0; i < CHAINS; ++i) asm volatile(FINISH OPERANDS(i, i * OFFSET));               \
        const long long end = clock64();                                                                               \
        unsigned sum = static_cast<unsigned>(reinterpret_cast<size_t>(p)), multiprocessor;                             \
        for (int i = 0; i < 4 * CHAINS; ++i) sum ^= x[i / 4][i % 4];                                                   \
        asm volatile("mov.u32 %0, %%smid;" : "=r"(multiprocessor));                                                    \
        sink[blockIdx.x * blockDim.x + threadIdx.x] = sum;                                                             \
        if (lane == 0) {                                                                                               \
            long long* const times = clocks + 3 * (blockIdx.x * ((blockDim.x + 31) / 32) + warp);                      \
            times[0] = begin, times[1] = end, times[2] = multiprocessor;                                               \
        }                                                                                                              \
    }
