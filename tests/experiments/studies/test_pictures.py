"""Plots from a fixture: the files exist, show what is in the data, and come out the same each time."""

import dataclasses
import itertools
import re

import matplotlib.image
import pytest
from matplotlib.figure import Figure

from experiments.publish import pictures
from experiments.publish.drawing import style
from experiments.publish.numbers import format_number, format_short_percent
from experiments.records import store, studies, workloads
from experiments.records.contenders import contenders
from experiments.records.request import DEFAULT
from experiments.records.rows import FAIL, HARDWARE, PASS, PREDICTED, SKIPPED, CheckedRow, TimedRow
from experiments.studies.correctness.row import CorrectnessRow
from experiments.studies.memory.row import AccessRow
from experiments.studies.roofs.row import RoofRow
from experiments.studies.rounding.row import RoundingRow
from experiments.studies.shapes.study import FIRST
from gemm_ref import STAGES, Problem, stages_in
from gemm_ref.ptx.count.records import COMPILED
from tests.experiments.fixtures import CUBLAS, ENVIRONMENT, TFLOPS, ladder_rows


@pytest.fixture
def data(tmp_path):
    store.save(tmp_path, "ladder", ladder_rows(), ENVIRONMENT)
    rows = [
        CorrectnessRow.about(
            "correctness",
            contender,
            Problem(33, 31, 33),
            inputs="normal",
            status=FAIL if (contender.stage, contender.dialect) == ("s02_coalesced", "gluon") else PASS,
            bound_share=0.03,
        )
        for contender in contenders()
        if not contender.is_baseline
    ]
    store.save(tmp_path, "correctness", rows, ENVIRONMENT)
    return tmp_path


def test_no_kernel_is_not_the_same_as_not_run():
    split = next(stage for stage in STAGES.values() if "gluon" not in stage.dialects)
    assert style.absent(split.id, "gluon") == style.NO_KERNEL != style.absent(split.id, "cuda")
    assert style.absent("s05_bank_conflict", "natural", "cuda") == style.NO_KERNEL
    assert style.absent("s05_bank_conflict", "natural", "triton") == style.absent("cpu_loop", "") == style.NOT_RUN
    assert style.NO_KERNEL in style.with_absent("a caption", ["1", style.NO_KERNEL])
    assert style.with_absent("a caption", ["1", style.NOT_RUN]) == "a caption"


def test_a_key_names_what_is_drawn_alone():
    figure = Figure(figsize=(4, 4))
    style.legend(figure, ["gluon", "cuda", "", "cuda"])
    style.legend(figure, [""])
    assert [[text.get_text() for text in key.get_texts()] for key in figure.legends] == [["CUDA", "Gluon"]]


def test_the_ladder_says_what_is_absent_and_shows_other_variants(drawn):
    rows = [row for row in ladder_rows((4096,)) if (row.stage, row.dialect) != ("s04_shared_tile", "triton")]
    svg = drawn("ladder", rows)["ladder_vs_cublas"]
    lacking = sum(len(style.LOOKS) - len(stage.dialects) for stage in stages_in("fp32"))
    assert svg.count(f"<!-- {style.NOT_RUN} -->") == 1 and svg.count(f"<!-- {style.NO_KERNEL} -->") == lacking
    others = sum(len(s.variants_in(d)) - 1 for s in stages_in("fp32") for d in s.dialects)
    assert svg.count("stroke: #ffffff; stroke-width: 1.2") == others


def _as(name, rows, **changes):
    return [dataclasses.replace(row, experiment=name, **changes) for row in rows]


def _names(paths):
    return {path.name for path in paths}


def test_ladder_plots(data, tmp_path):
    first, second = (pictures.save("ladder", data, tmp_path / name) for name in ("one", "two"))
    stems = ("ladder_tflops", "ladder_vs_cublas")
    assert _names(first) == {f"{stem}.{kind}" for stem in stems for kind in ("png", "svg")}
    for one, two in zip(first, second, strict=True):
        assert one.read_bytes() == two.read_bytes()
        if one.suffix == ".png":
            image = matplotlib.image.imread(one)
            assert image.shape[1] == (1440 if one.stem == "ladder_tflops" else 896)
            assert len({tuple(pixel) for pixel in image[::4, ::4, :3].reshape(-1, 3)}) > 20
    svg = (tmp_path / "one" / "ladder_tflops.svg").read_text(encoding="utf-8")
    for text in ("s01 naive", "s04 shared tile", "CPU loop", "cuBLAS 51.3", "11.6", "NVIDIA Fixture", "2020"):
        assert text in svg, text  # matplotlib writes each text as a comment beside its outlines
    for look in style.LOOKS.values():
        assert look.colour in svg
    assert _names((tmp_path / "one").iterdir()) == _names(first)


def test_every_rung_has_a_row(data):
    rows = style.rows_of(store.read(data, "ladder"))
    assert [row for row in rows if row[0] in STAGES] == [
        (s.id, variant) for s in stages_in("fp32") for variant in s.variants
    ]


@pytest.mark.parametrize("name", ["ladder", "squares"])
def test_cpu_data_alone_is_drawn_without_ratios(drawn, name):
    rows = [row for row in ladder_rows((256, 512)) if row.backend in ("cpu", "numpy", "torch")]
    assert drawn(name, _as(name, rows)).keys() == {f"{name}_tflops"}


@pytest.mark.usefixtures("data")
def test_correctness_says_how_many_passed_and_names_what_did_not(drawn):
    (svg,) = drawn("correctness").values()
    checks = len([contender for contender in contenders() if not contender.is_baseline])
    for text in (
        f"{checks - 1} of {checks} checks passed",
        "the largest error is 3.0% of what is allowed",
        "s02 coalesced, Gluon: 1 of 1 failed, such as fp32 at 33 × 31 × 33",
        "fp8",
    ):
        assert f"<!-- {text}" in svg, text
    assert svg.count(f"fill: {style.FAILED}") == 1


@pytest.mark.parametrize("wrong", [0, 1])
def test_the_hardware_s_counts_are_a_sentence_and_what_differs(drawn, wrong):
    counted = [
        AccessRow.about(
            "memory", each, Problem(256, 256, 256), view=view, launch=1, space="global", kind="load", array="A",
            lane_bytes=4, requests=10, lanes=320, sectors=40 + wrong * (view == HARDWARE and each.dialect == "gluon"),
        )
        for each in contenders()
        if each.stage == "s02_coalesced"
        for view in (COMPILED, HARDWARE)
    ]  # fmt: skip
    svg = drawn("memory", counted)["memory_hardware"]
    assert f"<!-- {3 - wrong} of 3 counts are as predicted -->" in svg
    assert ("<!-- s02 coalesced, Gluon, global loads: 41, not 40 -->" in svg) == (style.FAILED in svg) == bool(wrong)


def test_what_was_not_timed_says_why(drawn):
    loop = next(contender for contender in contenders() if contender.stage == "cpu_loop")
    rows = [row for row in ladder_rows((4096,)) if row.stage != "cpu_loop"]
    skipped = TimedRow.about("ladder", loop, Problem(4096, 4096, 4096), status=SKIPPED, detail="it would take an hour")
    assert "not timed: it would take an hour" in drawn("ladder", [*rows, skipped])["ladder_tflops"]


def test_the_size_with_the_most_kernels_is_drawn(drawn):
    rows = [row for row in ladder_rows((1024, 2048, 4096)) if row.m < 4096 or row.stage == "s01_naive"]
    assert "2048 × 2048 × 2048" in drawn("ladder", rows)["ladder_tflops"]


@pytest.mark.parametrize("name", studies.names())
def test_nothing_measured_draws_nothing(drawn, name):
    assert drawn(name) == {}


def test_squares_show_every_size_and_leave_the_control_out(drawn):
    rows = _as("squares", ladder_rows((1021, 1024, 2048)))
    control = [dataclasses.replace(row, stage="control", backend="control") for row in rows if row.backend == "cublas"]
    found = drawn("squares", rows + control)
    assert found.keys() == {"squares_tflops", "squares_vs_cublas"}
    for text in ("1021", "2048", "s13 split k Triton"):
        assert text in found["squares_vs_cublas"], text
    assert "control" not in found["squares_vs_cublas"]


def shape_rows(*sizes):
    """Every kernel that `shapes` times, and the libraries, at each of these sizes."""
    one = _as("shapes", [row for row in ladder_rows((64,)) if row.stage >= FIRST])
    return [dataclasses.replace(row, m=m, n=n, k=k) for row in one for m, n, k in sizes]


def test_shapes_are_named_and_mapped(drawn):
    """Each named shape has its row, and the best rung is named there."""
    named = workloads.named_shapes()
    found = drawn("shapes", shape_rows(*(shape.sizes for shape in named), *workloads.map_sizes(DEFAULT)))
    assert found.keys() == {"shapes_named", "shapes_vs_cublas", "shapes_best"}
    for shape, name in itertools.product(named, ("shapes_named", "shapes_vs_cublas")):
        assert f"<!-- {shape.name} ({' × '.join(map(str, shape.sizes))}) -->" in found[name]
    last = stages_in("fp32")[-1].id
    share = format_short_percent(100 * TFLOPS[last]["cuda"] / CUBLAS)
    assert found["shapes_named"].count(f"<!-- {share}% {last[:3]} -->") >= len(named)


def test_the_read_roof_is_of_what_memory_binds(drawn, tmp_path):
    """Bytes over time, where they take longer than the arithmetic; without `roofs` nothing is drawn."""
    decode, square = (1, 4096, 4096), (2048, 4096, 4096)
    rows = [dataclasses.replace(row, median_us=40.0) for row in shape_rows(decode, square)]
    assert "shapes_read_roof" not in drawn("shapes", rows)
    store.save(tmp_path, "roofs", [_ceiling("fma", 60.0), _ceiling("dram_read", 4.0)], ENVIRONMENT)
    svg = drawn("shapes", rows)["shapes_read_roof"]
    assert "(1 × 4096 × 4096)" in svg and "(2048 × 4096 × 4096)" not in svg
    took_us = 4 * (4096 * 4096 + 2 * 4096) / 4.0 / 1e6
    assert f"<!-- {format_short_percent(100 * took_us / 40)}% {FIRST[:3]} -->" in svg


def _ceiling(name, value):
    return RoofRow(experiment="roofs", stage=name, backend="cuda", value=value)


def test_every_named_shape_has_a_reason_a_source_and_sizes_of_its_own():
    named = workloads.named_shapes()
    assert len(named) >= 40 and len({shape.sizes for shape in named}) == len(named)
    assert all(20 < len(shape.why) <= 100 and len(shape.source) > 20 and min(shape.sizes) > 0 for shape in named)
    assert {(1, 4096), (8, 4096), (16, 4096)} <= {shape.sizes[::2] for shape in named if shape.group == "decode"}
    assert all(any(side % 4 for side in shape.sizes) for shape in named if shape.group == "odd")


def test_modes_are_shares_of_the_cold_time(drawn, tmp_path):
    rows = [
        dataclasses.replace(row, experiment="modes", mode=mode, median_us=row.median_us * share)
        for row in ladder_rows((256, 1024))
        for mode, share in (("cold", 1.0), ("warm", 0.8), ("graph", 0.6))
        if row.dialect or row.backend == "cublas"
    ]
    assert drawn("modes", rows).keys() == {"modes"}
    assert drawn("modes", [row for row in rows if row.mode == "warm"], tmp_path / "warm") == {}


def test_inputs_are_drawn_relative_to_normal_ones(drawn):
    timed = _as("energy", ladder_rows((1024,)), sm_mhz=1500.0, power_w=600.0, mode="sustained")
    rows = [
        dataclasses.replace(row, inputs=kind, tflops=row.tflops * gain)
        for row in timed
        for kind, gain in (("zeros", 1.25), ("normal", 1.0))
        if row.stage in ("cublas", "s12_async_copy")
    ]
    found = drawn("energy", rows)
    assert found.keys() == {"energy"} and "1.25" in found["energy"]


def test_each_rung_in_a_burst_and_held(drawn, tmp_path):
    held = _as("energy", ladder_rows((1024, 8192)), inputs="normal", power_w=500.0, mode="sustained")
    bursts = [dataclasses.replace(row, mode="burst", power_w=None, tflops=1.1 * row.tflops) for row in held]
    found = drawn("energy", [*held, *bursts])
    assert found.keys() == {"energy_rungs"}
    assert all(text in found["energy_rungs"] for text in ("8192 × 8192 × 8192", "s12", "TFLOP/s per W", "Gluon"))
    zeros = [dataclasses.replace(row, inputs="zeros") for row in held if row.m == 8192]
    found = drawn("energy", [*held, *zeros, *(row for row in bursts if row.m == 1024)], tmp_path / "each")
    assert "8192 × 8192 × 8192" in found["energy"] and "1024 × 1024 × 1024" in found["energy_rungs"]  # each its largest


@pytest.mark.parametrize("on_gpu", [True, False])
def test_accuracy_names_each_line_once(drawn, on_gpu):
    rows = [
        CheckedRow.about("accuracy", contender, Problem(256, 256, k), inputs="normal", rel_error=1e-7 * k**0.5)
        for contender in contenders()
        for k in (16, 256)
        if contender.is_default and (on_gpu or ("cpu" in contender.devices and contender.is_baseline))
    ]
    (svg,) = drawn("accuracy", rows).values()
    own = f"<!-- s01 to {stages_in('fp32')[-1].id[:3]}; " if on_gpu else "<!-- CPU loop; NumPy BLAS; torch BLAS -->"
    assert svg.count("<!-- s01") == on_gpu and own in svg
    assert svg.count("<!-- fp16 ") == on_gpu  # one line, since all have the same errors


def test_accuracy_parts_kernels_whose_errors_differ(drawn):
    rows = [
        CheckedRow.about("accuracy", contender, Problem(256, 256, k), inputs="normal", rel_error=error * k)
        for contender in contenders()
        for k in (16, 256)
        if contender.is_default and contender.math == "tf32" and contender.dialect
        for error in [2e-7 if contender.dialect == "cuda" and contender.stage > "s16" else 1e-7]
    ]
    (svg,) = drawn("accuracy", rows).values()
    assert "<!-- tf32 s16 to s19 CUDA -->" in svg
    assert "<!-- tf32 s15; s16 to s19 Triton, Gluon -->" in svg


def test_rounding_rings_what_a_gpu_lost_where_it_was_predicted(drawn):
    (kernel,) = (item for item in contenders() if str(item) == "s17_wgmma_tma cuda fp16")

    def row(view: str, k: int) -> RoundingRow:
        values = {"inputs": "normal", "view": view, "rel_error": 1e-7 * k, "checksum": f"{view}{k}"}
        return RoundingRow.about("rounding", kernel, Problem(256, 256, k), **values)

    (alone,) = drawn("rounding", [row(PREDICTED, k) for k in (16, 64)]).values()
    (both,) = drawn("rounding", [row(PREDICTED, k) for k in (16, 64)] + [row(HARDWARE, k) for k in (64, 256)]).values()
    assert "<!-- fp16 s17 -->" in alone and "rings" not in alone and "rings: the GPU" in both
    assert [len(re.findall("<use [^>]*stroke-width: 1.1", svg)) for svg in (alone, both)] == [0, 1]


def test_three_digits_where_they_round_up():
    assert [format_number(x) for x in (0.978, 9.876, 99.94, 99.96, 100.4, 1234.5)] == [
        "0.978", "9.88", "99.9", "100", "100", "1234",
    ]  # fmt: skip
