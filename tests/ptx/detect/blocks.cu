// Blocks that hand on what they have stored: `fault` says what is left out or changed, and 0 is nothing. A comment of
// capital letters names a line.

constexpr int N = 64;  // threads of a block

// The last block that takes a ticket adds what all have stored. 1: no barrier before the ticket, 2: no fence before it,
// 3: none behind it, 4: the ticket is taken before the store, 5: fences of the block alone, 6: each takes a ticket of
// its own, and the last is told by its number, 7: an atomic of the block alone, 8: a fence, and then the store of the
// thread with the ticket. Right are 9: every thread fences, 10: the ticket is set back by a plain store, 11: a barrier
// of two warps alone, 12: a fence that is no .sc, by the thread with the ticket.
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
    if (fault != 4 && !(fault == 8 && leads)) parts[blockIdx.x * N + me] = me;  // W
    if (fault == 9) __threadfence();
    if (fault != 1) meet();
    if (leads) {
        if (fault != 2 && fault != 9) fence();
        if (fault == 8) parts[blockIdx.x * N] = 0;  // W8
        unsigned before;
        if (fault == 6) before = atomicAdd(&tickets[blockIdx.x], 1) + blockIdx.x;
        else if (fault == 7) before = atomicAdd_block(tickets, 1);  // A
        else if (fault == 10) before = atomicAdd(tickets, 1);
        else before = atomicInc(tickets, all - 1);
        if (fault != 3 && fault != 9) fence();
        last = before == all - 1;
        if (fault == 10 && last) *tickets = 0;
    }
    if (fault == 4) parts[blockIdx.x * N + me] = me;  // W4
    meet();
    if (!last) return;
    if (fault == 9) __threadfence();
    float sum = 0;
    for (int block = 0; block < all; ++block) sum += parts[block * N + N - 1 - me];  // R
    out[me] = sum;
}

// Block 0 hands a number to block 1, which hands it to block 2. 1: block 1 does not acquire, 2: block 2 does not, 3: block
// 0 does not release, 4: block 1 does not, 5: a plain store for a release. Right is 6: a fence and a relaxed store.
extern "C" __global__ void hand_on(float* parts, unsigned* flags, float* out, int fault) {
    const auto wait = [](const unsigned* flag, bool acquires) {
        unsigned found = 0;
        while (!found) {
            if (acquires) asm volatile("ld.acquire.gpu.u32 %0, [%1];" : "=r"(found) : "l"(flag) : "memory");  // L
            else asm volatile("ld.relaxed.gpu.u32 %0, [%1];" : "=r"(found) : "l"(flag) : "memory");
        }
    };
    const auto tell = [&](unsigned* flag, bool releases) {
        if (fault == 6) __threadfence();
        if (fault == 5) *flag = 1;  // F
        else if (releases && fault != 6) asm volatile("st.release.gpu.u32 [%0], 1;" ::"l"(flag) : "memory");
        else asm volatile("st.relaxed.gpu.u32 [%0], 1;" ::"l"(flag) : "memory");
    };
    if (threadIdx.x > 0) return;
    if (blockIdx.x == 0) {
        parts[0] = 1;  // P
        tell(&flags[0], fault != 3);
        tell(&flags[2], fault != 3);
    } else if (blockIdx.x == 1) {
        wait(&flags[0], fault != 1);
        tell(&flags[1], fault != 4);
    } else {
        wait(&flags[0], false);
        wait(&flags[2], false);
        wait(&flags[1], fault != 2);
        out[0] = parts[0];  // G
    }
}
