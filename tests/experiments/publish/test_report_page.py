"""The report in a real browser: it sorts, filters, has two themes, fits a phone, prints, and asks nobody for anything.

Needs chromium (Debian: apt-get install chromium); elsewhere the tests are skipped, and .ci/run says so.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

import pytest

from experiments.records import store
from gemm_ref import STAGES
from tests.experiments.publish import browser

pytestmark = browser.needed

LADDER = "document.querySelector('#ladder .data')"
# The texts of a column of the ladder's table in the rows that are shown.
COLUMN = f"""((label) => {{
    const table = {LADDER}.querySelector("table");
    const index = [...table.tHead.rows[0].cells].findIndex((cell) => cell.textContent === label);
    return [...table.tBodies[0].rows].filter((row) => row.checkVisibility()).map((row) => row.cells[index].textContent);
}})"""


# What is wider than the window and does not scroll in a box of its own.
OUTSIDE = """[...document.querySelectorAll("main *")].filter((element) => element.checkVisibility()
    && !element.closest(".wide, pre, .unseen, fieldset") && element.getBoundingClientRect().right > innerWidth + 1)
    .map((element) => element.outerHTML.slice(0, 80))"""


@pytest.fixture(scope="module")
def page(published_report, tmp_path_factory) -> Iterator[browser.Page]:
    """The published report at a desk's width, in the light."""
    with browser.browser(tmp_path_factory.mktemp("profile")) as page:
        _open(page, published_report)
        yield page


def _open(page, report) -> None:
    """The report, with the ladder's rows unpacked."""
    page.open(report, 1400)
    page.run(
        f"""new Promise((done) => {{
        const box = {LADDER}, rows = box.querySelector("tbody");
        new MutationObserver(done).observe(rows, {{ childList: true }});
        box.open = true;
    }})"""
    )


@pytest.fixture(autouse=True)
def _as_it_opens(page):
    """Each test begins at a desk's width in the light, with the tables as they were."""
    yield
    page.size(1400)
    page.prefer(dark=False)
    page.run(
        f"""document.querySelector("#theme-auto").click();
        for (const field of {LADDER}.querySelectorAll(".tools :is(input, select)")) {{
            field.value = "";
            field.dispatchEvent(new Event(field.tagName === "INPUT" ? "input" : "change"));
        }}"""
    )


@contextlib.contextmanager
def unfolded(page) -> Iterator[None]:
    """All that folds is open for a while, but for tables: that of the ladder is always, and stands for the others."""
    page.run("for (const fold of document.querySelectorAll('main details:not(.data)')) fold.open = true")
    yield
    page.run("for (const fold of document.querySelectorAll('main details:not(.data)')) fold.open = false")


def numbers(texts: list[str]) -> list[float]:
    return [float(text.replace(",", "")) for text in texts if text]


def click(page, label: str) -> None:
    page.run(f"""[...{LADDER}.querySelectorAll("th button")].find((b) => b.textContent === "{label}").click()""")


def test_a_click_on_a_head_sorts(page):
    rows = len(store.read(store.PUBLISHED, "ladder"))
    page.run(f"{LADDER}.querySelector('.unfold').click()")
    assert len(page.run(f"{COLUMN}('TFLOP/s')")) == rows
    click(page, "TFLOP/s")
    rising = page.run(f"{COLUMN}('TFLOP/s')")
    assert numbers(rising) == sorted(numbers(rising)) and len(set(rising)) > 50
    missing = rising.count("")
    assert not any(rising[len(rising) - missing :])  # what was not timed is last
    click(page, "TFLOP/s")
    falling = page.run(f"{COLUMN}('TFLOP/s')")
    assert numbers(falling) == sorted(numbers(falling), reverse=True) and falling[-missing:] == [""] * missing
    click(page, "size")
    sizes = page.run(f"{COLUMN}('size')")
    assert list(dict.fromkeys(sizes)) == ["128×128×65536", "4096"]  # by what there is to do
    sorts = page.run(f"[...{LADDER}.querySelectorAll('th')].map((head) => head.ariaSort).filter(Boolean)")
    assert sorts == ["ascending"]
    page.run(f"{LADDER}.querySelector('.unfold').click()")
    assert len(page.run(f"{COLUMN}('size')")) == 40


def test_words_and_choices_filter(page):
    frame = store.read(store.PUBLISHED, "ladder")
    page.run(
        f"""(() => {{
        const search = {LADDER}.querySelector("input");
        search.value = "Thread tile".replace(" ", "_").toUpperCase();
        search.dispatchEvent(new Event("input"));
    }})()"""
    )
    expected = (frame["stage"] == "s07_thread_tile").sum()
    assert page.run(f"{COLUMN}('rung')") == ["s07_thread_tile"] * expected
    assert page.run(f"{LADDER}.querySelector('output').textContent") == f"{expected} of {len(frame)} rows"
    for label, value in (("dialect", "Gluon"), ("size", "4096")):
        page.run(
            f"""(() => {{
            const label = [...{LADDER}.querySelectorAll("label")].find((l) => l.textContent.startsWith("{label}"));
            label.control.value = "{value}";
            label.control.dispatchEvent(new Event("change"));
        }})()"""
        )
    assert page.run(f"{COLUMN}('dialect')") == ["Gluon"]
    assert page.run(f"{COLUMN}('size')") == ["4096"]


def test_the_theme_follows_the_system_and_the_buttons(page, published_report):
    ground = "getComputedStyle(document.body).backgroundColor"
    ink = "getComputedStyle(document.querySelector('#ladder svg text')).fill"
    green = "getComputedStyle(document.querySelector('#correctness svg [style*=\"fill:var(--x-\"]')).fill"
    light = page.run(f"[{ground}, {ink}, {green}]")
    page.run("document.querySelector('#theme-dark').click()")
    dark = page.run(f"[{ground}, {ink}, {green}]")
    assert all(one != other for one, other in zip(light, dark, strict=True))
    _open(page, published_report)
    assert page.run(f"[{ground}, {ink}, {green}]") == dark  # kept
    page.run("document.querySelector('#theme-auto').click()")
    assert page.run(f"[{ground}, {ink}, {green}]") == light
    page.prefer(dark=True)
    assert page.run(f"[{ground}, {ink}, {green}]") == dark
    page.run("document.querySelector('#theme-light').click()")
    assert page.run(f"[{ground}, {ink}, {green}]") == light


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_all_text_has_contrast(page, dark):
    page.prefer(dark)
    with unfolded(page):
        pairs, in_pictures = page.run(browser.PAIRS), page.run(browser.PAIRS_IN_PICTURES)
    assert len(pairs) > 8 and len(in_pictures) > 10
    assert browser.unreadable(pairs | in_pictures) == []


def test_it_fits_every_window(page):
    with unfolded(page):
        for width in (320, 768, 1100, 2200):
            page.size(width)
            assert page.run("[innerWidth, document.documentElement.scrollWidth]") == [width, width]
            assert page.run(OUTSIDE) == [], width


def test_sources_are_columns_on_a_desk_and_tabs_on_a_phone(page):
    files = """[...document.querySelectorAll("#s04_shared_tile .file")].filter((file) => file.checkVisibility())
        .map((file) => [file.className, Math.round(file.getBoundingClientRect().top)])"""
    with unfolded(page):
        desk = page.run(files)
        assert [name for name, _ in desk] == ["file cuda", "file triton", "file gluon"]
        assert len({top for _, top in desk}) == 1  # side by side
        page.size(390, 844)
        assert [name for name, _ in page.run(files)] == ["file cuda"]
        page.run("document.querySelector('#s04_shared_tile input[value=gluon]').click()")
        assert [name for name, _ in page.run(files)] == ["file gluon"]
        page.run("document.querySelector('#s04_shared_tile input[value=all]').click()")


def test_it_prints(page):
    data = page.pdf()
    assert data.startswith(b"%PDF")
    assert 3 < len(re.findall(rb"/Type\s*/Page\b", data)) < 40  # what is folded is not printed


def test_the_keyboard_switches_to_this_machine(page):
    shown = """["of-nvidia-h200", "of-cpu"].map((name) =>
        [...document.querySelectorAll(`.${name}`)].filter((part) => part.checkVisibility()).length)"""
    published, own = page.run(shown)
    assert published > len(STAGES) and own == 0
    banner = page.run("document.querySelector('.banner').innerText")
    assert "These speeds are of an NVIDIA H200" in banner and "1 of 1 checks" in banner
    page.run("document.querySelector('#device-nvidia-h200').focus()")
    page.press("ArrowRight", 39)
    published, own = page.run(shown)
    assert published == 0 and own > len(STAGES)
    assert "No rung was timed on this machine" in page.run("document.querySelector('#answer').innerText")
    page.run("location.hash = '#ladder'")  # a link into the other view brings it back
    page.run("new Promise(requestAnimationFrame)")
    assert page.run(shown)[1] == 0 and page.run("document.querySelector('#device-nvidia-h200').checked")


def test_nobody_was_asked_and_nothing_was_wrong(page, published_report):
    entries = page.run("performance.getEntriesByType('resource').map((entry) => entry.name)")
    assert all(name.startswith("data:") for name in entries), entries
    asked = {address for address in page.requests if not address.startswith("data:")}  # a plot's image is in the page
    assert asked == {published_report.resolve().as_uri()}
    assert page.problems == []
