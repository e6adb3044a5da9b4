"""How a CUDA kernel's matrices are stored, and which size is which, where what is usual does not make it right."""

from __future__ import annotations

import gemm_ref
from experiments.check.cuda import layouts
from experiments.check.cuda.cuda_file import CudaKernel
from experiments.check.trial import attempt

_UNKNOWN = 128  # where the grid tells no tile
_DEPTHS = (64, 128, 192, 256)


def settle(kernel: CudaKernel) -> CudaKernel:
    """The kernel, with the layout that makes it right if rows are not; the report says so."""
    problem = kernel.admit(_whole(kernel.tile))
    if kernel.square or kernel.fixed or _right(kernel, problem):
        return kernel
    for other in layouts.others(kernel.layout, axes=not kernel.knows_sizes):
        changed = kernel.changed(layout=other)
        if _right(changed, problem):
            changed.notes.append(f"right if {other}, which is how it is checked{_as_option(other)}")
            return changed
    return kernel


def _whole(tile: tuple[int, int]) -> gemm_ref.Problem:
    """Whole tiles of sizes that differ, as few as that takes."""
    m, n = (max(16, side) if side > 1 else _UNKNOWN for side in tile)
    n = 2 * n if n == m else n
    return gemm_ref.Problem(m, n, next(k for k in _DEPTHS if k not in (m, n)))


def _right(kernel: CudaKernel, problem: gemm_ref.Problem) -> bool:
    return attempt(kernel, problem, zeroed=True).right  # whether it reads C is another question


def _as_option(found: layouts.Layout) -> str:
    return f": --layout {found.option}" if found.option and found.axes == "MNK" else ""
