// mbarrier, one instruction per function, named as PTX names it (PTX ISA, 'Parallel Synchronization and Communication
// Instructions: mbarrier'): a barrier in shared memory that counts arrivals of threads and bytes of copies. A phase is
// complete when all of both have arrived; then the next begins, with the other parity. Clusters and specialised warps
// also need 'barrier.cluster', 'setmaxnreg' and 'bar'. sm_90.
#pragma once
#include "vector.cuh"

using Mbarrier = unsigned long long;

// Initialises a barrier whose phases complete after `arrivals` arrivals.
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

// Arrives at the barrier at the same address in block `rank` of the cluster. It is relaxed: only asynchronous units
// read and write the slices, so there are no accesses of threads to order. With .release.cluster ptxas emits a
// MEMBAR.GPU before each arrival, which cost s18 a quarter of its speed.
__device__ __forceinline__ void mbarrier_arrive_cluster(Mbarrier& barrier, int rank) {
    asm volatile(
        "{\n.reg .b32 there;\nmapa.shared::cluster.u32 there, %0, %1;\n"
        "mbarrier.arrive.relaxed.cluster.shared::cluster.b64 _, [there];\n}" ::"r"(shared_address(&barrier)),
        "r"(rank)
        : "memory");
}

// Arrives with release: threads that wait for the phase with acquire see this thread's earlier stores.
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

// Arrives, and adds `bytes` to those that copies must complete before the phase does.
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
// Waits likewise for relaxed arrivals from the whole cluster.
__device__ __forceinline__ void mbarrier_wait_cluster(Mbarrier& barrier, int parity) {
    asm volatile(
        "{\n.reg .pred complete;\nWAIT:\n"
        "mbarrier.try_wait.parity.relaxed.cluster.shared::cta.b64 complete, [%0], %1;\n"
        "@!complete bra WAIT;\n}" ::"r"(shared_address(&barrier)),
        "r"(parity)
        : "memory");
}

// Returns whether this thread is the one that its warp elects, always the same one; the whole warp calls it (PTX ISA,
// 'elect.sync'). The compiler infers that one thread is active, and uses uniform registers for the TMA unit's operands.
// After a comparison of threadIdx.x it emits a loop over the lanes around every instruction to the unit.
__device__ __forceinline__ bool elect_one() {
    int elected;
    asm volatile("{\n.reg .pred one;\nelect.sync _|one, 0xFFFFFFFF;\nselp.b32 %0, 1, 0, one;\n}" : "=r"(elected));
    return elected;
}

// Returns the block's rank in its cluster.
__device__ __forceinline__ int cluster_rank() {
    int rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

// Waits for every thread of the cluster. It is relaxed, so it does not order their stores; fence_mbarrier_init makes
// initialised mbarriers visible. With release it would first wait for all outstanding memory accesses.
__device__ __forceinline__ void cluster_sync_relaxed() {
    asm volatile("barrier.cluster.arrive.relaxed.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// The two halves of cluster_sync_relaxed: a thread may do other work in between.
__device__ __forceinline__ void cluster_arrive_relaxed() {
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}
__device__ __forceinline__ void cluster_wait() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }

// Stores to address `to` of the shared memory of block `rank` of the cluster.
__device__ __forceinline__ void store_cluster(const float4* to, int rank, float4 x) {
    asm volatile(
        "{\n.reg .b32 there;\nmapa.shared::cluster.u32 there, %0, %1;\n"
        "st.shared::cluster.v4.f32 [there], {%2, %3, %4, %5};\n}" ::"r"(shared_address(to)),
        "r"(rank), "f"(x.x), "f"(x.y), "f"(x.z), "f"(x.w)
        : "memory");
}

// Releases registers of this warpgroup, or acquires those that others have released. Only sm_90a.
template <int REGISTERS>
__device__ __forceinline__ void setmaxnreg_dec() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}
template <int REGISTERS>
__device__ __forceinline__ void setmaxnreg_inc() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}

// Arrives at barrier `barrier` of the block (bar_sync) without waiting.
__device__ __forceinline__ void bar_arrive(int barrier, int threads) {
    asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

// Waits for `threads` threads of the block that name the same barrier; __syncthreads is barrier 0.
__device__ __forceinline__ void bar_sync(int barrier, int threads) {
    asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}
