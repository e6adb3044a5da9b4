"""What documents, plots and the report say of two kernels is a verdict, and a problem without a quiet GPU is marked."""

import dataclasses

import pandas as pd
import pytest

from experiments.publish import blocks
from experiments.publish.docs.findings import Findings
from experiments.publish.numbers import format_edges
from experiments.publish.report.tables import tabulate
from experiments.records import store
from experiments.records.controls import LEGEND, MARK, Controls
from experiments.records.stats import SAME, UNSURE, Ratio
from tests.experiments.fixtures import CUBLAS, ENVIRONMENT, TFLOPS, ladder_rows

S02, S03 = "s02_coalesced", "s03_block_tile"


def lines_about(stage, folder):
    return [line for line in blocks.block("ladder", folder).splitlines() if line.startswith(f"- `{stage}` ")]


@pytest.mark.parametrize(
    ("ratio", "said"),
    [
        ((1.2, 1.19, 1.21), ""),  # whatever the medians of the times say: those are still of a slower s03
        ((1.005, 1.004, 1.006), f"does not beat `{S02}` in CUDA: 1.005 (0.995 to 1.015) of its speed, SAME."),
        ((1.03, 0.9, 1.2), f"is not known to beat `{S02}` in CUDA: 1.030 (0.900 to 1.200) of its speed, UNSURE."),
        ((0.9, 0.899, 0.901), f"does not beat `{S02}` in CUDA: 0.900 (0.891 to 0.909) of its speed, SLOWER."),
    ],
)
def test_a_rung_beside_the_one_below_it(tmp_path, ratio, said):
    below = TFLOPS[S02]["cuda"] / CUBLAS  # its interval is 1% to each side
    values = Ratio(*(below * value for value in ratio)).columns("vs_cublas")
    rows = ladder_rows((4096,))
    rows = [dataclasses.replace(r, **values) if (r.stage, r.dialect) == (S03, "cuda") else r for r in rows]
    store.save(tmp_path, "ladder", rows, ENVIRONMENT)
    lines = [line for line in lines_about(S03, tmp_path) if "in CUDA" in line]
    assert lines == ([f"- `{S03}` {said}"] if said else [])


def test_an_ablation_gives_each_change_alone_and_all(tmp_path):
    share = {("s11", "wide"): 0.8, ("s11", "late"): 0.8, ("s11", "two_sets"): 0.88}
    share |= {("s12", "one_set"): 0.8, ("s12", "wide"): 0.9}
    rows = [row for row in ladder_rows((4096,)) if (row.stage[:3], row.variant) in share and row.dialect == "cuda"]
    ratios = [Ratio(*[share[row.stage[:3], row.variant]] * 3) for row in rows]
    rows = [dataclasses.replace(row, **ratio.columns("vs_cublas")) for row, ratio in zip(rows, ratios, strict=True)]
    store.save(tmp_path, "ladder", rows, ENVIRONMENT)
    lines = [line.strip("| ").split(" | ") for line in blocks.block("ablation", tmp_path).splitlines()[2:7]]
    first, late, copied, later, worth = lines
    assert first[1].startswith("`s11` wide: ") and late[1].startswith("`s11` late: ")
    assert late[3] == "1.100 (1.100 to 1.100), FASTER" and copied[3].startswith("1.125 (")
    assert later[1].endswith("SAME") and worth[1].endswith("SAME")
    assert worth[2].startswith("1.023 (") and worth[3].startswith("all three: 1.125 (")


def test_rows_of_two_runs_give_no_verdict(tmp_path):
    store.save(tmp_path, "ladder", ladder_rows((4096,)), ENVIRONMENT)
    again = [row for row in ladder_rows((4096,)) if row.stage == "s04_shared_tile"]
    store.save(tmp_path, "ladder", again, ENVIRONMENT | {"date": "2021-03-03T03:03:03Z"})
    lines = lines_about("s04_shared_tile", tmp_path)
    assert len(lines) == 3 and all(line.endswith("no interval, UNSURE.") for line in lines)


def with_control(rows, verdicts):
    """The rows, and beside cuBLAS at each size (m) its control with that verdict."""
    return rows + [
        dataclasses.replace(row, stage="control", backend="control", verdict=verdicts[row.m])
        for row in rows
        if row.backend == "cublas"
    ]


@pytest.mark.parametrize("verdict", [SAME, UNSURE])
def test_a_table_marks_a_problem_whose_control_failed(tmp_path, verdict):
    store.save(tmp_path, "ladder", with_control(ladder_rows((4096,)), {4096: verdict}), ENVIRONMENT)
    text = blocks.block("ladder", tmp_path)
    assert (f"M = N = K = 4096{MARK} in fp32" in text) == (LEGEND in text) == (verdict == UNSURE)


def test_nothing_is_claimed_of_a_published_problem_whose_control_failed():
    frame = store.read(store.PUBLISHED, "shapes")
    failed = frame[(frame["stage"] == "control") & (frame["verdict"] != SAME)]
    data = Findings(store.PUBLISHED)
    claimed = {(row.math, row.m, row.n, row.k) for row in data.beats_cublas() + data.heuristic()[0]}
    (said,) = (text for text in data.failed_controls() if text.startswith("`shapes`: "))
    for row in failed.itertuples():
        assert f"{row.math} at {format_edges(row)}" in said
        assert (row.math, row.m, row.n, row.k) not in claimed


def test_the_reports_table_says_it_in_each_row():
    frame = pd.DataFrame(
        {
            "stage": ["s04_shared_tile", "control", "s04_shared_tile", "control"],
            "m": [64, 64, 128, 128],
            "n": 64,
            "k": 64,
            "median_us": [1.0, 2.0, 3.0, 4.0],
            "verdict": ["SLOWER", UNSURE, "SLOWER", SAME],
        }
    )
    table = tabulate(frame).table
    place = [column.name for column in table.columns].index("control")
    assert [row[place] for row in table.rows] == ["not SAME", "not SAME", "", ""]


def test_data_without_controls_are_not_marked():
    frame = pd.DataFrame({"stage": ["s04_shared_tile"], "m": [64], "verdict": [""]})
    assert Controls(frame).mark(m=64) == "" and len(Controls(frame).passed(frame)) == 1
    assert Controls(frame.drop(columns="verdict")).mark() == ""
