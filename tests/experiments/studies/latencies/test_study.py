"""`latencies`: its loops contain the instructions that they measure, and its values are clocks over what a body is."""

from __future__ import annotations

import contextlib
import re
from dataclasses import replace

import numpy as np
import pytest
import torch

from cuda_kernels.ceilings import FOLDER, loops
from cuda_kernels.ceilings.loops import Compiled, Loop, Walk
from cuda_kernels.ceilings.pieces import LINE
from experiments.records.request import Request
from experiments.records.rows import ERROR, SKIPPED
from experiments.studies.latencies import study
from experiments.studies.latencies.probes import CLOCKS, PROBES, RANDOM, Probe
from gemm_ref.build import BuildError
from gemm_ref.sass import listing, tools
from gemm_ref.sass.control import COUNTERS, controls
from tests.experiments.fixtures import NoBars

CHECKED = (
    "latency.FFMA",
    "request.LDS.128",
    "latency.HGMMA n64",
    "interval.UTMALDG",
    "release.STS.128",
    "release.LDS.32",
)


def test_walk_has_the_fields_of_the_template():
    struct = re.search(r"struct Walk \{(.*?)\};", (FOLDER / "loops.cu").read_text(encoding="utf-8"), re.DOTALL)
    assert struct
    names = re.findall(r"\w+", re.sub(r"//.*|unsigned", "", struct[1]))
    assert names == [name for name, _ in Walk._fields_]


def test_loops_have_the_instruction_that_is_meant():
    """One of each way to write a loop; the whole study checks the others when it runs."""
    chosen = [PROBES[name].loop for name in CHECKED]
    built = loops.compile_loops([*chosen, replace(chosen[0], opcode="DFMA")], (9, 0))
    assert isinstance(built[-1], BuildError) and "0 DFMA, not 256" in str(built[-1])
    kernels = {kernel.name: kernel for kernel in listing.parse(tools.disassemble(built[0].cubin))}
    for loop, own in zip(chosen, built[:-1], strict=True):
        assert isinstance(own, Compiled), own
        if loop.waits_for_operands:
            codes = controls(built[-2].cubin, own.kernel)
            (places,) = loop.places(kernels[own.kernel]).values()
            assert all(codes[i].operands == COUNTERS - 1 in codes[i].waits and codes[i].stall >= 2 for i in places)


@pytest.fixture
def measured(monkeypatch):
    """A machine of 2 multiprocessors, on which a body takes 6 clocks more with every block."""

    def launch(self, image, kernel, data, tensor_map, trips):
        ends = 6 * self.unroll * trips * torch.arange(1, self.blocks + 1)
        return torch.stack([torch.zeros_like(ends), ends, torch.arange(self.blocks) % 2], 1)[:, None, :]

    monkeypatch.setattr(study, "DEVICE", "cpu")
    monkeypatch.setattr(study, "multiprocessors", lambda: 2)
    monkeypatch.setattr(study, "Image", lambda cubin: contextlib.nullcontext())
    monkeypatch.setattr(Loop, "launch", launch)


def test_values_are_clocks_over_instructions_or_bytes_over_clocks(measured):
    found = {name: set(study._loop_values(PROBES[name], Compiled(b"", ""), {})) for name in (
        "latency.FFMA", "interval.FFMA", "request.LDS.32", "bandwidth.STG.128", "barrier.32")}  # fmt: skip
    assert found.pop("bandwidth.STG.128") == {1024 * 16 / 6, 1024 * 16 / 12}
    assert found == {"latency.FFMA": {6}, "interval.FFMA": {6 / 8}, "request.LDS.32": {6 / 16}, "barrier.32": {6}}


def test_blocks_follow_each_other_on_their_multiprocessor(measured):
    starts = list(study._starts(None, "", study.EMPTY, 4))
    assert [len(own) for own in starts] == [2, 2] and all((np.diff(own[:, 0]) >= 0).all() for own in starts)


def test_random_lines_are_one_ring(measured):
    probe = Probe("", Loop("", ""), "", data=RANDOM, data_bytes=64 * LINE)
    data, _ = study._memory(probe, {})
    place, seen = 0, set()
    for _ in range(64):
        seen.add(place)
        place = (int(data[place * LINE // 8]) - data.data_ptr()) // LINE
    assert place == 0 and seen == set(range(64)) and probe.unit == CLOCKS


def test_another_architecture_is_skipped_and_what_breaks_is_a_row(monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (8, 0))
    rows = list(study.measure(Request("cuda"), list(PROBES.values())[:2], NoBars()))
    assert [row.status for row in rows] == [SKIPPED] * 2 and "9.0; this GPU has 8.0" in rows[0].detail
    row = study._measured(PROBES["latency.FFMA"], BuildError("no FFMA"), {})
    assert (row.status, row.stage) == (ERROR, "latency.FFMA") and "no FFMA" in row.detail
