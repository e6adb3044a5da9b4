"""Where kernels can be run on this machine, and what a test asks for to run one."""

from __future__ import annotations

import functools
import gc
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from filelock import FileLock  # torch brings it along

import gemm_ref
from experiments.contenders import gemm_of

DEVICES = ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",)  # the reference GPU, and a real one


def pytest_collection_modifyitems(config, items):
    """Leave out what the reference GPU does not run: thousands of tests that only say so take half a minute."""
    left_out = [item for item in items if _reason_against(item)]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if not _reason_against(item)]


def _reason_against(item) -> str | None:
    chosen = item.callspec.params if hasattr(item, "callspec") else {}
    if chosen.get("device") != "cpu" or "implementation" not in chosen:
        return None
    return _left_out(chosen["implementation"], item.originalname)


def pytest_collection_finish():
    """What imports have brought stays: looking through it again and again for garbage takes a twelfth of the time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


_ALL = gemm_ref.implementations()

# On the reference GPU, whose time is short, and where each of Triton's kernels takes seconds to compile: what is as
# true of one variant or math mode of a rung as of the others is tried on the best variant of its first math mode.
_OF_SHARED_CODE = (
    "test_strided_operands_and_out",
    "test_lazily_negated_operands",
    "test_returns_a_new_tensor_like_torch",
    "test_every_edge_partial",
)
_OF_ONE_VARIANT = (
    "test_arithmetic_is_that_of_the_math_mode",
    "test_nothing_to_sum_gives_zeros",
    "test_nan_and_inf_spread_as_they_should",
    "test_misaligned_operands",
    "test_no_rung_has_a_fault",
)
_FP8_TWINS = gemm_ref.stages_in("fp8")[0]
_OF_EVERY_MATH = ("test_b_by_columns", "test_scales_of_fp8")


@pytest.fixture(params=_ALL, ids=str, scope="session")  # so that all tests of a kernel come one after the other
def implementation(request) -> gemm_ref.Implementation:
    """Every kernel of the registry."""
    return request.param


@pytest.fixture(params=DEVICES)
def device(request) -> str:
    """The reference GPU (`cpu`), and the real one where there is one."""
    return request.param


@functools.cache
def _left_out(item: gemm_ref.Implementation, test: str) -> str | None:
    """Why the reference GPU does not run this kernel in this test, or None if it does."""
    best = item.variant == item.stage.find_variant("default", item.dialect)
    first = item.math == item.stage.maths[0]
    if item.math == "fp16" and (item.backend == "triton" or test != "test_edges_bit_exact" or not best):
        return "bf16 stands for both 16-bit modes, but for CUDA's best variants in one test"
    twin = _first_with_its_program(item)
    if twin != item:
        return f"{twin} stands for it: they differ in the cap on registers, and there is none here"
    if test == "test_scales_of_fp8" and item.backend == "triton" and item.stage is not _FP8_TWINS:
        return "one rung stands for Triton's scales, which come from one function"
    if test == "test_nothing_to_sum_gives_zeros" and item.backend == "triton" and item.math == "fp32":
        return "Triton's loop of no trips is tried on tensor cores, whose pipelines it must leave empty"
    if test in _OF_SHARED_CODE and not (best and first):
        return "what all kernels share is tried on the best variant of a rung in its first math mode"
    if test in _OF_ONE_VARIANT and not best:
        return "a rung's best variant in each math mode stands for the others, which differ in tile or layout alone"
    if item.backend == "triton" and not (best and (first or test in _OF_EVERY_MATH)):
        return "a twin's best variant in its first math mode stands for all in most tests: `make experiments` runs all"
    return None


def _first_with_its_program(item: gemm_ref.Implementation) -> gemm_ref.Implementation:
    def program(other: gemm_ref.Implementation) -> tuple:
        return other.stage, other.dialect, other.math, replace(other.config, BLOCKS_PER_SM=None)

    return next(other for other in _ALL if program(other) == program(item))


@pytest.fixture
def gemm(implementation):
    """`gemm(a, b, out=None)` of one kernel."""
    return gemm_of(implementation)


_REPORTED = ("ladder", "tensor_cores", "correctness", "memory", "instructions")


@pytest.fixture(scope="session")
def published_data(tmp_path_factory) -> Path:
    """What is published of some experiments: the plots of all would take half a minute."""
    from experiments import results

    folder = tmp_path_factory.mktemp("data")
    for name in (*(f"{name}.csv" for name in _REPORTED), "environment.json"):
        shutil.copy(results.PUBLISHED / name, folder)
    return folder


@pytest.fixture(scope="session")
def published_report(tmp_path_factory, published_data) -> Path:
    """The HTML report of the published data, made once for all processes of a run."""
    from experiments import report  # with it come pandas and seaborn

    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent  # of all of them
    path = folder / "published" / "report.html"
    with FileLock(folder / "published.lock"):
        return path if path.exists() else report.make(published_data, path)
