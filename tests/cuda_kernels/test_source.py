"""The CUDA rungs' files, as an editor, plain nvcc and a colleague have them, and the PTX that is made of them."""

from __future__ import annotations

import bisect
import re

import pytest

from cuda_kernels import compiler, source
from gemm_ref import get_stage
from gemm_ref.build import CACHE, BuildError, cached, digest, version_of
from gemm_ref.toolchain import find_toolkit, run_nvcc

# One of each kind of values: sizes alone, the layout of a slice, two kernels, tiles, math modes, epilogues, parts. The
# exports have all rungs, and tests/test_repo.py what registry.cuh says of them.
KINDS = (1, 5, 13, 14, 15, 17, 19, 20)  # the first rung of each


@pytest.mark.forms("number", range(1, 21), lambda number: [bisect.bisect(KINDS, number)])
def test_nvcc_makes_the_same_of_a_file_as_it_is_stored(number, tmp_path):
    """With all of CUDA's headers and the values of registry.cuh, to the byte but for folders."""
    stage = get_stage(f"s{number:02}")
    file, target = source.FOLDER / f"{stage.id}.cu", tmp_path / "out.ptx"
    flags = (*source.FLAGS, "-Werror", "all-warnings", "-arch=compute_90a")

    def compiled() -> str:
        run_nvcc([*flags, "-ptx", str(file), "-o", str(target)])
        return _without_folders(target.read_text(encoding="utf-8"))

    texts = [path.read_text(encoding="utf-8") for path in (file, *sorted(source.INCLUDE.glob("*.cuh")))]
    key = digest(*texts, *flags, version_of(str(find_toolkit() / "bin" / "nvcc")))
    stored = cached(CACHE / f"{stage.id}-as-stored-{key}.ptx", compiled).read_text(encoding="utf-8")
    assert stored == _without_folders(source.ptx(source.choose(stage)))


def _without_folders(text: str) -> str:
    """PTX without the folders of sources, and without the names in debug information, in which is a hash of them."""
    return re.sub(r"^\.b8 .*\n", "", re.sub(r'"/[^"]*/', '"', text), flags=re.M)


def _never(*_: object) -> None:
    raise AssertionError("it was compiled by nvcc, or again")


def test_the_trimmed_headers_have_what_the_rungs_need(monkeypatch):
    monkeypatch.setattr(source, "run_nvcc", _never)
    for first, *_ in compiler._rungs_by_headers().values():
        source.compile_ptx(source.compose(source.choose(get_stage(first.stem))), first.name)


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("*x = erfcinvf(*x);", "rsqrt"),  # CUDA declares it, and no rung names it
        ("*x = nowhere(*x);", 'own.cu\\(3\\): error: identifier "nowhere" is undefined'),
    ],
)
def test_what_names_something_else_is_compiled_with_all_headers(line, found):
    text = f'#include "launch.cuh"\n__global__ void kernel(float* x) {{\n    {line}\n}}\n'
    try:
        said = source.compile_ptx(text, "own.cu")[0]
    except BuildError as error:
        said = str(error)
    assert re.search(found, said)


def test_a_text_is_compiled_once_wherever_it_is(monkeypatch):
    """The lines are those of the file that names them last."""

    def compiled(file: str) -> str:
        text = f'#line 1 "{file}"\n#include <cuda_runtime.h>\n__global__ void once(float* x) {{ *x = 1; }}\n'
        return source.compile_ptx(text, "own.cu")[0]

    first = compiled("/tmp/a.cu")
    run = compiler.run_compiler
    monkeypatch.setattr(compiler, "run_compiler", lambda step, *more: run(step, *more) if " -E " in step else _never())
    assert compiled("/tmp/b.cu") == first.replace("/tmp/a.cu", "/tmp/b.cu") != first
