"""What looks faster than it is is never timed, or its row is a failure without a time; and who is timed at all."""

from __future__ import annotations

import io

import numpy as np
import pytest
import torch
from rich.console import Console

from experiments.bench import eligibility, floor, measure
from experiments.bench.measure import Bench, Setting
from experiments.bench.rounds import MIN_USEFUL_ROUNDS, RoundPlan
from experiments.bench.verify import CheckResult, DeviceLost, Inputs
from experiments.progress import Bars
from experiments.records import store, studies
from experiments.records.contenders import Contender, contenders
from experiments.records.request import Request
from experiments.records.rows import COLD, ERROR, FAIL, GRAPH, PASS, SKIPPED, TimedRow
from gemm_ref import Problem
from tests.experiments.fixtures import ENVIRONMENT, H200

ON_H200 = ENVIRONMENT | {"device": "NVIDIA H200", "gpu": H200}
PROBLEM = Problem(24, 40, 32)


def honest(a, b, out):
    return torch.mm(a, b, out=out)


def by_address():
    """Returns what it has computed from matrices at the same addresses."""
    results = {}

    def fn(a, b, out):
        places = a.data_ptr(), b.data_ptr()
        return out.copy_(results.setdefault(places, a @ b))

    return fn


def in_place():
    """Leaves alone a C that it has filled before."""
    filled = set()

    def fn(a, b, out):
        if out.data_ptr() not in filled:
            filled.add(out.data_ptr())
            torch.mm(a, b, out=out)
        return out

    return fn


def early_from(call, error=None):
    """Does nothing from some call on, or raises the error then."""
    calls = []

    def fn(a, b, out):
        calls.append(out)
        if len(calls) > call and error:
            raise error
        return out if len(calls) > call else torch.mm(a, b, out=out)

    return fn


def without_last_products(a, b, out):
    return torch.mm(a[:, :-1], b[:-1], out=out)


def in_fewer_bits(a, b, out):
    return out.copy_(a.bfloat16().float() @ b.bfloat16().float())


@pytest.fixture
def time_all(monkeypatch):
    """`time_all(fn, ...)`: the rows of functions that are timed on the CPU in three rounds, as they come."""

    def rows(*fns):
        monkeypatch.setattr(measure, "CPU_PLAN", RoundPlan.exactly(3))
        pool = [Contender(fn.__name__, "default", "cpu", "", "fp32", ("cpu",), lambda fn=fn: fn) for fn in fns]
        with Bars(Console(file=io.StringIO())) as bars, Bench(Setting("ladder", "cpu"), pool, bars) as bench:
            yield from bench.time(PROBLEM)

    return rows


@pytest.mark.parametrize(
    ("plant", "said"),
    [
        (by_address, "right until it was timed, then, with -A in the place of A"),
        (in_place, ""),
        (lambda: early_from(5), "-A"),
        (lambda: early_from(2), "normal"),  # the third check
        (lambda: in_fewer_bits, "one_hot"),
        (lambda: without_last_products, "k_tail"),
    ],
)
def test_what_does_not_work_in_each_call_has_no_time(time_all, plant, said):
    cheat, fair = time_all(plant(), honest)
    assert cheat.status == FAIL and cheat.median_us is None and cheat.tflops is None and said in cheat.detail
    assert fair.status == PASS and fair.median_us > 0 and fair.repeats == 3


def test_what_breaks_off_while_it_is_timed_is_an_error_and_the_others_are_timed(time_all):
    broken, fair = time_all(early_from(4, RuntimeError("it broke off")), honest)
    assert (broken.status, broken.median_us) == (ERROR, None) and "broke off" in broken.detail
    assert (fair.status, fair.repeats) == (PASS, 3)


@pytest.mark.parametrize("finished", [MIN_USEFUL_ROUNDS, MIN_USEFUL_ROUNDS - 1])
def test_interruption_hands_over_the_finished_rounds(time_all, monkeypatch, finished):
    found = time_all(early_from(3 + finished, KeyboardInterrupt()))  # after three checks
    monkeypatch.setattr(RoundPlan, "exactly", lambda count: RoundPlan(max_rounds=9, precision=0.0))
    if finished == MIN_USEFUL_ROUNDS:
        assert next(found).repeats == finished
    with pytest.raises(KeyboardInterrupt):
        next(found)


def test_after_a_gpu_was_lost_nothing_is_timed(time_all, monkeypatch):
    lost = CheckResult(ERROR, "illegal access", lost="the GPU is unusable")
    monkeypatch.setattr(measure, "verify", lambda *_, **__: lost)
    found = time_all(honest, honest)
    assert (row := next(found)).status == ERROR and row.detail == "illegal access"
    with pytest.raises(DeviceLost, match="the GPU is unusable"):
        next(found)


@pytest.mark.parametrize(
    ("wrong", "reference"), [((), "cublas"), (("cublas",), "cublaslt_best"), (("cublas", "cublaslt_best"), None)]
)
def test_where_cublas_is_wrong_shares_are_of_the_next_right_baseline(wrong, reference):
    """A rung is no baseline, a library of the CPU is not beside it, and the control is cuBLAS."""
    names = ("numpy_blas", "s01_naive", "cublaslt_best", "cublas")
    pool = [next(each for each in contenders() if each.stage == name and each.math == "fp32") for name in names]
    pool.append(eligibility.control_of(pool[-1]))
    inputs = [Inputs.make(PROBLEM, "normal")]
    entries = [measure.Product(Setting("squares", "cuda"), each, inputs) for each in pool]
    for entry in entries:
        entry.is_wrong = entry.contender.stage in wrong
    passed = [entry for entry in entries if not entry.is_wrong]
    found = measure.select_reference(entries, passed)
    assert (found and found.contender.stage) == reference
    times_us = {entry: np.array([2.0, 2.0, 2.0]) for entry in passed}
    entries[1].reference = found
    detail = "a share of cublaslt_best, as cuBLAS is wrong" if reference == "cublaslt_best" else ""
    row = entries[1].row(**entries[1].ratios(times_us))
    assert (row.detail, row.vs_cublas) == (detail, 1.0 if reference else None)
    assert measure.select_reference(entries[:2], entries[:2]) is None


def test_no_published_time_is_of_a_product_that_lost_the_end_of_k():
    """Eight of K products of normal numbers are sqrt(8 / K) of the norm: the error of a row of any kernel is less."""
    seen = 0
    for folder in store.published():
        for name in studies.names():
            frame = store.read(folder, name)
            if {"median_us", "rel_error"} <= set(frame):
                rows = frame[frame["median_us"].notna() & frame["rel_error"].notna()]
                assert (rows["rel_error"] < 0.5 * np.sqrt(8 / rows["k"])).all(), (folder, name)
                seen += int((rows["dialect"] == "").sum())
    assert seen > 3000, "rows of baselines"


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn])
def test_signs_are_flipped_in_place(dtype):
    x = torch.tensor([[1.0, -2.0], [0.0, 3.5]]).to(dtype).T
    before, place = x.float().clone(), x.data_ptr()
    measure.negate_in_place(x)
    assert torch.equal(x.float(), -before) and x.data_ptr() == place and not x.is_contiguous()


def timed(us: float, problem: Problem, mode: str = COLD, **values) -> TimedRow:
    about = Contender("s19_any_shape", "default", "cuda", "cuda", problem.math, ("cuda",), lambda: honest)
    values |= {"median_us": us, "p20_us": us, "p80_us": us, "repeats": 7, "tflops": 1.0, "verdict": "FASTER"}
    return TimedRow.about("ladder", about, problem, mode=mode, vs_cublas=3.0, **values)


@pytest.mark.parametrize(
    ("problem", "mode", "least", "why"),
    [
        (Problem(4096, 4096, 4096), COLD, 2054.3, "multiply-adds take"),  # 2 * 4096^3 at 66.9 TFLOP/s
        (Problem(4096, 4096, 4096, "bf16"), GRAPH, 128.4, "multiply-adds take"),  # at 1070.4
        (Problem(4096, 4096, 4096, "fp8"), GRAPH, 64.2, "multiply-adds take"),
        (Problem(1, 16384, 16384), COLD, 111.9, "half of A and B"),  # 512 MiB at 4.8 TB/s
    ],
)
def test_nobody_is_faster_than_the_device(problem, mode, least, why):
    possible = timed(1.01 * least, problem, mode)
    assert floor.judge(possible, ON_H200) is possible
    found = floor.judge(timed(0.99 * least, problem, mode), ON_H200)
    assert found.status == FAIL and why in found.detail and "another stream" in found.detail
    assert found.median_us is found.tflops is found.vs_cublas is found.repeats is None and not found.verdict


def test_the_floor_is_of_what_is_known_and_must_be_read():
    in_a_warm_cache, on_an_unknown_gpu = timed(20.0, Problem(1, 16384, 16384), GRAPH), timed(1e-3, PROBLEM)
    assert floor.judge(in_a_warm_cache, ON_H200) is in_a_warm_cache
    assert floor.judge(on_an_unknown_gpu, ENVIRONMENT) is on_an_unknown_gpu


@pytest.mark.parametrize(
    ("name", "request_", "why"),
    [
        ("s01_naive cuda", Request("cuda"), ""),
        ("s01_naive cuda", Request("cuda", problems=(Problem(0, 0, 0),)), "nothing to time at size 0x0x0"),
        ("s01_naive cuda", Request("cpu"), "timed only on a GPU"),
        ("s15_wmma cuda bf16", Request("cuda"), "only if --math asks for it"),
        ("s15_wmma cuda bf16", Request("cuda", math="bf16"), ""),
        ("cublas", Request("cpu"), "cublas needs a GPU"),
        ("numpy_blas", Request("cpu"), ""),
    ],
)
def test_who_is_timed(name, request_, why):
    contender = next(each for each in contenders() if str(each) in (name, f"{name} fp32"))
    found = eligibility.unsuited(contender, request_)
    assert why in found and bool(why) == bool(found)


def test_a_baseline_that_would_take_minutes_is_left_out():
    loop = next(each for each in contenders() if each.stage == "cpu_loop")
    found = eligibility.too_slow_on_cpu(loop, Problem(4096, 4096, 4096))
    assert found.status == SKIPPED and "344 s" in found.detail
    assert eligibility.too_slow_on_cpu(loop, PROBLEM) is None
