"""How the Triton kernels are found, compiled without a GPU, and refused."""

from __future__ import annotations

import re
import sys
from dataclasses import replace

import pytest
import torch

import cuda_kernels.source
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


@pytest.fixture
def key_of(monkeypatch):
    """`key_of(rung, m, n, k)`: the key under which Triton looks for the kernel, before it would compile one."""
    inspection = pytest.importorskip("triton_kernels.inspection", exc_type=ImportError)
    from triton import knobs

    keys = []
    monkeypatch.setattr(knobs.runtime, "jit_cache_hook", lambda *, key, **_: keys.append(key) or True)

    def look_for(rung, *sizes: int) -> str:
        tile, *_ = rung.stage.tiles.get(rung.dialect, [rung.variant])  # else each shape would have its own
        names = {"variant": tile, "capability": (8, 9)}  # for which no test compiles, so that nothing is found
        assert inspection.compile_for_inspection(rung.stage.id, rung.dialect, *sizes, **names) is None
        key, *_ = keys  # s13 has a second kernel, which sums
        keys.clear()
        return key

    return look_for


@pytest.mark.parametrize("rung", DEFAULTS, ids=str)
def test_one_kernel_serves_all_sizes_that_16_does_not_divide(rung, key_of):
    """Sizes of 1 are not special; which rungs look at divisibility by 16 is their own choice.

    s19 has another kernel where programs have several tiles.
    """
    few, many = ((1, 33, 257), (129, 1, 2), (31, 2, 1)), ((4097, 4095, 4098), (5001, 5003, 1))
    few_keys, many_keys = ({key_of(rung, *each) for each in sizes} for sizes in (few, many))
    assert len(few_keys) == len(many_keys) == 1 and (few_keys == many_keys) == (rung.stage.id != "s19_any_shape")


def test_a_rung_that_reads_vectors_is_compiled_for_sizes_that_16_divides(key_of):
    for rung in (rung for rung in DEFAULTS if rung.stage.id == "s08_vectorized"):
        assert key_of(rung, 64, 64, 64) != key_of(rung, 65, 65, 65)


def test_compiling_without_a_gpu_leaves_triton_as_it_was(monkeypatch, tmp_path):
    triton = pytest.importorskip("triton")
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))  # Triton's own may have the kernel, as compiled for a GPU
    from triton_kernels.inspection import compile_for_inspection

    before = triton.runtime.driver._active, triton.backends.backends["nvidia"]
    asm = compile_for_inspection("s02", "triton", 64, 64, 64).asm
    assert (triton.runtime.driver._active, triton.backends.backends["nvidia"]) == before
    assert isinstance(asm["ptx"], str) and "cubin" not in asm
    assert asm["cubin"].startswith(b"\x7fELF")
    assert "FFMA" in asm["sass"]  # Triton's own, made from the cubin


@pytest.mark.parametrize(
    "names", [{"dialect": "cuda"}, {"dialect": "triton", "math": "zz"}, {"dialect": "triton", "variant": "zz"}], ids=str
)
def test_inspection_names_what_is_not_there(names):
    inspection = pytest.importorskip("triton_kernels.inspection", reason="takes triton")
    with pytest.raises(ValueError, match="s01_naive"):
        inspection.compile_for_inspection("s01_naive", m=4, n=4, k=4, **names)


CUDA_ALONE = {"CLUSTER_M", "CLUSTER_K", "PERSISTENT", "OVERLAP", "FRAGMENT_SETS", "LOAD_AT", "ALIGN_B", "SPLIT_WARPS"}
LEFT_TO_TRITON = {"THREAD_M", "THREAD_N", "WARP_M", "WARP_N", "LAYOUT", "NUM_STAGES"}


@pytest.mark.parametrize("rung", [rung for rung in RUNGS if rung.math == rung.stage.maths[0]], ids=str)
def test_what_a_kernel_is_told_of_its_variant(rung, monkeypatch):
    """As docs/method.md says, 'What the dialects hold equal'; what is told is what the registry has."""
    launcher = pytest.importorskip("triton_kernels.launcher")
    from triton_kernels import inspection

    if tiles := rung.stage.tiles.get(rung.dialect):  # of which the shape would choose one, with so many programs
        rung = replace(rung, variant=next(iter(tiles)))
    told = {}

    class Recorded(Exception):
        pass

    def prepared(kernel, shape, *args, **options):
        told.update(options, grid=shape.grid, num_warps=shape.num_warps)
        raise Recorded

    monkeypatch.setattr(launcher, "Prepared", prepared)
    with pytest.raises(Recorded):
        inspection.compile_for_inspection(
            rung.stage.id, rung.dialect, 512, 512, 512, variant=rung.variant, math=rung.math, b_layout=rung.b_layout
        )
    registered = rung.config.constants()
    cap = registered.pop("BLOCKS_PER_SM", 1)
    assert ("maxnreg" in told) == (cap > 1)
    if not tiles:
        assert told["grid"] == rung.stage.launch(512, 512, 512, rung.variant).grid
    missing = CUDA_ALONE | (LEFT_TO_TRITON if rung.dialect == "triton" else set())
    for name, value in registered.items():
        if name == "BLOCK_K_BYTES" or (name == "BLOCK_K" and rung.stage.maths != ("fp32",)):
            assert told["BLOCK_K"] > 0  # elements of the mode's width in as many bytes
        elif name == "TRANSPOSE_C":
            assert told.get(name, 0) >= value
        elif name == "NUM_STAGES" and "STAGES" in told:
            assert told["STAGES"] == value // told["PARTS"]  # of all parts
        elif name == "PROMOTE" and rung.dialect == "triton":
            assert told["BLOCK_K"] == value  # what leaves the tensor core is a slice
        elif name == "WARPS":
            assert told["num_warps"] == value
        elif name not in missing:
            assert told[name] == value, name
    if rung.dialect == "triton":
        assert not (LEFT_TO_TRITON - {"NUM_STAGES"}) & told.keys()


def test_what_a_cuda_rung_is_told_of_its_variant():
    """Every constant of a variant is used by the rung, or by a header that it includes."""
    for rung in implementations(("cuda",)):
        text = cuda_kernels.source.compose(rung).split("\n#line 1", 1)[1]
        for header in sorted(cuda_kernels.source.INCLUDE.glob("*.cuh")):
            text += header.read_text(encoding="utf-8") if f'"{header.name}"' in text else ""
        unused = {name for name in rung.config.constants() if not re.search(rf"\b{name}\b", text)}
        if rung.config.NUM_STAGES == 2:  # s10 and s11 have their two slices written out
            unused -= {"NUM_STAGES"}
        assert not unused, f"{rung}: {unused}"
