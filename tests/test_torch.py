"""A `gemm` in torch's own tools: compiled and exported graphs, gradients, batches of rows, vmap, and docs/torch.md."""

from __future__ import annotations

import functools
import gc
import itertools
import re
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import cuda_kernels
import gemm_ref
import triton_kernels
from gemm_ref.call import execute
from gemm_ref.operands.copy_layout import copy_all
from tests.imports import ROOT
from tests.matrices import by_columns

GEMMS = {
    "cuda": cuda_kernels.gemm,
    "triton": triton_kernels.gemm,
    "gluon": functools.partial(triton_kernels.gemm, dialect="gluon"),
}
STEPS = {"cpu": 4, "cuda": 200}  # of training
PYTHON = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.fixture(params=GEMMS)
def gemm(request):
    """`gemm` of each dialect."""
    return GEMMS[request.param]


@pytest.fixture
def compiled(device):
    """`torch.compile(fn)`, which raises at a graph break: with Inductor and CUDA graphs on a GPU, else without."""
    about = {"mode": "reduce-overhead"} if device == "cuda" else {"backend": "aot_eager"}
    return functools.partial(torch.compile, fullgraph=True, **about)


def make(*shape: int, device: str = "cpu", dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Integers, of which products are exact."""
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randint(-4, 5, shape, generator=generator).to(device, dtype)


def leaf(x: torch.Tensor) -> torch.Tensor:
    return x.detach().requires_grad_()


def test_a_compiled_layer_has_one_graph_for_all_sizes_and_its_gradients(gemm, device, compiled):
    def layer(x, w):
        return gemm(x, w.t(), stage="s04").relu() * 2

    fn = compiled(layer, dynamic=True)
    for number, shape in enumerate([(2, 3, 16), (3, 5, 16)]):
        x, w = (leaf(make(*each, device=device)) for each in (shape, (24, 16)))
        with torch._dynamo.config.patch(error_on_recompile=number > 0):
            y = fn(x, w)
        y.sum().backward()
        expected = layer(leaf(x), v := leaf(w))
        expected.sum().backward()
        assert torch.equal(y, expected) and torch.equal(w.grad, v.grad) and x.grad.shape == shape


def test_compiled_calls_equal_eager_ones(gemm, device, compiled):
    """The default rung in fp32, and tensor cores with an epilogue and without.

    On a GPU the first calls warm a CUDA graph up in its private pool, in which no memory may stay, and the last ones
    replay it; there K is so large that blocks share tiles, which takes partial sums and flags.
    """
    if device == "cuda" and torch.cuda.get_device_capability() != (9, 0):
        pytest.skip("s19 needs a GPU of compute capability 9.0")

    def multiply(a, b, bias):
        halves = gemm(a.bfloat16(), b.bfloat16(), bias=bias, activation="relu", alpha=0.5, batch_invariant=True)
        return gemm(a, b) + 1, halves + 1, gemm(a.bfloat16(), b.bfloat16()) + 1

    depth, fn = 4096 if device == "cuda" else 48, compiled(multiply)
    operands = [make(*shape, device=device) for shape in ((33, depth), (depth, 40), (40,))]
    with torch.no_grad():
        for _ in range(4 if device == "cuda" else 1):
            found = fn(*operands)
        assert all(map(torch.equal, found, multiply(*operands)))


@pytest.mark.parametrize("dialect", GEMMS)
def test_a_call_leaves_no_memory_but_its_result(dialect, monkeypatch):
    """A cached launcher would keep it also in a CUDA graph's private pool, where torch takes it for a leak."""

    class Allocations(TorchDispatchMode):
        def __torch_dispatch__(self, fn, types, args=(), kwargs=None):
            results = fn(*args, **(kwargs or {}))
            tensors = [x for x in tree_leaves(results) if isinstance(x, torch.Tensor) and x.numel()]
            storages.extend(StorageWeakRef(x.untyped_storage()) for x in tensors)
            return results

    monkeypatch.setattr(execute, "_is_on_gpu", lambda x: isinstance(x, torch.Tensor))  # so plans are cached
    execute._entry_of.cache_clear()
    package = cuda_kernels if dialect == "cuda" else triton_kernels
    a, b, storages = make(33, 48, dtype=torch.bfloat16), make(48, 40, dtype=torch.bfloat16), []
    for _ in range(2):
        with Allocations():
            c = execute.run(a, b, None, package.prepare, None, dialect, "default", None)
        assert torch.equal(c, a @ b)
    assert execute._entry_of.cache_info().hits == 1
    del a, b, c
    gc.collect()
    assert storages and all(x.expired() for x in storages)


@pytest.mark.gpu
def test_a_thread_without_a_context_multiplies(gemm):
    """As autograd's thread may be: nothing is allocated in it, and tensor maps are encoded in it for a new address."""
    if torch.cuda.get_device_capability() != (9, 0):
        pytest.skip("s19 needs a GPU of compute capability 9.0")
    a, b = (make(*shape, device="cuda", dtype=torch.bfloat16) for shape in ((64, 48), (48, 40)))
    c, *outs = gemm(a, b), *(torch.empty(64, 40, device="cuda", dtype=a.dtype) for _ in range(2))
    for out in outs:  # a plan is made for the first, and the second is its second launch
        with ThreadPoolExecutor(1) as thread:
            assert thread.submit(gemm, a, b, out=out).result() is out
    assert all(torch.equal(out, c) for out in outs)


def test_out_is_filled_in_a_graph(gemm, device, compiled):
    a, b = make(2, 5, 16, device=device), make(16, 24, device=device)
    out = torch.full((2, 5, 24), torch.nan, device=device)
    c = compiled(lambda a, b, out: gemm(a, b, stage="s04", out=out) + 1)(a, b, out)
    assert torch.equal(out, a @ b) and torch.equal(c, a @ b + 1)


def test_an_exported_program_takes_other_sizes(gemm, device, tmp_path):
    class Layer(torch.nn.Module):
        def forward(self, x, w):
            return gemm(x, w.t(), stage="s04")

    x, w = make(2, 3, 16, device=device), make(24, 16, device=device)
    sizes = {"x": {0: torch.export.Dim("batch"), 1: torch.export.Dim("tokens")}, "w": {0: torch.export.Dim("n")}}
    program = torch.export.export(Layer(), (x, w), dynamic_shapes=sizes)
    torch.export.save(program, tmp_path / "layer.pt2")
    x, w = make(3, 5, 16, device=device), make(40, 16, device=device)
    assert torch.equal(torch.export.load(tmp_path / "layer.pt2").module()(x, w), x @ w.t())
    with pytest.raises(Exception, match="b must have 16 rows"):  # the fake kernel names mistakes
        torch.export.export(Layer(), (x, w[:, :5]))


@pytest.mark.parametrize("package", ["cuda_kernels", "triton_kernels"])
def test_the_op_is_as_torch_wants_it(package, device):
    """torch's own checks of a schema, of aliases, of the fake kernel and of autograd."""
    op, operands = getattr(torch.ops, package).gemm, (make(5, 16, device=device), make(16, 24, device=device))
    out = {"out": torch.empty(5, 24, device=device)}
    for each, args, more in ((op.default, map(leaf, operands), {}), (op.out, operands, out)):
        assert set(torch.library.opcheck(each, (*args, "s04"), more).values()) == {"SUCCESS"}
    with pytest.raises(ValueError, match=f"{package} has no dialect .*: use (cuda|triton)_kernels.gemm"):
        op(*operands, dialect="cuda" if package == "triton_kernels" else "gluon")


@pytest.mark.gpu
def test_a_layer_and_its_backward_pass_are_cuda_graphs(gemm):
    class Layer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.w = torch.nn.Parameter(make(24, 16, device="cuda"))

        def forward(self, x):
            return gemm(x, self.w.t(), stage="s04").relu()

    layer = Layer()
    graphed = torch.cuda.make_graphed_callables(layer, (leaf(make(2, 3, 16, device="cuda")),))
    for sign in (1, -1):
        x = leaf(sign * make(2, 3, 16, device="cuda"))
        found = torch.autograd.grad(graphed(x).sum(), (x, layer.w))
        expected = torch.autograd.grad((x @ layer.w.t()).relu().sum(), (x, layer.w))
        assert all(map(torch.equal, found, expected))


def test_an_eager_call_does_not_pay_for_the_dispatcher(gemm, device, monkeypatch):
    """It goes straight to its plan, also where grad mode is on; the op would return a tensor."""
    direct = object()
    monkeypatch.setattr("gemm_ref.call.torch_op.run", lambda *call: direct)
    assert (
        gemm(make(5, 16, device=device), torch.nn.Parameter(make(16, 24, device=device), requires_grad=False)) is direct
    )


def test_a_dispatch_mode_sees_the_call(gemm, device):
    class Recorder(TorchDispatchMode):
        def __torch_dispatch__(self, fn, types, args=(), kwargs=None):
            seen.append(str(fn))
            return fn(*args, **(kwargs or {}))

    operands, seen = (make(5, 16, device=device), make(16, 24, device=device)), []
    with Recorder():
        gemm(*operands, stage="s04")
    assert seen in (["cuda_kernels.gemm.default"], ["triton_kernels.gemm.default"])


ROWS, COLUMNS = torch.clone, by_columns
KERNELS = ("s04-fp32", "s19-bf16", "s14-fp32", "s16-fp16", "s19-tf32", "s20-fp16x3")
FORMS = [
    *itertools.product(["cuda"], KERNELS[:2], (ROWS, COLUMNS), (ROWS, COLUMNS)),
    *itertools.product(["cuda"], KERNELS[2:], [ROWS], [COLUMNS]),
    *itertools.product(["triton", "gluon"], KERNELS, [ROWS], [COLUMNS]),
]


@pytest.mark.parametrize(("dialect", "kernel", "form_a", "form_b"), FORMS, ids=lambda x: getattr(x, "__name__", x))
def test_gradients_are_right_and_stored_as_their_operands(device, monkeypatch, dialect, kernel, form_a, form_b):
    """Against float64, by the check of all products; and nothing is copied that the kernel reads as it is stored."""
    gemm, (stage, math) = GEMMS[dialect], kernel.split("-")
    rung, mode = gemm_ref.get_stage(stage), gemm_ref.MATHS[math]
    if device == "cuda" and rung.refusal(torch.cuda.get_device_capability()):
        pytest.skip("the GPU cannot run this rung")
    copied = []
    monkeypatch.setattr("gemm_ref.call.layout.copy_all", lambda *pairs: copied.append(len(pairs)) or copy_all(*pairs))
    inputs = gemm_ref.make_inputs(gemm_ref.Problem(48, 32, 64, math), device=device)
    a, b = leaf(form_a(inputs[0])), leaf(form_b(inputs[1]))
    grad = gemm_ref.make_inputs(gemm_ref.Problem(48, 64, 32, math), seed=1, device=device)[0].to(mode.out_dtype)
    fixed_a, fixed_b, counts = a.detach(), b.detach(), []
    for x, c, operands in (
        (a, gemm(a, fixed_b, stage=stage, math=math), (grad, fixed_b.t())),
        (b, gemm(fixed_a, b, stage=stage, math=math), (fixed_a.t(), grad)),
    ):
        copied.clear()
        (of_x,) = torch.autograd.grad(c, x, grad)
        gemm_ref.check(of_x.contiguous(), *operands, math=math)
        assert of_x.stride() == x.stride()
        counts.append(sum(copied))
    if kernel in ("s04-fp32", "s16-fp16", "s19-bf16"):
        a_by_rows, b_by_rows, rows_alone = form_a is ROWS, form_b is ROWS, "nk" not in rung.reads_b(math, "cuda")
        of_a = b_by_rows and rows_alone if a_by_rows else (not b_by_rows) + rows_alone
        of_b = a_by_rows if b_by_rows else 1 + (not a_by_rows and rows_alone)
        assert counts == [of_a, of_b], counts


def test_rows_of_a_gradient_are_batch_invariant_where_rows_of_c_are():
    """On the reference GPU: without `batch_invariant` the tile of s14, and with it the last bits, follow M."""
    generator = torch.Generator().manual_seed(0)
    a, b, grad = (torch.randn(shape, generator=generator) for shape in ((200, 16), (16, 264), (200, 264)))

    def first_row(rows: int, batch_invariant: bool) -> torch.Tensor:
        x = leaf(by_columns(a[:rows]))
        c = cuda_kernels.gemm(x, b, stage="s14", batch_invariant=batch_invariant)
        return torch.autograd.grad(c, x, grad[:rows])[0][0]

    assert torch.equal(first_row(1, True), first_row(200, True))
    assert not torch.equal(first_row(1, False), first_row(200, False))


def test_gradients_of_an_epilogue(gemm, device):
    """Those of bias, c, alpha, beta and relu, and their own gradients, to the bit of torch's in float64."""
    if device == "cuda" and torch.cuda.get_device_capability() != (9, 0):
        pytest.skip("s19 needs a GPU of compute capability 9.0")
    a, b, c = (make(*shape, device=device, dtype=torch.bfloat16) for shape in ((8, 16), (16, 24), (8, 24)))
    inputs = a, b, make(24, device=device), c

    def grads(fn, inputs):
        inputs = [leaf(x) for x in inputs]
        first = torch.autograd.grad(fn(*inputs).sum(), inputs, create_graph=True)
        return [x.double() for x in (*first, *torch.autograd.grad(first[0].sum() + first[1].sum(), inputs[:2]))]

    found = grads(lambda a, b, bias, c: gemm(a, b, bias=bias, activation="relu", c=c, alpha=2.0, beta=0.5), inputs)
    expected = grads(lambda a, b, bias, c: (2 * a @ b + 0.5 * c + bias).relu(), [x.double() for x in inputs])
    assert all(torch.equal(x, y.to(torch.bfloat16).double()) for x, y in zip(found, expected, strict=True))


def test_a_trained_network_follows_torch(gemm, device):
    """An MLP of two layers in fp32, trained with `gemm` and with torch from the same weights: the losses agree."""
    generator = torch.Generator().manual_seed(0)
    x, y, *weights = (
        torch.randn(shape, generator=generator).to(device) for shape in ((16, 8), (16, 4), (32, 8), (4, 32))
    )

    def losses(multiply):
        first, second = (leaf(w.clone() / w.shape[1] ** 0.5) for w in weights)
        optimizer = torch.optim.SGD([first, second], lr=0.1)
        for _ in range(STEPS[device]):
            loss = (multiply(multiply(x, first.t()).relu(), second.t()) - y).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            yield loss.item()

    expected = list(losses(torch.matmul))
    assert expected[-1] < 0.9 * expected[0]
    assert list(losses(functools.partial(gemm, stage="s04"))) == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize("lead", [(), (0, 3), (2, 3), (2, 1, 3)], ids=str)
def test_rows_of_any_batch(gemm, device, lead):
    x, w = make(*lead, 16, device=device), make(24, 16, device=device)
    strided = make(*lead, 32, device=device)[..., ::2]
    out = torch.full((*lead, 24), torch.nan, device=device)
    for each in (x, strided):
        assert torch.equal(gemm(each, w.t(), stage="s04"), each @ w.t())
    assert gemm(x, w.t(), stage="s04", out=out) is out and torch.equal(out, x @ w.t())


def test_vmap_over_rows(gemm, device):
    x, b = make(3, 2, 5, 16, device=device), make(16, 24, device=device)
    rows = torch.vmap(lambda x: gemm(x, b, stage="s04"), in_dims=1)
    assert torch.equal(torch.vmap(rows, in_dims=1)(x), (x @ b).permute(1, 2, 0, 3))


A, B = make(4, 16), make(16, 8)
HALVES = leaf(A.bfloat16()), B.bfloat16()
REFUSALS = {
    "batched b": (lambda gemm: gemm(A, B[None]), r"b must be one matrix .* \(1, 16, 8\): call gemm for each matrix"),
    "vmap over b": (lambda gemm: torch.vmap(gemm)(A[None], B[None]), "vmap may map a alone, as in_dims=.0, None."),
    "torch.func.grad": (lambda gemm: torch.func.grad(lambda a: gemm(a, B).sum())(A), "use torch.autograd.grad"),
    "out and grad": (lambda gemm: gemm(leaf(A), B, out=A @ B), r"a requires grad, for which .* no `out`: pass a.det"),
    "rows of out": (lambda gemm: gemm(A[None], B, out=A @ B), r"out must have the rows of a, \(1, 4, 'N'\)"),
    "out with gaps": (
        lambda gemm: gemm(A.view(2, 2, 16), B, out=A.new_empty(2, 3, 8)[:, :2]), "pass a contiguous out"
    ),
    "gelu": (lambda gemm: gemm(*HALVES, activation="gelu"), "backward pass of 'gelu' .*: leave `activation` out"),
    "fp8": (lambda gemm: gemm(leaf(A.to(torch.float8_e4m3fn)), B.to(torch.float8_e4m3fn)), "fp8 has no backward pass"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSALS)
def test_what_is_refused_says_what_to_do(name):
    call, message = REFUSALS[name]
    for gemm in (GEMMS["cuda"], GEMMS["gluon"]):
        with pytest.raises((ValueError, RuntimeError), match=message):
            call(gemm)


def test_the_page_of_the_docs_runs(device, monkeypatch, capsys):
    """All its blocks, in order, as a new user copies them; on a CPU without Inductor, whose compiler takes seconds."""
    if device == "cpu":
        monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
        monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend="aot_eager"))
    names: dict[str, object] = {"__name__": "docs_torch"}
    blocks = PYTHON.findall((ROOT / "docs" / "torch.md").read_text(encoding="utf-8"))
    assert len(blocks) == 5
    for block in blocks:
        exec(compile(block, "docs/torch.md", "exec"), names)
    assert re.fullmatch(r"torch \d+ us, s14 \d+ us\n", capsys.readouterr().out)
