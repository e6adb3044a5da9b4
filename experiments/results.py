"""Results on disk: a tidy CSV an experiment, one row a measurement, with `environment.json` beside them.

The `run` column of a row is a key of environment.json, which says on what machine, with what versions, at what
commit and when that row was measured. A rerun replaces the rows that it measured again and keeps the others with
their own key, so rows of two environments can stand in one file, but never unmarked.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import pandas as pd

from experiments.contenders import Contender
from gemm_ref.build import write_whole
from gemm_ref.problem import MATHS, Problem

RESULTS = Path(__file__).with_name("results")
PUBLISHED = RESULTS / "nvidia-h200"  # what the README shows
ENVIRONMENT = "environment.json"

PASS, FAIL, ERROR, SKIPPED = "pass", "fail", "error", "skipped"


@dataclass(frozen=True, kw_only=True)
class Row:
    """One measurement. Times are in microseconds; None is a value that was not measured."""

    experiment: str
    stage: str
    variant: str
    backend: str
    dialect: str
    math: str
    dtype: str
    m: int
    n: int
    k: int
    inputs: str = ""  # kind of the inputs, where the experiment tells them apart
    status: str = PASS
    median_us: float | None = None
    p20_us: float | None = None
    p80_us: float | None = None
    repeats: int | None = None
    tflops: float | None = None
    vs_cublas: float | None = None  # speed as a share of cuBLAS in the same rounds: the median, and
    vs_cublas_low: float | None = None  # its 95% interval
    vs_cublas_high: float | None = None
    rel_error: float | None = None
    bound_share: float | None = None  # largest |error| / allowed error; at most 1 when correct
    detail: str = ""  # why it was skipped or how it failed
    run: str = ""  # key of environment.json; set when saved


COLUMNS = tuple(field.name for field in fields(Row))
KEY = ("experiment", "stage", "variant", "backend", "dialect", "math", "m", "n", "k", "inputs")
_TEXT = {field.name: str for field in fields(Row) if field.type == "str"}


def row_for(experiment: str, contender: Contender, problem: Problem, **values: object) -> Row:
    """A row about one contender and one problem."""
    return Row(
        experiment=experiment,
        stage=contender.stage,
        variant=contender.variant,
        backend=contender.backend,
        dialect=contender.dialect,
        math=contender.math,
        dtype=str(MATHS[contender.math].dtype).removeprefix("torch."),
        m=problem.m,
        n=problem.n,
        k=problem.k,
        **values,
    )


def csv_path(folder: Path, experiment: str) -> Path:
    return folder / f"{experiment}.csv"


def read(folder: Path, experiment: str) -> pd.DataFrame:
    """The rows of one experiment in file order; empty, with all columns, where there is no file."""
    path = csv_path(folder, experiment)
    if not path.exists():
        return pd.DataFrame(columns=list(COLUMNS))
    frame = pd.read_csv(path, dtype=_TEXT, na_values=[""], keep_default_na=False)
    return frame.fillna(dict.fromkeys(_TEXT, ""))


def read_runs(folder: Path) -> dict[str, dict]:
    """environment.json: run key -> environment; empty where there is no file."""
    path = folder / ENVIRONMENT
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def runs_of(frame: pd.DataFrame, folder: Path) -> list[dict]:
    """The environments that these rows were measured in, oldest first."""
    runs = read_runs(folder)
    return [runs[key] for key in sorted(set(frame["run"])) if key in runs]


def save(folder: Path, experiment: str, rows: Iterable[Row], environment: dict) -> Path:
    """Merge `rows` into the experiment's CSV, with `environment` as theirs; return the CSV's path.

    Files are replaced whole, environment.json first, so no row ever refers to a run that is not there.
    """
    run = environment["date"]
    new = pd.DataFrame([asdict(row) | {"run": run} for row in rows], columns=list(COLUMNS))
    merged = merge(read(folder, experiment), new)
    runs = read_runs(folder) | {run: environment}
    _write_runs(folder, runs)
    path = csv_path(folder, experiment)
    text = io.StringIO()
    merged.to_csv(text, index=False, float_format="%.6g", lineterminator="\n")
    write_whole(path, text.getvalue())
    used = {key for file in folder.glob("*.csv") for key in read(folder, file.stem)["run"]}
    _write_runs(folder, {key: value for key, value in runs.items() if key in used})
    return path


def merge(old: pd.DataFrame, new: pd.DataFrame) -> pd.DataFrame:
    """`old` with its rows replaced in place by those of `new` that have the same KEY, then the rest of `new`."""
    if old.empty or new.empty:
        return new if old.empty else old
    rows = {tuple(row[name] for name in KEY): row for row in old.to_dict("records")}
    rows |= {tuple(row[name] for name in KEY): row for row in new.to_dict("records")}
    return pd.DataFrame(list(rows.values()), columns=list(COLUMNS))


def _write_runs(folder: Path, runs: dict[str, dict]) -> None:
    write_whole(folder / ENVIRONMENT, json.dumps(runs, indent=1, sort_keys=True) + "\n")
