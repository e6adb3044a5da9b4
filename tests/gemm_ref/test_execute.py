"""Plans, with a launch that only pretends: what is worked out once, and what is not kept beyond one call."""

from __future__ import annotations

import contextlib
import functools
import gc
import threading
import weakref

import pytest
import torch

import gemm_ref
from gemm_ref.call import Plan, execute, streams
from gemm_ref.epilogue import Extras, apply
from gemm_ref.operands import LINE_BYTES
from gemm_ref.operands.copy_layout import copy_all
from gemm_ref.operands.split import OutOfRange
from tests.matrices import by_columns, in_wider, shifted, with_gaps

NAMES = {"stage": "s08_vectorized", "dialect": "cuda", "variant": "default", "math": None}


class Backend:
    """It has torch multiply, and counts what it is asked for."""

    def __init__(self) -> None:
        self.plans: list[Plan] = []
        self.strides_of_b: list[tuple[int, ...]] = []

    def prepare(self, plan, a, b, c):
        self.plans.append(plan)
        self.strides_of_b.append(b.stride())
        strides = a.stride(), b.stride(), c.stride()
        rows_of_b = b if plan.problem.b_layout == "kn" else b.t()
        assert a.stride(1) == c.stride(1) == 1 and (rows_of_b.stride(1) == 1 or rows_of_b.shape[1] < 2)

        epilogue = plan.implementation.epilogue

        def launch(a, b, c, extras):
            assert (a.stride(), b.stride(), c.stride()) == strides, "not like those that it was prepared for"
            assert not a.is_neg() and not b.is_neg() and not a.requires_grad
            assert epilogue == extras.epilogue(c.dtype, epilogue.bias_by_rows) and (extras.beta or extras.c is None)
            bias = None if extras.bias is None else extras.bias[0]  # one row
            c.copy_(apply(a.double() @ b.double(), extras._replace(bias=bias), epilogue.bias_by_rows))

        return launch

    def __call__(self, a, b, out=None, **more):
        names = {name: more.pop(name) for name in NAMES if name in more}
        return execute.run(a, b, out, self.prepare, **{**NAMES, **names}, extras=Extras(**more))


@pytest.fixture
def gemm(monkeypatch) -> Backend:
    """Its plans are kept, as those of calls on a GPU are."""
    monkeypatch.setattr(execute, "_is_on_gpu", lambda a: isinstance(a, torch.Tensor))
    return Backend()


def matrices(m=8, n=12, k=4, dtype=torch.float32, seed=0):
    generator = torch.Generator().manual_seed(seed)
    a, b = (torch.randint(-4, 5, shape, generator=generator).to(dtype) for shape in ((m, k), (k, n)))
    return a, b


def test_the_second_call_is_not_planned_again_but_on_the_reference_gpu(gemm, monkeypatch):
    for seed in range(3):
        a, b = matrices(seed=seed)
        c = gemm(a, b)
        assert torch.equal(c, a @ b) and c.data_ptr() not in (a.data_ptr(), b.data_ptr())
    assert len(gemm.plans) == 1
    monkeypatch.undo()
    gemm(a, b), gemm(a, b)
    assert len(gemm.plans) == 3


@pytest.mark.parametrize(("stage", "first", "columns", "width", "in_place", "by_threads"), [
    ("s17", 8, 16, 64, True, False), ("s19", 16, 24, 64, True, False), ("s19", 4, 24, 64, False, False),
    ("s19", 8, 25, 64, False, True), ("s16", 8, 16, 64, False, False),
    ("s19", 0, 24, 24, True, False), ("s19", 0, 25, 25, True, True), ("s18", 0, 25, 25, False, False),
])  # fmt: skip
def test_who_stores_c_and_where_depends_on_its_rows(
    gemm, monkeypatch, stage, first, columns, width, in_place, by_threads
):
    """The TMA unit stores aligned rows, threads store others; a rung without such stores is given another C."""
    a, b = matrices(n=columns, k=8, dtype=torch.bfloat16)
    arena, stored = torch.zeros(8, width, dtype=torch.bfloat16), []
    out = arena[:, first : first + columns]
    prepare = gemm.prepare
    monkeypatch.setattr(gemm, "prepare", lambda plan, a, b, c: stored.append(c) or prepare(plan, a, b, c))
    for _ in range(2):
        assert gemm(a, b, out, stage=gemm_ref.get_stage(stage).id) is out and torch.equal(out, a @ b)
        assert arena.count_nonzero() == out.count_nonzero()
    assert [c.data_ptr() == out.data_ptr() for c in stored] == [in_place]
    assert [plan.implementation.c_by_threads for plan in gemm.plans] == [by_threads]


A, B = matrices()
OUT = torch.empty(8, 12)
C, BIAS, HALVES = torch.arange(96.0).view(8, 12), torch.arange(-5.0, 7.0), matrices(dtype=torch.bfloat16)
S19 = {"stage": "s19", "math": "tf32"}
# name -> operands, and names and extras; each is another call than every one before it
OTHERS = {
    "as it is": ((A, B), {}),
    "another size": (matrices(m=9), {}),
    "another depth": (matrices(k=5), {}),
    "none to sum": (matrices(k=0), {}),
    "nothing to compute": (matrices(m=0), {}),
    "a shifted": ((shifted(A), B), {}),
    "b shifted": ((A, shifted(B)), {}),
    "a apart": ((with_gaps(A), B), {}),
    "b by columns": ((A, by_columns(B)), {}),
    "a negated by a flag": ((torch._neg_view(A), B), {}),
    "b negated by a flag": ((A, torch._neg_view(B)), {}),
    "an out": ((A, B, OUT), {}),
    "an out, shifted": ((A, B, shifted(OUT)), {}),
    "an out, apart": ((A, B, with_gaps(OUT)), {}),
    "an out negated by a flag": ((A, B, torch._neg_view(OUT.clone())), {}),
    "another stage": ((A, B), {"stage": "s09"}),
    "another variant": ((A, B), {"stage": "s09", "variant": "one_block"}),
    "another dialect": ((A, B), {"dialect": "triton"}),
    "another dtype": (matrices(dtype=torch.bfloat16), {"stage": "s17"}),
    "another math": ((A, B), {"stage": "s17", "math": "tf32"}),
    "tma, shifted": ((shifted(A), B), {"stage": "s17", "math": "tf32"}),
    "tma, ragged": (matrices(7, 9, 5), {"stage": "s17", "math": "tf32"}),
    "tma, in wider matrices": ((in_wider(A), in_wider(B)), {"stage": "s17", "math": "tf32"}),
    "tma, none to sum": (matrices(k=0), {"stage": "s17", "math": "tf32"}),
    "fp8": (matrices(dtype=torch.float8_e4m3fn), {"stage": "s17"}),
    "fp8, scale of a": (matrices(dtype=torch.float8_e4m3fn), {"stage": "s17", "scale_a": torch.tensor(0.5)}),
    "fp8, scale of b": (matrices(dtype=torch.float8_e4m3fn), {"stage": "s17", "scale_b": torch.tensor([2.0])}),
    "alpha": ((A, B), S19 | {"alpha": 2.0}),
    "an activation": ((A, B), S19 | {"activation": "relu"}),
    "another activation": ((A, B), S19 | {"activation": "silu"}),
    "a bias": ((A, B), S19 | {"bias": BIAS}),
    "a bias, shifted": ((A, B), S19 | {"bias": shifted(BIAS)}),
    "a bias, apart": ((A, B), S19 | {"bias": with_gaps(BIAS[None])[0]}),
    "a bias negated by a flag": ((A, B), S19 | {"bias": torch._neg_view(BIAS)}),
    "a bias in fp32": (HALVES, {"stage": "s19", "bias": BIAS}),
    "a bias in bf16": (HALVES, {"stage": "s19", "bias": BIAS.bfloat16()}),
    "an odd bias": (matrices(7, 9, 5), S19 | {"bias": BIAS[:9]}),
    "one column, biased": ((A, B[:, :1]), S19 | {"bias": BIAS[:1]}),
    "one row, biased": ((A[:1], B), S19 | {"bias": BIAS}),
    "a c": ((A, B), S19 | {"c": C}),
    "a c times 0": ((A, B), S19 | {"c": torch.full_like(C, torch.nan), "beta": 0.0}),
    "a c, out": ((A, B, OUT), S19 | {"c": C, "beta": 0.5}),
    "a c, shifted": ((A, B), S19 | {"c": shifted(C)}),
    "an odd c": (matrices(7, 9, 5), S19 | {"c": C[:7, :9]}),
    "one column and a c": ((A, B[:, :1]), S19 | {"c": C[:, :1], "bias": BIAS[:1], "alpha": 3.0}),
    "none to sum, finished": (matrices(k=0), S19 | {"c": C, "bias": BIAS, "activation": "relu"}),
}


def test_all_that_a_plan_depends_on_is_its_key(gemm):
    """Each call after each other one, twice: the result is right, and nothing is planned a second time."""
    for round_ in range(2):
        for name, (operands, more) in OTHERS.items():
            a, b, *out = operands
            planned = len(gemm.plans)
            c = gemm(*operands, **more)
            extras = Extras(**{key: x for key, x in more.items() if key in Extras._fields})
            assert torch.equal(c, apply(a.double() @ b.double(), extras).to(c.dtype)), name
            assert not out or c is out[0]
            launched = c.numel() > 0 and not (more and a.shape[1] == 0)
            assert len(gemm.plans) - planned == (launched and round_ == 0), name


def test_grad_mode_is_part_of_the_key(gemm):
    a, b = A.clone().requires_grad_(), torch.nn.Parameter(B.clone())
    with torch.no_grad():
        for _ in range(2):
            assert torch.equal(gemm(a, b), A @ B)
    assert len(gemm.plans) == 1
    for operands in ((a, B), (A, b)):
        with pytest.raises(ValueError, match="requires grad"):
            gemm(*operands)


def test_what_guards_memory_is_looked_at_in_every_call(gemm):
    """Whether `out` meets an operand depends on addresses, which are in no key."""
    arena = torch.zeros(400)
    a, b = arena[:32].view(8, 4), arena[64:112].view(4, 12)
    for first in (128, 256, 304):
        gemm(a, b, arena[first : first + 96].view(8, 12))
    for first, name in ((0, "a"), (28, "a"), (108, "b"), (64, "b")):
        with pytest.raises(ValueError, match=f"out shares memory with {name}"):
            gemm(a, b, arena[first : first + 96].view(8, 12))
    gemm(a, b, arena[112:208].view(8, 12))  # right after b
    assert len(gemm.plans) == 1


@pytest.mark.parametrize("more", [dict, lambda: dict(c=C[:, :8].contiguous(), **S19)])
def test_an_operand_itself_is_no_out(gemm, more):
    """Nor where a call with another `out` of the same shape was right, and its plan is cached."""
    a, b = matrices(8, 8, 8)
    right = gemm(a, b, torch.empty(8, 8), **more())
    for operand, name in ((a, "a"), (b, "b")):
        for c in [{}, {"c": operand}] if more() else [{}]:
            with pytest.raises(ValueError, match=f"out shares memory with {name}"):
                gemm(a, b, operand, **more() | c)
    assert torch.equal(gemm(a, b, torch.empty(8, 8), **more()), right) and len(gemm.plans) == 1


@pytest.mark.parametrize("split", [(), ("a",), ("a", "b")])
def test_on_range_decides_in_every_call_whether_operands_out_of_range_raise(gemm, split):
    names = {"stage": "s20_emulated", "dialect": "cuda", "variant": "default", "math": "fp16x3"}
    plans = []

    def prepare(plan, a, b, c):
        plans.append(plan)
        return lambda a, b, c, extras: c.copy_(a.matrix @ b.matrix)

    a, b = A.clone(), B.clone()
    wide = A.clone().index_fill_(0, torch.tensor([3]), torch.inf)
    for on_range in (None, "raise", "widen", "raise"):
        for left, is_held in ((a, True), (wide, False)):
            operands = [
                gemm_ref.split_operand(x, side, math="fp16x3") if side in split else x
                for side, x in (("a", left), ("b", b))
            ]
            raises = on_range == "raise" and not is_held
            with pytest.raises(OutOfRange, match="rows 3 of a") if raises else contextlib.nullcontext():
                c = execute.run(*operands, None, prepare, **names, on_range=on_range)
                assert torch.equal(c[0], (A @ B)[0])
    assert [plan.raise_on_range for plan in plans] == [False, True, False]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"a": A[:, :3]}, "inner sizes differ"),
        ({"out": torch.empty(8, 12, requires_grad=True)}, "out requires grad"),
        ({"a": A.to_sparse()}, "a must be dense"),
        ({"scale_a": torch.tensor(2.0)}, "scale_a is for fp8"),
        ({"stage": ["s08"]}, "a stage is named by its id"),
        ({"a": None}, "a must be a torch.Tensor"),
    ],
)
def test_a_wrong_call_is_wrong_every_time(gemm, wrong, message):
    for _ in range(2):
        gemm(A, B)
        with pytest.raises(ValueError, match=message):
            gemm(**{"a": A, "b": B} | wrong)


def test_alpha_and_beta_are_no_part_of_a_plan(gemm):
    for alpha, beta in ((2.0, 0.5), (3, 4), (0.0, torch.nan)):
        c = gemm(A, B, c=C, alpha=alpha, beta=beta, **S19)
        assert torch.allclose(c, alpha * (A @ B) + beta * C, equal_nan=True)
    assert len(gemm.plans) == 1


def test_c_may_be_out_but_no_other_part_of_it(gemm):
    arena = torch.zeros(400)
    for first in (0, 200):
        out = arena[first : first + 96].view(8, 12).copy_(C)
        same = arena[first : first + 96].view(8, 12)
        for c in (out, same):
            out.copy_(C)
            assert gemm(A, B, out, c=c, **S19) is out and torch.equal(out, A @ B + C)
        for other in (arena[first + 4 : first + 100].view(8, 12), out.view(12, 8).t()):
            with pytest.raises(ValueError, match="out shares memory with c"):
                gemm(A, B, out, c=other, **S19)
        with pytest.raises(ValueError, match="out shares memory with bias"):
            gemm(A, B, out, bias=out[3], **S19)


def test_what_must_be_copied_is_copied_at_once_and_the_product_starts_early(gemm, monkeypatch):
    copied = []
    monkeypatch.setattr("gemm_ref.call.layout.copy_all", lambda *pairs: copied.append(len(pairs)) or copy_all(*pairs))
    odd, wide = matrices(7, 9, 5), (in_wider(A), in_wider(B))
    for stage, operands, copies in (
        ("s17", wide, 1),  # B along k
        ("s19", wide, 0),
        ("s19", (wide[0], in_wider(by_columns(B).t()).t()), 0),
        ("s17", odd, 2),
        ("s19", odd, 2),
        ("s19", (odd[0], matrices(7, 8, 5)[1]), 0),  # A in its four phases
        ("s19", (by_columns(odd[0]), matrices(7, 8, 5)[1]), 1),
        ("s19", (shifted(odd[0]), matrices(7, 8, 5)[1]), 1),
        ("s19", (odd[0][:3], matrices(7, 8, 5)[1]), 1),  # fewer rows than phases
        ("s19", (odd[0], by_columns(matrices(7, 8, 5)[1])), 2),
        ("s19", (A[:1, :3], B[:3]), 0),  # one row is where it is
        ("s14", wide, 2),
        ("s08", (by_columns(A), B), 1),
    ):
        copied.clear()
        a, b = operands
        assert torch.equal(gemm(a, b, stage=stage, math="fp32" if stage in ("s08", "s14") else "tf32"), a @ b)
        assert copied == [copies] * (copies > 0)
        assert gemm.plans[-1].early == (copies > 0 and stage in ("s14", "s19"))


def test_an_odd_b_is_copied_to_lines_for_the_tiles_that_want_it(gemm):
    a, b = matrices(7, 9, 5)
    assert torch.equal(gemm(a, b, stage="s14", variant="tile64_copied"), a @ b)
    (plan,) = gemm.plans
    assert plan.implementation.variant == "tile64_copied" and plan.early
    assert [strides[0] * b.itemsize % LINE_BYTES for strides in gemm.strides_of_b] == [0]


def test_the_number_of_plans_is_bounded(gemm):
    execute._entry_of.cache_clear()
    for m in range(1, execute.MOST_PLANS + 50):
        a = torch.ones(m, 1)
        assert torch.equal(gemm(a, torch.ones(1, 1)), a)
    assert execute._entry_of.cache_info().currsize == execute.MOST_PLANS
    assert torch.equal(gemm(torch.ones(1, 1), torch.ones(1, 1)), torch.ones(1, 1))  # planned again


@pytest.mark.parametrize("stage", ["s08", "s17"])
def test_a_plan_keeps_no_matrix(gemm, stage):
    a, b = matrices(7, 9, 5)
    out, math = torch.empty(7, 9), "fp32" if stage == "s08" else "tf32"
    gemm(with_gaps(a), with_gaps(b), with_gaps(out), stage=stage, math=math)
    gemm(a, b, out, stage=stage, math=math)
    kept = [weakref.ref(x) for x in (a, b, out)]
    del a, b, out
    gc.collect()
    assert [x() for x in kept] == [None] * 3


def test_cached_flags_are_in_no_private_pool(monkeypatch):
    """torch routes the allocations of one thread to such a pool, as those of a CUDA graph that is warmed up."""
    thread = threading.local()  # of torch: its stream, and whether its allocations go to a private pool
    thread.stream, thread.in_pool = "of the caller", True

    @contextlib.contextmanager
    def stream(current):
        thread.stream = current
        yield

    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: thread.stream)
    monkeypatch.setattr(torch.cuda, "stream", stream)
    where = []
    monkeypatch.setattr(torch, "zeros", lambda size, **_: where.append((thread.stream, hasattr(thread, "in_pool"))))
    monkeypatch.setattr(streams, "_cached_flags", functools.lru_cache(streams._cached_flags.__wrapped__))
    for count in (5, 6):
        streams.flags_for(count, 0, 7)
    assert where == [("of the caller", False)]
