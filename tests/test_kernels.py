"""Every rung, in every dialect, against the oracle and against the others: the heart of the tests."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import gemm_ref
from experiments.contenders import gemm_of
from experiments.correctness import covering
from gemm_ref import STAGES, Problem, make_inputs

# For the reference GPU, whose time is short: beside the tiles of 32, 64 and 128, nothing to sum, one past one slice and
# past two of them, and many. `experiments run correctness --size` has any other.
FEW = {"edges": (1, 33, 127, 129), "depths": (0, 17, 33, 129)}
SMALLER_PRIMES = Problem(389, 263, 131)
PRIMES = Problem(1021, 509, 131)  # no size is a multiple of anything: every edge tile is partial


def test_edges_bit_exact(implementation, gemm, device):
    """Small integers sum exactly in any order, so one wrong index shows as a wrong bit."""
    for sizes in covering() if device == "cuda" else covering(**FEW):
        a, b = make_inputs(Problem(*sizes), "integers", seed=sum(sizes), device=device)
        gemm_ref.checked_run(gemm, a, b, exact=True, config=implementation.config)


@pytest.mark.parametrize("sizes", [(33, 129, 257), (1, 2, 129)], ids=str)
def test_arithmetic_is_ieee_fp32(implementation, gemm, device, sizes):
    """Normal inputs within the bound, and one-hot rows to the bit, which TF32 or BF16 inside would not pass."""
    a, b = make_inputs(Problem(*sizes), "normal", seed=1, device=device)
    gemm_ref.checked_run(gemm, a, b, config=implementation.config)
    a, b = make_inputs(Problem(*sizes), "one_hot", seed=2, device=device)
    gemm_ref.checked_run(gemm, a, b, exact=True, config=implementation.config)


def test_every_edge_partial(implementation, gemm, device):
    if device == "cpu" and implementation.variant != implementation.stage.find_variant(
        "default", implementation.dialect
    ):
        pytest.skip("on the reference GPU this is for one variant of a rung: it takes a second each")
    a, b = make_inputs(PRIMES if device == "cuda" else SMALLER_PRIMES, "normal", seed=3, device=device)
    gemm_ref.checked_run(gemm, a, b, config=implementation.config)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="takes a GPU: 17 GB and 10^11 operations")
@pytest.mark.parametrize("sizes", [(8192, 8192, 8192), (65537, 33, 65537)], ids=str)
def test_offsets_past_32_bits(sizes):
    """8192^3, and an A of 2^32 elements; one oracle serves all kernels."""
    problem = Problem(*sizes)
    a, b = make_inputs(problem, "normal", seed=4, device="cuda")
    oracle = gemm_ref.Oracle(a, b)
    for item in gemm_ref.implementations():
        gemm_ref.checked_run(gemm_of(item), a, b, oracle=oracle, config=item.config)


@pytest.mark.parametrize("stage", STAGES.values(), ids=lambda stage: stage.id)
@settings(max_examples=5, derandomize=True, deadline=None)
@given(m=st.integers(0, 70), n=st.integers(0, 70), k=st.integers(0, 70), seed=st.integers(0, 2**31))
def test_dialects_agree_at_any_size(stage, m, n, k, seed):
    """CUDA, Triton and Gluon against the oracle and each other, at sizes and inputs that Hypothesis picks."""
    a, b = make_inputs(Problem(m, n, k), "uniform", seed=seed)
    oracle = gemm_ref.Oracle(a, b)
    results = [gemm_of(item)(a, b) for item in gemm_ref.implementations() if item.stage is stage]
    for c in results:
        gemm_ref.check(c, a, b, oracle=oracle)
    allowed = 2 * k * torch.finfo(torch.float32).eps * oracle.scale
    for c in results[1:]:
        assert ((c.double() - results[0].double()).abs() <= allowed).all()


def test_strided_operands_and_out(implementation, gemm, device):
    """Any strides are computed rightly, and only the elements of `out` are written."""
    wide_a, wide_b = (make_inputs(Problem(80, 80, 80), seed=s, device=device)[0] for s in (5, 6))
    a, b = wide_a[3:53:2, ::2], wide_b.t()[5:45, 7:40]  # every other row and column; a transposed window
    assert not a.is_contiguous() and not b.is_contiguous()
    arena = torch.full((30, 70), float("nan"), device=device)
    out = arena[2:27, 1:67:2]
    assert gemm(a, b, out=out) is out
    gemm_ref.check(out.contiguous(), a, b)
    outside = torch.ones_like(arena, dtype=torch.bool)
    outside[2:27, 1:67:2] = False
    assert arena[outside].isnan().all()


def test_lazily_negated_operands(implementation, gemm, device):
    """torch can negate by a flag on a view: a kernel that read the memory as it is would lose the sign."""
    a, b = make_inputs(Problem(9, 10, 11), "integers", seed=9, device=device)
    assert torch._neg_view(a).is_contiguous()
    assert torch.equal(gemm(torch._neg_view(a), b), -gemm(a, b))


def test_misaligned_operands(implementation, gemm, device):
    """Storage that starts 4 bytes past a 16-byte vector: no rung may assume alignment it was not given."""
    a, b = make_inputs(Problem(33, 64, 64), "integers", seed=7, device=device)
    shifted = [torch.cat([x.new_zeros(1), x.reshape(-1)])[1:].view(x.shape) for x in (a, b)]
    assert all(x.data_ptr() % 16 == 4 for x in shifted)
    gemm_ref.checked_run(gemm, *shifted, exact=True)


def test_returns_a_new_tensor_like_torch(implementation, gemm, device):
    a, b = make_inputs(Problem(5, 7, 3), device=device)
    a.requires_grad_()  # outside autograd: computed, without a history
    c = gemm(a, b)
    assert c.shape == (5, 7) and c.dtype == torch.float32 and c.device == a.device and not c.requires_grad
    gemm_ref.check(c, a, b)


def test_nothing_to_sum_gives_zeros(implementation, gemm, device):
    """BLAS: with K = 0 the product is zero, also where `out` held NaN."""
    a, b = torch.empty((33, 0), device=device), torch.empty((0, 65), device=device)
    out = torch.full((33, 65), float("nan"), device=device)
    assert torch.equal(gemm(a, b, out=out), torch.zeros(33, 65, device=device))


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_nan_and_inf_spread_as_they_should(implementation, gemm, device, value):
    """A bad element of A spoils its row and no other: padding must not multiply it by zero elsewhere."""
    a, b = make_inputs(Problem(40, 37, 35), seed=8, device=device)
    a[20, 34] = value
    c = gemm(a, b)
    assert not c[20].isfinite().any()
    rest = torch.arange(40, device=device) != 20
    gemm_ref.check(c[rest], a[rest], b)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")
def test_runs_on_the_current_stream(implementation, gemm):
    """Work queued before on a side stream is waited for: the launch is on it, not on the default stream."""
    a, b = make_inputs(Problem(512, 512, 512), device="cuda")
    late = torch.zeros_like(a)
    torch.cuda.synchronize()
    with torch.cuda.stream(torch.cuda.Stream()):
        torch.cuda._sleep(50_000_000)
        late.copy_(a)
        c = gemm(late, b)
    torch.cuda.synchronize()
    gemm_ref.check(c, a, b)
