// What the math modes mean for types: of an operand's elements, of C's, and of sixteen bytes of them.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

template <config::Math MATH> struct Types;
template <> struct Types<config::Math::tf32> { using Operand = float; using Result = float; };
template <> struct Types<config::Math::fp16> { using Operand = __half; using Result = __half; };
template <> struct Types<config::Math::bf16> { using Operand = __nv_bfloat16; using Result = __nv_bfloat16; };
template <> struct Types<config::Math::fp8> { using Operand = __nv_fp8_e4m3; using Result = __nv_bfloat16; };

using Operand = Types<config::MATH>::Operand;  // of A and B
using Result = Types<config::MATH>::Result;    // of C

// A sum as an element of C, rounded to nearest.
__device__ __forceinline__ void store_one(float* to, float x) { *to = x; }
__device__ __forceinline__ void store_one(__half* to, float x) { *to = __float2half_rn(x); }
__device__ __forceinline__ void store_one(__nv_bfloat16* to, float x) { *to = __float2bfloat16_rn(x); }

// Two sums as two neighbouring elements of C, rounded to nearest.
__device__ __forceinline__ void store_pair(float* to, float x, float y) {
    *reinterpret_cast<float2*>(to) = make_float2(x, y);
}
__device__ __forceinline__ void store_pair(__half* to, float x, float y) {
    *reinterpret_cast<__half2*>(to) = __floats2half2_rn(x, y);
}
__device__ __forceinline__ void store_pair(__nv_bfloat16* to, float x, float y) {
    *reinterpret_cast<__nv_bfloat162*>(to) = __floats2bfloat162_rn(x, y);
}
