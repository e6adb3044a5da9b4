"""What a call decides, and refuses beside the mistakes that messages.txt has; and the names of the package."""

from __future__ import annotations

import dataclasses
import warnings
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

import cuda_kernels
import gemm_ref
import triton_kernels
from gemm_ref import STAGES, Config, Rung, computing, validate
from gemm_ref.call import validate as checks
from gemm_ref.launch import REFERENCE_SMS
from gemm_ref.rung import Tma

A, B = torch.zeros(4, 3), torch.zeros(3, 5)


HALVES = A.bfloat16(), B.bfloat16()


def test_the_last_rung_with_epilogues_is_taken():
    found = validate(*HALVES, stage=None, bias=torch.zeros(5), activation="gelu", alpha=2)
    assert found.implementation.stage.epilogues
    assert str(found.implementation).endswith("-alpha_bias_fp32_gelu")
    assert validate(A, B, stage=None, math="tf32", bias=B[0]).implementation.math == "tf32"


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
        validate(A, B, stage="S99")


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


def test_no_name_is_hidden_by_a_module():
    """Importing a module sets its name in the package: a function of that name would be lost."""
    modules = {path.stem for path in Path(gemm_ref.__file__).parent.iterdir()}
    names = {name for name in vars(computing) if not name.startswith("_") and name != "annotations"}
    assert len(names) > 10 and all(getattr(gemm_ref, name) is getattr(computing, name) for name in names)
    assert not modules & names
