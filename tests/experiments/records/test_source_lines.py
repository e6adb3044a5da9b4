"""Lines and tokens of code: what counts as one, and which files of a kernel are its own and which it shares."""

from __future__ import annotations

from dataclasses import astuple

import pytest

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


def test_files_are_followed_through_those_that_they_use():
    names = {path.name for path in shared_files("s18", "cuda")}
    assert not {"launch.cuh", "registry.cuh"} & names  # which start a kernel, and are no part of it
    own, *shared = (
        count(path.read_text(encoding="utf-8"), path.suffix)
        for path in (file_of("s18", "cuda"), *shared_files("s18", "cuda"))
    )
    totals = sum(code.lines for code in shared), sum(code.tokens for code in shared)
    assert astuple(lines_of("s18", "cuda")) == (*astuple(own), *totals)
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
