"""The one validation of a GEMM call, and the skeleton that every backend's `gemm` shares."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from gemm_ref.problem import MATHS, Problem, check_shapes
from gemm_ref.stage import DEFAULT_VARIANT, DIALECTS
from gemm_ref.stages import Implementation, get_stage

MAX_SIZE = 2**31 - 1 - 1024  # the last tile's indices, up to a block past the edge, must not overflow


@dataclass(frozen=True)
class Call:
    """A call that passed validation."""

    implementation: Implementation
    problem: Problem


def validate(
    a: torch.Tensor,
    b: torch.Tensor,
    out: torch.Tensor | None = None,
    *,
    stage: str,
    dialect: str = "cuda",
    variant: str = DEFAULT_VARIANT,
    math: str | None = None,
) -> Call:
    """Check everything a GEMM call can get wrong; raise ValueError saying what was wrong and what would be right.

    a: (M, K), b: (K, N), out: (M, N) or None, of one dtype and on one device. `math` is needed only where a
    dtype has several math modes. Sizes may be 0. Strides are free.
    """
    rung = get_stage(stage)
    if dialect not in DIALECTS:
        raise ValueError(f"unknown dialect {dialect!r}: there are {', '.join(DIALECTS)}")
    if dialect not in rung.dialects:
        raise ValueError(f"{rung.id} has no {dialect} kernel: it is written in {', '.join(rung.dialects)}")
    variant = rung.find_variant(variant, dialect)
    check_tensors(a, b)
    math = _choose_math(a.dtype, math, rung.maths, rung.id)
    problem = Problem(a.shape[0], b.shape[1], a.shape[1], math)
    sizes = dict(zip("MNK", (problem.m, problem.n, problem.k), strict=True))
    if max(sizes.values()) > MAX_SIZE:
        raise ValueError(f"kernels count rows and columns in 32 bits, so no size may pass {MAX_SIZE}; they are {sizes}")
    if out is not None:
        check_out(out, a, b, problem)
    if a.device.type == "cuda":
        refusal = rung.refusal(torch.cuda.get_device_capability(a.device))
        if refusal:
            raise ValueError(refusal)
    return Call(Implementation(rung, variant, dialect, math), problem)


def run(
    a: torch.Tensor,
    b: torch.Tensor,
    out: torch.Tensor | None,
    launch: Callable[[Call, torch.Tensor, torch.Tensor, torch.Tensor], None],
    **names: str | None,
) -> torch.Tensor:
    """Validate, make the operands contiguous, allocate C, `launch(call, a, b, c)`, and hand C back.

    What every backend's `gemm` does around its launch. Operands that are not contiguous are copied first, and an
    `out` that is not contiguous is filled from a contiguous result. Gradients do not flow through the kernels.
    """
    call = validate(a, b, out, **names)
    m, n = call.problem.m, call.problem.n
    direct = out is not None and out.is_contiguous() and not out.is_neg()
    c = out if direct else torch.empty((m, n), dtype=a.dtype, device=a.device)
    if m and n:
        launch(call, as_operand(a), as_operand(b), c.detach())
    if out is None or direct:
        return c
    return out.copy_(c)


def as_operand(x: torch.Tensor) -> torch.Tensor:
    """The numbers of x as a kernel reads them: row-major, outside autograd, with a lazy negation carried out."""
    return x.detach().resolve_neg().contiguous()


def check_tensors(a: torch.Tensor, b: torch.Tensor) -> None:
    """Raise ValueError unless a (M, K) and b (K, N) are matrices of one dtype on one supported device."""
    check_shapes(a, b)
    if a.dtype != b.dtype:
        raise ValueError(f"a is {a.dtype} and b is {b.dtype}: convert one, as in b.to({a.dtype})")
    if a.device != b.device:
        raise ValueError(f"a is on {a.device} and b on {b.device}: move one, as in b.to({str(a.device)!r})")
    if a.device.type not in ("cpu", "cuda"):
        raise ValueError(f"device {a.device} is not supported: use a CUDA GPU, or the CPU for the reference GPU")


def _choose_math(dtype: torch.dtype, math: str | None, supported: tuple[str, ...], stage: str) -> str:
    if math is not None and math not in MATHS:
        raise ValueError(f"unknown math mode {math!r}: there are {', '.join(MATHS)}")
    if math is not None and math not in supported:
        raise ValueError(f"{stage} does not compute in {math}: it has {', '.join(supported)}")
    fitting = [name for name in supported if MATHS[name].dtype == dtype]
    if not fitting:
        wanted = " or ".join(str(MATHS[name].dtype) for name in supported)
        raise ValueError(f"{stage} does not take {dtype}: convert the operands to {wanted}")
    if math is None:
        return fitting[0]
    if math not in fitting:
        raise ValueError(f"math mode {math} takes {MATHS[math].dtype}, and the operands are {dtype}")
    return math


def check_out(out: torch.Tensor, a: torch.Tensor, b: torch.Tensor, problem: Problem) -> None:
    """Raise ValueError unless `out` can take the product: (M, N), dtype and device of a, memory of its own."""
    if not isinstance(out, torch.Tensor):
        raise ValueError(f"out must be a torch.Tensor, not {type(out).__name__}")
    if tuple(out.shape) != (problem.m, problem.n):
        raise ValueError(f"out must have shape ({problem.m}, {problem.n}); it has {tuple(out.shape)}")
    if out.dtype != a.dtype:
        raise ValueError(f"out must be {a.dtype}; it is {out.dtype}")
    if out.device != a.device:
        raise ValueError(f"out must be on {a.device}, as the operands; it is on {out.device}")
    if out.requires_grad:
        raise ValueError("out requires grad, and the kernels are outside autograd: pass out.detach()")
    if _overlaps_itself(out):
        raise ValueError("several elements of out share one place in memory (an expanded tensor): pass out.clone()")
    for name, x in (("a", a), ("b", b)):
        if _overlap(out, x):
            raise ValueError(f"out shares memory with {name}, which the kernel still reads: pass a separate tensor")


def _overlaps_itself(x: torch.Tensor) -> bool:
    """Whether two elements of x may share one place: a stride that does not step over what the smaller ones span."""
    covered = 1
    for stride, size in sorted((stride, size) for size, stride in zip(x.shape, x.stride(), strict=True) if size > 1):
        if stride < covered:
            return True
        covered = stride * size
    return False


def _overlap(x: torch.Tensor, y: torch.Tensor) -> bool:
    """Whether the address ranges that x and y span meet (conservative for interleaved strides)."""
    (x_first, x_end), (y_first, y_end) = _span(x), _span(y)
    return x_first < y_end and y_first < x_end


def _span(x: torch.Tensor) -> tuple[int, int]:
    if x.numel() == 0:
        return 0, 0
    last = sum((size - 1) * stride for size, stride in zip(x.shape, x.stride(), strict=True))
    return x.data_ptr(), x.data_ptr() + (last + 1) * x.element_size()
