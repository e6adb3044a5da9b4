"""What `experiments check` does on a GPU, the timing itself faked; and the fault detectors in `run correctness`."""

from __future__ import annotations

import struct
from typing import ClassVar

import pytest
import torch
from rich.console import Console

import gemm_ref
from experiments.bench.eligibility import with_controls
from experiments.check import cage, ranking
from experiments.check.checker import Checker
from experiments.check.command import open_file
from experiments.check.cuda import kernel as cuda_kernel
from experiments.check.messages import Unchecked
from experiments.check.show import show
from experiments.check.subject import Options, Subject, operands
from experiments.records.contenders import Contender
from experiments.records.controls import CONTROL
from experiments.records.rows import FAIL, TimedRow
from gemm_ref.toolchain import REFERENCE_CAPABILITY
from tests.experiments.check.helpers import MULTIPLY
from tests.experiments.check.test_planted import KERNELS, OPTIONS


@pytest.fixture
def kernel(tmp_path):
    def of(text: str, **options) -> Subject:
        path = tmp_path / "kernel.cu"
        path.write_text(text, encoding="utf-8")
        return open_file(path, Options(**options))

    return of


class FakeBench:
    """Stands for measure.Bench: every contender is a hundred microseconds slower than the one before."""

    def __init__(self, setting, chosen, bars) -> None:
        assert setting.device == "cuda"
        self._chosen = with_controls(chosen)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        return None

    def time(self, problem):
        for index, contender in enumerate(self._chosen):
            times = {"median_us": 100.0 * (1 + index), "tflops": 10.0 / (1 + index), "vs_cublas": 0.5}
            if index == 1:
                times = {"status": FAIL, "detail": "for the test"}
            yield TimedRow.about("check", contender, problem, **times)


def test_its_place_on_the_ladder(kernel, monkeypatch, capsys):
    monkeypatch.setattr(ranking, "Bench", FakeBench)
    subject = kernel(MULTIPLY)
    report = Checker(subject, [gemm_ref.Problem(32, 32, 32)]).run()
    ranking.rank(subject, report, [])
    assert report.ranked_at == "4096x4096x4096"
    names = [rank.name for rank in report.ranking]
    assert (
        names[0] == "multiply" and report.ranking[0].is_subject and sum(rank.is_subject for rank in report.ranking) == 1
    )
    assert any("cublas" in name for name in names)
    assert {f"{stage} cuda" for stage in gemm_ref.STAGES if "fp32" in gemm_ref.STAGES[stage].maths} <= set(names)
    assert not any(CONTROL in name for name in names) and report.ranking[-1].detail == "for the test"
    show(report, Console(width=160))
    printed = capsys.readouterr().out
    assert "Place on the ladder (at 4096x4096x4096)" in printed and "50%" in printed


@pytest.mark.parametrize("old, new, code", [
    ("k < K;", "k < K - 1;", Unchecked.PLACE_OF_WRONG_KERNEL), ("= sum", "= sum > 0 ? sum : 0", Unchecked.PLACE),
])  # fmt: skip
def test_a_wrong_kernel_and_one_that_does_more_are_not_timed(kernel, old, new, code):
    checker = Checker(kernel(MULTIPLY.replace(old, new)), [gemm_ref.Problem(32, 32, 32)])
    report = checker.run()
    ranking.rank(checker.subject, report, [])
    assert report.ranking == [] and report.unchecked[0].code is code


TYPED = """
template <typename T>
__global__ void scaled(size_t m, size_t n, size_t k, T alpha, const T* A, const T* B, T beta, T* C) {
    size_t column = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y * blockDim.y + threadIdx.y;
    if (row >= m || column >= n) return;
    T sum = 0;
    for (size_t i = 0; i < k; ++i) sum += A[row * k + i] * B[i * n + column];
    C[row * n + column] = alpha * sum + beta * C[row * n + column];
}
"""
TYPED_OPTIONS = {"template": "float", "block": "16,16", "grid": "cdiv(N,16),cdiv(M,16)"}


class FakeImage:
    """Stands for a cubin on a GPU: records what its kernels are started with."""

    started: ClassVar[list] = []

    def __init__(self, cubin: bytes) -> None:
        assert cubin.startswith(b"\x7fELF")

    def start(self, *launch) -> None:
        self.started.append(launch)


def test_a_gpu_is_given_the_arguments_that_the_reference_gpu_is(kernel, monkeypatch):
    """A number whose type is a parameter of the template is 1.0 in its bytes, and not the integer 1."""
    monkeypatch.setattr(cuda_kernel, "Image", FakeImage)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: REFERENCE_CAPABILITY)
    subject, problem = kernel(TYPED, **TYPED_OPTIONS), gemm_ref.Problem(33, 65, 70)
    a, b = gemm_ref.make_inputs(problem, "integers")
    subject.gpu_call(problem)(a, b, torch.full((33, 65), torch.nan))
    [(name, launch, arguments, is_cooperative)] = FakeImage.started
    assert "scaled" in name and launch.grid == (5, 3, 1) and launch.block == (16, 16, 1) and not is_cooperative
    numbers = [struct.unpack(f"<{kind}", each)[0] for kind, each in zip("QQQfQQfQ", arguments, strict=True)]
    assert numbers[:6] == [33, 65, 70, 1.0, a.data_ptr(), b.data_ptr()] and numbers[6] == 0.0


@pytest.mark.gpu
@pytest.mark.parametrize("file", [*OPTIONS, "typed.cu"])
def test_a_gpu_computes_what_the_reference_gpu_does(tmp_path, file):
    """To the bit: no kernel of these adds in an order that changes from run to run."""
    path, options = (KERNELS / file, OPTIONS[file]) if file in OPTIONS else (tmp_path / file, TYPED_OPTIONS)
    if path.parent == tmp_path:
        path.write_text(TYPED, encoding="utf-8")
    with cage.session(trusted=True):
        subject = open_file(path, Options(**options))
        problem = subject.nearest_problem(gemm_ref.Problem(128, 192, 64))
        call = subject.gpu_call(problem)
        for kind in ("integers", "normal"):
            a, b = operands(problem, kind)
            subject.run(a, b, here := torch.zeros(problem.m, problem.n, dtype=subject.result_type), subject.plain)
            assert torch.equal(here, call(a.cuda(), b.cuda(), torch.zeros_like(here, device="cuda")).cpu())


def test_the_correctness_experiment_fails_a_kernel_that_is_right_by_luck(invoke, kernel, monkeypatch, tmp_path):
    """Lanes run in lockstep on the reference GPU, so C is right where a barrier is missing after the sum."""
    text = (KERNELS / "tile.cu").read_text(encoding="utf-8").replace("        __syncthreads();  // the next", "    //")
    subject = kernel(text, **OPTIONS["tile.cu"])

    def fn(a, b, out):
        subject.run(a, b, out)
        return out

    pool = [Contender("s04_shared_tile", "default", "cuda", "cuda", "fp32", ("cpu",), lambda: fn)]
    arguments = ("run", "correctness", "--size", "17x18x33", "--device", "cpu", "--results", tmp_path / "results")
    result = invoke(*arguments, pool=pool)
    assert result.exit_code == 1 and "C is right, but: kernel.cu:" in result.said
    assert "no barrier orders the two" in result.said
    monkeypatch.setattr("experiments.studies.correctness.study.WATCHED_MOST_PRODUCTS", 10)
    assert invoke(*arguments, pool=pool).exit_code == 0
