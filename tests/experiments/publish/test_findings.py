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
from tests.imports import ROOT

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


def test_another_run_is_told_with_what_is_level_there(tmp_path):
    def times(share, us):
        def change(frame):
            own = (frame["stage"] == "s10_double_buffer") & (frame["dialect"] == "triton")
            for names, factor in ((("vs_cublas", "vs_cublas_low", "vs_cublas_high"), share), (("median_us",), us)):
                for name in names:
                    known = own & (frame[name] != "")
                    frame.loc[known, name] = (factor * frame.loc[known, name].astype(float)).astype(str)

        return change

    def same_run(frame):
        frame["run"] = store.read(store.PUBLISHED, "ladder")["run"].iloc[-1]

    data = Findings(store.PUBLISHED)
    best, s10 = data.best("triton"), data.row(STAGES["s10_double_buffer"], "triton")
    faster = times(2.0, 0.5)  # in the squares' run s10 leads
    told = Findings(changed(tmp_path, squares=faster))
    assert told.leaders()[SIZE[0]]["triton"].stage == s10.stage != best.stage
    assert told.other_run().endswith("from another run than those above.")

    def level(frame):  # and in the ladder's, of one run, it is level
        times(0.999 * best.vs_cublas / s10.vs_cublas, 1.01 * s10.vs_cublas / best.vs_cublas)(frame)
        frame["run"] = frame["run"].iloc[0]

    assert " level in Triton." in Findings(changed(tmp_path, squares=faster, ladder=level)).other_run()
    assert Findings(changed(tmp_path, squares=same_run, ladder=same_run)).other_run() == ""


def test_what_is_held_is_the_fastest_in_a_burst(tmp_path):
    def no_bursts(frame):
        frame["mode"] = "sustained"

    def slow(frame):
        frame.loc[frame["stage"] == "s14_register_banks", "tflops"] = "1"

    rung, library = Findings(store.PUBLISHED).sustained()
    assert rung.stage == "s14_register_banks" and library.backend == "cublas" and rung.m == library.m
    page = (ROOT / "docs" / "findings.md").read_text(encoding="utf-8")  # tests/test_repo.py renders it
    assert f"held {rung.tflops:.1f} at {rung.power_w:.0f} W" in page
    assert Findings(changed(tmp_path, energy=slow)).sustained()[0].stage == "s12_async_copy"
    assert Findings(changed(tmp_path, energy=no_bursts)).sustained() == []


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
