"""On a GPU, a call that is like one before it uses that one's plan: it is right whatever has changed in between."""

from __future__ import annotations

import threading

import pytest
import torch

from gemm_ref import Problem, make_inputs
from tests.matrices import by_columns, in_wider, shifted, with_gaps

# A plan is made and kept by what is common to all rungs: a kernel for each way from a call to its launch will do.
pytestmark = [pytest.mark.gpu, pytest.mark.kernels("smoke")]
SIZES = (150, 272, 208)  # partial tiles, and rows that are whole vectors


@pytest.fixture
def operands(implementation):
    """`operands(seed)`: integers, so that the product is known to the bit."""
    return lambda seed: make_inputs(Problem(*SIZES, implementation.math), "integers", seed, "cuda")


def is_right(c, a, b) -> bool:
    return torch.equal(c.double(), (a.double() @ b.double()).to(c.dtype).double())


def test_other_numbers_addresses_and_strides(gemm, operands):
    """Plans are made in one order, and used in another."""
    forms = (lambda x: x, torch.clone, shifted, with_gaps, by_columns, in_wider)
    for seed in range(2):
        a, b = operands(seed)
        for of_a in forms:
            for of_b in forms[:: 1 - 2 * seed]:
                assert is_right(gemm(of_a(a), of_b(b)), a, b)


def test_a_graph_is_captured_and_replayed(gemm, operands):
    """A call of a known shape, so that nothing is compiled while it is captured."""
    a, b = operands(0)
    expected = gemm(a, b)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        c = gemm(a, b)
    for seed in range(2):
        for x, new in zip((a, b), operands(seed), strict=True):
            x.copy_(new)
        c.zero_()
        graph.replay()
        assert is_right(c, a, b)
        assert seed or torch.equal(c, expected)


@pytest.mark.kernels("each_rung", where=lambda kernel: kernel.stage.second_kernel or kernel.stage.tiles)
def test_streams_share_no_partial_sums(gemm, operands, implementation):
    """Calls of one plan on two streams at a time: partial sums of one are not those of the other."""
    deep = Problem(128, 128, 4096 if implementation.math != "fp8" else 512, implementation.math)
    pairs = [make_inputs(deep, "integers", seed, "cuda") for seed in range(2)]
    streams = [torch.cuda.Stream() for _ in pairs]
    torch.cuda.synchronize()
    found = []
    for _ in range(20):
        for stream, (a, b) in zip(streams, pairs, strict=True):
            with torch.cuda.stream(stream):
                found.append((gemm(a, b), a, b))
    torch.cuda.synchronize()
    assert all(is_right(*each) for each in found)


def test_threads_share_a_plan(gemm, operands):
    gemm(*operands(0))  # compiled before the threads start
    found = [None] * 4

    def work(number: int) -> None:
        a, b = operands(number)
        with torch.cuda.stream(torch.cuda.Stream()):
            torch.cuda.current_stream().wait_stream(torch.cuda.default_stream())
            found[number] = all([is_right(gemm(a, b), a, b) for _ in range(20)])

    threads = [threading.Thread(target=work, args=(number,)) for number in range(len(found))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [True] * len(found)
