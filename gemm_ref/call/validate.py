"""The first step of a call: everything that it can get wrong, as a ValueError that says what would be right."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, SupportsFloat

import torch

from gemm_ref.call import Plan
from gemm_ref.compute import EMULATED, MATHS, SCALED
from gemm_ref.dialect import DIALECTS
from gemm_ref.epilogue import ACTIVATIONS, Extras
from gemm_ref.launch import REFERENCE_SMS
from gemm_ref.problem import Problem
from gemm_ref.registry import STAGES, Implementation, get_stage
from gemm_ref.rung import DEFAULT_VARIANT, NEVER, Rung, unknown
from gemm_ref.toolchain import REFERENCE_CAPABILITY

_NO_EXTRAS = Extras()


def validate(
    a: torch.Tensor,
    b: torch.Tensor,
    out: torch.Tensor | None = None,
    *,
    stage: str | None,
    dialect: str = "cuda",
    variant: str = DEFAULT_VARIANT,
    math: str | None = None,
    on_range: str | None = None,
    batch_invariant: bool = False,
    **extras: Any,
) -> Plan:
    """Check everything a GEMM call can get wrong; raise ValueError saying what was wrong and what would be right.

    stage: None is the last rung of the ladder that takes such operands and runs on their GPU; in an emulated compute
    type the last one of fp32 computes the product instead where `choose` predicts that it takes less time.
    a: (M, K), b: (K, N), out: (M, N) or None, on one device; a and b of one dtype, out of the math's `out_dtype`.
    `math` is needed only where it cuts the operands down, as tf32 does fp32 ones. Operands may require grad where grad
    mode is off. Sizes may be 0. Strides are free: B may be given as N x K, as `b_nk.t()`. on_range: None, or in an
    emulated mode "widen" or "raise". batch_invariant: whether a row of C must have the same bits whatever M is. extras:
    those of `gemm_ref.epilogue.Extras`, by name; all but the scales, which are for fp8 alone, take a rung with
    epilogues.
    """
    more = resolve_scalars(Extras(**extras))
    if dialect not in DIALECTS:
        raise ValueError(f"unknown dialect {dialect!r}: there are {', '.join(DIALECTS)}")
    is_default = stage is None and variant == DEFAULT_VARIANT
    rung = _select_rung(a, dialect, math, more.has_epilogue) if stage is None else get_stage(stage)
    if dialect not in rung.dialects:
        raise ValueError(f"{rung.id} has no {dialect} kernel: it is written in {', '.join(rung.dialects)}")
    if more.has_epilogue and dialect not in rung.epilogues:
        known = ", ".join(f"{x.id} in {' and '.join(x.epilogues)}" for x in STAGES.values() if x.epilogues)
        raise ValueError(
            f"{rung.id} has no epilogue in {dialect} (bias, activation, c, alpha, beta), but {known}: leave `stage` out"
        )
    if batch_invariant and rung.batch_invariance(dialect) == NEVER:
        raise ValueError(
            f"{rung.id} is not batch-invariant: M decides into how many sums it splits K, and so a row's last bits; "
            "leave `stage` out, or name a rung that docs/ladder.md lists as batch-invariant"
        )
    variant = rung.find_variant(variant, dialect)
    check_tensors(a, b)
    for name, x in (("a", a), ("b", b)):
        check_grad(name, x)
    math = _choose_math(a.dtype, math, rung.maths, rung.id)
    problem = Problem(a.shape[0], b.shape[1], a.shape[1], math)
    if on_range is not None and (on_range not in ("widen", "raise") or math not in EMULATED):
        raise ValueError(
            f"on_range is 'widen' or 'raise', in {' and '.join(EMULATED)} alone: it is {on_range!r} in {math}"
        )
    check_sizes(math, M=problem.m, N=problem.n, K=problem.k)
    check_extras(more, a, problem)
    if out is not None:
        check_out(out, a, b, problem, more)
    if a.device.type == "cuda":
        refusal = rung.refusal(torch.cuda.get_device_capability(a.device))
        if refusal:
            raise ValueError(refusal)
    implementation = Implementation(rung, variant, dialect, math, epilogue=more.epilogue(MATHS[math].out_dtype))
    # M would decide which rung computes a row's bits, and "raise" asks for what the split finds.
    may_use_sgemm = math in EMULATED and is_default and not batch_invariant and on_range != "raise"
    return Plan(
        implementation, problem, sms_of(a.device), gpu=gpu_of(a.device), raise_on_range=on_range == "raise",
        batch_invariant=batch_invariant, may_use_sgemm=may_use_sgemm,
    )  # fmt: skip


def _select_rung(a: object, dialect: str, math: str | None, finishes: bool) -> Rung:
    """The last rung that is written in a dialect, takes such an operand and runs on its GPU.

    finishes: whether it must have epilogues.
    """
    if not isinstance(a, torch.Tensor):
        raise ValueError(f"a must be a torch.Tensor, not {type(a).__name__}: torch.as_tensor(a) makes one")
    capability = torch.cuda.get_device_capability(a.device) if a.is_cuda else REFERENCE_CAPABILITY
    modes = [math] if math else [name for name, mode in MATHS.items() if mode.dtype == a.dtype and not mode.operand_eps]
    fitting = [
        stage
        for stage in STAGES.values()
        if dialect in (stage.epilogues if finishes else stage.dialects)
        and set(modes) & set(stage.maths)
        and stage.refusal(capability) is None
    ]
    if not fitting and finishes:
        rounded = "pass math='tf32', which rounds the operands, or " if a.dtype == torch.float32 and not math else ""
        raise ValueError(
            f"no rung in {dialect} has an epilogue (bias, activation, c, alpha, beta) for {math or a.dtype} on this "
            f"GPU: {rounded}do it to the result with torch"
        )
    if not fitting:
        taken = f"math={math!r}" if math else f"{a.dtype}"
        raise ValueError(
            f"no rung in {dialect} takes {taken} on this GPU: name a stage, or another of {', '.join(MATHS)}"
        )
    return fitting[-1]


def sms_of(device: torch.device) -> int:
    """How many multiprocessors a device has: a GPU its own, and any other device those of the reference GPU."""
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else REFERENCE_SMS


def gpu_of(device: torch.device) -> str:
    """The kind of GPU that a device is, as torch names it; empty for any other device."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else ""


def check_shapes(a: torch.Tensor, b: torch.Tensor) -> None:
    """Raise ValueError unless a (M, K) and b (K, N) are dense matrices whose inner sizes agree."""
    for name, x, shape in (("a", a, "(M, K)"), ("b", b, "(K, N)")):
        if not isinstance(x, torch.Tensor):
            raise ValueError(
                f"{name} must be a torch.Tensor, not {type(x).__name__}: torch.as_tensor({name}) makes one"
            )
        if x.layout != torch.strided:
            raise ValueError(f"{name} must be dense; its layout is {x.layout}: pass {name}.to_dense()")
        if name == "b" and x.dim() > 2:
            raise ValueError(
                f"b must be one matrix (K, N), by which all rows of a are multiplied; its shape is {tuple(x.shape)}: "
                "call gemm for each matrix, or use torch.matmul"
            )
        if x.dim() != 2:
            raise ValueError(f"{name} must have 2 dimensions, {shape}; its shape is {tuple(x.shape)}")
    if a.shape[1] != b.shape[0]:
        raise ValueError(
            f"the inner sizes differ: a is {tuple(a.shape)} and b is {tuple(b.shape)}; "
            f"b must have {a.shape[1]} rows, as a has columns"
        )


def check_grad(name: str, x: torch.Tensor) -> None:
    """Raise ValueError if x, which is given by that name, requires grad where grad mode is on."""
    if x.requires_grad and torch.is_grad_enabled():
        raise ValueError(
            f"{name} requires grad, for which `gemm` takes tensors and no `out`: pass {name}.detach(), or call inside "
            "torch.no_grad()"
        )


def check_sizes(math: str, **sizes: int) -> None:
    """Raise ValueError unless kernels of a math mode can count so many rows and columns, which are given by name."""
    most = MATHS[math].most  # a symbolic size is checked once it is known, in the call
    if max((size for size in sizes.values() if isinstance(size, int)), default=0) > most:
        raise ValueError(
            f"kernels count rows and columns in 32 bits, so in {math} no size may pass {most}; they are {sizes}: cut "
            "the operands, and multiply the pieces"
        )


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
        wanted = " or ".join(dict.fromkeys(str(MATHS[name].dtype) for name in supported))
        raise ValueError(f"{stage} does not take {dtype}: convert the operands to {wanted}")
    if math is None:
        whole = [name for name in fitting if not MATHS[name].operand_eps]
        if not whole:
            raise ValueError(
                f"{stage} has no mode that takes {dtype} whole: it would round the operands to {' or '.join(fitting)}; "
                f"pass math={fitting[0]!r} if that is acceptable"
            )
        return whole[0]
    if math not in fitting:
        raise ValueError(f"math mode {math} takes {MATHS[math].dtype}, and the operands are {dtype}")
    return math


def check_out(
    out: torch.Tensor, a: torch.Tensor, b: torch.Tensor, problem: Problem, extras: Extras = _NO_EXTRAS
) -> None:
    """Raise ValueError unless `out` can take the product: (M, N), the math's dtype, a's device, memory of its own."""
    if not isinstance(out, torch.Tensor):
        raise ValueError(f"out must be a torch.Tensor, not {type(out).__name__}")
    if tuple(out.shape) != (problem.m, problem.n):
        raise ValueError(f"out must have shape ({problem.m}, {problem.n}); it has {tuple(out.shape)}")
    dtype = MATHS[problem.math].out_dtype
    if out.dtype != dtype:
        raise ValueError(f"out must be {dtype}; it is {out.dtype}")
    if out.device != a.device:
        raise ValueError(f"out must be on {a.device}, like the operands; it is on {out.device}")
    if out.requires_grad:
        raise ValueError("out requires grad, and the kernels are outside autograd: pass out.detach()")
    if _overlaps_itself(out):
        raise ValueError("several elements of out share one place in memory (an expanded tensor): pass out.clone()")
    check_overlap(out, a, b, extras)


def check_overlap(out: torch.Tensor, a: torch.Tensor, b: torch.Tensor, extras: Extras = _NO_EXTRAS) -> None:
    """Raise ValueError if `out` shares memory with what the kernel reads (conservative for interleaved strides).

    But `c` may be `out`: the same elements in the same places.
    """
    first, end = span(out)
    for name, x in (("a", a), ("b", b), ("bias", extras.bias), ("c", extras.c)):
        if x is None or (name == "c" and x.data_ptr() == out.data_ptr() and x.stride() == out.stride()):
            continue
        x_first, x_end = span(x)
        if first < x_end and x_first < end:
            raise ValueError(f"out shares memory with {name}, which the kernel still reads: pass a separate tensor")


def _overlaps_itself(x: torch.Tensor) -> bool:
    """Whether two elements of x may share one place: a stride that does not step over what the smaller ones span."""
    covered = 1
    for stride, size in sorted((stride, size) for size, stride in zip(x.shape, x.stride(), strict=True) if size > 1):
        if stride < covered:
            return True
        covered = stride * size
    return False


def span(x: torch.Tensor) -> tuple[int, int]:
    """The addresses from the first byte of x to the end of its last; (0, 0) if it has none."""
    if x.numel() == 0:
        return 0, 0
    last = sum((size - 1) * stride for size, stride in zip(x.shape, x.stride(), strict=True))
    return x.data_ptr(), x.data_ptr() + (last + 1) * x.element_size()


def resolve_scalars(extras: Extras) -> Extras:
    """Returns the extras with alpha and beta as floats; ValueError unless they are numbers, or for beta without c."""
    alpha, beta, c = extras.alpha, extras.beta, extras.c
    if beta is None:
        beta = 0.0 if c is None else 1.0
    if type(alpha) is not float or type(beta) is not float:
        for name, value in (("alpha", alpha), ("beta", beta)):
            if isinstance(value, torch.Tensor | str) or not isinstance(value, SupportsFloat):
                hint = f": pass {name}.item()" if isinstance(value, torch.Tensor) else ""
                raise ValueError(f"{name} must be a number, not {type(value).__name__}{hint}")
        alpha, beta = float(alpha), float(beta)
    if c is None and beta != 0.0:
        raise ValueError(f"beta is {beta} and there is nothing to multiply by it: pass c, of C's shape and dtype")
    return extras if (alpha, beta) == extras[-2:] else Extras(*extras[:-2], alpha, beta)


def check_extras(extras: Extras, a: torch.Tensor, problem: Problem) -> None:
    """Raise ValueError unless all of it fits a product of these sizes, with a's device."""
    for name, scale in (("scale_a", extras.scale_a), ("scale_b", extras.scale_b)):
        if scale is not None:
            _check_scale(name, scale, a, problem.math)
    if extras.activation is not None and extras.activation not in ACTIVATIONS:
        raise ValueError(unknown("activation", extras.activation, ACTIVATIONS))
    dtype = MATHS[problem.math].out_dtype
    if extras.bias is not None:
        _check_added("bias", extras.bias, a, (problem.n,), "a number for each column of C")
        if extras.bias.dtype not in (dtype, torch.float32):
            allowed = " or ".join(map(str, dict.fromkeys((dtype, torch.float32))))
            raise ValueError(f"bias must be {allowed}; it is {extras.bias.dtype}")
    if extras.c is not None:
        _check_added("c", extras.c, a, (problem.m, problem.n), "as the result")
        if extras.c.dtype != dtype:
            raise ValueError(f"c must be {dtype}, as the result; it is {extras.c.dtype}")


def _check_added(name: str, x: torch.Tensor, a: torch.Tensor, shape: Sequence[int], what: str) -> None:
    if not isinstance(x, torch.Tensor):
        raise ValueError(f"{name} must be a torch.Tensor, not {type(x).__name__}")
    if x.layout != torch.strided:
        raise ValueError(f"{name} must be dense; its layout is {x.layout}: pass {name}.to_dense()")
    if tuple(x.shape) != tuple(shape):
        raise ValueError(f"{name} must have shape {tuple(shape)}, {what}; it has {tuple(x.shape)}")
    if x.device != a.device:
        raise ValueError(f"{name} is on {x.device} and a on {a.device}: move it there")
    check_grad(name, x)


def _check_scale(name: str, scale: torch.Tensor, a: torch.Tensor, math: str) -> None:
    if math not in SCALED:
        raise ValueError(f"{name} is for {' and '.join(SCALED)}, whose range is small; in {math}, multiply the result")
    if not isinstance(scale, torch.Tensor) or scale.dtype != torch.float32 or scale.numel() != 1:
        raise ValueError(f"{name} must be a torch.float32 tensor of one element, as torch.tensor(0.5, device=a.device)")
    if scale.is_neg():
        raise ValueError(f"{name} has torch's negative bit set, which kernels do not read: pass {name}.resolve_neg()")
    if scale.device != a.device:
        raise ValueError(f"{name} is on {scale.device} and a on {a.device}: move it there")
