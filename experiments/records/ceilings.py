"""The ceilings that `roofs` measures, by the name in their rows, in words."""

from __future__ import annotations

from types import MappingProxyType

TFLOPS, TB_S = "TFLOP/s", "TB/s"  # units
TITLES = MappingProxyType(
    {
        "fma": "fp32 FMA",
        **{f"mma_{math}": f"{math}, mma.sync" for math in ("tf32", "bf16", "fp16", "fp8")},
        **{f"wgmma_{math}": f"{math}, wgmma" for math in ("tf32", "bf16", "fp16", "fp8")},
        "dram_copy": "device memory, copy",
        "dram_read": "device memory, read",
        "l2_read": "L2, read",
        "l1_read": "L1, read",
        "shared_read": "shared memory, read",
    }
)
