"""Where kernels can be run on this machine, and what a test asks for to run one."""

from __future__ import annotations

import pytest
import torch

import gemm_ref
from experiments.contenders import gemm_of

DEVICES = [
    "cpu",
    pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")),
]


@pytest.fixture(params=gemm_ref.implementations(), ids=str)
def implementation(request) -> gemm_ref.Implementation:
    """Every kernel of the registry."""
    return request.param


@pytest.fixture(params=DEVICES)
def device(request) -> str:
    """The reference GPU (`cpu`), and the real one where there is one."""
    return request.param


@pytest.fixture
def gemm(implementation):
    """`gemm(a, b, out=None)` of one kernel."""
    return gemm_of(implementation)
