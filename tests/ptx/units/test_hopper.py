"""GEMM kernels of nvcc on Hopper's asynchronous units (hopper/gemm.cu): right ones, and ones with a mistake each."""

from __future__ import annotations

import functools
import re
from pathlib import Path

import pytest
import torch

from gemm_ref import Launch, cdiv, ptx
from tests.cuda_kernels.test_pitfalls import compile_ptx

SOURCE = Path(__file__).parent / "hopper" / "gemm.cu"
TILE = 8192  # bytes of a slice of 64 rows
SIZES = [(64, 64, 64), (200, 136, 328), (1, 8, 8), (130, 72, 648), (128, 192, 16)]  # N and K: rows of 16 bytes


@functools.cache
def text() -> str:
    return compile_ptx(SOURCE, f"-I{SOURCE.parent}")


def load(name: str, *arguments: int) -> ptx.DecodedKernel:
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


RIGHT = [(minimal, {}), (minimal, {"b_rows": False}), (specialized, {}), (specialized, {"poll": True}), (clustered, {})]


@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("run, options", RIGHT)
def test_products(run, options, sizes):
    assert torch.equal(*run(sizes, **options))


@pytest.mark.parametrize("blocks", [1, 2, 7])
def test_any_number_of_blocks_covers_all_tiles(blocks):
    assert torch.equal(*specialized((300, 200, 136), blocks=blocks))


# --- mistakes ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("run, sizes, options, nan", [
    (minimal, (64, 64, 64), {"fault": 1}, "some"),  # a tile is not waited for
    (minimal, (64, 64, 64), {"fault": 3}, ""),  # too few bytes are expected, so the barrier opens early
    (minimal, (64, 64, 64), {"fault": 4}, "all"),  # accumulators are not waited for
    (minimal, (64, 64, 192), {"fault": 5}, "none"),  # a tile is overwritten while it is multiplied
    (specialized, (256, 128, 64), {"fault": 3, "blocks": 1}, ""),  # a tile of C is overwritten while it is stored
])  # fmt: skip
def test_a_mistake_that_gives_a_wrong_result(run, sizes, options, nan):
    found, wanted = run(sizes, **options)
    assert not torch.equal(found, wanted)
    share = found.isnan().float().mean()
    assert {"": True, "some": share > 0, "all": share == 1, "none": share == 0}[nan]


@pytest.mark.parametrize("run, sizes, fault, error, message", [
    # a tile is not waited for, and its barrier is used again
    (minimal, (64, 64, 128), 1, ptx.AsyncFault,
     r"mbarrier.cuh:\d+: .*called at gemm.cu:\d+.*its last phase not waited for"),
    # too many bytes are expected
    (minimal, (64, 64, 128), 2, ptx.BarrierFault,
     r"(?s)deadlock.*called at gemm.cu:\d+\): block \(0, 0, 0\).* 16 bytes"),
    (minimal, (64, 64, 64), 6, ptx.AsyncFault, "never initialised"),
    # the producer does not wait for an empty slot
    (specialized, (128, 64, 512), 1, ptx.AsyncFault, "its last phase not waited for"),
    # the block leaves before the last tile of C is read
    (specialized, (128, 64, 64), 4, ptx.AsyncFault, "may still be reading shared memory"),
    # a multicast leaves a block out
    (clustered, (128, 64, 128), 2, ptx.BarrierFault, r"(?s)deadlock.* and 4096 bytes"),
])  # fmt: skip
def test_a_mistake_that_stops_the_machine(run, sizes, fault, error, message):
    with pytest.raises(error, match=message):
        run(sizes, fault=fault)


def test_consumers_that_free_no_slot():
    with pytest.raises(ptx.BarrierFault) as raised:
        specialized((128, 64, 512), fault=2)
    waits = str(raised.value).splitlines()[1:]
    assert len(waits) == 2 and all("mbarrier.try_wait" in line for line in waits)
    assert re.search(r"thread \(128, 0, 0\) waits .* lacks 1 of 1 arrivals and 0 bytes; 255 more", waits[0])
    assert re.search(r"thread \(0, 0, 0\) waits .* lacks 2 of 2 arrivals", waits[1])
