"""A fault of each kind that is planted in a sound kernel is told, and the kernel without it is sound.

`planted` plants all of them.
"""

from __future__ import annotations

import pytest

from tests.experiments.check.planted import FAULTS, KERNELS, OPTIONS, checked

# One of each kind, from two files that are checked quickly.
QUICK = {each.kind: each for each in FAULTS if each.file in ("warp.cu", "split.cu")}.values()


pytestmark = pytest.mark.usefixtures("uncounted")


@pytest.mark.parametrize("planted", QUICK, ids=lambda planted: f"{planted.file}-{planted.kind}")
def test_a_planted_fault_is_told(planted):
    assert planted.is_reported(checked(planted.file, planted.old, planted.new))


def test_without_it_the_kernel_is_sound():
    report = checked("split.cu")
    assert report.sound and not report.limits


def test_faults_of_twelve_kinds_are_planted():
    assert len(FAULTS) >= 60 and len({planted.kind for planted in FAULTS}) >= 12
    assert (
        {planted.file for planted in FAULTS}
        == set(OPTIONS)
        == {path.name for path in KERNELS.glob("*_.py")} | {path.name for path in KERNELS.glob("*.cu")}
    )
    for file, _, old, new in FAULTS:
        assert old != new and old in (KERNELS / file).read_text(encoding="utf-8"), (file, old)
