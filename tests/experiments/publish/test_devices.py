"""docs/devices.md of one card and of two, the second of them made up."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace

import pandas as pd
import pytest

from experiments.publish.docs import devices
from experiments.records import store
from gemm_ref.choice import costs
from tests.experiments.fixtures import changed

H100 = "NVIDIA H100 80GB HBM3"
OTHERS_TABLE = "has none for these rungs, and chooses by that of the NVIDIA H200"


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """The published folder, and a copy of it as if it were of another card, with a few values changed."""
    root = tmp_path_factory.mktemp("results")
    first, other = root / "nvidia-h200", root / "nvidia-h100-80gb-hbm3"

    def slower(frame):
        kernel = (frame["stage"] == "s14_register_banks") & (frame["dialect"] == "cuda") & (frame["m"] == "4096")
        frame.loc[kernel, ["vs_cublas", "vs_cublas_low", "vs_cublas_high", "verdict"]] = ["0.9", "0.9", "0.9", "SLOWER"]

    def otherwise(frame):
        row = frame.index[(frame["chosen"] == "1") & (frame["dialect"] == "cuda")][0]
        frame.loc[row, "blocks"] = "7"

    def less_memory(frame):
        read = frame["stage"] == "dram_read"
        frame.loc[read, "value"] = str(0.7 * float(frame.loc[read, "value"].item()))

    for folder in (first, other):
        folder.mkdir()
        shutil.copy(store.PUBLISHED / store.CARD, folder)
    changed(first)
    changed(other, ladder=slower, choice=otherwise, roofs=less_memory)
    for folder in (first, other):
        path = store.csv_path(folder, "choice")
        rows = pd.read_csv(path, dtype=str, keep_default_na=False)
        rows[rows["stage"] == "s14_register_banks"].to_csv(path, index=False)
    path = other / store.ENVIRONMENT
    path.write_text(path.read_text().replace("NVIDIA H200", H100).replace("nvidia-h200", other.name))
    return first, other


def test_one_card_says_what_two_would_show(two, tmp_path):
    alone = shutil.copytree(two[0], tmp_path / two[0].name)
    text = devices.render(alone)
    assert "One card is published" in text and "| NVIDIA H200 | 132 | 1980 |" in text and "## " not in text


@pytest.fixture
def of_one(monkeypatch):
    """A table of the H200 alone: an H100's costs are those of the H200."""
    first = costs.find_device()
    monkeypatch.setattr(costs, "load_devices", lambda: {"NVIDIA H200": first, H100: costs.borrow_costs(first)})
    return first


@pytest.mark.usefixtures("of_one")
def test_two_cards_are_told_apart(two):
    text = devices.render(two[0])
    assert f"## {H100}" in text and "2 cards are published" in text
    (line,) = [line for line in text.splitlines() if line.startswith("| `s14` CUDA fp32 | 4096 |")]
    assert line.endswith("| 90.0% |")
    chosen = (store.read(two[0], "choice")["chosen"] == 1).sum()
    assert (
        f"At {chosen} problems the tile and the number of blocks were chosen on both cards, and differ at 1 of" in text
    )
    assert re.search(r"^\| `ladder` \| (\d+) \| \d+ \| 1 \|$", text, re.M)
    assert OTHERS_TABLE in text
    assert text.count("| 21 | 2,100,000 | 0 |") == 2


@pytest.mark.parametrize(("rung", "of_another"), [("s14_register_banks", False), ("s19_any_shape", True)])
def test_a_table_is_a_cards_own_where_the_rungs_that_choose_have_costs_of_it(
    two, of_one, monkeypatch, rung, of_another
):
    """In the fixture that is s14; costs of s19 that were fitted on the H100 do not count."""
    borrowed = costs.borrow_costs(of_one)
    other = replace(borrowed, rungs={**borrowed.rungs, rung: of_one.rungs[rung]})
    monkeypatch.setattr(costs, "load_devices", lambda: {"NVIDIA H200": of_one, H100: other})
    assert (OTHERS_TABLE in devices.render(two[0])) == of_another


def test_what_a_card_has_not_run_is_said(two, tmp_path):
    first, other = (shutil.copytree(folder, tmp_path / folder.name) for folder in two)
    for name in ("squares", "shapes", "choice", "rounding"):
        store.csv_path(other, name).unlink()
    text = devices.render(first)
    assert "Not both cards have run `squares` and `shapes` yet." in text and "There is none." not in text
    assert "There is no problem yet at which both cards chose." in text
    assert text.count("| 21 | 2,100,000 | 0 |") == 1


def test_less_memory_makes_more_wait_for_it(two):
    (pair,) = [devices.Pair(devices.Card(two[0]), devices.Card(two[1]))]
    counts = {rung: (int(here.split()[0]), int(there.split()[0])) for rung, here, there in pair.memory_bound}
    assert counts["`s14_register_banks`"][0] < counts["`s14_register_banks`"][1]
