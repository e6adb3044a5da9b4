"""CUTLASS's baselines: how operands are laid out for TMA, what is refused and in which words; on a GPU, the results."""

from __future__ import annotations

import importlib.util
import itertools
import sys

import pytest
import torch

import gemm_ref
from gemm_ref.baselines import BASELINES, CUTLASS_PACKAGE, cutlass
from gemm_ref.build import BuildError
from gemm_ref.toolchain import run_nvcc
from tests.matrices import by_columns, shifted, with_gaps

KERNELS = {f"{math}-{layout}": kernel for math, of in cutlass.KERNELS.items() for layout, kernel in of.items()}
DISTINCT = set(KERNELS.values())
# no remainder; a remainder along K, along N, along M alone; along all; smaller than 16 bytes
SHAPES = [(16, 32, 64), (16, 32, 61), (16, 37, 64), (13, 32, 64), (33, 17, 129), (1, 1, 1)]
MISSING = importlib.util.find_spec(CUTLASS_PACKAGE) is None


def _launch_on_cpu(kernel, a, b, c, sizes):
    """What a library does, and what it demands of its operands."""
    m, n, k = sizes
    assert tuple(a.shape) == (m, k) and tuple(c.shape) == (m, n)
    assert tuple(b.shape) == ((n, k) if kernel.transposed_b else (k, n))
    for x in (a, b, c):
        assert x.is_contiguous() and not x.is_neg()
        assert x.data_ptr() % kernel.row_bytes == 0
        # rows of N x K operands and of C alike: where TMA steps from one to the next
        assert x.shape[1] * x.element_size() % kernel.row_bytes == 0
    c.copy_(a.double() @ (b.T if kernel.transposed_b else b).double())


@pytest.fixture
def on_cpu(monkeypatch):
    monkeypatch.setattr(cutlass, "_launch", _launch_on_cpu)


@pytest.mark.parametrize("layout", gemm_ref.B_LAYOUTS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", KERNELS)
def test_operands_are_laid_out_as_the_kernel_reads_them(name, shape, layout, on_cpu):
    math = name.split("-")[0]
    a, b = gemm_ref.make_inputs(gemm_ref.Problem(*shape, math, layout))
    operands = [a, shifted(a), by_columns(a), with_gaps(a), *([] if math == "fp8" else [torch._neg_view(-a)])]
    for left, by_rows in itertools.product(operands, (True, False)):
        c = torch.full(shape[:2], torch.nan, dtype=gemm_ref.MATHS[math].out_dtype)
        c = c if by_rows else by_columns(c)
        cutlass.multiply(KERNELS[name], left, b, c)
        gemm_ref.check(c, a, b, math=math)


def test_what_lies_well_is_not_copied(monkeypatch):
    seen = []
    monkeypatch.setattr(cutlass, "_launch", lambda kernel, a, b, c, sizes: seen.append((a, b, c)))
    given = [torch.empty(8, 16), torch.empty(16, 8), torch.empty(8, 8)]
    cutlass.multiply(cutlass.hopper(torch.float32, (128, 128, 32), (1, 1)), *given)
    a, b, c = given
    as_n_by_k = torch.empty(8, 16)
    cutlass.multiply(cutlass.hopper(torch.float32, (128, 128, 32), (1, 1), b="transposed"), a, as_n_by_k.T, c)
    ragged = [torch.empty(7, 5), torch.empty(5, 3), torch.empty(7, 3)]
    cutlass.multiply(cutlass.SIMT, *ragged)
    for got, want in zip(seen, [given, [a, as_n_by_k, c], ragged], strict=True):
        assert [x.data_ptr() for x in got] == [x.data_ptr() for x in want]


def test_what_is_added_to_an_operand_is_zeros(monkeypatch):
    """0 * NaN is NaN: zeros in one operand alone would not do."""
    seen = []
    monkeypatch.setattr(cutlass, "_launch", lambda kernel, a, b, c, sizes: seen.extend([a, b, *sizes]))
    monkeypatch.setattr(torch, "empty", lambda shape, **kind: torch.full(shape, torch.nan, **kind))
    cutlass.multiply(KERNELS["fp16-kn"], *(torch.ones(s, dtype=torch.float16) for s in ((3, 5), (5, 9), (3, 9))))
    a, b, *sizes = seen
    assert sizes == [3, 16, 8]
    assert a.sum() == 3 * 5 and b.sum() == 5 * 9 and a[:, :5].all() and b[:5, :9].all()


@pytest.mark.parametrize("shape", [(0, 3, 2), (3, 0, 2), (2, 3, 0)], ids=str)
def test_empty_sizes_start_nothing(shape, monkeypatch):
    monkeypatch.setattr(cutlass, "_launch", None)
    m, n, k = shape
    c = torch.full((m, n), torch.nan)
    cutlass.multiply(cutlass.SIMT, torch.empty(m, k), torch.empty(k, n), c)
    assert not c.any()


def test_refusals(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert "pip install 'nvidia-cutlass'" in BASELINES["cutlass_simt"].refusal((9, 0))
    with pytest.raises(BuildError, match="pip install nvidia-cutlass"):
        cutlass.find_headers()
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    assert BASELINES["cutlass_simt"].refusal((8, 0)) is None
    assert "needs compute capability 8.0 or newer; this GPU has 7.5" in BASELINES["cutlass_simt"].refusal((7, 5))
    assert "needs compute capability 9.0 exactly; this GPU has 10.0" in BASELINES["cutlass_hopper"].refusal((10, 0))


def test_headers_are_found_without_an_import(tmp_path, monkeypatch):
    package = tmp_path / CUTLASS_PACKAGE
    (package / "source" / "include" / "cutlass").mkdir(parents=True)
    (package / "__init__.py").write_text("raise ImportError('networkx is not there, and need not be')")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(BuildError, match="not found"):  # no version.h
        cutlass.find_headers()
    (package / "source" / "include" / "cutlass" / "version.h").touch()
    assert cutlass.find_headers()[0] == package / "source" / "include"
    assert CUTLASS_PACKAGE not in sys.modules


def test_libraries_that_differ_have_names_that_differ(monkeypatch, tmp_path):
    made = []
    monkeypatch.setattr(cutlass, "build_library", lambda name, **parts: made.append((name, *parts.values())) or name)
    monkeypatch.setattr(cutlass, "find_headers", lambda: (tmp_path, tmp_path))
    monkeypatch.setattr(cutlass, "find_toolkit", lambda: tmp_path)
    (tmp_path / "cutlass").mkdir()
    version = tmp_path / "cutlass" / "version.h"
    for text in ("4.2", "4.3"):
        version.write_text(text)
        cutlass.build_kernel.cache_clear()
        for kernel in DISTINCT:
            cutlass.build_kernel(kernel, (9, 0))
        cutlass.build_kernel(cutlass.SIMT, (8, 0))
    cutlass.build_kernel.cache_clear()
    assert len(set(map(str, made))) == len(made) == 2 * (len(DISTINCT) + 1)


@pytest.mark.skipif(MISSING, reason="CUTLASS's headers are not installed: pip install nvidia-cutlass")
def test_the_sgemm_compiles(tmp_path):
    """The others take a minute each: they are compiled where they run."""
    kernel = cutlass.SIMT
    run_nvcc(
        [
            *cutlass.FLAGS,
            *(f"-D{name}={value}" for name, value in kernel.macros),
            *(f"-I{folder}" for folder in cutlass.find_headers()),
            *("-arch=sm_80", "-cubin", str(cutlass.FOLDER / f"{kernel.file}.cu"), "-o", str(tmp_path / "simt.cubin")),
        ]
    )
    assert (tmp_path / "simt.cubin").stat().st_size > 10_000


@pytest.mark.gpu
@pytest.mark.parametrize("math", cutlass.HOPPER)
def test_what_cutlass_refuses_is_an_error_in_its_words(math):
    """Its results are compared with the oracle wherever it is timed."""
    if refusal := BASELINES["cutlass_hopper"].refusal(torch.cuda.get_device_capability()):
        pytest.skip(refusal)
    x = torch.empty(17, 17, device="cuda", dtype=gemm_ref.MATHS[math].dtype)
    with pytest.raises(RuntimeError, match="did not start at 17x17x17: CUTLASS says 'Error Invalid Problem'"):
        cutlass._launch(cutlass.HOPPER[math]["kn"], x, x, x, (17, 17, 17))
