"""What a call costs the host: who takes part, what is timed and how, and what is drawn of it."""

from __future__ import annotations

import dataclasses

import pytest
import torch

import gemm_ref
from experiments.records.contenders import Contender, contenders
from experiments.records.request import Request
from experiments.records.rows import ERROR, PASS
from experiments.studies.host import study as host
from experiments.studies.host.row import HostRow
from gemm_ref import Problem
from tests.experiments.fixtures import NoBars, raising

ON_GPU = Request("cuda")


def _select(request: Request = ON_GPU) -> list[Contender]:
    return [each for each in contenders() if not host.unsuited(each, request)]


def test_each_rung_takes_part_once_in_each_of_its_dialects():
    kernels = [(stage.id, dialect) for stage in gemm_ref.STAGES.values() for dialect in stage.dialects]
    assert sorted((each.stage, each.dialect) for each in _select()) == sorted(kernels)
    assert {each.math for each in _select()} == {stage.maths[0] for stage in gemm_ref.STAGES.values()}
    assert {each.stage for each in _select(Request("cuda", math="fp8"))} == {s.id for s in gemm_ref.stages_in("fp8")}
    assert _select(Request("cpu")) == []


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
    assert [(row.stage, row.status) for row in rows] == [
        ("s02_coalesced", ERROR), ("s01_naive", PASS), (host.TORCH, PASS),
    ]  # fmt: skip
    for row in rows[1:]:
        assert row.repeats == 3 and 0 < row.p20_us <= row.median_us <= row.p80_us and (row.m, row.math) == (16, "fp32")
    first = seen.index("synchronize")
    burst = ["synchronize", *["call"] * host.BURST, "synchronize"]  # and then torch's turn, which is not seen
    assert seen[first:] == burst * (1 + 3) + ["check"]  # a warm-up, the rounds, and the repeat with -A


def test_the_plot_shows_every_rung_and_torch(draw_pictures, tmp_path):
    everyone = [*_select(), *map(host._torch, ("fp32", "bf16"))]
    rows = [
        HostRow.about("host", each, Problem(s, s, s), median_us=10.0 + s, p20_us=9.0 + s, p80_us=12.0 + s, repeats=9)
        for s in (64, 256)
        for each in everyone
    ]
    (svg,) = draw_pictures("host", rows).values()
    for text in ("torch matmul, fp32", "torch matmul, bf16", "s01 naive", "s18 warp specialized", "M = N = K = 64"):
        assert text in svg
    torch_alone = [row for row in rows if not row.dialect]
    assert len(draw_pictures("host", torch_alone, tmp_path / "torch")) == 1
    nothing = [dataclasses.replace(row, median_us=None, status=ERROR) for row in rows]
    assert draw_pictures("host", nothing, tmp_path / "nothing") == {}


@pytest.mark.gpu
def test_on_a_gpu_every_contender_is_timed(monkeypatch):
    monkeypatch.setattr(host, "ROUNDS", 3)
    request = Request("cuda", problems=(Problem(64, 64, 64),))
    rows = list(host.measure(request, _select(), NoBars()))
    of_torch = [row.math for row in rows if row.stage == host.TORCH]
    assert {row.status for row in rows} == {PASS} and len(rows) == len(_select()) + len(of_torch)
    assert sorted(of_torch) == sorted({each.math for each in _select()} - {"tf32", "fp8"})
