"""What a kernel costs to write, to compile and to hold: measured on real compilers, without a GPU."""

from __future__ import annotations

import itertools
from dataclasses import asdict

import pytest

import gemm_ref
from cuda_kernels import source
from experiments.bench.machine_code import compile_to_cubin
from experiments.records import store
from experiments.records.contenders import Contender, contenders
from experiments.records.request import Request
from experiments.records.rows import ERROR, PASS
from experiments.records.source_lines import lines_of
from experiments.studies.cost import study as cost
from experiments.studies.cost import text as page
from gemm_ref import Problem
from gemm_ref.sass import tools
from gemm_ref.sass.listing import parse
from gemm_ref.sass.sections import code_bytes
from tests.experiments.fixtures import NoBars, changed, needs_study, raising

triton = pytest.importorskip("triton")  # the tools are in its wheel
ALIGNED = Problem(4096, 4096, 4096)


def _kernel(stage: str, dialect: str) -> Contender:
    return next(each for each in contenders() if each.stage[:3] == stage and each.dialect == dialect)


def test_every_variant_takes_part_once_in_each_of_its_dialects():
    chosen = [each for each in contenders() if not cost.unsuited(each, Request("cpu"))]
    everyone = {(item.stage.id, item.variant, item.dialect) for item in gemm_ref.implementations()}
    assert {(each.stage, each.variant, each.dialect) for each in chosen} == everyone and len(chosen) == len(everyone)
    assert {each.math for each in chosen} == {stage.maths[0] for stage in gemm_ref.STAGES.values()}
    in_fp8 = {each.stage for each in contenders() if not cost.unsuited(each, Request("cpu", math="fp8"))}
    assert in_fp8 == {stage.id for stage in gemm_ref.stages_in("fp8")}


def test_a_row_has_the_lines_of_the_rung_and_what_its_machine_code_takes():
    kernels = [_kernel("s13", "cuda"), _kernel("s04", "triton")]
    rows = list(cost.measure(Request("cpu"), kernels, NoBars()))
    assert [(row.status, row.m, row.compiles) for row in rows] == [(PASS, 4096, 1)] * 2
    for row, kernel in zip(rows, kernels, strict=True):
        assert asdict(lines_of(kernel.stage, kernel.dialect)).items() <= asdict(row).items() and row.own_lines > 0
        assert 0.05 < row.compile_s == row.compile_s_low == row.compile_s_high < 60
        code = compile_to_cubin(kernel, ALIGNED, (9, 0))
        instructions = {each.name: len(each.code) for each in parse(tools.disassemble(code.cubin))}
        assert code_bytes(code.cubin) == {name: 16 * count for name, count in instructions.items()}
        assert row.code_bytes == 16 * max(instructions.values()) and 32 <= row.registers < 256
    assert [row.shared_bytes for row in rows] == [3 * 16 * (128 + 4 + 128) * 4, 2 * 32 * 32 * 4]
    with pytest.raises(ValueError, match="3 bytes are no cubin"):
        code_bytes(b"ELF")


def test_a_time_is_that_of_a_compiler_that_finds_nothing_compiled(monkeypatch):
    commands, hits = [], []
    run_nvcc = source.run_nvcc
    monkeypatch.setattr(source, "run_nvcc", lambda arguments: commands.append(arguments) or run_nvcc(arguments))
    for anew in (False, True, False):
        compile_to_cubin(_kernel("s01", "cuda"), ALIGNED, (9, 0), anew=anew)
    assert 1 <= len(commands) <= 2
    with triton.knobs.compilation.scope():
        triton.knobs.compilation.listener = lambda *, cache_hit, **_: hits.append(cache_hit)
        codes = [compile_to_cubin(_kernel("s01", "triton"), ALIGNED, (9, 0), anew=True) for _ in range(2)]
    assert hits == [False, False] and codes[0] == codes[1]


def test_several_times_are_told_by_median_and_range_and_a_failure_by_its_reason(monkeypatch):
    kernel = _kernel("s01", "cuda")
    code = compile_to_cubin(kernel, ALIGNED, (9, 0))
    monkeypatch.setattr(cost, "compile_to_cubin", lambda *_, **__: code)
    clock = itertools.chain([0.0, 3.0, 10.0, 11.0, 20.0, 27.0, 30.0, 34.0, 40.0, 42.0], itertools.repeat(0.0))
    monkeypatch.setattr(cost, "_cpu_seconds", lambda: next(clock))
    (row,) = cost.measure(Request("cpu", problems=(Problem(5, 6, 7),), preset="full"), [kernel], NoBars())
    assert (row.m, row.n, row.k) == (5, 6, 7)
    assert (row.compile_s, row.compile_s_low, row.compile_s_high, row.compiles) == (3.0, 1.0, 7.0, 5)
    failing = raising(gemm_ref.build.BuildError("nvcc failed: no such thing"))
    monkeypatch.setattr(cost, "compile_to_cubin", failing)
    (row,) = cost.measure(Request("cpu"), [kernel], NoBars())
    assert row.status == ERROR and "no such thing" in row.detail and row.own_lines and row.compile_s is None


@needs_study("ladder")
def test_the_picture_and_the_page_say_what_was_not_measured(tmp_path, draw_pictures):
    folder = changed(tmp_path)
    for name in ("ladder", "tensor_cores", "host"):
        (folder / f"{name}.csv").unlink()
    ((name, text),) = draw_pictures("cost", folder=folder).items()
    assert name == "cost_lines" and "no speeds were measured here" in text and "s18 warp specialized" in text
    assert all(f"<!-- {lines:.0f} -->" in text for lines in store.read(folder, "cost")["own_lines"])
    text = page.block("cost-best", folder)
    assert "fp32: not measured." in text and "bf16: not measured." in text and "call: not measured" in text
