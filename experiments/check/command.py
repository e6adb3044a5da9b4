"""What `experiments check` does: open the file, examine the kernel, and rank it where there is a GPU."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from experiments.check.cuda.cuda_file import CudaKernel, Options
from experiments.check.examine import Examination
from experiments.check.report import Report
from experiments.check.settle import settle
from experiments.check.subject import Subject
from experiments.check.trial import CannotCheck
from experiments.records.request import Request, UsageError
from gemm_ref import Problem
from gemm_ref.build import BuildError

MOST_PRODUCTS = 10**8  # of a --size: half a minute with the detectors


def check(path: Path, options: Options, request: Request) -> Report:
    """Raises UsageError where the file or the options cannot be understood, or the kernel not be carried out here."""
    if path.is_dir():
        raise UsageError(f"{path} is a folder: pass the file that holds the kernel")
    if not path.is_file():
        raise UsageError(f"there is no file {path}")
    try:
        subject = open_file(path, options, request.problems)
        for problem in request.problems:
            if problem.flops > 2 * MOST_PRODUCTS:
                raise UsageError(
                    f"size {problem} has {problem.flops // 2:.2g} multiply-adds, which take the reference GPU minutes: "
                    f"pass a smaller --size, of {MOST_PRODUCTS:.2g} at most"
                )
            if problem.k > subject.deepest:
                raise UsageError(
                    f"size {problem} is too deep: in {subject.math} sums are exact up to K = {subject.deepest}"
                )
            if problem.flops == 0:
                raise UsageError(f"there is nothing to compute at size {problem}")
        subject.intended = options.math
        start = time.perf_counter()
        if isinstance(subject, CudaKernel):
            subject = settle(subject, layout=not options.layout)
        report = Examination(subject, request.problems).run()
        report.seconds = time.perf_counter() - start
    except CannotCheck as error:
        raise UsageError(
            f"{path.name} cannot be checked: the reference GPU cannot run it, right or wrong ({error})"
        ) from error
    except BuildError as error:
        raise UsageError(str(error)) from error
    if request.device == "cuda":
        from experiments.check import place

        place.rank(subject, report, request.problems)
    return report


def open_file(path: Path, options: Options, problems: Sequence[Problem] = ()) -> Subject:
    """The kernel in a .cu or a .py, which is to be run at these sizes if there are any. Raises UsageError."""
    if path.suffix == ".py":
        from experiments.check.python.python_file import PythonFile

        return PythonFile(path, options, problems)
    if path.suffix not in (".cu", ".cuh"):
        raise UsageError(f"{path.name} is neither CUDA (.cu, .cuh) nor Python (.py)")
    return CudaKernel(path, options)
