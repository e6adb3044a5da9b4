"""CUTLASS's own GEMMs, compiled from the headers in the `nvidia-cutlass` wheel (optional): what its templates reach.

`SIMT` is the SGEMM of CUTLASS 2 on the CUDA cores; `HOPPER` has the warp-specialised kernel of CUTLASS 3 for each
compute type, with fp32 accumulation. Each is a separate library, built when first used: nvcc 13.0 takes 9 s for the
first and about a minute and 4 GB of memory for each of the others.

TMA needs rows and addresses that are multiples of 16 bytes. Any other operand is copied into a buffer that has them,
padded with zeros, and C goes through such a buffer too: that is part of a call, and of its time. SIMT reads element by
element, so it takes every size as it is.

wgmma takes 16-bit operands from shared memory in either order, 32-bit and 8-bit ones only with contiguous K, unlike a
row-major B. CUTLASS can load such an operand into registers instead, but only the first of the two: so it computes
C^T = B^T A^T (`swapped`). Otherwise B is copied (`transposed`), unless B.T is contiguous.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.util
from dataclasses import dataclass
from pathlib import Path

import torch

from gemm_ref.baselines import CUTLASS_INSTALL, CUTLASS_PACKAGE
from gemm_ref.build import BuildError, build_library, digest, open_library
from gemm_ref.compute import MAX_SIZE, element_of
from gemm_ref.launch import cdiv
from gemm_ref.operands import TMA_BYTES
from gemm_ref.toolchain import architecture, find_toolkit

FOLDER = Path(__file__).resolve().parent
FLAGS = ("-O3", "-std=c++17", "--expt-relaxed-constexpr", "-DNDEBUG")  # the last: no device asserts, as in releases
ORDERS = ("direct", "swapped", "transposed")  # how a row-major B is read


@dataclass(frozen=True)
class Kernel:
    """One instantiation of a .cu of this folder."""

    file: str  # its stem
    macros: tuple[tuple[str, object], ...]  # the template arguments that the file takes
    element: torch.dtype = torch.float32  # of A and B
    result: torch.dtype = torch.float32  # of C
    row_bytes: int = 1  # addresses and rows must be multiples of it
    transposed_b: bool = False  # B is read as N x K
    swizzle: int = 1  # clusters, at most, across a strip of C; tiles are computed strip by strip

    def __str__(self) -> str:
        return f"CUTLASS's {self.file} kernel with {', '.join(f'{name}={value}' for name, value in self.macros)}"


def simt(tile: tuple[int, int, int], warp: tuple[int, int], stages: int) -> Kernel:
    """CUTLASS 2's SGEMM. tile: M, N, K of a block; warp: M, N of a warp; stages: buffers in shared memory."""
    names = ("TILE_M", "TILE_N", "TILE_K", "WARP_M", "WARP_N", "STAGES")
    return Kernel("simt", tuple(zip(names, (*tile, *warp, stages), strict=True)))


def hopper(
    element: torch.dtype, tile: tuple[int, int, int], cluster: tuple[int, int], schedule: str = "Cooperative",
    b: str = "direct", result: torch.dtype | None = None, swizzle: int = 1,
) -> Kernel:  # fmt: skip
    """CUTLASS 3's warp-specialised GEMM.

    element: of A and B; result: of C, by default the same; tile: M, N, K of a block, cluster: blocks along M, N, both
    of C^T if B is swapped; schedule: "Cooperative" (two warp groups share a tile) or "Pingpong" (one tile each), with
    the suffix "FP8FastAccum" for sums that stay in the tensor core; b: one of ORDERS, "direct" only for 16 bits.
    """
    if b not in ORDERS:
        raise ValueError(f"B cannot be read {b!r}: there are {', '.join(ORDERS)}")
    result = result or element
    shape = dict(zip(("TILE_M", "TILE_N", "TILE_K"), tile, strict=True))
    shape |= dict(zip(("CLUSTER_M", "CLUSTER_N"), cluster, strict=True))
    macros = {
        "ELEMENT": element_of(element).cutlass,
        "RESULT": element_of(result).cutlass,
        **shape,
        "SCHEDULE": f"KernelTmaWarpSpecialized{schedule}",
        "EPILOGUE": "TmaWarpSpecialized" + ("Cooperative" if schedule.startswith("Cooperative") else ""),
        "B_IS_TRANSPOSED": int(b == "transposed"),
        "SWAPPED": int(b == "swapped"),
    }
    return Kernel("hopper", tuple(macros.items()), element, result, TMA_BYTES, b == "transposed", swizzle)


# The fastest of the tiles, clusters and orders that were tried on an H200 (docs/tensor_cores.md).
SIMT = simt((256, 128, 8), warp=(64, 64), stages=3)
_PAIRS = functools.partial(hopper, tile=(128, 256, 64), cluster=(2, 1), swizzle=8)
_PAIRS_TF32 = functools.partial(_PAIRS, torch.float32, tile=(128, 256, 32))
_FP8 = hopper(
    torch.float8_e4m3fn, (128, 256, 128), (2, 1), "CooperativeFP8FastAccum", b="transposed", result=torch.bfloat16
)
HOPPER = {  # compute type -> layout of B -> the kernel
    "tf32": {"kn": _PAIRS_TF32(b="swapped"), "nk": _PAIRS_TF32(b="transposed")},
    "fp16": {"kn": _PAIRS(torch.float16), "nk": _PAIRS(torch.float16, b="transposed")},
    "bf16": {"kn": _PAIRS(torch.bfloat16), "nk": _PAIRS(torch.bfloat16, b="transposed")},
    "fp8": {"kn": _FP8, "nk": _FP8},
}
KERNELS = {"fp32": {"kn": SIMT, "nk": SIMT}, **HOPPER}


def find_headers() -> tuple[Path, Path]:
    """The folders with the headers of CUTLASS and of its tools. Raises BuildError if the wheel is not installed."""
    spec = importlib.util.find_spec(CUTLASS_PACKAGE)  # imports nothing
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        source = Path(folder) / "source"
        if (source / "include" / "cutlass" / "version.h").is_file():
            return source / "include", source / "tools" / "util" / "include"
    raise BuildError(f"CUTLASS's headers were not found: `pip install {CUTLASS_INSTALL}` brings them")


@functools.cache
def build_kernel(kernel: Kernel, capability: tuple[int, int]) -> Path:
    """The shared library of one kernel for one GPU architecture, built once.

    Raises BuildError when the wheel or a compiler is missing, or with the compiler's output.
    """
    arch = architecture(capability)
    include, util = find_headers()
    version = digest((include / "cutlass" / "version.h").read_text(encoding="utf-8"))
    text = (FOLDER / f"{kernel.file}.cu").read_text(encoding="utf-8")
    return build_library(
        f"cutlass_{kernel.file}_sm_{arch}",
        cuda=f'// {version}: the version of CUTLASS\n#line 1 "{kernel.file}.cu"\n{text}',
        cuda_cflags=(
            *FLAGS,
            *(f"-D{name}={value}" for name, value in kernel.macros),
            *(f"-I{folder}" for folder in (include, util)),
            f"-gencode=arch=compute_{arch},code=sm_{arch}",
        ),
        cuda_home=find_toolkit(),
    )


def multiply(kernel: Kernel, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> None:
    """C = A @ B on the tensors' GPU, on torch's current stream; a (M, K), b (K, N), c (M, N) of any strides and sizes.

    Operands that are not stored as the kernel reads them are copied first, and such a C is copied to at the end.
    Raises BuildError if the kernel does not compile, ValueError for a dtype that it does not take or a size beyond 32
    bits, and RuntimeError with CUTLASS's message if it does not start.
    """
    (m, k), n = a.shape, b.shape[1]
    dtypes, expected = (a.dtype, b.dtype, c.dtype), (kernel.element, kernel.element, kernel.result)
    if dtypes != expected:
        raise ValueError(f"A, B and C must be {', '.join(map(str, expected))}; they are {', '.join(map(str, dtypes))}")
    if max(m, n, k) > MAX_SIZE:
        raise ValueError(f"CUTLASS counts in 32 bits here, so no size may pass {MAX_SIZE}; they are {m}, {n}, {k}")
    if not (m and n and k):
        c.zero_()
        return
    depth = _round_up(k, kernel.row_bytes, a)
    width = max(_round_up(n, kernel.row_bytes, x) for x in ((c,) if kernel.transposed_b else (b, c)))
    a = _copy_unless_readable(kernel, a, (m, depth))
    b = (
        _copy_unless_readable(kernel, b.T, (width, depth))
        if kernel.transposed_b
        else _copy_unless_readable(kernel, b, (depth, width))
    )
    direct = c.shape[1] == width and _is_readable(kernel, c)
    buffer = c if direct else torch.empty((m, width), dtype=c.dtype, device=c.device)
    _launch(kernel, a, b, buffer, (m, width, depth))
    if not direct:
        c.copy_(buffer[:, :n])


def _round_up(size: int, row_bytes: int, x: torch.Tensor) -> int:
    """The smallest size, from this one on, for which a row of x's elements is a multiple of `row_bytes`."""
    step = max(1, row_bytes // x.element_size())
    return cdiv(size, step) * step


def _is_readable(kernel: Kernel, x: torch.Tensor) -> bool:
    return x.is_contiguous() and not x.is_neg() and x.data_ptr() % kernel.row_bytes == 0


def _copy_unless_readable(kernel: Kernel, x: torch.Tensor, shape: tuple[int, int]) -> torch.Tensor:
    """x if it has this shape and the kernel can read it, else a copy with zeros below and on the right."""
    if tuple(x.shape) == shape and _is_readable(kernel, x):
        return x
    rows, columns = x.shape
    copy = torch.empty(shape, dtype=x.dtype, device=x.device)
    copy[:rows, :columns] = x
    copy[rows:] = 0
    copy[:rows, columns:] = 0
    return copy


def _launch(kernel: Kernel, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, sizes: tuple[int, int, int]) -> None:
    """Start the kernel on operands that it can read."""
    functions = _functions(kernel, torch.cuda.get_device_capability(a.device))
    with torch.cuda.device(a.device):
        options = (torch.cuda.current_device(), kernel.swizzle)
        stream = torch.cuda.current_stream().cuda_stream
        needed = functions.workspace_bytes(*sizes, *options)
        workspace = torch.empty(needed, dtype=torch.uint8, device=a.device) if needed else None
        address = None if workspace is None else workspace.data_ptr()
        status = functions.gemm(a.data_ptr(), b.data_ptr(), c.data_ptr(), *sizes, address, *options, stream)
    if status:
        message = functions.describe_status(status).decode()
        raise RuntimeError(f"{kernel} did not start at {'x'.join(map(str, sizes))}: CUTLASS says {message!r}")


@functools.cache
def _functions(kernel: Kernel, capability: tuple[int, int]) -> ctypes.CDLL:
    """The loaded library of one kernel, with the types of its functions."""
    library = open_library(build_kernel(kernel, capability))
    pointer, number = ctypes.c_void_p, ctypes.c_int
    library.workspace_bytes.argtypes = [number] * 5
    library.workspace_bytes.restype = ctypes.c_size_t
    library.gemm.argtypes = [*[pointer] * 3, *[number] * 3, pointer, number, number, pointer]
    library.gemm.restype = number
    library.describe_status.argtypes = [number]
    library.describe_status.restype = ctypes.c_char_p
    return library
