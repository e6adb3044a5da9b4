"""Shapes: which problems are timed, and what the pictures show."""

from __future__ import annotations

import dataclasses

from experiments.publish.numbers import format_short_percent
from experiments.records import store, studies, workloads
from experiments.records.controls import CONTROL
from experiments.records.request import DEFAULT, FULL
from experiments.studies.shapes.study import FIRST
from gemm_ref import stages_in
from tests.experiments.fixtures import CUBLAS, ENVIRONMENT, TFLOPS, ladder_rows, needs_study, renamed, sweep_rows


def shape_rows(*sizes):
    """Every kernel that `shapes` times, and the libraries, at each of these sizes."""
    one = renamed("shapes", [row for row in ladder_rows((64,)) if row.stage >= FIRST])
    return [dataclasses.replace(row, m=m, n=n, k=k) for row in one for m, n, k in sizes]


def test_shapes_are_named_and_mapped(draw_pictures):
    """Each named shape has its row, and the best rung is named there."""
    named = workloads.named_shapes()
    found = draw_pictures("shapes", shape_rows(*(shape.sizes for shape in named), *workloads.map_sizes(DEFAULT)))
    assert found.keys() == {"shapes_classes", "shapes_named", "shapes_best"}
    for shape in named:
        assert f"<!-- {shape.name} ({' × '.join(map(str, shape.sizes))}) -->" in found["shapes_named"]
    last = stages_in("fp32")[-1].id
    share = format_short_percent(100 * TFLOPS[last]["cuda"] / CUBLAS)
    assert found["shapes_named"].count(f"<!-- {share}% {last[:3]} -->") >= len(named)


@needs_study("roofs")
def test_the_read_roof_is_of_what_memory_binds(draw_pictures, tmp_path):
    """Bytes over time, where they take longer than the arithmetic."""
    decode, square = (1, 4096, 4096), (2048, 4096, 4096)
    ceilings = [
        studies.row_type("roofs")(experiment="roofs", stage=name, backend="cuda", value=value)
        for name, value in (("fma", 60.0), ("dram_read", 4.0))
    ]
    store.save(tmp_path, "roofs", ceilings, ENVIRONMENT)
    rows = [dataclasses.replace(row, median_us=40.0) for row in shape_rows(decode, square)]
    svg = draw_pictures("shapes", rows)["shapes_read_roof"]
    assert "(1 × 4096 × 4096)" in svg and "(2048 × 4096 × 4096)" not in svg
    took_us = 4 * (4096 * 4096 + 2 * 4096) / 4.0 / 1e6
    assert f"<!-- {format_short_percent(100 * took_us / 40)}% {FIRST[:3]} -->" in svg


def test_named_shapes_have_a_source_and_sizes_of_their_own_and_some_are_timed_by_default():
    named = workloads.named_shapes()
    groups = {shape.sizes: shape.group for shape in named}
    assert len(named) >= 40 and len(groups) == len(named)
    assert all(20 < len(shape.why) <= 100 and len(shape.source) > 20 and min(shape.sizes) > 0 for shape in named)
    assert {(1, 4096), (8, 4096), (16, 4096)} <= {shape.sizes[::2] for shape in named if shape.group == "decode"}
    assert all(any(side % 4 for side in shape.sizes) for shape in named if shape.group == "odd")
    few, everyone = workloads.shapes(DEFAULT, "bf16"), workloads.shapes(FULL, "bf16")
    assert {groups[sizes] for sizes in few} == set(groups.values()) and everyone == list(groups)
    assert set(workloads.shapes(FULL, "fp32")) == {*groups, *workloads.map_sizes(FULL)}


def test_the_picture_by_class_has_a_panel_for_each_and_leaves_out_failed_controls(draw_pictures, tmp_path):
    decode, layer, unaligned = (1, 4096, 4096), (2048, 6144, 4096), (2039, 4093, 1021)
    rows = sweep_rows("shapes", [decode, layer, unaligned])
    (svg,) = draw_pictures("shapes", rows, tmp_path / "everyone").values()
    assert all(f"<!-- {text} -->" in svg for text in ("layers", "few rows", "unaligned sizes", "bf16", "fp8"))
    only = [each for each in rows if each.math == "bf16" and each.m != 2039]
    failed = dataclasses.replace(only[0], stage=CONTROL, backend=CONTROL, dialect="", verdict="UNSURE")
    (svg,) = draw_pictures("shapes", [*only, failed]).values()
    assert "<!-- layers -->" in svg and "<!-- few rows -->" not in svg and "<!-- fp8 -->" not in svg
