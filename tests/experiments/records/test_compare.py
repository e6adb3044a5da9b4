"""`experiments compare`: verdicts for what two folders share, and what has none."""

import dataclasses

import pytest

from experiments.records import compare, store
from experiments.records.request import UsageError
from experiments.records.rows import FAIL
from experiments.records.stats import FASTER, SAME, SLOWER, UNSURE
from gemm_ref import DIALECTS
from tests.experiments.fixtures import ENVIRONMENT, ladder_rows


def rows(**shares):
    """The fixture's rungs and cuBLAS at 4096, with the speed of some dialects multiplied."""
    return [
        dataclasses.replace(
            row,
            mode="cold",
            vs_cublas=row.vs_cublas * shares.get(row.dialect, 1.0),
            vs_cublas_low=row.vs_cublas * shares.get(row.dialect, 1.0) * 0.998,
            vs_cublas_high=row.vs_cublas * shares.get(row.dialect, 1.0) * 1.002,
            **{name: getattr(row, name) / shares.get(row.dialect, 1.0) for name in ("median_us", "p20_us", "p80_us")},
        )
        for row in ladder_rows((4096,))
        if row.dialect or (row.backend == "cublas" and row.math == "fp32")
    ]


@pytest.fixture
def folders(tmp_path):
    def make(old, new):
        for name, content in (("old", old), ("new", new)):
            (tmp_path / name).mkdir()
            store.save(tmp_path / name, "ladder", content, ENVIRONMENT)
        return tmp_path / "old", tmp_path / "new"

    return make


def test_each_row_has_its_verdict(folders):
    old, new = folders(rows(), rows(cuda=1.1, triton=1.01, gluon=0.9))
    (ladder,) = compare.compare(old, new)
    found = {
        dialect: {change.verdict for change in ladder.changes if f" {dialect} " in change.name}
        for dialect in ("cuda", "triton", "gluon")
    }
    assert found == {"cuda": {FASTER}, "triton": {SAME}, "gluon": {SLOWER}}
    assert {change.verdict for change in ladder.changes if change.name.startswith("cublas")} == {SAME}


def test_the_margin_is_the_callers(folders):
    old, new = folders(rows(), rows(**dict.fromkeys(DIALECTS, 1.05)))
    for margin, verdict in ((0.03, FASTER), (0.1, SAME)):
        (ladder,) = compare.compare(old, new, margin)
        assert {change.verdict for change in ladder.changes if not change.name.startswith("cublas")} == {verdict}


def test_wide_intervals_are_unsure(folders):
    wide = [
        dataclasses.replace(row, vs_cublas_low=row.vs_cublas * 0.9, vs_cublas_high=row.vs_cublas * 1.1)
        for row in rows(**dict.fromkeys(DIALECTS, 1.05))
    ]
    (ladder,) = compare.compare(*folders(rows(), wide))
    assert {change.verdict for change in ladder.changes if not change.name.startswith("cublas")} == {UNSURE}


def test_a_share_that_moves_with_cublas_is_no_change_of_the_kernel(folders):
    slower = [
        dataclasses.replace(row, **{name: getattr(row, name) * 1.1 for name in ("median_us", "p20_us", "p80_us")})
        if row.backend == "cublas"
        else dataclasses.replace(
            row, **{name: getattr(row, name) * 1.1 for name in ("vs_cublas", "vs_cublas_low", "vs_cublas_high")}
        )
        for row in rows()
    ]
    (ladder,) = compare.compare(*folders(rows(), slower))
    told = {change.name: change.verdict for change in ladder.changes if change.verdict != SAME}
    assert told == {"cublas fp32": SLOWER}


def test_what_the_hosts_events_add_is_no_change_of_the_kernel(tmp_path):
    """The time between two events around nothing is part of every time, and differs from host to host."""
    slower = 0.9  # of the speed, and so of cuBLAS'
    own = next(row for row in rows() if row.dialect == "cuda")
    found = []
    for apart in (0.0, own.median_us * 0.1):
        for name, content, events_us in (("old", rows(), 1.0), ("new", rows(cuda=slower), 1.0 + apart)):
            folder = tmp_path / f"{name}{apart}"
            folder.mkdir()
            store.save(folder, "ladder", content, ENVIRONMENT | {"events_us": events_us})
        (ladder,) = compare.compare(tmp_path / f"old{apart}", tmp_path / f"new{apart}")
        found += [change.verdict for change in ladder.changes if change.name == f"{own.stage} cuda fp32"]
    assert found == [SLOWER, SAME]


def test_a_run_that_does_not_know_its_events_widens_no_margin(tmp_path):
    """Taken as nothing, it would let a kernel change by all that the events of the other run took."""
    for name, content, known in (("old", rows(), {}), ("new", rows(cuda=0.9), {"events_us": 1e9})):
        (tmp_path / name).mkdir()
        store.save(
            tmp_path / name, "ladder", content, {k: v for k, v in ENVIRONMENT.items() if k != "events_us"} | known
        )
    (ladder,) = compare.compare(tmp_path / "old", tmp_path / "new")
    assert {change.verdict for change in ladder.changes if " cuda " in change.name} == {SLOWER}


def test_control_rows_are_counted_apart(folders):
    (cublas,) = (row for row in rows() if row.backend == "cublas")
    control = dataclasses.replace(cublas, stage="control", backend="control")
    (ladder,) = compare.compare(*folders([*rows(), control], [*rows(), control]))
    assert ladder.verdicts(control=True) == {SAME: 1}
    assert ladder.verdicts().total() == len(rows())
    assert "1 control rows: 1 SAME" in ladder.summary()


def test_rows_without_a_partner_or_with_another_status_are_told(folders):
    first, *rest = rows()
    failed = dataclasses.replace(rest[0], status=FAIL, vs_cublas=None, vs_cublas_low=None, vs_cublas_high=None)
    (ladder,) = compare.compare(*folders([first, *rest], [failed, *rest[1:]]))
    assert (ladder.only_old, ladder.only_new) == (1, 0)
    assert ladder.statuses == [f"{failed.stage} {failed.dialect} fp32 at 4096x4096x4096 cold: pass, now fail"]


def test_folders_that_share_nothing_are_refused(tmp_path):
    with pytest.raises(UsageError, match="is not a folder of results"):
        compare.compare(tmp_path / "a", tmp_path)
    (tmp_path / "b").mkdir()
    with pytest.raises(UsageError, match="no experiment in common"):
        compare.compare(tmp_path, tmp_path / "b")


def test_folders_without_a_row_in_common_are_refused(folders):
    elsewhere = [dataclasses.replace(row, m=row.m + 1) for row in rows()]
    with pytest.raises(UsageError, match="no row in common, of ladder: name two folders"):
        compare.compare(*folders(rows(), elsewhere))


@pytest.mark.parametrize("margin", [-1.0, 1.0, float("nan"), float("inf")])
def test_a_margin_that_is_no_share_is_refused(invoke, folders, margin):
    old, new = folders(rows(), rows())
    result = invoke("compare", old, new, "--margin", margin)
    assert result.exit_code == 2 and "0.03 for 3%" in result.output


def test_the_command_prints_what_is_not_same(invoke, folders):
    old, new = folders(rows(), rows(gluon=0.9))
    result = invoke("compare", old, new)
    assert result.exit_code == 0, result.output
    assert SLOWER in result.output and "s12_async_copy" in result.output and "SAME)" in result.output
    assert " triton fp32" not in result.output
    assert " triton fp32" in invoke("compare", old, new, "--all").output
    assert invoke("compare", old, new / "no").exit_code == 2
