// What an element of A, B and C is in the math mode that this file is compiled for, config::MATH.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>

using config::Math;

template <Math> struct ElementOf;
template <> struct ElementOf<Math::fp32> { using type = float; };
template <> struct ElementOf<Math::tf32> { using type = float; };
template <> struct ElementOf<Math::fp16> { using type = __half; };
template <> struct ElementOf<Math::bf16> { using type = __nv_bfloat16; };
using Element = ElementOf<config::MATH>::type;

constexpr int CHUNK = 16 / sizeof(Element);  // elements in the 16 bytes that one thread can load or store at once

// Two neighbours of a row, rounded to nearest, at a multiple of their size.
__device__ __forceinline__ void store_pair(float* to, float x, float y) {
    *reinterpret_cast<float2*>(to) = make_float2(x, y);
}
__device__ __forceinline__ void store_pair(__half* to, float x, float y) {
    *reinterpret_cast<__half2*>(to) = __floats2half2_rn(x, y);
}
__device__ __forceinline__ void store_pair(__nv_bfloat16* to, float x, float y) {
    *reinterpret_cast<__nv_bfloat162*>(to) = __floats2bfloat162_rn(x, y);
}
