// mbarrier, one instruction per function, named as PTX names it (PTX ISA, 'Parallel Synchronization and Communication
// Instructions: mbarrier'): a barrier in shared memory that counts arrivals of threads, and bytes that copies bring.
// A phase is complete when all of both have come; then the next begins, of the other parity. sm_90.
#pragma once
#include "vector.cuh"

using Mbarrier = unsigned long long;

// `arrivals` complete a phase.
__device__ __forceinline__ void mbarrier_init(Mbarrier& barrier, int arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(&barrier)), "r"(arrivals) : "memory");
}

// Makes the initialised barriers of this block visible to the rest of its cluster and to the asynchronous units.
__device__ __forceinline__ void fence_mbarrier_init() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ __forceinline__ void mbarrier_arrive(Mbarrier& barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(&barrier)) : "memory");
}

// Arrives at the barrier of the same place in block `rank` of the cluster. Relaxed: for slices that only asynchronous
// units read and write, there are no accesses of threads to order. With .release.cluster ptxas puts a MEMBAR.GPU before
// each arrival, and s18 lost a quarter of its speed to it.
__device__ __forceinline__ void mbarrier_arrive_cluster(Mbarrier& barrier, int rank) {
    asm volatile(
        "{\n.reg .b32 there;\nmapa.shared::cluster.u32 there, %0, %1;\n"
        "mbarrier.arrive.relaxed.cluster.shared::cluster.b64 _, [there];\n}" ::"r"(shared_address(&barrier)),
        "r"(rank)
        : "memory");
}

// The same, and what this thread has stored before is seen by whoever waits for the phase with acquire.
__device__ __forceinline__ void mbarrier_arrive_cluster_release(Mbarrier& barrier, int rank) {
    asm volatile(
        "{\n.reg .b32 there;\nmapa.shared::cluster.u32 there, %0, %1;\n"
        "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [there];\n}" ::"r"(shared_address(&barrier)),
        "r"(rank)
        : "memory");
}
__device__ __forceinline__ void mbarrier_wait_cluster_acquire(Mbarrier& barrier, int parity) {
    asm volatile(
        "{\n.reg .pred complete;\nWAIT:\n"
        "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 complete, [%0], %1;\n"
        "@!complete bra WAIT;\n}" ::"r"(shared_address(&barrier)),
        "r"(parity)
        : "memory");
}

// Arrives, and has the phase wait for `bytes` that copies are to bring.
__device__ __forceinline__ void mbarrier_arrive_expect_tx(Mbarrier& barrier, int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(&barrier)), "r"(bytes)
                 : "memory");
}

// Waits until the phase of this parity is complete.
__device__ __forceinline__ void mbarrier_wait(Mbarrier& barrier, int parity) {
    asm volatile(
        "{\n.reg .pred complete;\nWAIT:\n"
        "mbarrier.try_wait.parity.shared::cta.b64 complete, [%0], %1;\n"
        "@!complete bra WAIT;\n}" ::"r"(shared_address(&barrier)),
        "r"(parity)
        : "memory");
}
// The same for such arrivals from the whole cluster.
__device__ __forceinline__ void mbarrier_wait_cluster(Mbarrier& barrier, int parity) {
    asm volatile(
        "{\n.reg .pred complete;\nWAIT:\n"
        "mbarrier.try_wait.parity.relaxed.cluster.shared::cta.b64 complete, [%0], %1;\n"
        "@!complete bra WAIT;\n}" ::"r"(shared_address(&barrier)),
        "r"(parity)
        : "memory");
}
