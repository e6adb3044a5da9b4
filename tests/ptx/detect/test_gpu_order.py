"""Order between blocks on tiny kernels (faults.cu): what makes it, and a race wherever a part of it is missing."""

from __future__ import annotations

import pytest
import torch

from gemm_ref import Launch, ptx
from gemm_ref.ptx.detect.finding import RACE, TWICE
from tests.ptx.detect.test_detectors import marks, text

THREADS, BLOCKS = 64, 5


def line(name: str) -> int:
    (number,) = (number for (_, number), mark in marks().items() if mark == f"B-{name}")
    return number


def last_adds(fault: int, blocks: int = BLOCKS) -> tuple[list[ptx.Finding], torch.Tensor]:
    detectors, tickets, out = ptx.Detectors(()), torch.zeros(blocks).int(), torch.zeros(THREADS)
    launch = Launch((blocks, 1, 1), (THREADS, 1, 1), partly=("tickets", "out"))
    args = [torch.zeros(blocks * THREADS), tickets, out, fault]
    ptx.run(ptx.load(text(), "last_adds"), launch, args, [detectors], names=("parts", "tickets", "out"))
    assert fault in (6, 7) or not tickets.any() or fault == 9
    return list(detectors.findings), out


@pytest.fixture(params=[1, BLOCKS], ids=["a machine per block", "one machine"])
def together(request, monkeypatch):
    """Blocks that run at the same time on the reference GPU."""
    monkeypatch.setattr("gemm_ref.ptx.program.BATCH_LANES", request.param * THREADS)


@pytest.mark.parametrize("fault", [0, 9, 10, 11, 12, 13])
def test_who_takes_the_last_ticket_may_read_what_all_have_stored(together, fault):
    found, out = last_adds(fault)
    assert found == [] and torch.equal(out, BLOCKS * torch.arange(THREADS - 1.0, -1, -1))


@pytest.mark.parametrize(
    ("fault", "written"), [(1, "W"), (2, "W"), (3, "W"), (4, "W4"), (5, "W"), (6, "W"), (8, "W8"), (14, "W"), (15, "W")]
)
def test_a_part_that_is_missing_makes_a_race(together, fault, written):
    found, _ = last_adds(fault)
    races = [(finding.line, finding.other_line) for finding in found if finding.kind == RACE]
    assert (line("R"), line(written)) in races


def test_atomics_of_a_block_alone_meet_those_of_others(together):
    """And what they count is not known to another block either."""
    found, _ = last_adds(7)
    assert [finding.kind for finding in found if finding.other_line == line("W")] == [RACE]
    assert [finding.kind for finding in found if "atom" in str(finding) and finding.kind == TWICE]


def hand_on(fault: int) -> list[tuple[str, int, int]]:
    detectors, launch = ptx.Detectors(()), Launch((3, 1, 1), (32, 1, 1))
    args = [torch.zeros(1), torch.zeros(3).int(), torch.zeros(1), fault]
    ptx.run(ptx.load(text(), "hand_on"), launch, args, [detectors], names=("parts", "flags", "out"))
    return [(finding.kind, finding.line, finding.other_line) for finding in detectors.findings]


@pytest.mark.parametrize("fault", [0, 6, 7, 8])
@pytest.mark.parametrize("batch", [32, 96], ids=["a machine per block", "one machine"])
def test_a_block_passes_on_what_it_was_told(fault, batch, monkeypatch):
    monkeypatch.setattr("gemm_ref.ptx.program.BATCH_LANES", batch)
    assert hand_on(fault) == []


@pytest.mark.parametrize("fault", [1, 2, 3, 4])
@pytest.mark.parametrize("batch", [32, 96], ids=["a machine per block", "one machine"])
def test_a_chain_that_is_broken_makes_a_race(fault, batch, monkeypatch):
    monkeypatch.setattr("gemm_ref.ptx.program.BATCH_LANES", batch)
    assert hand_on(fault) == [(RACE, line("G"), line("P"))]


def test_a_plain_store_tells_nobody_anything():
    assert {(RACE, line("L"), line("F")), (RACE, line("G"), line("P"))} <= set(hand_on(5))


def test_the_advice_says_what_orders_blocks():
    found, _ = last_adds(2)
    assert "__threadfence()" in str(found[0]) and "nothing orders the two" in str(found[0])
