"""What do a bias, an activation, an alpha or beta * C cost on top of the product, in one kernel and in several?

Expectation: a bias and an activation that end while the tensor cores work on the next tile cost nothing; what takes
longer shows, and so does reading as many bytes again as C has. In kernels of their own each reads and writes C again.

Method: that of `ladder`, cold, in bf16 and, at the first size, in fp16. CUDA, Triton and Gluon run the last rung that
has epilogues. cuBLAS is called by torch: `mm`, `addmm` (with a bias in a row, and with a C), and `_addmm_activation`,
whose epilogues are cuBLASLt's; its GELU is the approximation by tanh. `in turn` is `mm`, then torch's kernels. Each is
checked, and given as its time over that of the same contender's plain product in the same rounds.

Run: `python -m experiments run epilogues [--backend B] [--math bf16] [--size 4096]`
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch

import gemm_ref
from experiments.bench import rounds, timing
from experiments.bench.rounds import Plan
from experiments.bench.telemetry import Telemetry, summarize
from experiments.bench.timers import Rotation, cache_bytes, make_timer
from experiments.bench.verify import DeviceLost, describe, load, refusal
from experiments.progress import Bars
from experiments.records import stats, workloads
from experiments.records.contenders import Contender, Gemm, build_ahead, dealt
from experiments.records.request import Request
from experiments.records.rows import COLD, ERROR
from experiments.studies.epilogues.row import EpilogueRow
from gemm_ref.baselines.products import fp32_products
from gemm_ref.call import settle, validate
from gemm_ref.epilogue import Extras, apply

NAME = "epilogues"
MATHS = ("bf16", "fp16")
DEVICE = "cuda"
PLAN = Plan(least=7, most=40, each_s=0.1, total_s=4.0)
FUSED, IN_TURN = "fused", "in turn"
PLAIN = "plain"
# By name: what a call gives beside A and B, with True for a tensor. The first two and the last two at every size.
FORMS: dict[str, dict[str, Any]] = {
    PLAIN: {},
    "bias": {"bias": True},
    "alpha": {"alpha": 0.5},
    "bias, relu": {"bias": True, "activation": "relu"},
    "bias, gelu": {"bias": True, "activation": "gelu"},
    "bias, silu": {"bias": True, "activation": "silu"},
    "bias, gelu by tanh": {"bias": True, "activation": "gelu_tanh"},
    "c": {"c": True},
}
EVERYWHERE = (PLAIN, "bias", "bias, gelu by tanh", "c")


@dataclass(frozen=True)
class Turn:
    """One thing that is timed: a contender, a form of the epilogue, and in how many kernels."""

    contender: Contender
    form: str
    how: str


def unsuited(contender: Contender, request: Request) -> str:
    """Why the contender is no part of this experiment; empty if it is."""
    if request.device == "cpu":
        return "times need a GPU"
    if contender.math not in ((request.math,) if request.math else MATHS) or contender.math not in MATHS:
        return f"epilogues are timed in {' and '.join(MATHS)}"
    if timing.is_reference(contender):
        return ""
    rung = next(stage for stage in reversed(gemm_ref.stages_in(contender.math)) if stage.epilogues)
    if contender.stage == rung.id and contender.is_default and contender.dialect in rung.epilogues:
        return ""
    return f"only {rung.id} and cuBLAS take part"


def measure(request: Request, chosen: Sequence[Contender], bars: Bars) -> Iterator[EpilogueRow]:
    """A row for each contender, problem and form; one of an error where a form is wrong."""
    for asked, own in timing.by_math(request, chosen):
        sizes = workloads.EPILOGUES if asked.math == MATHS[0] else workloads.EPILOGUES[:1]
        for place, problem in enumerate(timing.problems(asked, sizes)):
            forms = FORMS if place == 0 or request.problems else EVERYWHERE
            with fp32_products():  # 16-bit products are summed in fp32
                yield from _time(problem, own, tuple(forms), bars)
            torch.cuda.empty_cache()


def extras_of(form: str, problem: gemm_ref.Problem) -> Extras:
    """What a call of this form gives, on the GPU."""
    dtype, given = gemm_ref.MATHS[problem.math].out_dtype, dict(FORMS[form])
    generator = torch.Generator(DEVICE).manual_seed(1)
    for name, shape in (("bias", (problem.n,)), ("c", (problem.m, problem.n))):
        if name in given:
            given[name] = torch.randn(shape, generator=generator, device=DEVICE).to(dtype)
    return Extras(**given)


def by_torch(form: str, how: str, product: Gemm) -> Gemm | None:
    """`fn(a, b, out, **extras)` by torch on a GPU: cuBLAS's epilogue where torch reaches one, or kernels in turn.

    product: cuBLAS's plain one. None where there is nothing of the kind.
    """
    if form == PLAIN:
        return product if how == FUSED else None
    if how == IN_TURN:

        def in_turn(a, b, out, **given):
            product(a, b, out=out)
            return out.copy_(apply(out, Extras(**given)))

        return in_turn if form != "alpha" else None
    fused: dict[str, Callable] = {
        "bias": lambda a, b, out, bias: torch.addmm(bias, a, b, out=out),
        "c": lambda a, b, out, c: torch.addmm(c, a, b, out=out),
        "alpha": lambda a, b, out, alpha: torch.addmm(out, a, b, beta=0, alpha=alpha, out=out),
        "bias, relu": lambda a, b, out, bias, activation: torch._addmm_activation(bias, a, b, out=out),
        "bias, gelu by tanh": lambda a, b, out, bias, activation: torch._addmm_activation(
            bias, a, b, use_gelu=True, out=out
        ),
    }
    return fused.get(form)


def _time(
    problem: gemm_ref.Problem, chosen: Sequence[Contender], forms: Sequence[str], bars: Bars
) -> Iterator[EpilogueRow]:
    a, b = gemm_ref.make_inputs(problem, "normal", device=DEVICE)
    oracle, extras = gemm_ref.Oracle(a, b), {form: extras_of(form, problem) for form in forms}
    turns = [
        Turn(each, form, how)
        for each in chosen
        for form in forms
        for how in ((FUSED, IN_TURN) if timing.is_reference(each) else (FUSED,))
    ]
    able: dict[Turn, tuple[Gemm, gemm_ref.Accuracy]] = {}
    bars.begin(f"{problem}: compiling", 1)
    _build_ahead(_kernel(turn, a, b, extras[turn.form]) for turn in turns if turn.contender.kernel)
    bars.begin(f"{problem}: checking", len(turns))
    for turn in turns:
        bars.doing(f"{turn.contender}, {turn.form}, {turn.how}")
        fn, verdict = load(turn.contender)
        verdict = verdict or refusal(turn.contender, "cuda")
        about = {"mode": COLD, "form": turn.form, "how": turn.how}
        if verdict:
            yield EpilogueRow.about(NAME, turn.contender, problem, **verdict.columns, **about)
        elif found := by_torch(turn.form, turn.how, fn) if timing.is_reference(turn.contender) else fn:
            try:
                given = extras[turn.form]
                loose = timing.is_reference(turn.contender)  # it rounds to C's dtype more than once
                accuracy = _checked(found, a, b, problem, given, oracle, loose)
                able[turn] = functools.partial(found, **given.given), accuracy
            except Exception as error:
                status = {"status": ERROR, "detail": describe(error)}
                yield EpilogueRow.about(NAME, turn.contender, problem, **status, **about)
                try:
                    torch.cuda.synchronize()
                except RuntimeError as lost:
                    raise DeviceLost(str(lost)) from error
        bars.done()
    yield from _rows(problem, (a, b), able, bars)


def _build_ahead(kernels: Iterable[gemm_ref.Implementation]) -> None:
    build_ahead((dealt(kernel, 0) for kernel in kernels), torch.cuda.get_device_capability())


def _kernel(turn: Turn, a: torch.Tensor, b: torch.Tensor, extras: Extras) -> gemm_ref.Implementation:
    """The kernel that a rung's call takes for a form at this shape."""
    assert turn.contender.kernel
    item, names = turn.contender.kernel, extras._asdict()
    call = validate(a, b, stage=item.stage.id, dialect=item.dialect, variant=item.variant, math=item.math, **names)
    return settle(call, a, b).implementation


def _checked(
    fn: Gemm, a: torch.Tensor, b: torch.Tensor, problem: gemm_ref.Problem, extras: Extras, oracle: gemm_ref.Oracle,
    loose: bool,
) -> gemm_ref.Accuracy:  # fmt: skip
    """How accurate it is. Raises gemm_ref.WrongResult; a library's may be off by some more roundings of its terms."""
    if not loose:
        return gemm_ref.checked_run(fn, a, b, math=problem.math, oracle=oracle, extras=extras)
    found = fn(
        a, b, out=a.new_empty(problem.m, problem.n, dtype=gemm_ref.MATHS[problem.math].out_dtype), **extras.given
    )
    wanted = apply(oracle.on(a.device, "product"), extras)
    error = float((found.double() - wanted).norm() / wanted.norm())
    if not error < gemm_ref.MATHS[problem.math].result_eps:
        raise gemm_ref.WrongResult(f"off by {error:.2g} of the norm")
    return gemm_ref.Accuracy(error, float("nan"))


def _rows(
    problem: gemm_ref.Problem,
    operands: tuple[torch.Tensor, torch.Tensor],
    able: dict[Turn, tuple[Gemm, gemm_ref.Accuracy]],
    bars: Bars,
) -> Iterator[EpilogueRow]:
    rotation = Rotation(*operands, cache_bytes(COLD), gemm_ref.MATHS[problem.math].out_dtype)
    timer = make_timer(COLD)
    works = {turn: timing.bind(fn, rotation) for turn, (fn, _) in able.items()}
    bars.begin(f"{problem}: timing", PLAN.most * len(works))
    with Telemetry() as telemetry:
        rounds.warm_up(next(iter(works.values())), timer, telemetry.settled)
        with telemetry.window() as samples:
            times = rounds.interleave(works, timer, PLAN, None, after_each=lambda _: bars.done())
    conditions = summarize(samples)
    for turn, times_us in times.items():
        summary, accuracy = stats.summarize(times_us), able[turn][1]
        values = asdict(summary) | asdict(conditions)
        plain = times.get(Turn(turn.contender, PLAIN, FUSED))
        if plain is not None:
            values |= stats.speed_ratio(plain, times_us).columns("over_plain")
        yield EpilogueRow.about(
            NAME,
            turn.contender,
            problem,
            mode=COLD,
            form=turn.form,
            how=turn.how,
            tflops=stats.tflops(problem.flops, summary.median_us),
            rel_error=accuracy.rel_error,
            bound_share=None if np.isnan(accuracy.bound_share) else accuracy.bound_share,
            **values,
        )
    bars.finish()
