"""The requirements on a published folder of results: each unmet one is a shortfall, with advice on how to meet it.

A test holds every published folder to them. A shortfall that a card or its history cannot mend is excused by a reason
in the folder's `card.toml`, where readers find it; data that would be false is never excused.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from experiments.bench import datasheets, floor
from experiments.records import frames, store, studies
from experiments.records.request import UsageError
from experiments.records.rows import ERROR, FAIL, PASS, TimedRow
from experiments.records.store import CARD
from gemm_ref.problem import Problem

SAME_SHARE = 0.95  # of the rows that time cuBLAS against itself
_VERSIONS = ("python", "torch", "triton", "numpy", "nvcc", "cuda")
_PICTURES = (".png", ".svg")
_PAGES = ("report.html", "explorer.html")  # which `submit` leaves behind, as .gitignore does


@dataclass(frozen=True)
class Shortfall:
    """A requirement on a published folder that this folder does not meet."""

    name: str  # under which `card.toml` excuses it
    finding: str
    advice: str
    excusable: bool = True


def find_shortfalls(folder: Path) -> list[Shortfall]:
    """Returns every unmet requirement, excused or not. Raises UsageError if the folder holds no results of a GPU."""
    if not folder.is_dir():
        raise UsageError(f"{folder} is no folder: name one that `python -m experiments run` wrote")
    runs = store.read_runs(folder)
    if not any(run["gpu"] for run in runs.values()):
        raise UsageError(f"{folder} has no results of a GPU: `make PRESET=full experiments` on one measures them")
    shortfalls = [*_files(folder)]
    found: dict[str, pd.DataFrame] = {}
    for name in studies.names():
        try:
            found[name] = store.read(folder, name)
        except UsageError as error:
            again = f"measure it again: `python -m experiments run {name} --preset full`, with the file moved away"
            shortfalls.append(Shortfall(f"columns-{name}", str(error), again, excusable=False))
            continue
        if foreign := sorted(set(found[name].columns) - set(studies.row_type(name).columns())):
            said = f"{name}.csv has columns of another version: {', '.join(foreign)}"
            shortfalls.append(Shortfall(f"columns-{name}", said, f"run {name} again", excusable=False))
    shortfalls += _experiments(found)
    used = {key: runs[key] for frame in found.values() for key in frame["run"] if key in runs}
    shortfalls += [*_runs(found, runs), *_code(used), *_machine(folder, used)]
    return shortfalls + [*_failures(found), *_controls(found), *_too_fast(found, runs)]


def read_excuses(folder: Path) -> dict[str, str]:
    """Returns the name of each excused shortfall with its reason; empty without a `card.toml`. Raises UsageError."""
    path = folder / CARD
    try:
        excused = tomllib.loads(path.read_text(encoding="utf-8")).get("excused", {}) if path.exists() else {}
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} cannot be read: {error}") from error
    if not all(isinstance(why, str) and why.strip() for why in excused.values()):
        raise UsageError(f"{path}: each line below [excused] is a name and a reason, as in {_EXAMPLE}")
    return excused


_EXAMPLE = 'commits = "measured over two days"'


def open_shortfalls(folder: Path, more: Mapping[str, str] | None = None) -> tuple[list[Shortfall], list[str]]:
    """Returns the shortfalls without an excuse, and the excuses that no shortfall needs.

    more: excuses beyond those in the folder.

    Raises UsageError as `find_shortfalls` and `read_excuses` do.
    """
    excused, shortfalls = read_excuses(folder) | dict(more or {}), find_shortfalls(folder)
    left = [shortfall for shortfall in shortfalls if shortfall.name not in excused or not shortfall.excusable]
    return left, [name for name in excused if name not in {shortfall.name for shortfall in shortfalls}]


def _files(folder: Path) -> Iterator[Shortfall]:
    known = {store.ENVIRONMENT, CARD, *_PAGES, *(f"{name}.csv" for name in studies.names())}
    others = sorted(path.name for path in folder.iterdir() if path.name not in known and path.suffix not in _PICTURES)
    if others:
        yield Shortfall("files", f"{', '.join(others)}: no results", "move them elsewhere", excusable=False)


def _experiments(found: Mapping[str, pd.DataFrame]) -> Iterator[Shortfall]:
    for name, frame in found.items():
        if not (frame["status"] == PASS).any():
            again = f"`python -m experiments run {name} --preset full`"
            yield Shortfall(f"experiment-{name}", f"{name} has no row that passed", f"run it: {again}")


def _runs(found: Mapping[str, pd.DataFrame], runs: Mapping[str, dict]) -> Iterator[Shortfall]:
    lost = {key for frame in found.values() for key in frame["run"] if key not in runs}
    if lost:
        said = f"rows name runs that {store.ENVIRONMENT} does not have: {', '.join(sorted(lost))}"
        yield Shortfall("runs", said, "measure these rows again", excusable=False)
    for name, frame in found.items():
        of_cpu = [key for key in set(frame["run"]) if key in runs and not runs[key]["gpu"]]
        if (
            of_cpu
            and issubclass(studies.row_type(name), TimedRow)
            and frame.loc[frame["run"].isin(of_cpu), "mode"].any()
        ):
            again = f"`python -m experiments run {name} --device cuda`"
            yield Shortfall(
                "device", f"{name} has times of a machine without a GPU", f"run it: {again}", excusable=False
            )


def _code(runs: Mapping[str, dict]) -> Iterator[Shortfall]:
    """Requires that all runs are of one commit, without local changes."""
    commits = {run["commit"] for run in runs.values()}
    if None in commits or len(commits) > 1:
        names = ", ".join(sorted(str(commit)[:10] for commit in commits))
        advice = "measure all at one commit: `python -m experiments run --preset full --fresh`"
        yield Shortfall("commits", f"{len(commits)} commits: {names}", advice)
    dirty = {key: run for key, run in runs.items() if run["dirty"]}
    if dirty:
        files = sorted({run["changes"] for run in dirty.values() if run.get("changes")})
        said = f"{len(dirty)} of {len(runs)} runs had local changes{': ' + '; '.join(files) if files else ''}"
        yield Shortfall("changes", said, "commit or undo them, then measure again")
    unknown = [run.get("changes") or "unknown" for run in runs.values() if run["dirty"] is None]
    if unknown:
        said = f"whether {len(unknown)} of {len(runs)} runs had local changes is {sorted(set(unknown))[0]}"
        advice = "measure in a git checkout, or with GEMM_LADDER_COMMIT and GEMM_LADDER_DIRTY=0 (docs/method.md)"
        yield Shortfall("unknown-changes", said, advice)


def _machine(folder: Path, runs: Mapping[str, dict]) -> Iterator[Shortfall]:
    cards = [run for run in runs.values() if run["gpu"]]
    names = {run["device"]: run["slug"] for run in cards}
    if set(names.values()) != {folder.name}:
        said = f"{folder.name} has results of {', '.join(sorted(names)) or 'no card'}"
        advice = "a folder is of one card, by its name: " + " and ".join(sorted(set(names.values())))
        yield Shortfall("device", said, advice, excusable=False)
    for key in (*_VERSIONS, "driver"):
        values = {run["gpu"].get("driver") if key == "driver" else run.get(key) for run in cards}
        if None in values:
            yield Shortfall(
                f"version-{key}", f"a run does not say which {key} it had", "`python -m experiments doctor`"
            )
        elif len(values) > 1:
            said = f"several versions of {key}: {', '.join(sorted(map(str, values)))}"
            yield Shortfall(f"version-{key}", said, "measure all with one of them")
    for device in names:
        if datasheets.find(device) is None:
            advice = "add what its vendor says to experiments/bench/datasheets.toml, with the source"
            yield Shortfall("datasheet", f"the datasheet of {device} is not known, so no roof of memory", advice)


def _failures(found: Mapping[str, pd.DataFrame]) -> Iterator[Shortfall]:
    for name, frame in found.items():
        failed = frame[frame["status"].isin((FAIL, ERROR))]
        for row in failed.head(1).itertuples():
            said = f"{len(failed)} rows of {name} failed, {row.stage} {row.dialect} {row.math} for one: {row.detail}"
            yield Shortfall(f"failures-{name}", said, "an issue with this row helps; no row that failed is published")


def _controls(found: Mapping[str, pd.DataFrame]) -> Iterator[Shortfall]:
    counts = [frames.controls(frame)[:2] for frame in found.values() if "vs_cublas" in frame]
    same, count = (sum(of[place] for of in counts) for place in (0, 1))
    if same < SAME_SHARE * count:
        said = f"cuBLAS beside itself is SAME at {same} of {count} problems, and {SAME_SHARE:.0%} are asked for"
        yield Shortfall("controls", said, "measure on a quiet machine, with nothing else on the card")


def _too_fast(found: Mapping[str, pd.DataFrame], runs: Mapping[str, dict]) -> Iterator[Shortfall]:
    for name, frame in found.items():
        if not issubclass(studies.row_type(name), TimedRow):
            continue
        own = frame[frame["median_us"].notna() & (frame["mode"] != "") & (frame[list(frames.SIZES)] > 0).all(axis=1)]
        for row in own.itertuples():
            problem = Problem(row.m, row.n, row.k, row.math)
            at = (row.median_us, problem, row.mode)
            reason = floor.too_fast(*at, runs[row.run], floor.cards_of(row)) if row.run in runs else ""
            if reason:
                said = f"{name}: {row.stage} {row.dialect} {row.math} at {row.m}x{row.n}x{row.k}: {reason}"
                yield Shortfall("roofs", said, "find out what the timer missed; such a row is never published", False)
                break
