// The TMA unit, one instruction per function (PTX ISA, 'Data Movement: Asynchronous copy: cp.async.bulk.tensor'): one
// thread starts the copy of a box of a matrix between global and shared memory. Elements outside the matrix are read as
// zeros and not written. Coordinates are elements, the column first. sm_90.
#pragma once
#include "mbarrier.cuh"

// Copies the box at (column, row) to `to`; its bytes are counted by `barrier`.
__device__ __forceinline__ void tma_load(void* to, const CUtensorMap& map, int column, int row, Mbarrier& barrier) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%2, %3}], [%4];" ::"r"(shared_address(to)),
        "l"(&map), "r"(column), "r"(row), "r"(shared_address(&barrier))
        : "memory");
}

// Copies to the same address in every block of the cluster whose bit is set; each block's own barrier counts the bytes.
__device__ __forceinline__ void tma_load_multicast(void* to, const CUtensorMap& map, int column, int row,
                                                   Mbarrier& barrier, unsigned short blocks) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster "
        "[%0], [%1, {%2, %3}], [%4], %5;" ::"r"(shared_address(to)),
        "l"(&map), "r"(column), "r"(row), "r"(shared_address(&barrier)), "h"(blocks)
        : "memory");
}

// Copies `from` to the box at (column, row), in a group that `tma_store_commit` closes.
__device__ __forceinline__ void tma_store(const CUtensorMap& map, const void* from, int column, int row) {
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%1, %2}], [%3];" ::"l"(&map),
                 "r"(column), "r"(row), "r"(shared_address(from))
                 : "memory");
}
__device__ __forceinline__ void tma_store_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }

// Waits until at most GROUPS of this thread's groups have not read all their shared memory.
template <int GROUPS>
__device__ __forceinline__ void tma_store_wait_read() {
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(GROUPS) : "memory");
}

// Waits until at most GROUPS of this thread's groups have not written all their results.
template <int GROUPS>
__device__ __forceinline__ void tma_store_wait() {
    asm volatile("cp.async.bulk.wait_group %0;" ::"n"(GROUPS) : "memory");
}

// Prefetches the tensor map to the cache before its first use.
__device__ __forceinline__ void prefetch_tensor_map(const CUtensorMap& map) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}
