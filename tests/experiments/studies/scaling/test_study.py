"""`scaling`, without a GPU: who takes part, what the rows and the model say, and that one rank's fault ends all."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from experiments import runner, selection
from experiments.bench.verify import DeviceLost
from experiments.records import scaling as measured
from experiments.records import store
from experiments.records.contenders import Contender, contenders
from experiments.records.controls import CONTROL
from experiments.records.request import Request
from experiments.records.rows import COLLECTIVE, COPIES, FAIL, ONE_CARD, PRODUCT, STRONG, WEAK
from experiments.studies.scaling import ranks
from experiments.studies.scaling import study as scaling
from gemm_ref import Problem
from gemm_ref.distributed import layouts, spawn
from gemm_ref.distributed.layouts import ALL_GATHER, GRID, IN_TURN, OVERLAPPED, REDUCE_SCATTER
from tests.experiments.fixtures import NoBars, changed

POOL = contenders()
CUBE = Problem(96, 96, 96)


def in_torch(a, b, out):
    return out.copy_(a @ b)


def half_wrong(a, b, out):
    """Right but in the last row, on whatever rank."""
    in_torch(a, b, out)[-1] += 1
    return out


def contender(stage: str, backend: str, fn) -> Contender:
    return Contender(stage, "default", backend, "" if backend == "cublas" else "cuda", "fp32", ("cuda",), lambda: fn)


@pytest.fixture(scope="module")
def rows():
    """What two ranks measure by the wall clock, with torch in the place of cuBLAS and of a rung, and a wrong one."""
    field = [contender("cublas", "cublas", in_torch), contender("s14", "cuda", in_torch)]
    field.append(contender("wrong", "cuda", half_wrong))
    names = tuple(map(str, field))
    cases = [
        ranks.RankTask(
            "scaling", "cpu", layout, how, layouts.scale_weakly(CUBE, layout, 2) if how == WEAK else CUBE, CUBE, names
        )
        for layout, how in ((ALL_GATHER, STRONG), (REDUCE_SCATTER, WEAK))
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spawn, "START_METHOD", "fork")
        patch.setattr(ranks, "contenders", lambda: field)
        patch.setattr(ranks, "PLAN", replace(ranks.PLAN, min_rounds=3, min_slow_rounds=3, max_rounds=3))
        torch.set_num_threads(1)
        said = list(spawn.run_on_ranks("experiments.studies.scaling.ranks:measure", cases, 2, "cpu"))
    assert [text for text in said if isinstance(text, str)] == list(map(str, cases))
    return [row for row in said if not isinstance(row, str)]


def test_every_way_and_its_parts_are_timed_in_the_same_rounds(rows):
    for layout in (ALL_GATHER, REDUCE_SCATTER):
        own = [row for row in rows if row.layout == layout and row.status != FAIL]
        each = {(stage, way) for stage in ("cublas", "s14") for way in (IN_TURN, OVERLAPPED, PRODUCT, ONE_CARD)}
        parts = {("nccl", COLLECTIVE), ("copy_engines", COPIES), (CONTROL, IN_TURN)}
        assert {(row.stage, row.way) for row in own} == each | parts
        assert len(own) == len(each | parts) and {row.repeats for row in own} == {3}
        assert all(row.median_us > 0 and row.gpus == 2 for row in own)


def test_what_the_rows_say_fits_together(rows):
    of = {(row.layout, row.stage, row.way): row for row in rows if row.status != FAIL}
    strong, weak = of[ALL_GATHER, "s14", OVERLAPPED], of[REDUCE_SCATTER, "s14", OVERLAPPED]
    assert (strong.m, strong.n, strong.k) == (96, 96, 96) and strong.link_bytes == 48 * 96 * 4
    assert (weak.m, weak.n, weak.k) == (96, 96, 192) and weak.link_bytes == 48 * 96 * 4
    part, alone = of[REDUCE_SCATTER, "s14", PRODUCT], of[REDUCE_SCATTER, "s14", ONE_CARD]
    assert (part.m, part.n, part.k) == (alone.m, alone.n, alone.k) == (96, 96, 96) and part.link_bytes == 0
    assert of[ALL_GATHER, "s14", PRODUCT].n == 48
    for row in (strong, weak):
        assert row.efficiency_low <= row.efficiency <= row.efficiency_high
        by_medians = of[row.layout, "s14", ONE_CARD].median_us / row.median_us / (2 if row is strong else 1)
        assert 0.3 < row.efficiency / by_medians < 3  # the median of ratios, of three rounds
        assert row.vs_cublas and row.verdict and row.bound_share < 1
    assert of[ALL_GATHER, "cublas", IN_TURN].vs_cublas == 1.0
    assert of[ALL_GATHER, "nccl", COLLECTIVE].mode == "" and of[ALL_GATHER, "nccl", COLLECTIVE].vs_cublas is None


def test_what_is_wrong_on_a_rank_is_not_timed(rows):
    wrong = [row for row in rows if row.stage == "wrong"]
    assert {(row.layout, row.way) for row in wrong} == {
        (layout, way) for layout in (ALL_GATHER, REDUCE_SCATTER) for way in (IN_TURN, OVERLAPPED)
    }
    assert all(row.status == FAIL and "rank" in row.detail and row.median_us is None for row in wrong)


def test_who_takes_part(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)

    def names(**asked):
        request = Request(**asked)
        there = [each for each in selection.select(request, POOL) if not scaling.unsuited(each, request)]
        return {(each.stage[:3], each.dialect, each.math) for each in there}

    ours = {("s14", "fp32"), ("s18", "bf16"), ("s19", "bf16"), ("s20", "fp16x3"), ("s20", "bf16x6")}
    cublas = {("cub", "", math) for _, math in ours}
    assert names(device="cuda") == {(stage, "cuda", math) for stage, math in ours} | cublas
    assert names(device="cpu") == {("s14", "cuda", "fp32"), ("s19", "cuda", "bf16")}
    assert names(device="cuda", stages=("s09_conflict_free",), backends=("gluon",)) == {("s09", "gluon", "fp32")}
    assert not names(device="cuda", math="fp8")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    assert not names(device="cuda")
    assert "two GPUs or more" in runner.why_nothing(scaling, Request("cuda"), POOL)


def test_how_many_cards_and_what_problems(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 6)
    assert scaling.counts(Request("cuda")) == [2, 4, 6] and scaling.counts(Request("cuda", gpus=4)) == [2, 4]
    assert scaling.counts(Request("cpu")) == [2] and scaling.counts(Request("cpu", gpus=3)) == [3]
    chosen = [each for each in POOL if str(each) == "s14_register_banks cuda"]
    cases = list(scaling._tasks(Request("cuda", problems=(Problem(64, 64, 64),)), chosen, 6))
    assert {(case.layout, case.scaling) for case in cases} == {(a, b) for a in layouts.LAYOUTS for b in (STRONG, WEAK)}
    for case in cases:
        count = 1 if case.scaling == STRONG else 6
        assert case.problem.flops == count * case.alone.flops and case.contenders == (
            "s14_register_banks cuda",
            "cublas",
        )
    assert GRID not in {case.layout for case in scaling._tasks(Request("cuda"), chosen, 2)}


def test_a_rank_that_fails_stops_the_experiment(monkeypatch):
    faults = [spawn.RanksFailed("rank 1 of 2: planted")]

    def run(*_):
        yield from ("a case", 1, "another case")
        if faults:
            raise faults.pop()

    monkeypatch.setattr(spawn, "run_on_ranks", run)
    request = Request("cpu")
    chosen = runner.choose(scaling, request, POOL)
    with pytest.raises(DeviceLost, match="rank 1 of 2: planted"):
        list(scaling.measure(request, chosen, NoBars()))
    assert list(scaling.measure(request, chosen, NoBars())) == [1]  # and when none fails its rows are handed on


# --- the model beside what was published ---------------------------------------------------------------------


def test_the_model_is_within_a_tenth_of_what_was_measured(tmp_path):
    frame, models = store.read(store.PUBLISHED, "scaling"), measured.models(store.PUBLISHED)
    waves = {stage: model.speed.wave for (stage, *_), model in models.items()}
    assert waves["s18_warp_specialized"] == 132 * 128 * 256 and waves["cublas"] == 132 * 64 * 64
    found = measured.compared(frame, models)
    assert len(found) == len(measured.timed(frame)) and found["error"].abs().max() < 0.1
    assert found["error"].abs().median() < 0.02
    without = changed(tmp_path, scaling=lambda frame: frame[~frame["way"].isin((COLLECTIVE, COPIES))])
    assert measured.models(without) == {} and measured.compared(frame, {}).empty
