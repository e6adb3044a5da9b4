// How many clocks an instruction takes by the registers that it reads: a loop whose register numbers are replaced in
// the machine code (patched.py). As compiled it has every value in a register of its own and no dependence closer than
// VALUES - SOURCES instructions.
//
// -D gives OPERATION, the PTX of one instruction, with %0 read and written and %1, %2 read.
constexpr int VALUES = 144, SOURCES = 16;  // of a thread; those that no instruction of the loop writes
constexpr int UNROLL = 256;                // instructions of a trip, beside the 3 or 4 of the loop

// values: (threads, VALUES) words, read and written by all blocks; what is left there is defined for one block alone.
// clocks: (blocks,), of one warp for `trips` trips.
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
