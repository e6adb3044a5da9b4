"""Every mistake a caller can make gets an error that names it and says what would be right."""

from __future__ import annotations

import dataclasses
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import cuda_kernels
import gemm_ref
import triton_kernels
from gemm_ref import STAGES, Config, Rung, validate
from gemm_ref.call import validate as checks
from gemm_ref.launch import REFERENCE_SMS
from gemm_ref.rung import Tma

A, B = torch.zeros(4, 3), torch.zeros(3, 5)


def _overlapping():
    whole = torch.zeros(64)
    return whole[:12].view(4, 3), B, whole[10:30].view(4, 5)


MISTAKES = {
    "not a tensor": ((np.zeros((4, 3)), B), "a must be a torch.Tensor, not ndarray"),
    "rank 1": ((A, B[0]), r"b must have 2 dimensions, \(K, N\); its shape is \(5,\)"),
    "rank 0": ((A[0, 0], B), "a must have 2 dimensions"),
    "batched b": ((A[None], B[None]), r"b must be one matrix .*\(1, 3, 5\): call gemm for each matrix"),
    "inner sizes": ((A, B[:2]), r"inner sizes differ.*b must have 3 rows"),
    "mixed dtypes": ((A, B.double()), r"a is torch.float32 and b is torch.float64.*b.to\(torch.float32\)"),
    "unsupported dtype": ((A.double(), B.double()), "torch.float64: convert the operands to torch.float32"),
    "integers": ((A.int(), B.int()), "does not take torch.int32"),
    "mixed devices": ((A, B.to("meta")), "a is on cpu and b on meta"),
    "other device": ((A.to("meta"), B.to("meta")), "device meta is not supported"),
    "out of the wrong shape": ((A, B, torch.zeros(5, 4)), r"out must have shape \(4, 5\); it has \(5, 4\)"),
    "out of the wrong dtype": ((A, B, torch.zeros(4, 5).double()), "out must be torch.float32"),
    "out on another device": ((A, B, torch.zeros(4, 5, device="meta")), "out must be on cpu"),
    "out not a tensor": ((A, B, np.zeros((4, 5))), "out must be a torch.Tensor"),
    "out overlaps": (_overlapping(), "out shares memory with a"),
    "out is an operand": ((A[:, :1].expand(4, 4), torch.zeros(4, 3), A), "out shares memory with a"),
    "out expanded": ((A, B, torch.zeros(4, 1).expand(4, 5)), "share one place in memory"),
    "out overlaps itself": ((A, B, torch.zeros(20).as_strided((4, 5), (1, 1))), "share one place in memory"),
    "sparse": ((A.to_sparse(), B), "a must be dense; its layout is torch.sparse_coo"),
    "grad and out": (
        (torch.zeros(4, 3, requires_grad=True), B, torch.zeros(4, 5)),
        r"a requires grad, for which .* no `out`",
    ),
    "out requires grad": ((A, B, torch.zeros(4, 5, requires_grad=True)), "pass out.detach()"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_named(mistake):
    (a, b, *out), message = MISTAKES[mistake]
    for package in (cuda_kernels, triton_kernels):
        with pytest.raises(ValueError, match=message):
            package.gemm(a, b, stage="s01_naive", out=out[0] if out else None)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ({"stage": "s04_shard"}, "unknown stage 's04_shard': did you mean s04_shared_tile"),
        ({"stage": "s4"}, "did you mean s04_shared_tile"),
        ({"stage": "S04"}, "unknown stage 'S04': did you mean s04_shared_tile"),
        ({"stage": "S99"}, "there is no s99"),
        ({"stage": 4}, "a stage is named by its id"),
        ({"stage": "tensor"}, "unknown stage 'tensor'"),
        ({"stage": "s01", "variant": "padded"}, "unknown variant of s01_naive 'padded'.*default"),
        ({"stage": "s01", "math": "tf33"}, "unknown math mode 'tf33'"),
        ({"stage": "s01", "dialect": "opencl"}, "unknown dialect 'opencl'"),
        ({"stage": "s13", "dialect": "gluon"}, "s13_split_k has no gluon kernel: it is written in cuda, triton"),
    ],
)
def test_names(names, message):
    with pytest.raises(ValueError, match=message):
        validate(A, B, **names)


HALVES = A.bfloat16(), B.bfloat16()
EXTRAS = {  # what a call of `HALVES` gives beside them, and what is wrong with it
    "unknown activation": ({"activation": "gellu"}, "unknown activation 'gellu': did you mean gelu or"),
    "activation not a name": ({"activation": torch.relu}, "unknown activation"),
    "bias of the wrong length": ({"bias": torch.zeros(4)}, r"bias must have shape \(5,\), a number for each column"),
    "bias of the wrong dtype": ({"bias": torch.zeros(5).half()}, "bias must be torch.bfloat16 or torch.float32; it is"),
    "bias not a tensor": ({"bias": 1.0}, "bias must be a torch.Tensor, not float"),
    "bias on another device": ({"bias": torch.zeros(5, device="meta")}, "bias is on meta and a on cpu"),
    "bias sparse": ({"bias": torch.zeros(5).to_sparse()}, "bias must be dense"),
    "c of the wrong shape": ({"c": torch.zeros(5, 4).bfloat16()}, r"c must have shape \(4, 5\), as the result"),
    "c of the wrong dtype": ({"c": torch.zeros(4, 5)}, "c must be torch.bfloat16, as the result; it is torch.float32"),
    "beta without c": ({"beta": 0.5}, "beta is 0.5 and there is nothing to multiply by it: pass c"),
    "alpha a tensor": ({"alpha": torch.tensor(2.0)}, r"alpha must be a number, not Tensor: pass alpha.item\(\)"),
    "beta a text": ({"c": torch.zeros(4, 5).bfloat16(), "beta": "1"}, "beta must be a number, not str"),
    "a rung without": ({"stage": "s18", "bias": torch.zeros(5)}, "s18_warp_.* has no epilogue in .* but s19_any"),
}


@pytest.mark.parametrize("mistake", EXTRAS)
def test_mistakes_in_what_is_done_to_the_product(mistake):
    more, message = EXTRAS[mistake]
    with pytest.raises(ValueError, match=message):
        cuda_kernels.gemm(*HALVES, **more)


def test_the_last_rung_with_epilogues_is_taken():
    found = validate(*HALVES, stage=None, bias=torch.zeros(5), activation="gelu", alpha=2)
    assert found.implementation.stage.epilogues
    assert str(found.implementation).endswith("-alpha_bias_fp32_gelu")
    assert validate(A, B, stage=None, math="tf32", bias=B[0]).implementation.math == "tf32"
    with pytest.raises(ValueError, match="no rung in cuda has an epilogue.*for torch.float32.*pass math='tf32'"):
        validate(A, B, stage=None, bias=B[0])


def test_fp32_operands_are_not_rounded_unasked():
    for stage in (stage for stage in STAGES.values() if "fp32" not in stage.maths):
        math = "tf32" if "tf32" in stage.maths else stage.maths[0]
        with pytest.raises(ValueError, match=f"{stage.id} has no mode that takes torch.float32 .*pass math='{math}'"):
            validate(A, B, stage=stage.id)
        assert validate(A, B, stage=stage.id, math=math).problem.math == math
    assert validate(*HALVES, stage="s16").problem.math == "bf16"


def test_how_many_multiprocessors(monkeypatch):
    """A GPU is asked, and the reference GPU has an H200's; s13's splits and s18's grid depend on it alone."""
    assert checks.sms_of(torch.device("cpu")) == REFERENCE_SMS == 132
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(multi_processor_count=78))
    assert checks.sms_of(torch.device("cuda", 0)) == 78
    for sms in (REFERENCE_SMS, 78):
        assert sms // 2 < gemm_ref.get_stage("s13").launch(128, 128, 65536, sms=sms).grid[2] <= sms
        grids = [gemm_ref.get_stage("s18").launch(4096, 4096, 64, name, sms=sms).grid for name in ("pairs", "one_tile")]
        assert grids == [(sms, 1, 1), (32 * 16, 1, 1)]


def test_numbers_that_the_ladder_leaves_out_are_told(monkeypatch):
    stages = list(STAGES.values())
    without = {stage.id: stage for stage in stages if stage.number not in (4, 5)}
    monkeypatch.setattr("gemm_ref.registry.STAGES", without)
    for name in ("s04", "s05_bank_conflict", "5"):
        with pytest.raises(ValueError, match="s0[45] is not written yet: s06_.* comes after s03_"):
            validate(A, B, stage=name)
    with pytest.raises(ValueError, match=f"there is no s99: the last rung is {stages[-1].id}"):
        validate(A, B, stage="s99")


@pytest.mark.parametrize("package", [cuda_kernels, triton_kernels], ids=lambda p: p.__name__)
def test_a_long_wait_is_announced(package, monkeypatch):
    """Before it starts, at the line that called, and once."""
    a, b = torch.zeros(1200, 1200), torch.zeros(1200, 1200)
    started = []
    monkeypatch.setattr(package, "prepare", lambda *_: lambda *_: started.append(len(said)))
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("default")
        for _ in range(2):
            package.gemm(a, b, stage="s04")
        package.gemm(a[:1000, :1000], b[:1000, :1000], stage="s04")
    (warning,) = said
    assert started == [1, 1, 1] and warning.filename == __file__
    assert "1200x1200x1200 in fp32 will take the reference GPU about 17 s" in str(warning.message)


def test_empty_out_overlaps_nothing():
    validate(A, torch.zeros(3, 0), torch.zeros(4, 0), stage="s01")


def _stage(**changes) -> Rung:
    variants = {"default": Config(BLOCK_M=32, BLOCK_N=32)}
    plain = Rung(id="s99_test", title="Test", idea="a rung for this test", variants=variants)
    return dataclasses.replace(plain, **changes)


def test_a_rung_this_gpu_cannot_run(monkeypatch):
    """The refusal itself, and that a call on such a GPU raises it."""
    assert _stage(min_capability=(8, 0)).refusal((9, 0)) is None
    assert "needs compute capability 8.0 or newer; this GPU has 7.5" in _stage(min_capability=(8, 0)).refusal((7, 5))
    only = _stage(tma=Tma())
    assert only.refusal((9, 0)) is None
    assert "needs compute capability 9.0 exactly; this GPU has 10.0" in only.refusal((10, 0))

    monkeypatch.setattr(checks, "get_stage", lambda name: only)
    monkeypatch.setattr(checks, "check_tensors", lambda a, b: None)
    monkeypatch.setattr(checks, "check_grad", lambda a, b: None)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (8, 0))
    on_gpu = SimpleNamespace(shape=(4, 3), dtype=torch.float32, device=SimpleNamespace(type="cuda"))
    with pytest.raises(ValueError, match="s99_test needs compute capability 9.0 exactly; this GPU has 8.0"):
        validate(on_gpu, SimpleNamespace(shape=(3, 5)), stage="s99_test")


def test_a_grid_past_the_limits():
    with pytest.raises(ValueError, match="would need 70000 blocks along y.*a GPU takes 65535"):
        _stage().launch(70000 * 32, 1, 1)


def test_sizes_past_32_bits():
    """Of all parts together where there are several."""
    one, most = torch.zeros(1, 1), 2**31 - 1025
    for stage, math, parts in (("s01", "fp32", 1), ("s20", "fp16x3", 2), ("s20", "bf16x6", 3)):
        long = one.expand(most // parts + 1, 1)
        said = rf"in {math} no size may pass {most // parts}; .*: cut the operands"
        for a, b in ((long, one), (one, long.t()), (long.t(), long)):
            with pytest.raises(ValueError, match=said):
                validate(a, b, stage=stage, math=math)
        validate(long[1:], one, stage=stage, math=math)
        if parts > 1:
            with pytest.raises(ValueError, match=said):
                gemm_ref.split_operand(long, "a", math=math)
