"""The command line. Heavy imports are inside the commands, so that `--help` answers at once.

Commands about one kernel are in `kernel_commands`.
"""

from __future__ import annotations

import errno
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text
from typer.core import TyperGroup

from experiments import interrupt, kernel_commands
from experiments.console import FAILED, err, format_choices, mute_stderr, out, print_table, tell
from experiments.grouping import group_pairs
from experiments.records.request import UsageError
from gemm_ref.baselines import BASELINES
from gemm_ref.build import CHECKOUT, BuildError, CannotWrite, share_cache_with_triton, write_whole
from gemm_ref.compute import MATHS
from gemm_ref.dialect import DIALECTS

USAGE, INTERRUPTED = 2, 130

_ON_GPU, _ON_CPU = ([each.backend for each in BASELINES.values() if each.device == on] for on in ("cuda", "cpu"))
_BACKENDS = tuple(dict.fromkeys([*DIALECTS, *_ON_GPU, *_ON_CPU]))
_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES)  # full, or not ours to write to


class _Commands(TyperGroup):
    """The commands; what cannot be done as asked, compiled or written is told in a line, and ends with USAGE."""

    def invoke(self, ctx: typer.Context) -> object:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as interruption:  # of a command that keeps nothing of what it began
            tell("interrupted", err)
            raise typer.Exit(INTERRUPTED) from interruption
        except (UsageError, BuildError, CannotWrite) as error:
            raise _refuse(str(error)) from error
        except OSError as error:
            if error.errno not in _DISK:
                raise
            raise _refuse(f"{error.filename or 'a file'} cannot be read or written: {error.strerror}") from error


def _refuse(message: str) -> typer.Exit:
    tell(f"error: {message}", err, style="red")
    return typer.Exit(USAGE)


app = typer.Typer(
    cls=_Commands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # help texts have brackets that are not markup
)

Results = Annotated[
    Path | None,
    typer.Option(
        "--results",
        help="Folder of the CSV, environment.json and plots. [experiments/results/<device>] in a checkout, else "
        "[results/<device>]",
    ),
]


def main(prog_name: str = "gemm-ladder") -> None:
    """The command line, which Ctrl-C ends wherever it is."""
    share_cache_with_triton()
    with interrupt.always_raised():
        try:
            app(prog_name=prog_name)
        except SystemExit:  # how a command ends, and all it had to say is said
            if "triton" in sys.modules:
                mute_stderr()
            raise


def _print_version(wanted: bool) -> None:
    if wanted:
        from gemm_ref.version import version

        typer.echo(f"gemm-ladder {version()}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Measure the ladder: what each step from a naive GEMM to cuBLAS wins, in CUDA, Triton and Gluon."""


@app.command("list")
def list_all() -> None:
    """The experiments with their questions, the rungs, and the baselines."""
    import gemm_ref
    from experiments.records.studies import questions

    studied = [(name, text.splitlines()[0]) for name, text in questions().items()]
    print_table("experiments", ("name", "question"), studied)
    print_table(
        "rungs (--stage)",
        ("id", "idea", "dialects (--backend)"),
        [(stage.id, stage.idea, ", ".join(stage.dialects)) for stage in gemm_ref.STAGES.values()],
    )
    print_table(
        "baselines (--backend)",
        ("backend", "name", "what", "device"),
        [(item.backend, item.name, item.idea, item.device) for item in BASELINES.values()],
    )


app.command()(kernel_commands.demo)


@app.command()
def run(
    names: Annotated[list[str] | None, typer.Argument(metavar="[NAME]...", help="Experiments. [all of them]")] = None,
    stage: Annotated[list[str] | None, typer.Option(help="Only this rung: s04 or s04_shared_tile.")] = None,
    backend: Annotated[list[str] | None, typer.Option(help=f"Only this: {format_choices(_BACKENDS)}.")] = None,
    size: Annotated[list[str] | None, typer.Option(help="4096 for a cube, or MxNxK.")] = None,
    math: Annotated[str, typer.Option(help=f"Only this: {format_choices(MATHS)}.")] = "",
    device: Annotated[str, typer.Option(help="auto, cpu or cuda. On cpu, kernels run on the reference GPU.")] = "auto",
    preset: Annotated[str, typer.Option(help="default: minutes. full: every size that is published.")] = "default",
    gpus: Annotated[
        int, typer.Option(help="For scaling: at most so many GPUs, or processes on cpu. [all there are]")
    ] = 0,
    layout: Annotated[str, typer.Option(help="Where both are timed, only this layout of B: kn (by rows) or nk.")] = "",
    fresh: Annotated[bool, typer.Option("--fresh", help="Run again what would be read from an earlier run.")] = False,
    results: Results = None,
) -> None:
    """Measure, write CSV and environment.json, and draw. Options may be repeated.

    Results of the reference GPU are read from an earlier run if neither the kernel nor anything else that it depends
    on has changed since; --fresh runs it again.

    Exit code: 1 if a kernel failed (the others are measured all the same) or everything was skipped, 2 for a command
    that makes no sense or a file that cannot be written, 130 after Ctrl-C, which keeps what was measured.
    """
    from experiments.selection import make_request, named

    given, names = bool(names), named(names or ())
    request = make_request(stage or (), backend or (), size or (), math, device, preset, gpus, layout)
    tell(f"importing what {len(names)} experiments take", out)  # pandas and torch take seconds

    from experiments import processes, runner
    from experiments.records import studies
    from experiments.records.contenders import contenders
    from experiments.records.rows import SKIPPED
    from experiments.records.time_left import TimeLeft

    modules = [studies.load(name, "study") for name in names]
    folder = results or _folder_of(request.device)
    chosen = {module: runner.choose(module, request, contenders()) for module in modules}
    empty = [module for module, found in chosen.items() if not found]
    if empty and (given or len(empty) == len(modules)):
        reasons = group_pairs((runner.why_nothing(module, request, contenders()), module.NAME) for module in empty)
        said = [f"nothing to run in {', '.join(of)} on the {request.device}: {why}" for why, of in reasons.items()]
        raise UsageError("; ".join(said) + ". `python -m experiments list` shows what there is")
    failed, measured, drawn = False, False, []
    guesses = {name: about.get("seconds_without_gpu", 0.0) for name, about in studies.abouts().items()}
    left = TimeLeft(f"run {request.device} {request.preset}", {m.NAME: guesses[m.NAME] for m in modules if chosen[m]})
    with processes.shared():
        for module in (each for each in modules if chosen[each]):
            left.begin(module.NAME)
            outcome = runner.run(module, request, chosen[module], folder, out, fresh, left.describe)
            runner.report(module.NAME, outcome, folder, out)
            if outcome.interrupted:
                kept = "the rows above are kept, and `python -m experiments plot` with the same --results draws them"
                tell(f"interrupted: {kept if outcome.rows else f'nothing was measured in {module.NAME}'}", err)
                raise typer.Exit(INTERRUPTED)
            left.end(is_typical=not any(row.run for row in outcome.rows))
            drawn += [module.NAME] if outcome.rows else []
            failed = failed or bool(outcome.failures or outcome.stopped)
            measured = measured or any(row.status != SKIPPED for row in outcome.rows)
            if outcome.stopped:
                break
        if request.device == "cpu":
            runner.draw_all(drawn, folder, out)
        if request.device == "cpu" and results is None:
            runner.draw_published([module.NAME for module in modules], folder, out, again=False)
    left.save()
    if not measured:
        tell("nothing was measured: all of it was skipped, for the reasons above", err)
    if failed or not measured:
        raise typer.Exit(FAILED)


@app.command()
def plot(
    names: Annotated[list[str] | None, typer.Argument(metavar="[NAME]...", help="Experiments. [all of them]")] = None,
    results: Results = None,
) -> None:
    """Draw again from the CSV: this machine's, and where it has none the data published with the repo."""
    from experiments.selection import named

    names = named(names or ())

    from experiments import runner
    from experiments.records.store import check_writable, csv_path

    own = results or _folder_of("auto")
    drawn, published = False, []
    for name in names:
        if csv_path(own, name).exists():
            check_writable(own)
            runner.draw(name, own, out)
            drawn = True
        elif results is None and runner.published(name, own):
            check_writable(own)
            published.append(name)
    runner.draw_published(published, own, out)
    if not drawn and not published:
        raise UsageError(f"no data to draw in {own}: `python -m experiments run` measures some")


@app.command()
def fit(results: Results = None) -> None:
    """Make the table that `gemm_ref.choice` chooses tiles by, for the GPU that `run choice --preset full` was run on.

    Needs no GPU. Prints what the choice loses by the old table and by the new one.
    """
    from experiments import fit as fitting

    if CHECKOUT is None:
        raise UsageError("the table is part of the installed package: run this in a checkout of the repo")
    tell(str(fitting.fit(results or _folder_of("auto"))), out)


@app.command()
def compare(
    old: Annotated[Path, typer.Argument(help="A folder of results.")],
    new: Annotated[Path, typer.Argument(help="Another one.")],
    margin: Annotated[float, typer.Option(help="A share of cuBLAS that changes by at most this is SAME.")] = 0.03,
    all_rows: Annotated[bool, typer.Option("--all", help="List the rows that are SAME too.")] = False,
) -> None:
    """What changed from one folder of results to another: a verdict for each row that both have."""
    from experiments.records import compare as comparison
    from experiments.records.stats import SAME

    found = comparison.compare(old, new, margin)
    print_table("", ("", str(old), str(new)), comparison.environments(old, new))
    for each in found:
        changes = [change for change in each.changes if all_rows or change.verdict != SAME]
        if changes:
            changes.sort(key=lambda change: change.ratio.median)
            rows = [
                (
                    change.name,
                    change.problem,
                    f"{change.old:.3f}",
                    f"{change.new:.3f}",
                    f"{change.ratio.median:.3f} ({change.ratio.low:.3f} to {change.ratio.high:.3f})",
                    f"{change.by_time:.3f}",
                    change.verdict,
                )
                for change in changes
            ]
            print_table(
                each.experiment, ("kernel", "problem", "of cuBLAS", "now", "change (95%)", "by time", "verdict"), rows
            )
        for text in each.statuses:
            tell(text, out)
        tell(each.summary(), out)


@app.command()
def submit(
    folder: Annotated[
        Path | None, typer.Argument(help="A folder of results. [experiments/results/<this machine's GPU>]")
    ] = None,
    excuse: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=WHY", help="Publish although this requirement is not met. May be repeated."),
    ] = None,
) -> None:
    """Check a card's results, and make the folder that is committed to publish them.

    It asks for every experiment, with no row that failed, from one commit without local changes and one set of
    versions; for cuBLAS beside itself SAME at 95% of the problems; and for no time that the card's roofs do not allow.
    Where a requirement is not met, the command says what to do and writes nothing. Exit code: 1 in that case.
    """
    from experiments.cards.submit import submit as make_ready
    from experiments.publish import blocks

    given = [text.partition("=") for text in excuse or ()]
    if wrong := [name for name, _, why in given if not why.strip()]:
        raise UsageError(f"--excuse {wrong[0]}: give a reason, as in --excuse {wrong[0]}='what keeps it from being so'")
    folder = folder or _folder_of("auto")
    done = make_ready(folder.resolve(), {name.strip(): why.strip() for name, _, why in given})
    if done.folder is None:
        rows = [
            (each.name if each.excusable else f"{each.name} *", each.finding, each.advice) for each in done.shortfalls
        ]
        rows += [(name, "is excused, although the requirement is met", "take the excuse out") for name in done.needless]
        print_table(f"{folder.name} is not ready", ("requirement", "finding", "what to do"), rows)
        tell("--excuse NAME=WHY publishes it all the same, with the reason beside it; not where there is a *", out)
        raise typer.Exit(FAILED)
    paths = " ".join(str(path.relative_to(blocks.ROOT)) for path in (done.folder, *blocks.stale(write=True)))
    tell(f"{done.folder.name} is ready: git add {paths} && git commit -m 'Results of {done.folder.name}'", out)


app.command()(kernel_commands.check)
app.command()(kernel_commands.learn)
app.command()(kernel_commands.trace)
app.command()(kernel_commands.which)


@app.command()
def report(
    results: Results = None,
    output: Annotated[
        Path | None, typer.Option(help="The file to write. [report.html in this machine's results folder]")
    ] = None,
) -> None:
    """Write one HTML page of the ladder, every experiment and every rung's source; it needs no network.

    It shows what was measured on this machine, and beside it the data published with the repo; with --results, the
    data of that folder alone. Beside it is explorer.html, which shows what each thread of each kernel touches.
    """
    tell("importing what the report takes", out)  # torch and matplotlib take seconds

    from experiments import processes
    from experiments.explore import page
    from experiments.explore.times import by_key, gather_times, is_default
    from experiments.explore.traces import TraceSet, gather_traces
    from experiments.explore.traces.collection import first_modes
    from experiments.progress import Bars
    from experiments.publish.report import EXPLORER, Explored, choose, make
    from experiments.records.studies import questions

    own = results or _folder_of("auto")
    folders, target = [results] if results else choose(own), output or own / "report.html"
    traced = TraceSet((), {})

    def explore(bars: Bars) -> Explored:
        nonlocal traced
        traced, times = gather_traces(bars=bars), gather_times(first_modes(), bars)
        if traced.traces:
            write_whole(target.with_name(EXPLORER), page.render(traced.traces, target.name, by_key(times)))
        defaults = {(of.stage.id, of.dialect): time for of, time in times.items() if is_default(of)}
        return {trace.stage for trace in traced.traces}, defaults

    with processes.shared():
        path = make(folders, target, questions(), own=None if results else own, console=out, explore=explore)
    tell(str(path), out)
    if traced.traces:
        tell(str(path.with_name(EXPLORER)), out)
    if failures := traced.failures:
        name, why = next(iter(failures.items()))
        tell(f"the explorer does not show {len(failures)} kernels, {name} for one: {why}", err)


@app.command()
def doctor() -> None:
    """What this machine has for the experiments, and for each thing missing what to do."""
    from experiments.doctor import MARKS, diagnose

    findings = diagnose()
    print_table(
        "this machine",
        ("", "what", "found", "what to do"),
        [(Text.from_markup(MARKS[item.state]), item.what, item.finding, item.advice) for item in findings],
    )
    if any(item.state == "missing" for item in findings):
        raise typer.Exit(FAILED)


@app.command()
def readme(
    check: Annotated[bool, typer.Option("--check", help="Change nothing; exit 1 if it is out of date.")] = False,
) -> None:
    """Write docs/findings.md and the generated blocks of both READMEs and of docs/ from the published data."""
    from experiments.publish import blocks

    stale = blocks.stale(write=not check)
    for path in stale:
        if check:
            err.print(f"{path.name} is out of date: `python -m experiments readme` rewrites it")
        else:
            out.print(f"{path.name} rewritten")
    if check and stale:
        raise typer.Exit(FAILED)
    if not stale:
        out.print("all documents are up to date")


def _folder_of(device: str) -> Path:
    """This machine's results of a device; `auto` is its GPU, where it has one."""
    from experiments.bench import provenance
    from experiments.records.store import RESULTS
    from experiments.selection import choose_device

    return RESULTS / provenance.slug(choose_device(device))
