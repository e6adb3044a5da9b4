"""The time that a checked kernel would take on a GPU that is not here, from a few of its blocks (`gemm_ref.clock`)."""

from __future__ import annotations

import re
from math import lcm

import torch

import gemm_ref
from experiments.bench.provenance import gpu_slug
from experiments.check.faults import Quote
from experiments.check.limits import InstructionLimit
from experiments.check.report import LineTime, Predicted, Report, Word
from experiments.check.subject import Subject
from experiments.records.request import UsageError
from experiments.records.rows import COLD
from gemm_ref import clock, ptx
from gemm_ref.clock import Prediction
from gemm_ref.launch import cdiv
from gemm_ref.problem import Problem

SIZE = 4096  # M, N and K, as in the README's table, where the kernel takes them
SHOWN_LINES = 3
_MAX_INSTRUCTIONS = 100_000  # that the sampled block may execute: some seconds
_SAMPLE_K = 1024
_SAMPLE_K_OF_LONG_LOOPS = 512  # on CUDA cores and of operands in parts: more instructions per product
_MAX_RATIO = 1.1  # between each size of the problem and that of the row of cuBLAS


def read_gpu(name: str) -> clock.Gpu:
    """Returns the constants of a GPU. Raises UsageError, with the names of all, for one that is not known."""
    try:
        return clock.read(name)
    except ValueError as error:
        raise UsageError(f"--gpu {error}") from error


def predict(subject: Subject, report: Report, gpu: str, quote: Quote) -> None:
    """Fills the report's prediction, or the reason why there is none: a check never fails for want of it."""
    if report.word not in (Word.SOUND, Word.PARTIAL):
        report.unpredicted = "a wrong kernel's time says nothing"
        return
    step = lcm(*(need.multiple or 1 for need in report.needs))
    side = cdiv(SIZE, step) * step
    problem = subject.nearest_problem(Problem(side, side, side))
    is_long = subject.math == "fp32" or gemm_ref.MATHS[subject.math].parts > 1
    sample_k = _SAMPLE_K_OF_LONG_LOOPS if is_long else _SAMPLE_K
    if subject.square or "K" in report.equal or "k" in subject.fixed:
        sample_k = problem.k
    try:
        if not report.fits(problem):
            raise UsageError(f"it is not known to be right at {problem}")
        prediction = clock.predict(lambda a, b: _run(subject, a, b), problem, gpu, sample_k)
        report.predicted = _predicted(subject, prediction, quote)
    except Exception as error:  # whatever stops the clock says nothing of the kernel
        report.unpredicted = _plain(error, subject)


def _run(subject: Subject, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    c = torch.zeros((a.shape[0], b.shape[1]), dtype=gemm_ref.MATHS[subject.math].out_dtype)
    with ptx.watched(InstructionLimit(_MAX_INSTRUCTIONS)):
        subject.run(a, b, c, subject.plain)
    return c


def _plain(error: Exception, subject: Subject) -> str:
    """The first line of the error, with the kernel's own name in place of the compiler's."""
    if isinstance(error, ptx.EndlessLoop):
        return f"one block executes more than {_MAX_INSTRUCTIONS:,} instructions, which take too long here"
    return re.sub(r"\b_Z\w+", subject.name, str(error).partition("\n")[0] or type(error).__name__)


def _predicted(subject: Subject, prediction: Prediction, quote: Quote) -> Predicted:
    limit, lines = prediction.limit, []
    for line in prediction.lines:
        if line.line:  # others are not of the source
            lines += [LineTime(line.file, line.line, quote(line.file, line.line), line.share, dict(line.waits))]
    return Predicted(
        clock.read(prediction.gpu).name,
        str(prediction.problem),
        prediction.microseconds,
        *prediction.interval_us,
        prediction.tflops,
        _cublas_tflops(subject, prediction),
        limit.name,
        limit.share,
        limit.is_wait,
        max(lines, key=lambda line: (line.waits.get(limit.name, 0), line.share), default=None),
        [line for line in lines[:SHOWN_LINES] if line.share >= clock.MIN_SHARE],
    )


def _cublas_tflops(subject: Subject, prediction: Prediction) -> float | None:
    """The speed of cuBLAS as published for the card, at the nearest size; None where it computes something else."""
    from experiments.records import frames, store  # they load pandas, which a refusal need not wait for

    math, problem = subject.math, prediction.problem
    if subject.operand_type != gemm_ref.MATHS[math].dtype or "fp16" in subject.assumed:
        return None
    folder = store.PUBLISHED.parent / gpu_slug(clock.read(prediction.gpu).name)
    rows = frames.timed(store.read(folder, "squares"), math)
    row = frames.nearest(rows[(rows["backend"] == "cublas") & (rows["mode"] == COLD)], problem, _MAX_RATIO)
    return None if row is None else float(row["tflops"])
