"""What became of the mutants: the score, and the survivors, each with the reason why it cannot give a wrong result."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import itertools
import re
import tomllib
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from cuda_kernels.mutants import KINDS, Mutant
from gemm_ref import Implementation

REPORTED, UNCHANGED, SURVIVED = "reported", "unchanged", "survived"
REDUNDANT, UNREACHED = "redundant", "unreached"  # of what a compiler put in
ERROR = "error"  # of the trial itself, which says nothing about the mutant

_TRITON = importlib.metadata.version("triton") if importlib.util.find_spec("triton") else "0.0"
_FENCE = "Triton puts that fence there by itself (3.9 does, 3.6 does not, and there something tells)"


def _equivalent() -> Iterator[tuple[tuple[str, str], str]]:
    """(rung and dialect, change) of each mutant in equivalent.toml, and why it cannot give a wrong result."""
    table = tomllib.loads(Path(__file__).with_name("equivalent.toml").read_text(encoding="utf-8"))
    for names, mutants in table["mutants"].items():
        rungs = [rung for name in names.split(", ") for rung in table["rungs"][name]]
        for rung, (statement, why) in itertools.product(rungs, mutants.items()):
            before, part, after = re.split("[«»]", statement)
            part, _, put = part.partition(" → ")
            change = f"{before}{part}{after}  =>  {before}{put or f'({part}) + 1'}{after}"
            yield (rung, change), table["reasons"].get(why, why)
    if tuple(int(part) for part in _TRITON.split(".")[:2]) >= (3, 9):
        for rung in (*table["rungs"]["s17 Gluon"], *table["rungs"]["s18 Gluon"]):
            yield (rung, "fence_async_shared()  =>  pass"), _FENCE


EQUIVALENT = dict(_equivalent())


@dataclass(frozen=True)
class Trial:
    """A mutant in the kernel that it is tried in."""

    implementation: Implementation
    mutant: Mutant

    def __str__(self) -> str:
        return f"{self.implementation}: {self.mutant}"


@dataclass(frozen=True)
class Outcome:
    """What became of a mutant, and what told.

    It is reported, unchanged (it compiles to the same PTX, or not at all) or survived. What a compiler put in may also
    be redundant, where the rest orders all that it orders, or unreached, in code that does not run
    (`tests.mutation.mutants.thin`). At an error its text begins with a line that names the error.
    """

    trial: Trial
    status: str
    by: str = ""
    text: str = ""


def failed(trial: Trial, error: Exception) -> Outcome:
    """Returns the outcome of a trial that raised an error."""
    message, trace = " ".join(f"{type(error).__name__}: {error}".split()), traceback.format_tb(error.__traceback__)
    return Outcome(trial, ERROR, text="".join([f"{message}\n", *trace]))


def score(outcomes: Sequence[Outcome]) -> str:
    """A table of what became of the mutants of each kind, what told, and a list of the survivors and of the errors."""
    errors = [outcome for outcome in outcomes if outcome.status == ERROR]
    unchanged = sum(outcome.status == UNCHANGED for outcome in outcomes)
    changed = [outcome for outcome in outcomes if outcome.status not in (UNCHANGED, ERROR)]
    lines = [f"{'kind':8} {'mutants':>8} {'reported':>8} {'equivalent':>10} {'missed':>6}"]
    missed = unexplained(outcomes)
    for kind in (*KINDS, "all"):
        mine = [outcome for outcome in changed if kind in (outcome.trial.mutant.kind, "all")]
        told = sum(outcome.status == REPORTED for outcome in mine)
        open_ = sum(outcome in missed for outcome in mine)
        same = len(mine) - told - open_
        lines.append(f"{kind:8} {len(mine):8} {told:8} {same:10} {open_:6}")
    redundant, unreached = (sum(o.status == status for o in outcomes) for status in (REDUNDANT, UNREACHED))
    lines.append(
        f"(of the equivalent {redundant} are Triton's, which order nothing that the rest of its PTX does not, and "
        f"{unreached} in code that does not run)"
    )
    lines.append(f"({unchanged} more compile to the kernel they are made from, or not at all)")
    lines.append(
        "told by: " + ", ".join(f"{by} {n}" for by, n in Counter(o.by for o in outcomes if o.by).most_common())
    )
    told = sum(outcome.status == REPORTED for outcome in changed)
    worth = told + len(missed)
    lines.append(f"score: {100 * told / max(1, worth):.1f}% of the mutants that can give a wrong result")
    lines += [f"MISSED {outcome.trial}" for outcome in missed]
    lines += [f"NOT EQUIVALENT after all: {file}: {change}" for file, change in stale(outcomes)]
    lines += [f"ERROR {outcome.trial}: {outcome.text.splitlines()[0]}" for outcome in errors]
    return "\n".join(lines)


def unexplained(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """The survivors that EQUIVALENT does not name."""
    return [o for o in outcomes if o.status == SURVIVED and key(o.trial) not in EQUIVALENT]


def stale(outcomes: Sequence[Outcome]) -> list[tuple[str, str]]:
    """What EQUIVALENT names, but something told of."""
    return [key(o.trial) for o in outcomes if o.status == REPORTED and key(o.trial) in EQUIVALENT]


def key(trial: Trial) -> tuple[str, str]:
    """What EQUIVALENT calls a mutant: the rung and dialect, the math mode unless it is fp32, and the change."""
    implementation = trial.implementation
    math = "" if implementation.math == "fp32" else f"-{implementation.math}"
    return f"{implementation.stage.id}-{implementation.dialect}{math}", trial.mutant.change
