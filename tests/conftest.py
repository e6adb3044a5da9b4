"""Where kernels can be run on this machine, and what a test asks for to run one."""

from __future__ import annotations

import functools
import gc
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from filelock import FileLock  # torch brings it along

import gemm_ref
from experiments.records.contenders import gemm_of
from gemm_ref.build import share_cache_with_triton

DEVICES = ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",)  # the reference GPU, and a real one


def pytest_configure(config):
    share_cache_with_triton()
    config.addinivalue_line(
        "markers",
        "reference_gpu(cuda, twins): the kernels with which a test runs on the reference GPU, whose time is short, and "
        "where each of Triton's kernels takes seconds to compile: of those in CUDA, and of the twins in Triton and "
        f"Gluon. Each is a sum, as in 'best + other maths', of {', '.join(SHARES)}. On a GPU every kernel runs.",
    )


def pytest_collection_modifyitems(config, items):
    """Leave out what the reference GPU does not run: thousands of tests that only say so take half a minute."""
    kept, left_out = [], []
    for item in items:
        (kept if _is_chosen(item) else left_out).append(item)
    config.hook.pytest_deselected(items=left_out)
    items[:] = kept


def _is_chosen(item) -> bool:
    chosen = item.callspec.params if hasattr(item, "callspec") else {}
    if chosen.get("device") != "cpu" or "implementation" not in chosen:
        return True
    marker = item.get_closest_marker("reference_gpu")
    if marker is None:
        raise pytest.UsageError(f"{item.nodeid}: which kernels run without a GPU? @pytest.mark.reference_gpu says it")
    kernel = chosen["implementation"]
    return _first_with_its_program(kernel) == kernel and is_in(kernel, **marker.kwargs)


def pytest_collection_finish():
    """What imports have brought stays, so it is not looked through again and again for garbage."""
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


def pytest_sessionfinish():
    """pytest collects garbage five times at its end: seconds, if all that the tests have left is looked through."""
    gc.freeze()


_ALL = gemm_ref.implementations()


def _is_best(kernel: gemm_ref.Implementation) -> bool:
    return kernel.variant == kernel.stage.find_variant("default", kernel.dialect)


def _is_in_first_math(kernel: gemm_ref.Implementation) -> bool:
    return kernel.math == kernel.stage.maths[0]


# A variant is another shape and a math mode another element: not every pair of them is tried. bf16 stands for both
# 16-bit modes, so fp16 is a share of its own.
SHARES = {
    "best": lambda kernel: _is_best(kernel) and _is_in_first_math(kernel),
    "best in tensor cores": lambda kernel: SHARES["best"](kernel) and kernel.math != "fp32",
    "other variants": lambda kernel: not _is_best(kernel) and _is_in_first_math(kernel),
    "other maths": lambda kernel: _is_best(kernel) and not _is_in_first_math(kernel) and kernel.math != "fp16",
    "fp16": lambda kernel: _is_best(kernel) and kernel.math == "fp16",
    "fp8": lambda kernel: _is_best(kernel) and kernel.math == "fp8",
    "first in fp8": lambda kernel: SHARES["fp8"](kernel) and kernel.stage is gemm_ref.stages_in("fp8")[0],
    "none": lambda kernel: False,
}


def is_in(kernel: gemm_ref.Implementation, *, cuda: str, twins: str) -> bool:
    """Whether a kernel is in the shares that a `reference_gpu` marker names, as in "best + other maths"."""
    named = (cuda if kernel.backend == "cuda" else twins).split(" + ")
    return any(SHARES[share](kernel) for share in named)


@pytest.fixture(params=_ALL, ids=str, scope="session")  # so that all tests of a kernel come one after the other
def implementation(request) -> gemm_ref.Implementation:
    """Every kernel of the registry."""
    return request.param


@pytest.fixture(params=DEVICES)
def device(request) -> str:
    """The reference GPU (`cpu`), and the real one where there is one."""
    return request.param


@functools.cache
def _first_with_its_program(item: gemm_ref.Implementation) -> gemm_ref.Implementation:
    def program(other: gemm_ref.Implementation) -> tuple:
        constants = {name: x for name, x in other.config.constants().items() if name != "BLOCKS_PER_SM"}
        return other.stage, other.dialect, other.math, constants

    return next(other for other in _ALL if program(other) == program(item))


@pytest.fixture
def gemm(implementation):
    """`gemm(a, b, out=None)` of one kernel."""
    return gemm_of(implementation)


@pytest.fixture
def svg_alone() -> Iterator[None]:
    """Plots are drawn without a PNG, for tests of what the SVG says."""
    from experiments.publish.drawing import style

    with style.forms(style.SVG):
        yield


@pytest.fixture(scope="session")
def published_report(tmp_path_factory) -> Path:
    """The HTML report of the published data on a machine that has no GPU, made once for all processes of a run."""
    from experiments.publish import pictures, report  # with it come pandas and seaborn
    from experiments.publish.drawing import style
    from experiments.records import store, studies
    from experiments.records.studies import questions
    from tests.experiments.fixtures import ENVIRONMENT, checked_row

    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent  # of all of them
    path, own = folder / "published" / "report.html", folder / "published" / "cpu"
    with FileLock(folder / "published.lock"):
        if path.exists():
            return path
        store.save(own, "correctness", [checked_row()], ENVIRONMENT | {"device": "a CPU", "gpu": None})
        for name in studies.names():  # in this process: others would take longer to start
            pictures.render(name, store.PUBLISHED, style.PAGE)
        return report.make([store.PUBLISHED, own], path, questions(), own=own)
