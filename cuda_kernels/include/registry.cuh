// The compile-time values of each rung, from gemm_ref/registry.py: those of its default variant in its first math mode.
// A rung calls its own `config`. `python -m cuda_kernels registry` writes this file. For another variant or math mode,
// put its values before the rung's file and define GEMM_LADDER_REGISTRY.
#ifndef GEMM_LADDER_REGISTRY
#define GEMM_LADDER_REGISTRY
// clang-format off

enum class Math { fp32, tf32, fp16, bf16, fp8, fp16x3, bf16x6 };
enum class BLayout { kn, nk };
enum class SliceLayout { conflicted, transposed, padded, swizzled, natural };
enum class Activation { none, relu, gelu, gelu_tanh, silu };
enum class Bias { none, as_c, fp32 };

namespace registry::s01_naive {
inline constexpr int BLOCK_M = 32;
inline constexpr int BLOCK_N = 32;
}

namespace registry::s02_coalesced {
inline constexpr int BLOCK_M = 32;
inline constexpr int BLOCK_N = 32;
}

namespace registry::s03_block_tile {
inline constexpr int BLOCK_M = 32;
inline constexpr int BLOCK_N = 32;
inline constexpr int BLOCK_K = 32;
}

namespace registry::s04_shared_tile {
inline constexpr int BLOCK_M = 32;
inline constexpr int BLOCK_N = 32;
inline constexpr int BLOCK_K = 32;
}

namespace registry::s05_bank_conflict {
inline constexpr int BLOCK_M = 32;
inline constexpr int BLOCK_N = 32;
inline constexpr int BLOCK_K = 32;
inline constexpr int BLOCKS_PER_SM = 2;
inline constexpr SliceLayout LAYOUT = SliceLayout::padded;
}

namespace registry::s06_thread_coarsen {
inline constexpr int BLOCK_M = 64;
inline constexpr int BLOCK_N = 64;
inline constexpr int BLOCK_K = 16;
inline constexpr int THREAD_M = 8;
inline constexpr int BLOCKS_PER_SM = 2;
}

namespace registry::s07_thread_tile {
inline constexpr int BLOCK_M = 128;
inline constexpr int BLOCK_N = 128;
inline constexpr int BLOCK_K = 16;
inline constexpr int THREAD_M = 8;
inline constexpr int BLOCKS_PER_SM = 2;
inline constexpr int THREAD_N = 8;
}

namespace registry::s08_vectorized {
inline constexpr int BLOCK_M = 128;
inline constexpr int BLOCK_N = 128;
inline constexpr int BLOCK_K = 16;
inline constexpr int THREAD_M = 8;
inline constexpr int BLOCKS_PER_SM = 2;
inline constexpr int THREAD_N = 8;
}

namespace registry::s09_conflict_free {
inline constexpr int BLOCK_M = 128;
inline constexpr int BLOCK_N = 128;
inline constexpr int BLOCK_K = 16;
inline constexpr int THREAD_M = 8;
inline constexpr int BLOCKS_PER_SM = 2;
inline constexpr int THREAD_N = 8;
}

namespace registry::s10_double_buffer {
inline constexpr int BLOCK_M = 128;
inline constexpr int BLOCK_N = 128;
inline constexpr int BLOCK_K = 16;
inline constexpr int THREAD_M = 8;
inline constexpr int BLOCKS_PER_SM = 1;
inline constexpr int THREAD_N = 8;
inline constexpr int NUM_STAGES = 2;
}

namespace registry::s11_warp_tile {
inline constexpr int BLOCK_M = 128;
inline constexpr int BLOCK_N = 256;
inline constexpr int BLOCK_K = 8;
inline constexpr int WARP_M = 64;
inline constexpr int WARP_N = 64;
inline constexpr int NUM_STAGES = 2;
inline constexpr int BLOCKS_PER_SM = 1;
inline constexpr int THREAD_M = 8;
inline constexpr int THREAD_N = 16;
inline constexpr int FRAGMENT_SETS = 1;
inline constexpr int LOAD_AT = 0;
}

namespace registry::s12_async_copy {
inline constexpr int BLOCK_M = 128;
inline constexpr int BLOCK_N = 256;
inline constexpr int BLOCK_K = 8;
inline constexpr int WARP_M = 64;
inline constexpr int WARP_N = 64;
inline constexpr int NUM_STAGES = 3;
inline constexpr int BLOCKS_PER_SM = 1;
inline constexpr int THREAD_M = 8;
inline constexpr int THREAD_N = 16;
inline constexpr int FRAGMENT_SETS = 2;
}

namespace registry::s13_split_k {
inline constexpr int BLOCK_M = 128;
inline constexpr int BLOCK_N = 128;
inline constexpr int BLOCK_K = 16;
inline constexpr int WARP_M = 32;
inline constexpr int WARP_N = 64;
inline constexpr int NUM_STAGES = 3;
inline constexpr int BLOCKS_PER_SM = 1;
inline constexpr int THREAD_M = 8;
inline constexpr int THREAD_N = 8;
}

namespace registry::s14_register_banks {
inline constexpr int BLOCK_M = 128;
inline constexpr int BLOCK_N = 128;
inline constexpr int BLOCK_K = 8;
inline constexpr int WARP_M = 64;
inline constexpr int WARP_N = 64;
inline constexpr int NUM_STAGES = 4;
inline constexpr int BLOCKS_PER_SM = 2;
inline constexpr int COPY_N = 4;
inline constexpr int GROUP_M = 8;
inline constexpr int THREAD_M = 8;
inline constexpr int THREAD_N = 16;
inline constexpr int ALIGN_B = 0;
inline constexpr int SPLIT_WARPS = 0;
}

namespace registry::s15_wmma {
inline constexpr int BLOCK_M = 128;
inline constexpr int BLOCK_N = 128;
inline constexpr int BLOCK_K = 64;
inline constexpr int WARP_M = 64;
inline constexpr int WARP_N = 64;
inline constexpr int NUM_STAGES = 3;
inline constexpr int BLOCKS_PER_SM = 2;
inline constexpr Math MATH = Math::bf16;
inline constexpr BLayout B_LAYOUT = BLayout::kn;
}

namespace registry::s16_mma_sync {
inline constexpr int BLOCK_M = 128;
inline constexpr int BLOCK_N = 256;
inline constexpr int BLOCK_K = 32;
inline constexpr int WARP_M = 64;
inline constexpr int WARP_N = 64;
inline constexpr int NUM_STAGES = 4;
inline constexpr int BLOCKS_PER_SM = 1;
inline constexpr int GROUP_M = 16;
inline constexpr Math MATH = Math::bf16;
inline constexpr BLayout B_LAYOUT = BLayout::kn;
}

namespace registry::s17_wgmma_tma {
inline constexpr int BLOCK_M = 128;
inline constexpr int BLOCK_N = 256;
inline constexpr int BLOCK_K_BYTES = 128;
inline constexpr int GROUP_M = 16;
inline constexpr int NUM_STAGES = 4;
inline constexpr int TRANSPOSE_C = 0;
inline constexpr Math MATH = Math::bf16;
inline constexpr BLayout B_LAYOUT = BLayout::kn;
}

namespace registry::s18_warp_specialized {
inline constexpr int BLOCK_M = 128;
inline constexpr int BLOCK_N = 256;
inline constexpr int BLOCK_K_BYTES = 128;
inline constexpr int GROUP_M = 8;
inline constexpr int NUM_STAGES = 4;
inline constexpr int TRANSPOSE_C = 0;
inline constexpr int CLUSTER_M = 2;
inline constexpr int PERSISTENT = 1;
inline constexpr int OVERLAP = 1;
inline constexpr Math MATH = Math::bf16;
inline constexpr BLayout B_LAYOUT = BLayout::kn;
}

namespace registry::s19_any_shape {
inline constexpr int BLOCK_M = 128;
inline constexpr int BLOCK_N = 256;
inline constexpr int BLOCK_K_BYTES = 128;
inline constexpr int GROUP_M = 8;
inline constexpr int NUM_STAGES = 4;
inline constexpr int TRANSPOSE_C = 0;
inline constexpr int BLOCKS_PER_SM = 1;
inline constexpr int CLUSTER_M = 2;
inline constexpr int CLUSTER_K = 1;
inline constexpr Math MATH = Math::bf16;
inline constexpr BLayout B_LAYOUT = BLayout::kn;
inline constexpr int C_BY_THREADS = 0;
inline constexpr int ADDS_TOGETHER = 0;
inline constexpr int A_PHASES = 1;
inline constexpr Activation ACTIVATION = Activation::none;
inline constexpr Bias BIAS = Bias::none;
inline constexpr int BIAS_BY_ROWS = 0;
inline constexpr int ADDS_C = 0;
inline constexpr int HAS_ALPHA = 0;
}

namespace registry::s20_emulated {
inline constexpr int BLOCK_M = 128;
inline constexpr int BLOCK_N = 128;
inline constexpr int BLOCK_K_BYTES = 128;
inline constexpr int GROUP_M = 8;
inline constexpr int NUM_STAGES = 6;
inline constexpr int TRANSPOSE_C = 0;
inline constexpr int BLOCKS_PER_SM = 1;
inline constexpr int CLUSTER_M = 2;
inline constexpr int CLUSTER_K = 1;
inline constexpr int PROMOTE = 64;
inline constexpr Math MATH = Math::fp16x3;
inline constexpr BLayout B_LAYOUT = BLayout::kn;
inline constexpr int PARTS = 2;
inline constexpr int PART_SHIFT = 12;
inline constexpr int WIDE = 1073741824;
inline constexpr int C_BY_THREADS = 0;
}

#endif
