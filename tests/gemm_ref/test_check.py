"""The checker's own tests: wrong kernels must be rejected, and sound ones never."""

from __future__ import annotations

import contextlib
from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import gemm_ref
from gemm_ref import Problem, WrongResult, check, checked_run, make_inputs
from gemm_ref.compute import EXACT_KINDS
from gemm_ref.correct import GUARD
from gemm_ref.epilogue import ACTIVATIONS, EXACT, Extras, apply
from gemm_ref.problem import INPUT_KINDS

SIZES, ONES = Problem(70, 65, 96), torch.ones(2, 2)


def _into(out, value):
    return out.copy_(value) if out is not None else value


def right(a, b, out=None):
    return _into(out, (a.double() @ b.double()).float())


def to_tf32(x):
    """Cuts to TF32's 10 bits of fraction."""
    return (x.contiguous().view(torch.int32) & ~0x1FFF).view(torch.float32)


def tf32(a, b, out=None):
    """Operands in TF32, products and sums in fp32."""
    return _into(out, to_tf32(a) @ to_tf32(b))


def bf16(a, b, out=None):
    return _into(out, a.bfloat16().float() @ b.bfloat16().float())


def in_order(a, b, out=None):
    """One product after the other: the worst order that there is for a sum in float32."""
    out.zero_()
    for i in range(a.shape[1]):
        out += a[:, i, None] * b[None, i]
    return out


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 0.0])
def test_one_wrong_element_is_rejected(value):
    a, b = make_inputs(SIZES)
    c = right(a, b)
    c[-1, -1] = value
    with pytest.raises(WrongResult, match="1 of 4550 elements"):
        check(c, a, b)


@pytest.mark.parametrize("kernel", [tf32, bf16])
def test_lower_precision_is_rejected_at_large_k(kernel):
    """The bound grows with K and lets it pass there; one-hot rows do not."""
    a, b = make_inputs(Problem(64, 64, 4096), "one_hot")
    assert torch.equal(b, make_inputs(Problem(64, 64, 4096))[1])  # so that one is made for both
    with pytest.raises(WrongResult):
        checked_run(kernel, a, b, exact=True)


@pytest.mark.parametrize("kind", INPUT_KINDS)
@settings(max_examples=25, derandomize=True, deadline=None)
@given(m=st.integers(0, 40), n=st.integers(0, 40), k=st.integers(0, 300), seed=st.integers(0, 2**31))
def test_sound_arithmetic_is_never_rejected(kind, m, n, k, seed):
    """A float32 sum in the worst order that there is stays inside the bound."""
    accuracy = checked_run(in_order, *make_inputs(Problem(m, n, k), kind, seed), exact=kind in EXACT_KINDS)
    assert 0 <= accuracy.bound_share <= 1


@pytest.mark.parametrize("k", (256, 1024))
def test_sums_of_parts_may_be_rounded_before_they_are_added(k):
    """As a sum over GPUs is; the bound of one sum would call that wrong where K is small."""
    a, b = gemm_ref.make_inputs(gemm_ref.Problem(64, 512, k, "bf16"), "normal")
    parts = [slice(0, k // 2), slice(k // 2, k)]
    rounded = [(a[:, part].double() @ b[part].double()).bfloat16() for part in parts]
    c = (rounded[0].float() + rounded[1].float()).bfloat16()
    assert gemm_ref.check(c, a, b, math="bf16", parts=parts).bound_share < 1
    with pytest.raises(gemm_ref.WrongResult):
        gemm_ref.check(c, a, b, math="bf16")
    with pytest.raises(gemm_ref.WrongResult):
        gemm_ref.check(rounded[0], a, b, math="bf16", parts=parts)


def without_tail(a, b, math, lost):
    """The product without its last `lost` terms, otherwise rounded only once."""
    k = a.shape[1] - lost
    return (a[:, :k].double() @ b[:k].double()).to(gemm_ref.MATHS[math].out_dtype)


@pytest.mark.parametrize("k", [100, 11528, 100_000])
@pytest.mark.parametrize("math", gemm_ref.MATHS)
def test_lost_products_at_the_end_of_k_are_found(math, k):
    """By one probe at any K; up to 11528 also by normal inputs, but in fp8, whose sums are coarse."""
    kinds = ["k_tail"] if k == 100_000 else ["k_tail", "normal"]
    for kind in kinds:
        a, b = make_inputs(Problem(*((4, 6) if kind == "k_tail" else (12, 20)), k, math), kind)
        oracle = gemm_ref.Oracle(a, b)
        check(without_tail(a, b, math, 0), a, b, math=math, oracle=oracle)
        for lost in (1, 8, 64) if kind == "k_tail" else (8, 64) if math != "fp8" or k == 100 else ():
            with pytest.raises(WrongResult):
                check(without_tail(a, b, math, lost), a, b, math=math, oracle=oracle)


@pytest.mark.parametrize(
    ("math", "k", "change", "is_right"),
    [
        ("fp32", 30_000, 0, True),
        ("fp32", 30_000, -1, False),  # the bound would allow 107
        ("fp16", 11_528, 0, True),
        ("fp16", 11_528, -8, False),  # fp16 holds 11528, so nothing is rounded
        ("bf16", 11_528, -8, True),  # the neighbours of 11528 in bf16 are 11520
        ("bf16", 11_528, 56, True),  # and 11584
        ("bf16", 11_528, -72, False),
        ("fp8", 30_000, -128, True),  # past 2**13, where its tensor cores may round
    ],
)
def test_integers_are_compared_exactly(math, k, change, is_right):
    """Wherever no sum needs rounding, also without `exact`."""
    a, b = (torch.ones(shape).to(gemm_ref.MATHS[math].dtype) for shape in ((2, k), (k, 3)))
    c = torch.full((2, 3), float(k + change)).to(gemm_ref.MATHS[math].out_dtype)
    with contextlib.nullcontext() if is_right else pytest.raises(WrongResult, match="6 of 6 elements"):
        check(c, a, b, math=math)


@pytest.mark.parametrize(
    ("values", "math", "extras"),
    [
        ((1.0, 1.0), "fp32", Extras(alpha=2 / 3)),  # alpha may be rounded in each product,
        ((1.0, 1.0), "fp32", Extras(bias=torch.full((1,), 0.1))),  # and the sums begin with the bias
        ((1.1, 1.0), "fp32", Extras()),  # no integers
        ((4097.0, 1.0), "tf32", Extras()),  # 13 bits, of which tf32 keeps 11
        ((4097.0, 2.0), "fp32", Extras()),  # sums past 2**24
    ],
)
def test_integers_that_a_kernel_may_round_are_not(values, math, extras):
    a, b = torch.full((1, 3000), values[0]), torch.full((3000, 1), values[1])
    exact = apply(a.double() @ b.double(), extras)
    assert check((exact * (1 + 1e-5)).float(), a, b, math=math, extras=extras).bound_share > 0


def structured(k):
    """Inputs whose signs are not random, so that partial sums grow large though some whole sums are small."""
    generator = torch.Generator().manual_seed(0)
    a, b = torch.randn((3, k), generator=generator), torch.randn((k, 3), generator=generator)
    ramp = torch.arange(k)
    halves = torch.where(ramp < k // 2, 1.0, -1.0)
    cut = 1 + 0.9 * 2**-10  # of which tf32 keeps 1, so that products of one sign alone lose something
    return {
        "random": (a, b),
        "positive": (a.abs(), b.abs()),
        "equal": (torch.full_like(a, 0.1), torch.full_like(b, 0.7)),
        "halves": (a.abs() * halves, b.abs()),
        "alternating": (a.abs() * (1 - 2 * (ramp % 2)), b.abs()),
        "blocks": (a.abs() * (1 - 2 * (ramp // 64 % 2)), b.abs()),
        "gram": (a, (a * halves).T.contiguous()),
        "waves": (torch.sin(ramp * 6.28 / k).expand(3, k).contiguous(), b.abs()),
        "sorted": (a.sort(1).values, torch.full_like(b, 0.3)),
        "one-sided": (
            torch.where(a[:1] < 0, cut, -1.0).expand(3, k),
            torch.where(a[0, :, None] < 0, cut, 1.0).expand(k, 3),
        ),
    }


@pytest.mark.parametrize("math", ["fp32", "tf32", "bf16"])
def test_structured_inputs_are_never_accused(math):
    """Of a kernel whose additions all lose the most that a sound one may, in one direction; it cuts to tf32."""
    mode = gemm_ref.MATHS[math]
    for name, operands in structured(8192).items():
        a, b = (x.to(mode.dtype) for x in operands)
        left, right = (to_tf32(x) if math == "tf32" else x for x in (a, b))
        products = left.double()[:, :, None] * right.double()
        for stride in (1, 2, 32, 128):  # sums of every so many-th product, which are then added
            partial = products.view(3, -1, stride, 3).cumsum(1)
            whole = partial[:, -1].cumsum(1)
            lost = (partial.abs().sum((1, 2)) + whole.abs().sum(1)) * mode.sum_eps / 2
            lost *= not (name == "one-sided" and math == "bf16")  # integers, which lose nothing
            c = (whole[:, -1] + lost).to(mode.out_dtype)
            assert check(c, a, b, math=math).bound_share <= 1, (name, stride)


def test_sums_of_either_sign_may_lose_little():
    """A twentieth of the worst case, in one element: more than any order of such a sum loses."""
    a, b = make_inputs(Problem(32, 32, 65_536))
    c = right(a, b)
    c[3, 5] += 65_536 * 2**-23 * (a[3].abs() @ b[:, 5].abs()) / 10
    with pytest.raises(WrongResult, match=r"1 of 1024 elements .* at C\[3, 5\].* in no sum of products of either sign"):
        check(c, a, b)


def test_overflow_to_infinity_is_right():
    a, b = torch.full((2, 2), 3e38), torch.full((2, 2), 10.0)
    check(torch.full((2, 2), float("inf")), a, b)
    with pytest.raises(WrongResult):
        check(torch.full((2, 2), float("-inf")), a, b)


def test_nan_belongs_where_the_oracle_has_it():
    a, b = make_inputs(Problem(4, 4, 4))
    a[1, 2] = float("nan")
    check(a @ b, a, b)
    with pytest.raises(WrongResult):
        check(torch.nan_to_num(a @ b), a, b)


def finished(wrong=lambda named: named):
    """A kernel with an epilogue in float32, of what `wrong` makes of its extras."""

    def fn(a, b, out, **named):
        return out.copy_(apply((a.double() @ b.double()).float(), Extras(**wrong(named))))

    return fn


@pytest.mark.parametrize("activation", [None, *ACTIVATIONS])
def test_epilogues_are_checked(activation):
    kind = "integers" if activation in EXACT else "normal"
    a, b = make_inputs(SIZES, kind)
    c, bias = make_inputs(Problem(SIZES.m, 1, SIZES.n), kind)[0], make_inputs(Problem(1, 1, SIZES.n), kind)[0][0]
    extras = Extras(bias=bias, activation=activation, c=c, alpha=-0.5, beta=2.0)
    about = {"extras": extras, "exact": activation in EXACT}
    assert checked_run(finished(), a, b, **about).bound_share < 0.5
    others = ({"bias": bias.flip(0)}, {"c": c.flip(0)}, {"alpha": -0.501}, {"beta": 1.99})
    other = "relu" if activation is None else ACTIVATIONS[ACTIVATIONS.index(activation) - 1]
    for change in (*others, {"activation": other}, {"bias": None}, {"c": None}):
        with pytest.raises(WrongResult):
            checked_run(finished(lambda named, change=change: named | change), a, b, **about)


def test_report_says_what_where_and_which_tile():
    a, b = make_inputs(SIZES)
    c = right(a, b)
    c[33, 64] += 1
    with pytest.raises(WrongResult) as caught:
        check(c, a, b, config=gemm_ref.get_stage("s04").variants["default"])
    text = str(caught.value)
    assert "1 of 4550 elements" in text and "worst at C[33, 64]" in text
    assert "tile (1, 2) of 32 x 32, at (1, 0) of it" in text
    assert "rows 33..33 and columns 64..64 of 70 x 65" in text


@pytest.mark.parametrize(("offset", "side"), [(-1, "before"), (SIZES.m * SIZES.n, "after")])
def test_guard_bands_see_writes_around_c(offset, side):
    def spills(a, b, out=None):
        right(a, b, out)
        around = out.as_strided((1,), (1,), out.storage_offset() + offset)
        around.fill_(0.0)
        return out

    with pytest.raises(WrongResult, match=f"1 elements {side} C were written, the first at C's element {offset}"):
        checked_run(spills, *make_inputs(SIZES))
    assert GUARD >= 1024


@pytest.mark.parametrize("name", ["b", "bias"])
def test_changed_inputs_are_seen(name):
    def scribbles(a, b, out, bias):
        finished()(a, b, out, bias=bias)
        {"b": b, "bias": bias}[name].view(-1)[3] = 7
        return out

    with pytest.raises(WrongResult, match=f"changed its input {name}"):
        checked_run(scribbles, *make_inputs(SIZES), extras=Extras(bias=torch.zeros(SIZES.n)))


def test_inputs_are_the_same_everywhere():
    """Seeded streams: these numbers are part of the repo's results."""
    a, b = make_inputs(Problem(2, 3, 4), "normal", seed=0)
    again = make_inputs(Problem(2, 3, 4), "normal", seed=0)
    assert torch.equal(a, again[0]) and torch.equal(b, again[1])
    assert not torch.equal(a, make_inputs(Problem(2, 3, 4), "normal", seed=1)[0])
    assert a.flatten()[:2].tolist() == [float.fromhex("0x1.a9a74p-6"), float.fromhex("-0x1.147ec8p+0")]
    whole = make_inputs(Problem(4096, 1, 2048))[0].flatten()  # two chunks of the random stream, filled in parallel
    assert not torch.equal(whole[: 1 << 22], whole[1 << 22 :]) and abs(whole.mean()) < 1e-2


def test_problem_sizes():
    assert Problem.parse("4096") == Problem(4096, 4096, 4096)
    assert Problem.parse("1021x509x131") == Problem(1021, 509, 131)
    assert Problem(2, 3, 4).flops == 48 and Problem(2, 3, 4).min_bytes == 4 * (8 + 12 + 6)


@pytest.mark.parametrize("math", gemm_ref.MATHS)
def test_wrong_kernels_are_rejected_in_every_math(math):
    mode = gemm_ref.MATHS[math]
    a, b = make_inputs(Problem(70, 65, 96, math))

    def kernel(x, y, out, factor, elements):
        product = factor * (x.double() @ y.double()).to(mode.out_dtype)
        out.view(-1)[:elements] = product.view(-1)[:elements]
        return out

    scaled = 1.2 if math == "fp8" else 1.02  # fp8's sums may lose 2.3% of |A| @ |B| at this K
    for factor, elements, message in ((scaled, 70 * 65, "are wrong"), (1.0, 70 * 65 - 1, "1 of them were never writ")):
        with pytest.raises(WrongResult, match=message):
            checked_run(partial(kernel, factor=factor, elements=elements), a, b, math=math)


def test_operands_cut_to_tf32_pass_as_tf32():
    a, b = make_inputs(SIZES, "one_hot")
    checked_run(tf32, a, b, math="tf32")
    assert not gemm_ref.MATHS["tf32"].is_exact("one_hot") and gemm_ref.MATHS["tf32"].is_exact("integers")


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["product", "scale"])
def test_a_large_oracle_on_the_gpu_is_the_cpus(name, monkeypatch):
    monkeypatch.setattr("gemm_ref.reference._CPU_MOST_PRODUCTS", 0)
    a, b = make_inputs(Problem(129, 257, 65))
    oracle = gemm_ref.Oracle(a, b)
    there, here = oracle.on(torch.device("cuda"), name).cpu(), getattr(oracle, name)
    assert torch.allclose(there, here, rtol=1e-13, atol=1e-13)
