"""Libraries of CUDA, a kernel per feature in features.cu that checks itself."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from gemm_ref import ptx
from gemm_ref.launch import Launch
from tests.ptx.harness import compiled

SOURCE = Path(__file__).with_name("features.cu")
NAMES = re.findall(r"^FEATURE\((\w+)\)", SOURCE.read_text(encoding="utf-8"), re.M)
LANES = 64
NUMBERS = torch.tensor([0.5, 2, 3, -1.25, 0.75, 100, 1e-3, 7])
WHOLE = torch.tensor([3, -5, 1000, 0x12345678, 40, 7, 0, 1], dtype=torch.int32)


def text() -> str:
    return compiled(SOURCE)


@pytest.mark.parametrize("name", NAMES)
def test_a_feature_works(name):
    """Each thread says so itself; only the memory that a kernel may use may stay unwritten."""
    ok, memory = torch.zeros(LANES, dtype=torch.int32), torch.zeros(64, dtype=torch.float64)
    launch = Launch((3 if name == "grid" else 1, 1, 1), (LANES, 1, 1))
    arguments = [ok, NUMBERS.clone(), WHOLE.clone(), memory]
    ptx.run(ptx.load(text(), name), launch, arguments, observers=[detectors := ptx.Detectors()])
    assert ok.tolist() == [1] * LANES
    if name in ("count", "group_copy"):
        assert {finding.kind for finding in detectors.findings} <= {"never written"}
