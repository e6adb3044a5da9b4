"""Lines and tokens of code: what counts as one, and which files of a kernel are its own and which it shares."""

from __future__ import annotations

import functools
from dataclasses import astuple
from pathlib import Path

import pytest

import gemm_ref
from experiments.records.source_lines import Code, count, file_of, kernel_file, lines_of, shared_files

CPP = r"""// a comment with "quotes" and 'one

#include <cuda.h>  // counts: 1
#define PAIR(X) \
    (X), (X)
/* a comment
   over lines */ int a = 1;  /* and on */ int b = 2;

const char* text = "// no comment /* nor this */";  // but this
const char* raw = R"(
// in a string

)";
#if 0
int never = 3;
#endif
char quote = '"';  // "
asm volatile("a;"
             "b;");  // two strings
"""
# line -> the tokens that begin on it
CPP_LINES = {3: 3, 4: 6, 5: 7, 7: 10, 9: 7, 10: 6, 11: 0, 12: 0, 13: 1, 14: 3, 16: 2, 17: 5, 18: 4, 19: 3}

PYTHON = '''#!/usr/bin/env python
"""A docstring
# over lines
"""

import é  # a comment with "quotes"


def f(x: int = 3) -> str:
    'one line, "single" quotes'
    text = "# no comment"
    "a string alone, é"; y = x
    long = """
# in a string

"""
    return g(
        """an argument, no docstring""",  # counts
        0.5, 1e-5, x **
        \\
        2,
    )
'''
PYTHON_LINES = {6: 2, 9: 12, 11: 3, 12: 4, 13: 2, 14: 0, 15: 0, 16: 1, 17: 3, 18: 2, 19: 6, 21: 2, 22: 1}


@pytest.mark.parametrize(("text", "suffix", "expected"), [(CPP, ".cu", CPP_LINES), (PYTHON, ".py", PYTHON_LINES)])
def test_a_line_counts_if_a_token_begins_or_continues_on_it(text, suffix, expected):
    assert count(text, suffix) == Code(lines=len(expected), tokens=sum(expected.values()))
    assert count("", suffix) == count("\n \n", suffix) == Code(0, 0)


KERNELS = [(stage.id, dialect) for stage in gemm_ref.STAGES.values() for dialect in stage.dialects]


@functools.cache
def _counted(path: Path) -> Code:
    return count(path.read_text(encoding="utf-8"), path.suffix)


def test_what_a_kernel_shares_is_code_of_kernels_and_counted_file_by_file():
    hosts = {"launch.cuh", "registry.cuh", "__init__.py", "launcher.py", "without_gpu.py", "descriptors.py"}
    for kernel in KERNELS[::4]:
        shared = shared_files(*kernel)
        assert not hosts & {path.name for path in shared} and file_of(*kernel) not in shared
        expected = []
        for paths in ([file_of(*kernel)], shared):
            code = [astuple(_counted(path)) for path in paths]
            expected += [sum(numbers) for numbers in zip((0, 0), *code, strict=True)]
        assert astuple(lines_of(*kernel)) == tuple(expected)


def test_files_are_followed_through_those_that_they_use():
    names = {path.name for path in shared_files("s18", "cuda")}
    assert {"epilogue.cuh", "tensor_tile.cuh", "wgmma.cuh", "tma.cuh", "mbarrier.cuh"} <= names  # tma by tensor_tile
    assert [path.name for path in shared_files("s12", "gluon")] == ["layouts.py", "tile_io.py"]
    assert shared_files("s04", "cuda") == shared_files("s04", "triton") == []
    assert [path.stem for path in shared_files("s11", "triton")] == [
        "s04_shared_tile", "s08_vectorized", "s10_double_buffer"
    ]  # fmt: skip
    assert kernel_file("s11", "triton") == "triton_kernels/s04_shared_tile.py"
    with pytest.raises(ValueError, match="s13_split_k is not written in 'gluon': there it is in cuda, triton"):
        lines_of("s13", "gluon")
    with pytest.raises(ValueError, match="there is no s99"):
        lines_of("s99", "cuda")
