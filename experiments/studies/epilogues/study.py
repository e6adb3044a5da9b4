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

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

import gemm_ref
from experiments.bench import eligibility
from experiments.bench.measure import EntryRef, MeasuringLoop, Product, Setting, rotate
from experiments.bench.rounds import RoundPlan
from experiments.bench.telemetry import Telemetry
from experiments.bench.verify import CheckResult, Inputs, failure
from experiments.progress import Bars
from experiments.records import stats, workloads
from experiments.records.contenders import Contender, Gemm, build_ahead, with_blocks
from experiments.records.controls import CONTROL
from experiments.records.request import Request
from experiments.records.rows import COLD, FAIL, Row
from experiments.studies.epilogues.row import EpilogueRow
from gemm_ref.baselines.products import fp32_products
from gemm_ref.call.choose import select_tile
from gemm_ref.call.validate import validate
from gemm_ref.epilogue import Extras, apply

NAME = "epilogues"
MATHS = ("bf16", "fp16")
DEVICE = "cuda"
SETTING = Setting(
    NAME, "cuda", COLD, RoundPlan(min_rounds=7, max_rounds=40, per_contender_s=0.1, total_s=4.0), EpilogueRow
)
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
class Form:
    """What is made of a product, and in how many kernels."""

    name: str
    how: str


def unsuited(contender: Contender, request: Request) -> str:
    """Why the contender is no part of this experiment; empty if it is."""
    if request.device == "cpu":
        return "times need a GPU"
    if contender.math not in ((request.math,) if request.math else MATHS) or contender.math not in MATHS:
        return f"epilogues are timed in {' and '.join(MATHS)}"
    if contender.is_reference:
        return ""
    rung = next(stage for stage in reversed(gemm_ref.stages_in(contender.math)) if stage.epilogues)
    if contender.stage == rung.id and contender.is_default and contender.dialect in rung.epilogues:
        return ""
    return f"only {rung.id} and cuBLAS take part"


def measure(request: Request, chosen: Sequence[Contender], bars: Bars) -> Iterator[Row]:
    """Yields a row for each contender, problem and form."""
    for in_mode, of_mode in eligibility.by_math(request, chosen):
        sizes = workloads.EPILOGUES if in_mode.math == MATHS[0] else workloads.EPILOGUES[:1]
        for place, problem in enumerate(eligibility.problems(in_mode, sizes)):
            forms = FORMS if place == 0 or request.problems else EVERYWHERE
            with fp32_products():  # 16-bit products are summed in fp32
                yield from _time(problem, of_mode, tuple(forms), bars)
            torch.cuda.empty_cache()


def make_extras(form: str, problem: gemm_ref.Problem) -> Extras:
    """What a call of this form is given beside A and B, on the GPU."""
    dtype, extras = gemm_ref.MATHS[problem.math].out_dtype, dict(FORMS[form])
    generator = torch.Generator(DEVICE).manual_seed(1)
    for name, shape in (("bias", (problem.n,)), ("c", (problem.m, problem.n))):
        if name in extras:
            extras[name] = torch.randn(shape, generator=generator, device=DEVICE).to(dtype)
    return Extras(**extras)


def by_torch(form: Form, product: Gemm) -> Gemm | None:
    """`fn(a, b, out, **extras)` by torch on a GPU: cuBLAS's epilogue where torch reaches one, or kernels in turn.

    product: cuBLAS's plain one. None where there is nothing of the kind.
    """
    if form.name == PLAIN:
        return product if form.how == FUSED else None
    if form.how == IN_TURN:

        def in_turn(a, b, out, **extras):
            product(a, b, out=out)
            return out.copy_(apply(out, Extras(**extras)))

        return in_turn if form.name != "alpha" else None
    fused: dict[str, Callable] = {
        "bias": lambda a, b, out, bias: torch.addmm(bias, a, b, out=out),
        "c": lambda a, b, out, c: torch.addmm(c, a, b, out=out),
        "alpha": lambda a, b, out, alpha: torch.addmm(out, a, b, beta=0, alpha=alpha, out=out),
        "bias, relu": lambda a, b, out, bias, activation: torch._addmm_activation(bias, a, b, out=out),
        "bias, gelu by tanh": lambda a, b, out, bias, activation: torch._addmm_activation(
            bias, a, b, use_gelu=True, out=out
        ),
    }
    return fused.get(form.name)


class Finish(Product):
    """A contender's product in one form; its time is compared with that of the same contender's plain product."""

    plain = EntryRef()

    def __init__(self, contender: Contender, form: Form, inputs: Inputs, extras: Extras) -> None:
        super().__init__(SETTING, contender, [inputs], mode=COLD, form=form.name, how=form.how)
        self.form, self.extras = form, extras
        self._is_torchs = not contender.dialect

    def __str__(self) -> str:
        return f"{self.contender}, {self.form.name}, {self.form.how}"

    def load(self) -> tuple[Gemm, CheckResult | None]:
        fn, result = super().load()
        return (by_torch(self.form, fn) or fn) if self._is_torchs else fn, result

    def verify(self, fn: Gemm, inputs: Inputs) -> CheckResult:
        """A library rounds to C's dtype more than once, so its error is compared in the norm alone."""
        if not self._is_torchs:
            return super().verify(fn, inputs)
        a, b, mode = inputs.a, inputs.b, gemm_ref.MATHS[self.problem.math]
        try:
            c = fn(a, b, out=a.new_empty(self.problem.m, self.problem.n, dtype=mode.out_dtype), **self.extras.specified)
            wanted = apply(inputs.oracle.on(a.device, "product"), self.extras)
            error = float((c.double() - wanted).norm() / wanted.norm())
        except Exception as broken:
            return failure(self, broken, a.device.type)
        if not error < mode.result_eps:
            return CheckResult(FAIL, f"off by {error:.2g} of the norm")
        return CheckResult(accuracy=gemm_ref.Accuracy(error, float("nan")))

    def ratios(self, times_us: Mapping[Any, np.ndarray]) -> dict[str, Any]:
        columns = super().ratios(times_us)
        if self.plain in times_us:
            columns |= stats.speed_ratio(times_us[self.plain], times_us[self]).columns("over_plain")
        return columns | ({"bound_share": None} if self._is_torchs else {})


def _time(problem: gemm_ref.Problem, chosen: Sequence[Contender], forms: Sequence[str], bars: Bars) -> Iterator[Row]:
    inputs = Inputs.make(problem, "normal", DEVICE)
    extras = {form: make_extras(form, problem) for form in forms}
    entries = [
        Finish(contender, form, inputs, extras[form.name])
        for contender in chosen
        for form in (Form(name, how) for name in forms for how in (FUSED, IN_TURN))
        if (by_torch(form, lambda: None) if contender.is_reference else form.how == FUSED)
    ]
    controls = [eligibility.control_of(each) for each in chosen if each.is_reference]
    entries += [Finish(control, Form(PLAIN, FUSED), inputs, extras[PLAIN]) for control in controls]
    bars.begin(f"{problem}: compiling", 1)
    _build_ahead(_kernel(entry) for entry in entries if entry.contender.kernel)
    with Telemetry() as telemetry:
        loop = MeasuringLoop(SETTING.protocol(SETTING.mode), bars, telemetry)
        passed = yield from loop.check(entries, f"{problem}: checking")
        rotation = rotate(inputs, COLD)
        plain = {entry.contender: entry for entry in passed if entry.form == Form(PLAIN, FUSED)}
        for entry in passed:
            entry.bind(rotation)
            entry.plain = plain.get(entry.contender)
            if entry.contender.stage == CONTROL:
                entry.reference = next((each for who, each in plain.items() if who.is_reference), None)
        yield from loop.time(passed, f"{problem}: timing")


def _build_ahead(kernels: Iterable[gemm_ref.Implementation]) -> None:
    build_ahead((with_blocks(kernel, 0) for kernel in kernels), torch.cuda.get_device_capability())


def _kernel(entry: Finish) -> gemm_ref.Implementation:
    """The kernel that a rung's call takes for a form at this shape."""
    assert entry.contender.kernel
    item, operands, extras = entry.contender.kernel, (entry.inputs[0].a, entry.inputs[0].b), entry.extras._asdict()
    call = validate(
        *operands, stage=item.stage.id, dialect=item.dialect, variant=item.variant, math=item.math, **extras
    )
    return select_tile(call, *operands).implementation
