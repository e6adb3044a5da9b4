"""The report: it stands alone, has all that is in the data and the registry, and comes out the same each time."""

from __future__ import annotations

import base64
import html
import json
import re
import zlib
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from experiments import cli
from experiments.explore import page as explorer
from experiments.explore.traces import TraceSet, gather_traces
from experiments.explore.traces.collection import first_modes
from experiments.publish import report
from experiments.publish.compilers import compiler_findings
from experiments.publish.numbers import format_number, format_percent, format_precise
from experiments.publish.outcomes import in_order, outcome
from experiments.publish.report import page, rungs, tables
from experiments.publish.wording import docs_page
from experiments.records import store, studies
from experiments.records.request import UsageError
from experiments.records.rows import FAIL
from experiments.records.source_lines import kernel_file
from experiments.records.studies import questions
from gemm_ref import DIALECTS, STAGES
from tests.experiments.fixtures import ENVIRONMENT, checked_row, ladder_rows
from tests.imports import ROOT

MOST_BYTES = 4_300_000  # of all pictures of two cards; a tenth of a second on a disk
VOID = {"meta", "input", "link", "br", "img"}
ENDED_BY_THE_NEXT = {"td", "tr"}  # HTML allows to leave their end out


class Reader(HTMLParser):
    """What a page refers to, its ids, its texts by element, and whether its elements nest."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.ids: list[str] = []
        self.targets: list[str] = []
        self.tags: dict[str, int] = {}
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag, attributes):
        if tag not in VOID:
            self.open.append(tag)
        self.handle_startendtag(tag, attributes)

    def handle_startendtag(self, tag, attributes):
        self.tags[tag] = self.tags.get(tag, 0) + 1
        for name, value in attributes:
            assert not name.startswith("on"), f"{name} on {tag}"
            if name == "id":
                self.ids.append(value)
            elif name in ("src", "href", "srcset", "action", "data", "poster", "xlink:href"):
                self.targets.append(value)

    def handle_endtag(self, tag):
        while self.open[-1] in ENDED_BY_THE_NEXT and self.open[-1] != tag:
            self.open.pop()
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """The report of fixture data, some of which failed, with texts that HTML would read as its own."""
    folder = tmp_path_factory.mktemp("report")
    store.save(folder, "ladder", ladder_rows((2048, 4096)), ENVIRONMENT)
    failed = checked_row(status=FAIL, detail="<script>alert('& wrong')</script>")
    store.save(folder, "correctness", [failed], ENVIRONMENT)
    return report.make([folder], folder / "report.html", questions())


@pytest.fixture(params=["made", "published_report"])
def text(request) -> str:
    return request.getfixturevalue(request.param).read_text(encoding="utf-8")


def section_of(text: str, name: str) -> str:
    """The HTML of the section with this id."""
    begin = text.index(f'<section id="{name}"')
    return text[begin : text.index("</section>", begin)]


def rung_of(text: str, name: str) -> str:
    """The HTML of a rung, whose parts fold too."""
    begin = text.index(f'<details class="rung" id="{name}"')
    ends = (text.find(end, begin + 1) for end in ('<details class="rung"', "</section>"))
    return text[begin : min(end for end in ends if end >= 0)]


def unpacked(markup: str) -> dict:
    """The content of the first table in it."""
    data = re.search(r'<script type="application/octet-stream">([^<]*)</script>', markup)[1]
    return json.loads(zlib.decompress(base64.b64decode(data), wbits=-zlib.MAX_WBITS))


def seen(markup: str) -> str:
    """What a reader sees of it."""
    return html.unescape(re.sub(r"<[^>]*>", "", markup))


def test_it_stands_alone_and_every_link_arrives(text):
    assert len(text.encode()) <= MOST_BYTES
    reader = Reader(text)
    assert all(target.startswith(("#", "data:")) for target in reader.targets), reader.targets
    targets = set(reader.targets) | {f"#{name}" for name in re.findall(r"url\(#([^)]+)\)", text)}
    assert {target[1:] for target in targets if target.startswith("#")} <= set(reader.ids)
    assert len(reader.ids) == len(set(reader.ids))
    assert not re.search(r"url\(\s*['\"]?(?!#)|@import|\bfetch\(|XMLHttpRequest|<link|<iframe", text)
    assert "default-src 'none'" in text  # the browser itself refuses what the tests do not see
    assert "http://" not in text and "https://" not in text
    assert set(re.findall(r"var\((--[\w-]+)\)", text)) <= set(re.findall(r"(--[\w-]+):", text))  # colours have values


def test_every_rung_has_its_sources_word_for_word(text):
    for stage in STAGES.values():
        section = rung_of(text, stage.id)
        codes = re.findall(r"<pre[^>]*><code>(.*?)</code></pre>", section, re.DOTALL)
        paths = re.findall(r'<p class="path">(?:<b>\w+</b>|Its kernel:) <code>([^<]+)</code>', section)
        files = [(ROOT / path).read_text(encoding="utf-8") for path in paths]
        assert [seen(code) for code in codes] == files
        own = {DIALECTS[dialect].file_of(stage.id) for dialect in stage.dialects}
        assert set(paths) == own | {kernel_file(stage.id, dialect) for dialect in stage.dialects}
        for finding in compiler_findings(stage).values():
            assert finding.replace("`", "") in seen(section)


@pytest.mark.parametrize("which", ["made", "published_report"])
def test_every_experiment_with_data_is_there_in_order(which, request):
    path = request.getfixturevalue(which)
    text, folder = path.read_text(encoding="utf-8"), path.parent if which == "made" else store.PUBLISHED
    there = in_order(name for name in studies.names() if store.csv_path(folder, name).exists())
    assert there[0] == "ladder" and "correctness" in there
    assert re.findall(r'<section id="(\w+)" class="experiment">', text) == there
    for name in there:
        section = section_of(text, name)
        assert f"<code>{name}.csv</code>" in section
        assert "<svg" in section and "Expectation" in section
        assert outcome(name, store.read(folder, name)).replace("`", "") in seen(section)


def test_numbers_are_those_of_the_csv(published_report):
    text = published_report.read_text(encoding="utf-8")
    frame = store.read(store.PUBLISHED, "ladder")
    table = unpacked(section_of(text, "ladder"))
    assert len(table["rows"]) == len(frame)
    row = frame[(frame["stage"] == "s04_shared_tile") & (frame["dialect"] == "cuda") & (frame["m"] == 4096)].iloc[0]
    names = [column["name"] for column in table["columns"]]
    rows = [dict(zip(names, cells, strict=True)) for cells in table["rows"]]
    asked = {"stage": "s04_shared_tile", "dialect": "CUDA", "size": "4096"}
    (shown,) = [cells for cells in rows if cells.items() >= asked.items()]
    for name in ("median_us", "tflops", "vs_cublas"):
        assert shown[name] == format_precise(getattr(row, name))
    section = seen(rung_of(text, "s04_shared_tile"))
    assert format_number(row.tflops) in section and format_percent(row.vs_cublas) in section


def test_a_failure_is_told_and_what_it_says_is_escaped(made):
    text = made.read_text(encoding="utf-8")
    assert "<script>alert" not in text
    assert "<script>alert('& wrong')</script>" in unpacked(section_of(text, "correctness"))["rows"][0]
    assert "0 of 1 checks against the float64 oracle passed" in text
    assert "1 of 1 failed" in text  # in the plot


def test_pages_of_docs_are_linked_within_a_checkout(tmp_path):
    templates = (Path(page.__file__).parent / "templates").glob("*.j2")
    named = {name for path in templates for name in re.findall(r'"([\w.]+\.md)" \| doc', path.read_text())}
    named |= {f"{docs_page(stage)}#{stage.id}" for stage in STAGES.values()}
    named |= {name for text in questions().values() for name in re.findall(r"docs/(\w+\.md)", text)}
    assert len(named) > len(STAGES) + 2
    for name in named:
        file, _, place = name.partition("#")
        link = re.search(r'href="([^"]+)"', page.link_docs(name, ROOT / "some" / "where" / "report.html"))[1]
        document = ROOT / "some" / "where" / link.split("#")[0]
        assert document.resolve() == ROOT / "docs" / file
        assert not place or re.search(rf"^#+ `?{place}\b", document.resolve().read_text(), re.MULTILINE), name
        assert page.link_docs(name, tmp_path / "report.html") == f"<code>docs/{file}</code>"


def test_tables_say_once_what_is_the_same():
    frame = pd.DataFrame(
        {
            "experiment": "x",
            "stage": ["a", "b"],
            "dialect": ["cuda", ""],
            "math": "fp32",
            "m": [8, 2],
            "n": [8, 3],
            "k": [8, 4],
            "sm_mhz": [1980.0, 1234.5678],
            "empty": np.nan,
            "median_us": [1.0, 2.5],
        }
    )
    results = tables.tabulate(frame)
    assert [column.label for column in results.table.columns] == ["rung", "dialect", "size", "SM, MHz", "median, µs"]
    assert results.table.rows == (("a", "CUDA", "8", "1980", "1.000"), ("b", "", "2×3×4", "1235", "2.500"))
    assert results.constants == (("math", "fp32"),)
    assert tables.tabulate(frame.iloc[:0]) is None


def test_of_many_candidates_the_chosen_and_the_fastest_are_shown():
    each = pd.DataFrame({"dialect": "cuda", "variant": range(1500), "chosen": 0, "median_us": np.linspace(9, 2, 1500)})
    each.loc[7, "chosen"] = 1
    each.loc[8, "median_us"] = np.nan
    library = pd.DataFrame({"dialect": [""], "variant": [-1], "chosen": [0], "median_us": [1.0]})
    problems = [pd.concat([each, library]).assign(m=m, n=4, k=4, math="fp32") for m in (4, 8)]
    results = tables.tabulate(pd.concat(problems, ignore_index=True))
    variants = [row[[column.name for column in results.table.columns].index("variant")] for row in results.table.rows]
    assert variants == ["7", "8", "1499", "-1"] * 2
    assert results.summed == 3002 and results.shown == "what was chosen, and the fastest"


def test_many_rows_without_times_are_summed_up_a_kernel():
    frame = pd.DataFrame({"stage": "a", "variant": "default", "dialect": ["cuda", "triton"] * 1500})
    frame = frame.assign(status=["fail"] + ["pass"] * 2999, bound_share=np.linspace(0, 0.5, 3000), rel_error=np.nan)
    results = tables.tabulate(frame)
    names = [column.name for column in results.table.columns]
    assert names == ["stage", "dialect", "rows", "passed", "failed", "largest_bound_share"] and results.summed == 3000
    assert results.table.rows[0] == ("a", "CUDA", "1500", "1499", "1", "0.4998")
    assert results.table.rows[1][2:5] == ("1500", "1500", "0")


def test_resources_are_shown_where_there_are_some():
    known = {"variant": "default", "dialect": "cuda", "arch": "sm_90", "spill_bytes": 0, "occupancy": 1.0, "more": 1.0}
    rows = [
        {"stage": stage, "registers": count, **known} for stage, count in (("s04_shared_tile", 32), ("s01_naive", 16))
    ]
    table = rungs.tabulate_resources(STAGES["s04_shared_tile"], pd.DataFrame(rows)).table
    assert [column.name for column in table.columns] == ["dialect", "arch", "registers", "spill_bytes", "occupancy"]
    assert table.rows == (("CUDA", "sm_90", "32", "0", "1"),)
    assert rungs.tabulate_resources(STAGES["s01_naive"], pd.DataFrame()) is None


def test_the_command_gives_the_same_bytes_for_the_same_data(tmp_path, made, monkeypatch):
    assert ENVIRONMENT["date"][:10] in made.read_text(encoding="utf-8")
    monkeypatch.setattr(cli.out, "width", 200)
    naive, second = first_modes()[0], str(first_modes()[1])
    traced = TraceSet(gather_traces([naive]).traces, {second: "nvcc was not found"})
    monkeypatch.setattr("experiments.explore.traces.gather_traces", lambda bars: traced)
    monkeypatch.setattr("experiments.explore.times.gather_times", lambda items, bars: {})
    target = tmp_path / "deep" / "page.html"
    done = CliRunner().invoke(cli.app, ["report", "--results", str(made.parent), "--output", str(target)])
    assert done.exit_code == 0 and str(target) in done.output
    assert str(target.parent / report.EXPLORER) in done.output
    assert f"the explorer does not show 1 kernels, {second} for one: nvcc was not found" in done.output
    text = target.read_text(encoding="utf-8")
    assert re.findall(r'href="(explorer.html[^"]*)"', text) == ["explorer.html", f"explorer.html#{naive.stage.id[:3]}"]
    assert re.sub(r" *(<li>|<p>)<a href=.explorer.*\n", "\n", text) == made.read_text(encoding="utf-8")
    assert (target.parent / report.EXPLORER).read_text(encoding="utf-8") == explorer.render(traced.traces, "page.html")
    done = CliRunner().invoke(cli.app, ["report", "--results", str(tmp_path / "nothing")])
    assert done.exit_code == 2 and not (tmp_path / "nothing").exists()


def test_the_view_with_speeds_comes_first(tmp_path):
    own, published = tmp_path / "cpu", tmp_path / "published" / "nvidia-fixture"
    store.save(published, "ladder", ladder_rows((1024,)), ENVIRONMENT)
    assert report.choose(own, published) == [published]
    store.save(own, "correctness", [checked_row()], ENVIRONMENT)
    assert report.choose(own, published) == [published, own]
    store.save(own, "ladder", ladder_rows((1024,)), ENVIRONMENT)
    assert report.choose(own, published) == [own, published]
    with pytest.raises(UsageError, match="is a folder"):
        report.make([own], own, questions())
    with pytest.raises(UsageError, match="explorer.html is the name of the page beside it: pass another --output"):
        report.make([own], own / report.EXPLORER, questions())
    with pytest.raises(UsageError, match="ladder.csv is a file, not a folder; pass another --output"):
        report.make([own], own / "ladder.csv" / "page.html", questions())
    with pytest.raises(UsageError, match="no data"):
        report.make([tmp_path], tmp_path / "report.html", questions())
