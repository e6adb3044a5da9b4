// Tiny kernels with one fault each, or none: `fault` chooses, and 0 is none. A comment of a capital letter names a line.
#include "async_copy.cuh"

constexpr int N = 64;  // threads of a block, and elements of the array that they share

// A neighbour's element, before it was written.
extern "C" __global__ void neighbour(const float* in, float* out, int fault) {
    __shared__ float row_smem[N];
    row_smem[threadIdx.x] = in[threadIdx.x];  // W
    if (fault != 1) __syncthreads();
    out[threadIdx.x] = row_smem[(threadIdx.x + 1) % N];  // R
}

// The next round's elements, before everyone has read this one's.
extern "C" __global__ void rounds(const float* in, float* out, int fault) {
    __shared__ float round_smem[N];
    float sum = 0;
    for (int round = 0; round < 3; ++round) {
        round_smem[threadIdx.x] = in[threadIdx.x] + round;  // OW
        __syncthreads();
        sum += round_smem[N - 1 - threadIdx.x];  // OR
        if (fault != 1) __syncthreads();
    }
    out[threadIdx.x] = sum;
}

// Lanes of one warp: they are in no order of themselves, and a shuffle gives none. 1: a shuffle, 2: halves of a warp.
extern "C" __global__ void lanes(const float* in, float* out, int fault) {
    __shared__ float warp_smem[N];
    const int lane = threadIdx.x % 32;
    warp_smem[threadIdx.x] = in[threadIdx.x];  // LW
    float other = 0;
    if (fault == 1) other = __shfl_xor_sync(0xffffffff, in[threadIdx.x], 1);
    else if (fault == 2) __syncwarp(lane < 16 ? 0xffff : 0xffff0000);
    else __syncwarp();
    out[threadIdx.x] = other + warp_smem[threadIdx.x ^ 1] + warp_smem[threadIdx.x ^ 16];  // L
}

// Lanes that meet two by two, and know from each other what they have met before.
extern "C" __global__ void pairs(const float* in, float* out, int fault) {
    __shared__ float pair_smem[N];
    const int lane = threadIdx.x % 32;
    pair_smem[threadIdx.x] = in[threadIdx.x];  // QW
    __syncwarp(3u << (lane & ~1));
    if (fault != 1) __syncwarp((lane & 1 ? 10u : 5u) << (lane & ~3));
    out[threadIdx.x] = pair_smem[threadIdx.x ^ 3];  // Q
}

// Warp 0 fills for warp 1, over named barriers. 1: nobody says that it is full, 2: nor that it is empty again.
extern "C" __global__ void pipe(const float* in, float* out, int fault) {
    __shared__ float pipe_smem[32];
    const int lane = threadIdx.x % 32;
    for (int round = 0; round < 2; ++round) {
        if (threadIdx.x < 32) {
            if (round > 0 && fault != 2) asm volatile("barrier.cta.sync 2, 64;" ::: "memory");
            pipe_smem[lane] = in[lane] + round;  // PW
            if (fault != 1) asm volatile("barrier.cta.arrive 1, 64;" ::: "memory");  // PA
        } else {
            if (fault != 1) asm volatile("barrier.cta.sync 1, 64;" ::: "memory");
            out[lane + 32 * round] = pipe_smem[31 - lane];  // PR
            if (round == 0 && fault != 2) asm volatile("barrier.cta.arrive 2, 64;" ::: "memory");
        }
    }
}

// Each warp meets its own lanes twice. 1: at a barrier whose number is the other's too.
extern "C" __global__ void groups(const float* in, float* out, int fault) {
    const int warp = threadIdx.x / 32, number = fault == 1 ? 1 : 1 + warp;
    for (int round = 0; round < 2; ++round) {
        asm volatile("barrier.cta.sync %0, 32;" ::"r"(number) : "memory");  // N
    }
    out[threadIdx.x] = in[threadIdx.x];
}

// 1: read before the wait, 2: others read after it with no barrier, 3: as 1 by the thread itself, 4: written over,
// 5: the wait leaves the group out, 6: the copy goes where others still read. Its own a thread may read after its wait.
extern "C" __global__ void copies(const float* in, float* out, int fault) {
    __shared__ float copy_smem[N];
    if (fault == 6) {
        copy_smem[threadIdx.x] = 1;
        __syncthreads();
        out[threadIdx.x] = copy_smem[N - 1 - threadIdx.x];  // P
    }
    copy_float_async(copy_smem[threadIdx.x], &in[threadIdx.x], true);  // C
    commit_copies();
    if (fault == 3) out[threadIdx.x] = copy_smem[threadIdx.x];  // E
    if (fault == 4) copy_smem[threadIdx.x] = 0;  // V
    if (fault == 5) wait_for_copies<1>();
    else if (fault != 1) wait_for_copies<0>();
    const float mine = copy_smem[threadIdx.x];  // O
    if (fault != 2) __syncthreads();
    out[threadIdx.x] = mine + copy_smem[N - 1 - threadIdx.x];  // H
}

// Nobody writes the last element of the array.
extern "C" __global__ void unwritten(const float* in, float* out, int fault) {
    extern __shared__ float all_smem[];
    if (threadIdx.x < N - fault) all_smem[threadIdx.x] = in[threadIdx.x];
    __syncthreads();
    out[threadIdx.x] = all_smem[N - 1 - threadIdx.x];  // U
}

// 1, 3: some leave, or whole blocks, which is no fault; 2: each side of a branch has a barrier, a note; 4: some skip a
// barrier, and meet the others at the next.
extern "C" __global__ void skips(const float* in, float* out, int fault) {
    if (fault == 3 && blockIdx.x == 1) return;
    if (fault == 1 && threadIdx.x >= 40) return;  // X
    if (fault == 2 && threadIdx.x >= 40) {
        out[blockIdx.x * N + threadIdx.x] = 1;
        __syncthreads();  // SA
    } else {
        out[blockIdx.x * N + threadIdx.x] = in[threadIdx.x];  // SW
        if (fault != 4 || threadIdx.x < 40) __syncthreads();  // SB
        if (fault == 4) __syncthreads();  // SC
    }
}

// 1: an element by two threads of a block, 2: by two blocks, 3: the last one by none, 4: none at all, 5: one read that
// another block writes, 6: read before it is written. Twice by one thread, or by two with a barrier between, is no fault.
extern "C" __global__ void elements(const float* in, float* C, int fault) {
    const int i = blockIdx.x * N + threadIdx.x;
    if (fault == 4) return;  // Z
    if (fault == 3 && i == 2 * N - 1) return;
    if (fault == 1) C[blockIdx.x * N + threadIdx.x / 2] = 1;  // T
    if (fault == 2) C[threadIdx.x] = 1;  // B
    if (fault == 6) C[i] += 1;  // A
    if (fault != 1 && fault != 2) C[i] = in[threadIdx.x];  // M
    if (fault == 5) C[i] = C[(i + N) % (2 * N)];  // G
    if (fault == 0) C[i] += 1;
    if (fault == 0) __syncthreads();
    if (fault == 0) C[blockIdx.x * N + N - 1 - threadIdx.x] = 3;
}

// All lanes of a warp store to one place, 0: the same, 1: each its own.
extern "C" __global__ void agreed(const float* in, float* out, int fault) {
    __shared__ float agreed_smem[N / 32];
    agreed_smem[threadIdx.x / 32] = in[threadIdx.x] + (fault == 1 ? threadIdx.x : 0);  // AG
    __syncthreads();
    out[threadIdx.x] = agreed_smem[threadIdx.x % 2];
}

// Atomics do not race with each other; 1: a plain read with one does. Bytes beside each other are apart.
extern "C" __global__ void atomics(const float* in, float* out, int fault) {
    __shared__ float sum_smem;
    __shared__ char byte_smem[N];
    if (threadIdx.x == 0) sum_smem = 0;
    __syncthreads();
    atomicAdd(&sum_smem, in[threadIdx.x]);  // AW
    byte_smem[threadIdx.x] = threadIdx.x;
    if (fault != 1) __syncthreads();
    out[threadIdx.x] = sum_smem;  // AR
    out[threadIdx.x] += byte_smem[threadIdx.x];
}

// --- order between blocks; marks that begin with B

// The last block that takes a ticket adds what all have stored. 1: no barrier before the ticket, 2: no fence before it,
// 3: none behind it, 4: the ticket is taken before the store, 5: fences of the block alone, 6: each takes a ticket of
// its own, and the last is told by its number, 7: an atomic of the block alone, 8: a fence, and then the store of the
// thread with the ticket. Right are 9: every thread fences, 10: the ticket is set back by a plain store, 11: a barrier
// of two warps alone, 12: a fence that is no .sc, by the thread with the ticket, 13: a ticket that acquires and releases
// without a fence; 14 only releases, and 15 only acquires.
extern "C" __global__ void last_adds(float* parts, unsigned* tickets, float* out, int fault) {
    __shared__ int last;
    const int me = threadIdx.x, all = gridDim.x;
    const bool leads = me == 0;
    const auto fence = [&] {
        if (fault == 5) __threadfence_block();
        else if (fault == 12) asm volatile("fence.acq_rel.gpu;" ::: "memory");
        else __threadfence();
    };
    const auto meet = [&] {
        if (fault == 11) asm volatile("barrier.cta.sync 1, 64;" ::: "memory");
        else __syncthreads();
    };
    if (fault != 4 && !(fault == 8 && leads)) parts[blockIdx.x * N + me] = me;  // B-W
    if (fault == 9) __threadfence();
    if (fault != 1) meet();
    if (leads) {
        if (fault != 2 && fault != 9 && fault < 13) fence();
        if (fault == 8) parts[blockIdx.x * N] = 0;  // B-W8
        unsigned before;
        if (fault == 6) before = atomicAdd(&tickets[blockIdx.x], 1) + blockIdx.x;
        else if (fault == 7) before = atomicAdd_block(tickets, 1);  // B-A
        else if (fault == 10) before = atomicAdd(tickets, 1);
        else if (fault == 13) asm volatile("atom.acq_rel.gpu.add.u32 %0, [%1], 1;" : "=r"(before) : "l"(tickets) : "memory");
        else if (fault == 14) asm volatile("atom.release.gpu.add.u32 %0, [%1], 1;" : "=r"(before) : "l"(tickets) : "memory");
        else if (fault == 15) asm volatile("atom.acquire.gpu.add.u32 %0, [%1], 1;" : "=r"(before) : "l"(tickets) : "memory");
        else before = atomicInc(tickets, all - 1);
        if (fault != 3 && fault != 9 && fault < 13) fence();
        last = before == all - 1;
        if ((fault == 10 || fault >= 13) && last) *tickets = 0;
    }
    if (fault == 4) parts[blockIdx.x * N + me] = me;  // B-W4
    meet();
    if (!last) return;
    if (fault == 9) __threadfence();
    float sum = 0;
    for (int block = 0; block < all; ++block) sum += parts[block * N + N - 1 - me];  // B-R
    out[me] = sum;
}

// Block 0 hands a number to block 1, which hands it to block 2. 1: block 1 does not acquire, 2: block 2 does not, 3: block
// 0 does not release, 4: block 1 does not, 5: a plain store for a release. Right are 6: a fence and a relaxed store, 7:
// atomics for all, and 8: relaxed loads, of which the last is fenced.
extern "C" __global__ void hand_on(float* parts, unsigned* flags, float* out, int fault) {
    const auto wait = [&](const unsigned* flag, bool acquires) {
        unsigned found = 0;
        while (!found) {
            if (fault == 7) asm volatile("atom.acquire.gpu.add.u32 %0, [%1], 0;" : "=r"(found) : "l"(flag) : "memory");
            else if (acquires && fault != 8) asm volatile("ld.acquire.gpu.u32 %0, [%1];" : "=r"(found) : "l"(flag) : "memory");  // B-L
            else asm volatile("ld.relaxed.gpu.u32 %0, [%1];" : "=r"(found) : "l"(flag) : "memory");
        }
        if (fault == 8) {
            asm volatile("ld.relaxed.gpu.u32 %0, [%1];" : "=r"(found) : "l"(flag) : "memory");
            __threadfence();
        }
    };
    const auto tell = [&](unsigned* flag, bool releases) {
        if (fault == 6) __threadfence();
        if (fault == 5) *flag = 1;  // B-F
        else if (fault == 7) asm volatile("atom.release.gpu.exch.b32 _, [%0], 1;" ::"l"(flag) : "memory");
        else if (releases && fault != 6) asm volatile("st.release.gpu.u32 [%0], 1;" ::"l"(flag) : "memory");
        else asm volatile("st.relaxed.gpu.u32 [%0], 1;" ::"l"(flag) : "memory");
    };
    if (threadIdx.x > 0) return;
    if (blockIdx.x == 0) {
        parts[0] = 1;  // B-P
        tell(&flags[0], fault != 3);
        tell(&flags[2], fault != 3);
    } else if (blockIdx.x == 1) {
        wait(&flags[0], fault != 1);
        tell(&flags[1], fault != 4);
    } else {
        wait(&flags[0], false);
        wait(&flags[2], false);
        wait(&flags[1], fault != 2);
        out[0] = parts[0];  // B-G
    }
}
