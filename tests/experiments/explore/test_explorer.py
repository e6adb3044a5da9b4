"""The explorer in a real browser: each kernel opens, fits, can be read, follows the keys, and says what its trace says.

Needs chromium (Debian: apt-get install chromium); elsewhere the tests are skipped, and in CI they fail.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from experiments.explore.page import TOUR, key, render
from experiments.explore.traces import Trace, gather_traces
from experiments.explore.traces.collection import first_modes
from experiments.publish.pages.coloured import TimedFile
from gemm_ref import DIALECTS, STAGES, Implementation
from gemm_ref.dialect import BY_HAND
from gemm_ref.ptx.core.events import Access, Observer, watched
from gemm_ref.ptx.text.dtypes import per_lane
from tests.experiments.publish import browser

pytestmark = browser.needed

MOST_BYTES = 5_000_000
# Twins whose pages differ: plain loads, layouts of their own, a ring of copies, TMA, and emulated operands.
SOME_TWINS = (
    *("s04-triton-default", "s05-triton-natural", "s09-gluon-two_blocks", "s12-gluon-wide", "s17-triton-default"),
    *("s18-gluon-group8", "s20-gluon-default"),
)
FRAME = "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"  # all is drawn then
# Open each fragment in turn; of each kernel what is wrong with it: too wide, or text that cannot be read.
LOOK = """(async (places) => {
    const wrong = [], pairs = {};
    for (const place of places) {
        delete document.body.dataset.shown;
        openPlace(place);
        while (document.body.dataset.shown !== place) await new Promise(requestAnimationFrame);
        const over = document.documentElement.scrollWidth - innerWidth;
        if (over > 0) wrong.push(`${place} is ${over} pixels too wide`);
        for (const canvas of document.querySelectorAll("canvas")) {
            const isEmpty = canvas.checkVisibility() && !(canvas.width && canvas.height);
            if (isEmpty) wrong.push(`${place}: nothing in ${canvas.id}`);
        }
        Object.assign(pairs, PAIRS);
    }
    return [wrong, pairs];
})""".replace("PAIRS", browser.PAIRS)
# Of each step with banks, the wavefronts that are drawn for warp 0 beside those that were counted.
DRAWN = """now.trace.steps.filter((step) => step.space === "shared" && !step.bulk && countOf(now.trace, step, 0)[0])
    .map((step) => [wavefrontsOf(requestOf(now.trace, step, 0), step.bytes, countOf(now.trace, step, 0)[0]).drawn,
        countOf(now.trace, step, 0)[0], step.kind])"""


TIMED = "s04-cuda-default"  # the kernel with a predicted time


def time_of(traces) -> TimedFile:
    """Shares of the lines of the first step of TIMED and of the line before."""
    trace = next(trace for trace in traces if key(trace) == TIMED)
    line = trace.operations[trace.steps.operation[0]].line
    shares = {line - 1: ("3%", "3% of the time"), line: ("44%", "44% of the time: 30% waiting")}
    return TimedFile("Predicted: soon.", shares)


@pytest.fixture(scope="module")
def traces() -> tuple[Trace, ...]:
    """Of every rung the best by hand, the variants that the tour goes to, and the twins of SOME_TWINS."""
    toured = {kernel for kernel, *_ in TOUR}
    by_hand = [best(item) for item in first_modes() if item.dialect == BY_HAND]
    shown = [item for item in first_modes() if place_of(item) in {*by_hand, *toured, *SOME_TWINS}]
    # one by one, so in this process: other cores have other tests to run
    found = [gather_traces([item]) for item in shown]
    assert not any(each.failures for each in found)
    return tuple(each.traces[0] for each in found)


@pytest.fixture(scope="module")
def page(traces, tmp_path_factory) -> Iterator[browser.Page]:
    """The explorer of all traces at a desk's width, in the light."""
    path = tmp_path_factory.mktemp("explorer") / "explorer.html"
    path.write_text(render(traces, times={TIMED: time_of(traces)}), encoding="utf-8")
    assert path.stat().st_size < MOST_BYTES
    with browser.browser(tmp_path_factory.mktemp("profile")) as page:
        page.open(path, 1400)
        yield page


def place_of(item: Implementation, variant: str = "") -> str:
    """The fragment of a kernel, or of another variant of it."""
    return f"{item.stage.id.split('_')[0]}-{item.dialect}-{variant or item.variant}"


def best(item: Implementation) -> str:
    """The fragment of the variant that the rung takes by default in a kernel's dialect."""
    return place_of(item, item.stage.find_variant("default", item.dialect))


def go(page, place: str) -> None:
    """Open a fragment, and wait until it is shown."""
    wrong, _ = page.run(f"{LOOK}(['#{place}'])")
    assert not wrong


def until(page, condition: str) -> None:
    """Wait until something is true in the page; AssertionError where it never is."""
    page.run(f"(async () => {{ while (!({condition})) await new Promise(requestAnimationFrame); }})()")


@pytest.mark.parametrize(("width", "dark"), [(390, False), (1400, True)], ids=["phone-light", "desk-dark"])
def test_every_rung_opens(page, traces, width, dark):
    page.size(width)
    page.prefer(dark)
    wrong, pairs = page.run(f"{LOOK}({[f'#{key(trace)}' for trace in traces]})")
    assert wrong == []
    assert len(pairs) > 8
    assert browser.unreadable(pairs) == []
    assert page.run("[...document.querySelectorAll('#rungs a')].length") == len(STAGES)


@pytest.mark.parametrize(
    ("place", "said", "shown"),
    [
        ("", "", "s04-cuda-default"),
        ("s13-gluon", "There is no s13 in Gluon: this is CUDA's.", "s13-cuda-default"),
        ("s13-gluon-line-1", "There is no s13 in Gluon: this is CUDA's.", "s13-cuda-default"),
        ("s05-cuda", "", "s05-cuda-padded"),  # its best variant
        ("s05_bank_conflict", "", "s05-cuda-padded"),
        (
            "s05-triton-conflicted",
            "There is no variant 'conflicted' of s05 in Triton: this is 'natural'.",
            "s05-triton-natural",
        ),
        ("s99-cuda", "There is no s99 here: this is s04 in CUDA.", "s04-cuda-default"),
        ("foo%", "No kernel is called 'foo%': this is s04 in CUDA.", "s04-cuda-default"),
        ("s04-cuda-line-1", "No step is at line 1.", "s04-cuda-default"),
        ("s04-cuda-step-99999", "There is no step 99999: the last is ", "s04-cuda-default"),
        ("s04%2Dcuda", "", "s04-cuda-default"),
    ],
)
def test_what_is_not_there_is_said(page, place, said, shown):
    go(page, "s02-cuda-default")
    until(page, "location.hash.startsWith('#s02-cuda-default')")
    page.run(f"location.hash = '{place}'")
    until(page, f"document.body.dataset.shown === '{place and '#' + place}'")
    told = page.run("document.querySelector('#instead').textContent")
    assert told.startswith(said) and bool(told) == bool(said)
    until(page, f"/^#{shown}(-|$)/.test(location.hash)")
    go(page, "s02-cuda-default")
    assert page.run("document.querySelector('#instead').textContent") == ""


def test_a_part_of_the_page_is_no_kernel(page):
    go(page, "s02-cuda-default")
    page.run("document.querySelector('.skip').click()")
    until(page, "location.hash.startsWith('#s02-cuda-default')")
    assert page.run("[now.kernel.key, document.querySelector('#instead').textContent]") == ["s02-cuda-default", ""]


def test_texts_in_pictures_can_be_read(page):
    """Each text on a coloured cell is black or white, whichever can be read there."""
    colours = page.run("""[false, true].flatMap((dark) => {
        const of = palette(dark), all = [];
        for (const array of ["A", "B", "C", ""]) for (const use of Object.values(USE))
            for (const shift of [-0.5, 0, 0.5]) all.push(of.element(array, use, shift));
        for (let n = 0; n < 32; n++) all.push(of.wavefront(n, 32), of.warp(n, false), of.warp(n, true));
        return all.map((rgb) => [readable(rgb) === "#000" ? "rgb(0, 0, 0)" : "rgb(255, 255, 255)", css(rgb)]);
    })""")
    assert len(colours) > 200
    assert min(browser.contrast(text, ground) for text, ground in colours) >= 4.5


def test_a_deep_link_opens_the_line(page, traces):
    trace = next(trace for trace in traces if key(trace) == "s09-cuda-two_blocks")
    lines = [trace.operations[number].line for number in trace.steps.operation]
    line = next(line for line in lines if lines.index(line) > 20)
    go(page, "s01-cuda")
    place = f"#s09-cuda-two_blocks-line-{line}"
    page.run(f"location.hash = '{place}'")
    until(page, f"document.body.dataset.shown === '{place}'")
    assert page.run("now.index") == lines.index(line)
    shown = page.run("[...document.querySelectorAll('#code .now')].map((line) => line.textContent.trim())")
    text = Path(__file__).resolve().parents[3].joinpath(trace.file).read_text(encoding="utf-8").splitlines()
    assert shown == [text[line - 1].strip()]
    assert page.run("""(() => {
        const pane = document.querySelector("#source pre").getBoundingClientRect();
        const line = document.querySelector("#code .now").getBoundingClientRect();
        return line.top >= pane.top && line.bottom <= pane.bottom;
    })()""")


def test_lines_have_their_shares_of_the_predicted_time(page, traces):
    time = time_of(traces)
    shown = "[document.querySelector('#time').textContent, [...document.querySelectorAll('[data-time]')].map(LINE)]"
    shown = shown.replace("LINE", "({ dataset, title }) => [Number(dataset.line), dataset.time, title]")
    go(page, TIMED)
    assert page.run(shown) == [time.says, [[line, *share] for line, share in time.lines.items()]]
    assert "predicted: 44% of the time: 30% waiting" in page.run("document.querySelector('#where').textContent")
    go(page, "s09-cuda-two_blocks")
    says, lines = page.run(shown)
    assert "run predicted --stage s09" in says and lines == []


def test_the_tour_leads_to_what_it_says(page):
    stops = page.run("[...document.querySelectorAll('.tour a')].map((link) => [link.hash.slice(1), link.textContent])")
    assert len(stops) == 10
    found = {}
    for place, text in stops:
        go(page, place)
        found[text] = page.run("document.querySelector('#cost').textContent")
    assert found["s01: 32 sectors"] == "32 sectors" and found["s02: 4 sectors"] == "4 sectors"
    assert found["s05: conflicted"] == found["transposed"] == "32 wavefronts"
    assert found["padded"] == found["swizzled"] == "1 wavefront"


def test_keys_move_the_step_and_the_thread(page):
    go(page, "s04-cuda-default")
    page.run("document.activeElement.blur()")
    for _ in range(3):
        page.press("ArrowRight", 39)
    page.press("ArrowLeft", 37)
    page.run("document.querySelector('#slider').focus()")
    page.press("ArrowRight", 39)
    page.run("document.querySelector('#matrices').focus()")
    for key_, code in (("ArrowDown", 40), ("ArrowDown", 40), ("ArrowRight", 39)):  # the first key shows where one is
        page.press(key_, code)
    page.run(FRAME)
    assert page.run("[now.index, now.thread]") == [3, 33]  # a row of C is a warp
    says = page.run("document.querySelector('#matrices-out').textContent")
    assert says == "C[33, 33]: block 3, warp 1, lane 1, thread 33."
    until(page, "location.hash.endsWith('-step-3-thread-33')")
    page.run("document.querySelector('#lanes').focus()")
    page.press("ArrowRight", 39)
    page.press("ArrowRight", 39)
    assert page.run("now.thread") == 33
    page.run("document.activeElement.blur()")


def test_pointing_tells_what_is_there(page):
    go(page, "s05-cuda-conflicted-line-56")
    said = {
        name: page.run(f"""(() => {{
            const canvas = document.querySelector("#{name}"), box = canvas.getBoundingClientRect();
            const at = {{ clientX: box.left + {x}, clientY: box.top + ({y}), bubbles: true }};
            canvas.dispatchEvent(new PointerEvent("pointermove", at));
            const said = document.querySelector("#{out}-out").textContent;
            canvas.dispatchEvent(new PointerEvent("pointerleave", at));
            return said;
        }})()""")
        for name, out, x, y in (
            ("matrices", "matrices", 1, "box.height - 4"),
            ("shared", "shared", 50, "box.height - 4"),
            ("request", "request", 50, 24),
        )
    }
    assert said["matrices"] == "A[63, 0]: in shared memory."
    # B is stored column by column there: its last word in the first bank is its last column's first
    assert said["shared"] == "Byte 8064, bank 0, b_smem: holds B[0, 63]; touched by 32 threads, 31 to 1023."
    assert said["request"] == "Lane 0 (thread 0): 4 bytes from byte 4096 on, bank 0: B[0, 32]."


def test_what_is_drawn_is_what_was_counted(page, traces):
    for trace in traces[::3]:
        go(page, key(trace))
        for drawn, counted, kind in page.run(DRAWN):
            # a cp.async takes more for the lines of global memory that it reads
            assert drawn == counted or (drawn < counted and kind == "async store"), key(trace)


class Seen(Observer):
    """Where a block's threads are, each time that a line accesses a space: bytes in the tensor or in shared memory.

    Minus one for a thread that takes no part.
    """

    def __init__(self, block: int, line: int, space: str) -> None:
        self.block, self.line, self.space = block, line, space
        self.places: list[np.ndarray] = []

    def on_access(self, access: Access) -> None:
        machine, here = access.machine, access.machine.block_of_lane == self.block
        takes_part = here if access.lanes is None else here & access.lanes
        if access.space != self.space or access.instruction.line != self.line or not takes_part.any():
            return
        places = per_lane(access.addresses, machine.lanes).astype(np.int64)
        at = int(places[takes_part][0])
        tensors = machine.memory.tensors if self.space == "global" else ()
        first = next((tensor.first for tensor in tensors if tensor.holds(at, at, access.size)), 0)
        self.places.append(np.where(takes_part, places - first, -1)[here])


@pytest.mark.parametrize("kernel", ["s05-cuda-swizzled", "s09-gluon-two_blocks", "s04-triton-default"])
@pytest.mark.parametrize("space", ["global", "shared"])
def test_a_lane_is_where_the_reference_gpu_has_it(page, traces, kernel, space):
    trace = next(trace for trace in traces if key(trace) == kernel)
    wanted = [step for step, number in enumerate(trace.steps.operation) if trace.operations[number].space == space]
    step = wanted[len(wanted) // 2]
    line = trace.operations[trace.steps.operation[step]].line
    seen = Seen(trace.block, line, space)
    a, b = torch.ones(trace.m, trace.k), torch.ones(trace.k, trace.n)
    package = importlib.import_module(DIALECTS[trace.dialect].package)
    with watched(seen):
        options = {} if trace.dialect == DIALECTS[trace.dialect].backend else {"dialect": trace.dialect}
        package.gemm(a, b, stage=trace.stage, variant=trace.variant, **options)
    same = [at for at in wanted if trace.operations[trace.steps.operation[at]].line == line]
    places = seen.places[same.index(step)]
    thread = 32 * 3 + 5
    go(page, f"{kernel}-step-{step}-thread-{thread}")
    page.run("document.querySelector('#lanes-table').open = true")
    page.run(FRAME)
    rows = page.run("""[...document.querySelectorAll("#lanes-body tr")]
        .map((row) => [...row.cells].slice(0, 3).map((cell) => Number(cell.textContent)))""")
    own = places[96:128]
    assert rows == [[lane, 96 + lane, int(own[lane])] for lane in range(32) if own[lane] >= 0]
    page.run("document.querySelector('#lanes-table').open = false")


def test_nobody_was_asked_and_nothing_was_wrong(page):
    assert {address.split("#")[0] for address in page.requests} == {page.run("location.href.split('#')[0]")}
    assert page.problems == []
