"""The pictures of the ladder: the files exist, show what is in the data, and come out the same each time."""

from __future__ import annotations

import matplotlib.image
import pytest

from experiments.publish import pictures
from experiments.publish.drawing import style
from experiments.records import store
from experiments.records.contenders import contenders
from experiments.records.rows import SKIPPED, TimedRow
from gemm_ref import STAGES, Problem, stages_in
from tests.experiments.fixtures import ENVIRONMENT, ladder_rows


@pytest.fixture
def data(tmp_path):
    store.save(tmp_path, "ladder", ladder_rows(), ENVIRONMENT)
    return tmp_path


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


def test_the_ladder_says_what_is_absent_and_shows_other_variants(draw_pictures):
    rows = [row for row in ladder_rows((4096,)) if (row.stage, row.dialect) != ("s04_shared_tile", "triton")]
    svg = draw_pictures("ladder", rows)["ladder_vs_cublas"]
    lacking = sum(len(style.LOOKS) - len(stage.dialects) for stage in stages_in("fp32"))
    assert svg.count(f"<!-- {style.NOT_RUN} -->") == 1 and svg.count(f"<!-- {style.NO_KERNEL} -->") == lacking
    others = sum(len(s.variants_in(d)) - 1 for s in stages_in("fp32") for d in s.dialects)
    assert svg.count("stroke: #ffffff; stroke-width: 1.2") == others


def test_every_rung_has_a_row(data):
    rows = style.rows_of(store.read(data, "ladder"))
    assert [row for row in rows if row[0] in STAGES] == [
        (s.id, variant) for s in stages_in("fp32") for variant in s.variants
    ]


def test_cpu_data_alone_is_drawn_without_ratios(draw_pictures):
    rows = [row for row in ladder_rows((256, 512)) if row.backend in ("cpu", "numpy", "torch")]
    assert draw_pictures("ladder", rows).keys() == {"ladder_tflops"}


def test_what_was_not_timed_says_why(draw_pictures):
    loop = next(contender for contender in contenders() if contender.stage == "cpu_loop")
    rows = [row for row in ladder_rows((4096,)) if row.stage != "cpu_loop"]
    skipped = TimedRow.about("ladder", loop, Problem(4096, 4096, 4096), status=SKIPPED, detail="it would take an hour")
    assert "not timed: it would take an hour" in draw_pictures("ladder", [*rows, skipped])["ladder_tflops"]


def test_one_rung_alone_is_drawn(draw_pictures):
    rows = [row for row in ladder_rows((512,)) if row.stage in ("s09_conflict_free", "cublas")]
    assert "s09 conflict free" in draw_pictures("ladder", rows)["ladder_vs_cublas"]


def test_the_size_with_the_most_kernels_is_drawn(draw_pictures):
    rows = [row for row in ladder_rows((1024, 2048, 4096)) if row.m < 4096 or row.stage == "s01_naive"]
    assert "2048 × 2048 × 2048" in draw_pictures("ladder", rows)["ladder_tflops"]
