"""The kernels' files as the page shows them: in colour, and the five fields of a .cu's header apart."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from markupsafe import Markup

from experiments.publish.pages.coloured import TimedFile, colour_source, mark_lines
from experiments.records.source_lines import kernel_file
from gemm_ref import DIALECTS, Rung
from gemm_ref.dialect import BY_HAND, Dialect

NO_TIMES: Mapping[tuple[str, str], TimedFile] = MappingProxyType({})
_ROOT = Path(__file__).resolve().parents[3]
_FIELD = re.compile(r"// (Idea|Changed|Tile/threads|Cost|Requires): +(.*)")
_TEXT_COLUMN = 17  # where the text of a field begins; what is indented further is a list


@dataclass(frozen=True)
class Source:
    """One file of a rung; `html` has a <span class=l> a line."""

    dialect: str
    label: str
    path: str  # within the repo
    html: Markup
    kernel: Source | None = None  # the file that it imports its kernel from
    says: str = ""  # of the predicted time of the kernel that it defines


def read_sources(stage: Rung, times: Mapping[tuple[str, str], TimedFile] = NO_TIMES) -> list[Source]:
    """The files of a rung, in the order of its dialects; times: of default kernels, by rung and dialect."""
    found = []
    for name in stage.dialects:
        files = DIALECTS[name].file_of(stage.id), kernel_file(stage.id, name)
        found.append(_read_source(DIALECTS[name], *files, times.get((stage.id, name))))
    return found


def _read_source(dialect: Dialect, file: str, kernel: str, time: TimedFile | None) -> Source:
    path = _ROOT / file
    imported = None if kernel == file else _read_source(dialect, kernel, kernel, time)
    own = None if imported else time
    html = mark_lines(_colour(path.read_text(encoding="utf-8"), path.suffix), own)
    return Source(dialect.name, dialect.title, file, html, imported, own.says if own else "")


@functools.cache
def _colour(text: str, suffix: str) -> list[Markup]:
    return colour_source(text, suffix)


def read_header(stage: Rung) -> dict[str, str]:
    """The five fields that open a rung's file by hand: Idea, Changed, Tile/threads, Cost, Requires."""
    fields: dict[str, str] = {}
    name = ""
    for line in (_ROOT / DIALECTS[BY_HAND].file_of(stage.id)).read_text(encoding="utf-8").splitlines():
        if not line.startswith("//"):
            break
        if match := _FIELD.match(line):
            name, fields[match[1]] = match[1], match[2]
        elif name:
            text = line.removeprefix("//").strip()
            is_item = line.index(text) > _TEXT_COLUMN
            fields[name] += ("\n" if is_item else " ") + text
    return fields
