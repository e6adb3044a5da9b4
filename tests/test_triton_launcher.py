"""How the Triton kernels are found, compiled without a GPU, and refused."""

from __future__ import annotations

import sys

import pytest
import torch

import triton_kernels
from gemm_ref import implementations

RUNGS = implementations(("triton", "gluon"))


def test_another_backends_dialect_is_sent_to_its_package():
    x = torch.ones(2, 2)
    with pytest.raises(ValueError, match="cuda_kernels"):
        triton_kernels.gemm(x, x, stage="s01_naive", dialect="cuda")
    with pytest.raises(ValueError, match="unknown dialect 'glue'"):
        triton_kernels.gemm(x, x, stage="s01_naive", dialect="glue")


def test_without_triton_the_error_says_what_to_install(monkeypatch):
    rung = RUNGS[0]
    for name in [name for name in sys.modules if name.startswith("triton_kernels.")]:
        monkeypatch.delitem(sys.modules, name)
    for name in [name for name in sys.modules if name.split(".")[0] == "triton"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "triton", None)  # what import meets where it is not installed
    with pytest.raises(ModuleNotFoundError, match="pip install triton"):
        triton_kernels.kernel_module(rung)


DEFAULTS = [
    rung
    for rung in RUNGS
    if rung.variant == rung.stage.find_variant("default", rung.dialect) and rung.math == rung.stage.maths[0]
]


@pytest.mark.parametrize("rung", DEFAULTS, ids=str)
def test_one_kernel_serves_all_sizes_that_16_does_not_divide(rung):
    """Sizes of 1 are not special; which rungs look at divisibility by 16 is their own choice.

    Told by Triton's own key of a kernel, not by its text: that has the paths of sources in it, and the key has not, so
    a cache that two checkouts have filled gives texts of both.
    """
    launcher = pytest.importorskip("triton_kernels.launcher", exc_type=ImportError)
    kernels = {
        launcher.compile_for_inspection(rung.stage.id, rung.dialect, *sizes, variant=rung.variant).hash
        for sizes in ((4097, 4095, 4098), (1, 33, 257), (129, 1, 2), (31, 2, 1))
    }
    assert len(kernels) == 1


def test_compiling_without_a_gpu_leaves_tritons_driver_as_it_was():
    triton = pytest.importorskip("triton")
    from triton_kernels.launcher import compile_for_inspection

    before = triton.runtime.driver._active
    assert compile_for_inspection("s02", "triton", 64, 64, 64).asm["cubin"]
    assert triton.runtime.driver._active is before


@pytest.mark.parametrize(
    "names", [{"dialect": "cuda"}, {"dialect": "triton", "math": "zz"}, {"dialect": "triton", "variant": "zz"}], ids=str
)
def test_inspection_names_what_is_not_there(names):
    launcher = pytest.importorskip("triton_kernels.launcher", reason="takes triton")
    with pytest.raises(ValueError, match="s01_naive"):
        launcher.compile_for_inspection("s01_naive", m=4, n=4, k=4, **names)


def test_a_kernel_is_compiled_anew_for_another_architecture():
    launcher = pytest.importorskip("triton_kernels.launcher", exc_type=ImportError)
    for capability, target in (((8, 0), "sm_80"), ((9, 0), "sm_90a"), ((8, 0), "sm_80")):
        text = launcher.compile_for_inspection("s02", "triton", 64, 64, 64, capability=capability).asm["ptx"]
        assert f".target {target}\n" in text
    assert ".target sm_90a\n" in launcher.compile_for_inspection("s02", "triton", 64, 64, 64).asm["ptx"]
