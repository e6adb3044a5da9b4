"""One checked run of a contender, with what went wrong as data instead of an exception."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any, NoReturn, TypeVar

import torch

import gemm_ref
from experiments.records.contenders import Contender, Gemm
from experiments.records.rows import ERROR, FAIL, PASS, SKIPPED, Row
from experiments.records.store import short
from gemm_ref import ptx
from gemm_ref.epilogue import Extras
from gemm_ref.problem import TAIL

AnyRow = TypeVar("AnyRow", bound=Row)
_NO_EXTRAS = Extras()


class DeviceLost(RuntimeError):
    """The GPU no longer answers in this process (after an illegal access, say), so nothing else can be measured."""


@dataclass(frozen=True)
class CheckResult:
    """`status` is one of the results' words; `accuracy` is set if the check passed, `detail` says why it did not."""

    status: str = PASS
    detail: str = ""
    accuracy: gemm_ref.Accuracy | None = None
    lost: str = ""  # what to do about a GPU that was left unusable: `report` raises DeviceLost with this text

    @property
    def passed(self) -> bool:
        return self.status == PASS

    @property
    def columns(self) -> dict[str, Any]:
        """The columns of its row."""
        columns = {"status": self.status, "detail": self.detail}
        return columns | asdict(self.accuracy) if self.accuracy else columns


def report(row: AnyRow, result: CheckResult) -> Iterator[AnyRow]:
    """Yields the row of a check. Raises DeviceLost after it if the contender left the GPU unusable."""
    yield row
    if result.lost:
        raise DeviceLost(result.lost)


@dataclass(frozen=True, eq=False)
class Inputs:
    """A problem with operands of one kind, and the oracle that all contenders share. Compared by identity."""

    problem: gemm_ref.Problem
    kind: str
    a: torch.Tensor
    b: torch.Tensor
    oracle: gemm_ref.Oracle

    @classmethod
    def make(cls, problem: gemm_ref.Problem, kind: str, device: str = "cpu", b: torch.Tensor | None = None) -> Inputs:
        a, b = gemm_ref.make_inputs(problem, kind, device=device, b=b)
        first = max(0, problem.k - TAIL) if kind == "k_tail" else 0  # of the columns of A that are not zero
        return cls(problem, kind, a, b, gemm_ref.Oracle(a[:, first:], b[first:]))

    @property
    def is_exact(self) -> bool:
        return gemm_ref.MATHS[self.problem.math].is_exact(self.kind)

    def on(self, device: str) -> Inputs:
        """The same with A and B on a device."""
        return replace(self, a=self.a.to(device), b=self.b.to(device))

    def negated(self, a: torch.Tensor, b: torch.Tensor) -> Inputs:
        """The inputs with -A, which `a` holds."""
        return replace(self, a=a, b=b, oracle=_NegatedOracle(self.oracle))


@functools.lru_cache(maxsize=1)
def tail_probe(problem: gemm_ref.Problem, device: str) -> Inputs:
    """Inputs that show a kernel which loses any of the last products of each sum, at any K; shared by all contenders.

    One-hot rows rarely have their number there, and normal inputs miss few lost products of many.
    """
    return Inputs.make(problem, "k_tail", device)


class _NegatedOracle(gemm_ref.Oracle):
    """The oracle of -A @ B, derived from that of A @ B, so that nothing is multiplied again."""

    def __init__(self, oracle: gemm_ref.Oracle) -> None:
        self._oracle, self.k, self.shape = oracle, oracle.k, oracle.shape

    def on(self, device: torch.device, name: str) -> torch.Tensor:
        values = self._oracle.on(device, name)
        return -values if name == "product" else values


def refusal(contender: Contender, device: str) -> CheckResult | None:
    """SKIPPED with the reason if this GPU cannot run the contender; None if it can."""
    reason = contender.refusal(torch.cuda.get_device_capability()) if device == "cuda" else None
    return CheckResult(SKIPPED, reason) if reason else None


def verify(
    contender: Contender, fn: Gemm, inputs: Inputs, *, detect: bool = False, extras: Extras = _NO_EXTRAS
) -> CheckResult:
    """Runs `fn` on the inputs, which are on the device that it is for, and checks all that it may do wrong.

    detect: watch the reference GPU with the fault detectors; what they find fails the contender, right or not.
    """
    config = contender.config
    detectors = ptx.Detectors(tile=(config.BLOCK_M, config.BLOCK_N) if config else None)
    try:
        with ptx.watched(detectors) if detect else contextlib.nullcontext():
            accuracy = gemm_ref.checked_run(
                *(fn, inputs.a, inputs.b),
                math=contender.math,
                exact=inputs.is_exact,
                config=config,
                oracle=inputs.oracle,
                extras=extras,
            )
    except gemm_ref.WrongResult as error:
        return CheckResult(FAIL, "; ".join([f"{inputs.kind} inputs: {error}", *map(str, detectors.findings)]))
    except Exception as error:  # a broken contender becomes a row, and the others go on
        return failure(contender, error, inputs.a.device.type)
    if detectors.findings:
        return CheckResult(FAIL, f"C is right, but: {'; '.join(map(str, detectors.findings))}")
    return CheckResult(accuracy=accuracy)


def failure(contender: object, error: Exception, device: str) -> CheckResult:
    """ERROR with the exception in words, and whether it left the GPU unusable."""
    detail = describe(error)
    return CheckResult(ERROR, detail, lost=_loss(contender, detail) if device == "cuda" else "")


def load(contender: Contender) -> tuple[Gemm, CheckResult | None]:
    """Returns the contender's callable; if its package cannot be imported, one that raises, and the error's result."""
    try:
        return contender.load(), None
    except Exception as error:
        return functools.partial(_raise, error), CheckResult(ERROR, describe(error))


def _raise(error: Exception, *_: object, **__: object) -> NoReturn:
    raise error


def load_all(chosen: Iterable[Contender], device: str) -> tuple[dict[Contender, Gemm], dict[Contender, CheckResult]]:
    """Returns the callables of those that can run on the device, and why each of the others cannot."""
    runnable: dict[Contender, Gemm] = {}
    broken: dict[Contender, CheckResult] = {}
    for contender in chosen:
        fn, result = load(contender)
        result = result or refusal(contender, device)
        if result:
            broken[contender] = result
        else:
            runnable[contender] = fn
    return runnable, broken


def describe(error: BaseException) -> str:
    """An exception in words, with every line of its message."""
    return f"{type(error).__name__}: {error}"


def _loss(contender: object, detail: str) -> str:
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
