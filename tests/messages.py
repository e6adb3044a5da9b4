"""Files of what is told: entries of one line, or blocks, and below each what is told of it, which a test compares.

`Messages` are such a file of what is refused, by area, each with its error's whole text. An area begins with #, and a
line of Python without an error prepares what the calls use. A test's `main` writes what is told again, which a reader
then compares.
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
    """A title, which begins with #, lines of text, and what is told of it, of which each line begins with >."""

    title: str
    lines: list[str]
    expected: list[str]


def read_blocks(file: Path) -> list[Block]:
    """Returns the blocks of a file, which empty lines part."""
    found = []
    for text in file.read_text(encoding="utf-8").rstrip("\n").split("\n\n"):
        title, *lines = text.splitlines()
        told = [line[2:] for line in lines if line.startswith("> ")]
        found.append(Block(title.removeprefix("# "), lines[: len(lines) - len(told)], told))
    return found


def write_blocks(file: Path, report: Callable[[Block], list[str]]) -> None:
    """Writes the file again, with what is told of each block today."""
    texts = ["\n".join([f"# {x.title}", *x.lines, *(f"> {line}" for line in report(x))]) for x in read_blocks(file)]
    file.write_text("\n\n".join(texts) + "\n", encoding="utf-8")


def read_reports(file: Path) -> dict[str, list[str]]:
    """Returns the lines of what is told by the line of its entry: they begin with a space, and an entry does not."""
    found: dict[str, list[str]] = {}
    for line in file.read_text(encoding="utf-8").splitlines():
        if line.startswith(" "):
            found[list(found)[-1]].append(line.strip())
        else:
            found[line] = []
    return found


def write_reports(file: Path, report: Callable[[str], list[str]]) -> None:
    """Writes the file again, with what is told of each entry today."""
    lines = [line for entry in read_reports(file) for line in (entry, *(f"    {told}" for told in report(entry)))]
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")


ERRORS = (PtxError, ValueError, RuntimeError, AssertionError)


class Messages:
    """The entries of a file.

    functions: what a call may use beside the names that the file prepares. areas: what runs the text of an entry, by
    its area; in others it is a call in Python.
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
        """Returns the error in one line, without virtual addresses and what Python says of operands."""
        with pytest.raises(ERRORS) as caught:
            self._areas[area](text) if area in self._areas else eval(text, self._names)
        found = re.sub(r"0x[1-9a-f][0-9a-f]{5,}", "0x...", str(caught.value).replace("\n", " | "))
        found = re.sub(r"(operands not understood) \(.*\)", r"\1", found)
        found = re.sub(r"(features.cu:\d+: [a-z.\d]+) [^:]*:", r"\1:", found)  # the registers are nvcc's
        return f"{type(caught.value).__name__}: {found}"

    def main(self) -> None:
        """Writes the file again, with the errors of today."""
        errors = iter([self.error_of(area, text) for area, text, _ in self.entries()])
        self._file.write_text(re.sub(r"(?m)^ .*$", lambda _: f"    {next(errors)}", self._read()), encoding="utf-8")

    @functools.cached_property
    def _names(self) -> dict[str, object]:
        names = dict(self._functions)
        exec("\n".join(re.findall(r"(?m)^[^# \n].*$(?!\n )", self._read())), names)
        return names

    def _read(self) -> str:
        return self._file.read_text(encoding="utf-8")
