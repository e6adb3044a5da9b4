"""The GEMMs that the rungs are measured against: a triple loop in C++, two BLAS libraries of the CPU, cuBLAS, CUTLASS.

This module lists them; `products` computes them.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from gemm_ref.compute import EMULATED, MATHS, NATIVE, TENSOR_CORE
from gemm_ref.rung import capability_refusal

CANDIDATES = 16  # algorithms that cuBLASLt's heuristic ranks first
CUTLASS_PACKAGE, CUTLASS_INSTALL = "cutlass_library", "nvidia-cutlass"  # the wheel, as Python and as pip know it


@dataclass(frozen=True)
class Baseline:
    """A GEMM that is not a rung: its names, the device that runs it and what it shows."""

    name: str
    title: str
    idea: str  # one line
    device: str  # "cpu" or "cuda"
    backend: str  # the `backend` column of the results
    maths: tuple[str, ...] = ("fp32",)  # if there are several, its function takes one as `math`
    package: str = ""  # an optional dependency, by the name that Python imports
    install: str = ""  # the same by the name that pip installs
    min_capability: tuple[int, int] = (0, 0)  # the oldest compute capability that runs it
    only_capability: tuple[int, int] | None = None  # set if it runs on this architecture alone

    def refusal(self, capability: tuple[int, int]) -> str | None:
        """Why it cannot run on a GPU of this compute capability, or None if it can."""
        if self.package and importlib.util.find_spec(self.package) is None:
            return f"{self.name} needs {self.package}, which is not installed: pip install '{self.install}'"
        return capability_refusal(self.name, capability, self.min_capability, self.only_capability)


_TABLE = (
    Baseline("cpu_loop", "CPU loop", "three loops in C++ on one core", "cpu", "cpu"),
    Baseline("numpy_blas", "NumPy BLAS", "the BLAS that NumPy was built with", "cpu", "numpy"),
    Baseline("torch_blas", "torch BLAS", "the BLAS that torch uses on a CPU, in IEEE fp32", "cpu", "torch"),
    Baseline("cublas", "cuBLAS", "the vendor's GEMM through torch; fp32 is IEEE, not TF32", "cuda", "cublas", NATIVE),
    Baseline(
        "cublas_sgemm", "cuBLAS SGEMM", "cuBLAS in IEEE fp32, beside modes that cuBLAS has none of on this GPU",
        "cuda", "cublas", EMULATED,
    ),
    Baseline(
        "cublaslt_best", "cuBLASLt best",
        f"the fastest of the {CANDIDATES} algorithms that cuBLASLt ranks first, found by trying", "cuda", "cublaslt",
        tuple(math for math in NATIVE if "kn" in MATHS[math].cublas_b_layouts),
        package="nvmath", install="nvmath-python[cu13]",
    ),
    Baseline(
        "cutlass_simt", "CUTLASS SIMT",
        "CUTLASS 2's SGEMM on the CUDA cores: cp.async into three stages, a block of 256 x 128 x 8", "cuda", "cutlass",
        package=CUTLASS_PACKAGE, install=CUTLASS_INSTALL, min_capability=(8, 0),
    ),
    Baseline(
        "cutlass_hopper", "CUTLASS Hopper",
        "CUTLASS 3's warp-specialised GEMM: TMA and wgmma, blocks in clusters, persistent", "cuda", "cutlass",
        TENSOR_CORE, package=CUTLASS_PACKAGE, install=CUTLASS_INSTALL, only_capability=(9, 0),
    ),
)  # fmt: skip

BASELINES: Mapping[str, Baseline] = MappingProxyType({baseline.name: baseline for baseline in _TABLE})
