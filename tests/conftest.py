"""Which kernels, forms and devices a test runs with: on the reference GPU a few, on a GPU all."""

from __future__ import annotations

import functools
import gc
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from filelock import FileLock  # torch depends on it

import gemm_ref
from experiments.records.contenders import gemm_of
from gemm_ref.build import share_cache_with_triton

STEP = 50  # between forms that --thorough runs beside a covering array; no factor has this many values
NEED_GPU = pytest.StashKey[int]()  # how many tests were left out because they need a GPU


def pytest_addoption(parser):
    parser.addoption(
        "--thorough",
        action="store_true",
        help="on the reference GPU run every kernel in every test, all cases, and more forms than a covering array",
    )
    parser.addoption("--all-forms", action="store_true", help="the same with all forms: hours")


def pytest_configure(config):
    share_cache_with_triton()
    for marker in (
        "gpu: the test needs a GPU",
        f"kernels(set, cuda, where): with which kernels of the registry a test runs: one of {', '.join(SETS)}, or "
        "in CUDA alone; and a predicate of those it is for. On a GPU, and with --thorough, the set is everything.",
        "forms(names, combinations, properties): the arguments `names` take those combinations that `cover` selects, "
        f"with --thorough every {STEP}th as well, and with --all-forms each of them.",
        "cases(names, few, every): the arguments `names` take few combinations, and with --thorough every one.",
    ):
        config.addinivalue_line("markers", marker)


@functools.cache
def devices() -> tuple[str, ...]:
    """The reference GPU (`cpu`), and the real one where there is one."""
    import torch  # here, since the process that only hands out tests to others has no use for it

    return ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",)


def pytest_generate_tests(metafunc):
    """Parametrise by kernels of the registry, by devices, and by the markers `forms` and `cases`."""
    from tests.matrices import cover

    config, names = metafunc.config, metafunc.fixturenames
    if "implementation" in names:
        tried = devices() if "device" in names else ("cpu",)
        select = functools.partial(_is_selected, metafunc.definition, is_thorough(config))
        kernels = [kernel for kernel in _ALL if any(select(kernel, device) for device in tried)]
        metafunc.parametrize("implementation", kernels, ids=str, scope="session")  # tests of a kernel follow each other
    if "device" in names:
        metafunc.parametrize("device", devices())
    for marker in metafunc.definition.iter_markers("forms"):
        names, combinations, *properties = marker.args
        selected = combinations if config.getoption("all_forms") else cover(combinations, *properties)
        more = combinations[::STEP] if is_thorough(config) else []
        metafunc.parametrize(names, [*selected, *(each for each in more if each not in selected)], ids=str)
    for marker in metafunc.definition.iter_markers("cases"):
        names, few, every = marker.args
        metafunc.parametrize(names, every if is_thorough(config) else few, ids=str)


def is_thorough(config) -> bool:
    """Whether every kernel and case is to run."""
    return config.getoption("thorough") or config.getoption("all_forms")


def pytest_collection_modifyitems(config, items):
    """Leave out what needs a GPU where there is none, and on the reference GPU what a test runs on a GPU alone.

    Before any fixture is set up, and without a line for each: thousands of skipped tests take half a minute.
    """
    kept, has_gpu = [], "cuda" in devices()
    for item in items:
        arguments = item.callspec.params if hasattr(item, "callspec") else {}
        device, kernel = arguments.get("device", "cpu"), arguments.get("implementation")
        if kernel is None or _is_selected(item, is_thorough(config), kernel, device):
            kept.append(item)
    items[:] = kept if has_gpu else [item for item in kept if not item.get_closest_marker("gpu")]
    config.stash[NEED_GPU] = len(kept) - len(items)
    if hasattr(config, "workeroutput"):  # a process of pytest-xdist
        config.workeroutput["need_gpu"] = config.stash[NEED_GPU]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node):
    """Take over the count of pytest-xdist's processes, each of which has collected the same tests."""
    if hasattr(node, "workeroutput"):
        node.config.stash[NEED_GPU] = node.workeroutput.get("need_gpu", 0)


def pytest_terminal_summary(terminalreporter, config):
    if count := config.stash.get(NEED_GPU, 0):
        terminalreporter.write_line(f"{count} tests need a GPU and were left out")


def _is_selected(item, every: bool, kernel: gemm_ref.Implementation, device: str) -> bool:
    """Whether a test, or its definition, is for a kernel on a device. every: whether the set is everything."""
    marker = item.get_closest_marker("kernels")
    if marker is None:
        raise pytest.UsageError(f"{item.nodeid}: which kernels? @pytest.mark.kernels(set) says it")
    if not marker.kwargs.get("where", lambda _: True)(kernel):
        return False
    if device == "cuda":
        return True
    name = "everything" if every else marker.kwargs.get(kernel.backend, *marker.args)
    return name is not None and _first_with_its_program(kernel) == kernel and SETS[name](kernel)


def pytest_collection_finish():
    """What imports have brought stays, so it is not looked through again and again for garbage."""
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


def pytest_sessionfinish():
    """pytest collects garbage five times at its end: seconds, if all that the tests have left is looked through."""
    gc.freeze()


_ALL = gemm_ref.implementations()


def is_best(kernel: gemm_ref.Implementation) -> bool:
    """Whether it is the rung's best variant in its dialect."""
    return kernel.variant == kernel.stage.find_variant("default", kernel.dialect)


def is_first(kernel: gemm_ref.Implementation) -> bool:
    """Whether it is the best variant, in the first compute type of its rung."""
    return is_best(kernel) and kernel.math == kernel.stage.maths[0]


def is_smoke(kernel: gemm_ref.Implementation) -> bool:
    """Whether no rung below takes the same way from a call to its launch in this dialect."""

    def way(stage: gemm_ref.Rung) -> tuple:
        math = gemm_ref.MATHS[stage.maths[0]]
        return bool(stage.tma), bool(stage.tiles), bool(stage.second_kernel), math.dtype, math.parts

    rungs = [rung for rung in gemm_ref.STAGES.values() if kernel.dialect in rung.dialects]
    return is_first(kernel) and kernel.stage is next(rung for rung in rungs if way(rung) == way(kernel.stage))


def has_each_compute_type(kernel: gemm_ref.Implementation) -> bool:
    """Whether it is a rung's best variant, in any compute type (in the twins bf16 stands for fp16)."""
    return is_best(kernel) and (kernel.dialect == "cuda" or kernel.math != "fp16")


def is_each_rung(kernel: gemm_ref.Implementation) -> bool:
    """Whether it is a rung's best variant, in CUDA in any compute type, or another variant in the first one.

    A variant is another shape, and a compute type another element: not every pair of them is tried. Triton takes up to
    three seconds for a kernel, where nvcc takes half a second. So beside its first compute type a rung has each other
    one in one twin alone, Triton and Gluon in turn: each rung and each dialect has each compute type.
    """
    stage, math = kernel.stage, kernel.math
    if kernel.dialect == "cuda":
        return is_best(kernel) or math == stage.maths[0]
    twins = [dialect for dialect in stage.dialects if dialect != "cuda"]
    turn = list(gemm_ref.STAGES).index(stage.id) + stage.maths.index(math)
    return is_first(kernel) or (has_each_compute_type(kernel) and kernel.dialect == twins[turn % len(twins)])


SETS = {
    "smoke": is_smoke,
    "each_dialect": is_first,
    "each_rung": is_each_rung,
    "each_compute_type": has_each_compute_type,
    "everything": lambda _: True,
}


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
