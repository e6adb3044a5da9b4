"""The demo: its whole path once, what it leaves out where a compiler is missing, and what it fails for."""

import re

import pytest

import gemm_ref
from cuda_kernels import mutants, source
from experiments import cli, demo, doctor
from gemm_ref.build import BuildError
from gemm_ref.dialect import BY_HAND, OTHERS
from tests.experiments.fixtures import interrupting, right, wrong

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
    for kind, found in (("barrier", "race"), ("bound", "out of bounds")):
        mutant = next(each for each in mutants.cuda_mutants(f"{rung.id}.cu", _text(rung)) if each.kind == kind)
        planted = f"{demo.PLANTED[kind]}, line {mutant.line}: "
        assert planted in text and f"found: {found} at {rung.id}.cu:" in text.split(planted)[1]
    assert "% of cuBLAS" in text and f"demo s{rung.number + 1:02}" in text


def _text(rung):
    return (source.FOLDER / f"{rung.id}.cu").read_text(encoding="utf-8")


def test_a_rung_on_tensor_cores_without_triton(run):
    code, text = run(HOPPER, missing=OTHERS)
    assert code == 0 and "in bf16" in text and "none: TMA copies" in text
    assert text.count("not run: get it") == len(OTHERS) and text.count("found: ") == 2


def test_without_nvcc_the_others_run(run):
    code, text = run(WHOLE_PATH, right, missing=(BY_HAND,))
    assert code == 0 and text.count(" right ") == len(OTHERS)
    assert "cannot be compiled here: get it" in text and "found:" not in text


def test_with_no_compiler_it_fails(run):
    assert run(WHOLE_PATH, right, missing=(BY_HAND, *OTHERS))[0] == 1


@pytest.mark.parametrize(("gemm", "exit_code"), [(right, 0), (wrong, 1), (interrupting, 130)])
def test_a_rung_that_is_wrong_fails_and_ctrl_c_ends(run, monkeypatch, gemm, exit_code):
    monkeypatch.setattr(mutants, "cuda_mutants", lambda name, text: [])
    code, text = run(WHOLE_PATH, gemm)
    assert code == exit_code
    assert ("elements of C are wrong" in text) == (gemm is wrong)


def test_a_mistake_that_is_not_found_fails(run, monkeypatch):
    rung = gemm_ref.get_stage(NO_BARRIER)
    as_it_is = source.ptx(source.choose(rung))
    monkeypatch.setattr(source, "compile_ptx", lambda text, name: (as_it_is, ""))
    code, text = run(NO_BARRIER)
    assert code == 1 and "NOT FOUND" in text
    assert f"a barrier taken out: none is in {rung.id}.cu" in text


@pytest.mark.parametrize("stage", gemm_ref.STAGES.values(), ids=lambda stage: stage.id)
def test_each_rung_has_a_mistake_to_plant(stage):
    kinds = {mutant.kind for mutant in mutants.cuda_mutants(f"{stage.id}.cu", _text(stage))}
    assert "bound" in kinds and ("barrier" in kinds) == bool(re.search("sync|arrive", _text(stage)))


def test_what_is_missing_for_a_dialect_is_said_with_what_to_do(monkeypatch):
    def none():
        raise BuildError("nvcc was not found: install it")

    monkeypatch.setattr("gemm_ref.toolchain.find_toolkit", none)
    monkeypatch.setattr(doctor, "_package", lambda name: doctor.Finding(name, "missing", "not installed", "install it"))
    assert "nvcc not found: nvcc was not found: install it" in doctor.missing_for(BY_HAND)
    assert [doctor.missing_for(name) for name in OTHERS] == ["triton not installed: install it"] * len(OTHERS)
