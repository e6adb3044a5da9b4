"""A loop executed warp by warp, on loops written by hand; that real ones come out as measured, from published data."""

from __future__ import annotations

from dataclasses import replace

import pytest

from experiments.records import store
from experiments.records.compiled import compare_with_measured, error
from gemm_ref.clock.loop import simulate
from gemm_ref.sass.control import COUNTERS, ControlCode
from gemm_ref.sass.listing import Instruction

NONE = COUNTERS + 1


def step(opcode: str, operands: str = "", *, stall: int = 1, result: int = NONE, waits: tuple[int, ...] = ()):
    return Instruction(opcode, operands, control=ControlCode(stall, result, NONE, waits))


FFMA = [step("FFMA", f"R{20 + 2 * i}, R2.reuse, R5, R{20 + 2 * i}") for i in range(64)]  # one even, one odd read each
LOAD = step("LDS.128", "R8, [R4]", result=0)
USE = replace(FFMA[0], control=ControlCode(1, NONE, NONE, (0,)))


def waits(trip: list[Instruction], warps: int = 4, blocks: int = 1, **wavefronts: float) -> dict[str, float]:
    found = simulate(trip, warps, blocks, wavefronts or {"LDS.128": 4.0})
    assert found.issuing == pytest.approx(len(trip), abs=2)  # as a wait may begin before counting does
    return {reason: round(clocks, 1) for reason, clocks in found.waiting.items() if clocks >= 0.5}


def test_a_loop_of_multiply_adds_waits_for_nothing():
    assert waits(FFMA) == {}
    assert waits(FFMA, warps=16) == {}  # the first warp is never passed


def test_registers_keep_the_scheduler_with_all_its_warps():
    even = [step("FFMA", "R6, R2, R4, R6")] * 64
    assert waits(even)["registers"] == pytest.approx(128, abs=2)  # three reads of a bank take three clocks
    assert waits(even, warps=16)["registers"] == pytest.approx(128, abs=2)


def test_a_load_from_shared_memory_takes_its_latency_which_another_warp_hides():
    alone = waits([LOAD, USE, *FFMA[1:]])["shared"]
    assert 25 < alone < 40  # 29 were measured
    assert waits([LOAD, USE, *FFMA[1:]], warps=16).get("shared", 0) < alone / 4


def test_a_load_takes_clocks_of_the_banks():
    assert waits([LOAD, *FFMA])["registers"] == pytest.approx(2, abs=1.5)  # two even and two odd registers


def test_shared_memory_serves_a_wavefront_a_clock():
    loads = [*[LOAD] * 8, USE]
    few, many = (simulate(loads, 16, 1, {"LDS.128": float(wavefronts)}).clocks for wavefronts in (4, 8))
    assert few == pytest.approx(8 * 4 * 4, rel=0.1) and many == pytest.approx(8 * 8 * 4, rel=0.1)  # for 4 schedulers


def test_a_load_from_global_memory_takes_longer_and_is_told_apart():
    assert waits([step("LDG.E", "R8, desc[UR4][R4.64]", result=0), USE, *FFMA[1:]])["global"] > 600


def test_copies_are_waited_for_by_group():
    copy = [step("LDGSTS.E.BYPASS.128", "[R4], desc[UR4][R6.64]"), step("LDGDEPBAR")]
    none_left, one_left = ([*copy, *FFMA, step("DEPBAR.LE", f"SB0, {left}")] for left in ("0x0", "0x1"))
    first, second = (waits(trip, **{"LDGSTS.E.BYPASS.128": 4.0})["global"] for trip in (none_left, one_left))
    assert first > 2 * second > 0  # the group of the trip before is there sooner


def test_all_warps_of_a_block_meet_at_a_barrier_and_another_block_does_not_wait():
    trip = [*FFMA, step("BAR.SYNC.DEFER_BLOCKING", "0x0")]
    alone = waits(trip)["barrier"]
    assert 15 < alone < 30  # 21 were measured
    assert waits(trip, blocks=4).get("barrier", 0) < alone / 4


def test_the_compilers_own_stalls_are_waited_for():
    assert waits([step("FFMA", "R6, R2, R5, R6", stall=4)] * 16)["before"] == pytest.approx(48, abs=4)


def test_published_kernels_take_what_their_machine_code_says():
    both, runs = compare_with_measured(store.PUBLISHED)
    off = error(both)
    assert len(both) >= 30 and runs and off.median() < 0.05 and (off < 0.1).mean() > 0.9
