// A kernel may start before its predecessor has ended: programmatic dependent launch (CUDA programming guide,
// 'Programmatic Dependent Launch and Synchronization'; sm_90; `LaunchShape::early`).
#pragma once

// A kernel starts, where an SM has room, once every block of its predecessor has called `trigger_next_kernel` or has
// ended. It can read the predecessor's results after `wait_for_previous_kernel`. Below sm_90 both functions do nothing.
__device__ __forceinline__ void trigger_next_kernel() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
__device__ __forceinline__ void wait_for_previous_kernel() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
