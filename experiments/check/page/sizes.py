"""The runs as a map: along each of M, N and K with the other two whole, and the sizes beside them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from operator import attrgetter
from types import MappingProxyType

from experiments.check.report import Outcome, Report, Verdict
from experiments.check.sizes import AXES

FLAWED = "right, with a fault"
# How an outcome is marked, for readers who do not tell its colour, in the order of the key.
GLYPHS: Mapping[str, str] = MappingProxyType(
    {
        Outcome.RIGHT: "✓",
        FLAWED: "!",
        Outcome.WRONG: "✕",
        Outcome.OUTSIDE: "⊘",
        Outcome.STOPPED: "■",
        Outcome.REFUSED: "–",
    }
)


@dataclass(frozen=True)
class Cell:
    """One size: what is written there, how it ended, and the same in words."""

    text: str
    outcome: str  # of GLYPHS
    title: str
    base: bool  # the whole sizes that the strips start from


@dataclass(frozen=True)
class Strip:
    """Sizes in a row."""

    label: str
    about: str
    cells: tuple[Cell, ...]
    along: bool = False  # along one of M, N and K


def strips(report: Report) -> list[Strip]:
    """The map, from every run of the report. What the strips start from is the run that most others differ from in one
    size alone."""
    runs = [verdict for verdict in report.verdicts if verdict.inputs == "integers"]
    if not runs:
        return []
    base = max(runs, key=lambda run: sum(_differ(run, other) == 1 for other in runs))
    found, rest = [], runs
    for axis in AXES:
        others = [other for other in AXES if other != axis]
        along = [run for run in runs if all(getattr(run, other) == getattr(base, other) for other in others)]
        if len(along) > 1:
            about = " and ".join(f"{other.upper()} = {getattr(base, other)}" for other in others)
            along.sort(key=attrgetter(axis))
            found.append(Strip(axis.upper(), f"with {about}", _cells(report, along, base, axis), along=True))
            rest = [run for run in rest if run not in along]
    if rest:
        found.append(Strip("M × N × K", "several at once" if found else "", _cells(report, rest, base)))
    for inputs in dict.fromkeys(verdict.inputs for verdict in report.verdicts if verdict.inputs != "integers"):
        cells = _cells(report, (verdict for verdict in report.verdicts if verdict.inputs == inputs), base)
        found.append(Strip(inputs.replace("_", "-"), "as inputs", cells))
    return found


def _differ(one: Verdict, other: Verdict) -> int:
    """In how many of M, N and K."""
    return sum(getattr(one, axis) != getattr(other, axis) for axis in AXES)


def _cells(report: Report, runs: Iterable[Verdict], base: Verdict, axis: str = "") -> tuple[Cell, ...]:
    flawed = {(size, "integers") for fault in report.faults for size in fault.sizes}  # the detectors see these alone
    cells = []
    for run in runs:
        outcome = FLAWED if run.right and (run.problem, run.inputs) in flawed else str(run.outcome)
        text = str(getattr(run, axis)) if axis else f"{run.m} × {run.n} × {run.k}"
        cells.append(Cell(text, outcome, f"{run.problem}: {outcome}", bool(axis) and run is base))
    return tuple(cells)
