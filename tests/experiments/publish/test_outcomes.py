"""What the report says came of an experiment: sentences.txt has all of it, of the published rows and of changed ones.

`python -m tests.experiments.publish.test_outcomes` writes sentences.txt again: read what changed in it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pandas as pd

from experiments.publish.outcomes import describe_trust, in_order, outcome
from experiments.records import store, studies
from experiments.records.rows import FAIL
from gemm_ref import DIALECTS
from gemm_ref.dialect import BY_HAND

SENTENCES = Path(__file__).with_name("sentences.txt")
Change = Callable[[pd.DataFrame], pd.DataFrame]


def _by(factor: float, *columns: str, **which: object) -> Change:
    """Multiplies columns, in the rows in which other columns have the values of `which`."""

    def change(frame: pd.DataFrame) -> pd.DataFrame:
        own = pd.Series(True, index=frame.index)
        for name, value in which.items():
            own &= frame[name] == value
        assert own.any()
        for column in columns:
            frame.loc[own, column] = (frame.loc[own, column] * factor).astype(frame[column].dtype)
        return frame

    return change


def _fail_first(frame: pd.DataFrame) -> pd.DataFrame:
    frame.loc[frame.index[0], ["status", "checks"]] = FAIL, 1
    return frame


_SHARES = ("vs_cublas", "vs_cublas_low", "vs_cublas_high")
_CHANGES: dict[str, tuple[Change, ...]] = {  # experiment -> changes of its rows, each of which changes a sentence
    "cost": (_by(100, "own_lines", stage="s04_shared_tile", dialect="triton"),),
    "correctness": (_fail_first,),
    "ladder": (
        _by(1.2, *_SHARES, stage="s03_block_tile", dialect=BY_HAND),  # just faster than the rung below it
        lambda frame: frame[frame["backend"].isin(["numpy", "torch"])],  # without a GPU
    ),
    "squares": (_by(1e-3, "median_us", stage="s01_naive", m=16384),),
    "shapes": (_by(1.2, *_SHARES, stage="s14_register_banks", dialect=BY_HAND),),
    "roofs": (_by(0.5, "value", stage="fma"),),
    "registers": (_by(2, "clocks", stage="FFMA", form="parities", variant="even even even"),),
    "modes": (_by(0.5, "median_us", mode="warm", backend="cublas", m=256),),
    "decode": (_by(0.5, *_SHARES, mode="layers", dialect=BY_HAND),),
    "host": (_by(10, "median_us", stage="s04_shared_tile", dialect="gluon"),),
    "tensor_cores": (_by(1e3, *_SHARES, stage="s15_wmma", dialect=BY_HAND),),
    "energy": (_by(10, "tflops", inputs="zeros", math="bf16"),),
    "accuracy": (_by(10, "rel_error", stage="s13_split_k", k=262144),),
    "rounding": (_by(1.5, "rel_error", view="predicted", math="fp8"),),
    "emulation": (_by(100, "max_error", math="fp16x3", inputs="normal"),),
    "memory": (_by(2, "sectors", stage="s01_naive", space="global"),),
    "instructions": (_by(0, "spill_bytes"),),
    "timers": (_by(0.5, "median_us", mode="warm", backend="cublas", math="fp32"),),
    "epilogues": (_by(1.1, "over_plain", form="bias", dialect=BY_HAND),),
    "scaling": (
        _by(0.5, "efficiency", way="overlapped"),
        lambda frame: frame.assign(median_us=float("nan"), efficiency=float("nan")),  # without a GPU
    ),
}


def sentences() -> Iterator[str]:
    """What is said of each published experiment, and of its rows after each of its _CHANGES."""
    for name in studies.names():
        frame = store.read(store.PUBLISHED, name)
        if frame.empty:
            continue
        said = outcome(name, frame)
        assert outcome(name, frame.iloc[:0]) == "" and said.endswith(".")
        yield f"{name}: {said}"
        for number, change in enumerate(_CHANGES.get(name, ()), 1):
            other = outcome(name, change(frame.copy()))
            assert other != said, name
            yield f"{name}, change {number}: {other}"
    ladder = store.read(store.PUBLISHED, "ladder")
    yield f"trust: {describe_trust({'ladder': ladder})}"
    ladder.loc[ladder["stage"] == "control", "verdict"] = "UNSURE"
    yield f"trust, change 1: {describe_trust({'ladder': ladder})}"
    assert describe_trust({"ladder": ladder.iloc[:0]}) == ""


def test_the_sentences_are_those_that_somebody_has_read():
    assert list(sentences()) == SENTENCES.read_text(encoding="utf-8").splitlines()


def test_compile_times_are_those_of_the_page_about_cost():
    said = re.findall(r"([\d.]+) s in (\w+)", outcome("cost", store.read(store.PUBLISHED, "cost")))
    page = studies.load("cost", "text").block("cost-best", store.PUBLISHED)
    assert len(said) == len(DIALECTS) and all(f"{title} {seconds} (" in page for seconds, title in said)


def test_speed_comes_first_and_what_has_no_outcome_last():
    assert in_order(["cost", "made_up", "ladder"]) == ["ladder", "cost", "made_up"]
    assert sorted(in_order(studies.names())) == sorted(studies.names())


if __name__ == "__main__":
    SENTENCES.write_text("".join(f"{line}\n" for line in sentences()), encoding="utf-8")
