"""`experiments compare`: verdicts for what two folders share, and what has none."""

from __future__ import annotations

import dataclasses

import pytest

from experiments.records import compare, store
from experiments.records.request import UsageError
from experiments.records.rows import FAIL
from experiments.records.stats import FASTER, SAME, SLOWER, UNSURE
from tests.experiments.fixtures import ENVIRONMENT, ladder_rows, renamed

pytestmark = pytest.mark.usefixtures("example_study")
SHARES, TIMES = ("vs_cublas", "vs_cublas_low", "vs_cublas_high"), ("median_us", "p20_us", "p80_us")


def scaled(row, factor, *columns):
    return dataclasses.replace(row, **{name: getattr(row, name) * factor for name in columns})


def rows(width=0.002, **speeds):
    """The fixture's rungs and cuBLAS at 4096, with the speed of some dialects multiplied.

    width: of the interval of a share of cuBLAS, to each side.
    """
    found = []
    for row in renamed("example", ladder_rows((4096,)), mode="cold"):
        if row.dialect or (row.backend == "cublas" and row.math == "fp32"):
            speed = speeds.get(row.dialect, 1.0)
            share = speed * row.vs_cublas
            interval = {"vs_cublas_low": share * (1 - width), "vs_cublas_high": share * (1 + width)}
            found.append(dataclasses.replace(scaled(row, 1 / speed, *TIMES), vs_cublas=share, **interval))
    return found


@pytest.fixture
def folders(tmp_path):
    """`folders(old, new)` saves rows, or pairs of rows and of more that is known of their run; the two folders."""

    def make(old, new):
        for name, content in (("old", old), ("new", new)):
            own, known = content if isinstance(content, tuple) else (content, {})
            (tmp_path / name).mkdir(exist_ok=True)
            store.save(tmp_path / name, "example", own, ENVIRONMENT | known)
        return tmp_path / "old", tmp_path / "new"

    return make


def verdicts(found):
    """The verdicts of each dialect's rows."""
    return {
        dialect: {change.verdict for change in found.changes if f" {dialect} " in change.name}
        for dialect in ("cuda", "triton", "gluon")
    }


def test_each_row_has_its_verdict(folders):
    old, new = folders(rows(), rows(cuda=1.1, triton=1.01, gluon=0.9))
    (found,) = compare.compare(old, new)
    assert verdicts(found) == {"cuda": {FASTER}, "triton": {SAME}, "gluon": {SLOWER}}
    assert {change.verdict for change in found.changes if change.name.startswith("cublas")} == {SAME}
    (found,) = compare.compare(old, new, margin=0.2)
    assert verdicts(found) == {"cuda": {SAME}, "triton": {SAME}, "gluon": {SAME}}
    (found,) = compare.compare(*folders(rows(), rows(width=0.1, cuda=1.05)))
    assert verdicts(found) == {"cuda": {UNSURE}, "triton": {SAME}, "gluon": {SAME}}


def test_a_share_that_moves_with_cublas_is_no_change_of_the_kernel(folders):
    slower = [scaled(row, 1.1, *(SHARES if row.dialect else TIMES)) for row in rows()]
    (found,) = compare.compare(*folders(rows(), slower))
    assert {change.name: change.verdict for change in found.changes if change.verdict != SAME} == {
        "cublas fp32": SLOWER
    }


def test_what_the_hosts_events_add_is_no_change_of_the_kernel(folders):
    """The time between two events around nothing is part of every time, and differs from host to host.

    In a run that does not know it, it widens no margin: taken as nothing, it would excuse any change.
    """
    own = next(row for row in rows() if row.dialect == "cuda")
    slower = rows(cuda=0.9)
    for old, new, verdict in (
        ({"events_us": 1.0}, {"events_us": 1.0}, SLOWER),
        ({"events_us": 1.0}, {"events_us": 1.0 + own.median_us * 0.1}, SAME),
        ({}, {"events_us": 1e9}, SLOWER),
    ):
        (found,) = compare.compare(*folders((rows(), old), (slower, new)))
        assert [change.verdict for change in found.changes if change.name == f"{own.stage} cuda fp32"] == [verdict]


def test_rows_without_a_verdict_are_counted(folders):
    first, *rest = rows()
    (cublas,) = (row for row in rest if row.backend == "cublas")
    control = dataclasses.replace(cublas, stage="control", backend="control")
    failed = dataclasses.replace(rest[0], status=FAIL, **dict.fromkeys(SHARES))
    (found,) = compare.compare(*folders([first, *rest, control], [failed, *rest[1:], control]))
    assert found.verdicts(control=True) == {SAME: 1} and found.verdicts().total() == len(rest) - 1
    assert (found.only_old, found.only_new) == (1, 0)
    assert found.statuses == [f"{failed.stage} {failed.dialect} fp32 at 4096x4096x4096 cold: pass, now fail"]
    assert "1 control rows: 1 SAME" in found.summary() and "1 only in the old folder" in found.summary()


def test_folders_that_share_nothing_are_refused(folders, tmp_path):
    (tmp_path / "empty").mkdir()
    elsewhere = [dataclasses.replace(row, m=row.m + 1) for row in rows()]
    old, new = folders(rows(), elsewhere)
    for other, why in (
        (tmp_path / "none", "is not a folder of results"),
        (tmp_path / "empty", "no experiment in common"),
        (new, "no row in common, of example"),
    ):
        with pytest.raises(UsageError, match=why):
            compare.compare(old, other)


def test_the_command_prints_what_is_not_same(invoke, folders):
    old, new = folders(rows(), rows(gluon=0.9))
    result = invoke("compare", old, new)
    assert result.exit_code == 0, result.output
    assert SLOWER in result.output and "s12_async_copy" in result.output and "SAME)" in result.output
    assert " triton fp32" not in result.output
    assert " triton fp32" in invoke("compare", old, new, "--all").output
