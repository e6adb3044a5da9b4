// The epilogue of a call (gemm_ref/epilogue.py), computed on the sums in registers: activation(alpha * sum + beta * c +
// bias). config:: selects its terms; a plain kernel has none of them.
#pragma once
#include <type_traits>
#include "epilogue.cuh"

constexpr bool HAS_BIAS = config::BIAS != Bias::none;
constexpr bool PLAIN = config::ACTIVATION == Activation::none && !HAS_BIAS && !config::ADDS_C && !config::HAS_ALPHA;

// 2^x and 1 / x by the multifunction unit, which serves 4 threads per clock in each quarter of an SM, with a relative
// error of 2^-22. Subnormal numbers become 0.
__device__ __forceinline__ float exp2_fast(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
__device__ __forceinline__ float reciprocal_fast(float x) {
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
__device__ __forceinline__ float positive_part(float x) {  // keeps NaN
    float y;
    asm("max.NaN.f32 %0, %1, 0f00000000;" : "=f"(y) : "f"(x));
    return y;
}

__device__ __forceinline__ float activate(float x) {
    if constexpr (config::ACTIVATION == Activation::relu) return positive_part(x);
    // x Phi(x) = max(x, 0) - |x| Phi(-|x|). The polynomial approximates log2 of Phi(-y) where Phi(-y) matters, and
    // decreases without bound beyond. The result's error is at most 6.5e-7, and at most 6.5e-7 |x| if |x| < 1.
    if constexpr (config::ACTIVATION == Activation::gelu) {
        const float y = fminf(fabsf(x), 12.0f);  // infinity times 0 is NaN
        float log2 = -0.00050032996f;
        log2 = log2 * y + 0.0072827372f;
        log2 = log2 * y - 0.052343761f;
        log2 = log2 * y - 0.4594139f;
        log2 = log2 * y - 1.151052f;
        log2 = log2 * y - 1.0000018f;
        return positive_part(x) - y * exp2_fast(log2);
    }
    // 0.5 x (1 + tanh(u)) = x / (1 + exp(-2 u)) with u = sqrt(2 / pi) (x + 0.044715 x^3); silu has exp(-x)
    constexpr float LOG2_E = 1.442695041f, TWO_U = 1.595769122f * LOG2_E;
    if constexpr (config::ACTIVATION == Activation::gelu_tanh) {
        return x * reciprocal_fast(1.0f + exp2_fast(x * (-TWO_U - TWO_U * 0.044715f * (x * x))));
    }
    if constexpr (config::ACTIVATION == Activation::silu) return x * reciprocal_fast(1.0f + exp2_fast(-LOG2_E * x));
    return x;
}

// Two neighbours of a row in their stored format, which takes the fewest registers; as_floats converts them.
template <typename T>
using Pair = std::conditional_t<sizeof(T) == 2, unsigned, float2>;
template <typename T>
__device__ __forceinline__ float2 as_floats(float2 pair) {
    return pair;
}
template <typename T>
__device__ __forceinline__ float2 as_floats(unsigned pair) {
    if constexpr (std::is_same_v<T, __half>) return __half22float2(reinterpret_cast<const __half2&>(pair));
    else
        return make_float2(__uint_as_float(pair << 16), __uint_as_float(pair & 0xFFFF0000));  // bf16 is half of a float
}
__device__ __forceinline__ float2 from_lane(float2 x, int lane) {
    return make_float2(__shfl_sync(~0u, x.x, lane), __shfl_sync(~0u, x.y, lane));
}
__device__ __forceinline__ unsigned from_lane(unsigned x, int lane) { return __shfl_sync(~0u, x, lane); }

// Reads a pair from two addresses that are no neighbours, each if its flag is set, else 0.
__device__ __forceinline__ float2 join(const float* x, bool has_x, const float* y, bool has_y) {
    return make_float2(has_x ? *x : 0.0f, has_y ? *y : 0.0f);
}
template <typename T>
__device__ __forceinline__ unsigned join(const T* x, bool has_x, const T* y, bool has_y) {
    const unsigned low = has_x ? *reinterpret_cast<const unsigned short*>(x) : 0;
    return low | (has_y ? *reinterpret_cast<const unsigned short*>(y) : 0u) << 16;
}

// Returns a lane's first row of a warpgroup's 64 rows of D. Accumulator i is NEXT_ROW rows below it if i % 4 > 1.
__device__ __forceinline__ int lane_row() {
    const int lane = threadIdx.x % 32;
    if (THROUGH_REGISTERS) return transposed_panel() * LINE + transposed_chunk() * 4 + lane / 4 % 2 * 2;
    return threadIdx.x / 32 % 4 * 16 + lane / 4;
}
inline constexpr int NEXT_ROW = THROUGH_REGISTERS ? 1 : 8;

// The kernel's arguments for the epilogue; `rows` and `columns` are those of D.
struct Extras {
    const void* bias;
    const void* c;
    int c_step;  // elements between rows of c
    float alpha, beta;
    int rows, columns;
};

// Applies the epilogue to the sums of a warpgroup's tile, piece by piece. The bias is read when a tile begins,
// distributed over the lanes of each warp, and c is read AHEAD pieces before it is needed. Two neighbours in memory are
// read at once, so rows of c and a bias along them have an even number of elements, or one more that is ignored.
class FusedEpilogue {
    using BiasElement = std::conditional_t<config::BIAS == Bias::fp32, float, Result>;
    static constexpr bool ALONG_ROWS = TRANSPOSE_C != config::BIAS_BY_ROWS;  // the bias has one number per row of D
    static constexpr int SUMS = PIECE_COLUMNS / 2;                           // per lane and piece
    static constexpr int NEXT = THROUGH_REGISTERS ? 2 : 1;                   // distance of the two sums of a pair
    static constexpr int AHEAD = config::ADDS_C ? min_of(PIECES_OF_TILE, THROUGH_REGISTERS ? 2
                                                                         : TRANSPOSE_C     ? 1
                                                                                           : 4)
                                                : 1;
    const Extras& extras;
    const int row, col;  // the lane's first ones in D
    // The bias as it is stored, since a conversion waits for the read: of the lane's rows, or pair l + 32 i of columns
    Pair<BiasElement> row_bias[HAS_BIAS && ALONG_ROWS ? 2 : 1];
    Pair<BiasElement> column_bias[HAS_BIAS && !ALONG_ROWS ? (config::BLOCK_N + 63) / 64 : 1];
    Pair<Result> c[AHEAD][config::ADDS_C ? SUMS / 2 : 1] = {};

    static constexpr __device__ int first_of_pair(int pair) {
        return THROUGH_REGISTERS ? pair / 2 * 4 + pair % 2 : 2 * pair;
    }
    __device__ __forceinline__ const Result* place(int at_row, int at_col) const {
        const int down = TRANSPOSE_C ? at_col : at_row, across = TRANSPOSE_C ? at_row : at_col;
        return static_cast<const Result*>(extras.c) + static_cast<size_t>(down) * extras.c_step + across;
    }

    __device__ __forceinline__ float apply_to_sum(float sum, int i, float c, float2 bias) const {
        float added = config::ADDS_C ? extras.beta * c : 0.0f;
        if constexpr (HAS_BIAS && ALONG_ROWS) added += as_floats<BiasElement>(row_bias[i / 2 % 2]).x;
        else if (HAS_BIAS) added += i % 2 ? bias.y : bias.x;
        return activate(extras.alpha * sum + added);
    }

   public:
    // first_row is the warpgroup's first row of D, first_col the tile's first column.
    __device__ __forceinline__ FusedEpilogue(const Extras& extras, int first_row, int first_col)
        : extras(extras), row(first_row + lane_row()), col(first_col + threadIdx.x % 4 * 2) {
        const auto* const bias = static_cast<const BiasElement*>(extras.bias);
        if constexpr (HAS_BIAS && ALONG_ROWS) {
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const int at = row + half * NEXT_ROW;
                row_bias[half] = join(bias + at, at < extras.rows, bias + at, false);
            }
        } else if constexpr (HAS_BIAS) {
#pragma unroll
            for (int i = 0; i * 64 < config::BLOCK_N; ++i) {
                const int at = first_col + i * 64 + threadIdx.x % 32 * 2;
                column_bias[i] =
                    at < extras.columns ? *reinterpret_cast<const Pair<BiasElement>*>(bias + at) : Pair<BiasElement>{};
            }
        }
    }

    // Reads c for the piece at FIRST.
    template <int FIRST>
    __device__ __forceinline__ void read_c() {
#pragma unroll
        for (int pair = 0; pair < SUMS / 2; ++pair) {
            const int i = FIRST / 2 + first_of_pair(pair), at = col + i / 4 * 8 + i % 2;
            const int at_row = row + i / 2 % 2 * NEXT_ROW;
            const bool inside = at_row < extras.rows && at < extras.columns;
            const Result* const from = place(at_row, at);
            Pair<Result> x = {};
            if (TRANSPOSE_C && !THROUGH_REGISTERS) {
                x = join(from, inside, place(at_row, at + 1), at_row < extras.rows && at + 1 < extras.columns);
            } else if (inside) {
                x = *reinterpret_cast<const Pair<Result>*>(from);
            }
            c[FIRST / PIECE_COLUMNS % AHEAD][pair] = x;
        }
    }

    // Starts to read the first pieces of c.
    template <int FIRST = 0>
    __device__ __forceinline__ void begin() {
        if constexpr (config::ADDS_C && FIRST < AHEAD * PIECE_COLUMNS) {
            read_c<FIRST>();
            begin<FIRST + PIECE_COLUMNS>();
        }
    }

    template <int FIRST>
    __device__ __forceinline__ void apply(float (&acc)[ACCUMULATORS]) {
        constexpr int LATER = FIRST + AHEAD * PIECE_COLUMNS;
#pragma unroll
        for (int pair = 0; pair < SUMS / 2; ++pair) {
            const int i = FIRST / 2 + first_of_pair(pair);
            float2 added = {}, bias = {};
            if constexpr (config::ADDS_C) added = as_floats<Result>(c[FIRST / PIECE_COLUMNS % AHEAD][pair]);
            if constexpr (HAS_BIAS && !ALONG_ROWS) {
                bias = as_floats<BiasElement>(from_lane(column_bias[i / 32], i / 4 % 8 * 4 + threadIdx.x % 4));
            }
            acc[i] = apply_to_sum(acc[i], i, added.x, bias);
            acc[i + NEXT] = apply_to_sum(acc[i + NEXT], i + NEXT, added.y, bias);
        }
        if constexpr (config::ADDS_C && LATER < config::BLOCK_N) read_c<LATER>();
    }
};
