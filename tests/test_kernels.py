"""Every rung, in every dialect, against the oracle: the heart of the tests."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
from filelock import FileLock  # torch depends on it

import gemm_ref
from experiments.records.contenders import gemm_of
from experiments.records.workloads import covering
from gemm_ref import Problem, make_inputs, ptx
from tests.conftest import is_best, is_first
from tests.matrices import VECTORS, shifted

# Sizes for the reference GPU, whose time is short; `experiments run correctness --size` has any other. None is a
# multiple of 16: see VECTORS.
FEW = {"edges": (1, 33, 129), "depths": (17, 33, 81)}  # one more than a tile, a slice, several slices
FEWER = {"edges": (33, 129), "depths": (17, 129)}  # for variants, twins, and tensor cores
PRIMES = Problem(1021, 509, 131)  # no size is a multiple of anything: every edge tile is partial


def check(gemm, item, a, b, kind="normal"):
    """`checked_run` in the kernel's compute type, to the bit where the kind of inputs makes that possible."""
    exact = gemm_ref.MATHS[item.math].is_exact(kind)
    gemm_ref.checked_run(gemm, a, b, math=item.math, exact=exact, config=item.config)


def past_one_tile(kernel) -> Problem:
    """Odd sizes that take two tiles along each axis of C, of which the second are partial, and several slices."""
    config = kernel.config
    return Problem(config.BLOCK_M * config.constants().get("CLUSTER_M", 1) + 11, config.BLOCK_N + 5, 67)


def is_fp8(kernel) -> bool:
    return kernel.math == "fp8"


def has_vectors(kernel, device) -> bool:
    """Whether sizes of whole vectors are tried: each takes Triton seconds to compile, and one compute type shows it."""
    return device == "cuda" or kernel.backend == "cuda" or is_first(kernel)


def reads_b_both_ways(kernel) -> bool:
    """Whether the kernel reads B in both layouts; of s19 and s20, tests/forms has each layout."""
    return len(kernel.stage.reads_b(kernel.math, kernel.dialect)) > 1 and not kernel.stage.tiles


def omits_fence(kernel) -> bool:
    """Whether Triton's compiler leaves out the fence between copies of a slice and wgmma: 3.6 does, 3.9 does not."""
    version = tuple(map(int, importlib.metadata.version("triton").split(".")[:2])) if kernel.dialect == "triton" else ()
    return kernel.stage.id == "s16_mma_sync" and () < version < (3, 9)


@pytest.mark.kernels("each_rung")
def test_edges_bit_exact(implementation, gemm, device):
    """Small integers sum exactly in any order, so one wrong index shows as a wrong bit."""
    default = implementation.variant == implementation.stage.find_variant("default", "cuda")
    few = FEW if implementation.dialect == "cuda" and implementation.math == "fp32" and default else FEWER
    for sizes in (
        covering() if device == "cuda" else [*covering(**few), *[VECTORS] * has_vectors(implementation, device)]
    ):
        problem = Problem(*sizes, implementation.math)
        check(gemm, implementation, *make_inputs(problem, "integers", seed=sum(sizes), device=device), "integers")


@pytest.mark.kernels("each_rung")
def test_arithmetic_is_that_of_the_compute_type(implementation, gemm, device):
    """One-hot rows are copied to the bit, which lower precision would not do; sums of normal inputs are in the bound.

    The fault detectors watch the first product, of normal inputs, where the reference GPU computes it. Its depth is of
    more slices than stages, of which there are up to 4, up to 32 deep in tf32 and 64 in most narrower types.
    """
    math = implementation.math
    depth = {"fp32": 97, "tf32": 129}.get(math, 257) if device == "cpu" else 257
    deep = Problem(33, 129, depth, math)
    with ptx.watched(detectors := ptx.Detectors()):
        check(gemm, implementation, *make_inputs(deep, "normal", seed=2, device=device))
    assert detectors.findings == () or omits_fence(implementation)
    if device == "cuda" or is_best(implementation):  # another variant is another shape, and rounds alike
        problem = replace(PRIMES if device == "cuda" else past_one_tile(implementation), math=math)
        check(gemm, implementation, *make_inputs(problem, "one_hot", seed=3, device=device), "one_hot")


@pytest.mark.kernels(cuda="each_compute_type", where=reads_b_both_ways)
def test_b_by_columns(implementation, gemm, device):
    """B given as N x K is read as it is stored; so the twins read it in tf32 and fp8 in every test."""
    for sizes in [(33, 129, 257), (64, 64, 64)]:
        problem = Problem(*sizes, implementation.math, "nk")
        check(gemm, implementation, *make_inputs(problem, "integers", 10, device), "integers")


@pytest.mark.kernels("each_compute_type", cuda="each_rung", where=is_fp8)
def test_scales_of_fp8(implementation, gemm, device):
    """C is multiplied by both per-tensor scales; powers of two, so that nothing is rounded twice."""
    a, b = make_inputs(Problem(33, 41, 65, "fp8"), "integers", seed=11, device=device)
    scale_a, scale_b = (torch.tensor(value, device=device) for value in (0.25, 8.0))
    c = gemm(a, b, scale_a=scale_a, scale_b=scale_b)
    gemm_ref.check(c, a.double() * 0.25, b.double() * 8, math="fp8", exact=True)
    if implementation.backend == "cuda" or implementation.stage.id == "s17_wgmma_tma":  # all twins call one function
        gemm_ref.check(gemm(a, b, scale_a=scale_a), a.double() * 0.25, b, math="fp8", exact=True)
    if implementation.backend == "cuda":
        gemm_ref.check(gemm(a, b, scale_b=scale_b), a, b.double() * 8, math="fp8", exact=True)


@pytest.fixture
def gpu_memory(tmp_path_factory) -> Iterator[None]:
    """All of it, for one test at a time of all processes."""
    with FileLock(tmp_path_factory.getbasetemp().parent / "gpu_memory.lock"):
        yield
        torch.cuda.empty_cache()


@pytest.mark.gpu  # 40 GB and 10^11 operations
@pytest.mark.parametrize("math", gemm_ref.MATHS)
@pytest.mark.parametrize("sizes", [(8192, 8192, 8192), (65537, 33, 65537)], ids=str)
def test_offsets_past_32_bits(sizes, math, gpu_memory):
    """8192^3, and an A of 2^32 elements; one oracle serves all kernels of a compute type."""
    a, b = make_inputs(Problem(*sizes, math), "normal", seed=4, device="cuda")
    oracle = gemm_ref.Oracle(a, b)
    for item in gemm_ref.implementations():
        if item.math == math and item.stage.refusal(torch.cuda.get_device_capability()) is None:
            gemm_ref.checked_run(gemm_of(item), a, b, math=math, oracle=oracle, config=item.config)


@pytest.mark.kernels("smoke")
def test_strided_operands_and_out(implementation, gemm, device):
    """Any strides are computed rightly, and only the elements of `out` are written."""
    cube = Problem(160, 160, 160, implementation.math)
    wide_a, wide_b = (make_inputs(cube, seed=s, device=device)[0] for s in (5, 6))
    m, n, k = VECTORS
    arena = torch.empty((160, 160), device=device, dtype=gemm_ref.MATHS[implementation.math].out_dtype)
    for a, b, place in (
        # a transposed window; every other row and column
        (wide_a.t()[5:38, 7:24], wide_b[3:37:2, 1:67:2], (slice(2, 35), slice(1, 67, 2))),
        # windows that the TMA unit reads and writes where they are
        (wide_a[2 : 2 + m, :k], wide_b[:k, 16 : 16 + n], (slice(2, 2 + m), slice(16, 16 + n))),
    ):
        out = arena.fill_(float("nan"))[place]
        assert not any(x.is_contiguous() for x in (a, b, out))
        assert gemm(a, b, out=out) is out
        gemm_ref.check(out.contiguous(), a, b, math=implementation.math)
        assert (~arena.isnan()).sum() == out.numel()


@pytest.mark.kernels("smoke", where=lambda kernel: kernel.math != "fp8")  # torch has no negation of fp8
def test_lazily_negated_operands(implementation, gemm, device):
    """torch can negate by a flag on a view: a kernel that read the memory as it is would lose the sign."""
    a, b = make_inputs(Problem(9, 10, 11, implementation.math), "integers", seed=9, device=device)
    assert torch._neg_view(a).is_contiguous()
    assert torch.equal(gemm(torch._neg_view(a), b), -gemm(a, b))


@pytest.mark.kernels(cuda="each_rung")  # the twins would be compiled again for such addresses
def test_misaligned_operands(implementation, gemm, device):
    """Storage that starts an element past a 16-byte vector: no rung may assume alignment it was not given."""
    a, b = make_inputs(Problem(33, 64, 64, implementation.math), "integers", seed=7, device=device)
    operands = [shifted(x) for x in (a, b)]
    assert all(x.data_ptr() % 16 == x.itemsize for x in operands)
    check(gemm, implementation, *operands, "integers")


@pytest.mark.kernels("smoke")
def test_returns_a_new_tensor_like_torch(implementation, gemm, device):
    a, b = make_inputs(Problem(5, 7, 3, implementation.math), device=device)
    a.requires_grad_()
    with torch.no_grad():  # the kernels are outside autograd
        c = gemm(a, b)
    dtype = gemm_ref.MATHS[implementation.math].out_dtype
    assert c.shape == (5, 7) and c.dtype == dtype and c.device == a.device and not c.requires_grad
    gemm_ref.check(c, a, b, math=implementation.math)


@pytest.mark.kernels("smoke", cuda="each_rung")
def test_nothing_to_sum_gives_zeros(implementation, gemm, device):
    """BLAS: with K = 0 the product is zero, also where `out` held NaN."""
    mode = gemm_ref.MATHS[implementation.math]
    rows, columns = (33, 65) if device == "cuda" else VECTORS[:2]  # the 0 is a multiple of 16 too
    a, b = (torch.empty(shape, device=device, dtype=mode.dtype) for shape in ((rows, 0), (0, columns)))
    out = torch.full((rows, columns), float("nan"), device=device, dtype=mode.out_dtype)
    assert torch.equal(gemm(a, b, out=out), torch.zeros_like(out))


@pytest.mark.kernels("each_rung")
def test_nan_and_inf_spread_as_they_should(implementation, gemm, device):
    """A bad element of A spoils its row and no other: padding must not multiply it by zero elsewhere."""
    math = implementation.math
    a, b = make_inputs(Problem(40, 37, 35, math), seed=8, device=device)
    a[20, 34] = float("nan")
    if not is_fp8(implementation):  # e4m3 has no infinity
        a[25, 34] = float("inf")
    c = gemm(a, b)
    spoilt = ~a.float().isfinite().all(dim=1)
    assert not c[spoilt].isfinite().any()
    gemm_ref.check(c[~spoilt], a[~spoilt], b, math=math)


@pytest.mark.gpu
@pytest.mark.kernels("everything", where=lambda kernel: kernel.math != "fp32")  # whose copies and products overlap
def test_runs_are_bit_identical(implementation, gemm):
    """200 runs give the same bits: sums are in a fixed order, and whatever changes between runs is a race."""
    a, b = make_inputs(Problem(1000, 1104, 1200, implementation.math), device="cuda")
    first = gemm(a, b)
    differing = sum(torch.ne(gemm(a, b), first).any() for _ in range(200))  # stays on the GPU until it is compared
    assert not differing


@pytest.mark.gpu
@pytest.mark.kernels("smoke")
def test_runs_on_the_current_stream(implementation, gemm):
    """Work queued before on a side stream is waited for: the launch is on it, not on the default stream."""
    a, b = make_inputs(Problem(512, 512, 512, implementation.math), device="cuda")
    late = torch.zeros_like(a)
    torch.cuda.synchronize()
    with torch.cuda.stream(torch.cuda.Stream()):
        torch.cuda._sleep(50_000_000)
        late.copy_(a)
        c = gemm(late, b)
    torch.cuda.synchronize()
    gemm_ref.check(c, a, b, math=implementation.math)
