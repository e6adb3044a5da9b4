"""The plots of the ceilings and the roofline, from made-up rows."""

from __future__ import annotations

import itertools
from pathlib import Path

import pandas as pd
import pytest
from matplotlib.figure import Figure

from experiments.bench import datasheets
from experiments.publish.drawing import style
from experiments.publish.drawing.labels import label_line_ends
from experiments.records import store
from experiments.records.rows import PASS, SKIPPED
from experiments.studies.roofs.probes import PROBES
from experiments.studies.roofs.roofline import problem_of, requested_intensity, roofline, rungs_at_size
from experiments.studies.roofs.study import ProbeRun
from gemm_ref import Problem, stages_in
from tests.experiments.fixtures import ENVIRONMENT, H200, ladder_rows

VALUES = {"fma": 61.7, "mma_bf16": 600.0, "wgmma_bf16": 800.0, "dram_copy": 4.1, "l2_read": 5.5, "l1_read": 30.0}


@pytest.fixture
def data(tmp_path):
    store.save(tmp_path, "ladder", ladder_rows(), ENVIRONMENT)
    sheet, rows = datasheets.find("NVIDIA H200"), []
    for name, probe in PROBES.items():
        value = VALUES.get(name)
        spread = {"low": value * 0.99, "high": value * 1.01} if value else {"status": SKIPPED, "detail": "not here"}
        vendor, clock = sheet.figures.get(probe.figure), datasheets.by_clock(probe.figure, H200)
        known = {"by_clock": clock, "datasheet": vendor, "sm_mhz": 1755.0}
        rows.append(ProbeRun(probe, None, None).row(value=value, **spread, **known))
    store.save(tmp_path, "roofs", rows, ENVIRONMENT)
    return tmp_path


FP32_RUNGS = [stage.id for stage in stages_in("fp32")]
CUBE = 256  # what `memory` counts at: 2^25 FLOP


def _memory_csv(folder: Path, chosen_at: int = CUBE, **changes: object) -> None:
    """Counts as `memory` writes them: each kernel loads 2^18 sectors and stores 2^14.

    chosen_at: the cube at which those are counted that choose their tile by shape.
    """
    same = {"status": PASS, "launch": 1, "view": "compiled", "space": "global"}
    rows = [
        {"stage": s.id, "variant": v, "dialect": d, "kind": kind, "sectors": sectors}
        | dict.fromkeys("mnk", chosen_at if d in s.tiles else CUBE)
        | same
        | changes
        for s in stages_in("fp32")
        for d in s.dialects
        for v in s.variants_in(d)
        for kind, sectors in (("load", 2**18), ("store", 2**14))
    ]
    pd.DataFrame(rows).to_csv(folder / "memory.csv", index=False)


def test_plots(data, draw_pictures):
    _memory_csv(data, chosen_at=4096)
    found = draw_pictures("roofs")
    assert found.keys() == {"roofs", "roofline"}
    shares, roofline = found.values()
    for text in (
        "fp32 FMA",
        "61.7 TFLOP/s at 1.75 GHz",
        "datasheet 67.0",
        "by clock 66.9",
        "no figure to compare with",
    ):
        assert text in shares, text
    assert "shared memory" not in shares  # it was not measured
    size = "4096 × 4096 × 4096, each"
    for text in (size, "fp32 FMA 61.7 of 67.0", "at 4.10 TB/s", "L2 5.50 TB/s", "L1 30.0 TB/s", "cuBLAS", "Fixture"):
        assert text in roofline, text
    for stage in FP32_RUNGS:
        assert roofline.count(f"<!-- {stage[:3]} -->") == 1


def test_intensity_is_that_of_the_sectors_asked_for(tmp_path):
    kernel, at = ("s01_naive", "default", "triton"), Problem(CUBE, CUBE, CUBE)
    assert requested_intensity(tmp_path, at) == {}
    _memory_csv(tmp_path)
    assert requested_intensity(tmp_path, at)[kernel] == pytest.approx(2**25 / (32 * (2**18 + 2**14)))
    # 4 times as deep: 4 times the loads, and no more is stored
    deep = requested_intensity(tmp_path, Problem(CUBE, CUBE, 4 * CUBE))
    assert deep[kernel] == pytest.approx(2**27 / (32 * (2**20 + 2**14)))
    wide = requested_intensity(tmp_path, Problem(2 * CUBE, 2 * CUBE, CUBE))
    assert wide[kernel] == pytest.approx(2**25 / (32 * (2**18 + 2**14)))


@pytest.mark.parametrize("change", [{"launch": 2}, {"m": 2 * CUBE}, {"space": "shared"}, {"status": SKIPPED}])
def test_counts_that_cannot_be_carried_over_are_left_out(tmp_path, change):
    _memory_csv(tmp_path, **change)
    assert requested_intensity(tmp_path, Problem(4096, 4096, 4096)) == {}


def test_what_was_counted_of_one_tile_is_not_said_of_another(tmp_path):
    """s14 takes another tile at 4096 than at the cube that is counted."""
    _memory_csv(tmp_path)
    here, there = (requested_intensity(tmp_path, Problem(edge, edge, edge)).keys() for edge in (CUBE, 4096))
    assert {stage for stage, *_ in here - there} == {"s14_register_banks"}


def test_marks_are_where_the_data_are(data):
    _memory_csv(data, chosen_at=4096)
    ladder = rungs_at_size(store.read(data, "ladder"))
    asked = requested_intensity(data, problem_of(ladder))
    measured = store.read(data, "roofs").set_index("stage")
    figure = roofline(measured, ladder, asked, "a caption")
    everyone, closer = (
        {(float(line.get_xdata()[0]), float(line.get_ydata()[0])) for line in ax.lines if len(line.get_xdata()) == 1}
        for ax in figure.axes
    )
    kernels = ladder[ladder["dialect"] != ""]
    assert everyone == {(asked[row.stage, row.variant, row.dialect], row.tflops) for row in kernels.itertuples()}
    assert closer == {point for point in everyone if point[1] > 0.2 * VALUES["fma"]} != everyone
    sizes = {look.overlaid()["ms"] for look in style.LOOKS.values()}
    assert len(sizes) == len(style.LOOKS)  # at one point all of them are seen


def test_without_a_ladder_or_counts_there_are_the_ceilings_alone(data, draw_pictures):
    assert draw_pictures("roofs").keys() == {"roofs"}
    _memory_csv(data)
    (data / "ladder.csv").unlink()
    assert draw_pictures("roofs").keys() == {"roofs"}


def test_labels_do_not_lie_over_one_another():
    ax = Figure(figsize=(4, 4)).subplots()
    ax.set(xscale="log", yscale="log", xlim=(1, 1000), ylim=(0.1, 1000))
    anchors = {f"s{i:02}": (30.0 if i % 3 else 20.0, 40 - i / 9) for i in range(12)} | {
        "s20": (2.0, 39),
        "s21": (40, 1),
    }
    label_line_ends(ax, anchors, top=50)
    places = {text.get_text(): ax.transData.transform(text.xy) * 0.72 + text.xyann for text in ax.texts}
    heights = [places[f"s{i:02}"][1] for i in range(12)]
    assert heights == sorted(heights, reverse=True)  # as their points
    for one, two in itertools.combinations(places.values(), 2):
        assert abs(one[1] - two[1]) > 8.5 or abs(one[0] - two[0]) > 17  # points: a line's height, a label's width
    assert abs(places["s20"][1] - ax.transData.transform(anchors["s20"])[1] * 0.72) < 0.1  # alone: not moved
    assert max(y for _, y in places.values()) < ax.transData.transform((1, 50))[1] * 0.72
