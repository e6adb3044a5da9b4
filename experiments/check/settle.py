"""How a CUDA kernel's matrices are stored, and which size is which, where what is usual does not make it right."""

from __future__ import annotations

import gemm_ref
from experiments.check.cuda import layouts
from experiments.check.cuda.cuda_file import CudaKernel
from experiments.check.survey import Survey, survey
from experiments.check.trial import attempt

_LEAST = 16  # of a tile's sides


def settle(kernel: CudaKernel) -> CudaKernel:
    """The kernel, with the layout that makes it right if rows are not; the report says so."""
    seen = survey(kernel)
    problem = kernel.admit(_whole(seen.tile or kernel.tile, seen))
    if _right(kernel, problem):
        return kernel
    free = not (kernel.says_sizes or kernel.square or kernel.fixed)
    for other in layouts.others(kernel.layout, axes=free):
        changed = kernel.changed(layout=other, assumed=str(other))
        if _right(changed, problem):
            changed.notes.append(f"right if {other}, which is how it is checked{_as_option(other)}")
            return changed
    return kernel


def _whole(tile: tuple[int, int], seen: Survey) -> gemm_ref.Problem:
    """Whole tiles of sizes that differ, as few as that takes, and as deep as all of the kernel's buffers."""
    m, n = (side * -(-_LEAST // side) for side in tile)
    n = 2 * n if n == m else n
    k = seen.depth
    while k in (m, n):
        k += seen.slice
    return gemm_ref.Problem(m, n, k)


def _right(kernel: CudaKernel, problem: gemm_ref.Problem) -> bool:
    return attempt(kernel, problem, zeroed=True).right  # whether it reads C is another question


def _as_option(found: layouts.Layout) -> str:
    return f": --layout {found.option}" if found.option and found.axes == "MNK" else ""
