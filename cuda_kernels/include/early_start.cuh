// A kernel that starts before the one in front of it has ended: programmatic dependent launch (CUDA programming guide,
// 'Programmatic Dependent Launch and Synchronization'; sm_90; `LaunchShape::early`).
#pragma once

// It starts once every block of the one in front has come to `let_next_start` or to its end, where there is room. What
// that one writes can be read behind `wait_for_kernel_before`. Elsewhere both do nothing.
__device__ __forceinline__ void let_next_start() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
__device__ __forceinline__ void wait_for_kernel_before() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
