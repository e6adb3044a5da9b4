"""One run of a kernel on the reference GPU: whether the result is right, and what went wrong on the way."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch

import gemm_ref
from experiments.check.subject import PLAIN, Scales, Subject, vector
from experiments.records.request import UsageError
from gemm_ref import ptx
from gemm_ref.inputs import aligned
from gemm_ref.problem import INTEGER_LIMIT
from gemm_ref.ptx.detect.finding import EARLY, MIXED, RACE, SKIPPED

# The kernel cannot be carried out here, which is no fault of its own.
UNABLE = (ptx.Unsupported, ptx.ParseError)
SCALES = (-3.0, -2.0, 2.0, 3.0)  # sums stay exact in half precision, too
PATIENCE = 300_000  # instructions for a batch of blocks: some hundred times what these sizes take a sound kernel
_OF_A_PRODUCT = 16  # instructions
ONES = ("ones", "a_ones", "b_ones")  # kinds of inputs for which it does not matter which element is taken
_WHOLE = (*ONES, "positive")  # kinds that are made of integers; sums of positive ones pass what fp16 holds exactly


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
    def called(self) -> str:
        """`with alpha = 2 and beta = -3, ` where they are not those of a plain product."""
        drawn = vars(self.scales).items()
        named = [
            "a bias" if name == "bias" else f"{name} = {value:g}"
            for name, value in drawn
            if value != getattr(PLAIN, name)
        ]
        return f"with {' and '.join(named)}, " if named else ""

    @property
    def unordered(self) -> bool:
        """Whether threads went out of step, which neither sizes nor layouts explain."""
        return any(finding.kind in (RACE, EARLY, SKIPPED, MIXED) for finding in self.findings)

    @property
    def endless(self) -> bool:
        """Whether the kernel had to be stopped."""
        return "still running after" in self.fault


class Patience(ptx.Observer):
    """Ends a kernel that does not end by itself."""

    def __init__(self, most: int = PATIENCE) -> None:
        self._most = self._left = most

    def on_instruction(self, instruction, mask, machine) -> None:
        self._left -= 1
        if self._left < 0:
            after = f"still running after {self._most} instructions"
            raise ptx.EndlessLoop(f"{instruction.place}: {after}: does the loop around this line end?")


class Launches(ptx.Observer):
    """The kernels that are run, each with its launch."""

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
    """Run the kernel on seeded inputs and check the result; a kind of them may be in ONES, or `positive`.

    scales: if not given, `drawn` for integers, and else those of a plain product. zeroed: C holds zeros when it starts,
    and not NaN; if not given, where beta is among what the kernel takes. If beta is not 0, C holds integers. detect:
    with the fault detectors.
    """
    if scales is None:
        scales = drawn(subject, problem) if kind == "integers" else subject.plain
    zeroed = (subject.zeroed or "BETA" in subject.scalars) if zeroed is None else zeroed
    before = integers(problem) if scales.beta or subject.finite else None
    if before is not None and kind != "integers":
        before.zero_()  # sums stay exact
    bias = scales.bias * vector(problem.n) if scales.bias else None
    detectors = ptx.Detectors(outputs=() if zeroed or before is not None else ("C",), tile=subject.tile)
    patience = Patience(max(PATIENCE, _OF_A_PRODUCT * problem.n * problem.k))  # a thread may have a row of C
    seen = [patience, *observers, *([detectors] if detect else ())]
    left = []

    def fn(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor, **_: object) -> torch.Tensor:
        left.append(out)
        if before is not None:
            out.copy_(before)
        elif zeroed:
            out.zero_()
        with ptx.watched(*seen):
            subject.run(a, b, out, scales)
        return out

    a, b = operands(problem, kind)
    if subject.unsigned or kind == "positive":
        a, b = a.abs(), b.abs()
    wrong = fault = ""
    accuracy = None
    refusal: Exception | None = None
    exact = kind in _WHOLE or gemm_ref.MATHS[problem.math].is_exact(kind)
    own = subject.finish
    exact = exact and abs(math.frexp(own.alpha)[0]) == 0.5  # a power of two rounds nothing
    added, beta = (before, scales.beta) if scales.beta else (None, None)
    extras = own._replace(c=added, alpha=scales.alpha * own.alpha, beta=beta, bias=bias)
    try:
        accuracy = gemm_ref.checked_run(fn, a, b, math=problem.math, exact=exact, extras=extras)
    except gemm_ref.WrongResult as error:
        wrong = str(error)
    except UNABLE as error:
        refusal = CannotCheck(str(error))
    except UsageError as error:
        refusal = error
    except ptx.AssertFailed as error:
        refusal = UsageError(f"{subject.name} refuses to run: {error}")
    except ptx.PtxError as error:
        fault = str(error)
    found = detectors.findings
    return Trial(problem, kind, a, b, left[0], wrong, fault, refusal, found, scales, accuracy)


def drawn(subject: Subject, problem: gemm_ref.Problem) -> Scales:
    """alpha, beta and a bias for a kernel that takes them, others at every size."""
    chosen = np.random.default_rng([problem.m, problem.n, problem.k]).choice(SCALES, 2, replace=False)
    named = {"ALPHA": float(chosen[0]), "BETA": float(chosen[1]), "BIAS": 1.0}
    return replace(subject.plain, **{x.lower(): value for x, value in named.items() if x in subject.scalars})


def integers(problem: gemm_ref.Problem) -> torch.Tensor:
    """(M, N) as C may hold beforehand: integers in [-4, 4] of C's dtype."""
    rng = np.random.default_rng([problem.n, problem.m])
    held = rng.integers(-INTEGER_LIMIT, INTEGER_LIMIT + 1, (problem.m, problem.n))
    return torch.from_numpy(held).to(gemm_ref.MATHS[problem.math].out_dtype)


def operands(problem: gemm_ref.Problem, kind: str) -> tuple[torch.Tensor, torch.Tensor]:
    """A and B, each from where a cache line begins, as what a GPU allocates. `a_ones`: ones in A, integers in B."""
    a, b = gemm_ref.make_inputs(problem, "integers" if kind in _WHOLE else kind)
    if kind in ("ones", "a_ones"):
        a = torch.ones_like(a)
    if kind in ("ones", "b_ones"):
        b = torch.ones_like(b)
    return aligned(a), aligned(b)
