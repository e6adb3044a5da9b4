"""The page itself: what the template is given."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import jinja2
import pandas as pd
from markupsafe import Markup, escape

import gemm_ref
from experiments.documents import blocks
from experiments.plots.look import style
from experiments.records import environment, frames, store, workloads
from experiments.records.controls import Controls, explained
from experiments.records.rows import PASS, SKIPPED
from experiments.report import figures, rungs, tables
from gemm_ref import DIALECTS

_FOLDER = Path(__file__).resolve().parent
_LABELLED = re.compile(r"([A-Z][a-z]+): (.*)", re.DOTALL)
_RUN_FIELDS = ("date", "device", "cuda", "torch", "triton", "numpy", "python", "os", "commit")


@dataclass(frozen=True)
class Section:
    """One experiment: what its docstring says, its plots and its rows."""

    name: str
    question: str
    paragraphs: list[tuple[str, str]]  # (Expectation, Method, Run or nothing; text)
    figures: list[figures.Figure]
    table: tables.Table | None
    csv: str


@dataclass(frozen=True)
class Fact:
    """A number to open with, and what it counts."""

    value: str
    text: str


def render(folder: Path, questions: Mapping[str, str]) -> str:
    """The whole page about the results in `folder`; `questions` as for `make`."""
    at_size = frames.largest_cube(store.read(folder, "ladder"))
    sections = [
        _section(name, text, folder) for name, text in questions.items() if store.csv_path(folder, name).exists()
    ]
    runs = store.read_runs(folder)
    # The ladder's own run speaks for the page; others, such as one that only compiled, stand beside their plots.
    shown = store.runs_of(at_size, folder) or [runs[key] for key in sorted(runs)]
    found = rungs.rungs(at_size, folder)
    reference = at_size[at_size["backend"] == "cublas"]
    edge = str(workloads.LARGEST) if at_size.empty else f"{at_size['m'].iloc[0]}{Controls(at_size).mark()}"
    template = _environment().get_template("template.html.j2")
    return template.render(
        style=Markup(_file("style.css")),
        script=Markup(_file("page.js")),
        plot_colours=figures.variables(figure for section in sections for figure in section.figures),
        device=shown[-1]["device"] if shown else "an unknown device",
        caption=explained(environment.caption(shown), edge),
        edge=edge,
        measured=not at_size.empty,
        cublas="" if reference.empty else style.number(reference.iloc[0].tflops),
        facts=_facts(at_size, folder),
        sections=sections,
        rungs=found,
        dialects=DIALECTS,
        looks=style.LOOKS,
        runs=_runs(runs),
    )


def _section(name: str, text: str, folder: Path) -> Section:
    path = store.csv_path(folder, name)
    question, *paragraphs = [" ".join(part.split()) for part in inspect.cleandoc(text).split("\n\n")]
    return Section(
        name=name,
        question=question,
        paragraphs=[(m[1], m[2]) if (m := _LABELLED.fullmatch(text)) else ("", text) for text in paragraphs],
        figures=figures.figures(name, folder),
        table=tables.table_of(store.read(folder, name)),
        csv=path.name,
    )


def _facts(at_size: pd.DataFrame, folder: Path) -> list[Fact]:
    """What the ladder comes to, as far as the data say."""
    kernels = len(gemm_ref.implementations())
    facts = []
    own = at_size[at_size["dialect"] != ""].sort_values("median_us")
    if not own.empty:
        best = own.iloc[0]
        where = f"{DIALECTS[best.dialect].title}, at {best.m}"
        facts.append(Fact(f"{style.number(best.tflops)} TFLOP/s", f"the fastest fp32 kernel, {best.stage} in {where}"))
        if pd.notna(best.vs_cublas):
            low, high = (style.number(100 * value) for value in (best.vs_cublas_low, best.vs_cublas_high))
            facts.append(
                Fact(
                    f"{style.number(100 * best.vs_cublas)}%",
                    f"of cuBLAS in the same rounds; 95% interval {low} to {high}",
                )
            )
        first = blocks.default_row(at_size, next(iter(gemm_ref.STAGES.values())), best.dialect)
        if first is not None:
            times = style.number(first.median_us / best.median_us)
            facts.append(Fact(f"×{times}", f"over {first.stage}, also in {DIALECTS[best.dialect].title}"))
    checked = store.read(folder, "correctness")
    if not checked.empty:
        run = (checked["status"] != SKIPPED).sum()
        passed = (checked["status"] == PASS).sum()
        facts.append(Fact(f"{passed:,}", f"of {run:,} checks against the float64 oracle passed"))
    facts.append(Fact(f"{kernels}", f"kernels on {len(gemm_ref.STAGES)} rungs, in {len(DIALECTS)} dialects"))
    return facts


def _runs(runs: dict[str, dict]) -> list[dict[str, str]]:
    """environment.json as rows of texts, oldest first."""
    rows = []
    for key in sorted(runs):
        run = runs[key]
        row = {name: str(run.get(name) or "") for name in _RUN_FIELDS}
        row["commit"] = environment.commit_of(run)
        row["driver"] = (run["gpu"] or {}).get("driver") or ""
        rows.append(row)
    return rows


def _environment() -> jinja2.Environment:
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_FOLDER),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    made.filters["words"] = words
    return made


def words(text: str) -> Markup:
    """A docstring's text as HTML: what stands between backticks is code."""
    return Markup(re.sub(r"(`+)(.+?)\1", r"<code>\2</code>", str(escape(text))))


def _file(name: str) -> str:
    return (_FOLDER / name).read_text(encoding="utf-8")
