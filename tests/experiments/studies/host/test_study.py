"""What a call costs the host: who takes part, and what is timed and how."""

from __future__ import annotations

import pytest
import torch

import gemm_ref
from experiments.records.contenders import Contender
from experiments.records.request import Request
from experiments.records.rows import ERROR, PASS
from experiments.studies.host import study as host
from gemm_ref import Problem
from tests.experiments.fixtures import NoBars, raising, select_contenders


def test_each_rung_takes_part_once_in_each_of_its_dialects():
    kernels = [(stage.id, dialect) for stage in gemm_ref.STAGES.values() for dialect in stage.dialects]
    chosen = select_contenders(host)
    assert sorted((each.stage, each.dialect) for each in chosen) == sorted(kernels)
    assert {each.math for each in chosen} == {stage.maths[0] for stage in gemm_ref.STAGES.values()}
    in_fp8 = {each.stage for each in select_contenders(host, math="fp8")}
    assert in_fp8 == {stage.id for stage in gemm_ref.stages_in("fp8")}


def _fake(name: str, fn) -> Contender:
    return Contender(name, "default", "cuda", "cuda", "fp32", ("cuda",), lambda: fn)


def test_calls_are_timed_in_turns_and_wrong_ones_not_at_all(monkeypatch):
    seen = []

    def right(a, b, out=None):
        seen.append("call" if out is None else "check")
        return torch.matmul(a, b, out=out)

    monkeypatch.setattr(torch.cuda, "synchronize", lambda: seen.append("synchronize"))
    monkeypatch.setattr(host, "ROUNDS", 3)
    request = Request("cpu", problems=(Problem(16, 16, 16),))
    broken = raising(RuntimeError("does not start"))
    rows = list(host.measure(request, [_fake("s01_naive", right), _fake("s02_coalesced", broken)], NoBars()))
    statuses = [(row.stage, row.status) for row in rows]
    assert statuses == [("s02_coalesced", ERROR), ("s01_naive", PASS), (host.TORCH, PASS)]
    for row in rows[1:]:
        assert row.repeats == 3 and 0 < row.p20_us <= row.median_us <= row.p80_us and (row.m, row.math) == (16, "fp32")
    first = seen.index("synchronize")
    burst = ["synchronize", *["call"] * host.BURST, "synchronize"]  # and then torch's turn, which is not seen
    assert seen[first:] == burst * (1 + 3) + ["check"]  # a warm-up, the rounds, and the repeat with -A


@pytest.mark.gpu
def test_on_a_gpu_every_contender_is_timed(monkeypatch):
    monkeypatch.setattr(host, "ROUNDS", 3)
    chosen = select_contenders(host)
    rows = list(host.measure(Request("cuda", problems=(Problem(64, 64, 64),)), chosen, NoBars()))
    of_torch = [row.math for row in rows if row.stage == host.TORCH]
    assert {row.status for row in rows} == {PASS} and len(rows) == len(chosen) + len(of_torch)
    assert sorted(of_torch) == sorted({each.math for each in chosen} - {"tf32", "fp8"})
