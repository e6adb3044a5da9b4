"""The model of a product on several GPUs: its schedules as worked out by hand, and links found from times."""

from __future__ import annotations

import dataclasses

import pytest

from gemm_ref import Problem
from gemm_ref.distributed.layouts import ALL_GATHER, FUSED, GRID, IN_TURN, LAYOUTS, OVERLAPPED, REDUCE_SCATTER
from gemm_ref.distributed.model import SUM_GB_PER_S, Link, Model, Network, Speed


def model_of(speed: Speed, links: dict[int, Link], sms: int = 1) -> Model:
    """A model in which collectives and copies have the same links, in each layout."""
    return Model(speed, dict.fromkeys(LAYOUTS, links), dict.fromkeys(LAYOUTS, links), sms)


def test_links_are_found_from_times():
    """Whether each message takes its time, or the first alone, two counts of GPUs show."""
    (link,) = Link.fit([(2, 1, size, 20 + size / 300e3) for size in (1e6, 1e8)]).values()
    assert (link.start_us, link.latency_us, link.gb_per_s) == pytest.approx((20, 0, 300))
    true = {2: Link(12.0, 2.0, 240.0), 4: Link(12.0, 2.0, 300.0), 8: Link(12.0, 2.0, 300.0)}
    points = [
        (gpus, gpus - 1, size, link.start_us + link.messages_us(gpus - 1, size))
        for gpus, link in true.items()
        for size in (1e6, 1e7, 1e9)
    ]
    for gpus, found in Link.fit(points).items():
        assert found.gb_per_s == pytest.approx(true[gpus].gb_per_s, rel=0.03)
        assert found.start_us + found.latency_us == pytest.approx(14, rel=0.05)


def test_the_schedule_on_paper_is_that_of_the_ranks():
    """By hand, for 2 GPUs with links of 1 µs for each chunk: the second half comes while the first is multiplied."""
    speed = Speed([1.0, 2.0], [1.0, 2.0])  # a microsecond for each operation
    link = {2: Link(0.0, 0.0, 64 * 32 * 4 / 1e3)}
    model = model_of(speed, link)
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
    model = model_of(speed, links)
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
        model = model_of(speed, link)
        assert model.predict_us(REDUCE_SCATTER, OVERLAPPED, problem, 2) == pytest.approx(ends * unit)


def test_past_a_host_who_pulls_alone_waits_for_its_own_adapter():
    flops, one = [10.0**power for power in range(8, 15)], Problem(8192, 8192, 8192, "bf16")
    speed = Speed(flops, [5.0 + each / 700e6 for each in flops], wave=132 * 64 * 64)
    pulls = dict.fromkeys(LAYOUTS, {8: Link(6.0, 4.0, 350.0)})
    near = dataclasses.replace(model_of(speed, {8: Link(0.0, 2.0, 300.0)}, sms=132), copies=pulls)
    far = dataclasses.replace(near, network=Network(8, Link(0.0, 5.0, 50.0)))
    for layout in LAYOUTS:
        for way in (IN_TURN, OVERLAPPED):
            assert far.efficiency(layout, way, one, 8, True) == near.efficiency(layout, way, one, 8, True)
    shares = {way: far.efficiency(ALL_GATHER, way, one, 64, True) for way in (IN_TURN, OVERLAPPED)}
    assert shares[OVERLAPPED] < shares[IN_TURN]
    assert near.efficiency(ALL_GATHER, OVERLAPPED, one, 16, True) > near.efficiency(ALL_GATHER, IN_TURN, one, 16, True)
