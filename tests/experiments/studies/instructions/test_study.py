"""`instructions` on real compilers, without a GPU; its pictures and its tables."""

from __future__ import annotations

import ctypes
import dataclasses
import functools

import pytest
import torch

from experiments import runner
from experiments.bench.verify import CheckResult
from experiments.records.contenders import Contender, contenders
from experiments.records.request import FULL, Request
from experiments.records.rows import ERROR, PASS, SKIPPED
from experiments.studies.instructions import study as instructions
from experiments.studies.instructions.row import InstructionRow
from gemm_ref import Implementation, Problem, get_stage, implementations, ptx
from gemm_ref.build import BuildError
from gemm_ref.sass import mix, tools
from gemm_ref.sass.occupancy import ARCHITECTURES
from tests.experiments.fixtures import NoBars, changed, raising

pytest.importorskip("triton")  # the tools are in its wheel


def choose(stage: str, variant: str = "", **filters) -> list[Contender]:
    request = Request("cpu", (get_stage(stage).id,), **filters)
    return [each for each in runner.choose(instructions, request, contenders()) if variant in ("", each.variant)]


def measured(stage: str, variant: str = "", **filters) -> list[InstructionRow]:
    request = Request("cpu", **filters)
    return list(instructions.measure(request, choose(stage, variant, **filters), NoBars()))


@functools.cache
def one(stage: str, dialect: str, variant: str = "") -> InstructionRow:
    (row,) = measured(stage, variant, backends=(dialect,))
    assert row.status == PASS, row.detail
    return row


def test_a_trip_adds_up_on_every_architecture_and_waits_where_that_was_measured():
    rows = measured("s08", preset=FULL, backends=("cuda",))
    assert [row.arch for row in rows] == list(ARCHITECTURES)
    for row in rows:
        assert row.status == PASS, row.detail
        assert sum(getattr(row, kind) for kind in mix.KINDS) == row.instructions
        assert row.k_per_trip % get_stage("s08").variants[row.variant].BLOCK_K == 0 and row.k_per_trip > 0
        assert row.threads * row.blocks_per_sm == row.occupancy * 2048
        assert row.ffma_per_lds_byte > 0 and 0 < row.integer_share <= row.ffma_share < 1
    (here,) = (row for row in rows if row.arch == "sm_90a")
    assert {row.clocks for row in rows if row != here} == {row.port_clocks for row in rows if row != here} == {None}
    assert here.ffma == 1024 and here.even_reads + here.odd_reads > 2 * here.ffma  # an operand of three may be kept
    assert here.port_clocks >= max(here.instructions, here.even_reads, here.odd_reads)
    waited = here.wait_registers + here.wait_shared + here.wait_global + here.wait_barrier + here.wait_before
    assert here.clocks - waited == pytest.approx(here.instructions, rel=0.05) and here.clocks > here.port_clocks


def test_the_launch_and_the_cubin_share_out_shared_memory():
    assert one("s08", "cuda").shared_bytes == 2 * 128 * 16 * 4  # a slice of A and B, without what sm_90 reserves
    dynamic = get_stage("s12").launch(4096, 4096, 4096, "tile128").shared_bytes
    assert one("s12", "cuda", "tile128").shared_bytes == dynamic > 0
    assert one("s12", "triton", "tile128").shared_bytes == 3 * 2 * 128 * 16 * 4


def test_of_two_kernels_the_main_one_is_read():
    row = one("s13", "cuda")
    assert row.ffma == 8 * 8 * row.k_per_trip > 0
    assert row.ldgsts_128 and row.ldgsts_32 and not row.ldg_32


def test_where_operations_cannot_be_counted_it_is_said():
    """Triton multiplies by tcgen05 where there is one."""
    contender, *_ = choose("s15", math="bf16", backends=("triton",))
    hopper, blackwell = (instructions._row(contender, Problem(4096, 4096, 4096, "bf16"), f"sm_{n}a") for n in (90, 100))
    assert hopper.status == PASS and hopper.mma and hopper.port_clocks is None
    assert blackwell.status == SKIPPED and blackwell.detail.startswith("UTCHMMA: what tcgen05 multiplies")


def test_threads_that_only_load_do_not_count():
    """A warpgroup of s18 loads, two multiply 64 x 256 x 16 in an MMA; Gluon's loop is behind a jump by a table."""
    for row in measured("s18", math="bf16", backends=("gluon",)) + measured("s17", math="bf16", backends=("cuda",)):
        assert row.status == PASS, row.detail
        assert row.threads == (384 if row.dialect == "gluon" else 256)
        assert row.k_per_trip == 16 * row.mma and row.k_per_trip % 64 == 0


@pytest.mark.parametrize(
    "stage, dialect, counts",
    [
        ("s02", "cuda", {"k_per_trip": 16}),
        ("s02", "triton", {"k_per_trip": 4}),
        ("s04", "cuda", {"lds_128": 8, "lds_32": 32, "ffma": 32}),  # A four k at once, B a word at a time
        ("s06", "gluon", {"lds_128": 32, "ldsm": 4, "ffma": 128}),
        ("s07", "triton", {"lds_128": 80, "ffma": 1024}),
        ("s08", "cuda", {"ldg_128": 4, "sts_128": 4, "ldg_32": 0, "ffma": 1024}),  # the way of whole vectors
    ],
)
def test_what_the_registry_says_of_sass(stage, dialect, counts):
    row = one(stage, dialect)
    assert {kind: getattr(row, kind) for kind in counts} == counts


def test_triton_compiles_for_the_size_that_is_asked_for():
    (odd,) = measured("s08", backends=("triton",), problems=(Problem(4100, 4100, 4100),))
    aligned = one("s08", "triton")
    assert (aligned.ldg_128, aligned.ldg_32) == (4, 0) and (odd.ldg_128, odd.ldg_32) == (0, 16)


def test_what_cannot_be_compiled_or_read_is_a_row_that_says_why(monkeypatch):
    (contender,) = choose("s08", backends=("cuda",))
    aligned = Problem(4096, 4096, 4096)
    with monkeypatch.context() as patch:
        patch.setattr(tools, "disassemble", lambda cubin: ".text.empty:\n /*0000*/ EXIT ;\n")
        row = instructions._row(contender, aligned, "sm_90a")
    assert row.status == ERROR and "no loop with a multiply-add" in row.detail and "empty" in row.detail
    with monkeypatch.context() as patch:
        patch.setattr("cuda_kernels.source.cubin", raising(BuildError("nvcc failed: no such thing")))
        row = instructions._row(contender, aligned, "sm_90a")
    assert row.status == ERROR and "no such thing" in row.detail
    uncounted = CheckResult(SKIPPED, "it ran no kernel"), []
    with monkeypatch.context() as patch:
        patch.setattr(instructions, "count_accesses", lambda *_: uncounted)
        row = instructions._row(contender, aligned, "sm_90a")
    assert (row.status, row.detail) == (SKIPPED, "it ran no kernel")
    monkeypatch.setattr(Contender, "refusal", lambda self, capability: "needs more")
    row = instructions._row(contender, aligned, "sm_80")
    assert (row.status, row.detail) == (SKIPPED, "needs more")


def test_without_the_tools_the_error_says_where_they_come_from(monkeypatch):
    with pytest.raises(BuildError, match="nvdisasm could not read 15 bytes"):
        tools.disassemble(b"no machine code")
    monkeypatch.setattr(tools, "find_toolkit", raising(BuildError("no nvcc")))
    monkeypatch.setattr(tools.shutil, "which", lambda name: None)
    assert tools.find.__wrapped__("nvdisasm").parent.name == "bin"  # in Triton's wheel
    monkeypatch.setattr(tools.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(BuildError, match="nvdisasm was not found: it comes with Triton"):
        tools.find.__wrapped__("nvdisasm")


@pytest.mark.gpu
@pytest.mark.parametrize("item", implementations(("cuda",)), ids=str)
def test_the_driver_counts_the_same_blocks(item: Implementation):
    """cuOccupancyMaxActiveBlocksPerMultiprocessor, of the same cubin."""
    from cuda_kernels import source

    capability = torch.cuda.get_device_capability()
    sm = next((sm for sm in ARCHITECTURES.values() if sm.capability == capability), None)
    if sm is None:
        pytest.skip(f"no limits are known for compute capability {capability}")
    launch = item.stage.launch(4096, 4096, 4096, item.variant)
    item = dataclasses.replace(item, b_layout=item.stage.reads_b(item.math, "cuda")[0])
    code = source.cubin(item, capability).read_bytes()
    row = instructions.examine(code, sm, launch.threads, launch.shared_bytes)
    torch.zeros(1, device="cuda")  # a context
    cuda, module, kernel, blocks = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_int()
    (name,) = ptx.entries(source.ptx(item, capability), called=item.stage.id)
    maximum_dynamic_shared = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
    assert cuda.cuModuleLoadData(ctypes.byref(module), code) == 0
    assert cuda.cuModuleGetFunction(ctypes.byref(kernel), module, name.encode()) == 0
    assert cuda.cuFuncSetAttribute(kernel, maximum_dynamic_shared, launch.shared_bytes) == 0
    count = cuda.cuOccupancyMaxActiveBlocksPerMultiprocessor
    assert count(ctypes.byref(blocks), kernel, launch.threads, ctypes.c_size_t(launch.shared_bytes)) == 0
    assert row["blocks_per_sm"] == blocks.value


def test_pictures_are_of_another_architecture_where_there_is_no_other(tmp_path, draw_pictures):
    alone = changed(tmp_path, instructions=lambda frame: frame[frame["arch"] == "sm_80"])
    found = draw_pictures("instructions", folder=alone)
    assert found.keys() == {"instructions_mix"}  # and no waits, which were not measured there
    assert "sm_80" in found["instructions_mix"] and "sm_90a" not in found["instructions_mix"]
