"""The report on a terminal."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from experiments.check import faults
from experiments.check.report import Asked, Line, Report


def show(report: Report, out: Console) -> None:
    """Print everything that was found."""

    def say(text: str = "", style: str = "") -> None:
        out.print(Text(text, style=style), soft_wrap=True)

    def listed(title: str, texts: list[str], mark: str = "-") -> None:
        if texts:
            say()
            say(title, "bold")
            for text in texts:
                say(f"  {mark} {text}")

    say(f"{report.path}: {report.how}", "bold")
    for note in report.notes:
        say(f"  {note}")
    say()
    for verdict in report.verdicts:
        kind = "" if verdict.inputs == "integers" else f" ({verdict.inputs.replace('_', '-')} inputs)"
        mark, style = ("right", "green") if verdict.right else ("WRONG", "red")
        told = "" if verdict.right else f": {faults.plain(verdict.text)}"
        out.print(Text.assemble((f"{mark:<5}", style), f" at {verdict.problem}{kind}{told}"), soft_wrap=True)
    listed("What is wrong", report.why)
    if report.faults:
        say()
        say("Faults", "bold")
    for fault in report.faults:
        place = f"{fault.file}:{fault.line}" if fault.file else ""
        sizes = f" (at {', '.join(fault.sizes)})" if fault.sizes else ""
        out.print(Text.assemble("  ", (fault.kind, "red"), f" {place}{sizes}"), soft_wrap=True)
        if fault.quote:
            say(f"      {fault.quote}", "cyan")
        if fault.other_quote:
            say(f"      {fault.other_quote}  (line {fault.other_line})", "cyan")
        say(f"      {faults.plain(fault.text)}")
    listed("Limits", report.limits)
    if report.lines:
        _memory(report, out)
    listed("What that costs", report.advice)
    if report.code:
        say()
        say("Machine code", "bold")
    for code in report.code:
        each = code.ports and code.ports.clocks / code.ports.ffma
        loop = f"; an FFMA of its main loop takes {each:.2f} clocks or more" if each else ""
        spills = f"{code.spill_bytes} bytes of spills" if code.spill_bytes else "no spills"
        say(
            f"  {code.kernel} for {code.arch}: {code.registers} registers per thread, {spills}, {code.shared_bytes} "
            f"bytes of shared memory and {code.threads} threads per block; a multiprocessor holds {code.blocks} blocks "
            f"({100 * code.share:.0f}% of its warps, limited by {code.limited_by}){loop}"
        )
    if report.ranking:
        _ranking(report, out)
    listed("Not checked", report.unchecked)
    say()
    say(_end(report), "green" if report.sound else "red")


def _memory(report: Report, out: Console) -> None:
    """The lines of the source, each with what a request of a warp takes."""
    out.print(Text(f"\nWhat each line asks of memory, counted at {report.counted_at}", style="bold"))
    before = None
    for line in report.lines:
        if (line.file, line.line) != before:
            before = (line.file, line.line)
            where = f"{line.line:5}" if line.quote else f"  {line.file}:{line.line}"
            out.print(Text.assemble(f"{where}  ", (line.quote, "cyan")), soft_wrap=True)
        text = f"         {f'{line.kind} of {line.array or line.space}':<22} {_requests(line)}, ideal {line.ideal:.3g}"
        out.print(Text(text, style="yellow" if line.wasteful else ""), soft_wrap=True)


def _requests(line: Line) -> str:
    """Those as written, and those as compiled, which differ where ptxas joins accesses into wider ones."""

    def told(asked: Asked) -> str:
        return f"{asked.requests:>7} requests of {asked.taken:.3g} {line.unit}"

    def wide(asked: Asked) -> str:
        return f"{asked.bytes:.3g} bytes per lane"

    if line.compiled is None:
        return told(line.written)
    if line.compiled == line.written:
        return f"{told(line.written)}, as written and as compiled"
    return (
        f"{told(line.written)} as written ({wide(line.written)}); as compiled {line.compiled.requests} of "
        f"{line.compiled.taken:.3g} ({wide(line.compiled)})"
    )


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


def _end(report: Report) -> str:
    if report.sound:
        return f"sound: right at every size that was run, and no detector found a fault ({report.seconds:.1f} s)"
    wrong = sum(not verdict.right for verdict in report.verdicts)
    told = [f"wrong in {wrong} of {len(report.verdicts)} runs"] if wrong else []
    told += [f"{len(report.faults)} fault{'s' * (len(report.faults) > 1)}"] if report.faults else []
    return f"{' and '.join(told)} ({report.seconds:.1f} s)"
