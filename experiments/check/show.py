"""The report on a terminal."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from experiments.check import faults, words
from experiments.check.report import Fault, Outcome, Report, Word

STYLES = {Word.SOUND: "green", Word.PARTIAL: "yellow", Word.FAULTY: "red", Word.REFUSED: "yellow"}
MARKS = {
    Outcome.WRONG: ("WRONG", "red"),
    Outcome.OUTSIDE: ("STOPPED", "red"),
    Outcome.STOPPED: ("STOPPED", "red"),
    Outcome.REFUSED: ("refused", "yellow"),
}

_CONTROL = dict.fromkeys(
    [*range(9), *range(11, 32), *range(127, 160)], "\ufffd"
)  # a source may tell a terminal to do things


def show(report: Report, out: Console) -> None:
    """Print everything that was found, the verdict first."""

    def say(*parts: str | tuple[str, str]) -> None:
        text = Text.assemble(*parts)
        text.plain = text.plain.translate(_CONTROL)  # one character for one, so styles stay where they are
        out.print(text, soft_wrap=True)

    def listed(title: str, texts: list[str]) -> None:
        if texts:
            say()
            say((title, "bold"))
        for text in texts:
            say(f"  - {text}")

    say((report.headline, f"bold {STYLES[report.word]}"))
    if report.refusal:
        say(*report.refusal.partition("\n")[2:])
        return
    say(f"{report.path}: {report.how}")
    for note in report.notes:
        say(f"  {note}")
    say()
    if rights := words.rights(report.told):
        say(("right", "green"), f" at {rights}")
    for outcome, text in words.others(report.told):
        mark, style = MARKS[outcome]
        say((mark, style), f" {text}")
    listed("Why" if report.why else "", report.why)
    if report.faults:
        say()
        say(("Faults", "bold"))
    for fault in report.faults:
        _fault(fault, say)
    listed("Limits", report.limits)
    if report.lines:
        _memory(report, say)
    listed("What that costs", report.advice)
    listed("Machine code", [words.code(code) for code in report.code])
    if report.ranking:
        _ranking(report, out)
    listed("Not checked", report.unchecked)
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
    say(f"      {faults.plain(fault.text)}")


def _memory(report: Report, say) -> None:
    """The lines of the source, each with what a request of a warp takes."""
    say()
    say((f"What each line asks of memory, per request of a warp, counted at {report.counted_at}", "bold"))
    before = None
    for line in report.lines:
        if (line.file, line.line) != before:
            before = (line.file, line.line)
            say(f"{line.line:5}  " if line.quote else f"  {line.file}:{line.line}", (line.quote, "cyan"))
        text = f"         {f'{line.kind} of {line.array or line.space}':<22} {words.asked(line)}"
        say((text, "yellow" if line.wasteful else ""))


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
        table.add_row(*map(Text, cells), style="bold" if rank.own else "")
    out.print(table)
