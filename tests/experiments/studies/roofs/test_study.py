"""`roofs`: the micro-kernels compute what they should and compile to what they claim; their rows, and the roofline."""

from __future__ import annotations

import functools
import re
from pathlib import Path

import pandas as pd
import pytest
import torch

from cuda_kernels import ceilings
from cuda_kernels.ceilings import MicroKernel
from experiments.bench import datasheets
from experiments.bench.verify import CheckResult
from experiments.records.contenders import contenders
from experiments.records.request import Request
from experiments.records.rows import ERROR, FAIL, PASS, SKIPPED
from experiments.studies.roofs import probes
from experiments.studies.roofs import study as roofs
from experiments.studies.roofs.picture import requested_intensity
from experiments.studies.roofs.probes import PROBES, Machine
from gemm_ref import Problem, ptx
from gemm_ref.build import CACHE, BuildError, cached, digest, version_of
from gemm_ref.launch import Launch
from gemm_ref.sass import tools
from gemm_ref.toolchain import assemble, find_toolkit
from tests.experiments.fixtures import H200, NoBars, changed, needs_study

SMALL = Machine("cpu", multiprocessors=2, l2_bytes=1 << 20, memory_bytes=1 << 20)


needs_gpu = pytest.mark.gpu


# --- the micro-kernels ----------------------------------------------------------------------------------------


def on_reference_gpu(kernel: MicroKernel, data, out, iterations: int, blocks: int) -> None:
    """What `ceilings.launch` is on a GPU."""
    values = ceilings.arguments(kernel, data, out, iterations, blocks)
    shape = Launch((blocks, 1, 1), (kernel.threads, 1, 1), kernel.shared_bytes)
    ptx.run(ptx.load(ceilings.ptx_of(kernel, (9, 0))), shape, values, names=("in", "out"))


@pytest.mark.parametrize("name", PROBES)
def test_micro_kernels_are_right_on_the_reference_gpu(name):
    assert roofs.check(PROBES[name], SMALL, on_reference_gpu) == ""


def test_the_check_sees_an_iteration_too_few_and_a_kernel_that_does_nothing():
    def one_less(kernel, data, out, iterations, blocks):
        on_reference_gpu(kernel, data, out, iterations - 1, blocks)

    for name in ("fma", "dram_read", "l2_read", "l1_read", "shared_read"):
        assert roofs.check(PROBES[name], SMALL, one_less) != "", name
    assert all(roofs.check(probe, SMALL, lambda *_: None) for probe in PROBES.values())


@needs_gpu
@pytest.mark.parametrize("name", PROBES)
def test_micro_kernels_are_right_on_the_gpu(name):
    probe = PROBES[name]
    if reason := probe.kernel.refusal(torch.cuda.get_device_capability()):
        pytest.skip(reason)
    assert roofs.check(probe, roofs.this_machine(), ceilings.launch) == ""


@functools.cache
def sass_of(name: str, capability: tuple[int, int] = (9, 0)) -> str:
    text = ceilings.ptx_of(PROBES[name].kernel, capability)
    key = digest(text, capability, version_of(str(find_toolkit() / "bin" / "nvcc")))
    path = cached(CACHE / f"{name}-{key}.sass", lambda: tools.disassemble(assemble(text, capability)))
    return path.read_text(encoding="utf-8")


def loop_with(opcode: str, sass: str) -> list[str]:
    """The SASS of the innermost loop that has an instruction `opcode`, without the branch and NOPs."""
    lines = [line.strip() for line in sass.splitlines()]
    for end, line in enumerate(lines):
        target = re.search(r"BRA `\((\.L_x_\d+)\)", line)
        if target and f"{target[1]}:" in lines[:end]:
            body = lines[lines.index(f"{target[1]}:") : end]
            found = [
                match[1].strip() for line in body if (match := re.search(r"\*/\s+(?:@!?U?P\d )?\s*([^;]+);", line))
            ]
            if count(found, opcode):
                return [instruction for instruction in found if instruction != "NOP"]
    raise AssertionError(f"no loop with {opcode}")


def count(loop: list[str], opcode: str) -> int:
    return sum(instruction.startswith(opcode) for instruction in loop)


@pytest.mark.parametrize(
    ("name", "opcode", "often"),
    [
        ("fma", "FFMA", 2 * probes.Fma.PAIRS * probes.Fma.STEPS),
        ("mma_bf16", "HMMA.16816.F32.BF16", probes.Mma.STEPS * probes.Mma.TILES**2),
        ("l2_read", "LDG.E.128.STRONG.GPU", 2 * probes.Read.LOADS),  # past L1, and unrolled once
        ("shared_read", "LDS.128", probes.Shared.LOADS),
    ],
)
def test_a_loop_has_the_instructions_that_are_measured_and_hardly_any_others(name, opcode, often):
    loop = loop_with(opcode, sass_of(name))
    assert count(loop, opcode) == count(loop, opcode.split(".")[0]) == often
    if name != "l2_read":
        assert len(loop) - often <= (3 * often if name == "shared_read" else 4)  # what becomes of each word


def test_multiply_adds_in_a_row_do_not_wait_for_one_another_and_a_copy_is_one_vector():
    loop = loop_with("FFMA", sass_of("fma", (8, 0)))
    written = [re.findall(r"R\d+", instruction)[0] for instruction in loop if instruction.startswith("FFMA")]
    for start in range(0, len(written), probes.Fma.PAIRS):
        assert len(set(written[start : start + probes.Fma.PAIRS])) == probes.Fma.PAIRS
    assert re.findall(r"LDG\S*|STG\S*", sass_of("dram_copy")) == ["LDG.E.128.CONSTANT", "STG.E.128"]


@pytest.mark.parametrize("math", ["bf16", "fp8"])
def test_wgmma_is_not_serialized(math):
    loop = loop_with("WARPGROUP.ARRIVE", sass_of(f"wgmma_{math}"))
    tensor = [instruction for instruction in loop if re.match("[HQ]GMMA.64x256x", instruction)]
    assert [instruction.endswith("gsb0") for instruction in tensor] == [False, False, False, True]  # one group a trip
    assert [i for i in loop if "DEPBAR" in i] == ["WARPGROUP.DEPBAR.LE gsb0, 0x1"]  # the last one is not waited for


def test_hopper_has_no_fp8_in_mma_sync():
    kernel = PROBES["mma_fp8"].kernel
    assert "made from other instructions" in kernel.refusal((9, 0)) and kernel.refusal((8, 9)) is None
    loop = loop_with("HMMA", sass_of("mma_fp8"))
    assert count(loop, "F2FP.F16.E4M3") > 0 and count(loop, "QMMA") == 0


# --- rows -----------------------------------------------------------------------------------------------------


def test_what_a_gpu_lacks_is_skipped_and_what_does_not_compile_is_an_error(monkeypatch):
    built = []

    def cubin(kernel, capability):
        if kernel.file == "copy":
            raise BuildError("copy.cu(3): error")
        built.append(kernel)

    monkeypatch.setattr(ceilings, "cubin", cubin)
    results = roofs._build([probe.kernel for probe in PROBES.values()], (8, 0))
    of = {name: results[probe.kernel] for name, probe in PROBES.items()}
    why = "wgmma_k16_f32_bf16_bf16 needs compute capability 9.0 exactly; this GPU has 8.0"
    assert of["wgmma_bf16"] == CheckResult(SKIPPED, why)
    assert of["mma_fp8"].status == SKIPPED and "8.9 or newer" in of["mma_fp8"].detail
    assert of["dram_copy"].status == ERROR and "copy.cu(3)" in of["dram_copy"].detail
    assert of["fma"].passed and of["mma_bf16"].passed and of["l1_read"].passed
    assert len(built) == len(set(built))


@pytest.fixture
def on_a_fake_gpu(monkeypatch):
    """An H200 on which all ceilings are compiled."""
    for name, value in (("get_device_capability", (9, 0)), ("get_device_name", "NVIDIA H200")):
        monkeypatch.setattr(torch.cuda, name, lambda value=value: value)
    for name in ("synchronize", "empty_cache"):
        monkeypatch.setattr(torch.cuda, name, lambda: None)
    monkeypatch.setattr(roofs, "this_machine", lambda: SMALL)
    monkeypatch.setattr(roofs, "_build", lambda kernels, capability: dict.fromkeys(kernels, CheckResult()))
    monkeypatch.setattr(roofs.provenance, "gpu", lambda: H200 | {"sm_clock_mhz": 1755})


@pytest.mark.usefixtures("on_a_fake_gpu")
def test_one_ceiling_that_breaks_hides_no_other(monkeypatch):
    def check(probe, machine, launch):
        if probe.name == "fma":
            raise RuntimeError("it did not start")
        return "wrong"

    monkeypatch.setattr(roofs, "check", check)
    monkeypatch.setattr(roofs.timers, "CudaTimer", lambda: None)
    rows = list(roofs.measure(Request("cuda"), roofs.CONTENDERS, NoBars()))
    assert [row.stage for row in rows] == list(PROBES)
    assert [row.status for row in rows] == [ERROR] + [FAIL] * (len(PROBES) - 1)
    assert rows[0].detail == "RuntimeError: it did not start"


@pytest.mark.usefixtures("on_a_fake_gpu")
def test_a_row_has_the_rate_and_what_to_compare_it_with(monkeypatch):
    runs = []  # iterations of each launch; one takes 10 microseconds

    def timer(work):
        work()
        return 10.0 * runs[-1]

    def measure(name):
        (row,) = roofs.measure(Request("cuda"), [PROBES[name]], NoBars())
        return row

    monkeypatch.setattr(ceilings, "launch", lambda kernel, data, out, iterations, blocks: runs.append(iterations))
    monkeypatch.setattr(roofs, "check", lambda *_: "")
    monkeypatch.setattr(roofs.timers, "CudaTimer", lambda: timer)
    row = measure("fma")
    assert runs[-1] == 300  # for 3 ms
    flop = 2 * 4 * 256 * (8 * 2 * 32) * 2  # multiprocessors, blocks on each, threads, FMAs of a trip
    assert row.value == row.low == row.high == pytest.approx(flop / 10e-6 / 1e12)
    assert (row.datasheet, row.sm_mhz, row.repeats) == (67.0, 1755, roofs.REPEATS)
    row = measure("dram_copy")
    assert row.value == pytest.approx(2 * PROBES["dram_copy"].make_input(SMALL, False).nbytes / 10e-6 / 1e12)
    assert row.datasheet == 4.8
    assert measure("l2_read").source == ""  # no figure, no source
    results = iter(["", "its result is off by 1"])  # before the timed launches, and after them
    monkeypatch.setattr(roofs, "check", lambda *_: next(results))
    row = measure("fma")
    assert (row.status, row.value, row.median_us) == (FAIL, None, None) and "is off by 1" in row.detail


def test_filters_of_kernels_leave_it_out():
    assert all(roofs.unsuited(probe, Request("cuda")) == "" for probe in roofs.CONTENDERS)
    assert "choose kernels" in roofs.unsuited(PROBES["fma"], Request("cuda", stages=("s01_naive",)))


# --- what is known beforehand ---------------------------------------------------------------------------------


def test_datasheets_are_whole_and_found_by_the_whole_name():
    sheet = datasheets.find("NVIDIA H200")
    assert sheet.figures.get(PROBES["fma"].figure) == 67.0 and sheet.figures.get(PROBES["wgmma_bf16"].figure) == 989.5
    assert sheet.figures.get(PROBES["dram_copy"].figure) == 4.8 and sheet.figures.get(PROBES["l2_read"].figure) is None
    assert "H200" in sheet.source
    assert datasheets.find("NVIDIA H200 NVL") is None
    assert datasheets.find("NVIDIA A100-SXM4-80GB").figures.get(PROBES["wgmma_fp8"].figure) is None
    for name, each in datasheets._entries().items():
        assert each.source and {"fp32", "tf32", "bf16", "fp16", "dram"} <= set(each.figures), name
        assert each.figures["bf16"] == each.figures["fp16"] >= 2 * each.figures["fp32"] * 0.99, name


def test_what_the_clock_allows():
    # the H100 whitepaper's fp32 peak is 66.9 at this clock
    assert datasheets.by_clock(PROBES["fma"].figure, H200) == pytest.approx(66.9, abs=0.05)
    assert datasheets.by_clock(PROBES["shared_read"].figure, H200) == pytest.approx(33.45, abs=0.01)
    at_1830 = H200 | {"max_sm_clock_mhz": 1830}  # and 989.4 in bf16 at this one
    assert datasheets.by_clock(PROBES["wgmma_bf16"].figure, at_1830) == pytest.approx(989.4, abs=0.1)
    assert datasheets.by_clock(PROBES["l2_read"].figure, H200) is None
    assert datasheets.by_clock(PROBES["mma_bf16"].figure, H200 | {"capability": "8.9"}) is None
    assert datasheets.by_clock(PROBES["fma"].figure, {"capability": "9.0", "multiprocessors": 132}) is None


# --- the pictures --------------------------------------------------------------------------------------------

CUBE = 256  # what `memory` counts at: 2^25 FLOP


def _memory_csv(folder: Path, **changes: object) -> None:
    """Counts as `memory` writes them: each kernel loads 2^18 sectors and stores 2^14."""
    same = {"status": PASS, "launch": 1, "view": "compiled", "space": "global"} | dict.fromkeys("mnk", CUBE)
    rows = [
        {"stage": each.stage, "variant": each.variant, "dialect": each.dialect, "kind": kind, "sectors": sectors}
        for each in contenders()
        if each.math == "fp32" and each.dialect
        for kind, sectors in (("load", 2**18), ("store", 2**14))
    ]
    pd.DataFrame([row | same | changes for row in rows]).to_csv(folder / "memory.csv", index=False)


def test_intensity_is_that_of_the_sectors_asked_for(tmp_path):
    """At 4 times the depth 4 times as many are loaded, and no more are stored."""
    _memory_csv(tmp_path)
    for sizes, loads in (((1, 1, 1), 2**18), ((1, 1, 4), 2**20), ((2, 2, 1), 2**20)):
        problem, times = Problem(*(size * CUBE for size in sizes)), sizes[0] * sizes[1]
        found = requested_intensity(tmp_path, problem)["s01_naive", "default", "triton"]
        assert found == pytest.approx(problem.flops / (32 * (loads + times * 2**14)))
    # s14 takes another tile at 4096 than at the cube that is counted
    here, there = (requested_intensity(tmp_path, Problem(edge, edge, edge)).keys() for edge in (CUBE, 4096))
    assert {stage for stage, *_ in here - there} == {"s14_register_banks"}


@pytest.mark.parametrize("change", [{"launch": 2}, {"m": 2 * CUBE}, {"space": "shared"}, {"status": SKIPPED}])
def test_counts_that_cannot_be_carried_over_are_left_out(tmp_path, change):
    _memory_csv(tmp_path, **change)
    assert requested_intensity(tmp_path, Problem(4096, 4096, 4096)) == {}


@needs_study("ladder", "memory")
def test_without_a_ladder_and_counts_the_shares_are_drawn_alone(tmp_path, draw_pictures):
    folder = changed(tmp_path)
    for name in ("memory", "ladder"):
        (folder / f"{name}.csv").unlink()
    assert draw_pictures("roofs", folder=folder).keys() == {"roofs"}
