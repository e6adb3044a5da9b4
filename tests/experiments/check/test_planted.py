"""Faults planted in sound kernels, each by a change of their text that kernels/planted.txt has, are reported.

One of each kind is planted in two files that are checked quickly; with --thorough, all are.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest

from experiments.check.report import Report, Word
from tests.experiments.check.helpers import check_file

KERNELS = Path(__file__).parent / "kernels"
OPTIONS = {
    "tile.cu": {"block": "16,16", "grid": "cdiv(N,64),cdiv(M,64)"},
    "ring.cu": {"block": "16,16", "grid": "cdiv(N,32),cdiv(M,32)"},
    "scaled.cu": {"block": "16,16", "grid": "cdiv(N,16),cdiv(M,16)"},
    "warp.cu": {"block": "128", "grid": "cdiv(M*N,4)"},
    "wmma.cu": {"block": "64", "grid": "cdiv(N,32),cdiv(M,16)"},
    "split.cu": {"block": "16,16", "grid": "cdiv(N,16),cdiv(M,16),2"},
    "triton_.py": {},
    "gluon_.py": {},
}
LIMITS = ("offsets", "finite C")  # kinds that are reported as limits


class Planted(NamedTuple):
    """A change of a kernel's text that makes it wrong: its first `old` becomes `new`; none where both are empty."""

    file: str  # in KERNELS
    kind: str = "none"  # of the mistake
    old: str = ""
    new: str = ""

    def __str__(self) -> str:
        return f"{self.file}-{self.kind}-{self.new[:20]}"

    def check(self, folder: Path) -> Report:
        """The report on the changed kernel."""
        path, text = folder / self.file, (KERNELS / self.file).read_text(encoding="utf-8")
        assert self.old in text and (self.old != self.new) == bool(self.old), self
        path.write_text(text.replace(self.old, self.new, 1), encoding="utf-8")
        return check_file(path, **OPTIONS[self.file])


def read_faults() -> list[Planted]:
    """Returns the faults of planted.txt: of each the file and the kind, the text, and what takes its place.

    A line of the text begins with -, and one of what takes its place with +.
    """
    faults = []
    for entry in (KERNELS / "planted.txt").read_text(encoding="utf-8").removesuffix("\n").split("\n\n"):
        head, *lines = entry.split("\n")
        old, new = ("\n".join(line[1:] for line in lines if line.startswith(sign)) for sign in "-+")
        faults.append(Planted(*head.split(": "), old, new))
    return faults


FAULTS = read_faults()
QUICK = {planted.kind: planted for planted in FAULTS if planted.file in ("warp.cu", "split.cu")}.values()


@pytest.mark.cases("planted", list(QUICK), FAULTS)
def test_a_planted_fault_is_reported(uncounted, tmp_path, planted):
    """As a limit where it is one, else as a fault, or as an unusual property."""
    report = planted.check(tmp_path)
    if planted.kind in LIMITS:
        assert report.limits
    else:
        assert report.word in (Word.FAULTY, Word.PARTIAL) or report.assumed, report.headline


@pytest.mark.cases("file", ["split.cu"], list(OPTIONS))
def test_without_it_the_kernel_is_sound(uncounted, tmp_path, file):
    report = Planted(file).check(tmp_path)
    assert report.sound and not report.limits and not report.assumed
