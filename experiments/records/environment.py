"""Captions that say where and with what rows were measured, from the environments that their runs recorded."""

from __future__ import annotations


def caption(runs: list[dict]) -> str:
    """Returns one line for a plot or a table: device, versions, commit and date, of one run or of several."""
    if not runs:
        return "no record of where this was measured"
    return " · ".join([*_machine(runs[-1]), *_when(runs)])


def brief(runs: list[dict]) -> str:
    """As `caption` without commits: device, versions and dates, the same in every language."""
    dates = sorted({run["date"][:10] for run in runs})
    return " · ".join([*_machine(runs[-1]), *dict.fromkeys((dates[0], dates[-1]))])


def compilers_caption(runs: list[dict]) -> str:
    """As `caption`, for what does not depend on the machine: the compilers' versions in place of the device's."""
    if not runs:
        return "no record of what this was compiled with"
    parts = [f"{name} {runs[-1][name]}" for name in ("nvcc", "triton") if runs[-1].get(name)]
    return " · ".join([*parts, *_when(runs)])


def _machine(run: dict) -> list[str]:
    """Returns the device, and the versions of the software there."""
    parts = [run["device"]]
    if run["gpu"]:
        parts += [f"driver {run['gpu']['driver']}", f"CUDA {run['cuda']}"]
    return parts + [f"{package} {run[package]}" for package in ("torch", "triton") if run[package]]


def _when(runs: list[dict]) -> list[str]:
    """The commit and the date of the latest run, and how many there are."""
    last = runs[-1]
    parts = [f"commit {commit_of(last)}", last["date"][:10]]
    if len(runs) > 1:
        parts.append(f"the latest of {len(runs)} runs since {runs[0]['date'][:10]}: environment.json tells them apart")
    return parts


def commit_of(run: dict) -> str:
    """Returns a run's commit in a few words, and whether the code had local changes."""
    if run["commit"] is None:
        return "unknown"
    state = {True: " with local changes", False: "", None: " (local changes: unknown)"}
    return run["commit"][:10] + state[run["dirty"]]
