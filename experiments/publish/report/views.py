"""What the page says of one machine's results: a view, of which the reader sees one at a time."""

from __future__ import annotations

import inspect
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pandas as pd

import gemm_ref
from experiments.publish.answer import Answer, Best
from experiments.publish.outcomes import outcome, trust
from experiments.publish.report import tables
from experiments.publish.report.figures import Figure
from experiments.records import environment, frames, stats, store, studies
from experiments.records.controls import explained
from experiments.records.rows import SKIPPED

_LABELLED = re.compile(r"([A-Z][a-z]+): (.*)", re.DOTALL)
_RUN_FIELDS = ("date", "device", "cuda", "torch", "triton", "numpy", "python", "os", "commit")
_BESIDE = {
    stats.SAME: "level",
    stats.FASTER: "faster",
    stats.SLOWER: "slower",
    stats.UNSURE: "not told apart",
}


@dataclass(frozen=True)
class Section:
    """One experiment: what its docstring says, its plots and its rows."""

    name: str
    question: str
    paragraphs: dict[str, str]  # Expectation, Method, Run -> text
    outcome: str  # in sentences, from the rows
    figures: Sequence[Figure]
    table: tables.Table | None
    csv: str

    @property
    def title(self) -> str:
        """Its name in words."""
        return self.name.replace("_", " ").capitalize()


class View:
    """A folder of results, as the page needs it. What is asked for is read once."""

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
        return Answer(self.folder)

    @property
    def has_speeds(self) -> bool:
        """Whether rungs were timed, which takes a GPU."""
        return bool(self.answer.modes)

    @cached_property
    def at_size(self) -> dict[str, pd.DataFrame]:
        """By math mode, the timed rows at the size of the tables."""
        return {math: frames.at_tables(self.folder, math) for math in gemm_ref.MATHS}

    @cached_property
    def compiled(self) -> pd.DataFrame:
        """The rows of `instructions`, which knows registers, spills and occupancy."""
        return self.rows("instructions")

    @cached_property
    def checked(self) -> pd.DataFrame:
        """The rows of `correctness` that were not skipped."""
        rows = self.rows("correctness")
        return rows[rows["status"] != SKIPPED]

    @cached_property
    def _shown(self) -> list[dict]:
        """The ladder's own run speaks for the page; others, such as one that only compiled, beside their plots."""
        return store.runs_of(self.at_size["fp32"], self.folder) or [self.runs[key] for key in sorted(self.runs)]

    @property
    def device(self) -> str:
        """What measured, by its name."""
        return self._shown[-1]["device"] if self._shown else "an unknown device"

    @property
    def caption(self) -> str:
        """Device, versions, commit and date."""
        return explained(environment.caption(self._shown), *(mode.size for mode in self.answer.modes))

    @property
    def trust(self) -> str:
        """How far its times can be trusted, in a sentence; empty where nothing was timed beside cuBLAS."""
        return trust(self.rows(name) for name in studies.names())

    def experiments(self) -> list[str]:
        """The names of those that have data here."""
        return [path.stem for path in sorted(self.folder.glob("*.csv"))]

    def section(self, name: str, text: str, figures: Sequence[Figure]) -> Section:
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
            table=tables.table_of(rows),
            csv=store.csv_path(self.folder, name).name,
        )

    def environments(self) -> list[dict[str, str]]:
        """environment.json as rows of texts, oldest first."""
        rows = []
        for key in sorted(self.runs):
            run = self.runs[key]
            row = {name: str(run.get(name) or "") for name in _RUN_FIELDS}
            row["commit"] = environment.commit_of(run)
            row["driver"] = (run["gpu"] or {}).get("driver") or ""
            rows.append(row)
        return rows


def beside(best: Best) -> str:
    """The verdict on a dialect's fastest kernel beside CUDA's, in words."""
    return f"{best.differs}% {_BESIDE[best.beside_hand]}" if best.differs else _BESIDE[best.beside_hand]
