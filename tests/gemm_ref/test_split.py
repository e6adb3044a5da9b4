"""Operands in parts: the kernel's bits are the model's, and what the model promises of errors holds for any input."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
import torch

from experiments.studies.shared.chains import CHAINS, in_fp32
from gemm_ref import EMULATED, MATHS, Launch, ptx
from gemm_ref.operands import split as splits
from gemm_ref.operands.split import SPARE, WIDE, error_bound, in_parts, split
from gemm_ref.toolchain import run_nvcc
from tests.matrices import sparse

TRIES = 60  # of the search; 10,000 of them found none either
INF, NAN = float("inf"), float("nan")


@pytest.fixture(scope="module", params=EMULATED)
def kernels(request, tmp_path_factory) -> tuple[str, dict[bool, ptx.DecodedKernel]]:
    """A math mode, and by_rows -> the kernel, for the reference GPU."""
    folder = tmp_path_factory.mktemp("split")
    source, target = folder / "split.cu", folder / "split.ptx"
    source.write_text(splits.source_of(request.param), encoding="utf-8")
    run_nvcc(["-O3", "-std=c++17", "-lineinfo", "-ptx", "-arch=compute_90a", str(source), "-o", str(target)])
    text = target.read_text(encoding="utf-8")
    return request.param, {"Lb1" in name: ptx.load(text, name) for name in ptx.entries(text)}


@pytest.mark.parametrize(("shape", "by_rows"), [
    *itertools.product([(1, 7), (70, 33), (33, 68)], [True, False]), ((2, 16400), True), ((530, 9), False),
], ids=str)  # fmt: skip
def test_the_kernel_makes_the_parts_of_the_model(kernels, shape, by_rows):
    """On the reference GPU, without a fault, of numbers of any size."""
    math, programs = kernels
    torch.manual_seed(sum(shape))
    x = torch.randn(shape) * torch.exp(torch.randn(shape))
    if len(x) > 4:
        x[1], x[0, :3], x[4, :2] = 0, 1e30, 1e-44
        x[2, 1], x[3, 2] = INF, NAN
    made = split(x, by_rows, math)
    assert made.parts.isfinite().all() and made.wide.numel() < made.exponents.numel()
    room = torch.full((made.parts.shape[0] * len(x), made.step), NAN, dtype=made.parts.dtype)
    exponents = torch.zeros_like(made.exponents)
    launch = replace(splits.launch_of(x.shape, by_rows, 132), partly=("parts",))
    assert launch.cluster[0] == (2 if max(shape) > 500 else 1)  # long lines, which two blocks read
    assert splits.launch_of(x.shape, by_rows, 132, (8, 0)).cluster[0] == 1
    arguments = [x, room, exponents, *shape, made.step, launch.cluster[0]]
    with ptx.watched(detectors := ptx.Detectors()):
        ptx.run(programs[by_rows], launch, arguments, names=("x", "parts", "exponents"))
    assert not detectors.findings
    assert torch.equal(room[:, : shape[1]].unflatten(0, (-1, len(x))), made.parts)
    assert torch.equal(exponents, made.exponents)


def test_offsets_of_64_bits(kernels, tmp_path):
    """The block with the first columns of rows that pass 2^32 elements together."""
    math, programs = kernels
    rows, columns, held = 17, 2**28, splits.STRIP
    x = sparse(tmp_path, torch.float32, rows, columns)
    parts = sparse(tmp_path, MATHS[math].part_dtype, MATHS[math].parts, rows, columns)
    x[:, :held] = torch.randn(rows, held)
    launch, exponents = Launch((columns // held, 1, 1), (splits.THREADS, 1, 1)), torch.zeros(held).int()
    with ptx.first_block():
        ptx.run(programs[False], launch, [x, parts, exponents, rows, columns, columns, 1])
    want = in_parts(x[:, :held], False, math)
    assert torch.equal(exponents, want[0]) and torch.equal(parts[..., :held], torch.stack(want[1]))


@pytest.mark.parametrize("by_rows", [False, True])
@pytest.mark.parametrize("math", EMULATED)
def test_for_a_compiler_nothing_is_computed(math, by_rows, monkeypatch):
    """A matrix without numbers has its room alone, laid out as for one that has some."""
    x = torch.ones(70, 203)
    real = split(x, by_rows, math)
    monkeypatch.setattr(splits, "in_parts", None)
    empty = split(x.to("meta"), by_rows, math)
    for made, like in ((empty.parts, real.parts), (empty.exponents, real.exponents)):
        assert (made.shape, made.stride(), made.dtype) == (like.shape, like.stride(), like.dtype) and made.is_meta


@pytest.mark.parametrize("math", EMULATED)
def test_an_element_loses_what_is_promised(math):
    """2^-22 of itself, or where it is smaller than parts can be, 2^(least - 22 - 14) of the largest of its line."""
    mode = MATHS[math]
    x = (torch.rand(400, 64) + 1) * torch.exp2(torch.randint(mode.least - 40, 15, (400, 64)).float())
    x[:, 0] = 2.0**14
    exponents, parts = in_parts(x, True, math)
    sums = sum(part.double() * 2.0 ** (-mode.part_shift * (i > 0)) for i, part in enumerate(parts))
    lost = (torch.ldexp(sums, -torch.where(exponents == WIDE, 0, exponents)[:, None]) - x.double()).abs()
    assert (lost <= torch.maximum(x.double() * 2.0**-22, torch.tensor(2.0 ** (mode.least - 22)).double())).all()
    much = lost > x * 2.0**-22
    assert much.any() and (x[much] < 2.0**mode.least).all()


@pytest.mark.parametrize("math", EMULATED)
def test_which_lines_are_wide(math):
    least = 2.0 ** (MATHS[math].least - 14)  # of a line whose largest element is 1
    lines = {
        "zeros": (torch.zeros(9), False),
        "one": (torch.ones(9), False),
        "infinite": (torch.tensor([1.0, INF]), True),
        "nan": (torch.tensor([NAN, 1.0]), True),
        "largest": (torch.tensor([3.4e38, 1e38]), False),
        "subnormal": (torch.tensor([1e-40, 1e-44]), True),
        "a few small": (torch.tensor([1.0, *[least * 0.9] * SPARE]), False),
        "too many small": (torch.tensor([1.0, *[least * 0.9] * (SPARE + 1)]), True),
        "as many at the end": (torch.tensor([1.0, *[least] * 9]), False),
        "zeros are not small": (torch.tensor([1.0, *[0.0] * 9]), False),
        "lost on the way": (torch.tensor([1e30, *[1e-45] * (SPARE + 1)]), True),
    }
    for name, (x, wide) in lines.items():
        assert bool(in_parts(x[None], True, math)[0] == WIDE) == wide, name
        assert bool(in_parts(x[:, None], False, math)[0] == WIDE) == wide, name


def operands(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """A (5, K) and B (K, 6) of a try: spreads, rows, columns and single elements that ask for trouble."""
    g = torch.Generator().manual_seed(seed)
    k = int(torch.randint(1, 200, (1,), generator=g))

    def pick(*choices):
        return choices[int(torch.randint(len(choices), (1,), generator=g))]

    def side(lines: int) -> torch.Tensor:
        x = torch.randn(lines, k, generator=g) if pick(0, 1) else torch.rand(lines, k, generator=g)
        x = x * torch.exp(pick(0, 1, 2, 3, 4, 8) * torch.randn(lines, k, generator=g))
        line, element = (int(torch.randint(size, (1,), generator=g)) for size in (lines, k))
        power = 2.0 ** float(torch.randint(-60, 61, (1,), generator=g))
        which = pick("none", "element", "line", "column", "others", "sparse", "far", "special")
        if which == "element":
            x[line, element] *= power
        elif which == "line":
            x[line] *= power
        elif which == "column":
            x[:, element] *= power
        elif which == "others":
            x[:, element:] *= power
        elif which == "sparse":
            x = x * (torch.rand(lines, k, generator=g) < 0.1)
        elif which == "far":
            x = x * pick(2.0**-140, 2.0**-110, 2.0**-60, 2.0**60)
        elif which == "special":
            x[line, element] = pick(INF, -INF, NAN, 1e-45, 3.4e38)
        return x

    a, b = side(5), side(6)
    if pick(0, 1, 2) == 0:  # what is largest in a row meets nothing
        b[:, a.abs().nan_to_num(0.0).argmax(1)] = 0
    if pick(0, 1, 2) == 0 and k % 2 == 0:  # sums that cancel
        a[:, 1::2], b[:, 1::2] = a[:, ::2], -b[:, ::2]
    return a, b.t().contiguous()


@pytest.mark.parametrize("math", EMULATED)
def test_no_input_slips_through(math):
    """The error is within the contract, or a line of A or B is wide, and then it is fp32's own."""
    for seed in range(TRIES):
        check(*operands(seed), math, seed)


def check(a: torch.Tensor, b: torch.Tensor, math: str, seed: int = 0) -> None:
    got, plain = CHAINS[math][0].product(a, b, math).double(), in_fp32(a, b).double()
    finite = (a.isfinite().all(1)[:, None] & b.isfinite().all(0)) & plain.isfinite()
    error = (got - a.double() @ b.double()).abs()
    assert ((error <= error_bound(a, b, math)) | ~finite).all(), f"seed {seed}: {error.nan_to_num().max()}"
    others = ~(a.isfinite().all(1)[:, None] & b.isfinite().all(0))
    assert torch.equal(got[others].nan_to_num(nan=7.0), plain[others].nan_to_num(nan=7.0)), f"seed {seed}"
