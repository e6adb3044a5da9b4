"""The CUDA rungs' files, as an editor, plain nvcc and a colleague have them."""

from __future__ import annotations

import re

import pytest

from cuda_kernels import source
from gemm_ref import get_stage, ptx
from gemm_ref.toolchain import run_nvcc

FAST = ("-Xcicc", "-O0")  # what is asked is whether it compiles


# One of each kind of values: sizes alone, the layout of a slice, two kernels, tiles, math modes, epilogues, parts. The
# exports have all rungs, and tests/test_repo.py what registry.cuh says of them.
@pytest.mark.parametrize("number", [1, 5, 13, 14, 17, 19, 20])
def test_a_file_compiles_as_it_is_stored(number, tmp_path):
    """With the registry's values: they are in the kernels' names, as the arguments of templates."""
    stage = get_stage(f"s{number:02}")
    file, target = source.FOLDER / f"{stage.id}.cu", tmp_path / "out.ptx"
    strict = ("-Werror", "all-warnings")
    run_nvcc([f"-I{source.INCLUDE}", *FAST, *strict, "-arch=compute_90a", "-ptx", str(file), "-o", str(target)])
    names = re.findall(r"\.entry (\w+)", target.read_text(encoding="utf-8"))
    assert sorted(names) == sorted(ptx.entries(source.ptx(source.choose(stage))))
