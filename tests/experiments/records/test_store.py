"""Results on disk: round trip, merging, whole files; and the README's block made from them."""

import dataclasses

import pandas as pd
import pytest

from experiments.publish import blocks
from experiments.records import store
from experiments.records.contenders import contenders
from experiments.records.request import UsageError
from experiments.records.rows import TimedRow
from gemm_ref import Problem, stages_in
from tests.experiments.fixtures import ENVIRONMENT, ladder_rows

LATER = ENVIRONMENT | {"date": "2021-03-03T03:03:03Z", "torch": "3.0"}


def test_round_trip(tmp_path):
    rows = ladder_rows()
    store.save(tmp_path, "ladder", rows, ENVIRONMENT)
    frame = store.read(tmp_path, "ladder")
    assert tuple(frame.columns) == TimedRow.columns()
    assert len(frame) == len(rows)
    for row, read in zip(rows, frame.itertuples(), strict=True):
        assert (read.stage, read.dialect, read.m) == (row.stage, row.dialect, row.m)
        assert read.median_us == pytest.approx(row.median_us, rel=1e-5)
        assert read.run == ENVIRONMENT["date"]
        assert pd.isna(read.vs_cublas) == (row.vs_cublas is None)
    assert store.read_runs(tmp_path) == {ENVIRONMENT["date"]: ENVIRONMENT}


def test_rerun_of_a_part_keeps_the_rest_and_both_environments(tmp_path):
    rows = ladder_rows()
    store.save(tmp_path, "ladder", rows, ENVIRONMENT)
    again = [row for row in rows if row.stage == "s04_shared_tile" and row.m == 4096]
    changed = [TimedRow.about("ladder", contenders()[0], Problem(1, 2, 3)), *again]
    store.save(tmp_path, "ladder", changed, LATER)
    frame = store.read(tmp_path, "ladder")
    assert len(frame) == len(rows) + 1
    renewed = frame[frame["run"] == LATER["date"]]
    assert len(renewed) == len(changed)
    assert set(renewed["stage"]) == {"s04_shared_tile", "s01_naive"}
    assert [run["date"] for run in store.runs_of(frame, tmp_path)] == [ENVIRONMENT["date"], LATER["date"]]
    assert "2 runs" in store.caption(frame, tmp_path)


def test_environments_that_no_row_refers_to_are_dropped(tmp_path):
    store.save(tmp_path, "ladder", ladder_rows(), ENVIRONMENT)
    store.save(tmp_path, "ladder", ladder_rows(), LATER)
    assert list(store.read_runs(tmp_path)) == [LATER["date"]]


def test_an_unrelated_csv_is_left_alone(tmp_path):
    (tmp_path / "other.csv").write_text("a,b\n1,2\n", encoding="utf-8")
    store.save(tmp_path, "ladder", ladder_rows((64,)), ENVIRONMENT)
    assert list(store.read_runs(tmp_path)) == [ENVIRONMENT["date"]]
    assert (tmp_path / "other.csv").read_text(encoding="utf-8") == "a,b\n1,2\n"


@pytest.mark.parametrize("cut", [1, 2, 30, 200])
def test_a_file_that_was_cut_off_is_refused_and_stays_as_it_is(tmp_path, cut):
    path = store.save(tmp_path, "ladder", ladder_rows((64,)), ENVIRONMENT)
    whole = path.read_bytes()
    path.write_bytes(whole[:-cut])
    last = whole[:-cut].count(b"\n") + (not whole[:-cut].endswith(b"\n"))
    for attempt in (
        lambda: store.read(tmp_path, "ladder"),
        lambda: store.prepare(tmp_path),
        lambda: store.save(tmp_path, "ladder", ladder_rows((128,)), LATER),
    ):
        with pytest.raises(UsageError, match=f"ladder.csv is not a results file.*line {last} is cut off.*move it away"):
            attempt()
    assert path.read_bytes() == whole[:-cut] and list(store.read_runs(tmp_path)) == [ENVIRONMENT["date"]]


def test_a_line_torn_in_the_middle_is_named(tmp_path):
    path = store.save(tmp_path, "ladder", ladder_rows((64,)), ENVIRONMENT)
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    path.write_text("".join([*lines[:3], lines[3][:40] + "\n", *lines[4:]]), encoding="utf-8")
    with pytest.raises(UsageError, match="line 4 is cut off or torn: it has .* values of"):
        store.read(tmp_path, "ladder")


BLOCKS = ("ladder",)


@pytest.fixture
def readme_file(tmp_path):
    path = tmp_path / "README.md"
    path.write_text("# Title\n\n<!-- ladder:begin -->\nold\n<!-- ladder:end -->\n\nkept\n", encoding="utf-8")
    return path


def test_readme_is_stale_until_written_and_then_not(tmp_path, readme_file):
    store.save(tmp_path, "ladder", ladder_rows(), ENVIRONMENT)
    before = readme_file.read_bytes()
    assert blocks.update(readme_file, BLOCKS, write=False, published=tmp_path)
    assert readme_file.read_bytes() == before
    assert blocks.update(readme_file, BLOCKS, write=True, published=tmp_path)
    assert not blocks.update(readme_file, BLOCKS, write=False, published=tmp_path)
    text = readme_file.read_text(encoding="utf-8")
    assert text.startswith("# Title\n") and text.endswith("\nkept\n") and "\nold\n" not in text
    store.save(tmp_path, "ladder", ladder_rows((4096,)), LATER)
    assert blocks.update(readme_file, BLOCKS, write=False, published=tmp_path)


def test_block_has_a_row_a_rung_with_the_numbers_of_4096(tmp_path):
    store.save(tmp_path, "ladder", ladder_rows((2048, 4096, 8192)), ENVIRONMENT)
    at_4096 = store.read(tmp_path, "ladder").query("m == 4096")
    lines = blocks.block("ladder", tmp_path).splitlines()
    for stage in stages_in("fp32"):
        own = [line for line in lines if line.startswith(f"| `{stage.id}`")]
        assert len(own) == len(stage.variants) and stage.idea in own[0]
        for dialect in stage.dialects:
            row = at_4096[(at_4096["stage"] == stage.id) & (at_4096["dialect"] == dialect)].iloc[0]
            number = f"{row.tflops:#.3g} ({100 * row.vs_cublas:#.3g}%)"
            assert sum(number in line for line in own) == len(stage.variants_in(dialect))
    assert any("NVIDIA Fixture" in line and "2020-02-02" in line and "4096" in line for line in lines)


def test_a_rungs_block_gives_its_gain_over_the_rung_below(tmp_path):
    store.save(tmp_path, "ladder", ladder_rows((4096,)), ENVIRONMENT)
    at = store.read(tmp_path, "ladder").query("stage in ('s03_block_tile', 's04_shared_tile') and dialect == 'triton'")
    old, new = at.sort_values("stage")["median_us"]
    text = blocks.block("s04_shared_tile", tmp_path)
    assert f", {old / new:#.3g} |" in text and "- Triton stages both tiles" in text


def test_the_deep_block_is_sorted_and_names_cublas(tmp_path):
    rows = [row for row in ladder_rows((64,)) if row.dialect or row.backend == "cublas"]
    deep = [dataclasses.replace(row, m=128, n=128, k=65536) for row in rows]
    store.save(tmp_path, "ladder", deep, ENVIRONMENT)
    lines = blocks.block("deep", tmp_path).splitlines()
    times = [float(line.split("|")[3]) for line in lines[2:8]]
    assert times == sorted(times) and "cuBLAS takes" in lines[-1]


def test_readme_without_markers_is_refused(tmp_path):
    path = tmp_path / "README.md"
    path.write_text("# no markers\n", encoding="utf-8")
    with pytest.raises(blocks.MarkerError, match="ladder:begin"):
        blocks.update(path, BLOCKS, write=True, published=tmp_path)
    assert path.read_text(encoding="utf-8") == "# no markers\n"


def test_published_data_say_where_they_come_from():
    """Every published row belongs to a recorded run, and every run names its commit, device and versions."""
    folders = store.published()
    assert folders[0] == store.PUBLISHED
    for folder in folders:
        for name in ("correctness", "ladder") if folder == store.PUBLISHED else ("ladder",):
            frame = store.read(folder, name)
            assert len(frame) and store.runs_of(frame, folder)
            for run in store.runs_of(frame, folder):
                assert run["commit"] and run["device"] and run["torch"] and run["triton"] and run["gpu"]["driver"]
