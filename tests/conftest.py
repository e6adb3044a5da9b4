"""Where kernels can be run on this machine, and what a test asks for to run one."""

from __future__ import annotations

import functools
import gc
import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from filelock import FileLock  # torch brings it along

import gemm_ref
from experiments.records.contenders import gemm_of

DEVICES = ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",)  # the reference GPU, and a real one


def pytest_collection_modifyitems(config, items):
    """Leave out what the reference GPU does not run: thousands of tests that only say so take half a minute."""
    kept, left_out = [], []
    for item in items:
        (left_out if _is_left_out(item) else kept).append(item)
    config.hook.pytest_deselected(items=left_out)
    items[:] = kept


def _is_left_out(item) -> bool:
    chosen = item.callspec.params if hasattr(item, "callspec") else {}
    on_cpu = chosen.get("device") == "cpu" and "implementation" in chosen
    return on_cpu and not _runs_on_reference_gpu(chosen["implementation"], item.originalname)


def pytest_collection_finish():
    """What imports have brought stays, so it is not looked through again and again for garbage."""
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


def pytest_sessionfinish():
    """pytest collects garbage five times at its end: seconds, if all that the tests have left is looked through."""
    gc.freeze()


_ALL = gemm_ref.implementations()

# On the reference GPU, whose time is short, and where each of Triton's kernels takes seconds to compile, these are
# tried on a rung's best variant alone: in its first math mode, or in each. On a GPU every kernel runs in every test.
_IN_ONE_MODE = (
    "test_strided_operands_and_out",
    "test_lazily_negated_operands",
    "test_returns_a_new_tensor_like_torch",
    "test_every_edge_partial",
)
_IN_EACH_MODE = (
    "test_arithmetic_is_that_of_the_math_mode",
    "test_nothing_to_sum_gives_zeros",
    "test_nan_and_inf_spread_as_they_should",
    "test_misaligned_operands",
    "test_no_rung_has_a_fault",
)
_TWINS_IN_OTHER_MODES = ("test_b_by_columns", "test_scales_of_fp8")  # so that a twin reads B by rows and by columns
_FP8_TWINS = gemm_ref.stages_in("fp8")[0]


@pytest.fixture(params=_ALL, ids=str, scope="session")  # so that all tests of a kernel come one after the other
def implementation(request) -> gemm_ref.Implementation:
    """Every kernel of the registry."""
    return request.param


@pytest.fixture(params=DEVICES)
def device(request) -> str:
    """The reference GPU (`cpu`), and the real one where there is one."""
    return request.param


def _runs_on_reference_gpu(item: gemm_ref.Implementation, test: str) -> bool:
    # A variant is another shape and a math mode another element: not every pair of them is tried.
    best = item.variant == item.stage.find_variant("default", item.dialect)
    first, twin = item.math == item.stage.maths[0], item.backend == "triton"
    if _first_with_its_program(item) != item:  # they differ in the cap on registers, and there is none here
        return False
    if item.math == "fp16":  # bf16 stands for both 16-bit modes, but for CUDA in one test
        return best and not twin and test == "test_edges_bit_exact"
    if (test in _IN_EACH_MODE and not best) or (test in _IN_ONE_MODE and not (best and first)):
        return False
    if not twin:
        return best or first
    if test == "test_misaligned_operands":  # a twin would be compiled for this test alone
        return False
    if test == "test_scales_of_fp8" and item.stage is not _FP8_TWINS:  # one function has Triton's scales
        return False
    if test == "test_nothing_to_sum_gives_zeros" and item.math == "fp32":  # tensor cores have the pipelines to empty
        return False
    return best and first != (test in _TWINS_IN_OTHER_MODES)


@functools.cache
def _first_with_its_program(item: gemm_ref.Implementation) -> gemm_ref.Implementation:
    def program(other: gemm_ref.Implementation) -> tuple:
        return other.stage, other.dialect, other.math, replace(other.config, BLOCKS_PER_SM=None)

    return next(other for other in _ALL if program(other) == program(item))


@pytest.fixture
def gemm(implementation):
    """`gemm(a, b, out=None)` of one kernel."""
    return gemm_of(implementation)


@pytest.fixture
def svg_alone() -> Iterator[None]:
    """Plots are drawn without a PNG, for tests of what the SVG says."""
    from experiments.plots import style

    with style.svg_alone():
        yield


_REPORTED = ("ladder", "correctness")


@pytest.fixture(scope="session")
def published_data(tmp_path_factory) -> Path:
    """What is published of some experiments: the plots of all would take half a minute."""
    from experiments.records import store

    folder = tmp_path_factory.mktemp("data")
    for name in (*(f"{name}.csv" for name in _REPORTED), "environment.json"):
        shutil.copy(store.PUBLISHED / name, folder)
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
