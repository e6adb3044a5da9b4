"""The one validation of a GEMM call."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch

from gemm_ref import choice
from gemm_ref.call.extras import check_extras, settled
from gemm_ref.compute import EMULATED, MATHS
from gemm_ref.dialect import DIALECTS
from gemm_ref.epilogue import Extras
from gemm_ref.launch import REFERENCE_SMS, Launch
from gemm_ref.operands import check_grad, check_shapes, check_sizes, has_vector_rows
from gemm_ref.problem import Problem
from gemm_ref.registry import STAGES, Implementation, get_stage
from gemm_ref.rung import DEFAULT_VARIANT, Rung
from gemm_ref.toolchain import REFERENCE_CAPABILITY

_NO_EXTRAS = Extras()


@dataclass(frozen=True)
class Call:
    """A call that passed validation."""

    implementation: Implementation
    problem: Problem
    sms: int = REFERENCE_SMS  # multiprocessors of the device
    least_shared_bytes: int = 0  # that a block asks for on top of what the cubin says, needed or not
    gpu: str = ""  # the kind of GPU, as torch names it; empty where there is none
    blocks: int | None = None  # over which the tiles are scheduled; None where the rung's grid follows from the sizes
    early: bool = False  # whether the kernel may start while its operands are still being copied

    @property
    def launch(self) -> Launch:
        """How the kernel is launched there."""
        item, problem = self.implementation, self.problem
        if self.blocks is None:
            sizes = problem.m, problem.n, problem.k
            launch = item.stage.launch(*sizes, item.variant, dialect=item.dialect, sms=self.sms)
        else:
            launch = item.config.schedule(*item.config.sides(problem), problem.k, self.blocks, self.sms)
        return replace(launch, shared_bytes=max(launch.shared_bytes, self.least_shared_bytes), early=self.early)


def settle(call: Call, a: torch.Tensor, b: torch.Tensor) -> Call:
    """The call with the tile and the blocks that its shape has chosen (`gemm_ref.choice`); itself for other rungs.

    a, b: the operands as the kernel will read them. A tile that was asked for by name is kept.
    """
    item, problem = call.implementation, call.problem
    if item.dialect not in item.stage.tiles:
        return call
    tile = "" if item.variant == DEFAULT_VARIANT else item.variant
    vectors = bool(item.stage.tma) or copies_vectors(item.dialect, a, b)
    asked = item.stage, item.dialect, problem, call.sms, vectors, call.gpu, tile
    chosen = choice.choose(*asked, item.epilogue.adds_c)
    return replace(call, implementation=replace(item, variant=chosen.tile), blocks=chosen.blocks)


def copies_vectors(dialect: str, a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether rows are whole vectors of 16 bytes in all operands that a dialect's tiles copy as such."""
    operands = {"A": a, "B": b}
    return all(has_vector_rows(operands[name]) for name in DIALECTS[dialect].vectors)


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
    **extras: Any,
) -> Call:
    """Check everything a GEMM call can get wrong; raise ValueError saying what was wrong and what would be right.

    stage: None is the last rung of the ladder that takes such operands and runs on their GPU.
    a: (M, K), b: (K, N), out: (M, N) or None, on one device; a and b of one dtype, out of the math's `out_dtype`.
    `math` is needed only where it cuts the operands down, as tf32 does fp32 ones. Operands may require grad where grad
    mode is off. Sizes may be 0. Strides are free: B may be given as N x K, as `b_nk.t()`. on_range: None, or in an
    emulated mode "widen" or "raise". extras: those of `gemm_ref.epilogue.Extras`, by name; all but the scales, which
    are for fp8 alone, take a rung with epilogues.
    """
    more = settled(Extras(**extras))
    if dialect not in DIALECTS:
        raise ValueError(f"unknown dialect {dialect!r}: there are {', '.join(DIALECTS)}")
    rung = _highest(a, dialect, math, more.finish) if stage is None else get_stage(stage)
    if dialect not in rung.dialects:
        raise ValueError(f"{rung.id} has no {dialect} kernel: it is written in {', '.join(rung.dialects)}")
    if more.finish and dialect not in rung.epilogues:
        known = ", ".join(f"{x.id} in {' and '.join(x.epilogues)}" for x in STAGES.values() if x.epilogues)
        raise ValueError(
            f"{rung.id} has no epilogue in {dialect} (bias, activation, c, alpha, beta), but {known}: leave `stage` out"
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
    return Call(implementation, problem, sms_of(a.device), gpu=gpu_of(a.device))


def _highest(a: object, dialect: str, math: str | None, finishes: bool) -> Rung:
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
