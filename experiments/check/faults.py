"""The faults that a run showed, each with its kind, place and source line; and the limits of what runs without one."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np
import torch

import gemm_ref
from experiments.check.cuda.kernel import CudaKernel
from experiments.check.limits import InstructionLimit
from experiments.check.messages import Limit, Message, message
from experiments.check.subject import RACE_OF_LAUNCHES, Trial
from experiments.records.request import UsageError
from gemm_ref import ptx
from gemm_ref.ptx.detect import finding as detected

Quote = Callable[[str, int], str]  # (file, line) -> the text of the line; empty where it is not the kernel's own

_PLACE = re.compile(r"^([^:\n]+):(\d+): ")
# `file:line: instruction: ` before who did what; the line is quoted instead
_INSTRUCTION = re.compile(r"^[^:\n]+:\d+: @?[!%\w]*\s?\S+( .*?)?: (?=block |[\w ]+\[)")


class FaultKind(StrEnum):
    """The code of a fault, and its name in words."""

    RACE = detected.RACE
    EARLY_READ = detected.EARLY
    UNWRITTEN_READ = detected.UNWRITTEN
    SKIPPED_BARRIER = detected.SKIPPED
    MIXED_BARRIER = detected.MIXED
    ENDED_BLOCK = detected.ENDED
    WRITTEN_TWICE = detected.TWICE
    NEVER_WRITTEN = detected.MISSED
    OUT_OF_BOUNDS = "out of bounds"
    MISALIGNED = "misaligned"
    ENDLESS_LOOP = "endless loop"
    LAUNCH_REFUSED = "launch refused"
    PARTIAL_WARP = "warp without all its lanes"
    LANE_OUTSIDE_MASK = "lane that its mask leaves out"
    LANES_WAIT = "lanes that wait forever"
    UNDEFINED_VALUE = "undefined value"
    BARRIER = "barrier"
    OTHER = "fault"

    @property
    def is_outside(self) -> bool:
        return self in (FaultKind.OUT_OF_BOUNDS, FaultKind.MISALIGNED)


# What the reference GPU says where a fault stops a run.
_KINDS = (
    ("which is out of bounds", FaultKind.OUT_OF_BOUNDS),
    ("is not at a multiple", FaultKind.MISALIGNED),
    ("still running", FaultKind.ENDLESS_LOOP),
    ("refuses this launch", FaultKind.LAUNCH_REFUSED),
    (RACE_OF_LAUNCHES, FaultKind.RACE),
    ("executes this with its whole warp", FaultKind.PARTIAL_WARP),
    ("is no lane of the mask", FaultKind.LANE_OUTSIDE_MASK),
    ("waits for other lanes of its warp", FaultKind.LANES_WAIT),
    ("before anything was written", FaultKind.UNDEFINED_VALUE),
    ("barrier", FaultKind.BARRIER),
    ("", FaultKind.OTHER),
)


# For offsets, a block runs on small matrices whose row lengths are set to 2^30.
_ROWS = 8
_SHORT, _LONG = 1 << 10, 1 << 30  # elements of a row: two long ones pass 2^31, and four 2^32
_MAX_ACCESSES = 64  # that are compared
_ALLOCATED = 64  # elements of a matrix whose rows are long


@dataclass(frozen=True)
class Fault:
    """One fault, at one line, as the first thread showed it."""

    kind: FaultKind
    text: str
    file: str
    line: int
    quote: str  # the line of the source, empty where the file is not the user's
    other_line: int = 0  # of the other thread; 0 where there is none, or on the same line
    other_quote: str = ""
    sizes: tuple[str, ...] = ()  # where it occurred


def find_faults(trial: Trial, quote: Quote) -> list[Fault]:
    """Returns what the detectors reported, in their order, and then what stopped the run."""
    seen = (each for each in trial.findings if each.kind not in detected.NOTES)
    left = (each for each in seen if not (_is_unused(each, trial) or _is_beside_c(each) or _is_duplicate(each, trial)))
    faults = [_fault_of(each, quote) for each in left]
    if trial.fault:
        file, line = place_of(trial.fault)
        faults.append(Fault(kind_of(trial.fault), trial.fault, file, line, quote(file, line)))
    return faults


def merge_faults(trials: Iterable[Trial], quote: Quote) -> list[Fault]:
    """Returns the faults of several runs, each once with the sizes at which it occurred."""
    merged: dict[tuple, Fault] = {}
    for trial in trials:
        for fault in find_faults(trial, quote):
            first = merged.setdefault((fault.kind, fault.file, fault.line, fault.other_line), fault)
            sizes = dict.fromkeys((*first.sizes, str(trial.problem)))
            merged[fault.kind, fault.file, fault.line, fault.other_line] = replace(first, sizes=tuple(sizes))
    return list(merged.values())


def place_of(fault: str) -> tuple[str, int]:
    """Returns the file and the line where a run stopped; ("", 0) where that is not known."""
    place = _PLACE.match(fault)
    return (place[1], int(place[2])) if place else ("", 0)


def kind_of(fault: str) -> FaultKind:
    return next(kind for words, kind in _KINDS if words in fault)


def unpromised(trial: Trial) -> list[Message]:
    """Returns what CUDA does not promise, though every GPU of today does as intended."""
    return [
        message(Limit.NOT_PROMISED, kind=each.kind, line=each.line, text=without_instruction(each.text))
        for each in trial.findings
        if each.kind in detected.NOTES
    ]


def unused_reads(trials: Iterable[Trial]) -> list[Message]:
    """Returns a sentence on the reads of memory that nothing wrote and whose values are not used, if there are any."""
    lines: dict[str, set[int]] = {}
    for trial in trials:
        for each in trial.findings:
            if _is_unused(each, trial):
                lines.setdefault(each.file, set()).add(each.line)
    places = "; ".join(f"{file}:{', '.join(map(str, sorted(found)))}" for file, found in lines.items())
    return [message(Limit.UNUSED_UNWRITTEN_READ, places=places)] if places else []


def without_instruction(text: str) -> str:
    """Returns a message without the PTX instruction that it begins with."""
    return _INSTRUCTION.sub("", text)


def _is_unused(finding: ptx.Finding, trial: Trial) -> bool:
    """Whether a read is of memory that nothing wrote, which holds NaN, and no NaN is in C."""
    return finding.kind == FaultKind.UNWRITTEN_READ and trial.right and trial.a.is_floating_point()


def _is_beside_c(finding: ptx.Finding) -> bool:
    """Whether unwritten elements are of a buffer other than C: only all of C must be written."""
    return finding.kind == FaultKind.NEVER_WRITTEN and not re.search(r"elements of C\b", finding.text)


def _is_duplicate(finding: ptx.Finding, trial: Trial) -> bool:
    """Whether warps of one Triton program store the same right element, each by a copy of one statement.

    With `warp_specialize=True` the compiler gives a tile that it cannot divide to both groups of consumers.
    """
    here = finding.file, finding.line, finding.block
    there = finding.other_file, finding.other_line, finding.other_block
    is_copy = here == there and finding.file.endswith(".py") and "same instruction" not in finding.text
    return finding.kind == FaultKind.WRITTEN_TWICE and is_copy and trial.right


def _fault_of(finding: ptx.Finding, quote: Quote) -> Fault:
    here, there = (finding.file, finding.line), (finding.other_file or "", finding.other_line or 0)
    there = ("", 0) if there == here else there
    return Fault(FaultKind(finding.kind), str(finding), *here, quote(*here), there[1], quote(*there))


# --- offsets ------------------------------------------------------------------------------------------------------


class _Offsets(ptx.Observer):
    """Collects accesses of global memory up to the first fault: instruction, matrix and each lane's bytes into it."""

    def __init__(self) -> None:
        self.accesses: list[tuple[ptx.Access, str, np.ndarray]] = []

    def on_access(self, access: ptx.Access) -> None:
        if access.space != "global":
            return
        lanes = slice(None) if access.lanes is None else access.lanes
        addresses = access.addresses if access.addresses.ndim == 0 else access.addresses[lanes]
        if addresses.size:
            first = int(addresses.flat[0])
            near = min(access.machine.memory.tensors, key=lambda tensor: abs(tensor.first - first))
            self.accesses.append((access, near.name, addresses - near.first))
        if len(self.accesses) == _MAX_ACCESSES:
            raise ptx.EndlessLoop("enough accesses were collected")


def find_overflows(subject: CudaKernel) -> list[Message]:
    """Returns a limit for A and for C where their offsets are computed in 32 bits.

    One block runs twice, with short rows and with long ones: a lane must access the same row and column in both. The
    second run ends at the first access outside of the few elements that are allocated.
    """
    found: dict[str, Message] = {}
    if subject.launch.has_expressions:  # host code would be called with matrices of any size
        subject = subject.changed(launch=replace(subject.launch.as_expressions(), grid=("1",)))
    width = gemm_ref.MATHS[subject.math].dtype.itemsize
    for name, axis, base in (("C", "n", gemm_ref.Problem(_ROWS, 1, 0)), ("A", "k", gemm_ref.Problem(_ROWS, 1, 1))):
        runs = [_accesses(subject, base.resized(**{axis: size})) for size in (_SHORT, _LONG)]
        for (one, of_one, near), (other, of_other, far) in zip(*runs, strict=False):
            if one.instruction is not other.instruction or of_one != of_other or near.shape != far.shape:
                break  # it goes another way
            if of_one != name or name in found:
                continue
            row, column = np.divmod(near // width, _SHORT)
            wanted = row * _LONG + column
            wrapped = wanted[(wanted * width != far) & ((wanted * width - far) % (1 << 32) == 0)]
            if wrapped.size:
                where, bits = other.instruction, int(wrapped.min()).bit_length() - 1
                place = {"file": where.file, "line": where.line}
                found[name] = message(Limit.OFFSETS_IN_32_BITS, matrix=name, bits=bits, **place)
    return list(found.values())


def _accesses(subject: CudaKernel, problem: gemm_ref.Problem) -> list[tuple[ptx.Access, str, np.ndarray]]:
    dtype = gemm_ref.MATHS[subject.math].dtype
    sizes = {"A": problem.m * problem.k, "B": problem.k * problem.n} | dict.fromkeys("CD", problem.m * problem.n)
    held: dict[str | int, torch.Tensor] = {
        role: torch.zeros(max(size, _ALLOCATED) if size <= _ROWS * _SHORT else _ALLOCATED, dtype=dtype)
        for role, size in (sizes | {"BIAS": problem.n}).items()
    }
    ends = contextlib.suppress(ptx.PtxError, UsageError, MemoryError)
    with ends, ptx.watched(observer := _Offsets(), InstructionLimit()):
        launch = replace(subject.launch.at(problem), grid=(1, 1, 1))
        subject.start(problem, launch, held).run()
    return observer.accesses
