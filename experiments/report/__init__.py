"""One self-contained HTML page of a folder of results: plots, tables and every rung's source, without a network.

`make` reads CSV, environment.json, the registry and the kernels' files, and writes a single file. The same data give
the same bytes: dates and commits are those of the measurements.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from experiments.records.request import UsageError
from experiments.records.rows import EXPERIMENTS
from experiments.records.store import check_writable, csv_path
from experiments.report.page import render
from gemm_ref.build import write_whole


def make(folder: Path, target: Path, questions: Mapping[str, str]) -> Path:
    """Write the report of the results in `folder` to the file `target`, whole or not at all; return `target`.

    questions: what each experiment asks, by its name: the text that opens its module.
    Raises UsageError where the folder holds no data of any experiment, or where the file cannot be written.
    """
    if not has_data(folder):
        raise UsageError(f"no data to report in {folder}: `python -m experiments run` measures some")
    check_writable(target.parent, "--output")
    if target.is_dir():
        raise UsageError(f"{target} is a folder: --output takes the name of a file")
    write_whole(target, render(folder, questions))
    return target


def choose(own: Path, published: Path) -> Path:
    """The folder to report on: this machine's where rungs were measured on its GPU, else the published one.

    Without a GPU a machine checks kernels and times CPU baselines alone; a report on that says little of the ladder,
    and is made when it is asked for by `--results`.
    """
    return own if own.name != "cpu" and has_data(own) else published


def has_data(folder: Path) -> bool:
    """Whether some experiment has rows there."""
    return any(csv_path(folder, name).exists() for name in EXPERIMENTS)
