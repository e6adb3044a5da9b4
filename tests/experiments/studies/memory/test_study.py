"""The memory experiment: what it must show of the rungs, as derived by hand, and its rows and plots."""

from __future__ import annotations

import functools
from dataclasses import replace

import pytest
import torch

import gemm_ref
from experiments.records import store, traffic
from experiments.records.contenders import contenders, gemm_of
from experiments.records.request import Request
from experiments.records.rows import FAIL, PASS, SKIPPED
from experiments.studies.memory import study as memory
from experiments.studies.shared import reference_runs
from gemm_ref import Implementation, Problem, get_stage, ptx
from gemm_ref.build import BuildError
from gemm_ref.ptx import Count, Counter
from gemm_ref.ptx.count.counts import COMPILED, ONCE, WRITTEN
from gemm_ref.sass import tools
from tests.experiments.fixtures import ENVIRONMENT, NoBars, raising

pytest.importorskip("triton")  # its wheel has nvdisasm


@functools.cache
def counts(
    stage: str, dialect: str = "cuda", variant: str = "default", size: int = 128, blocks: int = 1
) -> list[Count]:
    """What one kernel asks for at M = blocks * size, N = K = size."""
    rung = get_stage(stage)
    item = Implementation(rung, rung.find_variant(variant, dialect), dialect, "fp32")
    a, b = torch.ones(blocks * size, size), torch.ones(size, size)
    counter = Counter(tools.disassemble)
    with ptx.watched(counter):
        c = gemm_of(item)(a, b)
    assert (c == size).all()
    return counter.counts()


def one(found: list[Count], view: str = WRITTEN, **about) -> Count:
    """The only count of a view with these fields."""
    (count,) = [c for c in found if c.view == view and all(getattr(c, name) == value for name, value in about.items())]
    return count


def ratio(found: list[Count], view: str, **about) -> float:
    """Wavefronts over the ideal of one access."""
    count = one(found, view, space="shared", **about)
    return count.wavefronts / count.ideal


@pytest.mark.parametrize("dialect", ["cuda", "gluon"])
@pytest.mark.parametrize(("stage", "a", "b", "c"), [("s01", 32, 1, 32), ("s02", 1, 4, 4)])
def test_coalescing_is_what_s02_changes(stage, dialect, a, b, c):
    """32 lanes down the rows: A and C in 32 places, one of B. Along the columns: one of A, 128 bytes of B and C."""
    found = counts(stage, dialect, size=32)
    for array, sectors in (("A", a), ("B", b), ("C", c)):
        access = one(found, space="global", array=array)
        assert access.sectors == sectors * access.requests and access.lanes == 32 * access.requests


@pytest.mark.parametrize(
    ("variant", "write_a", "write_b", "read_b"),
    [("conflicted", 1, 32, 32), ("transposed", 32, 1, 1), ("padded", 1, 1, 1), ("swizzled", 1, 1, 1)],
)
def test_bank_conflicts_of_the_four_layouts(variant, write_a, write_b, read_b):
    """A is written 32 k of one m, B 32 n of one k: a column of the array where that is its slow index. A is read at one
    address, B 32 n of one k."""
    found = counts("s05", variant=variant, size=32)
    assert ratio(found, WRITTEN, kind="store", array="a_smem") == write_a
    assert ratio(found, WRITTEN, kind="store", array="b_smem") == write_b
    assert ratio(found, WRITTEN, kind="load", array="b_smem") == read_b
    assert ratio(found, WRITTEN, kind="load", array="a_smem") == 1


def test_a_row_that_ptxas_reads_at_once_is_counted_as_it_was_on_a_gpu():
    """s04 reads A along k: a broadcast of 4 bytes as written, of 16 in the machine code, 2 wavefronts each (ncu)."""
    found = counts("s04", size=32)
    written = one(found, WRITTEN, kind="load", array="a_smem")
    compiled = one(found, COMPILED, kind="load", array="a_smem")
    assert (written.size, compiled.size) == (4, 16) and compiled.op == "LDS.128"
    assert written.requests == written.wavefronts == 4 * compiled.requests
    assert compiled.wavefronts == 2 * compiled.requests
    b = one(found, COMPILED, kind="load", array="b_smem")
    assert (b.size, b.wavefronts) == (4, written.wavefronts)  # rows of B are 128 bytes apart: nothing to fuse


@pytest.mark.parametrize("dialect", ["cuda", "gluon"])
def test_s09_reads_its_quadrants_without_conflicts(dialect):
    found = counts("s09", dialect)
    for view in (WRITTEN, COMPILED):
        shared = [c for c in found if c.view == view and c.space == "shared"]
        assert {c.kind for c in shared} == {"load", "store"}
        assert all(c.wavefronts == c.ideal for c in shared)


def test_every_byte_that_is_written_is_found_in_the_machine_code():
    for stage, dialect in (("s04", "cuda"), ("s09", "gluon"), ("s12", "triton")):
        found = counts(stage, dialect)
        assert {c.unmatched for c in found} == {0}
        assert {c.view for c in found} == {WRITTEN, COMPILED}


def test_counts_grow_with_the_blocks():
    for once, twice in zip(counts("s04", size=32), counts("s04", size=32, blocks=2), strict=True):
        assert twice.op == once.op
        if once.space != ONCE:
            assert twice.requests == 2 * once.requests and twice.sectors == 2 * once.sectors
            assert twice.wavefronts == 2 * once.wavefronts and twice.flop == 2 * once.flop


def test_flop_and_distinct_sectors_are_those_of_the_product():
    found = [c for c in counts("s09", "gluon") if c.view == WRITTEN]
    assert sum(c.flop for c in found) == 2 * 128**3
    assert sum(c.sectors for c in found if c.space == ONCE) * 32 == Problem(128, 128, 128).min_bytes


# --- the experiment ------------------------------------------------------------------------------------------

SMALL = Request("cpu", problems=(Problem(32, 32, 32),))


def select(*stages: str):
    return [c for c in contenders() if c.dialect == "cuda" and c.stage.split("_")[0] in stages]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    target = tmp_path_factory.mktemp("memory")
    store.save(target, "memory", memory.measure(SMALL, select("s02", "s05"), NoBars()), ENVIRONMENT)
    return target


def test_totals_are_sums_over_lines(folder):
    table = traffic.totals(store.read(folder, "memory"))
    s02 = table[(table["stage"] == "s02_coalesced") & (table["view"] == WRITTEN)].iloc[0]
    warps = 32
    assert s02["global_load_requests"] == 2 * 32 * warps and s02["global_load_sectors"] == (1 + 4) * 32 * warps
    assert s02["flop"] == s02["done_flop"] == 2 * 32**3
    assert s02["l2_bytes"] == 32 * (5 * 32 * warps + 4 * warps) and s02["dram_bytes"] == 3 * 4 * 32**2
    assert s02["l2_intensity"] == s02["flop"] / s02["l2_bytes"] and s02["shared_bytes"] == 0
    padded = table[(table["variant"] == "padded") & (table["view"] == COMPILED)].iloc[0]
    assert padded["shared_load_wavefronts"] == padded["shared_load_ideal"] == 2 * 32 * warps
    assert padded["shared_bytes"] == 128 * (2 * 32 + 2) * warps


def test_a_rerun_replaces_all_rows_of_a_kernel(tmp_path):
    first = list(memory.measure(SMALL, select("s02"), NoBars()))
    store.save(tmp_path, "memory", first, ENVIRONMENT)
    edited = [replace(row, line=row.line + 1) for row in first]
    store.save(tmp_path, "memory", edited, ENVIRONMENT | {"date": "2020-02-03T00:00:00Z"})
    after = store.read(tmp_path, "memory")
    assert list(after["line"]) == [row.line for row in edited] and set(after["run"]) == {"2020-02-03T00:00:00Z"}


def test_no_row_names_a_place_on_this_machine(folder):
    assert not store.read(folder, "memory")["file"].str.contains("/").any()
    assert set(store.read(folder, "memory")["file"]) == {"", "s02_coalesced.cu", "s05_bank_conflict.cu"}


def test_plots(folder, draw_pictures):
    svg = draw_pictures("memory", folder=folder)
    assert svg.keys() == {"memory_requests", "memory_intensity", "memory_banks"}
    assert "loads of A" in svg["memory_requests"] and "s05 bank conflict · swizzled" in svg["memory_requests"]
    assert "line 49: 32 wavefronts" in svg["memory_banks"] and "writes of a_smem" in svg["memory_banks"]


@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_a_rung_without_shared_memory_is_drawn(draw_pictures):
    rows = memory.measure(SMALL, select("s02"), NoBars())
    assert draw_pictures("memory", rows).keys() == {"memory_requests", "memory_intensity"}


def test_what_cannot_be_counted_says_why(monkeypatch):
    (contender,) = select("s02")
    monkeypatch.setattr(reference_runs.tools, "find", raising(BuildError("nvdisasm was not found")))
    rows = list(memory.measure(SMALL, [contender], NoBars()))
    assert {row.view for row in rows if row.status == PASS} == {WRITTEN}
    (skipped,) = [row for row in rows if row.status == SKIPPED]
    assert skipped.view == COMPILED and "nvdisasm was not found" in skipped.detail
    huge = Request("cpu", problems=(Problem(4096, 4096, 4096),))
    (skipped,) = memory.measure(huge, [contender], NoBars())
    assert skipped.status == SKIPPED and "minutes" in skipped.detail


def test_a_wrong_kernel_is_not_counted(monkeypatch):
    (contender,) = select("s02")
    fn = contender.load()

    def wrong(a, b, out=None):
        fn(a, b, out=out)
        out[3, 5] += 1
        return out

    monkeypatch.setattr(reference_runs, "load", lambda _: (wrong, None))
    (row,) = memory.measure(SMALL, [contender], NoBars())
    assert row.status == FAIL and row.requests == 0


def test_counting_changes_no_result():
    a, b = gemm_ref.make_inputs(Problem(33, 65, 40), "normal")
    item = Implementation(get_stage("s09"), "two_blocks", "cuda", "fp32")
    plain = gemm_of(item)(a, b)
    with ptx.watched(Counter()):
        assert torch.equal(gemm_of(item)(a, b), plain)
