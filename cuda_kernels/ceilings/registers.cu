// Measures how many clocks an instruction takes depending on the registers that it reads: patched.py replaces the
// register numbers of this loop in the machine code. As compiled, every value has a separate register, and dependent
// instructions are at least VALUES - SOURCES apart.
//
// -D sets OPERATION, the PTX of one instruction, which reads and writes %0 and reads %1 and %2.
constexpr int VALUES = 144, SOURCES = 16;  // per thread; no instruction of the loop writes the first SOURCES
constexpr int UNROLL = 256;                // instructions per iteration, without the 3 or 4 of the loop

// `values` is (threads, VALUES) words that all blocks read and write; the result is defined for one block only.
// `clocks` is (blocks,): the clocks of one warp for `trips` iterations.
extern "C" __global__ void __launch_bounds__(256) registers(unsigned* values, long long* clocks, int trips) {
    unsigned* thread_values = values + threadIdx.x * VALUES;
    unsigned value[VALUES];
#pragma unroll
    for (int i = 0; i < VALUES; ++i) value[i] = thread_values[i];
    unsigned combined = 0;  // every load has landed before the loop, whichever instruction comes to read it first
#pragma unroll
    for (int i = 0; i < VALUES; ++i) combined |= value[i];
    if (combined == ~0u) trips = 0;
    __syncthreads();
    const long long start = clock64();
#pragma unroll 1
    for (int trip = 0; trip < trips; ++trip) {
#pragma unroll
        for (int i = 0; i < UNROLL; ++i) {
            asm volatile(OPERATION
                         : "+r"(value[SOURCES + i % (VALUES - SOURCES)])
                         : "r"(value[i % (SOURCES / 2)]), "r"(value[SOURCES / 2 + i % (SOURCES / 2)]));
        }
    }
    const long long end = clock64();
#pragma unroll
    for (int i = 0; i < VALUES; ++i) thread_values[i] = value[i];
    if (threadIdx.x == 0) clocks[blockIdx.x] = end - start;
}
