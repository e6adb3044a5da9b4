"""The report as one HTML page: no network, no script, and nothing of the user's file that is not escaped.

Its pictures are the runs as a map of sizes, and one request of a warp against banks or sectors.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from experiments.check.faults import without_instruction
from experiments.check.report import LineTraffic, Outcome, Report, Run, WarpRequest, count_of
from experiments.check.sizes import AXES
from experiments.publish.pages import make_page_templates
from experiments.publish.pages.coloured import colour_source
from gemm_ref.launch import cdiv
from gemm_ref.ptx.count.banks import BANKS, WORD, turns
from gemm_ref.ptx.count.requests import joins
from gemm_ref.ptx.count.sectors import SECTOR, WARP

_FOLDER = Path(__file__).resolve().parent
WIDE, HIGH = 440, 9  # of the picture, and of a lane's row
SIDE, HEAD = 44, 18  # beside the rows for the lanes' numbers, and above the columns for theirs


class Box(NamedTuple):
    """The access of one lane to one bank or sector."""

    x: float
    y: float
    wide: float
    share: float  # of a wavefront: from 0, the first, to 1, the last
    title: str


class Picture(NamedTuple):
    """The elements of a picture, and its caption."""

    columns: str  # what they are
    labels: tuple[tuple[float, str], ...]  # x, text
    gaps: tuple[float, ...]  # where neighbours in the picture are none in memory
    boxes: tuple[Box, ...]
    high: int
    says: str
    touched: tuple[tuple[float, float], ...] = ()  # corners of the sectors that a lane has something of
    wide: float = 0.0  # of a column


def picture(line: LineTraffic) -> Picture | None:
    """Returns the picture of a line's request; None where none was recorded."""
    if line.request is None or not any(at is not None for at in line.request.offsets):
        return None
    return _banks(line, line.request) if line.space == "shared" else _sectors(line.request)


def _banks(line: LineTraffic, request: WarpRequest) -> Picture:
    active = np.array([at is not None for at in request.offsets])
    addresses = np.array([at or 0 for at in request.offsets])
    served = turns(addresses, active, request.bytes, joins(request.op, line.kind, request.bytes))
    last = max(wavefront for _, _, wavefront in served)
    wide = (WIDE - SIDE) / BANKS
    boxes = tuple(
        Box(
            SIDE + word % BANKS * wide,
            HEAD + lane * HIGH,
            wide,
            wavefront / max(last, 1),
            f"lane {lane}: byte {word * WORD}, bank {word % BANKS}, wavefront {wavefront + 1}",
        )
        for lane, word, wavefront in served
    )
    banks, words = ({word % size for _, word, _ in served} for size in (BANKS, 1 << 62))
    says = (
        f"{count_of(int(active.sum()), 'lane')} ask {count_of(len(banks), 'bank')} for {count_of(len(words), 'word')} "
        f"of 4 bytes, which take{'s' * (len(words) == 1)} {count_of(last + 1, 'wavefront')}."
    )
    labels = tuple((SIDE + (bank + 0.5) * wide, str(bank)) for bank in range(0, BANKS, 4))
    return Picture("bank", labels, (), boxes, HEAD + WARP * HIGH, says)


def _sectors(request: WarpRequest) -> Picture:
    lanes = [(lane, at) for lane, at in enumerate(request.offsets) if at is not None]
    sectors = sorted({at // SECTOR for _, at in lanes})
    wide = (WIDE - SIDE) / max(len(sectors), 8)
    boxes = tuple(
        Box(
            SIDE + (sectors.index(at // SECTOR) + at % SECTOR / SECTOR) * wide,
            HEAD + lane * HIGH,
            max(request.bytes / SECTOR * wide, 2),
            0,
            f"lane {lane}: bytes {at} to {at + request.bytes - 1}, sector {at // SECTOR}",
        )
        for lane, at in lanes
    )
    used = len({at + byte for _, at in lanes for byte in range(request.bytes)})
    says = (
        f"{count_of(len(lanes), 'lane')} touch {count_of(len(sectors), 'sector')}, of whose {SECTOR * len(sectors)} "
        f"bytes they use {used}."
    )
    every = cdiv(len(sectors), 8)
    labels = tuple((SIDE + (at + 0.5) * wide, str(sectors[at])) for at in range(0, len(sectors), every))
    touched = tuple((SIDE + sectors.index(at // SECTOR) * wide, HEAD + lane * HIGH) for lane, at in lanes)
    gaps = tuple(SIDE + at * wide for at in range(1, len(sectors)) if sectors[at] != sectors[at - 1] + 1)
    return Picture("sector", labels, gaps, boxes, HEAD + WARP * HIGH, says, touched, wide)


# --- the map of sizes ---

FLAWED = "right, with a fault"
_KEY = (Outcome.RIGHT, FLAWED, Outcome.WRONG, Outcome.OUTSIDE, Outcome.STOPPED, Outcome.REFUSED)
# How an outcome is marked, for readers who do not tell its colour, in the order of the key.
GLYPHS: Mapping[str, str] = MappingProxyType(dict(zip(_KEY, "✓!✕⊘■–", strict=True)))


class Cell(NamedTuple):
    """One size: its label, how its run ended, and the same in words."""

    text: str
    outcome: str  # of GLYPHS
    title: str
    base: bool  # the whole sizes that the strips start from


class Strip(NamedTuple):
    label: str
    about: str
    cells: tuple[Cell, ...]
    along: bool = False  # along one of M, N and K


def strips(report: Report) -> list[Strip]:
    """Returns the map of all runs; strips start from the run that most others differ from in one size alone."""
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


def _differ(one: Run, other: Run) -> int:
    return sum(getattr(one, axis) != getattr(other, axis) for axis in AXES)


def _cells(report: Report, runs: Iterable[Run], base: Run, axis: str = "") -> tuple[Cell, ...]:
    flawed = {(size, "integers") for fault in report.faults for size in fault.sizes}  # the detectors see these alone
    cells = []
    for run in runs:
        outcome = FLAWED if run.right and (run.problem, run.inputs) in flawed else str(run.outcome)
        text = str(getattr(run, axis)) if axis else f"{run.m} × {run.n} × {run.k}"
        cells.append(Cell(text, outcome, f"{run.problem}: {outcome}", bool(axis) and run is base))
    return tuple(cells)


# --- the page ---


class Remark(NamedTuple):
    """A remark beside a line of the source, and the place of the page with the details."""

    kind: str  # fault or cost
    href: str  # empty where there are no details
    text: str


class Cost(NamedTuple):
    line: LineTraffic
    picture: Picture | None
    open: bool


def render(report: Report, text: str = "") -> str:
    """Returns the page; `text` is the kernel's file, which is left out where it could not be read."""
    path = Path(report.path)
    source = colour_source(text, path.suffix) if text else []
    costs = _costs(report.lines)
    return (
        make_page_templates(_FOLDER)
        .get_template("page.html.j2")
        .render(
            report=report,
            file=path.name,
            strips=strips(report),
            glyphs=GLYPHS,
            costs=costs,
            source=source,
            colour=lambda quote: colour_source(quote, path.suffix)[0],
            remarks=_remarks(report, path.name, costs),
            plain=without_instruction,
        )
    )


def _costs(lines: Sequence[LineTraffic]) -> list[Cost]:
    """Returns every access; of wasteful ones the first of each array and kind is open."""
    seen: set[tuple[str, str, str]] = set()
    found = []
    for line in lines:
        about = line.space, line.kind, line.array
        found.append(Cost(line, picture(line), line.is_wasteful and about not in seen))
        if line.is_wasteful:
            seen.add(about)
    return found


def _remarks(report: Report, file: str, costs: Sequence[Cost]) -> dict[int, list[Remark]]:
    remarks: dict[int, list[Remark]] = {}
    for number, text in re.findall(rf"{re.escape(file)}[(:](\d+)\)?: (.*)", report.refusal):
        remarks.setdefault(int(number), []).append(Remark("fault", "", text))
    for number, fault in enumerate(report.faults, 1):
        both = f", with line {fault.other_line}" if fault.other_line and fault.other_quote else ""
        if fault.quote and fault.file == file:
            remarks.setdefault(fault.line, []).append(Remark("fault", f"#fault-{number}", fault.kind + both))
    for number, cost in enumerate(costs, 1):
        line = cost.line
        if line.is_wasteful and line.quote and line.file == file:
            text = f"{line.name}: {line.cost}, ideal {line.ideal:.3g}"
            remarks.setdefault(line.line, []).append(Remark("cost", f"#access-{number}", text))
    return remarks
