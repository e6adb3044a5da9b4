"""What became of the mutants: the score, and the survivors, each with the reason.

EQUIVALENT has those that cannot give a wrong result. UNSEEN has those that can on hardware, and that neither the
reference GPU nor its detectors see: what is not known there of Hopper's asynchronous units.
"""

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

# The same of Hopper's rungs, whose keys end in the math mode.
_S17, _S18 = ("s17_wgmma_tma-cuda-bf16",), ("s18_warp_specialized-cuda-bf16", "s18_warp_specialized-cuda-tf32")
_OUTSIDE = "tiles past the edge lie outside of C: TMA reads zeros there, and writes nothing"
_PAST_K = "TMA reads zeros past K, which add nothing"
_COMPILER = "a line for the compiler alone: without it nvcc's PTX still reads the accumulators behind their wait"
_WAITED = "in tf32 each step has been waited for already (STEPS_UNDER_WAY is 1)"
_STEPS = "const int steps = (K + DEPTH - 1) / DEPTH;  =>  const int steps = ((K + DEPTH - 1) / DEPTH) + 1;"
_LAST_WAIT = "if (threadIdx.x % WARPGROUP == 0) tma_store_wait_read<0>();  =>  if (true) tma_store_wait_read<0>();"
_FENCED = "wgmma_fence_accumulators(acc);  =>  ;"
_HOPPER_EQUIVALENT = {
    _STEPS: (_S17 + _S18, _PAST_K),
    _LAST_WAIT: (_S17 + _S18, "a thread that has stored nothing has nothing to wait for"),
    _FENCED: (_S17 + _S18, _COMPILER),
    f"{_FENCED} (number 2)": (_S17 + _S18, _COMPILER),
    "const char* const my_left = slice.left + warpgroup * WGMMA_M * SWIZZLE_ROW_BYTES;  =>  "
    "const char* const my_left = (slice.left + warpgroup * WGMMA_M * SWIZZLE_ROW_BYTES) + 1;": (
        (_S17[0], _S18[0]),
        "a descriptor counts 16 bytes, and drops the rest of an address",
    ),
    "const int tiles_n = (N + BLOCK_N - 1) / BLOCK_N;  =>  const int tiles_n = ((N + BLOCK_N - 1) / BLOCK_N) + 1;": (
        _S18,
        _OUTSIDE,
    ),
    "const int tiles_m = (M + BLOCK_M * CLUSTER_M - 1) / (BLOCK_M * CLUSTER_M);  =>  "
    "const int tiles_m = ((M + BLOCK_M * CLUSTER_M - 1) / (BLOCK_M * CLUSTER_M)) + 1;": (_S18, _OUTSIDE),
    "if (++stage == NUM_STAGES) stage = 0, parity ^= 1;  =>  "
    "if (++stage == NUM_STAGES) stage = (0) + 1, parity ^= 1;": (
        _S18,
        "producer and consumers leave out the same stage from the second round on: a ring of three",
    ),
    "wgmma_wait_group<0>();  =>  ;": (_S18[1:], _WAITED),
    "wgmma_wait_group<0>();  =>  wgmma_wait_group<0 + 1>();": (_S18[1:], _WAITED),
    "int before = stage;  =>  int before = (stage) + 1;": (_S18, "overwritten in the first step before it is read"),
}
EQUIVALENT |= {(rung, change): why for change, (rungs, why) in _HOPPER_EQUIVALENT.items() for rung in rungs}

_INIT = "who initialises an mbarrier is before who uses it in lockstep, and the detectors look at data alone"
_LEFT = "copies that nobody waits for may land in shared memory after the block has ended, where the next one's data is"
_FENCE = "the reference GPU knows one order of memory: it shows initialised mbarriers to everyone at once"
_TURN = "in lockstep the four warps that meet at a shared named barrier are always those of one warpgroup"
_MEET = "if (CLUSTER_M > 1) cluster_sync_relaxed();  =>  if (CLUSTER_M > 1) ;"
_STORED = "store_tile(C, acc, scale, pieces + warpgroup * PIECES, row + warpgroup * WGMMA_M, col, 1"
_HOPPER_UNSEEN = {
    "fence_mbarrier_init();  =>  ;": (_S17 + _S18, _FENCE),
    "__syncthreads();  =>  ;": (_S17, _INIT),
    _MEET: (_S18, "two places: in lockstep no block is late to initialise its mbarriers, nor ends while they are used"),
    f"{_STORED} + warpgroup);  =>  {_STORED});": (_S17 + _S18, _TURN),
    "if (threadIdx.x == 0) {  =>  if (true) {": (
        _S18,
        "all threads initialise the same mbarriers, which PTX leaves undefined; here the last one counts",
    ),
    "for (int step = 0; step < min(NUM_STAGES, steps); ++step) load_slice(step);  =>  "
    "for (int step = 0; step < NUM_STAGES; ++step) load_slice(step);": (_S17, _LEFT),
    "if (threadIdx.x == 0 && step - 1 + NUM_STAGES < steps) {  =>  if (threadIdx.x == 0 && true) {": (_S17, _LEFT),
}
UNSEEN = {(rung, change): why for change, (rungs, why) in _HOPPER_UNSEEN.items() for rung in rungs}


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
    lines = [f"{'kind':8} {'mutants':>8} {'reported':>8} {'equivalent':>10} {'missed':>6} {'unseen':>6}"]
    missed = unexplained(outcomes)
    unseen = [o for o in outcomes if o.status == SURVIVED and key(o.trial) in UNSEEN]
    for kind in (*KINDS, "all"):
        mine = [outcome for outcome in changed if kind in (outcome.trial.mutant.kind, "all")]
        told = sum(outcome.status == REPORTED for outcome in mine)
        open_ = sum(outcome in missed for outcome in mine)
        hidden = sum(outcome in unseen for outcome in mine)
        same = len(mine) - told - open_ - hidden
        lines.append(f"{kind:8} {len(mine):8} {told:8} {same:10} {open_:6} {hidden:6}")
    lines.append(f"({len(outcomes) - len(changed)} more compile to the kernel they are made from)")
    lines.append(
        "told by: " + ", ".join(f"{by} {n}" for by, n in Counter(o.by for o in outcomes if o.by).most_common())
    )
    told = sum(outcome.status == REPORTED for outcome in changed)
    worth = told + len(missed) + len(unseen)
    lines.append(f"score: {100 * told / max(1, worth):.1f}% of the mutants that can give a wrong result")
    lines += [f"MISSED {outcome.trial}" for outcome in missed]
    lines += [f"UNSEEN {outcome.trial}: {UNSEEN[key(outcome.trial)]}" for outcome in unseen]
    lines += [f"NOT EQUIVALENT after all: {file}: {change}" for file, change in stale(outcomes)]
    return "\n".join(lines)


def unexplained(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """The survivors that neither EQUIVALENT nor UNSEEN names."""
    return [o for o in outcomes if o.status == SURVIVED and key(o.trial) not in EQUIVALENT | UNSEEN]


def stale(outcomes: Sequence[Outcome]) -> list[tuple[str, str]]:
    """What EQUIVALENT or UNSEEN names, but something told of."""
    return [key(o.trial) for o in outcomes if o.status == REPORTED and key(o.trial) in EQUIVALENT | UNSEEN]


def key(trial: Trial) -> tuple[str, str]:
    """What EQUIVALENT calls a mutant: the rung and dialect, the math mode unless it is fp32, and the change."""
    implementation = trial.implementation
    math = "" if implementation.math == "fp32" else f"-{implementation.math}"
    return f"{implementation.stage.id}-{implementation.dialect}{math}", trial.mutant.change
