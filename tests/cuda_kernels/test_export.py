"""Each rung as a file of its own: it compiles with plain nvcc, and on a GPU it finds its own result right."""

from __future__ import annotations

import re
import subprocess
from dataclasses import replace

import pytest
import torch

from cuda_kernels import source
from cuda_kernels.export import export
from gemm_ref import STAGES, Implementation, Problem
from gemm_ref.toolchain import run_nvcc

RAGGED = Problem(333, 277, 129)  # partial tiles, a K with a tail, rows that the TMA unit wants padded
# Every rung's default variant in every math mode.
EXPORTED = [source.choose(stage, math=math) for stage in STAGES.values() for math in stage.maths]
STRICT = ("-std=c++17", "-Werror", "all-warnings")
ARCH = ("-gencode", "arch=compute_90a,code=sm_90a")


def text(item: Implementation, problem: Problem = RAGGED) -> str:
    return export(item, replace(problem, math=item.math, b_layout=item.b_layout))


def properties(item: Implementation) -> tuple[tuple[str, ...], str, str]:
    """The headers whose text an export has; the compute type and the second kernel, which its main has."""
    text = (source.FOLDER / f"{item.stage.id}.cu").read_text(encoding="utf-8")
    return tuple(re.findall(r'^#include "(\w+)', text, re.MULTILINE)), item.math, item.stage.second_kernel


@pytest.mark.forms("item", EXPORTED, properties)
def test_an_export_compiles(item):
    """Its main too, which nvcc reads before it makes PTX of the kernels; neither is optimised, for time."""
    exported = text(item)
    assert '#include "' not in exported
    source.compile_ptx(exported, "exported.cu", flags=(*STRICT, "-Xcicc", "-O0"))


def test_an_export_has_all_maps_of_a_matrix():
    """s19 has one more for the edge of each operand."""
    for stage, each in (("s18_warp_specialized", 1), ("s19_any_shape", 2)):
        exported = text(source.choose(STAGES[stage]))
        assert [exported.count(f"{{'{name}', ") for name in "ABC"] == [each, each, 1]


def build(item: Implementation, folder, *more: str) -> str:
    file, program = folder / "exported.cu", folder / "exported"
    file.write_text(text(item), encoding="utf-8")
    run_nvcc([*STRICT, *ARCH, *more, str(file), "-o", str(program)])
    return str(program)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here, so all are built and run")
def test_an_export_links_with_nothing_but_cuda(tmp_path):
    """One that asks the driver for tensor maps; not optimised, as no GPU is to run it."""
    program = build(source.choose(STAGES["s18_warp_specialized"]), tmp_path, "-Xcicc", "-O0", "-Xptxas", "-O0")
    done = subprocess.run([program], capture_output=True, text=True)
    assert done.returncode == 2 and done.stderr.startswith("a GPU: "), done.stderr


@pytest.mark.gpu
@pytest.mark.parametrize(
    "item",
    [replace(item, b_layout=layout) for item in EXPORTED for layout in item.stage.reads_b(item.math, "cuda")],
    ids=str,
)
def test_an_export_is_right(item, tmp_path):
    if refusal := item.stage.refusal(torch.cuda.get_device_capability()):
        pytest.skip(refusal)
    done = subprocess.run([build(item, tmp_path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert f"{RAGGED.m} of {RAGGED.m} rows right" in done.stdout
