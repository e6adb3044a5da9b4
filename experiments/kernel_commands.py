"""The commands about one kernel or problem: a demo, a check of one's own kernel, a trace, and which kernel to take."""

from __future__ import annotations

import contextlib
import functools
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from experiments.console import FAILED, err, format_choices, out, tell
from experiments.records.request import UsageError
from gemm_ref.compute import MATHS, NATIVE
from gemm_ref.dialect import DIALECTS

if TYPE_CHECKING:
    from experiments.check.report import Report


MISTAKE = 4  # the exit code of a check that this program itself could not bring to its end


def demo(
    stage: Annotated[str, typer.Argument(metavar="[STAGE]", help="A rung: s04 or s04_shared_tile.")] = "s04",
) -> None:
    """Start here: one rung is run, checked, counted and broken on purpose, and the answer is printed; in seconds.

    No GPU is needed. Exit code: 0 if each dialect is right and each planted mistake is found, 1 if not, or if nothing
    can be compiled here.
    """
    import gemm_ref

    try:
        rung = gemm_ref.get_stage(stage)
    except ValueError as error:
        raise UsageError(str(error)) from error

    from experiments.demo import demo as show_demo

    if not show_demo(rung, out):
        raise typer.Exit(FAILED)


def check(
    file: Annotated[
        Path, typer.Argument(help="A .cu with a __global__ function, a .py with a Triton kernel, or a rung: s08.")
    ],
    kernel: Annotated[str, typer.Option(help="The __global__ function, or the function of a .py that launches.")] = "",
    block: Annotated[str, typer.Option(help="Threads of a block: 16,16.")] = "",
    grid: Annotated[str, typer.Option(help="Blocks, in M, N and K: 'cdiv(N,32),cdiv(M,32)'.")] = "",
    args: Annotated[str, typer.Option(help="What the parameters are, if their names do not say: A,B,C,M,N,K.")] = "",
    template: Annotated[str, typer.Option(help="Arguments of the kernel's template: 'float,32'.")] = "",
    define: Annotated[list[str] | None, typer.Option("--define", "-D", help="NAME=VALUE, for the compiler.")] = None,
    include: Annotated[list[str] | None, typer.Option("--include", "-I", help="A folder of headers.")] = None,
    flags: Annotated[str, typer.Option("--nvcc-flags", help="More for nvcc: '-DNDEBUG --use_fast_math'.")] = "",
    shared: Annotated[str, typer.Option(help="Bytes of dynamic shared memory, in M, N and K.")] = "",
    layout: Annotated[str, typer.Option(help="What is stored by columns: B=NxK, or A=KxM,B=NxK,C=NxM.")] = "",
    size: Annotated[list[str] | None, typer.Option(help="Only this size: 256 for a cube, or MxNxK.")] = None,
    math: Annotated[str, typer.Option(help=f"The intended arithmetic: {format_choices(NATIVE)}.")] = "",
    like: Annotated[str, typer.Option(help="The GPU that a .py is told it has: sm_80, sm_89 or sm_90.")] = "sm_90",
    dialect: Annotated[str, typer.Option(help=f"Of a rung: {format_choices(DIALECTS)}.")] = "",
    device: Annotated[
        str, typer.Option(help="auto, cpu or cuda. With a GPU the kernel is timed on it as well.")
    ] = "auto",
    gpu: Annotated[str, typer.Option(help="The GPU that its time is predicted for: h200 or h100.")] = "h200",
    trust: Annotated[
        bool, typer.Option("--trust", help="Run its code even where the system cannot confine it.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
    html: Annotated[Path | None, typer.Option(help="Write everything as a page to this file as well.")] = None,
) -> None:
    """Check a kernel of your own: is it right, where is it not and why, and what does it ask of memory?

    It runs on the reference GPU, so no GPU is needed; docs/check.md says what is checked. The file's own code runs in a
    process that can neither write files nor reach a network. Exit code: 0 for a sound kernel, 1 for one with faults, 3
    for one that is right at whole tiles only, 2 for a command that makes no sense or a kernel that cannot be run here,
    4 for a mistake of this program.
    """
    import gc
    import json

    from experiments import seconds_since_start
    from experiments.check.progress import shown

    gc.set_threshold(100_000, 50, 100)  # what torch and the detectors keep has few cycles, and is searched for them
    with shown(err, seconds_since_start):  # what takes long, the import of torch included
        from experiments.selection import make_request

        request = make_request((), (), size or (), math, device)
        if html is not None:
            _require_writable(html)

        from experiments.check.command import check as run_check
        from experiments.check.python.rung import find_file
        from experiments.check.report import Report
        from experiments.check.show import show
        from experiments.check.subject import Options
        from gemm_ref.build import BuildError

        file, paths, defines = find_file(file, dialect), tuple(include or ()), tuple(define or ())
        options = Options(kernel, block, grid, args, template, defines, shared, math, paths, flags, like, layout, trust)
        try:
            found = run_check(file, options, request, gpu)
        except UsageError as error:
            if html is None and not as_json:
                raise
            found = Report(file.stem, str(file), "", "", refusal=str(error))
        except (OSError, BuildError):
            raise
        except Exception as error:
            traceback.print_exc()
            tell("error: a mistake of this program, which says nothing of the kernel", err, style="red")
            raise typer.Exit(MISTAKE) from error
    found.seconds = seconds_since_start()
    if html is not None:
        _write_page(html, found)
    if as_json:
        typer.echo(json.dumps(found.data(), indent=1))
    else:
        show(found, out)
        if html is not None:
            tell(str(html), out)
    if code := found.word.exit_code:
        raise typer.Exit(code)


def _require_writable(page: Path) -> None:
    """Raises UsageError where no page can be written to this file."""
    from experiments.records.store import check_writable

    check_writable(page.parent, "--html")
    if page.is_dir():
        raise UsageError(f"{page} is a folder: --html takes the name of a file")


def _write_page(target: Path, found: Report) -> None:
    from experiments.check import page
    from experiments.check.subject import read_source
    from gemm_ref.build import write_whole

    text = ""
    with contextlib.suppress(UsageError):  # no text, or not there: that is what the report says
        text = read_source(Path(found.path))
    write_whole(target, page.render(found, text))


def learn(
    exercise: Annotated[str, typer.Argument(metavar="[EXERCISE]", help="Its number or name. [lists all]")] = "",
    dialect: Annotated[str, typer.Option(help="cuda or triton. [cuda, where there is one]")] = "",
    watch: Annotated[bool, typer.Option("--watch", help="Grade at each save, until Ctrl-C.")] = False,
    hint: Annotated[int, typer.Option("--hint", count=True, help="A hint; repeat it for the next. Up to three.")] = 0,
    solution: Annotated[bool, typer.Option("--solution", help="The solution, as changes to the start file.")] = False,
    reset: Annotated[bool, typer.Option("--reset", help="Start again; the edited file is renamed.")] = False,
    html: Annotated[Path | None, typer.Option(help="Write the course, with your files and grades, as a page.")] = None,
    gpu: Annotated[str, typer.Option(help="The GPU that times are predicted for: h200 or h100.")] = "h200",
    device: Annotated[
        str, typer.Option(help="auto, cpu or cuda. With a GPU the kernel is timed on it as well.")
    ] = "auto",
    trust: Annotated[
        bool, typer.Option("--trust", help="Run the file's code even where the system cannot confine it.")
    ] = False,
) -> None:
    """Learn by exercises that grade themselves, without a GPU; without an argument, list them.

    The exercise's file is copied to learn/ in the working folder, unless it is there, and graded: at sizes that are
    drawn anew each time, for faults, for what it asks of memory, and for its predicted time. Exit code: 0 if every
    goal is reached, 1 if not, 2 for a command that makes no sense.
    """
    from experiments import seconds_since_start
    from experiments.check.progress import shown

    if not exercise and (watch or hint or solution or reset):
        raise UsageError(
            "which exercise? --watch, --hint, --solution and --reset follow its number, as in learn 2 --hint"
        )
    with shown(err, seconds_since_start):
        if html is not None:
            _require_writable(html)

        from experiments.learn import command, course
        from experiments.selection import choose_device

        machine = command.Machine(gpu, choose_device(device) == "cuda", trust)
        chosen = course.find(exercise, dialect) if exercise else None
    passed = True
    if chosen is None:
        command.show_course(out)
    elif hint or solution or reset:
        command.answer(chosen, hint, solution, reset, out)
    else:
        passed = command.grade_file(chosen, machine, watch, out, functools.partial(shown, err, seconds_since_start))
    if html is not None:
        command.write_page(html, chosen)
        tell(str(html), out)
    if not passed:
        raise typer.Exit(FAILED)


def trace(
    stage: Annotated[str, typer.Argument(help="The rung: s04 or s04_shared_tile.")],
    dialect: Annotated[str, typer.Option(help=f"Only this one: {format_choices(DIALECTS)}.")] = "",
    variant: Annotated[str, typer.Option(help="Only this variant of the rung.")] = "",
    math: Annotated[str, typer.Option(help="The arithmetic. [the rung's first]")] = "",
    output: Annotated[
        Path | None,
        typer.Option(help="A folder, or for one kernel a .json file. [traces in this machine's results folder]"),
    ] = None,
) -> None:
    """Write what each thread of a block touches in the first slices of K, as JSON.

    The kernel runs on the reference GPU in a small problem, so no GPU is needed. An earlier trace is read if neither
    the kernel nor anything else that it depends on has changed. What has no compiler here is named and left out.
    Exit code: 1 if nothing could be traced, 2 for a command that makes no sense or a file that cannot be written.
    """
    from experiments.selection import kernels

    chosen = kernels(stage, dialect, variant, math)

    from experiments.explore.traces import destinations, gather_traces
    from experiments.explore.traces.record import to_json
    from experiments.progress import Bars
    from gemm_ref.build import write_whole

    paths = destinations.paths(chosen, output)
    with Bars(out) as bars:
        found = gather_traces(chosen, bars)
    for trace in found.traces:
        write_whole(paths[trace.name], to_json(trace))
        tell(str(paths[trace.name]), out)
    for name, why in found.failures.items():
        tell(f"no trace of {name}: {why}", err, style="red")
    if not found.traces:
        raise typer.Exit(FAILED)


def which(
    size: Annotated[str, typer.Argument(help="4096 for a cube, or MxNxK.")],
    math: Annotated[str, typer.Option(help=f"The compute type: {format_choices(MATHS)}.")] = "fp32",
    gpu: Annotated[str, typer.Option(help="The GPU that times are predicted for: h200 or h100.")] = "h200",
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """Say which kernel and tile a call takes for a problem on a GPU that is not here, and predict its time.

    It needs no GPU. Beside each prediction is the nearest problem at which the same rung was measured on that GPU.
    Triton's kernels are predicted as the installed version compiles them; another one may have measured them.
    Exit code: 1 if no dialect can be predicted, 2 for a command that makes no sense.
    """
    import json
    from dataclasses import asdict, replace

    from experiments.selection import make_request

    problem = replace(make_request((), (), (size,), math, "cpu").problems[0], math=math)
    if not problem.flops:
        raise UsageError(f"size {problem}: there is nothing to multiply; M, N and K are at least 1")

    from experiments.check.predict import read_gpu
    from experiments.which import answer, show

    card = read_gpu(gpu)
    tell(f"predicting {problem} in {math} on an {card.name}: seconds, or minutes if it is large", err)
    found = answer(problem, card)
    if as_json:
        typer.echo(json.dumps(asdict(found), indent=1))
    else:
        show(found)
    if not any(each.time for each in found.candidates):
        raise typer.Exit(FAILED)
