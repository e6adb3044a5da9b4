"""Bring your own kernel: is it right, at which sizes, what does it do to memory, and what is wrong with it?

`python -m experiments check KERNEL.cu` runs a `__global__` function on the reference GPU (`gemm_ref.ptx`), a Python
file with a Triton or Gluon kernel likewise, and `check(function)` such a function from Python or a notebook;
docs/check.md shows it. `command` reads the file and the options, `checker` runs the kernel, `show` prints what was
found.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from experiments.check.report import Report


def check(
    function: Callable[..., Any],
    sizes: Sequence[str] = (),
    *,
    math: str = "",
    define: Sequence[str] = (),
    gpu: str = "",
) -> Report:
    """Checks a function that launches a Triton or Gluon kernel, or that kernel; prints the report and returns it.

    The file in which the function is defined is executed again, or the cells of the notebook, in a confined process:
    docs/check.md says what it may do. The function itself is not called; your program, whose process this is, has run
    the file already, with your rights. sizes: `256` or `64x96x128`; by default those that matter. math, define, gpu: as
    `--math`, `-D` and `--gpu`; without a gpu no time is predicted.

    Raises UsageError where the source is not found, or as `command.check`.
    """
    from rich.console import Console

    from experiments.check import command
    from experiments.check.python.live import find_source
    from experiments.check.show import show
    from experiments.check.subject import Options
    from experiments.records.request import Request, UsageError
    from gemm_ref import MATHS, Problem

    if math and math not in MATHS:
        raise UsageError(f"unknown math mode {math!r}: there are {', '.join(MATHS)}")
    request = Request("cpu", problems=tuple(map(Problem.parse, sizes)), math=math)
    with find_source(function) as (path, name):
        report = command.check(path, Options(kernel=name, math=math, define=tuple(define)), request, gpu)
    show(report, Console())
    return report
