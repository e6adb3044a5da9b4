"""Epilogues in every dialect: edges, aliases and activations. tests/forms/test_forms.py has them in every tile."""

from __future__ import annotations

import shutil

import pytest
import torch

import gemm_ref
from cuda_kernels import source
from cuda_kernels.mutants import cuda_mutants
from gemm_ref import Problem, make_inputs, ptx
from gemm_ref.epilogue import ACTIVATIONS, EXACT, Extras, apply
from tests.forms.forms import FULL, RUNG, any_shape, check_exactly, extras_of, load

SMALL = "tile64x32"  # a tile that every dialect has


@pytest.mark.parametrize("dialect", RUNG.epilogues)
@pytest.mark.parametrize(
    "sizes", [(130, 1, 72), (1, 136, 72), (5, 7, 9), (1, 1, 1), (9, 33, 0), (33, 1, 0), (0, 8, 8), (8, 0, 8)], ids=str
)
def test_edges_of_what_there_is(dialect, sizes, device):
    """One column, where the kernel has C^T and its bias runs down; odd rows; nothing to sum; nothing at all."""
    check_exactly(load(any_shape(dialect, SMALL)), Problem(*sizes, "bf16"), FULL, device)


@pytest.mark.parametrize("dialect", RUNG.epilogues)
@pytest.mark.parametrize("n", [264, 201])  # which the TMA unit stores, and threads
def test_c_may_be_the_result(dialect, n, device):
    problem = Problem(140, n, 64, "bf16")
    a, b = make_inputs(problem, "integers", device=device)
    extras = extras_of(FULL, problem, device)
    out = extras.c.clone()
    assert load(any_shape(dialect, SMALL))(a, b, out=out, **extras._replace(c=out).specified) is out
    gemm_ref.check(out, a, b, math="bf16", exact=True, extras=extras)


def test_c_is_not_read_where_beta_is_0(device):
    """A call leaves c out before it looks for a kernel, in every dialect."""
    a, b = make_inputs(Problem(9, 16, 8, "bf16"), "integers", device=device)
    extras = Extras(c=torch.full((9, 16), float("nan"), dtype=a.dtype, device=device), beta=0.0)
    c = load(any_shape("cuda", SMALL))(a, b, **extras.specified)
    gemm_ref.check(c, a, b, math="bf16", exact=True, extras=extras)


@pytest.mark.parametrize("dialect", ["cuda", "triton"])  # Gluon calls Triton's function
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_activations_at_every_size_of_number(dialect, activation, device):
    """Numbers from the smallest to the largest, NaN and infinities: in CUDA of a c, in Triton by the function alone."""
    powers = 2.0 ** torch.arange(-100, 100, dtype=torch.float32)
    others = torch.tensor([0.0, torch.inf, -torch.inf, torch.nan])
    x = torch.cat([powers, -powers, torch.linspace(-15, 15, 600), others])
    x = torch.cat([x, x.new_zeros(-len(x) % 1024)]).view(-1, 32).to(device)
    if dialect == "cuda":
        none = torch.zeros_like(x), torch.zeros(32, 32, device=device)
        found = load(any_shape(dialect, SMALL, "tf32"))(*none, c=x, activation=activation).cpu()
    else:
        pytest.importorskip("triton")
        from tests.triton_kernels.programs import activated
        from triton_kernels.reference_gpu import on_reference_gpu

        found = x.clone()
        with on_reference_gpu(lambda _: "x"):
            activated[(1,)](found, found.numel(), activation)
        found = found.cpu()
    wanted, x = apply(torch.zeros(x.shape).double(), Extras(c=x.cpu(), activation=activation)), x.cpu().double()
    seen = x.isfinite()
    off = (found.double() - wanted)[seen].abs() / x[seen].abs().clamp_min(1e-30)
    assert float(off.max()) < (0 if activation in EXACT else 2.0**-19) + 1e-12
    assert bool(found[x.isnan()].isnan().all()) and bool((found[x == torch.inf] == torch.inf).all())
    assert not bool((found[x == -torch.inf] > 0).any())  # 0, or NaN where torch has it too


def test_mutants_of_the_header_are_found(monkeypatch, tmp_path):
    """With each a kernel with all there is gives something else, or reads what is not there."""
    path = shutil.copytree(source.INCLUDE, tmp_path / "include") / "finish.cuh"
    flags = [f"-I{path.parent}" if flag.startswith("-I") else flag for flag in source.FLAGS]
    mutants = cuda_mutants(path.name, path.read_text(encoding="utf-8"))
    monkeypatch.setattr(source, "ptx", lambda x: source.compile_ptx(source.compose(x), "s19.cu", flags=flags)[0])
    assert len(mutants) > 3
    for mutant in mutants:
        path.write_text(mutant.text, encoding="utf-8")
        with pytest.raises((gemm_ref.WrongResult, ptx.PtxError)):
            check_exactly(load(any_shape("cuda", "tile64x32")), Problem(70, 202, 72, "bf16"), FULL)
