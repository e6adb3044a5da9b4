"""Libraries of CUDA, a kernel per feature in features.cu that checks itself."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from gemm_ref import ptx
from gemm_ref.launch import Launch
from tests.ptx.harness import compiled, covers

SOURCE = Path(__file__).with_name("features.cu")
NAMES = re.findall(r"^FEATURE\((\w+)\)", SOURCE.read_text(encoding="utf-8"), re.M)
LANES = 64
NUMBERS = torch.tensor([0.5, 2, 3, -1.25, 0.75, 100, 1e-3, 7])
WHOLE = torch.tensor([3, -5, 1000, 0x12345678, 40, 7, 0, 1], dtype=torch.int32)


def text() -> str:
    return compiled(SOURCE)


@covers("match", "movmatrix", "isspacep")
@pytest.mark.parametrize("name", NAMES)
def test_a_feature_works(name):
    assert run(name) == [1] * LANES


def run(name: str, observers: Sequence[ptx.Observer] = (), module: str = "") -> list[int]:
    """What its threads say of themselves."""
    ok, memory = torch.zeros(LANES, dtype=torch.int32), torch.zeros(64, dtype=torch.float64)
    launch = Launch((3 if name == "grid" else 1, 1, 1), (LANES, 1, 1))
    kernel = ptx.load(module or text(), name)
    ptx.run(kernel, launch, [ok, NUMBERS.clone(), WHOLE.clone(), memory], observers=observers)
    return ok.tolist()


@pytest.mark.parametrize("name", ["copies_arrive", "copies_arrive_noinc", "count", "ignored_source"])
def test_detectors_find_nothing_where_copies_are_waited_for(name):
    detectors = ptx.Detectors()
    run(name, [detectors])
    assert {finding.kind for finding in detectors.findings} <= {"never written"}  # of the memory that it may use


def test_a_copy_that_nobody_waited_for_has_not_landed():
    early = re.sub(r"mbarrier.try_wait.parity.shared.b64 (\S+), \[[^]]*\], 0", r"setp.eq.u32 \1, 0, 0", text())
    assert early != text()
    detectors = ptx.Detectors()
    ok = run("copies_arrive_noinc", [detectors], early)
    assert 1 not in ok and "async copy read before its wait" in {finding.kind for finding in detectors.findings}
