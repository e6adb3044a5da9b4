"""Which line of which source file an instruction comes from: `.file` and `.loc` (PTX ISA, 11.5)."""

from __future__ import annotations

import re
from typing import NamedTuple

_FILE = re.compile(r'^\s*\.file\s+(\d+)\s+"([^"]*)"', re.M)
# Where the packages of a Python and CUDA's headers lie: whoever wrote the kernel did not write these.
_LIBRARY = re.compile(r"/(site|dist)-packages/|/cuda(-[\d.]+)?/(.*/)?include/|/targets/[^/]+/include/")
_LOC = re.compile(r"\.loc\s+(\d+)\s+(\d+)\s+(\d+)(?:[^\n]*inlined_at\s+(\d+)\s+(\d+)\s+(\d+))?[^\n]*")


class _Loc(NamedTuple):
    """What a `.loc` names; the file is a number of a `.file`."""

    file: int
    line: int
    column: int


class Places:
    """The place of a kernel's current instruction, while its text is read from the first line to the last.

    What a library's function does has the place of the call in the code of whoever uses the library.
    """

    def __init__(self, module: str) -> None:
        """module: all of the PTX text, since `.file` lines may stand after the code that names them."""
        paths = {int(number): path for number, path in _FILE.findall(module)}
        self._files = {number: path.rsplit("/", 1)[-1] for number, path in paths.items()}
        self._libraries = {number for number, path in paths.items() if _LIBRARY.search(path)}
        self._into: dict[_Loc, list[_Loc]] = {}  # where the function of a place was inlined, the last time last
        self.file, self.line = "", 0
        self.callers: tuple[str, ...] = ()  # `file:line` into which that function was inlined, then that one's, ...

    def read(self, text: str, position: int) -> int | None:
        """The end of the `.loc` that begins at `position`; None where none does."""
        found = _LOC.match(text, position)
        if found is None:
            return None
        numbers = [int(number or 0) for number in found.groups()]
        here, into = _Loc(*numbers[:3]), _Loc(*numbers[3:])
        if here.line:  # line 0 marks code that the compiler made itself: it keeps the place it was made for
            if into.line:  # nvcc leaves it out at times where it has said so before
                self._into.setdefault(here, []).append(into)
            chain = [here, *self._chain(here)]
            own = next((index for index, loc in enumerate(chain) if loc.file not in self._libraries), 0)
            self.file, self.line = self._name(chain[own]), chain[own].line
            self.callers = tuple(f"{self._name(loc)}:{loc.line}" for loc in chain[own + 1 :])
        return found.end()

    def _chain(self, place: _Loc) -> list[_Loc]:
        """The places into which `place` was inlined, the nearest first: of each the latest `.loc` says where.

        A function that is inlined into itself has places that are inlined at one of them; each is named once.
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
