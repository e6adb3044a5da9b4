"""The demo: its whole path once, what it leaves out where a compiler is missing, and what it fails for."""

import re

import pytest

import gemm_ref
from cuda_kernels import mutants, source
from experiments import cli, demo, doctor
from gemm_ref.build import BuildError
from gemm_ref.dialect import BY_HAND, DIALECTS, OTHERS
from tests.experiments.fixtures import interrupting, raising, right, wrong

WHOLE_PATH, NO_BARRIER, HOPPER = "s04", "s02", "s17"


@pytest.fixture
def run(invoke, monkeypatch):
    """`run(stage, gemm, missing)`: the demo with `gemm` in place of the rung's, on a machine without `missing`."""
    monkeypatch.setattr(cli.out, "width", 80)

    def run(stage, gemm=None, missing=()):
        if stage != WHOLE_PATH or gemm:
            monkeypatch.setattr(demo._Demo, "_show_answer", lambda _: None)  # a second
        if gemm:
            monkeypatch.setattr(demo, "gemm_of", lambda item: gemm)
            monkeypatch.setattr(demo.predictions, "predict", raising(ValueError("FROB has no cost")))
        if missing:
            monkeypatch.setattr(doctor, "missing_for", lambda dialect: "get it" if dialect in missing else "")
        result = invoke("demo", stage)
        assert max(map(len, result.output.splitlines())) <= 80
        return result.exit_code, result.said

    return run


def test_the_whole_path(run):
    code, text = run(WHOLE_PATH)
    rung = gemm_ref.get_stage(WHOLE_PATH)
    assert code == 0 and text.startswith(f"{rung.id}: {rung.idea}")
    assert text.count(" right ") == len(rung.dialects) and "WRONG" not in text
    config = rung.variants[rung.find_variant("default", BY_HAND)]
    requests_of_rows = f"CUDA {config.BLOCK_N * 4 // 32} {config.BLOCK_N * 4 // 32} "
    assert requests_of_rows in text, "neighbouring lanes read neighbouring floats of a row"
    assert "without conflicts: wider reads ask less often" in text and "C is rounded" not in text
    for kind, title, found in (
        ("barrier", "a synchronisation taken out", "race"),
        ("bound", "a condition dropped", "out of bounds"),
    ):
        mutant = next(each for each in mutants.cuda_mutants(f"{rung.id}.cu", _text(rung)) if each.kind == kind)
        planted = f"{title}, line {mutant.line}: "
        assert planted in text and f"found: {found} at {rung.id}.cu:" in text.split(planted)[1]
    assert re.search(
        r"CUDA, predicted on an NVIDIA H200 at 4096: [\d.]+ TFLOP/s \(.* held back by .* of the time\)", text
    )
    assert "Each cell: what to take" in text and f"demo s{rung.number + 1:02}" in text


def _text(rung):
    return (source.FOLDER / f"{rung.id}.cu").read_text(encoding="utf-8")


def test_a_rung_on_tensor_cores_without_triton(run):
    code, text = run(HOPPER, missing=OTHERS)
    assert code == 0 and "in bf16" in text and "none: TMA copies" in text
    assert (
        text.count("not run: get it") == len(gemm_ref.STAGES["s17_wgmma_tma"].dialects) - 1
        and text.count("found: ") == 2
    )
    own = re.search(r"C is rounded to bfloat16, which takes (\d+)% of it by itself", text)
    largest = re.search(r"the largest error is (\d+)% of the bound", text)
    assert int(largest[1]) - 3 <= int(own[1]) <= int(largest[1])


@pytest.mark.parametrize(
    ("gemm", "missing", "exit_code"),
    [(right, (), 0), (wrong, (), 1), (interrupting, (), 130), (right, (BY_HAND,), 0), (right, (BY_HAND, *OTHERS), 1)],
)
def test_it_fails_where_a_rung_is_wrong_or_nothing_can_be_compiled(run, monkeypatch, gemm, missing, exit_code):
    monkeypatch.setattr(mutants, "cuda_mutants", lambda name, text: [])
    code, text = run(WHOLE_PATH, gemm, missing)
    assert code == exit_code and ("elements of C are wrong" in text) == (gemm is wrong)
    if gemm is right:
        able = [dialect for dialect in gemm_ref.get_stage(WHOLE_PATH).dialects if dialect not in missing]
        assert text.count(" right ") == len(able)
        assert ("cannot be compiled here: get it" in text) == bool(missing)
    assert ("CUDA, not predicted: ValueError: FROB has no cost" in text) == (gemm is right and not missing)


def test_a_mistake_that_is_not_found_fails(run, monkeypatch):
    rung = gemm_ref.get_stage(NO_BARRIER)
    as_it_is = source.ptx(source.choose(rung))
    monkeypatch.setattr(source, "compile_ptx", lambda text, name: (as_it_is, ""))
    code, text = run(NO_BARRIER)
    assert code == 1 and "NOT FOUND" in text
    assert f"a synchronisation: there is none in {rung.id}.cu" in text


def test_each_rung_has_a_mistake_to_plant():
    for rung in gemm_ref.STAGES.values():
        kinds = {mutant.kind for mutant in mutants.cuda_mutants(f"{rung.id}.cu", _text(rung))}
        assert "bound" in kinds and ("barrier" in kinds) == bool(re.search("sync|arrive", _text(rung))), rung.id


def test_what_is_missing_for_a_dialect_is_said_with_what_to_do(monkeypatch):
    missing = raising(BuildError("nvcc was not found: install it"))
    monkeypatch.setattr("gemm_ref.toolchain.find_toolkit", missing)
    monkeypatch.setattr(doctor, "_package", lambda name: doctor.Finding(name, "missing", "not installed", "install it"))
    assert "nvcc not found: nvcc was not found: install it" in doctor.missing_for(BY_HAND)
    for name in OTHERS:
        assert doctor.missing_for(name) == f"{DIALECTS[name].version} not installed: install it"
