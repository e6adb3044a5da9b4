// Computes independent dot products with mma.sync, to find its rounding to the last bit.
//
// A warp has eight pairs of vectors a, b and a number c for each, and one instruction computes their a . b + c: vector
// i is row i of A, or row i + 8 if i is odd, and column i of B. All other rows are zeros.
//
// -D sets THREADS, the size of a block, and MMA, the instruction's name in PTX: m16n8 of any k and type.
#include <cuda_runtime.h>

#define TEXT_OF(X) #X
#define TEXT(X) TEXT_OF(X)

constexpr bool contains(const char* text, const char* part) {
    for (; *text; ++text) {
        int i = 0;
        while (part[i] && text[i] == part[i]) ++i;
        if (!part[i]) return true;
    }
    return false;
}
constexpr const char NAME[] = TEXT(MMA);
constexpr bool HALF_SUMS = contains(NAME, ".col.f16.");
// Words of 4 bytes along k: tf32 has k4 or k8, 16-bit types have k8 or k16, and fp8 has k32.
constexpr int WORDS = contains(NAME, "k4.") || (contains(NAME, "k8.") && !contains(NAME, "tf32")) ? 4 : 8;
constexpr int VECTORS = 8;  // per warp

// A lane's a[0] is word lane % 4 of row lane / 4; a[1] is 8 rows below; a[2] and a[3] are 4 words further along k. Its
// b[0] and b[1] are in column lane / 4. Its d is row lane / 4, columns 2 (lane % 4) and the next, and the same 8 rows
// below; in fp16 a word holds two.
__device__ __forceinline__ void mma(unsigned (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
    if constexpr (HALF_SUMS && WORDS == 8) {
        asm volatile(TEXT(MMA) " {%0, %1}, {%2, %3, %4, %5}, {%6, %7}, {%0, %1};"
                     : "+r"(d[0]), "+r"(d[1])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    } else if constexpr (HALF_SUMS) {
        asm volatile(TEXT(MMA) " {%0, %1}, {%2, %3}, {%4}, {%0, %1};"
                     : "+r"(d[0]), "+r"(d[1])
                     : "r"(a[0]), "r"(a[1]), "r"(b[0]));
    } else if constexpr (WORDS == 8) {
        asm volatile(TEXT(MMA) " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                     : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    } else {
        asm volatile(TEXT(MMA) " {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
                     : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
                     : "r"(a[0]), "r"(a[1]), "r"(b[0]));
    }
}

// `in` is a, (blocks, THREADS / 4, WORDS) words, followed by b of the same shape and by c, (blocks, THREADS / 4) words,
// whose lower half holds fp16. `out` is a . b + c, stored as c is.
extern "C" __global__ void __launch_bounds__(THREADS) mma_dots_kernel(const unsigned* __restrict__ in,
                                                                      unsigned* __restrict__ out) {
    const int warp = (blockIdx.x * THREADS + threadIdx.x) / 32, lane = threadIdx.x % 32;
    const int vectors = gridDim.x * THREADS / 4, index = warp * VECTORS + lane / 4;
    const unsigned *a_in = in + (size_t)index * WORDS, *b_in = a_in + (size_t)vectors * WORDS;
    const unsigned* c_in = in + 2 * (size_t)vectors * WORDS;

    const int odd = lane / 4 % 2;  // whether this lane's vector is in the lower 8 rows
    unsigned a[4] = {}, b[2] = {}, d[4] = {};
#pragma unroll
    for (int i = 0; i < WORDS / 4; ++i) {
        const unsigned word = a_in[lane % 4 + 4 * i];
        a[2 * i] = odd ? 0 : word, a[2 * i + 1] = odd ? word : 0;
        b[i] = b_in[lane % 4 + 4 * i];
    }
    const bool owns_sum = lane % 4 == lane / 8;  // its two columns contain the diagonal element of row lane / 4
    if constexpr (HALF_SUMS) {
        if (owns_sum) d[odd] = c_in[index] << 16 * odd;
        mma(d, a, b);
        if (owns_sum) out[index] = (odd ? d[1] >> 16 : d[0]) & 0xFFFF;
    } else {
        if (owns_sum) d[odd ? 3 : 0] = c_in[index];
        mma(d, a, b);
        if (owns_sum) out[index] = odd ? d[3] : d[0];
    }
}
