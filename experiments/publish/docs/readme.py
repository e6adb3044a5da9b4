"""The generated blocks of README.md and README.zh-CN.md: the answer, and the ladder in one table, in each language.

A block is called NAME.LANGUAGE. The ladder has a row for each rung, in the math mode that the registry names first. The
words of both are in readme.toml, and so is each rung's idea in other languages than the registry's.
"""

from __future__ import annotations

from pathlib import Path

import gemm_ref
from experiments.publish.answer import LANGUAGES, Answer, read_answer
from experiments.publish.kernels import best_cell_of
from experiments.publish.numbers import format_number
from experiments.publish.reach import words_of
from experiments.publish.table import Table
from experiments.publish.wording import docs_page
from experiments.records import environment, store
from experiments.records.controls import explained
from experiments.records.request import UsageError
from experiments.records.source_lines import lines_of
from gemm_ref import DIALECTS, Rung

# Block -> the README that has it
BLOCKS = {f"{kind}.en": "README.md" for kind in ("answer", "rungs")}
BLOCKS |= {f"{kind}.zh": "README.zh-CN.md" for kind in ("answer", "rungs")}


def block(name: str, published: Path) -> str:
    """The Markdown of one block. Raises UsageError for a rung whose idea has no words in the block's language."""
    kind, language = name.split(".")
    answer = read_answer(published)
    if kind == "answer":
        paragraphs = answer.paragraphs(language)
        return explained("\n\n".join(paragraphs), *paragraphs)
    return f"{_caption(answer, language, published)}\n\n{_tabulate(answer, language).to_markdown()}"


def check_ideas() -> None:
    """Raises UsageError for a rung whose idea has no words in one of the languages."""
    for language in LANGUAGES:
        for stage in gemm_ref.STAGES.values():
            idea(stage, language)


def idea(stage: Rung, language: str) -> str:
    """What a rung changes, in one line. Raises UsageError where readme.toml lacks it."""
    ideas = words_of(language).get("ideas")
    if ideas is None:
        return stage.idea
    if stage.id not in ideas:
        raise UsageError(f"readme.toml lacks the idea of {stage.id} in [{language}.ideas]: {stage.idea}")
    return ideas[stage.id]


def _tabulate(answer: Answer, language: str) -> Table:
    words = words_of(language)
    lines = []
    for stage in gemm_ref.STAGES.values():
        name = f"[`{stage.id}`](docs/{docs_page(stage)}#{stage.id})<br>{idea(stage, language)}"
        lines.append([name, stage.maths[0], *(_cell(answer, stage, dialect, words) for dialect in DIALECTS)])
    return Table.of([words["rung"], words["mode"], *(dialect.title for dialect in DIALECTS.values())], lines, 2)


def _cell(answer: Answer, stage: Rung, dialect: str, words: dict) -> str:
    """% of cuBLAS of the dialect's best variant, and its lines: its own and, where there are any, shared ones."""
    if dialect not in stage.dialects:
        return words["no_kernel"]
    cell = best_cell_of(answer.at_size(stage.maths[0]), stage, dialect)
    units = words_of("en")["units"].get(stage.id, {})  # where the compiler uses another than the rung is about
    share = (
        cell.share + (f" ({units[dialect]})" if dialect in units else "") if cell.has_share else words["not_measured"]
    )
    code = lines_of(stage.id, dialect)
    return f"{share}<br>{code.own_lines}" + (f"+{code.shared_lines}" if code.shared_lines else "")


def _caption(answer: Answer, language: str, published: Path) -> str:
    words = words_of(language)
    modes = {mode.math: mode for mode in reversed(answer.modes)}  # with B stored as the tables have it
    maths = dict.fromkeys(stage.maths[0] for stage in gemm_ref.STAGES.values())
    shown = [modes[math] for math in maths if math in modes]
    if not shown:
        return words["cells"]
    runs = [run for mode in shown for run in store.runs_of(answer.at_size(mode.math), published)]
    speeds = [words["speed"].format(mode=mode, tflops=format_number(mode.cublas_tflops)) for mode in shown]
    said = f"{words['cells']}{words['cublas'].format(speeds=words['comma'].join(speeds))}{environment.brief(runs)}"
    return explained(said, said)
