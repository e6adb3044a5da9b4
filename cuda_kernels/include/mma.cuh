// mma.sync, one instruction per function, named as PTX names it (PTX ISA, 'Warp Level Matrix Multiply-Accumulate'):
// a warp computes D[16, 8] = A[16, k] @ B[k, 8] + D with fp32 accumulators. sm_80 and later; e4m3 sm_89 and later.
//
// A row of A and a column of B have 32 bytes of k. The registers of a lane hold, whatever the type,
//     a[0] row lane / 4,      bytes 4 (lane % 4) .. + 3          b[0] column lane / 4, the same bytes
//     a[1] row lane / 4 + 8,  the same bytes                     b[1]                  16 bytes further
//     a[2], a[3]              as a[0], a[1], 16 bytes further
//     d[0], d[1] row lane / 4, columns 2 (lane % 4) and + 1      d[2], d[3] 8 rows further
#pragma once

#define DEFINE_MMA(NAME, INSTRUCTION)                                                                     \
    __device__ __forceinline__ void NAME(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) { \
        asm volatile(INSTRUCTION " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"       \
                     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                                     \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));                 \
    }

DEFINE_MMA(mma_m16n8k16_f32_f16_f16_f32, "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")
DEFINE_MMA(mma_m16n8k16_f32_bf16_bf16_f32, "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32")
DEFINE_MMA(mma_m16n8k8_f32_tf32_tf32_f32, "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32")
DEFINE_MMA(mma_m16n8k32_f32_e4m3_e4m3_f32, "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32")

#undef DEFINE_MMA

// ldmatrix, one instruction per function, named as PTX names it (PTX ISA, 'Warp-level matrix load instruction'). sm_75
// and later. Addresses are those of shared memory, in bytes.
//
// A warp reads four 8 x 8 matrices of 16-bit elements. Lane l gives the address of row l % 8 of matrix l / 8, and
// receives in d[i] word l % 4 of row l / 4 of matrix i; transposed, elements 2 (l % 4) and + 1 of column l / 4.
__device__ __forceinline__ void ldmatrix_x4(unsigned& d0, unsigned& d1, unsigned& d2, unsigned& d3, unsigned row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(d0), "=r"(d1), "=r"(d2), "=r"(d3)
                 : "r"(row)
                 : "memory");
}
__device__ __forceinline__ void ldmatrix_x4_trans(unsigned& d0, unsigned& d1, unsigned& d2, unsigned& d3,
                                                  unsigned row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(d0), "=r"(d1), "=r"(d2), "=r"(d3)
                 : "r"(row)
                 : "memory");
}

// Reads one word per lane: 32-bit elements across the rows, which ldmatrix cannot read.
__device__ __forceinline__ unsigned ld_shared(unsigned address) {
    unsigned d;
    asm volatile("ld.shared.b32 %0, [%1];" : "=r"(d) : "r"(address) : "memory");
    return d;
}
