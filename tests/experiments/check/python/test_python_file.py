"""`experiments check` on Python files: Triton and Gluon kernels launched by functions of the user's."""

from __future__ import annotations

import pytest

from experiments.check import checker
from experiments.check.faults import FaultKind
from experiments.check.messages import Note, Why
from experiments.check.python.stand_in import MODELS, StandIn, renamed
from experiments.records.request import UsageError
from tests.experiments.check.helpers import codes, values
from tests.experiments.check.python.sources import GLUON, TRITON, TUNED, report

triton = pytest.importorskip("triton")
tma = pytest.importorskip("triton.experimental.gluon.language.nvidia.hopper").tma


@pytest.mark.parametrize("text", [TRITON, GLUON, TUNED], ids=["triton", "gluon", "autotuned"])
def test_a_sound_kernel(text):
    found = report(text, counted=True)
    assert found.sound, found
    assert {line.array for line in found.lines if line.space == "global"} == {"A", "B", "C"}
    assert all(line.quote for line in found.lines)
    assert found.code[0].kernel == "kernel" and found.code[0].registers > 0
    assert (Note.ALLOCATES_C in codes(found.notes)) == (text is GLUON)


ROW_AND_K, STORE_MASK = "mask=(row < M) & (k[None, :] < K)", "acc, mask=(row < M) & (col < N)"
WRONG = {
    "missing mask": (TRITON.replace(ROW_AND_K, "mask=row < M"), FaultKind.OUT_OF_BOUNDS, "a = tl.load(a_ptr"),
    "partial store": (TRITON.replace(STORE_MASK, STORE_MASK[:-1] + " // 2)"), FaultKind.NEVER_WRITTEN, ""),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_fault_is_named_with_its_line(case):
    text, kind, quote = WRONG[case]
    (fault,) = report(text).faults
    assert fault.kind is kind and fault.quote.startswith(quote)


def test_a_dropped_tail():
    found = report(TRITON.replace("range(0, K, BLOCK_K)", "range(0, K - BLOCK_K + 1, BLOCK_K)"))
    assert values(found.why, Why.K_TAIL_DROPPED) == {"step": 32, "missing": 7, "depth": 39}


def test_a_sum_that_is_added_to_c_is_told_where_whole_sizes_are_too_large_for_detectors(monkeypatch):
    monkeypatch.setattr(checker, "MAX_DETECTED", 100)
    added = "acc + tl.load(c_ptr + row * N + col, mask=(row < M) & (col < N)), mask"
    found = report(TRITON.replace("+ col, acc, mask", f"+ col, {added}"), sizes=())
    assert Why.NEEDS_ZEROED_C in codes(found.why)


def test_it_is_judged_by_the_arithmetic_that_is_meant():
    """Triton rounds fp32 operands unless it is told not to."""
    assert report(TRITON, math="tf32").sound
    text = TRITON.replace(', input_precision="ieee"', "")
    found = report(text)
    assert found.sound and Note.REDUCED_BY_TRITON in codes(found.notes)
    assert Note.REDUCED_BY_TRITON not in codes(report(text, math="fp32").notes)


def test_the_driver_is_left_as_it_was():
    before = triton.JITFunction.run, triton.runtime.autotuner.Autotuner.run, triton.runtime.driver._active
    report(TRITON)
    assert (triton.JITFunction.run, triton.runtime.autotuner.Autotuner.run, triton.runtime.driver._active) == before


def test_where_the_compiler_stops():
    text = TRITON.replace("acc = tl.zeros", "odd = tl.arange(0, 33)\n    acc = tl.zeros")
    line = 1 + text[: text.index("odd")].count("\n")
    with pytest.raises(UsageError, match=rf"kernel.py:{line}: `odd = tl.arange\(0, 33\)` does not compile: arange's"):
        report(text)


def test_a_name_that_gluon_has_no_more():
    for old, new in renamed().items():  # none in the oldest Triton
        with pytest.raises(RuntimeError, match="has been removed"):
            getattr(tma, old)(_semantic=True)
        with StandIn(MODELS["sm_90"]).present():
            assert getattr(tma, old) is getattr(tma, new)


USAGE = [
    ("import nowhere_to_be_found", {}, "there is none (left out: line 1: ModuleNotFoundError: No module named"),
    ("x = 1", {}, "gemm(a, b, c) or gemm(a, b): there is none"),
    ("x = (", {}, "kernel.py:1: '(' was never closed: is it Python 3?"),
    ("def f(a, b): pass\ndef g(a, b): pass", {}, "pass --kernel with one of f, g"),
    ("def f(a, b): pass", {"kernel": "g"}, "no function g that launches a kernel: there is f"),
    ("def f(a, n): pass", {}, "f(a, n) has no two matrices among its parameters"),
    ("def fused_softmax(a, b): pass", {}, "(a, b) computes more than a product, by its name (softmax): check"),
    ("def f(a, b, turns): pass", {}, "f(a, b, turns) takes turns, whose value the file does not tell: pass -D turns="),
    ("def f(a, b): return a @ b", {}, "launched no Triton kernel"),
    ("def f(a, b): a.nothing", {}, "kernel.py:1: `def f(a, b): a.nothing` stops f: AttributeError"),
    ("from nowhere import g\ndef f(a, b): g(a)", {}, "name 'g' is not defined (line 1: ModuleNotFoundError"),
    (GLUON.replace("return c", "return a"), {}, "must return C of shape (33, 35); it returned one of (33, 39)"),
    ("def f(a, b): pass", {"block": "16"}, "--block is for CUDA"),
    (GLUON, {"define": "X=1"}, "-D X is no parameter of matmul and no constant of its kernels"),
    (TUNED, {"define": "BLOCK_M=7"}, "no configuration that gemm is tuned over has the values that -D gives"),
    (GLUON, {"like": "sm_1"}, "--like sm_1 is no GPU known here"),
]


@pytest.mark.parametrize(("text", "options", "message"), USAGE, ids=[message[:30] for *_, message in USAGE])
def test_usage_errors(invoke, tmp_path, text, options, message):
    path = tmp_path / "kernel.py"
    path.write_text(text, encoding="utf-8")
    given = [word for name, value in options.items() for word in (f"--{name}", value)]
    result = invoke("check", path, "--device", "cpu", "--size", "33x35x39", *given)
    assert result.exit_code == 2, result.output
    assert message in result.said, result.output
