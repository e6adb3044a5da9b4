"""Order between Triton's programs, as its atomics are compiled: what is right is silent, and what is relaxed races."""

from __future__ import annotations

import pytest
import torch

from gemm_ref import ptx
from gemm_ref.ptx.detect.finding import RACE
from tests.triton_kernels import programs
from triton_kernels.reference_gpu import on_reference_gpu

PROGRAMS = 5


def run(kernel, *constants: str) -> tuple[ptx.Finding, ...]:
    x = torch.arange(PROGRAMS * programs.SIZE).float().view(PROGRAMS, -1)
    parts, words, c = torch.full_like(x, float("nan")), torch.zeros(PROGRAMS).int(), torch.zeros(programs.SIZE)
    names = {parts.data_ptr(): "parts", words.data_ptr(): "words", c.data_ptr(): "c"}
    with ptx.watched(detectors := ptx.Detectors(())), on_reference_gpu(lambda t: names.get(t.data_ptr(), "x")):
        kernel[(PROGRAMS,)](x, parts, words, c, programs.SIZE, *constants, num_warps=4)
    assert torch.equal(c, x.sum(0).flip(0)) and not words.any()
    return tuple(each for each in detectors.findings if each.kind == RACE)


@pytest.mark.parametrize(
    "kernel, constants", [(programs.last_adds, ["acq_rel"]), (programs.owner_waits, ["release", "acquire"])]
)
def test_what_is_released_and_acquired_is_in_order(kernel, constants):
    assert run(kernel, *constants) == ()


@pytest.mark.parametrize("kernel, constants", [
    *((programs.last_adds, [sem]) for sem in ("relaxed", "release", "acquire")),
    *((programs.owner_waits, sems) for sems in (["relaxed", "acquire"], ["release", "relaxed"])),
])  # fmt: skip
def test_what_is_not_is_a_race(kernel, constants):
    assert run(kernel, *constants)
