"""The page of a checked kernel: all that the report has, escaped; in a real browser at two widths, in both themes."""

from __future__ import annotations

import json
import re
from dataclasses import fields, replace
from pathlib import Path

import pytest

from experiments.check import page, report
from experiments.check.faults import Fault, FaultKind
from experiments.check.messages import Advice, Limit, Note, Unchecked, Why, message
from experiments.check.page import FLAWED, picture, strips
from experiments.check.report import (
    LineTime,
    LineTraffic,
    MachineCode,
    Outcome,
    Predicted,
    Rank,
    Report,
    Run,
    Traffic,
    WarpRequest,
)
from experiments.check.sizes import Need
from gemm_ref import Problem
from tests.experiments.publish import browser

HOSTILE = "\"><script>alert(1)</script><!-- ' ${x} {{ 7 * 7 }} &amp;"
SOURCE = f"""// </code></pre></script><script>alert(2)</script> {HOSTILE} \x0b \x0c \u2028 \x1b[31m
__global__ void kernel(float* A, float* B, float* C, int M, int N, int K) {{
    {"a_very_long_name_" * 20} += A[0];
    C[0] = '\\n';
}}
"""
SLOW = LineTime("k.cu", 3, HOSTILE, 0.5, {HOSTILE: 0.25})
LONG = "word" * 60  # nothing in it where a line could be broken


def line(**about) -> LineTraffic:
    conflict = WarpRequest("STS", 4, tuple(128 * lane for lane in range(32)))
    one = Traffic(8, 4, 32)
    return replace(LineTraffic("k.cu", 3, "quoted", "shared", "store", "a", one, one, 1.0, conflict), **about)


@pytest.fixture
def full() -> Report:
    """A report with something in each of its parts, all of it hostile."""
    return Report(
        HOSTILE,
        f"/somewhere/{HOSTILE.replace('/', '|')}.cu",
        "cuda",
        HOSTILE + LONG,
        notes=[message(Note.HEADERS_REPLACED, headers=HOSTILE)],
        verdicts=[
            Run(5, 3, 2, "integers", Outcome.STOPPED, HOSTILE),
            Run(64, 96, 128, "integers", Outcome.RIGHT, "right"),
            Run(64, 96, 129, "integers", Outcome.WRONG, HOSTILE, decisive=False),
            Run(3, 96, 128, "integers", Outcome.OUTSIDE, "k.cu:3: ld: block out of bounds"),
            Run(7, 7, 7, "integers", Outcome.REFUSED, LONG),
            Run(64, 96, 128, "one_hot", Outcome.RIGHT, "right"),
        ],
        why=[message(Why.GRID_EXCHANGED, grid=HOSTILE), message(Why.PATTERN, part=LONG)],
        needs=[Need("k", 8, Problem(64, 96, 129))],
        faults=[Fault(FaultKind.RACE, HOSTILE, "k.cu", 3, HOSTILE, 4, HOSTILE, ("64x96x128",))],
        limits=[message(Limit.POWERS_OF_TWO, problem=HOSTILE)],
        counted_at="64x96x128",
        lines=[
            line(file="k.cu", array=HOSTILE),
            line(
                space="global",
                kind="load",
                request=WarpRequest("LDG", 2, tuple(64 * lane for lane in range(31)) + (None,)),
            ),
            line(request=None),
        ],
        advice=[message(Advice.NOT_COALESCED, places=HOSTILE)],
        code=[MachineCode(HOSTILE + LONG, "sm_90a", 30, 0, 0, 256, 8, 1.0, "threads", None)],
        predicted=Predicted(HOSTILE, "1x2x3", 2.0, 1.0, 3.0, 31.0, None, HOSTILE, 0.5, True, SLOW, [SLOW]),
        ranking=[Rank(HOSTILE, True, 1.0, 2.0, None, ""), Rank("s01", False, None, None, None, HOSTILE)],
        unchecked=[message(Unchecked.PLACE, reason=HOSTILE)],
        refusal=f"{HOSTILE}\n{HOSTILE}",
        seconds=1.5,
    )


@pytest.fixture
def html(full) -> str:
    file = Path(full.path).name
    full.faults = [replace(fault, file=file) for fault in full.faults]
    full.lines = [replace(one, file=file) for one in full.lines]
    return page.render(full, SOURCE)


def test_nothing_of_the_users_is_markup(html):
    assert "<script" not in html and "<!--" not in html and "{{ 7 * 7 }}" in html
    assert "&lt;/pre&gt;&lt;/script&gt;&lt;script&gt;alert" in html
    assert "http:" not in html and "https:" not in html and "url(" not in html


def test_all_parts_of_a_report_are_there(html):
    ids = set(re.findall(r'<section id="(\w+)"', html))
    assert ids >= {
        "sizes",
        "why",
        "faults",
        "limits",
        "memory",
        "advice",
        "code",
        "time",
        "ranking",
        "unchecked",
        "source",
    }
    for href in re.findall(r'href="#([^"]+)"', html):
        assert f'id="{href}"' in html, href


def test_the_map_has_every_run_and_marks_rights_with_a_fault(full):
    found = {strip.label: [(cell.text, cell.outcome) for cell in strip.cells] for strip in strips(full)}
    assert [cell.text for strip in strips(full) for cell in strip.cells if cell.base] == ["64", "128"]
    assert found == {
        "M": [("3", "out of bounds"), ("64", FLAWED)],
        "K": [("128", FLAWED), ("129", "wrong")],
        "M × N × K": [("5 × 3 × 2", "stopped"), ("7 × 7 × 7", "refused")],
        "one-hot": [("64 × 96 × 128", "right")],
    }


def test_lanes_are_drawn_against_banks_and_sectors(full):
    banks, sectors, nothing = (picture(one) for one in full.lines)
    assert banks.says.startswith("32 lanes ask 1 bank for 32 words of 4 bytes, which take 32 wavefronts")
    assert len({box.x for box in banks.boxes}) == 1 and len({box.share for box in banks.boxes}) == 32
    assert sectors.says == "31 lanes touch 31 sectors, of whose 992 bytes they use 62."
    assert len(sectors.gaps) == 30 and nothing is None
    vector = line(kind="load", request=WarpRequest("LDS.128", 16, tuple(16 * lane for lane in range(32))))
    assert "32 lanes ask 32 banks for 128 words of 4 bytes, which take 4 wavefronts" in picture(vector).says


def test_a_file_that_does_not_compile_is_shown_with_its_errors(tmp_path):
    refused = Report("k", "dir/k.cu", "", "", refusal='k.cu does not compile:\n/a/dir/k.cu(2): error: expected a ";"\n')
    assert refused.headline == "refused: k.cu does not compile" and refused.word.exit_code == 2
    shown = page.render(refused, "\n}\n")
    assert re.search(r'<span id="L2" class="at fault">.*?expected a &#34;;&#34;</a></span>', shown, re.S)
    assert "<section" not in page.render(refused)


@browser.needed
def test_it_can_be_read_at_any_width_in_both_themes(html, tmp_path):
    path = tmp_path / "check.html"
    path.write_text(html, encoding="utf-8")
    with browser.browser(tmp_path / "profile") as tab:
        for width in (390, 1400):
            for dark in (False, True):
                tab.open(path, width, dark=dark)
                assert tab.run("document.documentElement.scrollWidth") <= width
                assert not browser.unreadable(tab.run(browser.PAIRS))
        tab.run("document.querySelector('#theme-light').click()")
        assert tab.run("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        assert not tab.problems and set(tab.requests) == {path.resolve().as_uri()}


def test_the_document_names_every_field_and_option(invoke):
    text = (Path(__file__).resolve().parents[3] / "docs" / "check.md").read_text(encoding="utf-8")
    section = text.partition("## For programs")[2]
    for kind in (Report, Run, Need, Fault, LineTraffic, Traffic, WarpRequest, MachineCode, Predicted, LineTime, Rank):
        for field in fields(kind):
            assert f"`{report._NAMES.get(field.name, field.name)}`" in section, f"{kind.__name__}.{field.name}"
    assert f"| `format` | {report.FORMAT} |" in section
    assert all(f"`{word}`" in section for word in (*report.Word, *report.Outcome))


def test_terminal_json_and_page_say_the_same(invoke, tmp_path, monkeypatch):
    source = tmp_path / "<i>k&.cu"
    source.write_text(
        "__global__ void k(const float* A, const float* B, float* C, int M, int N, int K) { while (x); }\n"
    )
    monkeypatch.chdir(tmp_path)
    arguments = ("check", source.name, "--block", "1", "--grid", "1", "--device", "cpu")
    printed = invoke(*arguments, "--json", "--html", "out/check.html")
    found = json.loads(printed.stdout)
    assert printed.exit_code == found["exit_code"] == 2 and found["verdict"] == "refused"
    assert 'identifier "x" is undefined' in found["refusal"]
    text = Path("out/check.html").read_text(encoding="utf-8")
    assert "identifier &#34;x&#34; is undefined" in text and "<i>k" not in text
    assert "is a folder: --html" in invoke(*arguments, "--html", "out").said
