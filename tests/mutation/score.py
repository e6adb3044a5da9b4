"""What became of the mutants: the score, and the survivors, each with the reason why it cannot give a wrong result."""

from __future__ import annotations

import importlib.metadata
import importlib.util
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from cuda_kernels.mutants import KINDS, Mutant
from gemm_ref import Implementation

REPORTED, UNCHANGED, SURVIVED = "reported", "unchanged", "survived"
REDUNDANT, UNREACHED = "redundant", "unreached"  # of what a compiler put in

# (rung and dialect, change) -> why the mutant cannot give a wrong result. A test says if one is no mutant any more,
# and the script if something tells of it after all.
_ZEROS = "past K a slice is loaded as zeros, without a read, into the buffer that nobody reads again"
_COVERED = "a split takes a slice more, the last ones fewer or none: together they still cover K once"


def _one_more(name: str, value: str, before: str = "", after: str = "") -> str:
    """The change of `name = value` to one more, of a statement that has more `before` and `after` it."""
    return f"{before}{name} = {value}{after}  =>  {before}{name} = ({value}) + 1{after}"


_SLICES, _EACH = "(K + BLOCK_K - 1) / BLOCK_K", "(slices + gridDim.z - 1) / gridDim.z"
_EQUIVALENT: dict[str, tuple[tuple[str, ...], str]] = {  # change -> the rungs that it is in, and why
    "const bool more = k_next < K;  =>  const bool more = true;": (
        ("s10_double_buffer-cuda", "s11_warp_tile-cuda"),
        _ZEROS,
    ),
    _one_more("slices", _SLICES, "const int ", f", slices_each = {_EACH};"): (("s13_split_k-cuda",), _COVERED),
    _one_more("slices_each", _EACH, f"const int slices = {_SLICES}, ", ";"): (("s13_split_k-cuda",), _COVERED),
    _one_more("slices_each", "tl.cdiv(tl.cdiv(K, BLOCK_K), tl.num_programs(2))"): (("s13_split_k-triton",), _COVERED),
    "if (m >= BLOCK_M || row >= M || col >= N) return;  =>  if (m >= BLOCK_M || row >= M || false) return;": (
        ("s14_register_banks-cuda",),
        "shares past N lie in their tiles, and their sums are not stored",
    ),
}

# The same of Hopper's rungs, whose keys end in the math mode.
_S17, _S18 = ("s17_wgmma_tma-cuda-bf16",), ("s18_warp_specialized-cuda-bf16", "s18_warp_specialized-cuda-tf32")
_OUTSIDE = "tiles past the edge lie outside of C: TMA reads zeros there, and writes nothing"
_PAST_K = "TMA reads zeros past K, which add nothing"
_COMPILER = "a line for the compiler alone: without it nvcc's PTX still reads the accumulators behind their wait"
_WAITED = "in tf32 each step has been waited for already (STEPS_UNDER_WAY is 1)"
_BLOCK = "it releases to the cluster, which is this block alone, and in a block __syncthreads() has that order already"
_STEPS = _one_more("steps", "(K + DEPTH - 1) / DEPTH", "const int ", ";")
_LAST_WAIT = "if (threadIdx.x % WARPGROUP == 0) tma_store_wait_read<0>();  =>  if (true) tma_store_wait_read<0>();"
_FENCED = "wgmma_fence_accumulators(acc);  =>  ;"
_EQUIVALENT |= {
    _STEPS: (_S17 + _S18, _PAST_K),
    _LAST_WAIT: (_S17 + _S18, "a thread that has stored nothing has nothing to wait for"),
    _FENCED: (_S17 + _S18, _COMPILER),
    f"{_FENCED} (number 2)": (_S17 + _S18, _COMPILER),
    _one_more("my_left", "slice.left + warpgroup * WGMMA_M * SWIZZLE_ROW_BYTES", "const char* const ", ";"): (
        (_S17[0], _S18[0]),
        "a descriptor counts 16 bytes, and drops the rest of an address",
    ),
    _one_more("tiles_n", "(N + BLOCK_N - 1) / BLOCK_N", "const int ", ";"): (_S18, _OUTSIDE),
    _one_more("tiles_m", "(M + BLOCK_M * CLUSTER_M - 1) / (BLOCK_M * CLUSTER_M)", "const int ", ";"): (_S18, _OUTSIDE),
    _one_more("stage", "0", "if (++stage == NUM_STAGES) ", ", parity ^= 1;"): (
        _S18,
        "producer and consumers leave out the same stage from the second round on: a ring of three",
    ),
    "wgmma_wait_group<0>();  =>  ;": (_S18[1:], _WAITED),
    "wgmma_wait_group<0>();  =>  wgmma_wait_group<0 + 1>();": (_S18[1:], _WAITED),
    "fence_mbarrier_init();  =>  ;": (_S17, _BLOCK),
    _one_more("warp", "threadIdx.x / 32 % 4", "const int ", ", row = threadIdx.x % 32 / 4;"): (
        _S18[1:],
        "warps of a pair exchange their columns of B where they read it, and likewise of C where they write it",
    ),
    _one_more("before", "stage", "int ", ";"): (_S18, "overwritten in the first step before it is read"),
}
_S18_TRITON = ("s18_warp_specialized-triton-bf16", "s18_warp_specialized-triton-tf32")
_S17_GLUON = ("s17_wgmma_tma-gluon-bf16",)
_S18_GLUON = ("s18_warp_specialized-gluon-bf16", "s18_warp_specialized-gluon-tf32")
_ANOTHER_ORDER = "the same mbarriers for the same counts, in another order"
_ZERO_SUMS = "the sums start as zeros"
_EQUIVALENT |= {
    _one_more("tiles_m", "tl.cdiv(M, BLOCK_M)"): (_S18_TRITON, _OUTSIDE),
    _one_more("tiles_n", "tl.cdiv(N, BLOCK_N)"): (_S18_TRITON, _OUTSIDE),
    _one_more("steps", "tl.cdiv(K, BLOCK_K)"): (_S18_TRITON, _PAST_K),
    _one_more("steps", "gl.cdiv(K, BLOCK_K)"): (_S17_GLUON, _PAST_K),
    "mbarrier.init(full.index(i), count=1)  =>  mbarrier.init(full.index((i + 1) % NUM_STAGES), count=1)": (
        _S17_GLUON + _S18_GLUON,
        _ANOTHER_ORDER,
    ),
    "mbarrier.init(empty.index(i), count=CONSUMERS)  =>  "
    "mbarrier.init(empty.index((i + 1) % NUM_STAGES), count=CONSUMERS)": (_S18_GLUON, _ANOTHER_ORDER),
    "acc = warpgroup_mma(a_smem.index(stage), b, acc, use_acc=step > 0, is_async=True)  =>  "
    "acc = warpgroup_mma(a_smem.index(stage), b, acc, use_acc=(step == step), is_async=True)": (_S17_GLUON, _ZERO_SUMS),
    "acc = warpgroup_mma(a, as_kn(b_smem.index(stage), B_LAYOUT), acc, use_acc=step > 0, is_async=True)  =>  "
    "acc = warpgroup_mma(a, as_kn(b_smem.index(stage), B_LAYOUT), acc, use_acc=(step == step), is_async=True)": (
        _S18_GLUON,
        _ZERO_SUMS,
    ),
}
_TRITON = importlib.metadata.version("triton") if importlib.util.find_spec("triton") else "0"
if tuple(int(part) for part in _TRITON.split(".")[:2]) >= (3, 9):
    _FENCE = "Triton puts that fence there by itself (3.9 does, 3.6 does not, and there something tells)"
    _EQUIVALENT["fence_async_shared()  =>  pass"] = _S17_GLUON + _S18_GLUON, _FENCE
_S19 = ("s19_any_shape-cuda-bf16", "s19_any_shape-cuda-tf32")
_EQUIVALENT |= {
    change: (rungs + _S19, why)
    for change, (rungs, why) in _EQUIVALENT.items()
    if change in (_LAST_WAIT, _FENCED, _one_more("before", "stage", "int ", ";"))
}
_EQUIVALENT["bar_sync(2 + CONSUMERS, MULTIPLIERS);  =>  ;"] = (
    _S19,
    "it holds one warpgroup back, so that the other has the tensor cores: what it reads it waits for besides",
)
# s14 in Triton and Gluon, whose two kernels deal the tiles alike.
_S14_TRITON, _S14_GLUON = ("s14_register_banks-triton",), ("s14_register_banks-gluon",)
_DEALT = (
    "tiles and shares are dealt otherwise, by both kernels alike: together they cover C and K, and more lies outside"
)
_WHOLE = "a tile more is computed whole, and the second kernel stores it once more"
_NO_SHARE = "a program without a share stores sums that nobody adds"
_NOT_NEGATIVE = "K is never negative"
_WHOLE_BLOCKS = "a tile is a whole number of the second kernel's blocks"
_EQUIVALENT |= {
    _one_more("slices", "tl.maximum(tl.cdiv(K, BLOCK_K), 1)"): (_S14_TRITON, "a slice past K is all zeros"),
    _one_more("shared", "(tiles - whole) * slices"): (_S14_TRITON, _DEALT),
    "return slices, whole, tl.cdiv(shared, programs), shared  =>  "
    "return slices, whole, (tl.cdiv(shared, programs)) + 1, shared": (_S14_TRITON, _DEALT),
    "return slices, whole, tl.cdiv(shared, programs), shared  =>  "
    "return slices, whole, tl.cdiv(shared, programs), (shared) + 1": (_S14_TRITON, _DEALT),
    _one_more("rounds", "whole // programs"): (_S14_TRITON, _WHOLE),
    "shares = tl.where(first < end, (end - 1) // slices - first // slices + 1, 0)  =>  "
    "shares = tl.where((first == first), (end - 1) // slices - first // slices + 1, 0)": (_S14_TRITON, _NO_SHARE),
    "one = (K >= 0).to(tl.float32)  =>  one = ((K == K)).to(tl.float32)": (_S14_TRITON, _NOT_NEGATIVE),
    "inside = (i < BLOCK_M * BLOCK_N) & (row < M) & (col < N)  =>  inside = ((i == i)) & (row < M) & (col < N)": (
        _S14_TRITON,
        _WHOLE_BLOCKS,
    ),
    _one_more("tiles", "gl.cdiv(M, BLOCK_M) * gl.cdiv(N, BLOCK_N)"): (_S14_GLUON, _DEALT),
    _one_more("slices", "gl.maximum(gl.cdiv(K, BLOCK_K), 1)"): (_S14_GLUON, "a slice past K is all zeros"),
    _one_more("rounds", "tiles // programs"): (_S14_GLUON, _DEALT),
    _one_more("shared", "(tiles - rounds * programs) * slices"): (_S14_GLUON, _DEALT),
    "return rounds, slices, gl.cdiv(shared, programs), shared  =>  "
    "return (rounds) + 1, slices, gl.cdiv(shared, programs), shared": (_S14_GLUON, _DEALT),
    "return rounds, slices, gl.cdiv(shared, programs), shared  =>  "
    "return rounds, slices, (gl.cdiv(shared, programs)) + 1, shared": (_S14_GLUON, _DEALT),
    "return rounds, slices, gl.cdiv(shared, programs), shared  =>  "
    "return rounds, slices, gl.cdiv(shared, programs), (shared) + 1": (_S14_GLUON, _DEALT),
    "shares = gl.where(begin < end, gl.cdiv(end, slices) - begin // slices, 0)  =>  "
    "shares = gl.where((begin == begin), gl.cdiv(end, slices) - begin // slices, 0)": (_S14_GLUON, _NO_SHARE),
    _one_more("count", "slices"): (_S14_GLUON, "a slice past K is all zeros"),
    "if (k + 1) % BLOCK_K == 0:  =>  if ((k + 1) % BLOCK_K == (k + 1) % BLOCK_K):": (
        _S14_GLUON,
        "it waits, and meets, before each k instead of each slice: more often than it must",
    ),
    "acc = gl.convert_layout(acc * (K >= 0).to(gl.float32), layout)  =>  "
    "acc = gl.convert_layout(acc * ((K == K)).to(gl.float32), layout)": (_S14_GLUON, _NOT_NEGATIVE),
    "inside = (i < BLOCK_M * BLOCK_N) & (of <= last_program)  =>  inside = ((i == i)) & (of <= last_program)": (
        _S14_GLUON,
        _WHOLE_BLOCKS,
    ),
    "gl.store(c_ptr + row * N + col, total, mask=(i < BLOCK_M * BLOCK_N) & (row < M) & (col < N))  =>  "
    "gl.store(c_ptr + row * N + col, total, mask=((i == i)) & (row < M) & (col < N))": (_S14_GLUON, _WHOLE_BLOCKS),
}
EQUIVALENT = {(rung, change): why for change, (rungs, why) in _EQUIVALENT.items() for rung in rungs}


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

    It is reported, unchanged (it compiles to the same PTX) or survived. What a compiler put in may also be redundant,
    where the rest orders all that it orders, or unreached, in code that does not run (`tests.mutation.mutants.thin`).
    """

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
        same = len(mine) - told - open_
        lines.append(f"{kind:8} {len(mine):8} {told:8} {same:10} {open_:6}")
    redundant, unreached = (sum(o.status == status for o in outcomes) for status in (REDUNDANT, UNREACHED))
    lines.append(
        f"(of the equivalent {redundant} are Triton's, which order nothing that the rest of its PTX does not, and "
        f"{unreached} in code that does not run)"
    )
    lines.append(f"({len(outcomes) - len(changed)} more compile to the kernel they are made from)")
    lines.append(
        "told by: " + ", ".join(f"{by} {n}" for by, n in Counter(o.by for o in outcomes if o.by).most_common())
    )
    told = sum(outcome.status == REPORTED for outcome in changed)
    worth = told + len(missed)
    lines.append(f"score: {100 * told / max(1, worth):.1f}% of the mutants that can give a wrong result")
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
    """What EQUIVALENT calls a mutant: the rung and dialect, the math mode unless it is fp32, and the change."""
    implementation = trial.implementation
    math = "" if implementation.math == "fp32" else f"-{implementation.math}"
    return f"{implementation.stage.id}-{implementation.dialect}{math}", trial.mutant.change
