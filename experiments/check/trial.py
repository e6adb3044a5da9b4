"""One run of a kernel on the reference GPU: whether the result is right, and what went wrong on the way."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch

import gemm_ref
from experiments.check.subject import PLAIN, Scales, Subject, bias_vector
from experiments.records.request import UsageError
from gemm_ref import ptx
from gemm_ref.inputs import aligned
from gemm_ref.problem import INTEGER_LIMIT
from gemm_ref.ptx.detect.finding import EARLY, MIXED, RACE, SKIPPED

# The reference GPU cannot run the kernel, which is no fault of the kernel.
UNSUPPORTED = (ptx.Unsupported, ptx.ParseError)
SCALES = (-3.0, -2.0, 2.0, 3.0)  # sums stay exact in half precision as well
MAX_INSTRUCTIONS = 300_000  # of a batch of blocks: some hundred times what these sizes take a sound kernel
_PER_PRODUCT = 16  # instructions
_ONES = ("ones", "a_ones", "b_ones")  # kinds of inputs in which all elements of a matrix are equal
_INTEGERS = (*_ONES, "positive")  # kinds of integers; sums of positive ones exceed what fp16 holds exactly


class CannotCheck(Exception):
    """The reference GPU cannot run the kernel; the message says what it lacks, and where."""


@dataclass(frozen=True)
class Trial:
    """A run at one size."""

    problem: gemm_ref.Problem
    kind: str  # of the inputs
    a: torch.Tensor = field(compare=False, repr=False)
    b: torch.Tensor = field(compare=False, repr=False)
    c: torch.Tensor = field(compare=False, repr=False)  # as it was left
    wrong: str = ""  # what is wrong with C; empty where it is right, or was not looked at because of a fault
    fault: str = ""  # what stopped the run
    refusal: Exception | None = None  # why it could not be run at this size
    findings: tuple[ptx.Finding, ...] = ()
    scales: Scales = PLAIN
    accuracy: gemm_ref.Accuracy | None = None  # where it is right

    @property
    def right(self) -> bool:
        """Whether C is the product."""
        return not self.wrong and not self.fault and not self.refusal

    @property
    def scales_text(self) -> str:
        """`with alpha = 2 and beta = -3, ` where they are not those of a plain product."""
        parts = [
            "a bias" if name == "bias" else f"{name} = {value:g}"
            for name, value in vars(self.scales).items()
            if value != getattr(PLAIN, name)
        ]
        return f"with {' and '.join(parts)}, " if parts else ""

    @property
    def unordered(self) -> bool:
        """Whether threads are not synchronised, which neither sizes nor layouts explain."""
        return any(finding.kind in (RACE, EARLY, SKIPPED, MIXED) for finding in self.findings)

    @property
    def endless(self) -> bool:
        """Whether the kernel had to be stopped."""
        return "still running after" in self.fault


class InstructionLimit(ptx.Observer):
    """Stops a kernel that does not end by itself."""

    def __init__(self, limit: int = 0) -> None:
        self._limit = self._left = limit or MAX_INSTRUCTIONS

    def on_instruction(self, instruction, mask, machine) -> None:
        self._left -= 1
        if self._left < 0:
            after = f"still running after {self._limit} instructions"
            raise ptx.EndlessLoop(f"{instruction.place}: {after}: does the loop around this line end?")


class Launches(ptx.Observer):
    """Collects the kernels that are run, each with its launch."""

    def __init__(self) -> None:
        self.seen: list[tuple[ptx.DecodedKernel, gemm_ref.Launch]] = []

    def on_launch(self, kernel, launch, memory) -> None:
        self.seen.append((kernel, launch))


def attempt(
    subject: Subject,
    problem: gemm_ref.Problem,
    kind: str = "integers",
    *,
    scales: Scales | None = None,
    zeroed: bool | None = None,
    detect: bool = False,
    observers: Sequence[ptx.Observer] = (),
) -> Trial:
    """Runs the kernel on seeded inputs of a kind and checks the result.

    scales: `draw_scales` by default for integers, else those of a plain product. zeroed: C holds zeros when the kernel
    starts, and not NaN; by default where beta is among the parameters. If beta is not 0, C holds integers. detect: with
    the fault detectors.
    """
    if scales is None:
        scales = draw_scales(subject, problem) if kind == "integers" else subject.plain
    zeroed = (subject.zeroed or "BETA" in subject.scalars) if zeroed is None else zeroed
    before = integers(problem) if scales.beta or subject.finite else None
    if before is not None and kind != "integers":
        before.zero_()  # sums stay exact
    bias = scales.bias * bias_vector(problem.n) if scales.bias else None
    detectors = ptx.Detectors(outputs=() if zeroed or before is not None else ("C",), tile=subject.tile)
    limit = InstructionLimit(max(MAX_INSTRUCTIONS, _PER_PRODUCT * problem.n * problem.k))  # of a row of C
    all_observers = [limit, *observers, *([detectors] if detect else ())]
    outputs = []

    def fn(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor, **_: object) -> torch.Tensor:
        outputs.append(out)
        if before is not None:
            out.copy_(before)
        elif zeroed:
            out.zero_()
        with ptx.watched(*all_observers):
            subject.run(a, b, out, scales)
        return out

    a, b = operands(problem, kind)
    if subject.unsigned or kind == "positive":
        a, b = a.abs(), b.abs()
    wrong = fault = ""
    accuracy = None
    refusal: Exception | None = None
    exact = kind in _INTEGERS or gemm_ref.MATHS[problem.math].is_exact(kind)
    own = subject.finish
    exact = exact and abs(math.frexp(own.alpha)[0]) == 0.5  # a power of two rounds nothing
    added, beta = (before, scales.beta) if scales.beta else (None, None)
    extras = own._replace(c=added, alpha=scales.alpha * own.alpha, beta=beta, bias=bias)
    try:
        accuracy = gemm_ref.checked_run(fn, a, b, math=problem.math, exact=exact, extras=extras)
    except gemm_ref.WrongResult as error:
        wrong = str(error)
    except UNSUPPORTED as error:
        refusal = CannotCheck(str(error))
    except UsageError as error:
        refusal = error
    except ptx.AssertFailed as error:
        refusal = UsageError(f"{subject.name} refuses to run: {error}")
    except ptx.PtxError as error:
        fault = str(error)
    return Trial(problem, kind, a, b, outputs[0], wrong, fault, refusal, detectors.findings, scales, accuracy)


def draw_scales(subject: Subject, problem: gemm_ref.Problem) -> Scales:
    """Returns alpha, beta and a bias for a kernel that takes them, other ones at every size."""
    chosen = np.random.default_rng([problem.m, problem.n, problem.k]).choice(SCALES, 2, replace=False)
    named = {"ALPHA": float(chosen[0]), "BETA": float(chosen[1]), "BIAS": 1.0}
    return replace(subject.plain, **{x.lower(): value for x, value in named.items() if x in subject.scalars})


def integers(problem: gemm_ref.Problem) -> torch.Tensor:
    """Returns (M, N) integers in [-4, 4] of C's dtype, which C holds beforehand."""
    rng = np.random.default_rng([problem.n, problem.m])
    values = rng.integers(-INTEGER_LIMIT, INTEGER_LIMIT + 1, (problem.m, problem.n))
    return torch.from_numpy(values).to(gemm_ref.MATHS[problem.math].out_dtype)


def operands(problem: gemm_ref.Problem, kind: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns A and B, each aligned to a cache line, as a GPU allocates. `a_ones`: ones in A, integers in B."""
    a, b = gemm_ref.make_inputs(problem, "integers" if kind in _INTEGERS else kind)
    if kind in ("ones", "a_ones"):
        a = torch.ones_like(a)
    if kind in ("ones", "b_ones"):
        b = torch.ones_like(b)
    return aligned(a), aligned(b)
