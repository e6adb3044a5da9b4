"""Results on disk: a tidy CSV an experiment, one row a measurement, with `environment.json` beside them.

The `run` column of a row is a key of environment.json, which says on what machine, with what versions, at what
commit and when that row was measured. A rerun replaces the rows that it measured again and keeps the others with
their own key, so rows of two environments can stand in one file, but never unmarked.
"""

from __future__ import annotations

import io
import json
import tempfile
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import pandas as pd

from experiments.contenders import Contender
from experiments.selection import EXPERIMENTS, UsageError
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
    detail: str = ""  # why it was skipped or how it failed, whole; the CSV keeps `short` of it
    run: str = ""  # key of environment.json; set when saved


COLUMNS = tuple(field.name for field in fields(Row))
KEY = ("experiment", "stage", "variant", "backend", "dialect", "math", "m", "n", "k", "inputs")
_TEXT = {field.name: str for field in fields(Row) if field.type == "str"}
_TYPES = {field.name: {"str": str, "int": "int64"}.get(field.type, "float64") for field in fields(Row)}
_RECORD = {"date", "commit", "dirty", "device", "gpu"}  # what a caption cannot do without
_DETAIL_LENGTH = 500  # compilers are talkative, and a CSV cell holds this


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


def short(detail: str) -> str:
    """A message in one line that fits a cell; what is cut is its beginning, as errors stand at the end."""
    line = " ".join(detail.split())
    return line if len(line) <= _DETAIL_LENGTH else "…" + line[1 - _DETAIL_LENGTH :]


def prepare(folder: Path) -> None:
    """Make sure that `save` will succeed, before anything is measured for it.

    Raises UsageError where the folder cannot be written, or where it holds files that rows cannot be merged into.
    """
    check_writable(folder)
    read_runs(folder)
    for experiment in EXPERIMENTS:
        read(folder, experiment)


def check_writable(folder: Path) -> None:
    """Create the folder where it is missing. Raises UsageError if no file can be made in it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise UsageError(f"{folder} cannot be written: {error.strerror}; pass another --results") from error


def read(folder: Path, experiment: str) -> pd.DataFrame:
    """The rows of one experiment in file order; empty, with all columns, where there is no file.

    Raises UsageError where the file is not one of this experiment.
    """
    path = csv_path(folder, experiment)
    if not path.exists():
        return pd.DataFrame(columns=list(COLUMNS))
    try:
        frame = pd.read_csv(path, dtype=_TYPES, na_values=[""], keep_default_na=False)
    except (OSError, ValueError) as error:  # pandas' own errors are ValueErrors
        raise _foreign(path, "results file of this experiment", str(error).strip()) from error
    missing = [name for name in COLUMNS if name not in frame.columns]
    if missing:
        raise _foreign(path, "results file of this experiment", f"no column {missing[0]}")
    return frame.fillna(dict.fromkeys(_TEXT, ""))


def read_runs(folder: Path) -> dict[str, dict]:
    """environment.json: run key -> environment; empty where there is no file. Raises UsageError for another file."""
    path = folder / ENVIRONMENT
    if not path.exists():
        return {}
    try:
        runs = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise _foreign(path, "record of environments", str(error)) from error
    if not isinstance(runs, dict) or not all(isinstance(run, dict) and run.keys() >= _RECORD for run in runs.values()):
        raise _foreign(path, "record of environments", "it does not map dates to environments")
    return runs


def runs_of(frame: pd.DataFrame, folder: Path) -> list[dict]:
    """The environments that these rows were measured in, oldest first."""
    runs = read_runs(folder)
    return [runs[key] for key in sorted(set(frame["run"])) if key in runs]


def save(folder: Path, experiment: str, rows: Iterable[Row], environment: dict) -> Path:
    """Merge `rows` into the experiment's CSV, with `environment` as theirs; return the CSV's path.

    Files are replaced whole, environment.json first, so no row ever refers to a run that is not there.
    """
    run = environment["date"]
    new = pd.DataFrame([asdict(row) | {"run": run, "detail": short(row.detail)} for row in rows], columns=list(COLUMNS))
    merged = merge(read(folder, experiment), new)
    runs = read_runs(folder) | {run: environment}
    _write_runs(folder, runs)
    path = csv_path(folder, experiment)
    text = io.StringIO()
    merged.to_csv(text, index=False, float_format="%.6g", lineterminator="\n")
    write_whole(path, text.getvalue())
    used = {key for name in EXPERIMENTS for key in read(folder, name)["run"]}
    _write_runs(folder, {key: value for key, value in runs.items() if key in used})
    return path


def merge(old: pd.DataFrame, new: pd.DataFrame) -> pd.DataFrame:
    """`old` with its rows replaced in place by those of `new` that have the same KEY, then the rest of `new`."""
    if old.empty or new.empty:
        return new if old.empty else old
    rows = {tuple(row[name] for name in KEY): row for row in old.to_dict("records")}
    rows |= {tuple(row[name] for name in KEY): row for row in new.to_dict("records")}
    return pd.DataFrame(list(rows.values()), columns=list(COLUMNS))


def _foreign(path: Path, what: str, why: str) -> UsageError:
    return UsageError(f"{path} is not a {what} ({why}): move it away or pass another --results")


def _write_runs(folder: Path, runs: dict[str, dict]) -> None:
    write_whole(folder / ENVIRONMENT, json.dumps(runs, indent=1, sort_keys=True) + "\n")
