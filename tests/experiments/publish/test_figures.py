"""Pictures of the report: their texts, groups, captions and colours."""

from __future__ import annotations

import re

import matplotlib
import pytest
from matplotlib.figure import Figure

from experiments.publish.drawing import style
from experiments.publish.drawing.sheet import Sheet
from experiments.publish.pages import FOLDER
from experiments.publish.report import colours, figures
from experiments.records import store, studies


def test_a_plots_title_and_lines_that_end_at_one_place(tmp_path):
    with style.themed(), matplotlib.rc_context({"svg.fonttype": "none"}):
        figure = Sheet((5, 2), "What it shows", "and how", "a caption").figure
        figure.text(0.9, 0.5, "a long line\nshort", ha="right")
        figure.text(0.5, 0.2, "middle\nof both lines", ha="center", multialignment="center")
        figure.text(0.1, 0.2, "turned", rotation=90)
        path = style.save(figure, tmp_path, "one")[1]
    found = figures.inline("one", path.read_text(encoding="utf-8"))
    assert found.title == "What it shows"
    groups = re.findall(r"text-anchor:(\w+)(.*?)(?=text-anchor|$)", found.svg, re.DOTALL)
    texts = {text: name for name, group in groups for text in re.findall(r">([^<]+)</text>", group)}
    assert texts["a long line"] == texts["short"] == "end"
    assert texts["middle"] == texts["of both lines"] == texts["turned"] == "middle"


def test_marks_that_look_alike_share_a_group():
    mark = "<path d='M 0 0 L 1 1' style='fill: #123456; {}' clip-path='url(#c)' />"
    text = f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 648 9'>{3 * mark}{3 * mark}</svg>"
    svg = figures.inline("one", text.format(*["stroke: none"] * 3, *["opacity: 0.5"] * 3)).svg
    shared = '<g style="fill:var(--x-123456);stroke:none" clip-path="url(#one-0)"><path d="M 0 0 L 1 1" />'
    assert shared in svg and svg.count("stroke:none") == 1
    assert svg.count("opacity:0.5") == 3  # that of a group is not that of its parts where they overlap


def test_every_published_picture_has_a_caption():
    """And no other has, but those that are drawn of rows not measured yet."""
    stems = {path.stem for path in store.PUBLISHED.glob("*.png")}
    code = "".join(path.read_text(encoding="utf-8") for path in studies.FOLDER.glob("*/picture.py"))
    assert stems <= studies.captions().keys() and all(f'"{name}"' in code for name in studies.captions().keys() - stems)
    assert all(text.endswith(".") and not re.search(r"faster|slower", text) for text in studies.captions().values())


def test_the_report_draws_no_png(tmp_path):
    with style.themed(), style.forms(style.SVG):
        assert style.save(Figure(figsize=(1, 1)), tmp_path, "one") == [tmp_path / "one.svg"]
    assert [path.name for path in tmp_path.iterdir()] == ["one.svg"]
    with style.themed():
        assert style.save(Figure(figsize=(1, 1)), tmp_path, "two") == [tmp_path / "two.png", tmp_path / "two.svg"]


def test_dark_twins_keep_texts_readable():
    for light in ("#ffffff", "#f5f7fa", "#b3d971", "#eef7dd", "#fee8c8"):
        dark = colours.dark_twin(light)
        assert colours.contrast(colours.INK, dark) > 4.5
    assert colours.dark_twin("#ffffff") == colours.PAPER
    assert colours.contrast("#ffffff", "#000000") == pytest.approx(21)
    assert colours.contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.005)  # WCAG's well-known near miss


def test_themes_have_contrast():
    sheet = (FOLDER / "base.css").read_text(encoding="utf-8")
    pairs = {name: two for name, *two in re.findall(r"--([\w-]+): light-dark\((#\w+), (#\w+)\)", sheet)}
    assert pairs["paper"][1] == colours.PAPER and pairs["ink"][1] == colours.INK
    texts = [name for name in pairs if name in ("ink", "muted", "link", "failed") or name.startswith("syntax-")]
    assert len(texts) >= 9
    for name in texts:
        for mode in (0, 1):
            for ground in ("paper", "raised", "pressed") if name in ("ink", "muted") else ("paper", "raised"):
                ratio = colours.contrast(pairs[name][mode], pairs[ground][mode])
                assert ratio >= 4.5, f"{name} on {ground}: {ratio:.2f}"
