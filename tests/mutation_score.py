"""What became of the mutants: the score, and the survivors that cannot give a wrong result, each with the reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from gemm_ref import Implementation
from tests.mutation_rules import KINDS, Mutant

REPORTED, UNCHANGED, SURVIVED = "reported", "unchanged", "survived"

# (rung and dialect, change) -> why the mutant cannot give a wrong result. A test says if one is no mutant any more,
# and the script if something tells of it after all.
_ZEROS = "past K a slice is loaded as zeros, without a read, into the buffer that nobody reads again"
_COVERED = "a split takes a slice more, the last ones fewer or none: together they still cover K once"
_SLICES = "const int slices = (K + BLOCK_K - 1) / BLOCK_K, slices_each = (slices + gridDim.z - 1) / gridDim.z;"
EQUIVALENT: dict[tuple[str, str], str] = {
    ("s10_double_buffer-cuda", "const bool more = k_next < K;  =>  const bool more = true;"): _ZEROS,
    ("s11_warp_tile-cuda", "const bool more = k_next < K;  =>  const bool more = true;"): _ZEROS,
    (
        "s13_split_k-cuda",
        f"{_SLICES}  =>  const int slices = ((K + BLOCK_K - 1) / BLOCK_K) + 1, "
        "slices_each = (slices + gridDim.z - 1) / gridDim.z;",
    ): _COVERED,
    (
        "s13_split_k-cuda",
        f"{_SLICES}  =>  const int slices = (K + BLOCK_K - 1) / BLOCK_K, "
        "slices_each = ((slices + gridDim.z - 1) / gridDim.z) + 1;",
    ): _COVERED,
    (
        "s13_split_k-triton",
        "slices_each = tl.cdiv(tl.cdiv(K, BLOCK_K), tl.num_programs(2))  =>  "
        "slices_each = (tl.cdiv(tl.cdiv(K, BLOCK_K), tl.num_programs(2))) + 1",
    ): _COVERED,
}


@dataclass(frozen=True)
class Trial:
    """A mutant in the kernel that it is tried in."""

    implementation: Implementation
    mutant: Mutant

    def __str__(self) -> str:
        return f"{self.implementation}: {self.mutant}"


@dataclass(frozen=True)
class Outcome:
    """What became of a mutant: reported, unchanged (it compiles to the same PTX) or survived, and what told."""

    trial: Trial
    status: str
    by: str = ""
    text: str = ""


def score(outcomes: Sequence[Outcome]) -> str:
    """A table of what became of the mutants of each kind, what told, and a list of the survivors."""
    changed = [outcome for outcome in outcomes if outcome.status != UNCHANGED]
    lines = [f"{'kind':8} {'mutants':>8} {'reported':>8} {'equivalent':>10} {'missed':>6}"]
    missed = unexplained(outcomes)
    for kind in (*KINDS, "all"):
        mine = [outcome for outcome in changed if kind in (outcome.trial.mutant.kind, "all")]
        told = sum(outcome.status == REPORTED for outcome in mine)
        open_ = sum(outcome in missed for outcome in mine)
        lines.append(f"{kind:8} {len(mine):8} {told:8} {len(mine) - told - open_:10} {open_:6}")
    lines.append(f"({len(outcomes) - len(changed)} more compile to the kernel they are made from)")
    lines.append(
        "told by: " + ", ".join(f"{by} {n}" for by, n in Counter(o.by for o in outcomes if o.by).most_common())
    )
    worth = len(changed) - sum(outcome.status == SURVIVED for outcome in changed) + len(missed)
    lines.append(
        f"score: {100 * (worth - len(missed)) / max(1, worth):.1f}% of the mutants that can give a wrong result"
    )
    lines += [f"MISSED {outcome.trial}" for outcome in missed]
    lines += [f"NOT EQUIVALENT after all: {file}: {change}" for file, change in stale(outcomes)]
    return "\n".join(lines)


def unexplained(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """The survivors that EQUIVALENT does not name."""
    return [o for o in outcomes if o.status == SURVIVED and key(o.trial) not in EQUIVALENT]


def stale(outcomes: Sequence[Outcome]) -> list[tuple[str, str]]:
    """What EQUIVALENT names, but something told of."""
    return [key(o.trial) for o in outcomes if o.status == REPORTED and key(o.trial) in EQUIVALENT]


def key(trial: Trial) -> tuple[str, str]:
    """What EQUIVALENT calls a mutant: the rung and dialect, and the change."""
    implementation = trial.implementation
    return f"{implementation.stage.id}-{implementation.dialect}", trial.mutant.change
