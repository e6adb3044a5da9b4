"""`gemm` as a custom op of torch, one per kernel package, for torch.compile, torch.export, autograd and torch.vmap.

`torch.ops.<package>.gemm` returns a new C, and its overload `out` fills a C of the caller. Both take matrices only;
`call`, the entry of every package's `gemm`, folds a batch of rows into one. torch's dispatcher adds 4 us to a call on
the host, and 8 us where autograd is registered (Python 3.11, torch 2.13), to the 15 to 30 us of a call on a GPU. An
eager call that uses neither autograd nor a transform therefore executes its plan directly.
"""

from __future__ import annotations

import functools
from typing import Any

import torch

from gemm_ref.call import Prepare
from gemm_ref.call.execute import run
from gemm_ref.call.validate import validate
from gemm_ref.compute import MATHS, SCALED
from gemm_ref.dialect import DIALECTS
from gemm_ref.epilogue import Extras
from gemm_ref.rung import DEFAULT_VARIANT

# After a and b: the names of a kernel, the fields of `Extras`, and the two that `run` takes last.
_SCHEMA = (
    '(Tensor a, Tensor b, str? stage=None, str dialect="{dialect}", str variant="default", str? math=None, '
    "Tensor? scale_a=None, Tensor? scale_b=None, Tensor? bias=None, str? activation=None, Tensor? c=None, "
    "float alpha=1.0, float? beta=None, str? on_range=None, bool batch_invariant=False"
)
_DIFFERENTIABLE = (None, "relu")  # the activations whose derivative follows from their result
_PLAIN = (torch.Tensor, torch.nn.Parameter)  # other subclasses may have a dispatch of their own


def check_package(dialect: str, package: str) -> None:
    """Raises ValueError if another package than this one runs the kernels of a dialect."""
    if dialect in DIALECTS and DIALECTS[dialect].package != package:
        raise ValueError(f"{package} has no dialect {dialect!r}: use {DIALECTS[dialect].package}.gemm")


def define_op(package: str, dialect: str, prepare: Prepare) -> None:
    """Registers the op of a kernel package: its schema, kernels, fake kernels, gradients and rule for vmap.

    dialect: the default of the package's `gemm`. prepare: the package's (`gemm_ref.call.Prepare`).
    """
    name, defaults = f"{package}::gemm", (None, dialect, DEFAULT_VARIANT, None, *Extras(), None, False)
    tags = (torch.Tag.pt2_compliant_tag, torch.Tag.needs_exact_strides)  # a plan depends on how operands are stored
    schema = _SCHEMA.format(dialect=dialect)
    torch.library.define(name, f"{schema}) -> Tensor", tags=tags)
    torch.library.define(f"{name}.out", f"{schema}, *, Tensor(a!) out) -> ()", tags=tags)

    def resolve(more: tuple[Any, ...]) -> tuple[Any, ...]:
        """As `run` takes them after prepare: torch leaves out the last arguments that are the defaults."""
        values: tuple[Any, ...] = (*more, *defaults[len(more) :])
        check_package(values[1], package)
        return *values[:4], Extras(*values[4:-2]), *values[-2:]

    def compute(a: torch.Tensor, b: torch.Tensor, *more: Any, out: torch.Tensor | None = None) -> torch.Tensor:
        return run(a, b, out, prepare, *resolve(more))

    def fill(*more: Any, out: torch.Tensor) -> None:
        compute(*more, out=out)

    def infer(a: torch.Tensor, b: torch.Tensor, *more: Any, out: torch.Tensor | None = None) -> torch.Tensor | None:
        """The fake kernel: it checks the call but for addresses and symbolic sizes, and returns a C without numbers."""
        stage, dialect, variant, math, extras, *last = resolve(more)
        about = {"dialect": dialect, "variant": variant, "math": math, "on_range": last[0], "batch_invariant": last[1]}
        plan = validate(a, b, None, stage=stage, **about, **extras._asdict())
        c_dtype = MATHS[plan.problem.math].out_dtype
        return a.new_empty((a.shape[0], b.shape[1]), dtype=c_dtype) if out is None else None

    def map_rows(info: Any, in_dims: tuple[int | None, ...], a: torch.Tensor, *more: Any) -> tuple[torch.Tensor, int]:
        if any(dim is not None for dim in in_dims[1:]):
            raise ValueError(
                "a kernel multiplies by one matrix, so vmap may map a alone, as in_dims=(0, None) does: call gemm in "
                "a loop, or use torch.matmul"
            )
        a = a.movedim(in_dims[0] or 0, 0)
        c = compiled(a.flatten(0, 1), *more)
        return c.unflatten(0, a.shape[:2]), 0

    torch.library.impl(name, ("cpu", "cuda"), compute)
    torch.library.impl(f"{name}.out", ("cpu", "cuda"), fill)
    torch.library.register_fake(name, infer)
    torch.library.register_fake(f"{name}.out", infer)
    compiled = getattr(torch.ops, package).gemm.default
    torch.library.register_autograd(name, functools.partial(_backward, compiled), setup_context=_save)
    torch.library.register_vmap(name, map_rows)


def call(
    a: torch.Tensor, b: torch.Tensor, out: torch.Tensor | None, prepare: Prepare, stage: str | None, dialect: str,
    variant: str, math: str | None, extras: Extras, on_range: str | None, batch_invariant: bool,
) -> torch.Tensor:  # fmt: skip
    """Computes C (..., N) of a (..., K) and b (K, N): by the plan's path or, where torch must see the call, by the op.

    Raises what `gemm_ref.call.execute.run` raises, and ValueError for an `out` (..., N) whose rows are no matrix.
    """
    if type(a) in _PLAIN and type(b) in _PLAIN and a.dim() == 2 and not _is_visible(a, b, extras):
        return run(a, b, out, prepare, stage, dialect, variant, math, extras, on_range, batch_invariant)
    how, last = (prepare, stage, dialect, variant, math), (on_range, batch_invariant)
    if not (isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor)) or dialect not in DIALECTS:
        # Operands in parts, which are no tensors; or a mistake, which `run` names
        outside = "operands that are in parts are multiplied outside of graphs"
        execute = torch.compiler.disable(run, reason=outside) if torch.compiler.is_compiling() else run
        return execute(a, b, out, *how, extras, *last)
    if a.dim() not in (0, 2):
        extras = extras._replace(c=_matrix(extras.c, a, "c"))
        c = call(_matrix(a, a, "a"), b, _matrix(out, a, "out"), *how, extras, *last)
        return c.view(*a.shape[:-1], c.shape[-1]) if out is None else out
    op = getattr(torch.ops, DIALECTS[dialect].package).gemm
    if out is not None:
        op.out(a, b, *how[1:], *extras, *last, out=out)
        return out
    try:
        return op.default(a, b, *how[1:], *extras, *last)
    except RuntimeError as error:
        if "functorch" not in str(error):
            raise
        raise RuntimeError("torch.func's grad, vjp and jvp take no custom op: use torch.autograd.grad") from error


def _is_visible(a: torch.Tensor, b: torch.Tensor, extras: Extras) -> bool:
    """Whether torch must see a call: it is traced or transformed, or an operand requires grad."""
    if torch.is_grad_enabled() and (a.requires_grad or b.requires_grad):
        return True
    if extras.bias is not None or extras.c is not None:
        if torch.is_grad_enabled() and any(getattr(x, "requires_grad", False) for x in (extras.bias, extras.c)):
            return True
    return (
        torch.compiler.is_compiling()
        or torch._C._are_functorch_transforms_active()
        or torch._C._len_torch_dispatch_stack() > 0  # of make_fx, FakeTensorMode, FlopCounterMode and their like
    )


def _matrix(x: torch.Tensor | None, a: torch.Tensor, name: str) -> torch.Tensor | None:
    """The rows of x (..., N), which are as many as those of a (..., K), as one matrix; a view, or for inputs a copy."""
    if not isinstance(x, torch.Tensor):
        return x
    if x.dim() != a.dim() or x.shape[:-1] != a.shape[:-1]:
        raise ValueError(f"{name} must have the rows of a, {(*a.shape[:-1], 'N')}; its shape is {tuple(x.shape)}")
    if x.dim() == 1:
        return x[None]
    if name == "out" and not _is_foldable(x):
        raise ValueError("the rows of out do not follow each other as those of a matrix do: pass a contiguous out")
    return x.flatten(0, -2)


def _is_foldable(x: torch.Tensor) -> bool:
    """Whether all dimensions but the last can be made one without a copy."""
    sizes, strides = x.shape, x.stride()
    return all(sizes[i] == 1 or strides[i] == strides[i + 1] * sizes[i + 1] for i in range(x.dim() - 2))


def _save(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    """Keeps for the backward pass what that reads; ValueError for a product that has none."""
    a, b, *names, scale_a, scale_b, bias, activation, c, alpha, beta, on_range, batch_invariant = inputs
    if a.dtype in [MATHS[name].dtype for name in SCALED]:
        raise ValueError(
            f"{' and '.join(SCALED)} has no backward pass: pass a.detach(), or call inside torch.no_grad()"
        )
    if activation not in _DIFFERENTIABLE:
        raise ValueError(
            f"the backward pass of {activation!r} reads what the kernel does not store: leave `activation` out and "
            f"apply torch's to the result, or call inside torch.no_grad()"
        )
    of_a, of_b = ctx.needs_input_grad[:2]
    ctx.save_for_backward(a if of_b else None, b if of_a else None, output if activation else None)
    ctx.names, ctx.alpha, ctx.beta, ctx.last = tuple(names), alpha, beta, (on_range, batch_invariant)
    by_columns = [x.t().is_contiguous() and not x.is_contiguous() for x in (a, b)]
    ctx.by_columns = by_columns[0] and not batch_invariant, by_columns[1]  # M is the columns of dA^T
    ctx.bias_dtype = None if bias is None else bias.dtype


def _backward(op: Any, ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
    """dA = alpha dC B^T and dB = alpha A^T dC by the same kernel, stored by rows or by columns as A and B are.

    Operands are passed as they are stored: what the kernel cannot read is copied as in any other call.
    """
    a, b, c = ctx.saved_tensors
    if c is not None:
        grad = torch.ops.aten.threshold_backward(grad, c, 0)

    def multiply(x: torch.Tensor, y: torch.Tensor, by_columns: bool) -> torch.Tensor:
        x, y = (y.t(), x.t()) if by_columns else (x, y)
        product = op(x, y, *ctx.names, None, None, None, None, None, ctx.alpha, None, *ctx.last)
        return product.t() if by_columns else product

    of_a = None if b is None else multiply(grad, b.t(), ctx.by_columns[0])
    of_b = None if a is None else multiply(a.t(), grad, ctx.by_columns[1])
    needs = (*ctx.needs_input_grad, *(False,) * 15)  # torch leaves out the last arguments that are the defaults
    of_bias = grad.sum(0, dtype=ctx.bias_dtype) if needs[8] else None
    of_c = grad * (1.0 if ctx.beta is None else ctx.beta) if needs[10] and ctx.beta != 0 else None
    return of_a, of_b, *(None,) * 6, of_bias, None, of_c, *(None,) * 4
