"""`rounding`: chains that give the bits of whole rungs, checksums that tell, and instructions that differ."""

from __future__ import annotations

from dataclasses import asdict

import numpy as np
import pandas as pd
import pytest
import torch

from cuda_kernels import ceilings
from experiments.records import frames, workloads
from experiments.records.contenders import Contender, contenders
from experiments.records.request import Request
from experiments.records.rows import FAIL, HARDWARE, PASS, PREDICTED
from experiments.studies.rounding import study as rounding
from experiments.studies.rounding.row import RoundingRow
from experiments.studies.shared.dot_vectors import random_vectors
from experiments.studies.shared.dots import DOTS, PER_WARP, modelled, words
from gemm_ref import Launch, Problem, cdiv, get_stage, ptx
from tests.experiments.fixtures import NoBars

CHOSEN = [item for item in contenders() if not rounding.unsuited(item, Request("cpu")) and item.dialect == "cuda"]


def named(stage: str, math: str) -> Contender:
    return next(item for item in CHOSEN if item.stage.startswith(stage) and item.math == math)


@pytest.fixture
def small(monkeypatch):
    """`small(side, known, deep)`: sizes of C and of K up to which whole rungs run, and that chains reach."""

    def set_sizes(side, known, deep):
        monkeypatch.setattr(workloads, "ACCURACY_SIDE", side)
        monkeypatch.setattr(workloads, "ROUNDING_DEPTHS_ON_CPU", {"default": (known, deep)})
        monkeypatch.setattr(workloads, "ROUNDING_KNOWN", known)
        monkeypatch.setattr(workloads, "ROUNDING_WHOLE", known)

    return set_sizes


@pytest.mark.parametrize("stage, math", [("s15", "tf32"), ("s17", "tf32"), ("s18", "fp8")])
def test_what_is_too_deep_for_a_kernel_has_its_bits(small, stage, math):
    small(128, 512, 640)  # operands enough to tell where tf32 is rounded in a tie
    contender = named(stage, math)
    *_, deep = rounding.measure(Request("cpu"), [contender], NoBars())
    (whole,) = rounding.measure(Request("cpu", problems=(Problem(128, 128, 640),)), [contender], NoBars())
    assert (deep.k, deep.view, deep.status) == (640, PREDICTED, PASS)
    assert (deep.checksum, deep.rel_error) == (whole.checksum, whole.rel_error)


def test_what_chooses_by_shape_how_it_adds_has_no_chain(small):
    small(64, 64, 128)
    (row,) = rounding.measure(Request("cpu"), [named("s19", "bf16")], NoBars())
    tile, _, blocks = row.dealt.partition(" x")
    assert row.k == 64 and tile in get_stage("s19").tiles["cuda"] and int(blocks) > 0


def test_products_that_were_dealt_otherwise_are_no_pair():
    values = {"inputs": "normal", "rel_error": 1e-3, "checksum": "0"}
    problem = Problem(64, 64, 64, "bf16")
    rows = [
        RoundingRow.about("rounding", named(stage, "bf16"), problem, **values, view=view, dealt=dealt)
        for stage, (predicted, made) in {"s17": ("", ""), "s19": ("tile64 x1", "tile64 x2")}.items()
        for view, dealt in ((PREDICTED, predicted), (HARDWARE, made))
    ]
    assert frames.pair_products(pd.DataFrame(map(asdict, rows)))["stage"].tolist() == ["s17_wgmma_tma"]


@pytest.mark.parametrize("dots", DOTS[::5], ids=str)
def test_micro_kernels_compute_the_sums_of_their_instruction(dots):
    """On the reference GPU; the last warp has less than its number of vectors."""
    vectors = random_vectors(dots.kinds, dots.k, 3 * PER_WARP - 1, 0)
    blocks = cdiv(len(vectors.c), PER_WARP)
    given, out = torch.from_numpy(words(vectors).view(np.int32)), torch.zeros(blocks * PER_WARP, dtype=torch.int32)
    loaded = ptx.load(ceilings.ptx_of(dots.kernel, (9, 0)))
    launch = Launch((blocks, 1, 1), (dots.kernel.threads, 1, 1))
    ptx.run(loaded, launch, ceilings.arguments(dots.kernel, given, out, 1, blocks), names=("in", "out"))
    sums = out.numpy().view(np.uint32)[: len(vectors.c)].astype(vectors.c.dtype)
    assert np.array_equal(sums, modelled(dots, vectors))


def test_an_instruction_with_another_bit_fails(monkeypatch):
    def one_off(dots, vectors):
        sums = modelled(dots, vectors)
        sums[7] ^= 1
        return sums

    monkeypatch.setattr(rounding, "VECTORS", 500)
    for found, mismatches, status in ((modelled, 0, PASS), (one_off, 1, FAIL)):
        monkeypatch.setattr(rounding, "on_gpu", found)
        row = rounding._vectors(DOTS[0])
        assert (row.view, row.vectors, row.mismatches, row.status) == (HARDWARE, 500, mismatches, status)
