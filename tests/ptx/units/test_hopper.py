"""GEMM kernels of nvcc on Hopper's asynchronous units (hopper/gemm.cu): right ones, and ones with a mistake each."""

from __future__ import annotations

import functools
import re
from pathlib import Path

import pytest
import torch

from gemm_ref import Launch, cdiv, ptx
from gemm_ref.build import BuildError
from tests.cuda_kernels.test_pitfalls import compile_ptx

SOURCE = Path(__file__).parent / "hopper" / "gemm.cu"
TILE = 8192  # bytes of a slice of 64 rows
SIZES = [(64, 64, 64), (200, 136, 328), (1, 8, 8), (130, 72, 648), (128, 192, 16)]  # N and K: rows of 16 bytes


@functools.cache
def text() -> str:
    try:
        return compile_ptx(SOURCE)
    except BuildError as error:
        pytest.skip(f"no nvcc to compile with: {error}")


def load(name: str, *arguments: int) -> ptx.Kernel:
    """The instance of a template with these arguments."""
    mangled = name + "I" + "".join(f"L{'ib'[i]}{int(value)}E" for i, value in enumerate(arguments))
    (entry,) = [entry for entry in ptx.entries(text()) if mangled in entry]
    return ptx.load(text(), entry)


def inputs(m: int, n: int, k: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Small integers, whose products are exact in fp32 in any order, and a poisoned C."""
    generator = torch.Generator().manual_seed(m + n + k)
    a, b = (torch.randint(-4, 5, shape, generator=generator).bfloat16() for shape in ((m, k), (k, n)))
    return a, b, torch.full((m, n), torch.nan)


def minimal(sizes, fault: int = 0, b_rows: bool = True) -> tuple[torch.Tensor, torch.Tensor]:
    """What the kernel computed, and the product."""
    (m, n, k), (a, b, c) = sizes, inputs(*sizes)
    b_map = ptx.TensorMap(b if b_rows else b.T.contiguous(), (64, 64), 128)
    launch = Launch((cdiv(n, 64), cdiv(m, 64), 1), (128, 1, 1), 2 * TILE)
    ptx.run(load("minimal", fault, b_rows), launch, [ptx.TensorMap(a, (64, 64), 128), b_map, c, m, n, k])
    return c, a.float() @ b.float()


def specialized(sizes, fault: int = 0, poll: bool = False, blocks: int = 3) -> tuple[torch.Tensor, torch.Tensor]:
    (m, n, k), (a, b, c) = sizes, inputs(*sizes)
    c = torch.full((m, cdiv(n, 4) * 4), torch.nan)  # rows of a multiple of 16 bytes
    maps = [ptx.TensorMap(a, (64, 128), 128), ptx.TensorMap(b, (64, 64), 128), ptx.TensorMap(c, (32, 64), 128)]
    ptx.run(load("specialized", fault, poll), Launch((blocks, 1, 1), (384, 1, 1), 13 * TILE), [*maps, m, n, k])
    return c, a.float() @ b.float()


def clustered(sizes, fault: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    (m, n, k), (a, b, c) = sizes, inputs(*sizes)
    maps = [ptx.TensorMap(a, (64, 64), 128), ptx.TensorMap(b, (64, 32), 128)]
    launch = Launch((cdiv(n, 64), 2 * cdiv(m, 128), 1), (160, 1, 1), 6 * TILE)
    ptx.run(load("clustered", fault), launch, [*maps, c, m, n, k])
    return c, a.float() @ b.float()


@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("b_rows", [False, True])
def test_minimal(sizes, b_rows):
    assert torch.equal(*minimal(sizes, b_rows=b_rows))


@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("poll", [False, True])
def test_warp_specialized_and_persistent(sizes, poll):
    assert torch.equal(*specialized(sizes, poll=poll))


@pytest.mark.parametrize("blocks", [1, 2, 7])
def test_any_number_of_blocks_covers_all_tiles(blocks):
    assert torch.equal(*specialized((300, 200, 136), blocks=blocks))


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_two_blocks_of_a_cluster_share_b(sizes):
    assert torch.equal(*clustered(sizes))


# --- mistakes ------------------------------------------------------------------------------------------------


def test_a_tile_that_is_not_waited_for_is_wrong():
    found, wanted = minimal((64, 64, 64), fault=1)
    assert found.isnan().any() and not torch.equal(found, wanted)
    with pytest.raises(
        ptx.AsyncFault, match=r"mbarrier.cuh:\d+: .*called at gemm.cu:\d+.*its last phase not waited for"
    ):
        minimal((64, 64, 128), fault=1)


def test_too_many_bytes_expected_are_a_deadlock():
    with pytest.raises(ptx.BarrierFault, match=r"(?s)deadlock.*called at gemm.cu:\d+\): block \(0, 0, 0\).* 16 bytes"):
        minimal((64, 64, 128), fault=2)


def test_too_few_bytes_expected_open_the_barrier_before_the_tiles_are_there():
    found, wanted = minimal((64, 64, 64), fault=3)
    assert not torch.equal(found, wanted)


def test_accumulators_that_are_not_waited_for_are_nan():
    assert minimal((64, 64, 64), fault=4)[0].isnan().all()


def test_a_tile_that_is_overwritten_while_it_is_multiplied_is_wrong():
    found, wanted = minimal((64, 64, 192), fault=5)
    assert not found.isnan().any() and not torch.equal(found, wanted)


def test_a_barrier_that_is_not_initialised():
    with pytest.raises(ptx.AsyncFault, match="never initialised"):
        minimal((64, 64, 64), fault=6)


def test_a_producer_that_does_not_wait_for_an_empty_slot():
    with pytest.raises(ptx.AsyncFault, match="its last phase not waited for"):
        specialized((128, 64, 512), fault=1)


def test_consumers_that_free_no_slot():
    with pytest.raises(ptx.BarrierFault) as raised:
        specialized((128, 64, 512), fault=2)
    waits = str(raised.value).splitlines()[1:]
    assert len(waits) == 2 and all("mbarrier.try_wait" in line for line in waits)
    assert re.search(r"thread \(128, 0, 0\) waits .* lacks 1 of 1 arrivals and 0 bytes; 255 more", waits[0])
    assert re.search(r"thread \(0, 0, 0\) waits .* lacks 2 of 2 arrivals", waits[1])


def test_a_tile_of_c_that_is_overwritten_while_it_is_stored():
    found, wanted = specialized((256, 128, 64), fault=3, blocks=1)
    assert not torch.equal(found, wanted)


def test_leaving_before_the_last_tile_of_c_is_read():
    with pytest.raises(ptx.AsyncFault, match="may still be reading shared memory"):
        specialized((128, 64, 64), fault=4)


def test_a_multicast_that_leaves_a_block_out_is_a_deadlock():
    with pytest.raises(ptx.BarrierFault, match=r"(?s)deadlock.* and 4096 bytes"):
        clustered((128, 64, 128), fault=2)
