"""Results on disk: a tidy CSV per experiment, one row per measurement, with `environment.json` beside them.

The `run` column of a row is a key of environment.json, which says on what machine, with what versions, at what
commit and when that row was measured. A rerun replaces the rows that it measured again and keeps the others with
their own key, so rows of two environments can stand in one file, but never unmarked.
"""

from __future__ import annotations

import contextlib
import contextvars
import csv
import io
import json
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path

import pandas as pd

from experiments.grouping import group_pairs
from experiments.records import studies
from experiments.records.environment import caption as caption_of
from experiments.records.request import UsageError
from experiments.records.rows import Row, TimedRow
from gemm_ref.build import CHECKOUT, write_whole

PUBLISHED = Path(__file__).resolve().parents[1] / "results" / "nvidia-h200"  # what the README shows
# Where machines have folders of their own: beside it in a checkout, else in the folder where one works.
RESULTS = PUBLISHED.parent if CHECKOUT else Path("results").resolve()
ENVIRONMENT = "environment.json"
CARD = "card.toml"  # of a published folder: `python -m experiments submit` writes it

_RECORD = {"date", "commit", "dirty", "device", "gpu"}  # what a caption cannot do without
_DETAIL_LENGTH = 500  # characters in a CSV cell: compilers print much more


_asked: contextvars.ContextVar[set[str] | None] = contextvars.ContextVar("asked", default=None)
_frames: contextvars.ContextVar[dict[Path, pd.DataFrame] | None] = contextvars.ContextVar("frames", default=None)


@contextlib.contextmanager
def recorded() -> Iterator[set[str]]:
    """Inside, the names of the experiments whose CSVs are asked for are collected, whether they are there or not."""
    names: set[str] = set()
    before = _asked.set(names)
    try:
        yield names
    finally:
        _asked.reset(before)


@contextlib.contextmanager
def unchanging() -> Iterator[None]:
    """Inside, each CSV is read and checked once, since nothing writes one meanwhile."""
    before = _frames.set({})
    try:
        yield
    finally:
        _frames.reset(before)


def csv_path(folder: Path, experiment: str) -> Path:
    if (names := _asked.get()) is not None:
        names.add(experiment)
    return folder / f"{experiment}.csv"


def short(detail: str) -> str:
    """Returns the message in one line that fits a cell; its beginning is cut, since the error stands at its end."""
    line = " ".join(detail.split())
    return line if len(line) <= _DETAIL_LENGTH else "…" + line[1 - _DETAIL_LENGTH :]


def holding(experiment: str) -> list[Path]:
    """Returns the machines' folders with rows of an experiment, including those that came with the package."""
    roots = dict.fromkeys((RESULTS, PUBLISHED.parent))
    return [path.parent for root in roots for path in sorted(root.glob(f"*/{experiment}.csv"))]


def published(root: Path = PUBLISHED.parent) -> list[Path]:
    """Returns the folders of published cards, that of the README first."""
    folders = (path.parent for path in root.glob(f"*/{CARD}"))
    return sorted(folders, key=lambda folder: (folder.name != PUBLISHED.name, folder.name))


def prepare(folder: Path) -> None:
    """Make sure that `save` will succeed, before anything is measured for it.

    Raises UsageError where the folder cannot be written, or where it holds files that rows cannot be merged into.
    """
    check_writable(folder)
    read_runs(folder)
    for experiment in studies.names():
        read(folder, experiment)


def check_writable(folder: Path, option: str = "--results") -> None:
    """Create the folder where it is missing. Raises UsageError if no file can be made in it; `option` names another."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=folder):
            pass
    except OSError as error:
        why = f"{folder} cannot be written: {error.strerror}"
        if isinstance(error, (FileExistsError, NotADirectoryError)):
            files = (place for place in (folder, *folder.parents) if place.exists() and not place.is_dir())
            why = next((f"{file} is a file, not a folder" for file in files), why)
        raise UsageError(f"{why}; pass another {option}") from error


def read(folder: Path, experiment: str) -> pd.DataFrame:
    """The rows of one experiment in file order; empty, with all columns, where there is no file.

    Rows of a study that is gone are still read; the types of its own columns are then inferred. Raises UsageError where
    the file is not one of this experiment, or not whole.
    """
    path, frames = csv_path(folder, experiment), _frames.get()
    if frames is None:
        return _read(path, experiment)
    if path not in frames:
        frames[path] = _read(path, experiment)
    return frames[path].copy()


def _read(path: Path, experiment: str) -> pd.DataFrame:
    row_type = studies.row_type(experiment) if experiment in studies.names() else TimedRow
    types = row_type.types()
    if not path.exists():
        return pd.DataFrame(columns=list(row_type.columns()))
    try:
        _check_whole(path)
        frame = pd.read_csv(path, dtype=types, na_values=[""], keep_default_na=False)
    except (OSError, ValueError, csv.Error) as error:  # pandas' own errors are ValueErrors
        raise _foreign(path, "results file of this experiment", str(error).strip()) from error
    if (line := _line_outside_its_interval(frame)) is not None:
        raise _foreign(path, "whole results file", f"line {line}: vs_cublas is outside vs_cublas_low to vs_cublas_high")
    missing = [name for name in row_type.columns() if name not in frame.columns]
    if missing and experiment in studies.names():
        raise _foreign(path, "results file of this experiment", f"no column {missing[0]}")
    return frame.fillna(dict.fromkeys(frame.select_dtypes(exclude="number").columns, ""))


def _line_outside_its_interval(frame: pd.DataFrame) -> int | None:
    """The line of the first row whose share of cuBLAS its own interval does not hold, which no measurement gives."""
    if not {"vs_cublas", "vs_cublas_low", "vs_cublas_high"} <= set(frame.columns):
        return None
    outside = (frame["vs_cublas"] < frame["vs_cublas_low"]) | (frame["vs_cublas"] > frame["vs_cublas_high"])
    return int(outside.idxmax()) + 2 if outside.any() else None


def _check_whole(path: Path) -> None:
    """Raise ValueError at the first line without a value for each column, which pandas would fill up with nothing."""
    with path.open(encoding="utf-8", newline="") as file:
        rows = csv.reader(file)
        columns = len(next(rows, ()))
        for row in rows:
            if row and len(row) != columns:
                raise ValueError(f"line {rows.line_num} is cut off or torn: it has {len(row)} values of {columns}")
        file.seek(0)
        if not file.read().endswith("\n"):
            raise ValueError(f"line {rows.line_num} is cut off: it has no end")


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


def caption(frame: pd.DataFrame, folder: Path) -> str:
    """Where and with what these rows were measured, in one line."""
    return caption_of(runs_of(frame, folder))


def save(
    folder: Path, experiment: str, rows: Iterable[Row], environment: dict, earlier: Mapping[str, dict] | None = None
) -> Path:
    """Merge `rows` into the experiment's CSV, with `environment` as theirs; return the CSV's path.

    A row that says its run already was measured in that one, whose environment is in `earlier` (run -> environment).
    Files are replaced whole, environment.json first, so no row ever refers to a run that is not there.
    """
    run, row_type = environment["date"], studies.row_type(experiment)
    records = [asdict(row) | {"run": row.run or run, "detail": short(row.detail)} for row in rows]
    new = pd.DataFrame(records, columns=list(row_type.columns()))
    merged = merge(read(folder, experiment), new, row_type.KEY)
    runs = read_runs(folder) | dict(earlier or {}) | {run: environment}
    _write_runs(folder, runs)
    return replace(folder, experiment, merged)


def replace(folder: Path, experiment: str, frame: pd.DataFrame) -> Path:
    """Make `frame` the rows of the experiment and forget runs that no row is of any more; return the CSV's path."""
    path, text = csv_path(folder, experiment), io.StringIO()
    frame.to_csv(text, index=False, float_format="%.6g", lineterminator="\n")
    write_whole(path, text.getvalue())
    there = [name for name in studies.names() if csv_path(folder, name).exists()]
    used = {key for name in there for key in read(folder, name)["run"]}
    _write_runs(folder, {key: value for key, value in read_runs(folder).items() if key in used})
    return path


def merge(old: pd.DataFrame, new: pd.DataFrame, key: tuple[str, ...]) -> pd.DataFrame:
    """Returns `old`, with rows replaced by those of `new` that have the same `key` columns, then the rest of `new`."""
    if old.empty or new.empty:
        return new if old.empty else old
    before, after = (
        group_pairs((tuple(row[name] for name in key), row) for row in frame.to_dict("records")) for frame in (old, new)
    )
    rows = [row for group in (before | after).values() for row in group]
    return pd.DataFrame(rows, columns=list(new.columns))


def _foreign(path: Path, what: str, why: str) -> UsageError:
    return UsageError(f"{path} is not a {what} ({why}): move it away or pass another --results")


def _write_runs(folder: Path, runs: dict[str, dict]) -> None:
    write_whole(folder / ENVIRONMENT, json.dumps(runs, indent=1, sort_keys=True) + "\n")
