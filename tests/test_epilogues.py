"""Epilogues in every dialect that has them: what a kernel makes of its sums, in whole tiles and in shared ones."""

from __future__ import annotations

import shutil

import pytest
import torch

import gemm_ref
from cuda_kernels import source
from cuda_kernels.mutants import cuda_mutants
from experiments.records.contenders import gemm_of, with_blocks
from gemm_ref import DIALECTS, Implementation, Problem, make_inputs, ptx
from gemm_ref.compute import MATHS
from gemm_ref.epilogue import ACTIVATIONS, EXACT, Extras, apply
from gemm_ref.operands import as_layout
from tests.conftest import DEVICES
from tests.matrices import in_turn

RUNG = gemm_ref.get_stage("s19")
ALL = {"alpha": 0.5, "c": True, "beta": -2.0, "bias": "fp32", "activation": "relu"}
# What is asked for; of bias and c how they are stored, and whether there is one
FORMS = (
    {"bias": "as_c"},
    {"bias": "as_c", "activation": "gelu"},
    {"c": True},
    {"bias": "fp32", "activation": "relu"},
    {"c": True, "beta": 0.5, "activation": "silu"},
    {"alpha": -0.25},
    {"bias": "as_c", "c": True, "activation": "gelu_tanh"},
    ALL,
)
# Tiles past both edges, a slice of K that is not whole, more slices than stages, rows of C that are no whole vectors
SIZES = (77, 202, 264)


def modes(dialect):
    return [(math, layout) for math in RUNG.maths for layout in RUNG.reads_b(math, dialect)]


EXACTLY = [form for form in FORMS if form.get("activation") in EXACT]

# Each form and each mode, in tiles of C and of C^T. In CUDA, which compiles fast, in each tile, and in another mode
# than tests/cuda_kernels/test_any_shape.py has it in; in the twins each type of C with a form whose result is exact,
# since test_activations_at_every_size_of_number has the other forms.
CASES = []
for _dialect in RUNG.epilogues:
    _tiles, _modes = RUNG.tiles[_dialect], modes(_dialect)
    _sides = [[tile for tile in _tiles if _tiles[tile].TRANSPOSE_C == side] for side in (0, 1)]
    if _dialect == "cuda":
        CASES += [case for side in _sides for case in in_turn([_dialect], side, _modes[4:] + _modes[:4], FORMS)]
    else:
        _first = list({math: (math, layout) for math, layout in reversed(_modes)}.values())
        CASES += in_turn([_dialect], [side[-1] for side in _sides], _first, EXACTLY)


def extras_of(form, problem, device, kind="integers"):
    """bias and c as the form says, with numbers that a kernel adds without rounding where A and B are integers."""
    dtype, numbers = MATHS[problem.math].out_dtype, iter(range(100))

    def random(*shape):
        x, _ = make_inputs(Problem(shape[0], 1, shape[1]), kind, seed=next(numbers), device=device)
        return x

    bias, c = random(1, problem.n)[0], random(problem.m, problem.n)
    stored = {"as_c": bias.to(dtype), "fp32": bias, None: None}
    return Extras(**{**form, "bias": stored[form.get("bias")], "c": c.to(dtype) if form.get("c") else None})


def checked(gemm, problem, form, device="cpu", layout="kn"):
    """Check what a kernel makes of integers, or of other numbers where it rounds them; no detector finds anything."""
    exact = form.get("activation") in EXACT
    kind = "integers" if exact else "normal"
    a, b = make_inputs(problem, kind, seed=problem.n, device=device)
    extras = extras_of(form, problem, device, kind)
    with ptx.watched(detectors := ptx.Detectors()):
        gemm_ref.checked_run(gemm, a, as_layout(b, layout), math=problem.math, exact=exact, extras=extras)
    assert not detectors.findings


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("dialect", "tile", "mode", "form"), CASES)
def test_every_tile_mode_and_form_whole_and_shared(dialect, tile, mode, form, device):
    math, layout = mode
    gemm, config = rung_in(dialect, math, tile), RUNG.config(tile, dialect)
    if config.CLUSTER_K == 1:  # else a cluster has one tile
        gemm = with_blocks(Implementation(RUNG, tile, dialect, math), 3 * config.CLUSTER_M).load()
    checked(gemm, Problem(*SIZES, math), form, device, layout)


def rung_in(dialect, math="bf16", tile="default"):
    if DIALECTS[dialect].package == "triton_kernels":
        pytest.importorskip("triton")
    return gemm_of(Implementation(RUNG, tile, dialect, math))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dialect", RUNG.epilogues)
@pytest.mark.parametrize(
    "sizes", [(130, 1, 72), (1, 130, 72), (5, 7, 9), (1, 1, 1), (9, 33, 0), (33, 1, 0), (0, 8, 8), (8, 0, 8)], ids=str
)
def test_edges_of_what_there_is(dialect, sizes, device):
    """One column, where the kernel has C^T and its bias runs down; odd rows; nothing to sum; nothing at all."""
    checked(rung_in(dialect), Problem(*sizes, "bf16"), ALL, device)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dialect", RUNG.epilogues)
@pytest.mark.parametrize("math, n", [("bf16", 264), ("tf32", 129)])
def test_c_may_be_the_result(dialect, math, n, device):
    problem = Problem(140, n, 64, math)
    a, b = make_inputs(problem, "integers", device=device)
    extras = extras_of({"c": True, "alpha": 2.0, "beta": 0.5}, problem, device)
    out = extras.c.clone()
    assert rung_in(dialect, math)(a, b, out=out, c=out, alpha=2.0, beta=0.5) is out
    gemm_ref.check(out, a, b, math=math, exact=True, extras=extras)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dialect", RUNG.epilogues)
def test_c_is_not_read_where_beta_is_0(dialect, device):
    a, b = make_inputs(Problem(9, 16, 8, "bf16"), "integers", device=device)
    c = torch.full((9, 16), float("nan"), dtype=a.dtype, device=device)
    for more in ({"beta": 0.0}, {"beta": 0, "activation": "relu"}):
        extras = Extras(c=c, **more)
        gemm_ref.check(rung_in(dialect)(a, b, **extras.specified), a, b, math="bf16", exact=True, extras=extras)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dialect", RUNG.epilogues)
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_activations_at_every_size_of_number(dialect, activation, device):
    """Of c alone, in fp32: numbers from the smallest to the largest, NaN and infinities."""
    powers = 2.0 ** torch.arange(-100, 100, dtype=torch.float32)
    others = torch.tensor([0.0, torch.inf, -torch.inf, torch.nan])
    x = torch.cat([powers, -powers, torch.linspace(-15, 15, 600), others])
    x = torch.cat([x, x.new_zeros(-len(x) % 32)]).view(-1, 32).to(device)
    none = torch.zeros_like(x), torch.zeros(32, 32, device=device)
    found = rung_in(dialect, "tf32")(*none, c=x, activation=activation).cpu()
    wanted, x = apply(torch.zeros(x.shape).double(), Extras(c=x.cpu(), activation=activation)), x.cpu().double()
    seen = x.isfinite()
    off = (found.double() - wanted)[seen].abs() / x[seen].abs().clamp_min(1e-30)
    assert float(off.max()) < (0 if activation in EXACT else 2.0**-19) + 1e-12
    assert bool(found[x.isnan()].isnan().all()) and bool((found[x == torch.inf] == torch.inf).all())
    assert not bool((found[x == -torch.inf] > 0).any())  # 0, or NaN where torch has it too


def test_mistakes_in_cuda_are_told(monkeypatch, tmp_path):
    """Each mutant of the header: a kernel with all there is gives something else, or reads what is not there."""
    item = Implementation(RUNG, "tile64x128", "cuda", "bf16")
    path = shutil.copytree(source.INCLUDE, tmp_path / "include") / "finish.cuh"
    flags = [f"-I{path.parent}" if flag.startswith("-I") else flag for flag in source.FLAGS]
    mutants = cuda_mutants(path.name, path.read_text(encoding="utf-8"))
    monkeypatch.setattr(source, "ptx", lambda x: source.compile_ptx(source.compose(x), "s19.cu", flags=flags)[0])
    assert len(mutants) > 3
    for mutant in mutants:
        path.write_text(mutant.text, encoding="utf-8")
        with pytest.raises((gemm_ref.WrongResult, ptx.PtxError)):
            checked(gemm_of(item), Problem(70, 202, 72, "bf16"), ALL)
