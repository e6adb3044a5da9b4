"""`ladder`: its pictures show what is in the data and come out the same each time, and its blocks have its numbers."""

from __future__ import annotations

import matplotlib.image
import pytest

from experiments.progress import Bars
from experiments.publish import blocks, pictures
from experiments.publish.drawing import style
from experiments.records import store, workloads
from experiments.records.contenders import contenders
from experiments.records.request import Request
from experiments.records.rows import SKIPPED, TimedRow
from experiments.studies.ladder import study as ladder
from gemm_ref import STAGES, Problem, stages_in
from tests.experiments.fixtures import ENVIRONMENT, ladder_rows, select_contenders


def test_each_size_of_the_device_is_timed(seen):
    for device in ("cpu", "cuda"):
        list(ladder.measure(Request(device), select_contenders(ladder, device), Bars(None)))
    assert [(problem.m, problem.n, problem.k) for problem, *_ in seen] == [
        *workloads.LADDER["cpu"],
        *workloads.LADDER["cuda"],
    ]


def test_pictures_come_out_the_same_and_show_the_rows(tmp_path):
    store.save(tmp_path, "ladder", ladder_rows(), ENVIRONMENT)
    first = pictures.save("ladder", tmp_path, tmp_path / "one")
    with style.forms(style.SVG):
        again = {path.name: path.read_bytes() for path in pictures.save("ladder", tmp_path, tmp_path / "two")}
    assert {path.name for path in first} == {
        f"{stem}.{kind}" for stem in ("ladder_tflops", "ladder_vs_cublas") for kind in ("png", "svg")
    }
    for path in first:
        if path.suffix == ".png":
            image = matplotlib.image.imread(path)
            assert image.shape[1] == (1440 if path.stem == "ladder_tflops" else 896)
            assert len({tuple(pixel) for pixel in image[::4, ::4, :3].reshape(-1, 3)}) > 20
        else:
            assert path.read_bytes() == again[path.name]
    svg = again["ladder_tflops.svg"].decode()
    for text in ("s01 naive", "s04 shared tile", "CPU loop", "cuBLAS 51.3", "11.6", "NVIDIA Fixture", "2020"):
        assert text in svg, text  # matplotlib writes each text as a comment beside its outlines
    assert all(look.colour in svg for look in style.LOOKS.values())
    rows = style.rows_of(store.read(tmp_path, "ladder"))
    assert [row for row in rows if row[0] in STAGES] == [(s.id, name) for s in stages_in("fp32") for name in s.variants]


def test_what_is_absent_or_was_not_timed_is_said(draw_pictures, tmp_path):
    loop = next(contender for contender in contenders() if contender.stage == "cpu_loop")
    rows = [row for row in ladder_rows((4096,)) if (row.stage, row.dialect) != ("s04_shared_tile", "triton")]
    skipped = TimedRow.about("ladder", loop, Problem(4096, 4096, 4096), status=SKIPPED, detail="it would take an hour")
    drawn = draw_pictures("ladder", [*(row for row in rows if row.stage != "cpu_loop"), skipped])
    assert "not timed: it would take an hour" in drawn["ladder_tflops"]
    svg = drawn["ladder_vs_cublas"]
    missing = sum(len(style.LOOKS) - len(stage.dialects) for stage in stages_in("fp32"))
    assert svg.count(f"<!-- {style.NOT_RUN} -->") == 1 and svg.count(f"<!-- {style.NO_KERNEL} -->") == missing
    others = sum(len(stage.variants_in(name)) - 1 for stage in stages_in("fp32") for name in stage.dialects)
    assert svg.count("stroke: #ffffff; stroke-width: 1.2") == others
    on_cpu = [row for row in ladder_rows((256,)) if row.backend in ("cpu", "numpy", "torch")]
    assert draw_pictures("ladder", on_cpu, tmp_path / "cpu").keys() == {"ladder_tflops"}  # there are no ratios


def test_the_size_with_the_most_kernels_is_drawn(draw_pictures):
    few = ("s01_naive", "s02_coalesced", "cublas")
    rows = [row for row in ladder_rows((2048, 4096)) if row.stage in few and (row.m < 4096 or row.stage == "s01_naive")]
    assert "2048 × 2048 × 2048" in draw_pictures("ladder", rows)["ladder_tflops"]


def test_a_document_is_stale_until_it_is_written(tmp_path):
    path = tmp_path / "README.md"
    path.write_text("# Title\n\n<!-- ladder:begin -->\nold\n<!-- ladder:end -->\n\nkept\n", encoding="utf-8")
    store.save(tmp_path, "ladder", ladder_rows(), ENVIRONMENT)
    before = path.read_bytes()
    assert blocks.update(path, ("ladder",), write=False, published=tmp_path) and path.read_bytes() == before
    assert blocks.update(path, ("ladder",), write=True, published=tmp_path)
    assert not blocks.update(path, ("ladder",), write=False, published=tmp_path)
    text = path.read_text(encoding="utf-8")
    assert text.startswith("# Title\n") and text.endswith("\nkept\n") and "\nold\n" not in text
    path.write_text("# no markers\n", encoding="utf-8")
    with pytest.raises(blocks.MarkerError, match="ladder:begin"):
        blocks.update(path, ("ladder",), write=True, published=tmp_path)
    assert path.read_text(encoding="utf-8") == "# no markers\n"
