"""The model on made-up points: it finds the links and speeds that they were made from, and is drawn and told of."""

from __future__ import annotations

import dataclasses
import shutil

import numpy as np
import pandas as pd
import pytest

from experiments.publish.outcomes import outcome
from experiments.publish.wording import NOT_MEASURED
from experiments.records import scaling, store
from experiments.records.rows import COLLECTIVE, COPIES, ONE_CARD, PRODUCT, STRONG, WARM, WEAK, ScalingRow
from experiments.records.stats import Ratio
from experiments.studies.scaling import table as scaling_tables
from gemm_ref import Problem
from gemm_ref.distributed import layouts
from gemm_ref.distributed.layouts import ALL_GATHER, FUSED, GRID, IN_TURN, LAYOUTS, OVERLAPPED, REDUCE_SCATTER
from gemm_ref.distributed.model import SUM_GB_PER_S, Link, Model, Network, Speed
from tests.experiments.fixtures import ENVIRONMENT, H200

SIZES, COUNTS = (4096, 8192, 16384), (2, 4, 8)
LINKS = {2: Link(12.0, 2.0, 240.0), 4: Link(12.0, 2.0, 300.0), 8: Link(12.0, 2.0, 300.0)}
PULLS = dict.fromkeys(COUNTS, Link(6.0, 4.0, 350.0))
ON_H200 = ENVIRONMENT | {"gpu": ENVIRONMENT["gpu"] | H200}
WHO = {"cublas": "", "s18_warp_specialized": "cuda", "s19_any_shape": "cuda"}


def true_model(stage: str = "cublas") -> Model:
    """In whole waves, on a GPU of 132 multiprocessors: of 128 x 256 in s18, which has no other tile."""
    flops = np.geomspace(1e8, 1e14, 200)
    wave = 132 * (128 * 256 if stage.startswith("s18") else 64 * 64)
    speed = Speed(list(flops), [5.0 + each / 700e6 for each in flops], wave=wave)
    return Model(speed, dict.fromkeys(LAYOUTS, LINKS), dict.fromkeys(LAYOUTS, PULLS), 132)


def received(layout: str, problem: Problem, ranks: int) -> int:
    if layout == GRID:
        high, wide = layouts.grid_shape(ranks)
        return 2 * problem.k * ((wide - 1) * problem.m // ranks + (high - 1) * problem.n // ranks)
    return 2 * (ranks - 1) * (problem.m // ranks) * (problem.k if layout == ALL_GATHER else problem.n)


def local(layout: str, problem: Problem, ranks: int) -> Problem:
    if layout == ALL_GATHER:
        return problem.resized(n=problem.n // ranks)
    if layout == REDUCE_SCATTER:
        return problem.resized(k=problem.k // ranks)
    high, wide = layouts.grid_shape(ranks)
    return problem.resized(m=problem.m // high, n=problem.n // wide)


def made_up() -> list[ScalingRow]:
    """Rows in which each time is what the true model says, give or take a percent."""
    dice, rows = np.random.default_rng(0), []

    def row(stage, dialect, problem, way, us, **values):
        us *= 1 + 0.01 * dice.uniform(-1, 1)
        who = {"stage": stage, "backend": dialect or stage, "dialect": dialect, "math": "bf16", "dtype": "bfloat16"}
        sizes = {"m": problem.m, "n": problem.n, "k": problem.k, "median_us": us, "p20_us": us, "p80_us": us}
        rows.append(ScalingRow(experiment="scaling", **who, **sizes, way=way, **values))

    for ranks in COUNTS:
        for layout in LAYOUTS[: 3 if ranks > 2 else 2]:
            for size in SIZES:
                one = Problem(size, size, size, "bf16")
                for how in (STRONG, WEAK):
                    whole = one if how == STRONG else layouts.scale_weakly(one, layout, ranks)
                    moved, about = received(layout, whole, ranks), {"layout": layout, "gpus": ranks, "scaling": how}
                    messages = sum(each - 1 for each in layouts.grid_shape(ranks)) if layout == GRID else ranks - 1
                    for way, link in ((COLLECTIVE, LINKS[ranks]), (COPIES, PULLS[ranks])):
                        us = link.start_us + link.messages_us(messages, moved)
                        row(way, "", whole, way, us, link_bytes=moved, **about)
                    for stage, dialect in WHO.items():
                        model, part = true_model(stage), local(layout, whole, ranks)
                        high, alone = layouts.grid_shape(ranks)[0] if layout == GRID else 1, model.speed.product_us(one)
                        us = high * model.speed.product_us(part.resized(n=part.n // high))
                        row(stage, dialect, part, PRODUCT, us, mode=WARM, **about)
                        row(stage, dialect, one, ONE_CARD, alone, mode=WARM, **about)
                        fused = [FUSED] if stage == "cublas" and layout != GRID else []
                        for way in (IN_TURN, *fused, OVERLAPPED):
                            us = model.predict_us(layout, way, whole, ranks)
                            share = alone / us / (ranks if how == STRONG else 1)
                            shares = Ratio(share, share / 1.01, share * 1.01).columns("efficiency")
                            row(stage, dialect, whole, way, us, mode=WARM, **shares, **about)
    return rows


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("scaling")
    store.save(folder, "scaling", made_up(), ON_H200)
    return folder


def test_the_model_is_within_a_tenth_of_what_it_is_made_from(folder):
    frame, models = store.read(folder, "scaling"), scaling.models(folder)
    assert list(models) == [(stage, dialect, "bf16") for stage, dialect in WHO.items()]
    assert [model.speed.wave for model in models.values()] == [132 * 64 * 64, 132 * 128 * 256, 132 * 64 * 64]
    found = scaling.compared(frame, models)
    assert len(found) == len(scaling.timed(frame)) and found["error"].abs().max() < 0.1
    assert found["error"].abs().median() < 0.02
    for ranks, link in next(iter(models.values())).collective[REDUCE_SCATTER].items():
        assert link.gb_per_s == pytest.approx(LINKS[ranks].gb_per_s, rel=0.03)
        assert link.start_us + link.latency_us == pytest.approx(14, rel=0.3)


def test_nothing_is_said_of_kernels_without_points(folder, tmp_path):
    rows = [row for row in made_up() if row.way not in (COLLECTIVE, COPIES)]
    store.save(tmp_path, "scaling", rows, ON_H200)
    assert scaling.models(tmp_path) == {}
    assert scaling.compared(store.read(tmp_path, "scaling"), {}).empty


def test_a_link_that_was_not_measured_is_no_link():
    with pytest.raises(ValueError, match="there are none"):
        Link.fit([])
    with pytest.raises(ValueError, match="there are none"):
        Speed.fit([])
    with pytest.raises(ValueError, match="unknown layout 'ring'"):
        true_model().predict_us("ring", IN_TURN, Problem(64, 64, 64), 2)


def test_of_one_count_of_gpus_all_that_is_no_bandwidth_is_at_the_start():
    """Whether each message takes its time, or the first alone, two counts show."""
    (link,) = Link.fit([(2, 1, size, 20 + size / 300e3) for size in (1e6, 1e8)]).values()
    assert (link.start_us, link.latency_us, link.gb_per_s) == pytest.approx((20, 0, 300))


def test_the_schedule_on_paper_is_that_of_the_ranks():
    """By hand, for 2 GPUs with links of 1 µs for each chunk: the second half comes while the first is multiplied."""
    speed = Speed([1.0, 2.0], [1.0, 2.0])  # a microsecond for each operation
    link = {2: Link(0.0, 0.0, 64 * 32 * 4 / 1e3)}
    model = Model(speed, dict.fromkeys(LAYOUTS, link), dict.fromkeys(LAYOUTS, link), 1)
    problem = Problem(64, 64, 64)
    halves = problem.flops / 4
    assert model.predict_us(ALL_GATHER, IN_TURN, problem, 2) == pytest.approx(1 + 2 * halves)
    assert model.predict_us(ALL_GATHER, OVERLAPPED, problem, 2) == pytest.approx(2 * halves)
    slower = {2: Link(0.0, 0.0, link[2].gb_per_s / 3 / halves)}
    slow = dataclasses.replace(model, copies=dict.fromkeys(LAYOUTS, slower))
    assert slow.predict_us(ALL_GATHER, OVERLAPPED, problem, 2) == pytest.approx(4 * halves)  # the copy ends after three
    assert model.predict_us(GRID, OVERLAPPED, problem, 1) == pytest.approx(problem.flops)
    # What is added to comes from the first product, so that it waits for both; torch's operator adds in the end.
    assert model.predict_us(REDUCE_SCATTER, OVERLAPPED, problem, 2) == pytest.approx(2 * halves + 1)
    assert slow.predict_us(REDUCE_SCATTER, OVERLAPPED, problem, 2) == pytest.approx(5 * halves)
    assert slow.predict_us(REDUCE_SCATTER, FUSED, problem, 2) == pytest.approx(4 * halves)


def test_of_as_many_operations_those_with_the_larger_c_take_longer():
    """By hand: at 1 GB/s 16 KiB of C take 16.4 us of 100, and 64 KiB take 65.5."""
    speed = Speed.fit([(Problem(64, 64, 64), 100.0)], read_gb_per_s=1.0)
    assert speed.product_us(Problem(64, 64, 64)) == pytest.approx(100.0)
    assert speed.product_us(Problem(128, 128, 16)) == pytest.approx(100.0 - 16.384 + 65.536)


def test_of_a_product_in_whole_waves_torch_loses_no_part_and_others_do():
    """By hand: a wave holds what a rank computes, or half of it by itself, or a quarter."""
    problem, links = Problem(64, 128, 64), {ranks: Link(8.0, 0.0, float("inf")) for ranks in (2, 4)}
    wave = problem.flops / 2
    speed = Speed([1.0, 2.0], [1.0, 2.0], wave=64 * 64)
    model = Model(speed, dict.fromkeys(LAYOUTS, links), dict.fromkeys(LAYOUTS, links), 1)
    assert model.predict_us(ALL_GATHER, OVERLAPPED, problem, 2) == pytest.approx(8 + 2 * wave)
    assert model.predict_us(ALL_GATHER, FUSED, problem, 2) == pytest.approx(8 + wave)
    # Half of K in two waves, behind a barrier and in front of one, and then the sum of three parts.
    added = 3 * 32 * 128 * 4 / SUM_GB_PER_S / 1e3
    assert model.predict_us(REDUCE_SCATTER, FUSED, problem, 2) == pytest.approx(4 + wave + 4 + added, rel=1e-9)
    assert model.predict_us(GRID, IN_TURN, problem, 4) == pytest.approx(8 + 2 * wave)  # B comes in two parts


def test_pieces_of_a_sum_are_on_their_way_while_others_are_multiplied():
    """By hand, for 2 GPUs and two pieces: each is multiplied in a unit of time, and comes in half of one, or three."""
    problem = Problem(512, 512, 64)
    unit, piece = problem.flops / 8, 128 * 512 * 4
    speed = Speed([1.0, 2.0], [1.0, 2.0])
    for units, ends in ((0.5, 4), (3, 8)):
        link = {2: Link(0.0, 0.0, piece / (units * unit) / 1e3)}
        model = Model(speed, dict.fromkeys(LAYOUTS, link), dict.fromkeys(LAYOUTS, link), 1)
        assert model.predict_us(REDUCE_SCATTER, OVERLAPPED, problem, 2) == pytest.approx(ends * unit)


def test_past_a_host_who_pulls_alone_waits_for_its_own_adapter():
    quick = dict.fromkeys(LAYOUTS, {8: Link(0.0, 2.0, 300.0)})
    near, one = dataclasses.replace(true_model(), collective=quick), Problem(8192, 8192, 8192, "bf16")
    far = dataclasses.replace(near, network=Network(8, Link(0.0, 5.0, 50.0)))
    for layout in LAYOUTS:
        for way in (IN_TURN, OVERLAPPED):
            assert far.efficiency(layout, way, one, 8, True) == near.efficiency(layout, way, one, 8, True)
    shares = {way: far.efficiency(ALL_GATHER, way, one, 64, True) for way in (IN_TURN, OVERLAPPED)}
    assert shares[OVERLAPPED] < shares[IN_TURN]
    assert near.efficiency(ALL_GATHER, OVERLAPPED, one, 16, True) > near.efficiency(ALL_GATHER, IN_TURN, one, 16, True)


def test_pictures_and_sentences_follow_the_rows(folder, draw_pictures):
    svg = draw_pictures("scaling", folder=folder)
    assert svg.keys() == {"scaling", "scaling_model"}
    text = svg["scaling_model"]
    assert "the model is off by" in text and "not measured" in text
    frame = store.read(folder, "scaling")
    said = outcome("scaling", frame)
    assert "On 8 GPUs, all-gather with a product in bf16 keeps" in said and "% overlapped of the speed" in said
    own = frame["way"] == OVERLAPPED
    frame.loc[own, "efficiency"] /= 2
    assert outcome("scaling", frame) != said


def test_pictures_are_drawn_of_a_size_that_was_divided_alone(tmp_path, draw_pictures):
    """As one past what is grown is, if it is asked for by itself."""
    store.save(tmp_path, "scaling", [row for row in made_up() if row.scaling == STRONG], ON_H200)
    assert draw_pictures("scaling", folder=tmp_path).keys() == {"scaling", "scaling_model"}


def test_the_tables_are_of_the_card_with_the_most_neighbours(folder, tmp_path):
    alone, several = tmp_path / "nvidia-a", tmp_path / "nvidia-b"
    alone.mkdir()
    (alone / store.CARD).touch()
    assert [scaling_tables.block(name, alone) for name in scaling_tables.BLOCKS] == [NOT_MEASURED] * 2
    shutil.copytree(folder, several)
    (several / store.CARD).touch()
    ways, error = (scaling_tables.block(name, alone) for name in scaling_tables.BLOCKS)
    rows = [line.split(" | ") for line in ways.splitlines() if line.startswith("| bf16")]
    assert [tuple(row[1:4]) for row in rows] == [("8", of, str(size)) for of in LAYOUTS for size in SIZES]
    (reduced,) = (row for row in rows if row[2:4] == [REDUCE_SCATTER, "16384"])
    us = true_model().predict_us(REDUCE_SCATTER, OVERLAPPED, Problem(16384, 16384, 16384, "bf16"), 8)
    assert float(reduced[7].split(",")[0]) == pytest.approx(us / 1e3, rel=0.02) and "`s19`" in reduced[7]
    assert "by more than 10% at 0" in error


def test_without_a_gpu_it_says_what_was_checked():
    rows = [dataclasses.replace(row, median_us=None, efficiency=None) for row in made_up()]
    frame = pd.DataFrame([dataclasses.asdict(row) for row in rows])
    ways = frame["way"].isin(layouts.WAYS).sum()
    assert f"{ways} of {ways} ways are right" in outcome("scaling", frame)
