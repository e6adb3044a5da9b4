"""The transposing copy: any size, element and alignment."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from gemm_ref import Launch, cdiv, ptx
from gemm_ref.operands import as_layout, lies_in
from gemm_ref.operands.transpose import transposed
from gemm_ref.toolchain import run_nvcc

DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float8_e4m3fn)
SIZES = ((1, 1), (1, 7), (7, 1), (63, 65), (64, 128), (128, 64), (129, 257), (260, 132), (0, 5), (5, 0), (1024, 512))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", SIZES, ids=str)
@pytest.mark.parametrize("shift", [0, 1], ids=["aligned", "shifted"])
def test_every_element_goes_to_its_place(shape, dtype, shift, device):
    bits = {1: torch.int8, 2: torch.int16, 4: torch.int32}[dtype.itemsize]
    numbers = torch.arange(shape[0] * shape[1] + shift, device=device).to(bits).view(dtype)[shift:].view(shape)
    copy = transposed(numbers)
    assert copy.is_contiguous() and torch.equal(copy.view(bits), numbers.view(bits).t())


def test_what_lies_so_already_is_not_copied(device):
    b = torch.randn(65, 33, device=device)
    by_columns = as_layout(b, "nk")
    assert lies_in(by_columns, "nk") and torch.equal(by_columns, b)
    assert as_layout(by_columns, "nk") is by_columns and as_layout(b, "kn") is b
    window = torch.randn(80, 80, device=device)[3:50:2, 5:60]
    assert lies_in(as_layout(window, "nk"), "nk") and torch.equal(as_layout(window, "nk"), window)


@pytest.fixture(scope="module")
def kernels(tmp_path_factory) -> dict[int, ptx.Kernel]:
    """Bytes of an element -> the kernel, for the reference GPU."""
    source = Path(transposed.__code__.co_filename).with_suffix(".cu")
    target = tmp_path_factory.mktemp("transpose") / "transpose.ptx"
    run_nvcc(["-O3", "-std=c++17", "-lineinfo", "-ptx", "-arch=compute_90a", str(source), "-o", str(target)])
    text = target.read_text(encoding="utf-8")
    return {
        {"h": 1, "t": 2, "j": 4}[name.split("transposeI")[1][0]]: ptx.load(text, name) for name in ptx.entries(text)
    }


@pytest.mark.parametrize("itemsize", [1, 2, 4])
@pytest.mark.parametrize("shape", [(1, 7), (63, 65), (128, 64), (260, 132)], ids=str)
def test_the_kernel_on_the_reference_gpu(kernels, shape, itemsize):
    """Without a fault, to the element, also where a row is not made of whole words."""
    rows, columns = shape
    dtype = {1: torch.int8, 2: torch.int16, 4: torch.int32}[itemsize]
    numbers = torch.arange(rows * columns).to(dtype).view(shape)
    out = torch.full((columns, rows), -1, dtype=dtype)
    tile, word = (128 if itemsize == 1 else 64), 4 // itemsize
    words = rows % word == 0 and columns % word == 0
    launch = Launch((cdiv(rows, tile) * cdiv(columns, tile), 1, 1), (32, 8, 1))
    with ptx.watched(detectors := ptx.Detectors()):
        ptx.run(kernels[itemsize], launch, [numbers, out, rows, columns, int(words)], names=("in", "out"))
    assert torch.equal(out, numbers.t()) and not detectors.findings
