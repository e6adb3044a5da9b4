"""The report as one HTML page: no network, no script, and nothing of the user's file that is not escaped."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from experiments.check.faults import without_instruction
from experiments.check.page.pictures import GLYPHS, Picture, picture, strips
from experiments.check.report import LineTraffic, Report
from experiments.publish.pages import make_page_templates
from experiments.publish.pages.coloured import colour_source

_FOLDER = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Remark:
    """A remark beside a line of the source, and the place of the page with the details."""

    kind: str  # fault or cost
    href: str  # empty where there are no details
    text: str


@dataclass(frozen=True)
class Cost:
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
