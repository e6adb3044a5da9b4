"""The page of the course, in a real browser at two widths and in both themes, and the fragments of notebooks."""

from __future__ import annotations

import pytest

from experiments.check.report import LineTraffic, Traffic, WarpRequest
from experiments.learn import course, files, grading, page
from experiments.learn.grading import Grade, Result
from tests.experiments.publish import browser

HOSTILE = "\"><script>alert(1)</script> ' ${x} {{ 7 * 7 }} &amp;"


@pytest.fixture
def graded(monkeypatch, tmp_path):
    """A grade with each kind of result, kept for a file of the second exercise."""
    monkeypatch.setattr(grading, "CACHE", tmp_path / "cache")
    monkeypatch.chdir(tmp_path)
    exercise = course.find(2, "cuda")
    path = files.prepare(exercise)
    path.write_text(f"// {HOSTILE}\n{exercise.start}", encoding="utf-8")
    one = Traffic(8, 4, 32)
    request = WarpRequest("LDG", 4, tuple(128 * lane for lane in range(32)))
    access = LineTraffic(path.name, 17, HOSTILE, "global", "load", "A", one, one, 4.0, request)
    results = (
        Result("faultless", "no fault", True),
        Result("load_sectors", HOSTILE, False, HOSTILE + "word" * 60, 18, HOSTILE, access),
        Result("speed", "8% of cuBLAS predicted", None),
    )
    grade = Grade(exercise.id, "cuda", "64x96x32", results, timed=HOSTILE)
    grading.keep(exercise, path.read_text(encoding="utf-8"), grade)
    assert grading.last_grade(exercise, path) == grade
    return grade


@browser.needed
def test_the_page_in_a_browser(graded, tmp_path):
    target = tmp_path / "course.html"
    target.write_text(page.render("02_coalescing"), encoding="utf-8")
    with browser.browser(tmp_path / "profile") as tab:
        for width in (1400, 390):
            for dark in (False, True):
                tab.open(target, width, dark=dark)
                assert tab.run("document.documentElement.scrollWidth") <= width
                assert browser.unreadable(tab.run(browser.PAIRS)) == []
        shown = tab.run("document.querySelector('details.exercise[open] .found').innerText")
        assert "no fault" in shown and HOSTILE in shown
        assert tab.run("document.querySelectorAll('details.exercise[open] svg rect.sector').length") == 32
        tab.run("document.querySelector('nav a').focus()")
        tab.press("Enter", 13)  # a link opens its exercise
        assert tab.run("[...document.querySelectorAll('details.exercise[open] h2')].length") == 2
        assert tab.problems == [] and all(each.startswith("file:") for each in tab.requests)


def test_fragments_say_what_the_page_says(graded):
    shown = page.render_grade(graded)
    assert "<script>" not in shown and shown.count("<li") == len(graded.results) and 'class="sector"' in shown
    exercise = course.find(2)
    text = page.render_exercise(exercise)
    assert "<strong>It should reach:</strong>" in text and text.count("<summary>Hint ") == len(exercise.hints)
