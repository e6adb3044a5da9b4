"""The hardware's counters: ncu's output read, handed out to kernels, and set beside the prediction; ncu is a fake."""

import dataclasses
import subprocess

import numpy as np
import pytest

import gemm_ref
from experiments.publish.drawing import style
from experiments.records import store, traffic
from experiments.records.contenders import contenders
from experiments.records.rows import HARDWARE, PASS, SKIPPED
from experiments.studies.memory import ncu, table
from experiments.studies.memory import study as memory
from experiments.studies.memory.ncu import METRICS, NoCounters
from experiments.studies.memory.row import AccessRow
from gemm_ref import Problem
from gemm_ref.launch import REFERENCE_SMS
from gemm_ref.ptx.count.counts import COMPILED
from tests.experiments.fixtures import ENVIRONMENT, NoBars, changed

CUBE = Problem(64, 64, 64)
NAMES = list(dict.fromkeys(metric.lstrip("-") for group in METRICS.values() for metric in group))
LOADS, COPIES = NAMES[0], "smsp__sass_l1tex_t_sectors_pipe_lsu_mem_global_op_ldgsts.sum"


def select(*names):
    return [contender for contender in contenders() if str(contender) in names]


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


def test_a_gpu_without_a_metric_says_which():
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
        ncu.count(select("s02_coalesced cuda"), CUBE)


def test_without_ncu_there_is_one_row_that_says_so(monkeypatch):
    monkeypatch.setattr(ncu.shutil, "which", lambda name: None)
    monkeypatch.setattr(memory, "refusal", lambda *_: None)
    (row,) = memory._on_the_gpu(select("s02_coalesced cuda"), CUBE, NoBars())
    assert (row.status, row.view) == (SKIPPED, HARDWARE) and "ncu was not found" in row.detail


@pytest.fixture(scope="module")
def counted():
    (contender,) = select("s04_shared_tile cuda")
    rows = memory.count(contender, CUBE)
    assert {row.status for row in rows} == {PASS}
    return contender, rows


def _as_hardware(contender, rows, times=1.0):
    """Rows as if the hardware had counted what was predicted, times a factor."""
    found = []
    for space, kind, measure in METRICS:
        own = [row for row in rows if (row.view, row.space, row.kind) == (COMPILED, space, kind)]
        value = int(times * sum(getattr(row, measure) for row in own))
        about = {"view": HARDWARE, "launch": 1, "space": space, "kind": kind, measure: value}
        found.append(memory.AccessRow.about("memory", contender, CUBE, **about))
    return found


@pytest.mark.parametrize(("times", "ratio"), [(1.0, 1.0), (2.0, 0.5)])
def test_prediction_over_count(counted, draw_pictures, tmp_path, times, ratio):
    contender, rows = counted
    svg = draw_pictures("memory", [*rows, *_as_hardware(contender, rows, times)])
    table = traffic.confirmed(store.read(tmp_path, "memory"))
    assert len(table) == 1
    (line,) = table.xs("ratio", axis=1, level=1).to_dict("records")
    for access in (("global", "load"), ("global", "store"), ("shared", "load"), ("shared", "store")):
        assert line[access] == pytest.approx(ratio)
    assert line["global", "async load"] != line["global", "async load"]  # it has none, and none was counted
    assert svg.keys() >= {"memory_requests", "memory_hardware"}


def test_what_was_counted_but_not_predicted_is_seen(counted, tmp_path):
    contender, rows = counted
    spurious = [
        dataclasses.replace(row, sectors=5) if (row.space, row.kind) == ("global", "async load") else row
        for row in _as_hardware(contender, rows)
    ]
    store.save(tmp_path, "memory", [*rows, *spurious], ENVIRONMENT)
    table = traffic.confirmed(store.read(tmp_path, "memory"))
    assert table[("global", "async load"), "ratio"].item() == 0.0


def test_without_hardware_there_is_no_plot(counted, draw_pictures):
    assert "memory_hardware" not in draw_pictures("memory", counted[1])


def test_published_counts_agree_with_the_hardware_to_2_percent():
    """Every kernel of the ladder, as predicted without a GPU and as an H200 counted it."""
    table = traffic.confirmed(store.read(store.PUBLISHED, "memory"))
    kernels = {(key[0], key[1], key[3]) for key in table.index}
    known = {(item.stage.id, item.variant, item.dialect) for item in gemm_ref.implementations() if item.math == "fp32"}
    assert kernels == known
    ratios = table.xs("ratio", axis=1, level=1).to_numpy(dtype=float)
    assert np.nanmax(abs(ratios - 1)) <= 0.02


def test_a_launch_that_the_hardware_counts_otherwise_is_shown(tmp_path):
    def miscount(frame):
        own = (frame["view"] == "hardware") & (frame["stage"] == "s01_naive") & (frame["dialect"] == "cuda")
        frame.loc[own & (frame["kind"] == "store"), "sectors"] = "1000"

    before = table.block("hardware", store.PUBLISHED)
    after = table.block("hardware", changed(tmp_path, memory=miscount))
    shown = [line for line in after.splitlines() if line.startswith("| `")]
    assert [line for line in shown if line not in before] == [
        "| `s01_naive` CUDA | 17301504 | 1000 (65536 predicted) | – | – | – | – |"
    ]
    agreeing = [int(text.split(" of ")[0]) for text in (before, after)]
    assert agreeing[1] == agreeing[0] - 1


@pytest.mark.parametrize("wrong", [0, 1])
def test_the_hardware_s_counts_are_a_sentence_and_what_differs(draw_pictures, wrong):
    counted = [
        AccessRow.about(
            "memory", each, Problem(256, 256, 256), view=view, launch=1, space="global", kind="load", array="A",
            lane_bytes=4, requests=10, lanes=320, sectors=40 + wrong * (view == HARDWARE and each.dialect == "gluon"),
        )
        for each in contenders()
        if each.stage == "s02_coalesced"
        for view in (COMPILED, HARDWARE)
    ]  # fmt: skip
    svg = draw_pictures("memory", counted)["memory_hardware"]
    assert f"<!-- {3 - wrong} of 3 counts are as predicted -->" in svg
    assert ("<!-- s02 coalesced, Gluon, global loads: 41, not 40 -->" in svg) == (style.FAILED in svg) == bool(wrong)
