"""Where kernels can be run on this machine, and what a test asks for to run one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

import gemm_ref
from experiments import report, results
from experiments.contenders import gemm_of

DEVICES = [
    "cpu",
    pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")),
]


_ALL = gemm_ref.implementations()
_TWINS_IN_EVERY_MATH = ("test_b_by_columns", "test_scales_of_fp8")


@pytest.fixture(params=_ALL, ids=str)
def implementation(request) -> gemm_ref.Implementation:
    """Every kernel of the registry."""
    return request.param


@pytest.fixture(params=DEVICES)
def device(request) -> str:
    """The reference GPU (`cpu`), and the real one where there is one."""
    if request.param == "cpu" and "implementation" in request.fixturenames:
        item = request.getfixturevalue("implementation")
        if item.math == "fp16" and (item.backend == "triton" or request.node.originalname != "test_edges_bit_exact"):
            pytest.skip("on the reference GPU bf16 stands for both 16-bit modes, but for CUDA in one test")
        if item.backend == "triton" and item.math != "fp32":  # each of its kernels takes seconds to compile
            best = item.stage.find_variant("default", item.dialect)
            other_math = item.math != item.stage.maths[0] and request.node.originalname not in _TWINS_IN_EVERY_MATH
            if item.variant != best or other_math:
                pytest.skip(
                    "on the reference GPU a tensor-core twin's best variant in bf16 stands for all in most tests"
                )
        twin = _first_with_its_program(item)
        if twin is not item:
            pytest.skip(
                f"its PTX is that of {twin}: it differs in the cap on registers, and the reference GPU has none"
            )
    return request.param


def _first_with_its_program(item: gemm_ref.Implementation) -> gemm_ref.Implementation:
    def program(other: gemm_ref.Implementation) -> tuple:
        return other.stage, other.dialect, other.math, replace(other.config, BLOCKS_PER_SM=None)

    return next(other for other in _ALL if program(other) == program(item))


@pytest.fixture
def gemm(implementation):
    """`gemm(a, b, out=None)` of one kernel."""
    return gemm_of(implementation)


@pytest.fixture(scope="session")
def published_report(tmp_path_factory) -> Path:
    """The HTML report of the published data."""
    return report.make(results.PUBLISHED, tmp_path_factory.mktemp("published") / "report.html")
