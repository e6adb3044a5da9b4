"""The table of the choice from times that are made up by another table: the fit finds it again."""

from __future__ import annotations

import random
import tomllib
from dataclasses import astuple, replace
from statistics import mean, median

import pytest

from experiments import fit
from experiments.records import frames, store, studies, workloads
from experiments.records.contenders import contenders
from gemm_ref import Problem, choice
from gemm_ref.choice import costs
from gemm_ref.choice.work import candidate_blocks
from gemm_ref.dialect import BY_HAND
from tests.experiments.fixtures import ENVIRONMENT, H200, needs_study

pytestmark = needs_study("choice")
SMS = H200["multiprocessors"]
RUNGS = {  # one of each, in the last of its math modes
    each.stage: each for each in contenders() if each.kernel and BY_HAND == each.dialect in each.kernel.stage.tiles
}


def _other(dice):
    """The first GPU's table, with each cost of a tile up to 1.5 times as large or as small."""
    gpu = costs.find_device()
    for stage in RUNGS:
        family = gpu.rungs[stage][BY_HAND]
        tiles = {
            name: costs.Costs(*(cost * 2 ** dice.uniform(-1, 1) for cost in astuple(of_tile)))
            for name, of_tile in family.tiles.items()
        }
        of = {**gpu.rungs[stage], BY_HAND: replace(family, tiles=tiles)}
        gpu = replace(gpu, rungs={**gpu.rungs, stage: of})
    return gpu


def _times(gpu, dice):
    """Rows of `choice` whose times are those of the table `gpu`, 1% off."""
    rows = []
    for rung in RUNGS.values():
        stage, math = rung.kernel.stage, rung.math
        for sizes in workloads.fitted(math)[::4] + workloads.unseen("default", math):
            problem = Problem(*sizes, math, b_layout=frames.LAYOUT[math])
            for name, config in choice.usable_tiles(stage, BY_HAND, problem.n % 4 == 0).items():
                for blocks in candidate_blocks(config, problem, SMS)[:4]:
                    ns = choice.predict_ns(stage, BY_HAND, choice.Candidate(name, blocks), problem, SMS, gpu)
                    median_us = ns / 1e3 * dice.gauss(1, 0.01)
                    row = studies.row_type("choice").about("choice", rung, problem, median_us=median_us)
                    rows.append(replace(row, variant=name, blocks=blocks, chosen=0))
    return rows


def _saved(folder, rows):
    store.save(folder, "choice", rows, ENVIRONMENT | {"device": "NVIDIA Fixture", "gpu": H200})
    return folder


@pytest.fixture(scope="module")
def times():
    """Of a GPU that no table has."""
    dice = random.Random(0)
    return _times(_other(dice), dice)


@pytest.fixture(scope="module")
def folder(tmp_path_factory, times):
    return _saved(tmp_path_factory.mktemp("results"), times)


def test_the_fit_finds_what_times_were_made_by(folder, tmp_path, monkeypatch):
    start, found = costs.find_device(), fit.fit(folder, tmp_path / "costs.toml")
    assert mean(found.after) < 0.02 < 0.05 < mean(found.before) and found.name == "NVIDIA Fixture"
    assert "loses (geometric mean and at worst) " in str(found)
    monkeypatch.setattr(costs, "TABLE", tmp_path / "costs.toml")
    costs.load_devices.cache_clear()
    try:
        rows = fit.read_rows(frames.tried(store.read(folder, "choice")))
        for near, most in ((1.3, 0.03), (float("inf"), 0.06)):  # times the fastest; what is far from it hardly counts
            some = [row for row in rows if row.measured_ns < near * row.fastest_ns]
            now, before = (
                median(abs(row.predicted_ns(gpu, SMS) / row.measured_ns - 1) for row in some)
                for gpu in (costs.find_device("NVIDIA Fixture"), start)
            )
            assert now < most < before
        devices = list(costs.load_devices().values())
        assert len(devices) > 1 and costs.find_device("another") == devices[0]
    finally:
        costs.load_devices.cache_clear()


def test_times_of_one_rung_leave_the_others_costs_as_they_were(times, tmp_path):
    """And those of the GPU, which the others share, but for what every kernel takes to start."""
    stage = list(RUNGS)[-1]
    found = fit.fit(_saved(tmp_path, [row for row in times if row.stage == stage]), tmp_path / "costs.toml")
    assert mean(found.after) < mean(found.before)
    table = tomllib.loads((tmp_path / "costs.toml").read_text())
    now, before = table["NVIDIA Fixture"], next(iter(table.values()))
    assert {key for key, value in now.items() if value != before.get(key)} - {"start_ns"} == {stage}


def test_without_a_table_of_its_own_a_gpu_loses_little_by_anothers_that_is_scaled():
    """The regret on an H100 by its own costs, by an H200's, and by these scaled by what gpus.toml has of both."""
    frame = store.read(store.PUBLISHED.parent / "nvidia-h100-80gb-hbm3", "choice")
    rows = fit.read_rows(frames.held_out(frames.tried(frame[frame["dialect"] == BY_HAND])))
    name, h200 = "NVIDIA H100 80GB HBM3", costs.find_device("NVIDIA H200")
    scaled = costs.scale_costs(h200, costs.read_facts(name))
    own, others, found = (fit.regrets(rows, each, SMS) for each in (costs.find_device(name), h200, scaled))
    assert mean(found) < mean(own) + 0.003 < mean(others) and max(found) < max(own) + 0.03 < max(others)


def test_a_table_is_written_as_it_is_read():
    table = tomllib.loads(costs.TABLE.read_text(encoding="utf-8"))
    assert tomllib.loads(fit.format_table(costs.load_devices())) == table


def test_without_times_it_says_how_to_take_some(tmp_path, invoke):
    before = costs.TABLE.read_bytes()
    result = invoke("fit", "--results", tmp_path)
    assert result.exit_code == 2 and "run choice --preset full" in result.said
    assert costs.TABLE.read_bytes() == before
