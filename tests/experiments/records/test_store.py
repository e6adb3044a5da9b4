"""Results on disk: rows are merged, files are replaced whole, and what is not whole is refused."""

from __future__ import annotations

import pytest

from experiments.records import store, studies
from experiments.records.contenders import contenders
from experiments.records.request import UsageError
from experiments.records.rows import TimedRow
from gemm_ref import Problem
from tests.experiments.fixtures import ENVIRONMENT, ladder_rows, renamed

LATER = ENVIRONMENT | {"date": "2021-03-03T03:03:03Z", "torch": "3.0"}


def rows(*sizes):
    return renamed("example", ladder_rows(sizes))


@pytest.mark.usefixtures("example_study")
def test_rerun_of_a_part_keeps_the_rest_and_both_environments(tmp_path):
    first = rows(1024, 4096)
    store.save(tmp_path, "example", first, ENVIRONMENT)
    again = [row for row in first if row.stage == "s04_shared_tile" and row.m == 4096]
    changed = [TimedRow.about("example", contenders()[0], Problem(1, 2, 3)), *again]
    store.save(tmp_path, "example", changed, LATER)
    frame = store.read(tmp_path, "example")
    assert len(frame) == len(first) + 1
    renewed = frame[frame["run"] == LATER["date"]]
    assert len(renewed) == len(changed) and set(renewed["stage"]) == {"s04_shared_tile", "s01_naive"}
    assert [run["date"] for run in store.runs_of(frame, tmp_path)] == [ENVIRONMENT["date"], LATER["date"]]
    assert "2 runs" in store.caption(frame, tmp_path)
    store.save(tmp_path, "example", [*first, *changed], LATER)
    assert store.read_runs(tmp_path) == {LATER["date"]: LATER}  # no row refers to the first run any more


@pytest.mark.usefixtures("example_study")
def test_an_unrelated_csv_is_left_alone(tmp_path):
    (tmp_path / "other.csv").write_text("a,b\n1,2\n", encoding="utf-8")
    store.save(tmp_path, "example", rows(64), ENVIRONMENT)
    assert list(store.read_runs(tmp_path)) == [ENVIRONMENT["date"]]
    assert (tmp_path / "other.csv").read_text(encoding="utf-8") == "a,b\n1,2\n"


@pytest.mark.parametrize("cut", [1, 2, 30, 200])
@pytest.mark.usefixtures("example_study")
def test_a_file_that_was_cut_off_is_refused_and_stays_as_it_is(tmp_path, cut):
    path = store.save(tmp_path, "example", rows(64), ENVIRONMENT)
    whole = path.read_bytes()
    path.write_bytes(whole[:-cut])
    last = whole[:-cut].count(b"\n") + (not whole[:-cut].endswith(b"\n"))
    for attempt in (
        lambda: store.read(tmp_path, "example"),
        lambda: store.prepare(tmp_path),
        lambda: store.save(tmp_path, "example", rows(128), LATER),
    ):
        with pytest.raises(UsageError, match=f"example.csv.*line {last} is cut off"):
            attempt()
    assert path.read_bytes() == whole[:-cut] and list(store.read_runs(tmp_path)) == [ENVIRONMENT["date"]]


@pytest.mark.usefixtures("example_study")
def test_what_is_no_results_file_is_refused(tmp_path):
    path = store.save(tmp_path, "example", rows(64), ENVIRONMENT)
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    for name, text, why in (
        ("example.csv", "".join([*lines[:3], lines[3][:40] + "\n", *lines[4:]]), "line 4 is cut off or torn"),
        ("example.csv", "a,b\n1,2\n", "no column experiment"),
        ("example.csv", "", "is not a results file"),
        ("environment.json", "{", "is not a record of environments"),
        ("environment.json", '{"a": 1}', "is not a record of environments"),
    ):
        (tmp_path / name).write_text(text, encoding="utf-8")
        with pytest.raises(UsageError, match=why):
            store.read(tmp_path, "example") if name == "example.csv" else store.read_runs(tmp_path)


def test_published_data_say_where_they_come_from():
    """Every published row belongs to a recorded run, and every run names its commit, device and versions."""
    folders = store.published()
    assert folders[0] == store.PUBLISHED
    for folder in folders:
        there = [name for name in studies.names() if store.csv_path(folder, name).exists()]
        runs = store.read_runs(folder)
        assert there and {run for name in there for run in store.read(folder, name)["run"]} == runs.keys()
        for run in runs.values():
            assert run["commit"] and run["device"] and run["torch"] and run["triton"]
