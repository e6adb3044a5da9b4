"""The copies of operands: any size, element, alignment and order, to rows of any step."""

from __future__ import annotations

import itertools
import warnings
from pathlib import Path

import pytest
import torch

from gemm_ref import Launch, ptx
from gemm_ref.build import BuildError
from gemm_ref.launch import cdiv
from gemm_ref.operands import as_layout, copy_layout, lies_in, padded
from gemm_ref.operands.copy_layout import copy_all, plan, transposed
from gemm_ref.toolchain import run_nvcc

BITS = {1: torch.int8, 2: torch.int16, 4: torch.int32}
DTYPES = (torch.float32, torch.bfloat16, torch.float8_e4m3fn)
SIZES = ((1, 1), (1, 7), (7, 1), (63, 65), (64, 128), (128, 64), (129, 257), (260, 132), (0, 5), (5, 0), (1024, 512))
POISON = 0x5A


def _numbers(shape: tuple[int, int], itemsize: int, shift: int, order: str, device="cpu") -> torch.Tensor:
    """A matrix of this shape whose first element is `shift` elements past a vector, in memory that it does not fill.

    order: "rows" or "columns", one after another, or "wide", rows with 3 elements between them.
    """
    rows, columns = shape
    lines, elements = (columns, rows) if order == "columns" else shape
    step = elements + 3 * (order == "wide")
    memory = torch.arange(lines * step + shift + 32, device=device).to(BITS[itemsize])
    stored = memory[shift : shift + lines * step].view(lines, step)[:, :elements]
    return stored.t() if order == "columns" else stored


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", SIZES, ids=str)
@pytest.mark.parametrize("shift", [0, 1], ids=["aligned", "shifted"])
def test_every_element_goes_to_its_place(shape, dtype, shift, device):
    size = dtype.itemsize
    for order in ("rows", "columns", "wide"):
        x = _numbers(shape, size, shift, order, device).view(dtype)
        room, other = padded(x), padded(x.t())
        copy_all((x, room), (x.t(), other))
        assert torch.equal(room.view(BITS[size]), x.view(BITS[size])), order
        assert torch.equal(other.view(BITS[size]), x.t().view(BITS[size])), order
    copy = transposed(x.contiguous())
    assert copy.is_contiguous() and torch.equal(copy.view(BITS[size]), x.view(BITS[size]).t())


def test_what_lies_so_already_is_not_copied(device):
    b = torch.randn(65, 33, device=device)
    by_columns = as_layout(b, "nk")
    assert lies_in(by_columns, "nk") and torch.equal(by_columns, b)
    assert as_layout(by_columns, "nk") is by_columns and as_layout(b, "kn") is b
    window = torch.randn(80, 80, device=device)[3:50:2, 5:60]
    assert lies_in(as_layout(window, "nk"), "nk") and torch.equal(as_layout(window, "nk"), window)


@pytest.fixture(scope="module")
def kernels(tmp_path_factory) -> dict[int, ptx.DecodedKernel]:
    """Bytes of an element -> the kernel, for the reference GPU."""
    source = Path(copy_layout.__file__).with_suffix(".cu")
    target = tmp_path_factory.mktemp("lay_out") / "lay_out.ptx"
    run_nvcc(["-O3", "-std=c++17", "-lineinfo", "-ptx", "-arch=compute_90a", str(source), "-o", str(target)])
    text = target.read_text(encoding="utf-8")
    return {{"h": 1, "t": 2, "j": 4}[name.split("lay_outI")[1][0]]: ptx.load(text, name) for name in ptx.entries(text)}


@pytest.mark.parametrize("itemsize", [1, 2, 4])
@pytest.mark.parametrize("shape", [(1, 7), (63, 65), (128, 64), (260, 35)], ids=str)
def test_the_kernel_on_the_reference_gpu(kernels, shape, itemsize):
    """Without a fault, to the element and zeros behind, two at a time; what is outside of a matrix is never read."""
    cases = list(itertools.product(("rows", "columns"), (0, 1, 5), (True, False)))
    for both in itertools.pairwise(cases):
        args, copies = [], []
        for order, shift, dense in both:
            x = _numbers(shape, itemsize, shift, order)
            columns = shape[1] if dense and order == "columns" else padded(x).stride(0)
            room = torch.full((shape[0], columns), POISON, dtype=x.dtype)
            args += [x if order == "rows" else x.t(), room, *plan(x.shape, x.stride(), room.stride(), 0, itemsize)]
            copies.append((x, room))
        launch = Launch((args[6] + args[14], 1, 1), (copy_layout.THREADS, 1, 1), partly=("out", "out too"))
        names = ["in", "out", *[""] * 6, "in too", "out too"]
        with ptx.watched(detectors := ptx.Detectors()):
            ptx.run(kernels[itemsize], launch, args, names=names)
        assert not detectors.findings
        for x, room in copies:
            vectors = cdiv(shape[1] * itemsize, 16) * 16 // itemsize
            assert torch.equal(room[:, : shape[1]], x)
            assert not room[:, shape[1] : vectors].any() and (room[:, vectors:] == POISON).all()


def test_a_copy_that_the_kernel_has_not_is_torch_s(device):
    x = torch.arange(80.0, device=device).view(8, 10)
    for view in (x[:, ::2], x[::2].t()[::2], x[:0], x.expand(3, 8, 10)[:, 0]):
        room = padded(view)
        copy_all((view, room))
        assert torch.equal(room, view)


def test_without_nvcc_torch_copies_and_a_warning_says_so(monkeypatch):
    def missing():
        raise BuildError("nvcc was not found")

    copy_layout.toolkit_is_there.cache_clear()
    monkeypatch.setattr(copy_layout, "find_toolkit", missing)
    with pytest.warns(UserWarning, match="torch copies operands .* nvcc was not found"):
        assert not copy_layout.toolkit_is_there()
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # once is enough
        assert not copy_layout.toolkit_is_there()
    copy_layout.toolkit_is_there.cache_clear()
