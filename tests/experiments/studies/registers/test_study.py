"""`registers`: loops ask what their names say, rewritten rungs are right, and what their rows say."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
import torch

import cuda_kernels
import gemm_ref
from cuda_kernels import source
from cuda_kernels.ceilings import patched
from cuda_kernels.ceilings.patched import UNROLL
from cuda_kernels.rewritten import RULES, rewrite
from experiments.records.request import Request
from experiments.records.rows import FAIL, PASS, SKIPPED
from experiments.studies.registers import study as registers
from experiments.studies.registers.register_loops import LOOPS
from experiments.studies.registers.rewritten_rungs import FORMS, RUNGS, Rewritten
from gemm_ref import Problem
from gemm_ref.sass.patch import RZ, TWO
from tests.experiments.fixtures import Entered, NoBars, changed

LATENCY = 8  # clocks, more than an instruction's result takes to be there


def operands_of(loop):
    return loop.instructions(tuple(patched.compiled(loop.operation, (9, 0)).values), UNROLL)


# --- loops ---------------------------------------------------------------------------------------------------


def test_loops_have_names_of_their_own_which_are_those_of_their_banks():
    assert len({(loop.operation, loop.form, loop.name, loop.warps) for loop in LOOPS}) == len(LOOPS)
    for loop in LOOPS:
        its = operands_of(loop)[0]
        places = (its.a, its.b) if loop.operation in TWO else (its.a, its.b, its.c)
        if loop.form == "parities":
            assert loop.name.split() == [("even", "odd")[register % 2] for register in places]
        elif loop.form == "residues":
            assert loop.name.split() == [str(register % 8) for register in places]


def test_no_instruction_reads_what_is_not_computed_yet():
    """A result is written so many clocks later, and nothing but the compiler's own count would wait for it."""
    for loop in LOOPS:
        written = {}
        for i, its in enumerate(operands_of(loop) * 2):  # round the loop
            for register in (its.a, its.b, its.c):
                assert i - written.get(register, -LATENCY) >= LATENCY, f"{loop}: instruction {i % UNROLL}"
            if its.d != RZ:
                written[its.d] = i


def test_what_is_flagged_is_read_again_unless_the_loop_says_otherwise():
    for loop in (each for each in LOOPS if each.form == "reuse" and not re.search("read|again", each.name)):
        its = operands_of(loop)
        for now, after in zip(its, its[1:], strict=False):
            assert all(getattr(now, place) == getattr(after, place) for place in now.reuse), loop


def test_a_wrong_register_fails_and_is_not_timed(monkeypatch):
    class Wrong(Entered):
        """A GPU that leaves all registers as they were."""

        def __init__(self, cubin: bytes) -> None: ...

        def launch(self, kernel, blocks, threads, words, clocks, trips):
            assert trips.value == 1, "it was timed"

    monkeypatch.setattr(registers, "Image", Wrong)
    monkeypatch.setattr(registers, "DEVICE", "cpu")
    values = registers._measure(LOOPS[0], patched.compiled("FFMA", (9, 0)), sms=2)
    assert values["status"] == FAIL and "of 18432 registers do not hold what they should" in values["detail"]


@pytest.mark.gpu
@pytest.mark.parametrize("loop", LOOPS[::20], ids=str)
def test_on_a_gpu_a_loop_computes_what_its_registers_say(loop):
    row = registers._loop_row(loop, "cuda")
    assert row.status == PASS, row.detail
    assert row.clocks_low <= row.clocks <= row.clocks_high and row.clocks >= 1


# --- rewritten rungs -----------------------------------------------------------------------------------------

KERNELS = [item for item in gemm_ref.implementations() if item.dialect == "cuda" and item.stage.number in RUNGS]
ITEMS = [item for item in KERNELS if item.variant == item.stage.find_variant("default", "cuda")]
SHAPES = ((33, 129, 57), (0, 4, 3), (5, 7, 0))  # partial tiles, and nothing to store or to sum


@pytest.mark.parametrize("item", ITEMS, ids=str)
def test_a_rung_is_right_by_all_rules(item):
    fn = cuda_kernels.gemm_rewritten(item, tuple(RULES))
    for m, n, k in SHAPES:
        a, b = gemm_ref.make_inputs(gemm_ref.Problem(m, n, k), "integers")
        gemm_ref.checked_run(fn, a, b, exact=True, config=item.config)


def test_each_rule_alone_changes_what_is_compiled_or_finds_nothing_and_is_an_error():
    for rules in FORMS.values():
        assert (source.ptx(ITEMS[-1], rules=rules) == source.ptx(ITEMS[-1])) == (not rules)
    for rule in RULES:
        with pytest.raises(ValueError, match=f"{rule}.*nothing to change"):
            rewrite("int main() {}", (rule,))


def test_a_block_that_asks_for_more_memory_computes_the_same():
    a, b = gemm_ref.make_inputs(gemm_ref.Problem(*SHAPES[0]), "integers")
    gemm_ref.checked_run(cuda_kernels.gemm_rewritten(ITEMS[0], (), 1 << 16), a, b, exact=True, config=ITEMS[0].config)


# --- rows ----------------------------------------------------------------------------------------------------


def test_without_a_gpu_there_is_what_the_machine_code_says():
    loops = [loop for loop in LOOPS if loop.form == "reads"]
    rows = list(registers.measure(Request("cpu"), loops, NoBars()))
    assert {row.status for row in rows} == {PASS} and all(row.clocks is None for row in rows)
    predicted = {row.variant: row.predicted for row in rows}
    assert predicted["0 even, 0 odd"] == predicted["1 even, 1 odd"] == 1
    assert (predicted["2 even, 1 odd"], predicted["3 even, 0 odd"]) == (2, 3)


def test_a_rung_that_is_alone_anyway_is_one_row():
    """s10 `one_block` has registers for one block, `two_blocks` for two."""
    rungs = [each for each in registers.CONTENDERS if isinstance(each, Rewritten) and each.stage == "s10_double_buffer"]
    small = (Problem(512, 512, 512),)
    rows = list(registers.measure(Request("cpu", problems=small), [r for r in rungs if r.form == "as it is"], NoBars()))
    assert [(row.variant, row.warps) for row in rows] == [("one_block", 2), ("two_blocks", 4), ("two_blocks", 2)]
    assert all(row.predicted > 1 and row.registers <= 255 and row.status == PASS for row in rows)
    assert {rung.form for rung in rungs} == set(FORMS)


def test_loops_that_were_not_measured_leave_their_panel_empty(tmp_path, draw_pictures):
    def without(frame):
        return frame[frame["form"].isin(["parities", "reuse"])]

    assert draw_pictures("registers", folder=changed(tmp_path, registers=without)).keys() == {"registers_banks"}


def test_clocks_are_of_a_schedulers_multiply_adds():
    """1024 cubed on one multiprocessor: 2^23 FFMA of a warp for each of 4 schedulers."""
    row = replace(registers._loop_row(LOOPS[0], "cpu"), m=1024, n=1024, k=1024, median_us=8388.608, sm_mhz=2000.0)
    row = replace(row, p20_us=8388.608, p80_us=2 * 8388.608)
    timed = registers.with_clocks(row, 1)
    assert (timed.clocks, timed.clocks_low, timed.clocks_high) == pytest.approx((2, 2, 4))
    assert registers.with_clocks(replace(row, sm_mhz=None), 1).clocks is None


def test_another_gpu_and_other_filters_leave_it_out_with_a_reason(monkeypatch):
    loop, rung = LOOPS[0], registers.CONTENDERS[-1]
    assert not registers.unsuited(loop, Request("cuda")) and not registers.unsuited(rung, Request("cuda"))
    assert "choose rungs" in registers.unsuited(loop, Request("cuda", stages=("s12_async_copy",)))
    assert not registers.unsuited(rung, Request("cuda", stages=(rung.stage,)))
    assert registers.unsuited(rung, Request("cuda", stages=("s01_naive",)))
    assert "--backend" in registers.unsuited(rung, Request("cuda", backends=("triton",)))
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (12, 0))
    rows = list(registers.measure(Request("cuda"), [loop, rung], NoBars()))
    assert [row.status for row in rows] == [SKIPPED, SKIPPED]
    assert "8.0 to 9.0; this GPU has 12.0" in rows[0].detail and "known of sm_80, sm_90a" in rows[1].detail
