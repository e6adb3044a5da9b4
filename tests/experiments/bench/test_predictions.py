"""Predictions of a call: what more K takes where a block computes several tiles, and what is kept of an earlier run."""

from __future__ import annotations

import pytest

import gemm_ref
from experiments.bench import predictions
from experiments.records import cache
from experiments.records.contenders import with_blocks
from gemm_ref import Implementation, Problem, clock
from tests.experiments.fixtures import raising

CARD = "nvidia-h200"


def test_a_longer_k_is_extrapolated_also_where_a_block_computes_several_tiles():
    stage, problem = gemm_ref.get_stage("s14"), Problem(32, 256, 384)
    gemm = with_blocks(Implementation(stage, "tile32x128", "cuda", "fp32", "kn"), blocks=1).load()
    whole = clock.predict(gemm, problem, CARD, sample_k=problem.k)
    assert clock.predict(gemm, problem, CARD, sample_k=256).microseconds == pytest.approx(whole.microseconds, rel=0.02)


def test_a_prediction_is_kept_until_a_fresh_one_is_wanted(monkeypatch):
    entries: dict[tuple[str, str], bytes] = {}
    monkeypatch.setattr(cache, "load", lambda *key: entries.get(key))
    monkeypatch.setattr(cache, "save", lambda name, digest, content: entries.update({(name, digest): content}))
    problem = Problem(128, 128, 256, "bf16")
    item = Implementation(gemm_ref.get_stage("s17"), "default", "cuda", "bf16", "kn")
    first = predictions.predict(item, problem, CARD)
    assert first.lines and first.copies_us == ()
    monkeypatch.setattr(clock, "predict", raising(ValueError("again")))
    assert predictions.predict(item, problem, CARD) == first
    for other, fresh in ((problem, True), (problem.resized(m=256), False)):
        with pytest.raises(ValueError, match="again"):
            predictions.predict(item, other, CARD, fresh)


@pytest.mark.parametrize(("sizes", "sample_k"), [((64, 4096, 14336), 16 * 256), ((4096, 4096, 4096), 256)])
def test_a_block_that_has_a_share_of_k_computes_as_much_of_it(sizes, sample_k, monkeypatch):
    """512 blocks of 64 x 128 for 32 tiles have a sixteenth of K each, and 264 blocks for 1,024 tiles all of it."""
    monkeypatch.setattr(clock, "predict", lambda *arguments: pytest.fail(str(arguments[-1])))
    item = Implementation(gemm_ref.get_stage("s14"), "default", "cuda", "fp32", "kn")
    with pytest.raises(pytest.fail.Exception, match=f"^{sample_k}$"):
        predictions.predict(item, Problem(*sizes), CARD, fresh=True)


def test_a_launch_that_does_not_depend_on_k_takes_no_longer_with_more():
    """The kernel that adds the parts of C, behind one whose blocks share a tile's K."""
    problem = Problem(32, 256, 2048)
    plan = predictions.plan_call(problem, CARD, "cuda", "s13")
    times = [
        clock.predict(lambda a, b: predictions._run(plan, CARD, a, b), problem, CARD, sample_k).launches
        for sample_k in (512, problem.k)
    ]
    (_, sampled), (_, whole) = times
    assert sampled.microseconds == pytest.approx(whole.microseconds, rel=0.02)
