// CUTLASS 3's warp-specialised GEMM for compute capability 9.0, put together by its collective builders: one warp group
// keeps TMA loading, the others multiply with wgmma, and a block that has stored its tile takes the next.
//
// Every macro is given by gemm_ref/baselines/cutlass/__init__.py: ELEMENT (of A and B), RESULT (of C), TILE_M, TILE_N, TILE_K,
// CLUSTER_M, CLUSTER_N, SCHEDULE and EPILOGUE (tags of CUTLASS), and two switches:
//   B_IS_TRANSPOSED  B is given as N x K.
//   SWAPPED          C^T = B^T A^T is computed. wgmma takes 32-bit and 8-bit operands from shared memory along K only;
//                    from registers, where only the first operand may be, they come in any order. So a row-major B has
//                    to be the first.

#include <cute/tensor.hpp>
#include <cutlass/cutlass.h>
#include <cutlass/epilogue/collective/collective_builder.hpp>
#include <cutlass/gemm/collective/collective_builder.hpp>
#include <cutlass/gemm/device/gemm_universal_adapter.h>
#include <cutlass/gemm/kernel/gemm_universal.hpp>
#include <cutlass/util/packed_stride.hpp>

using RowMajor = cutlass::layout::RowMajor;
using ColumnMajor = cutlass::layout::ColumnMajor;

using LayoutB = cute::conditional_t<B_IS_TRANSPOSED, ColumnMajor, RowMajor>;
using LayoutFirst = cute::conditional_t<SWAPPED, ColumnMajor, RowMajor>;  // of A, or of B^T
using LayoutSecond = cute::conditional_t<SWAPPED, ColumnMajor, LayoutB>;  // of B, or of A^T
using LayoutResult = cute::conditional_t<SWAPPED, ColumnMajor, RowMajor>; // of C, or of C^T
static_assert(!(SWAPPED && B_IS_TRANSPOSED), "a B given as N x K needs no swap");
static_assert(SWAPPED || B_IS_TRANSPOSED || sizeof(ELEMENT) == 2, "wgmma reads such an ELEMENT along K only");

using Tile = cute::Shape<cute::Int<TILE_M>, cute::Int<TILE_N>, cute::Int<TILE_K>>;
using Cluster = cute::Shape<cute::Int<CLUSTER_M>, cute::Int<CLUSTER_N>, cute::Int<1>>;
constexpr int ALIGNMENT = 16 / sizeof(ELEMENT);         // elements: TMA steps in 16 bytes
constexpr int RESULT_ALIGNMENT = 16 / sizeof(RESULT);

// `void`: there is no matrix to add, so no shared memory is kept for one.
using Epilogue = typename cutlass::epilogue::collective::CollectiveBuilder<
    cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, Tile, Cluster, cutlass::epilogue::collective::EpilogueTileAuto,
    float, float, void, LayoutResult, RESULT_ALIGNMENT, RESULT, LayoutResult, RESULT_ALIGNMENT,
    cutlass::epilogue::EPILOGUE>::CollectiveOp;

// As many stages as fit beside the epilogue's shared memory.
using Stages =
    cutlass::gemm::collective::StageCountAutoCarveout<static_cast<int>(sizeof(typename Epilogue::SharedStorage))>;
using Mainloop = typename cutlass::gemm::collective::CollectiveBuilder<
    cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, ELEMENT, LayoutFirst, ALIGNMENT, ELEMENT, LayoutSecond,
    ALIGNMENT, float, Tile, Cluster, Stages, cutlass::gemm::SCHEDULE>::CollectiveOp;

using Kernel = cutlass::gemm::kernel::GemmUniversal<cute::Shape<int, int, int, int>, Mainloop, Epilogue>;
using Gemm = cutlass::gemm::device::GemmUniversalAdapter<Kernel>;

static typename Gemm::Arguments arguments(const void* A, const void* B, void* C, int M, int N, int K, int device,
                                          int swizzle) {
    int const rows = SWAPPED ? N : M, columns = SWAPPED ? M : N;
    typename Gemm::Arguments all{};
    all.mode = cutlass::gemm::GemmUniversalMode::kGemm;
    all.problem_shape = {rows, columns, K, 1};
    all.mainloop.ptr_A = static_cast<ELEMENT const*>(SWAPPED ? B : A);
    all.mainloop.ptr_B = static_cast<ELEMENT const*>(SWAPPED ? A : B);
    all.mainloop.dA = cutlass::make_cute_packed_stride(typename Kernel::StrideA{}, {rows, K, 1});
    all.mainloop.dB = cutlass::make_cute_packed_stride(typename Kernel::StrideB{}, {columns, K, 1});
    all.epilogue.thread.alpha = 1.0f;
    all.epilogue.thread.beta = 0.0f;
    all.epilogue.ptr_D = static_cast<RESULT*>(C);
    all.epilogue.dD = cutlass::make_cute_packed_stride(typename Kernel::StrideD{}, {rows, columns, 1});
    all.hw_info.device_id = device;
    all.hw_info.sm_count = cutlass::KernelHardwareInfo::query_device_multiprocessor_count(device);
    all.scheduler.max_swizzle_size = swizzle;
    return all;
}

extern "C" size_t workspace_bytes(int M, int N, int K, int device, int swizzle) {
    return Gemm::get_workspace_size(arguments(nullptr, nullptr, nullptr, M, N, K, device, swizzle));
}

// A (M, K), B (K, N) and C (M, N) row-major, with addresses and rows that are multiples of 16 bytes.
extern "C" int gemm(const void* A, const void* B, void* C, int M, int N, int K, void* workspace, int device,
                    int swizzle, cudaStream_t stream) {
    auto const all = arguments(A, B, C, M, N, K, device, swizzle);
    Gemm gemm;
    cutlass::Status status = gemm.can_implement(all);  // of what it refuses, it only says that it does
    if (status != cutlass::Status::kSuccess) return static_cast<int>(cutlass::Status::kErrorInvalidProblem);
    status = gemm.initialize(all, workspace, stream);
    if (status == cutlass::Status::kSuccess) status = gemm.run(stream);
    return static_cast<int>(status);
}

extern "C" const char* describe_status(int status) {
    return cutlass::cutlassGetStatusString(static_cast<cutlass::Status>(status));
}
