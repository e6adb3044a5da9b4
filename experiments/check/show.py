"""The report on a terminal."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console
from rich.table import Table
from rich.text import Text

from experiments.check.faults import Fault, without_instruction
from experiments.check.report import Outcome, Predicted, Report, Word
from experiments.records.request import CONTROL

STYLES = {Word.SOUND: "green", Word.PARTIAL: "yellow", Word.FAULTY: "red", Word.REFUSED: "yellow"}
MARKS = {
    Outcome.WRONG: ("WRONG", "red"),
    Outcome.OUTSIDE: ("STOPPED", "red"),
    Outcome.STOPPED: ("STOPPED", "red"),
    Outcome.REFUSED: ("refused", "yellow"),
}


def show(report: Report, out: Console) -> None:
    """Prints everything that was found, the verdict first."""

    def say(*parts: str | tuple[str, str]) -> None:
        text = Text.assemble(*parts)
        text.plain = text.plain.translate(CONTROL)  # one character for one, so styles stay where they are
        out.print(text, soft_wrap=True)

    def say_list(title: str, texts: Iterable[object]) -> None:
        for index, text in enumerate(texts):
            if index == 0:
                say()
                say((title, "bold"))
            say(f"  - {text}")

    say((report.headline, f"bold {STYLES[report.word]}"))
    if report.refusal:
        say(*report.refusal.partition("\n")[2:])
        return
    say(f"{report.path}: {report.how}")
    for note in report.notes:
        say(f"  {note}")
    say()
    if report.right_runs:
        say(("right", "green"), f" at {report.right_runs}")
    for outcome, text in report.other_runs:
        mark, style = MARKS[outcome]
        say((mark, style), f" {text}")
    say_list("Why", report.why)
    if report.faults:
        say()
        say(("Faults", "bold"))
    for fault in report.faults:
        _fault(fault, say)
    say_list("Limits", report.limits)
    if report.lines:
        _memory(report, say)
    say_list("What that costs", report.advice)
    say_list("Machine code", report.code)
    if report.predicted:
        _prediction(report.predicted, say)
    say_list("Time", filter(None, [report.no_time]))
    if report.ranking:
        _ranking(report, out)
    say_list("Not checked", report.unchecked)
    say()
    say((f"({report.seconds:.1f} s)", "dim"))


def _fault(fault: Fault, say) -> None:
    place = f"{fault.file}:{fault.line}" if fault.file else ""
    sizes = f" (at {', '.join(fault.sizes)})" if fault.sizes else ""
    say("  ", (fault.kind, "red"), f" {place}{sizes}")
    if fault.quote:
        say((f"      {fault.quote}", "cyan"))
    if fault.other_quote:
        say((f"      {fault.other_quote}  (line {fault.other_line})", "cyan"))
    say(f"      {without_instruction(fault.text)}")


def _memory(report: Report, say) -> None:
    say()
    say((f"What each line asks of memory, per request of a warp, counted at {report.counted_at}", "bold"))
    before = None
    for line in report.lines:
        if (line.file, line.line) != before:
            before = (line.file, line.line)
            say(f"{line.line:5}  " if line.quote else f"  {line.file}:{line.line}", (line.quote, "cyan"))
        say((f"         {line.name:<22} {line}", "yellow" if line.is_wasteful else ""))


def _prediction(predicted: Predicted, say) -> None:
    say()
    say(("Time", "bold"))
    say(f"  {predicted}")
    for line in predicted.lines:
        say(f"{line.line:5}  " if line.quote else f"  {line.file}:{line.line}", (line.quote, "cyan"))
        say(f"         {line}")


def _ranking(report: Report, out: Console) -> None:
    table = Table(title=f"\nPlace on the ladder (at {report.ranked_at})", title_justify="left", title_style="bold")
    table.add_column("kernel")
    for name in ("us", "TFLOP/s", "of cuBLAS"):
        table.add_column(name, justify="right")
    for rank in report.ranking:
        if rank.detail:
            cells = (rank.name, "", "", rank.detail)
        else:
            share = "" if rank.vs_cublas is None else f"{100 * rank.vs_cublas:.3g}%"
            cells = (rank.name, f"{rank.median_us:.4g}", f"{rank.tflops:.3g}", share)
        table.add_row(*map(Text, cells), style="bold" if rank.is_subject else "")
    out.print(table)
