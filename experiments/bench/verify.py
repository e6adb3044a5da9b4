"""One checked run of a contender, with what went wrong as data instead of an exception."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, NoReturn

import torch

import gemm_ref
from experiments.records.contenders import Contender, Gemm
from experiments.records.rows import ERROR, FAIL, PASS, SKIPPED
from experiments.records.store import short
from gemm_ref import ptx


class DeviceLost(RuntimeError):
    """The GPU answers no more in this process (an illegal access does that), so nothing else can be measured."""


@dataclass(frozen=True)
class Verdict:
    """`status` as in the results; accuracy when it passed, and why when it did not."""

    status: str
    detail: str = ""
    accuracy: gemm_ref.Accuracy | None = None
    lost: str = ""  # what to do about a GPU that it left unusable: DeviceLost is raised with this after its row

    @property
    def columns(self) -> dict[str, Any]:
        """What its row says, by column."""
        how = {"status": self.status, "detail": self.detail}
        return how | asdict(self.accuracy) if self.accuracy else how


@dataclass(frozen=True)
class Case:
    """A problem with inputs of one kind on the CPU, and the oracle that all contenders share."""

    problem: gemm_ref.Problem
    kind: str
    a: torch.Tensor
    b: torch.Tensor
    oracle: gemm_ref.Oracle

    @classmethod
    def make(cls, problem: gemm_ref.Problem, kind: str) -> Case:
        a, b = gemm_ref.make_inputs(problem, kind)
        return cls(problem, kind, a, b, gemm_ref.Oracle(a, b))

    @property
    def exact(self) -> bool:
        return gemm_ref.MATHS[self.problem.math].is_exact(self.kind)


def refusal(contender: Contender, device: str) -> Verdict | None:
    """SKIPPED with the reason where this GPU cannot run the contender; None where it can."""
    reason = contender.refusal(torch.cuda.get_device_capability()) if device == "cuda" else None
    return Verdict(SKIPPED, reason) if reason else None


def verify(
    contender: Contender, fn: Gemm, a: torch.Tensor, b: torch.Tensor, case: Case, detect: bool = False
) -> Verdict:
    """Run `fn` on (a, b), the case's operands on the contender's device, and check all that it may do wrong.

    detect: watch the reference GPU with the fault detectors; what they find fails the contender, right or not.
    """
    config = contender.config
    detectors = ptx.Detectors(tile=(config.BLOCK_M, config.BLOCK_N) if config else None)
    try:
        with ptx.watched(detectors) if detect else contextlib.nullcontext():
            accuracy = gemm_ref.checked_run(
                fn, a, b, math=contender.math, exact=case.exact, config=config, oracle=case.oracle
            )
    except gemm_ref.WrongResult as error:
        return Verdict(FAIL, "; ".join([f"{case.kind} inputs: {error}", *map(str, detectors.findings)]))
    except Exception as error:  # a broken rung is a row, and the others go on
        detail = describe(error)
        lost = _loss(contender, detail) if a.device.type == "cuda" else ""
        return Verdict(ERROR, detail, lost=lost)
    if detectors.findings:
        return Verdict(FAIL, f"C is right, but: {'; '.join(map(str, detectors.findings))}")
    return Verdict(PASS, accuracy=accuracy)


def load(contender: Contender) -> tuple[Gemm, Verdict | None]:
    """The contender's callable; where its package cannot be imported, the verdict, and a callable that raises why."""
    try:
        return contender.load(), None
    except Exception as error:
        return functools.partial(_raise, error), Verdict(ERROR, describe(error))


def _raise(error: Exception, *_: object, **__: object) -> NoReturn:
    raise error


def load_all(chosen: Iterable[Contender], device: str) -> tuple[dict[Contender, Gemm], dict[Contender, Verdict]]:
    """The callables of those that can run on the device, and why each of the others cannot."""
    able: dict[Contender, Gemm] = {}
    broken: dict[Contender, Verdict] = {}
    for contender in chosen:
        fn, verdict = load(contender)
        verdict = verdict or refusal(contender, device)
        if verdict:
            broken[contender] = verdict
        else:
            able[contender] = fn
    return able, broken


def describe(error: BaseException) -> str:
    """An exception in words, with every line of its message."""
    return f"{type(error).__name__}: {error}"


def _loss(contender: Contender, detail: str) -> str:
    """What to do if the GPU did not survive the contender; empty if it did."""
    try:
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
    except RuntimeError:
        return (
            f"{contender} left the GPU unusable in this process ({short(detail)}): fix it, or leave it out with "
            "--stage and --backend, and run again for the rest"
        )
    return ""
