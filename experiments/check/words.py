"""What a report says in sentences, for the terminal and for the page alike."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.check import faults
from experiments.check.report import Code, Line, Outcome, Verdict


def rights(verdicts: Sequence[Verdict]) -> str:
    """The sizes of runs that were right: `64x96x128, 1x1x1; one-hot inputs: 64x96x128`."""
    sizes: dict[str, list[str]] = {}
    for verdict in verdicts:
        if verdict.right:
            sizes.setdefault(verdict.inputs, []).append(verdict.problem)
    plain = sizes.pop("integers", [])
    others = [f"{kind.replace('_', '-')} inputs: {', '.join(found)}" for kind, found in sizes.items()]
    return "; ".join(([", ".join(plain)] if plain else []) + others)


def others(verdicts: Sequence[Verdict]) -> list[tuple[Outcome, str]]:
    """The runs that were not right, each with its sizes and what happened; those that one fault stopped in a line."""
    said: dict[tuple[Outcome, str], list[str]] = {}
    for verdict in verdicts:
        if not verdict.right:
            kind = "" if verdict.inputs == "integers" else f" ({verdict.inputs.replace('_', '-')} inputs)"
            said.setdefault((verdict.outcome, _short(verdict)), []).append(verdict.problem + kind)
    return [(outcome, f"at {', '.join(sizes)}: {text}") for (outcome, text), sizes in said.items()]


def _short(verdict: Verdict) -> str:
    """What happened; of a fault, which is told elsewhere, the kind and the place."""
    if verdict.outcome not in (Outcome.OUTSIDE, Outcome.STOPPED):
        return faults.plain(verdict.text)
    file, line = faults.place_of(verdict.text)
    return faults.kind_of(verdict.text) + (f" in {file}:{line}" if file else "")


def asked(line: Line) -> str:
    """Requests, what each takes, and what it would take in the best place."""
    return f"{line.done.requests} requests of {taken(line)}, ideal {line.ideal:.3g}{written(line)}"


def taken(line: Line) -> str:
    """What one request takes."""
    return f"{line.done.taken:.3g} {line.unit if line.done.taken != 1 else line.unit[:-1]}"


def written(line: Line) -> str:
    """The requests as the PTX has them, where ptxas joins accesses into wider ones."""
    if line.compiled in (None, line.written):
        return ""
    wide, narrow = (f"{one.bytes:.3g} bytes per lane" for one in (line.done, line.written))
    return f" ({wide}; as written {line.written.requests} of {line.written.taken:.3g}, {narrow})"


def code(code: Code) -> str:
    """What ptxas made of a kernel."""
    each = code.ports and code.ports.clocks / code.ports.ffma
    loop = f"; an FFMA of its main loop takes {each:.2f} clocks or more" if each else ""
    spills = f"{code.spill_bytes} bytes of spills" if code.spill_bytes else "no spills"
    return (
        f"{code.kernel} for {code.arch}: {code.registers} registers per thread, {spills}, {code.shared_bytes} bytes of "
        f"shared memory and {code.threads} threads per block; a multiprocessor holds {code.blocks} blocks "
        f"({100 * code.share:.0f}% of its warps, limited by {code.limited_by}){loop}"
    )
