"""The clock: paths through machine code, the simulated multiprocessor, and predicted times beside measured ones."""

from __future__ import annotations

import functools
from dataclasses import replace

import numpy as np
import pytest

import cuda_kernels
from experiments.records.store import PUBLISHED, read
from gemm_ref import MATHS, Problem, clock
from gemm_ref.clock import flow, recorder, sample, traffic
from gemm_ref.clock.machine import L1, Multiprocessor, Rates, Step
from gemm_ref.clock.predict import machine_code
from gemm_ref.clock.steps import Steps
from gemm_ref.launch import Launch
from gemm_ref.ptx.core.events import KernelInfo, first_block, watched
from gemm_ref.sass.control import ControlCode
from gemm_ref.sass.listing import Instruction, SassKernel

RATES = Rates(
    l2_bytes=32, stored_bytes=8, memory_bytes=16, memory_latency=600, l1_latency=30, shared_latency=16,
    return_bytes=64, to_shared=4, barrier=(12, 2),
)  # fmt: skip
PLAIN = Step(0, "FFMA", stall=1, result=7, operands=7, waits=(), reads=(0, 0), is_plain=True)


def clocks(steps: list[Step], warps: int = 4, blocks: int = 1) -> float:
    """What warps that execute these steps take."""
    return Multiprocessor(RATES, [(steps, ())] * warps, blocks).run().end


def observed(stage: str, problem: Problem, **names: str) -> list[sample.Sample]:
    """The samples of a rung's launches."""
    sampler = sample.Sampler()
    with first_block(), watched(sampler):
        cuda_kernels.gemm(*clock.zeros(problem), stage=stage, **names)
    return sampler.samples


@pytest.mark.parametrize(
    "stage, problem, trips",
    [
        ("s01_naive", Problem(64, 64, 256), 16),  # ptxas unrolled the loop over k, with smaller loops for a rest
        ("s08_vectorized", Problem(128, 128, 128), 8),
        ("s15_wmma", Problem(128, 128, 512, math="bf16"), 8),  # an instruction of PTX becomes several
    ],
)
def test_paths_have_the_trips_of_the_main_loop(stage, problem, trips):
    (one,) = observed(stage, problem, math=problem.math)
    kernel, _ = machine_code(one)
    warp = flow.passes(one.kernel.entry, {line: float(count[0]) for line, count in one.executed.items()})
    its = flow.solve(kernel, warp)
    path = flow.walk(its)
    assert path.trips == len(path.heads) == trips
    assert its.unexplained < 0.01
    shortened = flow.walk(its, most_trips=6)
    assert len(shortened.heads) == 6
    assert shortened.places[-1] == path.places[-1], "what follows the loop is executed all the same"


def test_a_scheduler_issues_one_instruction_a_clock_and_warps_share_it():
    assert clocks([PLAIN] * 100) == pytest.approx(100, abs=2)
    assert clocks([PLAIN] * 100, warps=8) == pytest.approx(200, abs=2)
    assert clocks([replace(PLAIN, stall=4)] * 100) == pytest.approx(400, abs=4)
    assert clocks([replace(PLAIN, stall=4)] * 100, warps=16) == pytest.approx(400, abs=4), "others fill the gaps"


def test_a_pipe_takes_its_interval_and_a_counter_its_result():
    slow = replace(PLAIN, pipe="integer", interval=2.0, is_plain=False)
    assert clocks([slow] * 100, warps=8) == pytest.approx(400, abs=4)
    load = replace(PLAIN, result=0, served=1.0, returned=128.0, is_plain=False)
    use = replace(PLAIN, waits=(0,), is_plain=False)
    assert clocks([load, use], warps=1) == pytest.approx(4 + 1 + 16 + 2, abs=1), "LDS.32 as measured: 23 clocks"


def test_shared_memory_serves_the_wavefronts_of_all_warps_in_turn():
    load = replace(PLAIN, result=0, served=8.0, is_plain=False)
    run = Multiprocessor(RATES, [([load] * 50, ())] * 4, blocks=2).run()
    assert sum(each for (resource, _), each in run.busy.items() if resource == L1) == 8 * 50 * 8


def test_a_miss_waits_for_the_slower_of_l2_and_device_memory():
    load = replace(PLAIN, result=0, served=1.0, missed=128.0, unit=128.0, is_global=True, is_plain=False)
    use = replace(PLAIN, waits=(0,), is_plain=False)
    assert clocks([load, use], warps=1) == pytest.approx(4 + 600 + 128 / 16, abs=2)
    assert clocks([load] * 100 + [use], warps=1) == pytest.approx(600 + 100 * 128 / 16, rel=0.02)


def test_what_is_stored_takes_longer_than_what_is_read_and_is_waited_for_at_the_end():
    store = replace(PLAIN, served=1.0, missed=128.0, unit=128.0, is_global=True, is_store=True, is_plain=False)
    run = Multiprocessor(RATES, [([store] * 100, ())], blocks=1).run()
    assert run.end < 300 and run.drained == pytest.approx(100 * 128 / 8, rel=0.02)


def test_uneven_commits_of_a_slice_count_with_all_its_time():
    """Slices of 100 clocks with four commits each, and behind each eighth slice the end of a tile, which is none's."""
    commit = replace(PLAIN, kind="commit products", is_plain=False)
    a_slice = [commit] * 3 + [replace(PLAIN, stall=96), commit]
    steps = ([*a_slice] * 8 + [replace(PLAIN, stall=4000)]) * 4
    heads = [number for number, step in enumerate(steps) if step is commit]
    run = Multiprocessor(RATES, [(steps, heads)], blocks=1).run()
    assert run.commit == pytest.approx(100 / 4, rel=0.1)


def test_a_barrier_holds_the_first_until_the_last():
    late = [replace(PLAIN, stall=15)] * 10
    meet = replace(PLAIN, barrier="0x0", is_plain=False)
    run = Multiprocessor(RATES, [([meet, PLAIN], ()), ([*late, meet, PLAIN], ())], blocks=1).run()
    assert run.end == pytest.approx(150 + 12 + 2 * 2, abs=4)


def test_warps_that_wait_forever_are_an_error():
    meet = replace(PLAIN, barrier="0x1", arrivals=2, is_plain=False)
    with pytest.raises(ValueError, match="wait for each other forever"):
        clocks([meet, PLAIN], warps=1)


def test_what_blocks_share_is_read_once():
    launch = Launch((32, 32, 1), (256, 1, 1))
    info = KernelInfo(entry=None, static_shared=None, dynamic_shared=())
    a_row, b_column = set(range(1000)), set(range(2000, 3000))  # sectors of a block's panels
    one = sample.Sample(info, launch, sectors={"A": a_row, "B": b_column}, sizes={"A": 32_000 * 32, "B": 32_000 * 32})
    # 32 blocks of a row read one panel of A and all 32 of B.
    assert traffic.memory_share(one, 32, 1, l2_bytes=0) == pytest.approx(33 / 64)
    assert traffic.memory_share(one, 1024, 1, l2_bytes=0) == pytest.approx(64 / 2048)
    assert traffic.memory_share(one, 32, 1, l2_bytes=1e9) == pytest.approx(64 / 2048), "all fits L2"
    row = replace(one, launch=Launch((112, 1, 1), (256, 1, 1)), sizes={"A": 32_000, "B": 112 * 32_000})
    assert traffic.memory_share(row, 112, 1, l2_bytes=0) == pytest.approx(113 / 224), "one panel of A, each of B"
    assert traffic.least_us(row, 2, bytes_per_us=1000) == 2 * 113 * 32


@functools.cache
def measured(stage: str, variant: str) -> float:
    """Microseconds at 4096 that ladder.csv of the H200 has for a rung in CUDA."""
    rows = read(PUBLISHED, "ladder")
    rows = rows[(rows.stage == stage) & (rows.variant == variant) & (rows.dialect == "cuda") & (rows.m == rows.k)]
    return float(rows.median_us.iloc[0])


@pytest.mark.parametrize(
    "stage, variant, limit, is_wait",
    [
        ("s01_naive", "default", "L1 cache and shared memory", False),
        ("s05_bank_conflict", "conflicted", "L1 cache and shared memory", False),
        ("s09_conflict_free", "one_block", "waiting for global memory", True),
        ("s12_async_copy", "wide", "issue slots", False),
    ],
)
def test_predicted_times_are_near_the_published_ones(stage, variant, limit, is_wait):
    """No constant is fitted to them, so this holds the model's error (docs/clock.md has all rungs)."""
    gemm = functools.partial(cuda_kernels.gemm, stage=stage, variant=variant)
    prediction = clock.predict(gemm, Problem(4096, 4096, 4096), "nvidia-h200")
    assert prediction.microseconds == pytest.approx(measured(stage, variant), rel=0.12)
    assert (prediction.limit.name, prediction.limit.is_wait) == (limit, is_wait)
    assert prediction.lines[0].file.endswith(f"{stage}.cu")
    assert sum(line.share for line in prediction.lines) == pytest.approx(1)
    assert max(prediction.longest.busy.values()) <= 1


def test_a_kernel_that_waits_for_tensor_cores_and_copies_is_predicted_from_its_record():
    """Within 15%: the model leaves out what the first copies and the ends of tiles cost (docs/clock.md)."""
    gemm = functools.partial(cuda_kernels.gemm, stage="s17_wgmma_tma")
    prediction = clock.predict(gemm, Problem(4096, 4096, 4096, math="bf16"), "h200")
    rows = read(PUBLISHED, "tensor_cores")
    rows = rows[(rows.stage == "s17_wgmma_tma") & (rows.dialect == "cuda") & (rows.math == "bf16") & (rows.m == 4096)]
    square = rows[(rows.n == 4096) & (rows.k == 4096)]
    assert prediction.microseconds == pytest.approx(float(square.median_us.iloc[0]), rel=0.15)
    assert prediction.limit.name == "tensor cores" and not prediction.limit.is_wait


def test_a_line_has_what_is_called_there_in_other_files():
    def place(file, line, share, *callers, **waits):
        return clock.Line(file, line, share, waits, callers)

    places = (
        place("mine.cu", 3, 0.2, pipe=0.1),
        place("mma.cuh", 9, 0.3, "mma.cuh:20", "mine.cu:3", tensor=0.25),
        place("mma.cuh", 9, 0.4, "mine.cu:7", tensor=0.1),
        place("", 0, 0.1),
    )
    launch = clock.LaunchTime("mine", 1.0, None, 1.0, {"issue": 0.5}, {"tensor": 0.4}, places, 0.0)
    assert [(each.file, each.line) for each in launch.lines] == [("mma.cuh", 9), ("mine.cu", 3), ("", 0)]
    one, other = launch.lines_in("mine.cu")
    assert (one.line, one.share, one.waits) == (3, pytest.approx(0.5), {"tensor": 0.25, "pipe": 0.1})
    assert one.parts == [("tensor", 0.25, True), ("issue slots", pytest.approx(0.15), False), ("pipe", 0.1, True)]
    assert str(other) == "40% of the time: 30% issue slots, 10% tensor"
    assert launch.limit == ("waiting for tensor cores", 0.4, True)
    assert str(replace(launch, waiting={}).limit) == "issue slots (busy 50% of the time)"


def test_a_phase_ends_when_all_that_ended_it_has_happened():
    """A copy of 1,024 bytes and an arrival end phase 0, for which another warp waits."""
    copy = recorder.Event(recorder.COPY, 5, 0, 1, 1024)
    arrive = recorder.Event(recorder.ARRIVE, 5, 0, 1)
    wait = recorder.Event(recorder.WAIT, 5, 1, 0)
    producer = [replace(PLAIN, events=(copy,), is_plain=False), replace(PLAIN, events=(arrive,), is_plain=False)]
    consumer = [replace(PLAIN, events=(wait,), is_plain=False), PLAIN]
    rates = replace(RATES, mbarrier=60, tma=100)
    run = Multiprocessor(rates, [(producer, ()), (consumer, ())], 1, {(5, 0): 2}).run()
    assert run.end == pytest.approx(600 + 100 + 1024 / 16, abs=3)
    with pytest.raises(ValueError, match="wait for each other forever"):
        Multiprocessor(rates, [(producer, ()), (consumer, ())], 1, {(5, 0): 3}).run()


def test_an_instruction_without_a_cost_is_refused_by_name():
    code = (Instruction("DFMA", "R0, R2, R4, R6", control=ControlCode(1, 7, 7, ())),)
    one = sample.Sample(None, Launch((1, 1, 1), (32, 1, 1)))
    with pytest.raises(clock.NotModelled, match="mine: DFMA has no cost in this model yet"):
        Steps(SassKernel("mine", code, {}), one, clock.read("h200")).of([0])


def test_copies_of_operands_are_part_of_the_time():
    """B by rows, which s17 in tf32 does not read: a launch in front of it that reads and writes 512 x 4096 floats."""
    gemm = functools.partial(cuda_kernels.gemm, stage="s17_wgmma_tma", math="tf32")
    by_rows = clock.predict(gemm, Problem(128, 4096, 512, math="tf32"), "h200")
    by_columns = clock.predict(gemm, Problem(128, 4096, 512, math="tf32", b_layout="nk"), "h200")
    read_and_written = 2 * 512 * 4096 * 4
    assert by_columns.copies_us == () and by_rows.copies_us == (
        pytest.approx(read_and_written / (clock.read("h200").roof["dram_copy"] * 1e6)),
    )
    assert by_rows.launching_us - by_columns.launching_us == pytest.approx(clock.read("h200").launch["gap"])


def test_zeros_have_the_shapes_and_types_of_a_problem():
    a, b = clock.zeros(Problem(3, 5, 7, math="bf16"))
    assert (a.shape, b.shape, a.dtype) == ((3, 7), (7, 5), MATHS["bf16"].dtype)
    assert not np.count_nonzero(a.float().numpy())
