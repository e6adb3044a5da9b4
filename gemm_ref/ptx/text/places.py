"""The source line of an instruction, from `.file` and `.loc` (PTX ISA, 11.5)."""

from __future__ import annotations

import re
from typing import NamedTuple

_FILE = re.compile(r'^\s*\.file\s+(\d+)\s+"([^"]*)"', re.M)
# Files of Python packages and of CUDA's headers, which the author of the kernel did not write.
_LIBRARY = re.compile(r"/(site|dist)-packages/|/cuda(-[\d.]+)?/(.*/)?include/|/targets/[^/]+/include/")
_LOC = re.compile(r"\.loc\s+(\d+)\s+(\d+)\s+(\d+)(?:[^\n]*inlined_at\s+(\d+)\s+(\d+)\s+(\d+))?[^\n]*")


class _Loc(NamedTuple):
    """The arguments of a `.loc`; the file is the number of a `.file`."""

    file: int
    line: int
    column: int


class Places:
    """The place of the current instruction, while the text of a kernel is parsed from the first line to the last.

    An instruction of a library's function gets the place of the call in the user's code.
    """

    def __init__(self, module: str) -> None:
        """module: all of the PTX text, since `.file` lines may follow the code that refers to them."""
        paths = {int(number): path for number, path in _FILE.findall(module)}
        self._files = {number: path.rsplit("/", 1)[-1] for number, path in paths.items()}
        self._libraries = {number for number, path in paths.items() if _LIBRARY.search(path)}
        self._into: dict[_Loc, list[_Loc]] = {}  # the calls that were inlined at a place, the latest last
        self._known: dict[str, tuple | None] = {}  # what each `.loc` says, until `_into` changes
        self.file, self.line = "", 0
        self.callers: tuple[str, ...] = ()  # `file:line` of the inlined call, then of that one's caller, ...

    def read(self, text: str, position: int) -> int | None:
        """Read the `.loc` that begins at `position`, and return its end; None if none begins there."""
        found = _LOC.match(text, position)
        if found is None:
            return None
        if found[0] not in self._known:
            self._known[found[0]] = self._place_of(*(int(number or 0) for number in found.groups()))
        if place := self._known[found[0]]:
            self.file, self.line, self.callers = place
        return found.end()

    def _place_of(self, *numbers: int) -> tuple[str, int, tuple[str, ...]] | None:
        """Return the file, line and callers that a `.loc` with these numbers names; None to keep the current ones."""
        here, into = _Loc(*numbers[:3]), _Loc(*numbers[3:])
        if not here.line:  # code of the compiler itself
            return None
        before = self._into.setdefault(here, [])
        if into.line and before[-1:] != [into]:  # nvcc sometimes omits it for a place that had it before
            before.append(into)
            self._known.clear()
        chain = [here, *self._chain(here)]
        own = next((index for index, loc in enumerate(chain) if loc.file not in self._libraries), 0)
        callers = tuple(f"{self._name(loc)}:{loc.line}" for loc in chain[own + 1 :])
        return self._name(chain[own]), chain[own].line, callers

    def _chain(self, place: _Loc) -> list[_Loc]:
        """Return the places into which `place` was inlined, the innermost first, by the latest `.loc` of each.

        A function that is inlined into itself has places that are inlined at one of them; each is listed once.
        """
        chain: list[_Loc] = []
        following: _Loc | None = place
        while following is not None:
            candidates = reversed(self._into.get(following, ()))
            following = next((loc for loc in candidates if loc not in chain), None)
            if following is not None:
                chain.append(following)
        return chain

    def _name(self, loc: _Loc) -> str:
        return self._files.get(loc.file, "?")
