"""The table of the choice from times that are made up by another table: the fit finds it again."""

from __future__ import annotations

import random
import tomllib
from dataclasses import astuple, replace
from statistics import mean, median

import pytest

from experiments import fit
from experiments.records import frames, store, workloads
from experiments.records.contenders import contenders
from experiments.records.rows import Tried
from gemm_ref import Problem, choice
from gemm_ref.dialect import BY_HAND
from tests.experiments.fixtures import ENVIRONMENT, H200

SMS = H200["multiprocessors"]
RUNG = next(each for each in contenders() if each.kernel and BY_HAND == each.dialect in each.kernel.stage.tiles)
STAGE = RUNG.kernel.stage


def _other(dice):
    """The first GPU's table, with each cost of a tile up to 1.5 times as large or as small."""
    gpu = choice.device()
    family = gpu.rungs[STAGE.id][BY_HAND]
    tiles = {
        name: choice.Costs(*(cost * 1.5 ** dice.uniform(-1, 1) for cost in astuple(costs)))
        for name, costs in family.tiles.items()
    }
    of = {**gpu.rungs[STAGE.id], BY_HAND: replace(family, tiles=tiles)}
    return replace(gpu, rungs={**gpu.rungs, STAGE.id: of})


def _times(gpu, sizes, dice):
    """Rows of `choice` whose times are those of the table `gpu`, 1% off."""
    rows = []
    for problem in (Problem(*each) for each in sizes):
        for name, config in choice.tiles_for(STAGE, BY_HAND, problem.n % 4 == 0).items():
            for blocks in choice.blocks_for(config, problem, SMS)[:4]:
                took = choice.predict(config, name, gpu.rungs[STAGE.id][BY_HAND], gpu, problem, SMS, blocks)
                row = Tried.about("choice", RUNG, problem, median_us=took / 1e3 * dice.gauss(1, 0.01))
                rows.append(replace(row, variant=name, blocks=blocks, chosen=0))
    return rows


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Times of a GPU that no table has."""
    dice, folder = random.Random(0), tmp_path_factory.mktemp("results")
    sizes = workloads.FITTED[::5] + workloads.UNSEEN["default"]
    environment = ENVIRONMENT | {"device": "NVIDIA Fixture", "gpu": H200}
    store.save(folder, "choice", _times(_other(dice), sizes, dice), environment)
    return folder


def test_the_fit_finds_what_times_were_made_by(folder, tmp_path, monkeypatch):
    start, found = choice.device(), fit.fit(folder, tmp_path / "choice.toml")
    assert mean(found.now) < 0.03 < 0.06 < mean(found.before) and found.name == "NVIDIA Fixture"
    assert "loses (geometric mean and at worst) " in str(found)
    monkeypatch.setattr(choice, "TABLE", tmp_path / "choice.toml")
    choice.devices.cache_clear()
    try:
        rows = fit.rows_of(frames.tried(store.read(folder, "choice")))
        off = [abs(row.predicted_ns(choice.device("NVIDIA Fixture"), SMS) / row.measured_ns - 1) for row in rows]
        assert median(off) < 0.03 < median(abs(row.predicted_ns(start, SMS) / row.measured_ns - 1) for row in rows)
        assert len(choice.devices()) > 1 and choice.device("another") == next(iter(choice.devices().values()))
    finally:
        choice.devices.cache_clear()


def test_a_table_is_written_as_it_is_read():
    assert tomllib.loads(fit.written(choice.devices())) == tomllib.loads(choice.TABLE.read_text(encoding="utf-8"))


def test_without_times_it_says_how_to_take_some(tmp_path, invoke):
    before = choice.TABLE.read_bytes()
    result = invoke("fit", "--results", tmp_path)
    assert result.exit_code == 2 and "run choice --preset full" in result.said
    assert choice.TABLE.read_bytes() == before
