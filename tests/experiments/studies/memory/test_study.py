"""`memory`: what it must show of the rungs, as derived by hand, its rows and pictures; and a GPU's own counters."""

from __future__ import annotations

import dataclasses
import functools
import re
import subprocess

import numpy as np
import pytest
import torch

import gemm_ref
from experiments.records import store, traffic
from experiments.records.contenders import contenders, gemm_of
from experiments.records.request import Request
from experiments.records.rows import FAIL, HARDWARE, PASS, SKIPPED
from experiments.studies.memory import ncu, text
from experiments.studies.memory import study as memory
from experiments.studies.memory.ncu import METRICS, NoCounters
from experiments.studies.memory.row import AccessRow
from experiments.studies.shared import reference_runs
from gemm_ref import Implementation, Problem, get_stage, ptx
from gemm_ref.build import BuildError
from gemm_ref.launch import REFERENCE_SMS
from gemm_ref.ptx import Count, Counter
from gemm_ref.ptx.count.counts import COMPILED, ONCE, WRITTEN
from gemm_ref.sass import tools
from tests.experiments.fixtures import ENVIRONMENT, NoBars, changed, raising, right

pytest.importorskip("triton")  # its wheel has nvdisasm


def select(*names):
    return [contender for contender in contenders() if str(contender) in names]


@functools.cache
def counts(stage: str, dialect: str = "cuda", variant: str = "default", size: int = 32) -> list[Count]:
    """What one kernel asks for at M = N = K = size."""
    rung = get_stage(stage)
    item = Implementation(rung, rung.find_variant(variant, dialect), dialect, "fp32")
    counter, ones = Counter(tools.disassemble), torch.ones(size, size)
    with ptx.watched(counter):
        c = gemm_of(item)(ones, ones)
    assert (c == size).all()
    return counter.counts()


def one(found: list[Count], view: str = WRITTEN, **about) -> Count:
    """The only count of a view with these fields."""
    (count,) = [c for c in found if c.view == view and all(getattr(c, name) == value for name, value in about.items())]
    return count


@pytest.mark.parametrize("dialect", ["cuda", "gluon"])
@pytest.mark.parametrize(("stage", "a", "b", "c"), [("s01", 32, 1, 32), ("s02", 1, 4, 4)])
def test_coalescing_is_what_s02_changes(stage, dialect, a, b, c):
    """32 lanes down the rows: A and C in 32 places, one of B. Along the columns: one of A, 128 bytes of B and C."""
    for array, sectors in (("A", a), ("B", b), ("C", c)):
        access = one(counts(stage, dialect), space="global", array=array)
        assert access.sectors == sectors * access.requests and access.lanes == 32 * access.requests


@pytest.mark.parametrize(
    ("variant", "write_a", "write_b", "read_b"),
    [("conflicted", 1, 32, 32), ("transposed", 32, 1, 1), ("padded", 1, 1, 1), ("swizzled", 1, 1, 1)],
)
def test_bank_conflicts_of_the_four_layouts(variant, write_a, write_b, read_b):
    """A is written 32 k of one m, B 32 n of one k: a column of the array where that is its slow index. A is read at one
    address, B 32 n of one k."""
    expected = {("store", "a"): write_a, ("store", "b"): write_b, ("load", "b"): read_b, ("load", "a"): 1}
    for (kind, operand), wavefronts in expected.items():
        access = one(counts("s05", variant=variant), space="shared", kind=kind, array=f"{operand}_smem")
        assert access.wavefronts == wavefronts * access.ideal


def test_a_row_that_ptxas_reads_at_once_is_counted_as_it_was_on_a_gpu():
    """s04 reads A along k: a broadcast of 4 bytes as written, of 16 in the machine code, 2 wavefronts each (ncu)."""
    found = counts("s04")
    written = one(found, WRITTEN, kind="load", array="a_smem")
    compiled = one(found, COMPILED, kind="load", array="a_smem")
    assert (written.size, compiled.size) == (4, 16) and compiled.op == "LDS.128"
    assert written.requests == written.wavefronts == 4 * compiled.requests
    assert compiled.wavefronts == 2 * compiled.requests
    b = one(found, COMPILED, kind="load", array="b_smem")
    assert (b.size, b.wavefronts) == (4, written.wavefronts)  # rows of B are 128 bytes apart: nothing to fuse


def test_s09_reads_its_quadrants_without_conflicts_and_moves_what_a_product_must():
    found = counts("s09", "gluon", size=128)
    for view in (WRITTEN, COMPILED):
        shared = [c for c in found if c.view == view and c.space == "shared"]
        assert {c.kind for c in shared} == {"load", "store"}
        assert all(c.wavefronts == c.ideal for c in shared)
    written = [c for c in found if c.view == WRITTEN]
    assert sum(c.flop for c in written) == 2 * 128**3
    assert sum(c.sectors for c in written if c.space == ONCE) * 32 == Problem(128, 128, 128).min_bytes


def test_every_byte_that_is_written_is_found_in_the_machine_code():
    for found in (counts("s04"), counts("s09", "gluon", size=128), counts("s12", "triton", size=128)):
        assert {c.unmatched for c in found} == {0} and {c.view for c in found} == {WRITTEN, COMPILED}


# --- rows and pictures ---------------------------------------------------------------------------------------

SMALL = Request("cpu", problems=(Problem(32, 32, 32),))
S02 = "s02_coalesced cuda"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    target = tmp_path_factory.mktemp("memory")
    who = select(S02, "s05_bank_conflict:conflicted cuda", "s05_bank_conflict:padded cuda")
    store.save(target, "memory", memory.measure(SMALL, who, NoBars()), ENVIRONMENT)
    return target


def test_totals_are_sums_over_lines(folder):
    found = traffic.totals(store.read(folder, "memory"))
    s02 = found[(found["stage"] == "s02_coalesced") & (found["view"] == WRITTEN)].iloc[0]
    warps = 32
    assert s02["global_load_requests"] == 2 * 32 * warps and s02["global_load_sectors"] == (1 + 4) * 32 * warps
    assert s02["flop"] == s02["done_flop"] == 2 * 32**3
    assert s02["l2_bytes"] == 32 * (5 * 32 * warps + 4 * warps) and s02["dram_bytes"] == 3 * 4 * 32**2
    assert s02["l2_intensity"] == s02["flop"] / s02["l2_bytes"] and s02["shared_bytes"] == 0
    padded = found[(found["variant"] == "padded") & (found["view"] == COMPILED)].iloc[0]
    assert padded["shared_load_wavefronts"] == padded["shared_load_ideal"] == 2 * 32 * warps
    assert padded["shared_bytes"] == 128 * (2 * 32 + 2) * warps


def test_a_rerun_replaces_all_rows_of_a_kernel_and_none_names_a_place_on_this_machine(tmp_path):
    first = list(memory.measure(SMALL, select(S02), NoBars()))
    assert {row.file for row in first} == {"", "s02_coalesced.cu"}
    store.save(tmp_path, "memory", first, ENVIRONMENT)
    edited = [dataclasses.replace(row, line=row.line + 1) for row in first]
    store.save(tmp_path, "memory", edited, ENVIRONMENT)
    assert list(store.read(tmp_path, "memory")["line"]) == [row.line for row in edited]


@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_pictures_are_of_the_counts_that_there_are(folder, draw_pictures):
    svg = draw_pictures("memory", folder=folder)
    assert svg.keys() == {"memory_requests", "memory_intensity", "memory_banks"}
    assert "loads of A" in svg["memory_requests"] and "s05 bank conflict · padded" in svg["memory_requests"]
    assert re.search(r"line \d+: 32 wavefronts", svg["memory_banks"]) and "writes of b_smem" in svg["memory_banks"]
    rows = memory.measure(SMALL, select(S02), NoBars())  # without shared memory
    assert draw_pictures("memory", rows).keys() == {"memory_requests", "memory_intensity"}


def test_what_cannot_be_counted_says_why(monkeypatch):
    (contender,) = select(S02)
    fn = contender.load()

    def wrong(a, b, out=None):
        fn(a, b, out=out)
        out[3, 5] += 1
        return out

    with monkeypatch.context() as patch:
        patch.setattr(reference_runs.tools, "find", raising(BuildError("nvdisasm was not found")))
        rows = list(memory.measure(SMALL, [contender], NoBars()))
    assert {row.view for row in rows if row.status == PASS} == {WRITTEN}
    (skipped,) = [row for row in rows if row.status == SKIPPED]
    assert skipped.view == COMPILED and "nvdisasm was not found" in skipped.detail
    huge = Request("cpu", problems=(Problem(4096, 4096, 4096),))
    (skipped,) = memory.measure(huge, [contender], NoBars())
    assert skipped.status == SKIPPED and "minutes" in skipped.detail
    for stand_in, status in ((wrong, FAIL), (right, SKIPPED)):  # the second runs no kernel
        monkeypatch.setattr(reference_runs, "load", lambda _, stand_in=stand_in: (stand_in, None))
        (row,) = memory.measure(SMALL, [contender], NoBars())
        assert row.status == status and row.requests == 0


# --- a GPU's own counters: what ncu prints is a fake ---------------------------------------------------------

NAMES = list(dict.fromkeys(metric.lstrip("-") for group in METRICS.values() for metric in group))
LOADS, COPIES = NAMES[0], "smsp__sass_l1tex_t_sectors_pipe_lsu_mem_global_op_ldgsts.sum"
CUBE = Problem(256, 256, 256)


def log_of(*kernels):
    """What ncu writes for kernels with these values of NAMES."""
    quoted = [["ID", "Kernel Name", *NAMES], ["", "", *["sector"] * len(NAMES)]]
    quoted += [[str(i), "k", *(f"{value:,}" for value in values)] for i, values in enumerate(kernels)]
    lines = [",".join(f'"{cell}"' for cell in line) for line in quoted]
    return "\n".join(["==PROF== Connected to process 1", *lines, "==PROF== Disconnected"])


def test_counts_are_read_and_metrics_of_one_access_added_up():
    values = dict(zip(NAMES, range(1000, 1000 + len(NAMES)), strict=True)) | {LOADS: 5000, COPIES: 1200}
    (found,) = ncu.read(log_of(values.values()))
    assert found["global", "load", "sectors"] == 5000 - 1200  # the first has both in it
    assert found["global", "async load", "sectors"] == 1200
    reads = [values[name] for name in NAMES if name.endswith(("shared_op_ld.sum", "shared_op_ldsm.sum"))]
    assert found["shared", "load", "wavefronts"] == sum(reads) and len(reads) == 2
    assert list(found) == list(METRICS) == list(traffic.COUNTED)
    assert ncu.read("==PROF== nothing was profiled\n") == []
    with pytest.raises(NoCounters, match="ldgsts"):
        ncu.read(log_of([1] * len(NAMES)).replace(COPIES, "something_else"))


def test_kernels_go_to_the_contenders_in_their_order():
    who = select("s04_shared_tile cuda", "s13_split_k cuda", "s13_split_k triton")
    found = [{"n": number} for number in range(5)]
    deep = Problem(64, 64, 4096)  # s13 splits K here, and adds in a second kernel
    given = ncu.assign(found, who, deep, REFERENCE_SMS)
    assert [[count["n"] for count in given[contender]] for contender in who] == [[0], [1, 2], [3, 4]]
    with pytest.raises(NoCounters, match="counted 4 kernels where 5"):
        ncu.assign(found[:4], who, deep, REFERENCE_SMS)


@pytest.mark.parametrize(
    ("log", "stderr", "code", "message"),
    [
        ("==ERROR== ERR_NVGPUCTRPERM - The user does not have permission\n", "", 1, "run as root"),
        ("", "No kernels were profiled", 9, "ncu failed: No kernels were profiled"),
    ],
)
def test_a_refusal_is_told_in_words(monkeypatch, log, stderr, code, message):
    def run(command, **_):
        with open(command[command.index("--log-file") + 1], "w", encoding="utf-8") as file:
            file.write(log)
        return subprocess.CompletedProcess(command, code, "", stderr)

    monkeypatch.setattr(ncu.shutil, "which", lambda name: f"/bin/{name}")
    monkeypatch.setattr(ncu.subprocess, "run", run)
    with pytest.raises(NoCounters, match=message):
        ncu.count(select(S02), CUBE)


def test_without_ncu_there_is_one_row_that_says_so(monkeypatch):
    monkeypatch.setattr(ncu.shutil, "which", lambda name: None)
    monkeypatch.setattr(memory, "refusal", lambda *_: None)
    (row,) = memory._on_the_gpu(select(S02), CUBE, NoBars())
    assert (row.status, row.view) == (SKIPPED, HARDWARE) and "ncu was not found" in row.detail


def accesses(factor=1, **extra):
    """What s02 asks for as predicted, and as a GPU counted it, which saw `factor` times as much in Gluon."""
    values = {"launch": 1, "lane_bytes": 4, "requests": 10, "lanes": 320}
    return [
        AccessRow.about("memory", each, CUBE, view=view, space="global", kind=kind, sectors=sectors * times, **values)
        for each in contenders()
        if each.stage == "s02_coalesced"
        for view in (COMPILED, HARDWARE)
        for kind, sectors in {"load": 40, "store": 8, "async load": extra.get(view, 0)}.items()
        for times in [factor if view == HARDWARE and each.dialect == "gluon" else 1]
    ]


def test_prediction_over_count(tmp_path):
    store.save(tmp_path, "memory", accesses(2), ENVIRONMENT)
    ratios = traffic.confirmed(store.read(tmp_path, "memory")).xs("ratio", axis=1, level=1)
    assert list(ratios["global", "load"]) == list(ratios["global", "store"]) == [1.0, 0.5, 1.0]
    assert ratios["global", "async load"].isna().all()  # it has none, and none was counted
    store.save(tmp_path, "memory", accesses(**{HARDWARE: 5}), ENVIRONMENT)
    ratios = traffic.confirmed(store.read(tmp_path, "memory")).xs("ratio", axis=1, level=1)
    assert (ratios["global", "async load"] == 0.0).all()  # counted, but not predicted


def test_published_counts_agree_with_the_hardware_to_2_percent():
    """Every kernel of the ladder, as predicted without a GPU and as an H200 counted it."""
    found = traffic.confirmed(store.read(store.PUBLISHED, "memory"))
    kernels = {(key[0], key[1], key[3]) for key in found.index}
    known = {(item.stage.id, item.variant, item.dialect) for item in gemm_ref.implementations() if item.math == "fp32"}
    assert kernels == known
    ratios = found.xs("ratio", axis=1, level=1).to_numpy(dtype=float)
    assert np.nanmax(abs(ratios - 1)) <= 0.02


def test_a_launch_that_the_hardware_counts_otherwise_is_shown(tmp_path):
    def miscount(frame):
        own = (frame["view"] == "hardware") & (frame["stage"] == "s01_naive") & (frame["dialect"] == "cuda")
        frame.loc[own & (frame["kind"] == "store"), "sectors"] = "1000"

    before = text.block("hardware", store.PUBLISHED)
    after = text.block("hardware", changed(tmp_path, memory=miscount))
    shown = [line for line in after.splitlines() if line.startswith("| `") and line not in before]
    assert shown == ["| `s01_naive` CUDA | 17301504 | 1000 (65536 predicted) | – | – | – | – |"]
    agreeing = [int(said.split(" of ")[0]) for said in (before, after)]
    assert agreeing[1] == agreeing[0] - 1
