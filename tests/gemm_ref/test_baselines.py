"""The baselines against the oracle, and the precision that they pin and put back."""

import subprocess
import sys

import pytest
import torch

import gemm_ref
from gemm_ref.baselines import BASELINES
from gemm_ref.baselines.cutlass import HOPPER
from gemm_ref.baselines.products import FUNCTIONS, fp32_products

CPU = [item for item in BASELINES.values() if item.device == "cpu"]
SHAPES = [(0, 3, 2), (3, 0, 2), (2, 3, 0), (1, 1, 1), (33, 17, 129), (127, 129, 31)]


@pytest.mark.parametrize("item", CPU, ids=lambda item: item.name)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("kind", ["normal", "one_hot"])
def test_baseline_against_the_oracle(item, shape, kind):
    a, b = gemm_ref.make_inputs(gemm_ref.Problem(*shape), kind)
    gemm_ref.checked_run(FUNCTIONS[item.name], a, b, exact=kind == "one_hot")


@pytest.mark.parametrize("item", CPU, ids=lambda item: item.name)
def test_strided_operands_and_result(item):
    a, b = gemm_ref.make_inputs(gemm_ref.Problem(19, 23, 29))
    out = torch.full((23, 19), torch.nan).T
    result = FUNCTIONS[item.name](a.T.contiguous().T, torch.cat([b, b], 1)[:, :23], out)
    assert result is out
    gemm_ref.check(out, a, b)


# torch forbids going back from the new interface to the old one, so this has a process of its own.
_PROBE = """
import torch
from gemm_ref.baselines.products import fp32_products

scopes = (torch.backends.cuda.matmul, torch.backends.mkldnn.matmul)

def state():
    try:
        old = torch.get_float32_matmul_precision()
    except RuntimeError:
        old = "unreadable"
    return old, *(scope.fp32_precision for scope in scopes)

def pinned_and_put_back():
    before = state()
    try:
        with fp32_products():
            assert state() == ("highest", "ieee", "ieee"), state()
            raise KeyError
    except KeyError:
        pass
    assert state() == before, (before, state())

pinned_and_put_back()
torch.set_float32_matmul_precision("medium")
assert state() != ("highest", "ieee", "ieee")
pinned_and_put_back()
torch.set_float32_matmul_precision("highest")
scopes[0].fp32_precision = "tf32"
pinned_and_put_back()
"""


def test_precision_is_put_back_after_an_exception_whichever_way_it_was_set():
    done = subprocess.run([sys.executable, "-c", _PROBE], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_torch_computes_in_ieee_fp32(monkeypatch):
    precisions = []
    monkeypatch.setattr(torch, "mm", lambda *_, **__: precisions.append(torch.backends.mkldnn.matmul.fp32_precision))
    with fp32_products("tf32"):
        FUNCTIONS["torch_blas"](torch.ones(2, 2), torch.ones(2, 2))
    assert precisions == ["ieee"]


def test_every_baseline_has_a_function():
    assert FUNCTIONS.keys() == BASELINES.keys()
    assert BASELINES["cutlass_hopper"].maths == tuple(HOPPER)
