"""README in its languages: the same numbers, code, commands and links, and what it shows is what happens."""

from __future__ import annotations

import dataclasses
import re

import pytest
import torch
import typer
from markdown_it import MarkdownIt

import gemm_ref
from cuda_kernels import gemm_of_ptx, source
from cuda_kernels.mutants import BARRIER, cuda_mutants
from experiments.cli import app
from experiments.publish.answer import LANGUAGES, words_of
from experiments.publish.docs import readme
from experiments.records.request import UsageError
from gemm_ref import STAGES
from tests.imports import ROOT

FILES = {"en": ROOT / "README.md", "zh": ROOT / "README.zh-CN.md"}
TEXTS = {language: path.read_text(encoding="utf-8") for language, path in FILES.items()}
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]
BOTH = pytest.mark.parametrize("language", LANGUAGES)


def alike(part):
    """What `part` finds in the text of each README is the same, and something."""
    found = [part(TEXTS[language]) for language in LANGUAGES]
    assert all(found) and found[0] == found[1]


def fences(text):
    """Fenced code without comments; of a line in columns the first."""
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [
        [re.split(r"  +", re.sub(r"\s+# .*", "", line) if kind else line)[0] for line in code.splitlines()]
        for kind, code in blocks
    ]


def rows(text):
    """The numbers and the code of every row of every table, and how many cells it has."""
    lines = re.findall(r"^\|.*\|$", text, re.MULTILINE)
    return [(re.findall(r"`[^`]+`|\d[\d.]*%?", line), line.count("|")) for line in lines]


def generated(text):
    return [name.split(".")[0] for name in re.findall(r"^<!-- (\S+):end -->$", text, re.MULTILINE)]


def targets(text):
    """What is linked or shown, without anchors; each README links the other."""
    found = re.findall(r"\]\(([^)#\s]+)|src=\"([^\"]+)\"", text)
    return {"README" if "README" in target else target for pair in found for target in pair if target}


def test_both_have_the_same_blocks_tables_code_and_links():
    for part in (generated, rows, fences, targets):
        alike(part)
    alike(lambda text: re.findall(r"^#+(?= )", text, re.MULTILINE))
    alike(lambda text: set(re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL))))


@BOTH
def test_it_renders(language):
    """Between a full-width mark and a letter CommonMark closes no emphasis, so each pair of ** must come out bold."""
    html = MarkdownIt("commonmark", {"html": True}).enable("table").render(TEXTS[language])
    assert "**" not in html and "<strong>" in html and "| --" not in html
    for target in re.findall(r'src="([^"]+)"', html):
        assert (ROOT / target).is_file(), target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_that_a_page_names_is_there(page):
    text = page.read_text(encoding="utf-8")
    commands = typer.main.get_command(app).commands
    targets_of_make = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    for name in re.findall(r"(?:python -m experiments|gemm-ladder)\s+([a-z]+)", text):
        assert name in commands, f"{page.name} names `python -m experiments {name}`"
    for name in re.findall(r"(?:^|[`(])make (?:[A-Z]+=\S+ )*([a-z]+)", text, re.MULTILINE):
        assert name in targets_of_make, f"{page.name} names `make {name}`"


def test_every_rung_has_its_idea_in_each_language():
    assert list(words_of("zh")["ideas"]) == list(STAGES)
    stage = dataclasses.replace(STAGES["s01_naive"], id="s99_new")
    assert readme.idea(stage, "en") == stage.idea
    with pytest.raises(UsageError, match="lacks the idea of s99_new"):
        readme.idea(stage, "zh")


def test_the_fault_that_it_shows_is_what_the_machine_says():
    """Registers are nvcc's to name, and addresses depend on what else is in memory: both are left out."""
    item = next(item for item in gemm_ref.implementations(("cuda",)) if item.stage.id == "s04_shared_tile")
    original = (source.FOLDER / f"{item.stage.id}.cu").read_text(encoding="utf-8")
    mutant = next(each for each in cuda_mutants(f"{item.stage.id}.cu", original) if each.kind == BARRIER)
    broken = gemm_of_ptx(item, source.compile_ptx(source.compose(item).replace(original, mutant.text), mutant.file)[0])
    with gemm_ref.ptx.watched(detectors := gemm_ref.ptx.Detectors()):
        broken(torch.randn(33, 257), torch.randn(257, 129))
    for text in TEXTS.values():
        assert plain(str(detectors.findings[0])) in plain(text)


def plain(message):
    return re.sub(r"%\w+|0x\w+", "-", " ".join(message.split()))
