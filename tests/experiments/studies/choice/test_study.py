"""What is tried, what rows say of it, and what is lost by choosing: times here are made up."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from experiments.publish.outcomes import outcome
from experiments.records import frames, store, workloads
from experiments.records.contenders import Contender, contenders
from experiments.records.request import FULL, Request
from experiments.records.rows import FAIL
from experiments.studies.choice import study as question
from experiments.studies.choice.row import ChoiceRow
from gemm_ref import Problem, choice, make_inputs, ptx, stages_in
from gemm_ref.dialect import BY_HAND
from tests.experiments.fixtures import ENVIRONMENT, Entered, NoBars, select_contenders

PROBLEM = Problem(317, 4608, 3584)
NANOSECONDS = {1: 1e6, 4: 2.9e6, 9: 3.1e6}  # by blocks, of one tile; the last is left out


def _tile(rung):
    return next(iter(rung.kernel.stage.tiles[rung.dialect]))


@pytest.fixture
def rungs(monkeypatch):
    """The contenders of the rung that chooses, among three candidates of one tile."""
    tiles = {each.dialect: _tile(each) for each in select_contenders(question)}

    def predict_all(stage, dialect, *_):
        return {choice.Candidate(tiles[dialect], blocks): took for blocks, took in NANOSECONDS.items()}

    monkeypatch.setattr(choice, "predict_all", predict_all)
    monkeypatch.setattr(choice, "choose", lambda stage, dialect, *_: choice.Candidate(tiles[dialect], 1))
    return select_contenders(question)


def test_the_rungs_that_choose_take_part_alone():
    assert {(each.stage, each.dialect) for each in select_contenders(question)} == {
        (stage.id, dialect) for stage in stages_in("fp32") for dialect in stage.tiles
    }


@pytest.mark.parametrize("math", ["fp32", "bf16"])
def test_the_shapes_are_none_that_the_model_was_fitted_on(math):
    named, unseen = {shape.sizes for shape in workloads.named_shapes()}, workloads.unseen(FULL, math)
    assert not {*workloads.fitted(math)} & {*unseen, *named}
    assert {*question.sizes(FULL, math)} == {*workloads.fitted(math), *unseen}
    # of any sizes, and as layers have them; the TMA unit reads rows of whole vectors alone without a copy
    assert any(size % 64 for size in unseen[1 if math == "bf16" else 0])
    assert not any(size % (64 if math == "fp32" else 8) for size in unseen[1][1:])


class _Bench(Entered):
    """In place of the one on a GPU: the chosen candidate is 10% slower than its rival, whose check fails in Gluon."""

    TIMES = {"x1": 1100.0, "x4": 1000.0, "default": 900.0}  # the last is cuBLAS

    def __init__(self, setting, chosen, bars):
        library = next(each for each in contenders() if each.backend == "cublas" and each.math == "fp32")
        self._field = [*chosen, library]

    def time(self, problem):
        for each in self._field:
            name = each.variant.split()[-1]
            wrong = (name, each.dialect) == ("x4", "gluon")
            values = {"status": FAIL} if wrong else {"median_us": self.TIMES[name], "vs_cublas": 0.9}
            yield ChoiceRow.about("choice", each, problem, **values)


@pytest.fixture
def rows(rungs, monkeypatch):
    monkeypatch.setattr(question, "Bench", _Bench)
    monkeypatch.setattr(question, "build_ahead", lambda *_: None)
    monkeypatch.setattr(question, "sms_of", lambda _: 132)
    for name, value in (("get_device_name", "a GPU"), ("get_device_capability", (9, 0))):
        monkeypatch.setattr(torch.cuda, name, lambda value=value: value)

    def tuned(able, problem):
        return {next(each for each in able if each.dialect == BY_HAND and each.variant.endswith(" x4")): 2.5}

    monkeypatch.setattr(question, "run_autotune", tuned)
    return list(question.measure(Request("cuda", problems=(PROBLEM,)), rungs, NoBars()))


def test_rows_say_what_was_predicted_chosen_and_left_out(rows, rungs):
    of = {(row.dialect, row.variant, row.blocks): row for row in rows}
    assert set(of) == {("", "default", 0), *((each.dialect, _tile(each), x) for each in rungs for x in (1, 4))}
    for each in rungs:
        first, second = (of[each.dialect, _tile(each), blocks] for blocks in (1, 4))
        assert (first.predicted_us, first.chosen, first.candidates) == (1000.0, 1, 3)
        assert (second.predicted_us, second.chosen) == (2900.0, 0)
        assert second.autotune_s == (2.5 if each.dialect == BY_HAND else None) and first.autotune_s is None


def test_of_many_candidates_some_are_tried_and_the_chosen_one_always():
    """At problems that a table is fitted on there are fewer candidates, fewer rounds and no autotuner."""
    rung, deep = select_contenders(question)[0], Problem(128, 128, 65536)
    found = question.select_tries(rung, deep, 132, question.JUDGED[FULL])
    tiles = [each.candidate.tile for each in found.values()]
    assert all(tiles.count(tile) <= question.JUDGED[FULL].most + 1 for tile in tiles)
    assert max(each.predicted_us for each in found.values()) <= 3 * min(each.predicted_us for each in found.values())
    all_of_them = choice.predict_all(rung.kernel.stage, rung.dialect, deep, 132, vectors=True)
    assert {each.candidates for each in found.values()} == {len(all_of_them)}
    seen, unseen = (Problem(*of[0]) for of in (workloads.fitted("fp32"), workloads.unseen(FULL, "fp32")))
    least, most = (question.effort_at(each, FULL) for each in (seen, unseen))
    assert not least.autotune and least.plan.max_rounds < most.plan.max_rounds
    few, more = (question.select_tries(rung, seen, 132, effort) for effort in (least, most))
    assert 0 < len(few) < len(more)
    assert all(sum(each.is_chosen for each in tries.values()) == 1 for tries in (found, few, more))


def test_regret_is_beside_the_fastest_that_was_right_in_the_latest_run(rows, tmp_path):
    """Another table has chosen otherwise before, among other candidates."""
    before = [dataclasses.replace(row, blocks=2 * row.blocks, median_us=5.0) for row in rows if row.dialect]
    store.save(tmp_path, "choice", before, ENVIRONMENT | {"date": "2019-01-01T00:00:00Z"})
    store.save(tmp_path, "choice", rows, ENVIRONMENT)
    frame = store.read(tmp_path, "choice")
    found = frames.regrets(frames.held_out(frames.tried(frame))).set_index("dialect")
    assert found.loc[BY_HAND, "regret"] == pytest.approx(0.1) and found.loc[BY_HAND, "tuned"] == 0
    said = outcome("choice", frame)
    assert "10.0% in CUDA (at worst 10.0%, 317 x 4608 x 3584)" in said
    assert "takes 2.50 s for a shape (median), and loses 0.0%" in said
    assert outcome("choice", frame.assign(**dict(zip("mnk", workloads.fitted("fp32")[0], strict=True)))) == ""


def test_a_candidate_is_launched_with_its_own_blocks(monkeypatch):
    """On the reference GPU: each gives the product, with as many blocks as it says."""
    problem, launched = Problem(33, 40, 70), []
    a, b = make_inputs(problem, "integers")
    run = ptx.run
    monkeypatch.setattr(ptx, "run", lambda *given, **named: (launched.append(given[1]), run(*given, **named))[1])
    for rung in select_contenders(question):
        first, *_, last = question.select_tries(rung, problem, 132, question.JUDGED[FULL]).items()
        for who, each in (first, last):
            launched.clear()
            assert torch.equal(who.load()(a, b, out=torch.empty(33, 40)), a @ b), who
            assert launched[0].grid[0] == each.candidate.blocks, who


def test_triton_picks_among_its_own(monkeypatch):
    """Each of the others is no candidate of the autotuner's, and what it calls are the candidates' launches."""
    names = ["triton", "cuda", "triton"]
    able = [Contender("s01", f"x{i}", "", name, "fp32", (), lambda: torch.mm) for i, name in enumerate(names)]
    monkeypatch.setattr(question, "autotune", lambda works: (list(works)[-1], float(len(works))))
    assert question.run_autotune(able, Problem(3, 4, 5), "cpu") == {able[2]: 2.0}
    assert question.run_autotune(able[1:2], Problem(3, 4, 5), "cpu") == {}


@pytest.mark.parametrize("fastest", "abc")
def test_the_autotuner_picks_the_fastest_and_times_each(fastest):
    pytest.importorskip("triton")
    called, timed = [], []

    def benchmark(call, quantiles):
        call()
        timed.append(called[-1])
        return [0.5 if called[-1] == fastest else 1.0] * len(quantiles)

    picked, seconds = question.autotune({name: lambda name=name: called.append(name) for name in "abc"}, benchmark)
    assert (picked, timed) == (fastest, list("abc")) and called[-1] == fastest and seconds > 0
    assert question.autotune({"only": lambda: None}, benchmark=None)[0] == "only"
