"""From a run to the faults that it showed: each with its kind, its place and the source line there."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from experiments.check.report import Fault
from experiments.check.trial import Trial
from gemm_ref import ptx
from gemm_ref.ptx.detect.finding import MISSED, NOTES, UNWRITTEN

Quote = Callable[[str, int], str]  # (file, line) -> the text of the line; empty where it is not the kernel's own

_PLACE = re.compile(r"^([^:\n]+):(\d+): ")
# `file:line: instruction: ` before who did what; the line is quoted instead
_INSTRUCTION = re.compile(r"^[^:\n]+:\d+: @?[!%\w]*\s?\S+( .*?)?: (?=block |[\w ]+\[)")
_KINDS = (
    ("which is out of bounds", "out of bounds"),
    ("is not at a multiple", "misaligned"),
    ("still running", "endless loop"),
    ("refuses this launch", "launch refused"),
    ("executes this with its whole warp", "warp without all its lanes"),
    ("is no lane of the mask", "lane that its mask leaves out"),
    ("waits for other lanes of its warp", "lanes that wait forever"),
    ("before anything was written", "undefined value"),
)

OUTSIDE = ("out of bounds", "misaligned")  # kinds of faults: accesses outside what they may touch


def found(trial: Trial, quote: Quote) -> list[Fault]:
    """What the detectors saw, in the order in which they did, and then what stopped the run."""
    seen = (each for each in trial.findings if each.kind not in NOTES and not _idle(each, trial) and not _spare(each))
    faults = [_of_finding(finding, quote) for finding in seen]
    if trial.fault:
        file, line = place_of(trial.fault)
        faults.append(Fault(kind_of(trial.fault), trial.fault, file, line, quote(file, line)))
    return faults


def place_of(fault: str) -> tuple[str, int]:
    """The file and the line where a run stopped; ("", 0) where that is not known."""
    place = _PLACE.match(fault)
    return (place[1], int(place[2])) if place else ("", 0)


def formal(trial: Trial) -> list[str]:
    """What CUDA does not promise, though every GPU of today does as it is meant."""
    return [
        f"{finding.kind}, at line {finding.line}: {plain(finding.text)}"
        for finding in trial.findings
        if finding.kind in NOTES
    ]


def idle(trials: Iterable[Trial]) -> list[str]:
    """A sentence on the places that read what nothing wrote and make no use of it, if there are any."""
    seen: dict[str, set[int]] = {}
    for trial in trials:
        for finding in trial.findings:
            if _idle(finding, trial):
                seen.setdefault(finding.file, set()).add(finding.line)
    places = "; ".join(f"{file}:{', '.join(map(str, sorted(lines)))}" for file, lines in seen.items())
    return [f"memory that nothing wrote is read, and C does not depend on what it holds ({places})"] if seen else []


def _idle(finding: ptx.Finding, trial: Trial) -> bool:
    """Whether a read is of memory that nothing wrote, which holds NaN, and no NaN has come to C."""
    return finding.kind == UNWRITTEN and trial.right and trial.a.is_floating_point()


def _spare(finding: ptx.Finding) -> bool:
    """Whether it is of a buffer that was larger than the kernel needs: only all of C must be written."""
    return finding.kind == MISSED and not re.search(r"elements of C\b", finding.text)


def plain(text: str) -> str:
    """A message without the PTX instruction that it begins with."""
    return _INSTRUCTION.sub("", text)


def _of_finding(finding: ptx.Finding, quote: Quote) -> Fault:
    here, there = (finding.file, finding.line), (finding.other_file or "", finding.other_line or 0)
    there = ("", 0) if there == here else there
    return Fault(finding.kind, str(finding), *here, quote(*here), there[1], quote(*there))


def kind_of(fault: str) -> str:
    """The kind of what stopped a run."""
    for words, kind in _KINDS:
        if words in fault:
            return kind
    return "barrier" if "barrier" in fault else "fault"
