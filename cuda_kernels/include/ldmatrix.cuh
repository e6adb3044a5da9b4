// ldmatrix, one instruction per function, named as PTX names it (PTX ISA, 'Warp-level matrix load instruction'). sm_75
// and later. Addresses are those of shared memory, in bytes.
//
// A warp reads four 8 x 8 matrices of 16-bit elements. Lane l names the 16 bytes of row l % 8 of matrix l / 8, and gets
// of each matrix i in d[i] word l % 4 of row l / 4; transposed, the elements 2 (l % 4) and + 1 of column l / 4.
#pragma once

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

// What reads 32-bit elements across the rows, which ldmatrix cannot: a word per lane.
__device__ __forceinline__ unsigned ld_shared(unsigned address) {
    unsigned d;
    asm volatile("ld.shared.b32 %0, [%1];" : "=r"(d) : "r"(address) : "memory");
    return d;
}
