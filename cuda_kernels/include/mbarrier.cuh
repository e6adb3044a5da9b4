// mbarrier, one instruction per function, named as PTX names it (PTX ISA, 'Parallel Synchronization and Communication
// Instructions: mbarrier'): a barrier in shared memory that counts arrivals of threads, and bytes that copies bring.
// A phase is complete when all of both have come; then the next begins, of the other parity. And what blocks of a cluster
// and specialised warps need beside it ('barrier.cluster', 'setmaxnreg', 'bar'). sm_90.
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

// Whether this thread is the one that its warp elects, always the same one; the whole warp asks (PTX ISA, 'elect.sync').
// The compiler knows then that it is one thread, and computes what the TMA unit is told in uniform registers. Behind a
// comparison of threadIdx.x it puts a loop over different lanes' values around every instruction to the unit.
__device__ __forceinline__ bool elect_one() {
    int elected;
    asm volatile("{\n.reg .pred one;\nelect.sync _|one, 0xFFFFFFFF;\nselp.b32 %0, 1, 0, one;\n}" : "=r"(elected));
    return elected;
}

// Which block of its cluster this is.
__device__ __forceinline__ int cluster_rank() {
    int rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

// Waits for every thread of the cluster. Relaxed: it orders what threads do, not what they wrote; mbarriers that were
// initialised before are made visible by fence_mbarrier_init. Released, it would wait for all memory of the GPU first.
__device__ __forceinline__ void cluster_sync_relaxed() {
    asm volatile("barrier.cluster.arrive.relaxed.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// The two halves of it: a thread may do something else in between.
__device__ __forceinline__ void cluster_arrive_relaxed() {
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}
__device__ __forceinline__ void cluster_wait() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }

// Stores to the place `to`, of this block's shared memory, in block `rank` of the cluster.
__device__ __forceinline__ void store_cluster(const float4* to, int rank, float4 x) {
    asm volatile(
        "{\n.reg .b32 there;\nmapa.shared::cluster.u32 there, %0, %1;\n"
        "st.shared::cluster.v4.f32 [there], {%2, %3, %4, %5};\n}" ::"r"(shared_address(to)),
        "r"(rank), "f"(x.x), "f"(x.y), "f"(x.z), "f"(x.w)
        : "memory");
}

// Hands registers of this warpgroup back, or takes what others have handed back. Only sm_90a.
template <int REGISTERS>
__device__ __forceinline__ void setmaxnreg_dec() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}
template <int REGISTERS>
__device__ __forceinline__ void setmaxnreg_inc() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}

// Arrives at such a barrier, and does not wait.
__device__ __forceinline__ void bar_arrive(int barrier, int threads) {
    asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

// Waits for `threads` threads of the block that name the same barrier; __syncthreads is barrier 0.
__device__ __forceinline__ void bar_sync(int barrier, int threads) {
    asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}
