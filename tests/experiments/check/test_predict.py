"""The predicted time in a report of `check`: where there is one, what it says, and why there is none."""

from __future__ import annotations

import json

import pytest
from rich.console import Console

from experiments.check import predict
from experiments.check.report import Word
from experiments.check.show import show
from gemm_ref import clock
from gemm_ref.build import BuildError
from tests.experiments.check.helpers import MULTIPLY, SIGNATURE, SIZE, check_file, kernel_body

SQUARES = {"block": "32,8", "grid": "cdiv(N,32),cdiv(M,8)"}


@pytest.fixture
def run(tmp_path, uncounted, capsys):
    """`run(text, gpu)`: the report on a kernel, as data, and what is printed of its time."""

    def of(text: str, gpu: str = "h200", sizes=SIZE):
        path = tmp_path / "kernel.cu"
        path.write_text(text, encoding="utf-8")
        found = check_file(path, sizes, gpu, **SQUARES)
        show(found, Console(width=200))
        return json.loads(json.dumps(found.data())), " ".join(capsys.readouterr().out.partition("\nTime\n")[2].split())

    return of


@pytest.mark.parametrize("gpu, name", [("h200", "NVIDIA H200"), ("h100", "NVIDIA H100 80GB HBM3")])
def test_a_right_kernel_has_a_time_and_its_slowest_lines(run, gpu, name):
    found, text = run(MULTIPLY, gpu)
    its = found["predicted"]
    assert found["unpredicted"] == "" and (its["gpu"], its["size"]) == (name, "4096x4096x4096")
    assert 1 < its["tflops"] < 20 and 40 < its["cublas_tflops"] < 60
    assert its["low_us"] < its["microseconds"] < its["high_us"]
    slowest = its["lines"][0]
    assert "sum += A[row * K + k] * B[k * N + col]" in slowest["quote"] and slowest["share"] > 0.5 and slowest["waits"]
    assert text.startswith(f"predicted on an {gpu.upper()} at 4096: ") and "% of cuBLAS (" in text
    assert f"{slowest['line']} {slowest['quote']}" in text


def test_sizes_that_the_source_fixes_are_kept_and_have_no_share_of_cublas(run):
    fixed = MULTIPLY.replace("int M, int N, int K", "int M, int N")
    found, text = run("#define K 96\n" + fixed, sizes=())
    assert found["fixed"] == {"k": 96} and found["predicted"]["size"] == "4096x4096x96"
    assert found["predicted"]["cublas_tflops"] is None and "cuBLAS" not in text and " at 4096x4096x96: " in text


def test_a_kernel_for_square_matrices_has_one_size(run):
    body = kernel_body("A[row * n + k] * B[k * n + col]", "C[row * n + col] = sum", "n", "n", "n")
    found, _ = run(
        f"__global__ void multiply(const float* A, const float* B, float* C, int n) {{ {body} }}\n", sizes=("40",)
    )
    assert found["square"] and found["predicted"]["size"] == "4096x4096x4096"


@pytest.mark.parametrize(
    "error, reason",
    [
        (clock.NotModelled("_Z8multiplyPKf: NEW.OP has no cost in this model yet"), "multiply: NEW.OP has no cost"),
        (BuildError("nvdisasm was not found"), "nvdisasm was not found"),
        (ZeroDivisionError(), "ZeroDivisionError"),
    ],
)
def test_what_stops_the_clock_fails_no_check(run, monkeypatch, error, reason):
    def stop(*arguments, **names):
        raise error

    monkeypatch.setattr(clock, "predict_samples", stop)
    found, text = run(MULTIPLY)
    assert found["verdict"] == Word.SOUND and found["predicted"] is None
    assert reason in found["unpredicted"] and text.startswith(f"- not predicted: {reason}")


def test_a_block_that_takes_too_long_is_given_up(run, monkeypatch):
    monkeypatch.setattr(predict, "_MAX_INSTRUCTIONS", 100)
    assert "one block executes more than 100 instructions" in run(MULTIPLY)[1]


def test_of_a_wrong_kernel_only_programs_learn_that_there_is_no_time(run):
    found, text = run(f"__global__ void multiply{SIGNATURE} {{ {kernel_body('A[row * K + k]')} }}\n")
    assert found["verdict"] == Word.FAULTY and found["predicted"] is None and found["unpredicted"] and not text


def test_an_unknown_gpu_is_refused_before_anything_runs(invoke, tmp_path):
    (tmp_path / "kernel.cu").write_text(MULTIPLY, encoding="utf-8")
    result = invoke("check", tmp_path / "kernel.cu", "--gpu", "a100")
    assert result.exit_code == 2 and "--gpu 'a100' is not one of" in result.said and "nvidia-h200" in result.said
