"""`correctness`: what is checked of a kernel, what follows from an error, and what is published of many checks."""

from __future__ import annotations

import pytest

from experiments.cards.submit import submit
from experiments.records import frames, store, studies, workloads
from experiments.records.contenders import Contender, contenders
from experiments.records.request import FULL, Request
from experiments.records.rows import ERROR, FAIL, PASS, SKIPPED
from experiments.studies.correctness import study as correctness
from gemm_ref import Problem
from tests.experiments.fixtures import ENVIRONMENT, H200, NoBars, checked_row, raising, right, wrong

KERNELS = [each for each in contenders() if not each.is_baseline]


def fake(name, fn, load=None):
    return Contender(name, "default", "cuda", "cuda", "fp32", ("cpu",), load or (lambda: fn))


def measure(*pool, problems=()):
    return list(correctness.measure(Request("cpu", problems=problems), pool, NoBars()))


def test_every_size_is_checked_with_every_kind_of_inputs_and_an_error_ends_it(monkeypatch):
    monkeypatch.setattr(workloads, "ON_CPU", ((3, 5, 7), (5, 3, 2)))
    monkeypatch.setattr(workloads, "ON_CPU_FEW", ((3, 5, 7), (0, 1, 2)))
    monkeypatch.setattr(workloads, "FEW_EDGES_PARTIAL", (2, 2, 2))
    checks = [((3, 5, 7), kind) for kind in correctness.KINDS] + [((0, 1, 2), kind) for kind in correctness.KINDS]
    rows = measure(
        fake("right", right),
        fake("wrong", wrong),
        fake("broken", raising(RuntimeError("no such opcode: frobnicate"))),
        fake("missing", None, load=raising(ImportError("no compiler"))),
    )
    of = {name: [row for row in rows if row.stage == name] for name in ("right", "wrong", "broken", "missing")}
    assert [((row.m, row.n, row.k), row.inputs) for row in of["right"]] == [
        *checks,
        ((5, 3, 2), "normal"),
        ((2, 2, 2), "normal"),
    ]
    assert {row.status for row in of["right"]} == {PASS}
    assert [row.status for row in of["wrong"]] == [FAIL] * 3 + [PASS] * 3 + [FAIL] * 2  # 1.5 times nothing is nothing
    for name in ("broken", "missing"):
        assert [row.status for row in of[name]] == [ERROR] + [SKIPPED] * 7


def test_what_would_take_too_long_or_be_inexact_is_left_out():
    rows = measure(fake("right", right), problems=(Problem(1, 1, 1048577), Problem(4096, 4096, 4096)))
    assert [row.inputs for row in rows if row.k > 4096] == [
        "normal",
        "k_tail",
        "one_hot",
    ]  # integers would not be exact
    assert {(row.status, "about 11 minutes" in row.detail) for row in rows if row.k == 4096} == {(SKIPPED, True)}


def test_who_takes_part():
    by_default, full = (
        {each for each in contenders() if not correctness.unsuited(each, Request("cpu", preset=preset))}
        for preset in ("default", FULL)
    )
    assert full == set(KERNELS) > by_default
    assert all(each.math == "fp16" or not each.is_default for each in full - by_default)
    parts = correctness.parts_of(Request("cpu", preset=FULL), "bf16")
    assert {(problem.m, problem.n, problem.k) for problem, _ in parts} == {
        *workloads.ON_CPU,
        workloads.ALL_EDGES_PARTIAL,
    }


def test_a_second_run_reads_what_cannot_have_changed(invoke, tmp_path, monkeypatch):
    monkeypatch.setattr("gemm_ref.build.CACHE", tmp_path / "cache")
    arguments = ("run", "correctness", "--stage", "s02", "--backend", "cuda", "--size", "8", "--device", "cpu")
    arguments += ("--results", tmp_path / "results")
    assert "correctness: 3 pass rows are in" in invoke(*arguments).said
    files = {path: path.read_bytes() for path in (tmp_path / "results").iterdir() if path.suffix in (".csv", ".json")}
    assert "3 pass (3 read from earlier runs of the same kernels" in invoke(*arguments).said
    assert files == {path: path.read_bytes() for path in files}
    assert "correctness: 3 pass rows are in" in invoke(*arguments, "--fresh").said


def test_of_many_checks_that_passed_the_worst_is_published(tmp_path):
    """One row is published for each kernel, K and kind of inputs, with how many it stands for; the card keeps all."""
    checks = ((3, 7, "normal", 0.1), (5, 7, "normal", 0.4), (9, 7, "normal", 0.2), (3, 7, "one_hot", 0.0))
    rows = [checked_row(m=m, k=k, inputs=kind, bound_share=share) for m, k, kind, share in checks]
    folder, gpu = tmp_path / "nvidia-h200", H200 | {"driver": "1.2.3"}
    run = ENVIRONMENT | {"device": "NVIDIA H200", "slug": "nvidia-h200", "gpu": gpu, "python": "3.12", "nvcc": "13.0"}
    store.save(folder, "correctness", [*rows, checked_row(m=3, k=8, inputs="normal", bound_share=0.3)], run)
    excused = {f"experiment-{name}": "not today" for name in studies.names() if name != "correctness"}
    published = store.read(submit(folder, excused, tmp_path / "published").folder, "correctness")
    found = [(row.m, row.k, row.inputs, row.bound_share, row.checks) for row in published.itertuples()]
    assert found == [(5, 7, "normal", 0.4, 3), (3, 7, "one_hot", 0.0, 1), (3, 8, "normal", 0.3, 1)]
    own = store.read(folder, "correctness")
    assert len(own) == 5 and frames.tally(published) == frames.tally(own) == (5, 5)
    failed = frames.summarize_checks(own.assign(status=[FAIL, *[PASS] * 4]))
    assert len(failed) == 4 and frames.tally(failed) == (4, 5)  # what failed is never left out


@pytest.mark.parametrize(("flops", "watched"), [(2**19, True), (2**19 + 1, False)])
def test_fault_detectors_look_on_at_small_problems_with_normal_inputs(flops, watched):
    problem = Problem(1, 1, flops)
    for kind in correctness.KINDS:
        inputs = correctness.Inputs(problem, kind, None, None, None)
        assert correctness.is_watched(inputs) == (watched and kind == "normal")
