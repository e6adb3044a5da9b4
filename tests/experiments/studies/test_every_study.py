"""What holds for every study that is there, and for the others where some are not: a folder can be deleted.

`python -m tests.experiments.studies.test_every_study` writes pictures.txt again: read what changed in it.
"""

from __future__ import annotations

import html
import importlib
import itertools
import math
import multiprocessing
import pkgutil
import re
import shutil
from collections.abc import Sequence
from dataclasses import asdict, fields, replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

import experiments.studies
import gemm_ref
from experiments import cli, runner
from experiments.progress import Bars
from experiments.publish import pictures
from experiments.publish.drawing import style
from experiments.publish.outcomes import outcome
from experiments.publish.wording import NOT_MEASURED
from experiments.records import compare, store, studies, workloads
from experiments.records.contenders import Contender, build_ahead, contenders
from experiments.records.frames import LAYOUT
from experiments.records.request import DEFAULT, FULL, Request
from experiments.records.rows import COLD, MODES, PASS
from gemm_ref import B_LAYOUTS, Problem
from tests.experiments.fixtures import ENVIRONMENT, select_contenders, studies_in
from tests.imports import house

EACH = pytest.mark.parametrize("name", studies.names())
TEXTS = Path(__file__).with_name("pictures.txt")
SWEEPS = [studies.load(name, "study") for name in ("squares", "shapes", "modes", "energy") if name in studies.names()]


@EACH
def test_a_row_is_read_as_it_was_saved_and_replaced_by_its_key(tmp_path, name):
    kind = studies.row_type(name)
    example = {"str": lambda nth: f"word {nth}", "int": lambda nth: nth, "int | None": float, "float | None": float}
    values = {field.name: example[str(field.type)](nth) for nth, field in enumerate(fields(kind), 1)}
    ends = ("vs_cublas_low", "vs_cublas_high")  # a share outside of its interval is refused
    values |= {end: values["vs_cublas"] for end in ends if end in values}
    row = kind(**values | {"experiment": name, "run": ""})
    more = {key: values[key] * 2 for key in kind.KEY if key != "experiment"}
    store.save(tmp_path, name, [row, *(replace(row, **{key: value}) for key, value in more.items())], ENVIRONMENT)
    frame = store.read(tmp_path, name)
    assert tuple(frame.columns) == kind.columns()
    assert frame.iloc[0].to_dict() == asdict(row) | {"run": ENVIRONMENT["date"]}
    assert [frame.iloc[nth][key] for nth, key in enumerate(more, 1)] == list(more.values())
    store.save(tmp_path, name, [replace(row, detail="again")], ENVIRONMENT)
    assert list(store.read(tmp_path, name)["detail"]) == ["again", *[row.detail] * len(more)]


@EACH
def test_nothing_measured_says_nothing(draw_pictures, tmp_path, name):
    assert draw_pictures(name) == {} and outcome(name, store.read(tmp_path, name)) == ""
    text = studies.load(name, "text") if studies.has(name, "text") else None
    said = {text.block(block, tmp_path).strip() for block in getattr(text, "BLOCKS", ())}
    assert all(NOT_MEASURED in each or "not measured" in each for each in said), said


def picture_texts(name: str) -> list[str]:
    """Returns a line per picture of the published rows: its name, and all its texts in the order of drawing."""
    lines = []
    folders = [folder for folder in store.published() if (folder / f"{name}.csv").exists()]
    for file, svg in pictures.render(name, folders[0], style.PAGE).items() if folders else ():
        texts = re.findall(r"<text.*?</text>", svg.decode(), re.DOTALL)
        joined = " | ".join(" ".join(html.unescape(re.sub("<[^>]*>", "", text)).split()) for text in texts)
        lines.append(f"{file.removesuffix(style.PAGE)}: {joined}")
    return lines


@EACH
def test_pictures_of_the_published_rows_have_the_texts_that_somebody_has_read(name):
    """Each picture with a caption is drawn, with the labels and numbers of pictures.txt; none before its first rows."""
    is_published = any((folder / f"{name}.csv").exists() for folder in store.published())
    names = studies.abouts()[name]["captions"] if is_published else ()
    known = [line for line in TEXTS.read_text(encoding="utf-8").splitlines() if line.split(":")[0] in names]
    drawn = picture_texts(name)
    assert drawn == known and len(drawn) == len(names)


def test_published_rows_compared_with_themselves_are_the_same_and_told_apart():
    for found in compare.compare(store.PUBLISHED, store.PUBLISHED):
        names = {(each.name, each.problem) for each in found.changes}
        if found.experiment not in ("choice", "registers", "scaling"):  # whose blocks, forms and ways are in no name
            assert len(names) == len(found.changes), found.experiment
        assert not found.statuses and found.only_old == found.only_new == 0
        assert {each.by_time for each in found.changes} <= {1.0}


@EACH
def test_no_two_published_rows_are_of_the_same_measurement(name):
    """In `memory` a kernel has a row for each access, and a rerun replaces them together."""
    frame, key = store.read(store.PUBLISHED, name), [*studies.row_type(name).KEY]
    if name == "memory":
        key += ["view", "launch", "space", "file", "line", "op"]
    assert not frame[frame["status"] == PASS].duplicated([*key, *{"kind", "array"}.intersection(frame)]).any()


@EACH
def test_what_is_no_contender_of_the_registry_can_be_asked_for_its_build(name):
    """The runner asks all that an experiment chose, before it measures on a GPU."""
    own = getattr(studies.load(name, "study"), "CONTENDERS", ())
    build_ahead([each for each in own if not isinstance(each, Contender)], (9, 0))


def test_without_a_gpu_these_studies_run_and_others_say_why():
    modules = {name: studies.load(name, "study") for name in studies.names()}
    request, pool = Request("cpu"), contenders()
    able = {name for name, module in modules.items() if runner.choose(module, request, pool)}
    without_gpu = {"accuracy", "correctness", "cost", "emulation", "instructions", "ladder", "memory", "predicted"}
    assert able == {*without_gpu, "registers", "rounding", "scaling", "squares"}.intersection(modules)
    for name in modules.keys() - able:
        assert re.search("GPU|cuda", runner.why_nothing(modules[name], request, pool)), name


@pytest.mark.parametrize("module", SWEEPS)
def test_every_mode_of_a_rung_that_takes_part(module):
    by_default = select_contenders(module)
    assert {each.math for each in by_default} == set(gemm_ref.MATHS)
    for mode in gemm_ref.MATHS:
        rungs = [each for each in select_contenders(module, math=mode) if not each.is_baseline]
        assert rungs and {each.math for each in rungs} == {mode}
        assert {str(each) for each in rungs} <= {str(each) for each in by_default}
        assert gemm_ref.stages_in(mode)[-1].id in {each.stage for each in rungs}


@pytest.mark.parametrize("module", [module for module in SWEEPS if module.NAME != "energy"])
@pytest.mark.parametrize("preset", [DEFAULT, FULL])
def test_a_mode_is_timed_by_itself(module, preset, seen):
    """Each problem beside contenders of its own math alone; B by columns where cuBLAS has only that, or both ways."""
    list(module.measure(Request("cuda", preset=preset), select_contenders(module), Bars(None)))
    assert {problem.math for problem, *_ in seen} == set(gemm_ref.MATHS)
    for problem, _, who in seen:
        assert {each.math for each in who} == {problem.math}
        assert problem.b_layout == LAYOUT[problem.math] or (module.NAME == "shapes" and problem.math != "fp32")
    assert len({(problem, mode) for problem, mode, _ in seen}) == len(seen)
    assert {mode for _, mode, _ in seen} == (set(MODES) if module.NAME == "modes" else {COLD})


def cubes(edges: Sequence[int], math: str = "fp32", layouts: Sequence[str] = ("kn",)) -> list[Problem]:
    return [Problem(edge, edge, edge, math, b_layout=layout) for layout in layouts for edge in edges]


EITHER_WAY = [Problem(8, 9, 7, "fp8", layout) for layout in B_LAYOUTS]
PROBLEMS = [  # a study, a request, and the problems that are timed for it
    ("ladder", Request("cpu"), [Problem(*sizes) for sizes in workloads.LADDER["cpu"]]),
    ("ladder", Request("cuda"), [Problem(*sizes) for sizes in workloads.LADDER["cuda"]]),
    ("squares", Request("cuda", math="bf16"), cubes(workloads.FEW_SQUARES, "bf16")),
    ("squares", Request("cuda", math="bf16", preset=FULL), cubes(workloads.SQUARES[FULL], "bf16")),
    ("tensor_cores", Request("cuda", math="fp16x3"), cubes((4096,), "fp16x3", B_LAYOUTS)),
    ("tensor_cores", Request("cuda", math="bf16", layout="nk"), cubes((4096,), "bf16", ["nk"])),
    ("shapes", Request("cuda", math="fp8", problems=(Problem(8, 9, 7),)), EITHER_WAY),
    ("decode", Request("cuda", math="fp8", problems=(Problem(8, 9, 7),)), 3 * EITHER_WAY[1:]),
]


@pytest.mark.parametrize(("name", "request_", "problems"), [case for case in PROBLEMS if case[0] in studies.names()])
def test_the_problems_of_a_study(name, request_, problems, seen):
    module = studies.load(name, "study")
    list(module.measure(request_, runner.choose(module, request_, contenders()), Bars(None)))
    assert [problem for problem, *_ in seen] == problems


def test_no_row_is_made_up_for_a_mode_that_was_not_timed():
    for name in {"squares", "shapes", "modes"}.intersection(studies.names()):
        frame = store.read(store.PUBLISHED, name)
        assert "ensor cores" not in outcome(name, frame[frame["math"] == "fp32"])
        assert "fp32" not in outcome(name, frame[frame["math"] == "fp16"])


def test_a_study_is_imported_in_its_folder_and_in_its_tests_alone():
    for module, file in house().items():
        for imported in (name.split(".") for name in file.imports if name.startswith("experiments.studies.")):
            name = imported[2]
            if name in studies.names():
                assert module.startswith((f"experiments.studies.{name}", f"tests.experiments.studies.{name}.")), module
            if module.endswith((".study", ".row")):
                assert imported[-1] not in ("picture", "text"), module


RUNS = next(count for count in itertools.count(2) if math.comb(count, count // 2) >= len(studies.names()))
# The runs in which each study is deleted. No two studies are deleted in the same runs, so for each pair there is a run
# without the first and with the second.
DELETED = dict(zip(studies.names(), itertools.combinations(range(RUNS), RUNS // 2), strict=False))


@pytest.mark.parametrize("run", range(RUNS))
def test_a_study_can_be_deleted(run, tmp_path):
    """In a copy without some folders all others are listed, imported and drawn, also those that read their CSVs."""
    gone = {name for name, runs in DELETED.items() if run in runs}
    shutil.copytree(studies.FOLDER, tmp_path / "studies", ignore=shutil.ignore_patterns("__pycache__", *gone))
    child = multiprocessing.get_context("fork").Process(target=_without, args=(gone, tmp_path, run))
    child.start()
    child.join(60)
    assert child.exitcode == 0


def _is_first(run: int, name: str, other: str) -> bool:
    """Whether it is the first run without `name` and with `other`."""
    return run == min(set(DELETED[name]).difference(DELETED[other]))


def _without(gone: set[str], folder: Path, run: int) -> None:
    """Checks in a process of its own what test_a_study_can_be_deleted states."""
    everyone = studies.names()
    with studies_in(folder / "studies"):
        others = studies.names()
        assert others == tuple(name for name in everyone if name not in gone)
        assert studies.questions().keys() == set(others) and all(map(studies.row_type, others))
        for module in pkgutil.walk_packages(experiments.studies.__path__, "experiments.studies."):
            importlib.import_module(module.name)
        listed = CliRunner().invoke(cli.app, ["list"]).output
        assert tuple(re.findall(r"^│ (\w+) ", listed.split("rungs (")[0], re.M)) == others, listed
        assert all(CliRunner().invoke(cli.app, ["run", name]).exit_code == 2 for name in gone)
        for other in others:
            sources = [path.read_text(encoding="utf-8") for path in (studies.FOLDER / other).glob("*.py")]
            read = {name for name in gone for text in sources if f'"{name}"' in text}
            if read and not any(_is_first(run, name, other) for name in read):
                continue
            data = store.PUBLISHED if read else folder
            list(studies.load(other, "picture").draw(data))
            text = studies.load(other, "text") if studies.has(other, "text") else None
            assert all(text.block(block, data) for block in getattr(text, "BLOCKS", ()))


if __name__ == "__main__":
    TEXTS.write_text("".join(f"{line}\n" for name in studies.names() for line in picture_texts(name)), encoding="utf-8")
