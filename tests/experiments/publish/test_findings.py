"""docs/findings.md and docs/memory.md: numbers are looked up, and words follow the data."""

import re
from types import SimpleNamespace

import pytest

from experiments.publish.docs import findings
from experiments.publish.docs.findings import SIZE, Findings
from experiments.records import store
from experiments.records.request import UsageError
from gemm_ref import STAGES
from tests.experiments.fixtures import changed

ROWS = ("ladder", "squares", "shapes", "modes", "energy", "accuracy")


def test_a_word_follows_its_numbers(tmp_path):
    stage = STAGES["s04_shared_tile"]

    def twice_as_fast(frame):
        own = (frame["stage"] == stage.id) & (frame["dialect"] == "triton") & (frame["m"] == str(SIZE[0]))
        for name in ("vs_cublas", "vs_cublas_low", "vs_cublas_high"):
            frame.loc[own, name] = (2 * frame.loc[own, name].astype(float)).astype(str)

    before = Findings(store.PUBLISHED)
    after = Findings(changed(tmp_path, ladder=twice_as_fast))
    assert after.word(stage, "triton") == "faster"
    ratio = before.compare(stage, "triton").median
    assert after.compare(stage, "triton").median == pytest.approx(2 * ratio, rel=1e-4)
    assert after.word(STAGES["s13_split_k"], "gluon") == "no kernel"


def test_another_run_is_told(tmp_path):
    def same_run(frame):
        frame["run"] = store.read(store.PUBLISHED, "ladder")["run"].iloc[-1]

    assert "another run" in Findings(store.PUBLISHED).other_run()
    assert Findings(changed(tmp_path, squares=same_run, ladder=same_run)).other_run() == ""


def test_controls_that_are_not_same_are_counted(tmp_path):
    def spoil(frame):
        first = frame.index[frame["stage"] == "control"][0]
        frame.loc[first, "verdict"] = "UNSURE"
        frame.loc[first, ["vs_cublas", "vs_cublas_high"]] = "1.5"

    same, total = re.search(r"(\d+) of (\d+) such rows say SAME", Findings(store.PUBLISHED).trust()).groups()
    after = Findings(changed(tmp_path, squares=spoil)).trust()
    assert f"{int(same) - 1} of {total} such rows" in after and "off by 50.00%" in after


@pytest.mark.parametrize("name", ROWS)
def test_every_statement_has_data_behind_it(monkeypatch, name):
    """The page cannot be written from results that lack one of its experiments."""

    def read(folder, each):
        return store.read(folder, each).iloc[: 0 if each == name else None]

    monkeypatch.setattr(findings, "store", SimpleNamespace(**vars(store) | {"read": read}))
    with pytest.raises(UsageError, match=f"has no {name}.csv"):
        findings.render()
