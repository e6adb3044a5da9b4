// Types of the elements of A and B (or of their parts) and of C in config::MATH, the math mode that this file is
// compiled for.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

// clang-format off
template <Math> struct Types;
template <> struct Types<Math::fp32> { using Element = float; using Result = float; };
template <> struct Types<Math::tf32> { using Element = float; using Result = float; };
template <> struct Types<Math::fp16> { using Element = __half; using Result = __half; };
template <> struct Types<Math::bf16> { using Element = __nv_bfloat16; using Result = __nv_bfloat16; };
template <> struct Types<Math::fp16x3> { using Element = __half; using Result = float; };
template <> struct Types<Math::bf16x6> { using Element = __nv_bfloat16; using Result = float; };
template <> struct Types<Math::fp8> { using Element = __nv_fp8_e4m3; using Result = __nv_bfloat16; };
// clang-format on

using Element = Types<config::MATH>::Element;  // of A and B
using Result = Types<config::MATH>::Result;    // of C

inline constexpr int CHUNK = 16 / sizeof(Element);  // elements per 16 bytes, a thread's widest access

// Stores two neighbours of a row, rounded to nearest. `to` is a multiple of their size.
__device__ __forceinline__ void store_pair(float* to, float x, float y) {
    *reinterpret_cast<float2*>(to) = make_float2(x, y);
}
__device__ __forceinline__ void store_pair(__half* to, float x, float y) {
    *reinterpret_cast<__half2*>(to) = __floats2half2_rn(x, y);
}
__device__ __forceinline__ void store_pair(__nv_bfloat16* to, float x, float y) {
    *reinterpret_cast<__nv_bfloat162*>(to) = __floats2bfloat162_rn(x, y);
}
