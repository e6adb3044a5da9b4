"""One run of a kernel on the reference GPU: whether the result is right, and what went wrong on the way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

import gemm_ref
from experiments.check.subject import Subject
from gemm_ref import ptx
from gemm_ref.inputs import aligned

# The kernel cannot be carried out here, which is no fault of its own.
UNABLE = (ptx.Unsupported, ptx.ParseError)
PATIENCE = 300_000  # instructions for a batch of blocks: some hundred times what these sizes take a sound kernel
ONES = ("ones", "a_ones", "b_ones")  # kinds of inputs for which it does not matter which element is taken


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
    findings: tuple[ptx.Finding, ...] = ()
    accuracy: gemm_ref.Accuracy | None = None  # where it is right

    @property
    def right(self) -> bool:
        """Whether C is the product."""
        return not self.wrong and not self.fault

    @property
    def endless(self) -> bool:
        """Whether the kernel had to be stopped."""
        return "still running after" in self.fault


class Patience(ptx.Observer):
    """Ends a kernel that does not end by itself."""

    def __init__(self) -> None:
        self._left = PATIENCE

    def on_instruction(self, instruction, mask, machine) -> None:
        self._left -= 1
        if self._left < 0:
            raise ptx.EndlessLoop(
                f"{instruction.place}: still running after {PATIENCE} instructions: does the loop around this line end?"
            )


class Launches(ptx.Observer):
    """The kernels that are run, each with its launch."""

    def __init__(self) -> None:
        self.seen: list[tuple[ptx.Kernel, gemm_ref.Launch]] = []

    def on_launch(self, kernel, launch, memory) -> None:
        self.seen.append((kernel, launch))


def attempt(
    subject: Subject,
    problem: gemm_ref.Problem,
    kind: str = "integers",
    *,
    zeroed: bool = False,
    detect: bool = False,
    observers: Sequence[ptx.Observer] = (),
) -> Trial:
    """Run the kernel on seeded inputs and check the result; a kind of them may be in ONES.

    zeroed: C holds zeros when it starts, and not NaN; detect: with the fault detectors. Raises CannotCheck.
    """
    zeroed = zeroed or subject.zeroed
    detectors = ptx.Detectors(outputs=() if zeroed else ("C",), tile=subject.tile)
    seen = [Patience(), *observers, *([detectors] if detect else ())]
    left = []

    def fn(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        left.append(out.zero_() if zeroed else out)
        with ptx.watched(*seen):
            subject.run(a, b, out)
        return out

    a, b = operands(problem, kind)
    wrong = fault = ""
    accuracy = None
    exact = kind in ONES or gemm_ref.MATHS[problem.math].is_exact(kind)
    try:
        accuracy = gemm_ref.checked_run(fn, a, b, math=problem.math, exact=exact)
    except gemm_ref.WrongResult as error:
        wrong = str(error)
    except UNABLE as error:
        raise CannotCheck(str(error)) from error
    except ptx.PtxError as error:
        fault = str(error)
    return Trial(problem, kind, a, b, left[0], wrong, fault, detectors.findings, accuracy)


def operands(problem: gemm_ref.Problem, kind: str) -> tuple[torch.Tensor, torch.Tensor]:
    """A and B, each from where a cache line begins, as what a GPU allocates. `a_ones`: ones in A, integers in B."""
    a, b = gemm_ref.make_inputs(problem, "integers" if kind in ONES else kind)
    if kind in ("ones", "a_ones"):
        a = torch.ones_like(a)
    if kind in ("ones", "b_ones"):
        b = torch.ones_like(b)
    return aligned(a), aligned(b)
