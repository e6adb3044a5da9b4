"""What `experiments check` does: open the file, examine the kernel, and rank it where there is a GPU."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from experiments.check import cage, predict, progress
from experiments.check.checker import Checker
from experiments.check.cuda.bind import KernelFile
from experiments.check.cuda.launch_sources import infer_kernel
from experiments.check.messages import Note, Unchecked, message
from experiments.check.python.embedded import extract_cuda
from experiments.check.python.rung import RungKernel, find_rung
from experiments.check.report import Report
from experiments.check.subject import CannotCheck, Options, Subject
from experiments.records.request import Request, UsageError
from gemm_ref import Problem
from gemm_ref.build import BuildError

MAX_PRODUCTS = 10**8  # of a --size: half a minute with the detectors


def check(
    path: Path,
    options: Options,
    request: Request,
    gpu: str = "",
    finish: Callable[[Subject, Report], None] | None = None,
) -> Report:
    """Raises UsageError where the file or the options are not understood, or the kernel cannot be run here.

    gpu: the name of the one that the kernel's time is predicted for, of `gemm_ref.clock`; empty for none. finish: is
    called with the kernel and what was found, while the kernel can still be run.
    """
    if not str(path).isprintable():
        raise UsageError(f"{str(path)!r} has characters that no line shows: rename it")
    if path.is_dir():
        raise UsageError(f"{path} is a folder: pass the file that holds the kernel")
    if not path.is_file():
        raise UsageError(f"there is no file {path}")
    if gpu:
        predict.read_gpu(gpu)
    with cage.session(options.trust) as missing:
        start = time.perf_counter()
        try:
            subject = open_file(path, options, request.problems)
            checker = Checker(replace(subject, intended_math=options.math), request.problems, gpu)
            report = checker.run()
            if finish:
                finish(checker.subject, report)
            report.seconds = time.perf_counter() - start
        except CannotCheck as error:
            raise UsageError(
                f"{path.name} cannot be checked: the reference GPU cannot run it, right or wrong ({error})"
            ) from error
        except BuildError as error:
            raise UsageError(str(error)) from error
        if request.device == "cuda":
            _rank(checker.subject.on_whole_gpu, report, request.problems)
    if missing and options.trust:
        report.notes.append(message(Note.CAGE_INCOMPLETE, missing=" and no ".join(sorted(missing))))
    return report


def _rank(subject: Subject, report: Report, problems: Sequence[Problem]) -> None:
    """Ranks the kernel if it is this project's own or trusted, since nothing that runs on a GPU is in a cage."""
    from experiments.check import ranking

    progress.step("")  # the ranking has bars of its own
    if isinstance(subject, RungKernel) or cage.policy.trusted:
        ranking.rank(subject, report, problems)
    else:
        reason = "what runs on a GPU is not in a cage: pass --trust if you trust it"
        report.unchecked.append(message(Unchecked.PLACE, reason=reason))


def open_file(path: Path, options: Options, problems: Sequence[Problem] = ()) -> Subject:
    """Returns the kernel in a .cu or a .py, which is to be run at these sizes if there are any. Raises UsageError."""
    for problem in problems:
        if problem.flops > 2 * MAX_PRODUCTS:
            raise UsageError(
                f"size {problem} has {problem.flops // 2:.2g} multiply-adds, which take the reference GPU minutes: "
                f"pass a smaller --size, of {MAX_PRODUCTS:.2g} at most"
            )
        if problem.flops == 0:
            raise UsageError(f"there is nothing to compute at size {problem}")
    subject: Subject
    if rung := find_rung(path, options):
        subject = rung
    elif path.suffix == ".py" and (cuda := extract_cuda(path)):
        subject = infer_kernel(KernelFile(cuda, options)).with_note(Note.CUDA_IN_PYTHON, file=path.name)
    elif path.suffix == ".py":
        from experiments.check.python.python_file import open_python

        subject = open_python(path, options, problems)
    elif path.suffix in (".cu", ".cuh"):
        subject = infer_kernel(KernelFile(path, options))
    else:
        raise UsageError(f"{path.name} is neither CUDA (.cu, .cuh) nor Python (.py)")
    if deep := [problem for problem in problems if problem.k > subject.max_depth]:
        raise UsageError(f"size {deep[0]} is too deep: in {subject.math} sums are exact up to K = {subject.max_depth}")
    return subject
