"""Every rung, in every dialect, against the oracle and against the others: the heart of the tests."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
from filelock import FileLock  # torch brings it along
from hypothesis import given, settings
from hypothesis import strategies as st

import gemm_ref
from experiments.records.contenders import gemm_of
from experiments.records.workloads import covering
from gemm_ref import Problem, make_inputs
from tests.matrices import shifted

# For the reference GPU, whose time is short: beside the tiles of 32, 64 and 128, one past one slice and past two of
# them, and many. `experiments run correctness --size` has any other. None is a multiple of 16, for which Triton would
# compile another kernel: test_nothing_to_sum_gives_zeros runs that one.
FEW = {"edges": (1, 33, 129), "depths": (17, 33, 81)}
FEWER = {"edges": (33, 129), "depths": (17, 129)}  # for variants, twins, and tensor cores: each takes half a second
RAGGED = [size for size in range(71) if size % 16]
SMALLER_PRIMES = Problem(269, 263, 67)
PRIMES = Problem(1021, 509, 131)  # no size is a multiple of anything: every edge tile is partial


def check(gemm, item, a, b, kind="normal"):
    """`checked_run` in the kernel's math mode, to the bit where the kind of inputs makes that possible."""
    exact = gemm_ref.MATHS[item.math].is_exact(kind)
    gemm_ref.checked_run(gemm, a, b, math=item.math, exact=exact, config=item.config)


@pytest.mark.reference_gpu(cuda="best + other variants + other maths + fp16", twins="best")
def test_edges_bit_exact(implementation, gemm, device):
    """Small integers sum exactly in any order, so one wrong index shows as a wrong bit."""
    default = implementation.variant == implementation.stage.find_variant("default", "cuda")
    few = FEW if implementation.dialect == "cuda" and implementation.math == "fp32" and default else FEWER
    for sizes in covering() if device == "cuda" else covering(**few):
        problem = Problem(*sizes, implementation.math)
        check(gemm, implementation, *make_inputs(problem, "integers", seed=sum(sizes), device=device), "integers")


@pytest.mark.parametrize("sizes", [(33, 129, 257), (33, 129, 97), (1, 2, 129)], ids=str)
@pytest.mark.reference_gpu(cuda="best + other maths", twins="best")
def test_arithmetic_is_that_of_the_math_mode(implementation, gemm, device, sizes):
    """Normal inputs within the bound, and one-hot rows to the bit, which lower precision inside would not pass."""
    deep = 97 if implementation.math == "fp32" else 257  # more slices than stages, which are up to 64 deep or 4
    if device == "cpu" and sizes != (33, 129, deep):
        pytest.skip("on the reference GPU one size will do")
    for kind, seed in (("normal", 1), ("one_hot", 2)):
        problem = Problem(*sizes, implementation.math)
        check(gemm, implementation, *make_inputs(problem, kind, seed, device), kind)


@pytest.mark.parametrize("sizes", [(33, 129, 257), (64, 64, 64)], ids=str)
@pytest.mark.reference_gpu(cuda="best + other variants + other maths", twins="other maths")
def test_b_by_columns(implementation, gemm, device, sizes):
    """B given as N x K: read as it lies where the rung can, else copied."""
    if implementation.math == "fp32":
        pytest.skip("fp32 rungs read B by rows alone; test_strided_operands_and_out has the copy")
    stands = implementation.dialect == "cuda" and implementation.math == "bf16"
    if device == "cpu" and sizes == (64, 64, 64) and not stands:
        pytest.skip("on the reference GPU CUDA in bf16 stands for sizes that are whole tiles")
    problem = Problem(*sizes, implementation.math, "nk")
    check(gemm, implementation, *make_inputs(problem, "integers", 10, device), "integers")


@pytest.mark.reference_gpu(cuda="fp8", twins="first in fp8")
def test_scales_of_fp8(implementation, gemm, device):
    """C is multiplied by both per-tensor scales; powers of two, so that nothing is rounded twice."""
    if implementation.math != "fp8":
        pytest.skip("scales are for fp8")
    a, b = make_inputs(Problem(33, 41, 65, "fp8"), "integers", seed=11, device=device)
    scale_a, scale_b = (torch.tensor(value, device=device) for value in (0.25, 8.0))
    c = gemm(a, b, scale_a=scale_a, scale_b=scale_b)
    gemm_ref.check(c, a.double() * 0.25, b.double() * 8, math="fp8", exact=True)
    assert torch.equal(gemm(a, b, scale_b=scale_b), gemm(a, b) * 8)


@pytest.mark.reference_gpu(cuda="best", twins="best")
def test_every_edge_partial(implementation, gemm, device):
    problem = replace(PRIMES if device == "cuda" else SMALLER_PRIMES, math=implementation.math)
    check(gemm, implementation, *make_inputs(problem, "normal", seed=3, device=device))


@pytest.fixture
def gpu_memory(tmp_path_factory) -> Iterator[None]:
    """All of it, for one test at a time of all processes."""
    with FileLock(tmp_path_factory.getbasetemp().parent / "gpu_memory.lock"):
        yield
        torch.cuda.empty_cache()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="takes a GPU: 40 GB and 10^11 operations")
@pytest.mark.parametrize("math", gemm_ref.MATHS)
@pytest.mark.parametrize("sizes", [(8192, 8192, 8192), (65537, 33, 65537)], ids=str)
def test_offsets_past_32_bits(sizes, math, gpu_memory):
    """8192^3, and an A of 2^32 elements; one oracle serves all kernels of a math mode."""
    a, b = make_inputs(Problem(*sizes, math), "normal", seed=4, device="cuda")
    oracle = gemm_ref.Oracle(a, b)
    for item in gemm_ref.implementations():
        if item.math == math and item.stage.refusal(torch.cuda.get_device_capability()) is None:
            gemm_ref.checked_run(gemm_of(item), a, b, math=math, oracle=oracle, config=item.config)


@settings(max_examples=2, derandomize=True, deadline=None)
@given(m=st.sampled_from(RAGGED), n=st.sampled_from(RAGGED), k=st.sampled_from(RAGGED), seed=st.integers(0, 2**31))
def test_dialects_agree_at_any_size(implementation, m, n, k, seed):
    """CUDA, Triton and Gluon against the oracle and each other, at sizes and inputs that Hypothesis picks."""
    stage, math = implementation.stage, implementation.stage.maths[0]  # the other modes are checked against the oracle
    items = [item for item in gemm_ref.implementations() if item.stage is stage and item.math == math]
    best = [item for item in items if item.variant == stage.find_variant("default", item.dialect)]
    if implementation != best[-1]:
        pytest.skip("once a rung, when this process has already run the kernels of all its dialects")
    a, b = make_inputs(Problem(m, n, k, math), "uniform", seed=seed)
    oracle = gemm_ref.Oracle(a, b)
    results = [gemm_of(item)(a, b) for item in best]
    for c in results:
        gemm_ref.check(c, a, b, math=math, oracle=oracle)
    mode = gemm_ref.MATHS[math]
    allowed = 2 * (2 * mode.operand_eps + k * mode.sum_eps) * oracle.scale + 2 * mode.result_eps * oracle.product.abs()
    for c in results[1:]:
        assert ((c.double() - results[0].double()).abs() <= allowed).all()


@pytest.mark.reference_gpu(cuda="best", twins="best")
def test_strided_operands_and_out(implementation, gemm, device):
    """Any strides are computed rightly, and only the elements of `out` are written."""
    cube = Problem(80, 80, 80, implementation.math)
    wide_a, wide_b = (make_inputs(cube, seed=s, device=device)[0] for s in (5, 6))
    a, b = wide_a[3:53:2, ::2], wide_b.t()[5:45, 7:40]  # every other row and column; a transposed window
    assert not a.is_contiguous() and not b.is_contiguous()
    arena = torch.full((30, 80), float("nan"), device=device, dtype=gemm_ref.MATHS[implementation.math].out_dtype)
    out = arena[2:27, 1:67:2]
    assert gemm(a, b, out=out) is out
    gemm_ref.check(out.contiguous(), a, b, math=implementation.math)
    outside = torch.ones_like(arena, dtype=torch.bool)
    outside[2:27, 1:67:2] = False
    assert arena[outside].isnan().all()
    columns = arena.fill_(float("nan"))[2:27, 16:48]  # which the TMA unit can store to where they are
    gemm_ref.check(gemm(a, b[:, :32], out=columns).contiguous(), a, b[:, :32], math=implementation.math)
    assert (~arena.isnan()).sum() == columns.numel()


@pytest.mark.reference_gpu(cuda="best", twins="best")
def test_lazily_negated_operands(implementation, gemm, device):
    """torch can negate by a flag on a view: a kernel that read the memory as it is would lose the sign."""
    a, b = make_inputs(Problem(9, 10, 11, implementation.math), "integers", seed=9, device=device)
    if implementation.math == "fp8":
        pytest.skip("torch has no negation of fp8")
    assert torch._neg_view(a).is_contiguous()
    assert torch.equal(gemm(torch._neg_view(a), b), -gemm(a, b))


@pytest.mark.reference_gpu(cuda="best + other maths", twins="none")
def test_misaligned_operands(implementation, gemm, device):
    """Storage that starts an element past a 16-byte vector: no rung may assume alignment it was not given."""
    a, b = make_inputs(Problem(33, 64, 64, implementation.math), "integers", seed=7, device=device)
    operands = [shifted(x) for x in (a, b)]
    assert all(x.data_ptr() % 16 == x.itemsize for x in operands)
    check(gemm, implementation, *operands, "integers")


@pytest.mark.reference_gpu(cuda="best", twins="best")
def test_returns_a_new_tensor_like_torch(implementation, gemm, device):
    a, b = make_inputs(Problem(5, 7, 3, implementation.math), device=device)
    a.requires_grad_()
    with torch.no_grad():  # the kernels are outside autograd
        c = gemm(a, b)
    dtype = gemm_ref.MATHS[implementation.math].out_dtype
    assert c.shape == (5, 7) and c.dtype == dtype and c.device == a.device and not c.requires_grad
    gemm_ref.check(c, a, b, math=implementation.math)


@pytest.mark.reference_gpu(cuda="best + other maths", twins="best in tensor cores")
def test_nothing_to_sum_gives_zeros(implementation, gemm, device):
    """BLAS: with K = 0 the product is zero, also where `out` held NaN."""
    mode = gemm_ref.MATHS[implementation.math]
    columns = 65 if device == "cuda" else 80  # to Triton the 0 is a multiple of 16, so that it needs no kernel more
    a, b = (torch.empty(shape, device=device, dtype=mode.dtype) for shape in ((33, 0), (0, columns)))
    out = torch.full((33, columns), float("nan"), device=device, dtype=mode.out_dtype)
    assert torch.equal(gemm(a, b, out=out), torch.zeros_like(out))


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.reference_gpu(cuda="best + other maths", twins="best")
def test_nan_and_inf_spread_as_they_should(implementation, gemm, device, value):
    """A bad element of A spoils its row and no other: padding must not multiply it by zero elsewhere."""
    math = implementation.math
    if math == "fp8" and value == float("inf"):
        pytest.skip("e4m3 has no infinity")
    a, b = make_inputs(Problem(40, 37, 35, math), seed=8, device=device)
    a[20, 34] = value
    c = gemm(a, b)
    assert not c[20].isfinite().any()
    rest = [row for row in range(40) if row != 20]
    gemm_ref.check(c[rest], torch.cat([a[:20], a[21:]]), b, math=math)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")
def test_runs_are_bit_identical(implementation, gemm):
    """200 runs give the same bits: sums are in a fixed order, and whatever changes between runs is a race."""
    if implementation.math == "fp32":
        pytest.skip("is about copies and products that run beside one another: s15 and on")
    a, b = make_inputs(Problem(1000, 1104, 1200, implementation.math), device="cuda")
    first = gemm(a, b)
    differing = sum(torch.ne(gemm(a, b), first).any() for _ in range(200))  # stays on the GPU until it is compared
    assert not differing


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")
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
