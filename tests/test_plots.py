"""Plots from a fixture: the files exist, show what is in the data, and come out the same each time."""

import matplotlib.image
import pytest
from experiment_fixtures import ENVIRONMENT, ladder_rows

from experiments import plot_correctness, plot_ladder, results, style
from experiments.contenders import contenders
from experiments.rows import FAIL, PASS, SKIPPED, Checked, Timed
from gemm_ref import STAGES, Problem


@pytest.fixture
def data(tmp_path):
    results.save(tmp_path, "ladder", ladder_rows(), ENVIRONMENT)
    rows = [
        Checked.about(
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
    results.save(tmp_path, "correctness", rows, ENVIRONMENT)
    return tmp_path


def _names(paths):
    return {path.name for path in paths}


def test_ladder_plots(data, tmp_path):
    first, second = (plot_ladder.draw(data, tmp_path / name) for name in ("one", "two"))
    stems = ("ladder_tflops", "ladder_vs_cublas", "ladder_sizes")
    assert _names(first) == {f"{stem}.{kind}" for stem in stems for kind in ("png", "svg")}
    for one, two in zip(first, second, strict=True):
        assert one.read_bytes() == two.read_bytes()
        if one.suffix == ".png":
            image = matplotlib.image.imread(one)
            assert image.shape[1] == 1440
            assert len({tuple(pixel) for pixel in image[::4, ::4, :3].reshape(-1, 3)}) > 20
    svg = (tmp_path / "one" / "ladder_tflops.svg").read_text(encoding="utf-8")
    for text in ("s01 naive", "s04 shared tile", "CPU loop", "cuBLAS 51.3 TFLOP/s", "11.6", "NVIDIA Fixture", "2020"):
        assert text in svg, text  # matplotlib writes each text as a comment beside its outlines
    for colour in style.COLOURS.values():
        assert colour in svg
    assert _names((tmp_path / "one").iterdir()) == _names(first)


def test_every_rung_has_a_row(data):
    rows = style.rows_of(results.read(data, "ladder"))
    assert [row for row in rows if row[0] in STAGES] == [
        (s.id, variant) for s in STAGES.values() for variant in s.variants
    ]


def test_cpu_data_alone_is_drawn_without_ratios(tmp_path):
    rows = [row for row in ladder_rows((256, 512)) if row.backend in ("cpu", "numpy", "torch")]
    results.save(tmp_path, "ladder", rows, ENVIRONMENT)
    assert _names(plot_ladder.draw(tmp_path, tmp_path)) == {
        f"{stem}.{kind}" for stem in ("ladder_tflops", "ladder_sizes") for kind in ("png", "svg")
    }


def test_correctness_plot_shows_failures_in_red(data, tmp_path):
    paths = plot_correctness.draw(data, tmp_path / "out")
    svg = paths[1].read_text(encoding="utf-8")
    assert style.FAILED in svg
    assert "1 of 1 failed" in svg
    assert "3% · 1 passed" in svg


def test_what_was_not_timed_says_why(tmp_path):
    loop = next(contender for contender in contenders() if contender.stage == "cpu_loop")
    rows = [row for row in ladder_rows((4096,)) if row.stage != "cpu_loop"]
    skipped = Timed.about("ladder", loop, Problem(4096, 4096, 4096), status=SKIPPED, detail="it would take an hour")
    results.save(tmp_path, "ladder", [*rows, skipped], ENVIRONMENT)
    svg = plot_ladder.draw(tmp_path, tmp_path)[1].read_text(encoding="utf-8")
    assert "not timed: it would take an hour" in svg


def test_the_size_with_the_most_kernels_is_drawn(tmp_path):
    rows = [row for row in ladder_rows((1024, 2048, 4096)) if row.m < 4096 or row.stage == "s01_naive"]
    results.save(tmp_path, "ladder", rows, ENVIRONMENT)
    svg = plot_ladder.draw(tmp_path, tmp_path)[1].read_text(encoding="utf-8")
    assert "2048 × 2048 × 2048" in svg


def test_nothing_measured_draws_nothing(tmp_path):
    assert plot_ladder.draw(tmp_path, tmp_path) == []
    assert plot_correctness.draw(tmp_path, tmp_path) == []
