"""Snapshots in text files: each entry stands above what the code reports of it, and a test compares the two.

An entry is one line, or a block of lines below a title. `Messages` is a file of calls that are refused, each above the
complete text of its error, in areas that begin with #; a line of Python without an error prepares names for the calls.
The test module of a file, run as a program, writes today's reports into it: read the difference before you commit it.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from gemm_ref.ptx import PtxError


class Block(NamedTuple):
    """A title behind #, lines of text, and the lines that are reported of them, each behind >."""

    title: str
    lines: list[str]
    expected: list[str]


def read_blocks(file: Path) -> list[Block]:
    """Returns the blocks of a file, which empty lines separate."""
    found = []
    for text in file.read_text(encoding="utf-8").rstrip("\n").split("\n\n"):
        title, *lines = text.splitlines()
        expected = [line[2:] for line in lines if line.startswith("> ")]
        found.append(Block(title.removeprefix("# "), lines[: len(lines) - len(expected)], expected))
    return found


def write_blocks(file: Path, report: Callable[[Block], list[str]]) -> None:
    """Rewrites the file with what `report` returns for each block."""
    texts = ["\n".join([f"# {x.title}", *x.lines, *(f"> {line}" for line in report(x))]) for x in read_blocks(file)]
    file.write_text("\n\n".join(texts) + "\n", encoding="utf-8")


def read_reports(file: Path) -> dict[str, list[str]]:
    """Returns the reported lines by their entry; they are indented, and an entry is not."""
    found: dict[str, list[str]] = {}
    for line in file.read_text(encoding="utf-8").splitlines():
        if line.startswith(" "):
            found[list(found)[-1]].append(line.strip())
        else:
            found[line] = []
    return found


def write_reports(file: Path, report: Callable[[str], list[str]]) -> None:
    """Rewrites the file with what `report` returns for each entry."""
    lines = [
        line for entry in read_reports(file) for line in (entry, *(f"    {reported}" for reported in report(entry)))
    ]
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")


ERRORS = (PtxError, ValueError, RuntimeError, AssertionError)


class Messages:
    """The entries of a file.

    functions: names that calls use in addition to those that the file prepares. areas: by the name of an area, the
    function that runs the text of an entry; the entries of other areas are calls in Python.
    """

    def __init__(
        self, file: Path, functions: Mapping[str, Callable], areas: Mapping[str, Callable[[str], object]] | None = None
    ) -> None:
        self._file, self._functions, self._areas = file, functions, areas or {}

    def entries(self) -> Iterator[tuple[str, str, str]]:
        """Yields the area, the text and the error of each entry."""
        area, lines = "", self._read().splitlines()
        for line, below in zip(lines, [*lines[1:], ""], strict=True):
            if line.startswith("# "):
                area = line[2:]
            elif below.startswith(" "):
                yield area, line, below.strip()

    def error_of(self, area: str, text: str) -> str:
        """Returns the error of an entry as one line, without virtual addresses and without Python's own messages."""
        with pytest.raises(ERRORS) as caught:
            self._areas[area](text) if area in self._areas else eval(text, self._names)
        found = re.sub(r"0x[1-9a-f][0-9a-f]{5,}", "0x...", str(caught.value).replace("\n", " | "))
        found = re.sub(r"(operands not understood) \(.*\)", r"\1", found)
        found = re.sub(r"(features.cu:\d+: [a-z.\d]+) [^:]*:", r"\1:", found)  # the registers are nvcc's
        return f"{type(caught.value).__name__}: {found}"

    def main(self) -> None:
        """Rewrites the file with today's errors."""
        errors = iter([self.error_of(area, text) for area, text, _ in self.entries()])
        self._file.write_text(re.sub(r"(?m)^ .*$", lambda _: f"    {next(errors)}", self._read()), encoding="utf-8")

    @functools.cached_property
    def _names(self) -> dict[str, object]:
        names = dict(self._functions)
        exec("\n".join(re.findall(r"(?m)^[^# \n].*$(?!\n )", self._read())), names)
        return names

    def _read(self) -> str:
        return self._file.read_text(encoding="utf-8")
