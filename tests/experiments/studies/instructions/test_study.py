"""The instruction experiment on real compilers, without a GPU; its plots and its tables."""

from __future__ import annotations

import ctypes
import dataclasses

import pytest
import torch

from experiments import runner
from experiments.publish.drawing import style
from experiments.records import store
from experiments.records.contenders import Contender, contenders
from experiments.records.request import Request
from experiments.records.rows import ERROR, PASS, SKIPPED
from experiments.studies.instructions import study as instructions
from experiments.studies.instructions import table as instruction_tables
from experiments.studies.instructions.row import InstructionRow
from gemm_ref import Implementation, Problem, get_stage, implementations, ptx
from gemm_ref.build import BuildError
from gemm_ref.sass import mix, tools
from gemm_ref.sass.occupancy import ARCHITECTURES
from tests.experiments.fixtures import ENVIRONMENT, NoBars, raising

pytest.importorskip("triton")  # the tools are in its wheel


def measured(*stages: str, preset: str = "default", variant: str = "", **filters) -> list[InstructionRow]:
    request = Request("cpu", tuple(get_stage(stage).id for stage in stages), preset=preset, **filters)
    chosen = [each for each in runner.choose(instructions, request, contenders()) if variant in ("", each.variant)]
    return list(instructions.measure(request, chosen, NoBars()))


def one(stage: str, dialect: str, variant: str = "") -> InstructionRow:
    (row,) = measured(stage, backends=(dialect,), variant=variant)
    assert row.status == PASS, row.detail
    return row


def test_a_trip_adds_up_and_multiplies_whole_slices():
    rows = measured("s04", preset="full", backends=("cuda",))
    assert [row.arch for row in rows] == list(ARCHITECTURES)
    rows += measured("s05", backends=("cuda", "triton"))
    kernels = {(row.stage, row.variant, row.dialect) for row in rows}
    s05 = {(i.stage.id, i.variant, i.dialect) for i in implementations(("cuda", "triton")) if i.stage.id[:3] == "s05"}
    assert len(s05) > 4 and kernels == {("s04_shared_tile", "default", "cuda"), *s05}
    for row in rows:
        assert row.status == PASS, row.detail
        assert sum(getattr(row, kind) for kind in mix.KINDS) == row.instructions
        config = get_stage(row.stage).variants[row.variant]
        assert row.k_per_trip % config.BLOCK_K == 0 and row.k_per_trip > 0
        assert row.threads * row.blocks_per_sm == row.occupancy * 2048
        assert row.ffma_per_lds_byte > 0 and 0 < row.integer_share <= row.ffma_share < 1


def test_the_launch_and_the_cubin_share_out_shared_memory():
    static, dynamic = one("s08", "cuda"), one("s12", "cuda", "tile128")
    assert static.shared_bytes == 2 * 128 * 16 * 4  # a slice of A and one of B, without what sm_90 reserves
    item = get_stage("s12")
    assert dynamic.shared_bytes == item.launch(4096, 4096, 4096, "tile128").shared_bytes > 0
    assert one("s12", "triton", "tile128").shared_bytes == 3 * 2 * 128 * 16 * 4


def test_reads_of_registers_are_counted_where_they_were_measured():
    rows = {row.arch: row for row in measured("s08", preset="full", backends=("cuda",))}
    here = rows.pop("sm_90a")
    assert here.ffma == 1024 and here.even_reads + here.odd_reads > 2 * here.ffma  # an operand of three may be kept
    assert here.port_clocks >= max(here.instructions, here.even_reads, here.odd_reads)
    assert {row.port_clocks for row in rows.values()} == {row.clocks for row in rows.values()} == {None}
    waited = here.wait_registers + here.wait_shared + here.wait_global + here.wait_barrier + here.wait_before
    assert here.clocks - waited == pytest.approx(here.instructions, rel=0.05) and here.clocks > here.port_clocks
    (tensor_cores,) = measured("s16", math="bf16", backends=("triton",))[:1]
    assert tensor_cores.port_clocks is None


def test_of_two_kernels_the_main_one_is_read():
    row = one("s13", "cuda")
    assert row.ffma == 8 * 8 * row.k_per_trip > 0
    assert row.ldgsts_128 and row.ldgsts_32 and not row.ldg_32


def test_where_operations_cannot_be_counted_it_is_said():
    """Triton multiplies by tcgen05 where there is one."""
    rows = {row.arch: row for row in measured("s15", preset="full", backends=("triton",), math="bf16")}
    assert rows["sm_90a"].status == PASS and rows["sm_90a"].mma
    assert rows["sm_100a"].status == SKIPPED and rows["sm_100a"].detail.startswith("UTCHMMA: what tcgen05 multiplies")


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
        ("s04", "triton", {"lds_128": 8, "ldsm": 8, "ffma": 32}),
        ("s06", "gluon", {"lds_128": 32, "ldsm": 4, "ffma": 128}),
        ("s07", "triton", {"lds_128": 80, "ffma": 1024}),
        ("s07", "gluon", {"lds_128": 64, "ffma": 1024}),
        ("s08", "cuda", {"ldg_128": 4, "sts_128": 4, "ldg_32": 0, "ffma": 1024}),  # the way of whole vectors
    ],
)
def test_what_the_registry_says_of_sass(stage, dialect, counts):
    row = one(stage, dialect)
    assert {kind: getattr(row, kind) for kind in counts} == counts


def test_triton_compiles_for_the_size_that_is_asked_for():
    aligned, odd = (
        measured("s08", backends=("triton",), problems=(Problem(size, size, size),))[0] for size in (4096, 4100)
    )
    assert aligned.ldg_128 == 4 and not aligned.ldg_32
    assert odd.ldg_32 == 16 and not odd.ldg_128


def test_what_an_architecture_cannot_run_is_skipped(monkeypatch):
    monkeypatch.setattr(Contender, "refusal", lambda self, capability: "needs more" if capability < (9, 0) else None)
    statuses = {row.arch: (row.status, row.detail) for row in measured("s01", preset="full", backends=("cuda",))}
    assert statuses.pop("sm_80") == (SKIPPED, "needs more")
    assert set(statuses.values()) == {(PASS, "")}


def test_what_does_not_compile_is_a_row(monkeypatch):
    monkeypatch.setattr("cuda_kernels.source.cubin", raising(BuildError("nvcc failed: no such thing")))
    cuda, triton, gluon = measured("s01")
    assert cuda.status == ERROR and "no such thing" in cuda.detail
    assert triton.status == gluon.status == PASS


def test_baselines_have_no_machine_code_here():
    assert measured(backends=("cublas",)) == []


def test_a_kernel_without_a_loop_that_computes_is_an_error(monkeypatch):
    monkeypatch.setattr(tools, "disassemble", lambda cubin: ".text.empty:\n /*0000*/ EXIT ;\n")
    (row,) = measured("s01", backends=("cuda",))
    assert row.status == ERROR and "no loop with a multiply-add" in row.detail and "empty" in row.detail


def test_without_the_tools_the_error_says_where_they_come_from(monkeypatch):
    monkeypatch.setattr(tools, "find_toolkit", raising(BuildError("no nvcc")))
    monkeypatch.setattr(tools.shutil, "which", lambda name: None)
    assert tools.find.__wrapped__("nvdisasm").parent.name == "bin"  # in Triton's wheel
    monkeypatch.setattr(tools.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(BuildError, match="nvdisasm was not found: it comes with Triton"):
        tools.find.__wrapped__("nvdisasm")


def test_bytes_that_are_no_cubin_are_refused():
    with pytest.raises(BuildError, match="nvdisasm could not read 15 bytes"):
        tools.disassemble(b"no machine code")


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


def made_up(contender: Contender, arch: str = "sm_90a", **values) -> InstructionRow:
    """A row with plausible values, which claim nothing."""
    counts = dict.fromkeys(mix.KINDS, 0) | {"ffma": 800, "lds_128": 100, "integer": 60, "spill": 40}
    figures = {"registers": 128, "stack_bytes": 8, "spill_bytes": 24, "shared_bytes": 16384, "threads": 256}
    held = {"blocks_per_sm": 2, "occupancy": 0.25, "limited_by": "registers", "instructions": 1000, "k_per_trip": 16.0}
    shares = {"flop_per_trip": 1600.0, "ffma_share": 0.8, "integer_share": 0.06, "ffma_per_lds_byte": 0.5}
    row = counts | figures | held | shares | values
    return InstructionRow.about("instructions", contender, Problem(4096, 4096, 4096), arch=arch, **row)


@pytest.fixture
def data(tmp_path):
    rows = [made_up(item, arch) for arch in ("sm_80", "sm_90a") for item in contenders() if not item.is_baseline]
    changed = [
        dataclasses.replace(row, ffma=700, other=100, ffma_share=0.7) if row.arch == "sm_90a" else row for row in rows
    ]
    store.save(tmp_path, "instructions", changed, ENVIRONMENT | {"nvcc": "13.0.88"})
    return tmp_path


def test_rows_of_two_architectures_stand_side_by_side(data):
    frame = store.read(data, "instructions")
    assert len(frame) == 2 * len(implementations())
    store.save(data, "instructions", [made_up(contenders()[0])], ENVIRONMENT | {"date": "2021-03-03T03:03:03Z"})
    assert len(store.read(data, "instructions")) == len(frame)


def test_plots(data, draw_pictures):
    svg = draw_pictures("instructions")
    assert svg.keys() == {f"instructions_{what}" for what in ("mix", "limits", "architectures")}
    mixed = svg["instructions_mix"]
    for text in ("s01 naive", "s04 shared tile", "sm_90a", "70%", "nvcc 13.0.88", "triton 3.6.0", "spill", "2020-02"):
        assert text in mixed, text
    assert "80%" not in mixed  # sm_80's
    assert all(look.colour in svg["instructions_limits"] for look in style.LOOKS.values())


def test_one_architecture_is_not_compared(draw_pictures):
    svg = draw_pictures("instructions", [made_up(contenders()[0], "sm_80")])
    assert svg.keys() == {"instructions_mix", "instructions_limits"} and "sm_80" in svg["instructions_mix"]


def test_nothing_compiled_draws_nothing(draw_pictures):
    failed = InstructionRow.about("instructions", contenders()[0], Problem(4, 4, 4), arch="sm_80", status=ERROR)
    assert draw_pictures("instructions", [failed]) == {}


def test_tables_give_each_dialect_its_number(data):
    text = instruction_tables.block("instructions", data)
    line = next(line for line in text.splitlines() if line.startswith("| `s04_shared_tile`"))
    assert "| 128 / 128 / 128 |" in line and "| 70.0 / 70.0 / 70.0 |" in line  # sm_90a's share, not sm_80's
    assert "| 16.0 / 16.0 / 16.0 |" in line  # 100 LDS.128 of one width
    assert next(line for line in text.splitlines() if line.startswith("| `s13_split_k`")).endswith(" / – |")
    assert "nvcc 13.0.88 · triton 3.6.0" in text and "sm_90a" in text


def test_a_rung_in_full_is_for_100_multiply_adds(data):
    lines = instruction_tables.block("instructions-copies", data).splitlines()
    assert [line.split(" | ")[0] for line in lines[2:5]] == ["| CUDA", "| Triton", "| Gluon"]
    cells = dict(zip(lines[0].split(" | "), lines[2].split(" | "), strict=True))
    assert cells["all"] == "125.0" and cells["multiply-add"] == "87.5" and cells["shared read"] == "12.5"


def test_what_was_not_compiled_is_said_so(data, tmp_path):
    assert {instruction_tables.block(name, tmp_path / "none") for name in instruction_tables.BLOCKS} == {"not measured"}
    assert instruction_tables.block("instructions-ffma2", data) == "not measured"  # sm_100a is not in the fixture
