"""What the page says of one machine's results: a view, of which the reader sees one at a time."""

from __future__ import annotations

import inspect
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pandas as pd

import gemm_ref
from experiments.publish.answer import Answer, read_answer
from experiments.publish.kernels import KernelCell, best_cell_of, cell_of
from experiments.publish.outcomes import describe_trust, outcome
from experiments.publish.reach import Mode
from experiments.publish.report.figures import Figure
from experiments.publish.report.rungs import tabulate_resources
from experiments.publish.report.tables import ResultTable, tabulate
from experiments.publish.table import PROSE, TEXT, Column, Table
from experiments.records import environment, frames, store, studies
from experiments.records.controls import explained
from experiments.records.rows import SKIPPED
from gemm_ref import DIALECTS, Rung

_LABELLED = re.compile(r"([A-Z][a-z]+): (.*)", re.DOTALL)
_RUN_FIELDS = {  # of environment.json -> the column's head
    **{"date": "run", "device": "device", "driver": "driver", "cuda": "CUDA", "torch": "torch", "triton": "Triton"},
    **{"numpy": "NumPy", "python": "Python", "os": "system", "commit": "commit"},
}


@dataclass(frozen=True)
class Section:
    """One experiment: what its docstring says, its plots and its rows."""

    name: str
    question: str
    paragraphs: dict[str, str]  # Expectation, Method, Run -> text
    outcome: str  # in sentences, from the rows
    figures: Sequence[Figure]
    results: ResultTable | None
    csv: str

    @property
    def title(self) -> str:
        """Its name in words."""
        return self.name.replace("_", " ").capitalize()


class View:
    """A folder of results, as the page needs it. Each CSV is read once."""

    def __init__(self, folder: Path, is_first: bool = True, is_own: bool = False) -> None:
        self.folder, self.is_own = folder, is_own
        self._rows: dict[str, pd.DataFrame] = {}
        self.slug = re.sub(r"[^a-z0-9]+", "-", folder.name.lower())
        self.prefix = "" if is_first else f"{self.slug}-"  # of its ids

    def rows(self, name: str) -> pd.DataFrame:
        """The rows of one experiment; empty where it has none here."""
        if name not in self._rows:
            self._rows[name] = store.read(self.folder, name)
        return self._rows[name]

    @cached_property
    def runs(self) -> dict[str, dict]:
        """environment.json."""
        return store.read_runs(self.folder)

    @cached_property
    def answer(self) -> Answer:
        """The fastest kernels, by math mode and dialect, and what is said of them."""
        return read_answer(self.folder)

    def modes(self, maths: Collection[str]) -> dict[str, Mode]:
        """Those of these math modes in which rungs were timed: their size and cuBLAS."""
        return {mode.math: mode for mode in reversed(self.answer.modes) if mode.math in maths}

    def best_cells(self, stage: Rung, math: str) -> dict[str, KernelCell]:
        """Each dialect's default variant of a rung in one math mode."""
        return {dialect: best_cell_of(self._at_size[math], stage, dialect) for dialect in DIALECTS}

    def cells(self, stage: Rung, math: str, variant: str, below: Rung | None) -> dict[str, KernelCell]:
        """One variant of a rung in each dialect, with its gain over the rung below."""
        return {dialect: cell_of(self._at_size[math], stage, variant, dialect, below) for dialect in DIALECTS}

    def checks(self, stage: Rung) -> dict[str, tuple[int, int]]:
        """By dialect that was checked: how many checks of the rung passed, of how many."""
        rows = self.checked[self.checked["stage"] == stage.id]
        return {str(dialect): frames.tally(own) for dialect, own in rows.groupby("dialect")}

    def resources(self, stage: Rung) -> ResultTable | None:
        """What the compilers made of each kernel of a rung."""
        return tabulate_resources(stage, self.rows("instructions"))

    @property
    def has_speeds(self) -> bool:
        """Whether rungs were timed, which takes a GPU."""
        return bool(self.answer.modes)

    @cached_property
    def _at_size(self) -> dict[str, pd.DataFrame]:
        """By math mode, the timed rows at the size of the tables."""
        return {math: frames.at_tables(self.folder, math) for math in gemm_ref.MATHS}

    @cached_property
    def checked(self) -> pd.DataFrame:
        """The rows of `correctness` that were not skipped."""
        rows = self.rows("correctness")
        return rows[rows["status"] != SKIPPED]

    @cached_property
    def _ladder_runs(self) -> list[dict]:
        """The runs that speak for the page: the ladder's, else all; others stand beside their plots."""
        return store.runs_of(self._at_size["fp32"], self.folder) or [self.runs[key] for key in sorted(self.runs)]

    @property
    def device(self) -> str:
        """What measured, by its name."""
        return self._ladder_runs[-1]["device"] if self._ladder_runs else "an unknown device"

    @property
    def caption(self) -> str:
        """Device, versions, commit and date."""
        return explained(environment.caption(self._ladder_runs), *(mode.size for mode in self.answer.modes))

    @property
    def trust(self) -> str:
        """How far its times can be trusted, in a sentence; empty where nothing was timed beside cuBLAS."""
        return describe_trust({name: self.rows(name) for name in studies.names()})

    def experiments(self) -> list[str]:
        """The names of those that have data here."""
        return [path.stem for path in sorted(self.folder.glob("*.csv"))]

    def describe(self, name: str, text: str, figures: Sequence[Figure]) -> Section:
        """One experiment; `text` is its docstring."""
        question, *paragraphs = [" ".join(part.split()) for part in inspect.cleandoc(text).split("\n\n")]
        labelled = [match.groups() if (match := _LABELLED.fullmatch(part)) else ("", part) for part in paragraphs]
        found: dict[str, list[str]] = {}
        for label, part in labelled:  # what has no label goes on with what came before
            found.setdefault(label or next(reversed(found), "Method"), []).append(part)
        rows = self.rows(name)
        return Section(
            name=name,
            question=question,
            paragraphs={label: "\n\n".join(parts) for label, parts in found.items()},
            outcome=outcome(name, rows),
            figures=figures,
            results=tabulate(rows),
            csv=store.csv_path(self.folder, name).name,
        )

    def tabulate_runs(self) -> Table:
        """environment.json as rows of texts, oldest first."""
        rows = []
        for run in (self.runs[key] for key in sorted(self.runs)):
            known = {**run, "commit": environment.commit_of(run), "driver": (run["gpu"] or {}).get("driver")}
            rows.append(tuple(str(known.get(name) or "") for name in _RUN_FIELDS))
        columns = [Column(name, head, PROSE if name == "os" else TEXT) for name, head in _RUN_FIELDS.items()]
        return Table(tuple(columns), tuple(rows))
