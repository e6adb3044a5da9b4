"""What the report says came of an experiment: it says something of all of them, and something else of other rows."""

from __future__ import annotations

import re

import pandas as pd
import pytest

from experiments.publish.docs import cost
from experiments.publish.outcomes import describe_trust, in_order, outcome
from experiments.records import store, studies
from experiments.records.rows import FAIL
from gemm_ref.dialect import BY_HAND, COMPLETE


@pytest.fixture(
    scope="module", params=[name for name in studies.names() if store.csv_path(store.PUBLISHED, name).exists()]
)
def experiment(request) -> tuple[str, pd.DataFrame]:
    """A published experiment and its rows."""
    return request.param, store.read(store.PUBLISHED, request.param)


def _by(factor: float, *columns: str, **which: object):
    """Multiply columns, in the rows in which other columns have the values of `which`."""

    def change(frame: pd.DataFrame) -> None:
        own = pd.Series(True, index=frame.index)
        for name, value in which.items():
            own &= frame[name] == value
        assert own.any()
        for column in columns:
            frame.loc[own, column] = (frame.loc[own, column] * factor).astype(frame[column].dtype)

    return change


_SHARES = ("vs_cublas", "vs_cublas_low", "vs_cublas_high")
_OTHER = {  # experiment -> a change of its rows, and what is said because of it, where a word can tell
    "cost": (_by(100, "own_lines", stage="s04_shared_tile", dialect="triton"), "2800 in Triton"),
    "ladder": (_by(1.2, *_SHARES, stage="s03_block_tile", dialect=BY_HAND), ""),  # just faster than the rung below it
    "squares": (_by(1e-3, "median_us", stage="s01_naive", m=16384), "`s01` at 16384"),
    "shapes": (_by(1e-3, "median_us", stage="s11_warp_tile"), "`s11` at "),
    "roofs": (_by(0.5, "value", stage="fma"), ""),
    "registers": (_by(2, "clocks", stage="FFMA", form="parities", variant="even even even"), "6.1"),
    "modes": (_by(0.5, "median_us", mode="warm", backend="cublas", m=256), ""),
    "host": (_by(10, "median_us", stage="s04_shared_tile", dialect="gluon"), "of `s04_shared_tile` in Gluon"),
    "tensor_cores": (_by(1e3, *_SHARES, stage="s15_wmma", dialect=BY_HAND), ""),
    "energy": (_by(10, "tflops", inputs="zeros", math="bf16"), ""),
    "accuracy": (_by(10, "rel_error", stage="s13_split_k", k=262144), ""),
    "rounding": (_by(1.5, "rel_error", view="predicted", math="fp8"), ""),
    "emulation": (_by(100, "max_error", math="fp16x3", inputs="normal"), "times as large (normal"),
    "memory": (_by(2, "sectors", stage="s01_naive", space="global"), "64 sectors in `s01`"),
    "instructions": (_by(0, "spill_bytes"), "0 of "),
}


def test_every_experiment_has_one(experiment):
    name, frame = experiment
    assert outcome(name, frame).endswith(".")
    assert outcome(name, frame.iloc[:0]) == ""


@pytest.mark.parametrize("name", _OTHER)
def test_it_follows_the_rows(name):
    frame = store.read(store.PUBLISHED, name)
    change, said = _OTHER[name]
    before = outcome(name, frame)
    change(frame)
    after = outcome(name, frame)
    assert said in after and after != before


def test_none_is_left_untested():
    asked_elsewhere = {"correctness", "choice", "epilogues", "timers", "scaling"}  # beside their questions
    assert {name for name in studies.names() if studies.has(name, "outcome")} == {*_OTHER, *asked_elsewhere}


def test_compile_times_are_those_of_the_page_about_cost():
    said = re.findall(r"([\d.]+) s in (\w+)", outcome("cost", store.read(store.PUBLISHED, "cost")))
    page = cost.render(store.PUBLISHED)
    assert len(said) == len(COMPLETE) and all(f"{title} {seconds} (" in page for seconds, title in said)


def test_shapes_are_the_same_set_in_every_sentence():
    said = outcome("shapes", store.read(store.PUBLISHED, "shapes"))
    (shapes,), (tried,) = re.findall(r"Of (\d+) shapes", said), re.findall(r" of (\d+) another algorithm", said)
    assert int(tried) <= int(shapes)  # cuBLASLt is not installed everywhere


def test_shapes_say_the_worst_of_each_dialect_and_the_rung_for_all():
    frame = store.read(store.PUBLISHED, "shapes")
    own = frame[(frame["stage"] == "s14_register_banks") & (frame["dialect"] == BY_HAND)]
    own = own[(own["status"] == "pass") & (own[["m", "n", "k"]].nunique(axis=1) > 1)].index
    frame.loc[own, ["median_us", "vs_cublas"]] = 0.01, 9.0
    frame.loc[own[0], "vs_cublas"] = 2.0
    first = " x ".join(str(frame.loc[own[0], name]) for name in ("m", "n", "k"))
    said = outcome("shapes", frame)
    assert f"in CUDA (at worst 200%, {first})" in said and re.search(r"`s14` in CUDA 8\d\d%", said)


def test_speed_comes_first_and_what_has_no_outcome_last():
    assert in_order(["cost", "made_up", "ladder"]) == ["ladder", "cost", "made_up"]
    assert sorted(in_order(studies.names())) == sorted(studies.names())


def test_a_failed_check_is_named():
    frame = store.read(store.PUBLISHED, "correctness")
    count = frame["checks"].sum()
    assert outcome("correctness", frame).startswith(f"Yes: all {count:,} checks")
    frame.loc[frame.index[0], ["status", "checks"]] = FAIL, 1
    count = frame["checks"].sum()
    assert outcome("correctness", frame) == f"1 of {count:,} checks failed: `s01_naive` in CUDA."


def test_without_a_gpu_the_libraries_of_the_cpu_are_spoken_of():
    frame = store.read(store.PUBLISHED, "ladder")
    said = outcome("ladder", frame[frame["backend"].isin(["numpy", "torch"])])
    assert said.startswith("Only libraries of the CPU were timed; ")


def test_the_control_says_how_far_times_can_be_trusted():
    frame = store.read(store.PUBLISHED, "ladder")
    controls = (frame["stage"] == "control").sum()
    assert f"{controls} of {controls} such rows say SAME" in describe_trust([frame])
    frame.loc[frame["stage"] == "control", "verdict"] = "UNSURE"
    assert f"0 of {controls} such rows say SAME" in describe_trust([frame])
    assert describe_trust([frame.iloc[:0]]) == ""
