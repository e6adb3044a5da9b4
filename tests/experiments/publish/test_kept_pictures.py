"""Pictures are drawn once, and again when something that they follow from has changed."""

from __future__ import annotations

import json

import pytest
from matplotlib.figure import Figure

from experiments import processes
from experiments.publish import pictures
from experiments.publish.drawing.style import PAGE, PNG, SVG
from experiments.records import cache, store
from gemm_ref import build
from tests.experiments.fixtures import ENVIRONMENT, ladder_rows


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A machine's folder with data, in a house of its own."""
    code = tmp_path / "experiments/studies/ladder/picture.py"
    code.parent.mkdir(parents=True)
    code.write_text("before", encoding="utf-8")
    monkeypatch.setattr(cache, "_ROOT", tmp_path)
    monkeypatch.setattr(build, "CACHE", tmp_path / "cache")
    monkeypatch.setattr(store, "RESULTS", tmp_path / "results")
    folder = tmp_path / "results" / "a-gpu"
    folder.mkdir(parents=True)
    store.save(folder, "ladder", ladder_rows((64,)), ENVIRONMENT)
    (folder / "ladder.svg").write_text("before", encoding="utf-8")
    return folder


@pytest.fixture
def draw_calls(monkeypatch):
    """What was draw_pictures, in order."""
    draw_calls = []

    def draw(name, folder):
        draw_calls.append(name)
        for other in (name, "memory"):  # which may be shown beside it
            store.csv_path(folder, other)
        for which in ("one", "two"):
            figure = Figure(figsize=(1, 1))
            figure.text(0, 0, "a text")
            yield f"{name}_{which}", figure

    monkeypatch.setattr(pictures, "draw_study", draw)
    return draw_calls


ALL = (PNG, SVG, PAGE)


def test_what_is_kept_is_not_drawn_again(folder, draw_calls):
    """Until a form is asked for that is not kept."""
    assert pictures.render("ladder", folder, PAGE).keys() == {"ladder_one.page.svg", "ladder_two.page.svg"}
    first = pictures.render("ladder", folder, *ALL)
    assert list(first) == [f"ladder_{which}{end}" for which in ("one", "two") for end in ALL]
    assert pictures.render("ladder", folder, *ALL) == first
    assert pictures.render("ladder", folder, PAGE) == {name: first[name] for name in first if name.endswith(PAGE)}
    assert draw_calls == ["ladder"] * 2
    assert b">a text<" in first["ladder_one.page.svg"] and b">a text<" not in first["ladder_one.svg"]


@pytest.mark.parametrize(
    ("place", "matters"),
    [
        ("results/a-gpu/ladder.csv", True),
        ("results/a-gpu/memory.csv", True),
        ("experiments/studies/ladder/picture.py", True),
        ("gemm_ref/registry.py", True),
        ("experiments/publish/numbers.py", True),
        ("results/a-gpu/roofs.csv", False),
        ("results/a-gpu/ladder.svg", False),
        ("experiments/studies/roofs/picture.py", False),
        ("experiments/publish/report/page.py", False),
    ],
)
def test_a_change(tmp_path, folder, draw_calls, place, matters):
    """Of the study's data or code, or of what all pictures share."""
    pictures.render("ladder", folder, *ALL)
    (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / place).write_text("after", encoding="utf-8")
    pictures.render("ladder", folder, *ALL)
    assert len(draw_calls) == (2 if matters else 1)


def test_a_change_of_a_run(folder, draw_calls):
    """Another run's record matters where there are rows of it in the picture."""
    for environment, drawn in ((ENVIRONMENT | {"date": "2021"}, 1), (ENVIRONMENT | {"device": "another"}, 2)):
        pictures.render("ladder", folder, *ALL)
        runs = store.read_runs(folder) | {environment["date"]: environment}
        (folder / store.ENVIRONMENT).write_text(json.dumps(runs), encoding="utf-8")
        pictures.render("ladder", folder, *ALL)
        assert len(draw_calls) == drawn


def test_of_any_other_folder_nothing_is_kept(tmp_path, folder, draw_calls):
    elsewhere = folder.rename(tmp_path / "elsewhere")
    for _ in range(2):
        pictures.render("ladder", elsewhere, *ALL)
    assert draw_calls == ["ladder"] * 2 and not build.CACHE.exists()


def test_many_are_the_same_as_one_by_one(tmp_path, monkeypatch):
    """Drawn by processes of their own, from the published data; they put a set's members in another order."""
    monkeypatch.setattr(build, "CACHE", tmp_path)
    places = [(name, store.PUBLISHED) for name in ("ladder", "rounding")]
    monkeypatch.setattr(pictures, "_MAX_IN_PROCESS", len(places) - 1)
    monkeypatch.setattr(processes, "_cores", lambda: 1)
    many = list(pictures.render_all(places, SVG))
    assert many == [pictures._render(*place, (SVG,)) for place in places]
    assert [len(files) for files in many] == [2, 1] and list(many[1]) == ["rounding.svg"]
