// CUTLASS 2's SGEMM on the CUDA cores: cp.async brings slices of A and B into STAGES buffers of shared memory, and each
// warp multiplies its part of the tile with FFMA. Macros, given by gemm_ref/baselines/cutlass/__init__.py: TILE_M, TILE_N, TILE_K,
// WARP_M, WARP_N and STAGES. It copies element by element, so any size and any address will do.

#include <cutlass/cutlass.h>
#include <cutlass/epilogue/thread/linear_combination.h>
#include <cutlass/gemm/device/gemm.h>
#include <cutlass/gemm/threadblock/threadblock_swizzle.h>

using RowMajor = cutlass::layout::RowMajor;

using Gemm = cutlass::gemm::device::Gemm<
    float, RowMajor, float, RowMajor, float, RowMajor, float, cutlass::arch::OpClassSimt, cutlass::arch::Sm80,
    cutlass::gemm::GemmShape<TILE_M, TILE_N, TILE_K>, cutlass::gemm::GemmShape<WARP_M, WARP_N, TILE_K>,
    cutlass::gemm::GemmShape<1, 1, 1>, cutlass::epilogue::thread::LinearCombination<float, 1, float, float>,
    cutlass::gemm::threadblock::GemmIdentityThreadblockSwizzle<8>, STAGES, 1, 1>;

static typename Gemm::Arguments arguments(const void* A, const void* B, void* C, int M, int N, int K) {
    auto const c = static_cast<float*>(C);
    return {{M, N, K},  {static_cast<float const*>(A), K}, {static_cast<float const*>(B), N}, {c, N}, {c, N},
            {1.0f, 0.0f}};
}

extern "C" size_t workspace_bytes(int M, int N, int K, int, int) {
    return Gemm::get_workspace_size(arguments(nullptr, nullptr, nullptr, M, N, K));
}

// A (M, K), B (K, N) and C (M, N) row-major.
extern "C" int gemm(const void* A, const void* B, void* C, int M, int N, int K, void* workspace, int, int,
                    cudaStream_t stream) {
    auto const all = arguments(A, B, C, M, N, K);
    Gemm gemm;
    cutlass::Status status = gemm.can_implement(all);
    if (status == cutlass::Status::kSuccess) status = gemm.initialize(all, workspace, stream);
    if (status == cutlass::Status::kSuccess) status = gemm.run(stream);
    return static_cast<int>(status);
}

extern "C" const char* describe_status(int status) {
    return cutlass::cutlassGetStatusString(static_cast<cutlass::Status>(status));
}
