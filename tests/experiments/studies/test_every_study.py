"""What holds for every study that is there, and for the others where one is not: its folder can be deleted."""

from __future__ import annotations

import importlib
import multiprocessing
import pkgutil
import re
import shutil
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import experiments.studies
import gemm_ref
from experiments import cli
from experiments.progress import Bars
from experiments.publish.outcomes import outcome
from experiments.records import store, studies
from experiments.records.contenders import Contender, build_ahead
from experiments.records.frames import LAYOUT
from experiments.records.request import DEFAULT, FULL, Request
from experiments.records.rows import COLD, MODES
from tests.experiments.fixtures import select_contenders
from tests.imports import house

_MODULES = [studies.load(name, "study") for name in studies.names()]
OF_DEVICE = [module for module in _MODULES if hasattr(module, "CONTENDERS")]
SWEEPS = [studies.load(name, "study") for name in ("squares", "shapes", "modes", "energy") if name in studies.names()]


@pytest.mark.parametrize("name", studies.names())
def test_nothing_measured_draws_nothing(draw_pictures, name):
    assert draw_pictures(name) == {}


@pytest.mark.parametrize("module", OF_DEVICE, ids=lambda module: module.NAME)
def test_what_is_no_contender_of_the_registry_can_be_asked_for_its_build(module):
    """The runner asks all that an experiment chose, before it measures on a GPU."""
    build_ahead([each for each in module.CONTENDERS if not isinstance(each, Contender)], (9, 0))


@pytest.mark.parametrize("module", SWEEPS)
def test_every_mode_of_a_rung_that_takes_part(module):
    by_default = select_contenders(module)
    assert {each.math for each in by_default} == set(gemm_ref.MATHS)
    for math in gemm_ref.MATHS:
        rungs = [each for each in select_contenders(module, math=math) if not each.is_baseline]
        assert rungs and {each.math for each in rungs} == {math}
        assert {str(each) for each in rungs} <= {str(each) for each in by_default}
        assert gemm_ref.stages_in(math)[-1].id in {each.stage for each in rungs}


@pytest.mark.parametrize("module", [module for module in SWEEPS if module.NAME != "energy"])
@pytest.mark.parametrize("preset", [DEFAULT, FULL])
def test_a_mode_is_timed_by_itself(module, preset, seen):
    """Each problem beside contenders of its own math alone; B by columns where cuBLAS has only that."""
    list(module.measure(Request("cuda", preset=preset), select_contenders(module), Bars(None)))
    assert {problem.math for problem, *_ in seen} == set(gemm_ref.MATHS)
    for problem, _, who in seen:
        assert {each.math for each in who} == {problem.math} and problem.b_layout == LAYOUT[problem.math]
    assert len({(problem, mode) for problem, mode, _ in seen}) == len(seen)
    assert {mode for _, mode, _ in seen} == (set(MODES) if module.NAME == "modes" else {COLD})


def test_no_row_is_made_up_for_a_mode_that_was_not_timed():
    for name in {"squares", "shapes", "modes"}.intersection(studies.names()):
        frame = store.read(store.PUBLISHED, name)
        in_fp32 = frame[frame["math"] == "fp32"]
        assert "ensor cores" not in outcome(name, in_fp32) and "fp32" not in outcome(
            name, frame[frame["math"] == "fp16"]
        )


def test_a_study_is_imported_in_its_folder_and_in_its_tests_alone():
    for module, file in house().items():
        for imported in (name.split(".") for name in file.imports if name.startswith("experiments.studies.")):
            name = imported[2]
            if name in studies.names():
                assert module.startswith((f"experiments.studies.{name}", f"tests.experiments.studies.{name}.")), module
            if module.endswith((".study", ".row")):
                assert imported[-1] not in ("picture", "table"), module


@pytest.mark.parametrize("name", studies.names())
def test_a_study_can_be_deleted(name, tmp_path):
    """In a copy without its folder all others are listed, imported and draw_pictures, those that read its CSV too."""
    shutil.copytree(studies.FOLDER, tmp_path / "studies", ignore=shutil.ignore_patterns("__pycache__", name))
    child = multiprocessing.get_context("fork").Process(target=_without, args=(name, tmp_path))
    child.start()
    child.join(60)
    assert child.exitcode == 0


def _without(name: str, folder: Path) -> None:
    """What test_a_study_can_be_deleted asks, in a process of its own."""
    experiments.studies.__path__ = [str(folder / "studies")]
    for module in [each for each in sys.modules if each.startswith("experiments.studies.")]:
        del sys.modules[module]
    studies.FOLDER = folder / "studies"
    for cached in (studies.abouts, studies.row_types, studies.captions):
        cached.cache_clear()
    others = studies.names()
    assert name not in others and studies.row_types().keys() == studies.questions().keys() == set(others)
    for module in pkgutil.walk_packages(experiments.studies.__path__, "experiments.studies."):
        importlib.import_module(module.name)
    listed = CliRunner().invoke(cli.app, ["list"]).output
    assert tuple(re.findall(r"^│ (\w+) ", listed.split("rungs (")[0], re.M)) == others, listed
    assert CliRunner().invoke(cli.app, ["run", name]).exit_code == 2
    for other in others:
        reads_it = any(
            f'"{name}"' in path.read_text(encoding="utf-8") for path in (studies.FOLDER / other).glob("*.py")
        )
        data = store.PUBLISHED if reads_it else folder
        list(studies.load(other, "picture").draw(data))
        if studies.has(other, "table"):
            table = studies.load(other, "table")
            assert all(table.block(block, data) for block in table.BLOCKS)
