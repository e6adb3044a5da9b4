"""Mutants of the ladder's kernels are reported: a sample of them here, all by `python -m tests.mutation.mutants`."""

from __future__ import annotations

import re

import pytest

from cuda_kernels import source
from cuda_kernels.mutants import BARRIER, BOUND, FENCE, KINDS, WAIT, cuda_mutants
from gemm_ref import ptx
from tests.imports import ROOT
from tests.mutation.mutants import thin, try_out
from tests.mutation.rules import triton_mutants
from tests.mutation.score import EQUIVALENT, ERROR, REPORTED, Trial, key, score
from tests.mutation.trials import compiled_trials, trials


def _sample() -> list[Trial]:
    """One mutant of every other CUDA rung, of one kind after the other: the middle one of that kind."""
    chosen: dict[str, list[Trial]] = {}
    for trial in trials(("cuda",)):
        if trial.mutant.file.endswith(".cu") and key(trial) not in EQUIVALENT:
            chosen.setdefault(trial.implementation.stage.id, []).append(trial)
    sample = []
    for number, mine in enumerate(list(chosen.values())[1::2]):
        kinds = [kind for kind in KINDS if any(trial.mutant.kind == kind for trial in mine)]
        kind = kinds[number % len(kinds)]
        alike = [trial for trial in mine if trial.mutant.kind == kind]
        sample.append(alike[len(alike) // 2])
    return sample


@pytest.mark.parametrize("trial", _sample(), ids=lambda trial: f"{trial.implementation.stage.id}-{trial.mutant.kind}")
def test_a_mutant_is_reported(trial):
    assert try_out(trial).status == REPORTED


@pytest.mark.parametrize("stage", ["s04_shared_tile", "s12_async_copy"])
@pytest.mark.parametrize("dialect", ["triton", "gluon"])
def test_a_barrier_or_wait_of_triton_is_needed(stage, dialect):
    found = compiled_trials((dialect,), (stage,))
    assert {trial.mutant.kind for trial in found} == ({BARRIER, WAIT} if stage.startswith("s12") else {BARRIER})
    (outcome,) = thin(found[-1:])
    assert outcome.status == REPORTED and outcome.by != "check", "in lockstep the result is right"


def test_an_error_of_one_mutant_is_listed_and_hides_no_other(monkeypatch):
    of_s19 = compiled_trials(("triton",), ("s19_any_shape",))  # whose code depends on the number of programs
    implementation = of_s19[0].implementation
    found = [t for t in of_s19 if t.implementation == implementation and t.mutant.kind == WAIT][-2:]
    load, texts = ptx.load, []

    def load_all_but_the_second(text):
        texts.append(text)
        if len(texts) == 2:
            raise RuntimeError("of the script")
        return load(text)

    monkeypatch.setattr(ptx, "load", load_all_but_the_second)
    outcomes = thin(found)
    assert [outcome.status for outcome in outcomes] == [REPORTED, ERROR]
    assert score(outcomes).endswith(f"\nERROR {found[1]}: RuntimeError: of the script")


CALLS = {  # and not where they are defined
    BARRIER: r"(?:__sync(?:threads|warp)|cluster_(?:sync_relaxed|arrive_relaxed|wait)|\bbar_(?:sync|arrive)"
    r"|\bmbarrier_arrive\w*|free_slice)\([^;{]*\);",
    WAIT: r"(?:(?:wait_for|commit)_copies|mbarrier_wait\w*|wgmma_(?:wait|commit)_group|tma_store_(?:wait_read|commit))"
    r"(?:<[^>]*>)?\([^;{]*\);|\bwait_for_flag\([^;{]*\);|\*flag = 0;",
    FENCE: r"(?:fence_proxy_async|fence_mbarrier_init|wgmma_fence\w*)\([^;{]*\);",
}


def test_each_barrier_and_wait_of_the_cuda_rungs_is_removed_once():
    for implementation in {trial.implementation: None for trial in trials(("cuda",))}:
        mine = [t.mutant for t in trials(("cuda",), (implementation.stage.id,)) if t.implementation == implementation]
        for path in {mutant.file for mutant in mine}:
            folder = source.FOLDER if path.endswith(".cu") else source.INCLUDE
            text = re.sub(r"//.*", lambda m: " " * len(m[0]), (folder / path).read_text(encoding="utf-8"))
            for kind, calls in CALLS.items():
                removed = [m.start for m in mine if (m.file, m.kind, m.put) == (path, kind, ";")]
                assert removed == [match.start() for match in re.finditer(calls, text)], path


def test_each_test_of_an_edge_is_removed_once():
    """Whatever is compared with a size, loops' conditions apart, has a mutant."""
    for path in sorted(source.FOLDER.glob("s*.cu")):
        text = path.read_text(encoding="utf-8")
        mutated = [m.line for m in cuda_mutants(path.name, text) if m.kind == BOUND]
        for number, line in enumerate(text.splitlines(), 1):
            code = re.sub(r"for \([^)]*\)|//.*|static_assert.*|template.*", "", line)
            tests = re.findall(r"(?:<|>=|<=|>) (?:M|N|K|k_end|elements)\b", code)
            assert mutated.count(number) >= len(tests), line


def test_equivalents_are_mutants_that_exist():
    """What was edited away must leave the table; whether one still survives is for the script to say."""
    assert EQUIVALENT.keys() <= {key(trial) for trial in trials()}


GLUON_CALLS = {  # what is put in the place of the call, or of an argument behind it
    "mbarrier.wait": ("pass", ") ^ 1"),
    "mbarrier.arrive": ("pass",),
    "mbarrier.init": (") + 1",),
    "mbarrier.expect": (") // 2",),
    "async_copy.wait_group": ("pass",),
    "async_copy.commit_group": ("pass",),
    "tma.store_wait": ("pass",),
    "fence_async_shared": ("pass",),
    "warpgroup_mma_wait": (") + 1",),
}


def test_each_barrier_and_wait_of_the_gluon_rungs_is_changed():
    seen = set()
    for path in sorted((ROOT / "triton_kernels" / "gluon").glob("*.py")):
        text = path.read_text(encoding="utf-8")
        mutants = triton_mutants(path.name, text)
        for number, line in enumerate(text.splitlines(), 1):
            for call in (call for call in GLUON_CALLS if f"{call}(" in line):
                seen.add(call)
                for put in GLUON_CALLS[call]:
                    assert any(each.line == number and each.put.endswith(put) for each in mutants), (path.name, line)
    assert seen == GLUON_CALLS.keys()
