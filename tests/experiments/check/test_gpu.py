"""What `experiments check` does on a GPU, the timing itself faked; and the fault detectors in `run correctness`."""

from __future__ import annotations

import pytest
from rich.console import Console

import gemm_ref
from experiments.bench.eligibility import with_controls
from experiments.check import ranking
from experiments.check.checker import Checker
from experiments.check.command import open_file
from experiments.check.messages import Unchecked
from experiments.check.show import show
from experiments.check.subject import Options, Subject
from experiments.records.contenders import Contender
from experiments.records.controls import CONTROL
from experiments.records.rows import FAIL, TimedRow
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


def test_a_wrong_kernel_is_not_timed(kernel):
    subject = kernel(MULTIPLY.replace("k < K;", "k < K - 1;"))
    report = Checker(subject, [gemm_ref.Problem(32, 32, 32)]).run()
    ranking.rank(subject, report, [])
    assert report.ranking == [] and report.unchecked[0].code is Unchecked.PLACE_OF_WRONG_KERNEL


@pytest.mark.gpu
def test_it_runs_on_a_gpu(kernel):
    subject, problem = kernel(MULTIPLY), gemm_ref.Problem(33, 65, 70)
    a, b = gemm_ref.make_inputs(problem, "integers", device="cuda")
    gemm_ref.checked_run(subject.gpu_call(problem), a, b, exact=True)


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
