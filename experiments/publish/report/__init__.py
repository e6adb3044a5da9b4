"""One self-contained HTML page of results: the answer, every experiment and every rung's source, without a network.

`make` reads CSV, environment.json, the registry and the kernels' files, and writes a single file. The same data give
the same bytes: dates and commits are those of the measurements.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

from rich.console import Console

from experiments.progress import Bars
from experiments.publish.pages.coloured import TimedFile
from experiments.publish.report.page import render
from experiments.publish.report.views import View
from experiments.records import studies
from experiments.records.request import UsageError
from experiments.records.store import PUBLISHED, check_writable, csv_path, unchanging
from gemm_ref.build import write_whole

# The ids of the rungs that the explorer shows, none without that page; predicted times of default kernels, by rung and
# dialect.
Explored = tuple[Collection[str], Mapping[tuple[str, str], TimedFile]]
EXPLORER = "explorer.html"  # the name of the page beside the report that shows what each thread touches


def make(
    folders: Sequence[Path],
    target: Path,
    questions: Mapping[str, str],
    own: Path | None = None,
    console: Console | None = None,
    explore: Callable[[Bars], Explored] = lambda bars: ((), {}),
) -> Path:
    """Write the report of the results in `folders` to the file `target`, whole or not at all; return `target`.

    folders: a view of the page is made of each; the first is the one that is shown as the page opens.
    questions: what each experiment asks, by its name: the text that opens its module.
    own: this machine's folder, where the page should say which of its numbers are not of this machine.
    console: shows how far it is.
    explore: writes the page EXPLORER beside the report.
    Raises UsageError where no folder holds data of any experiment, where the file cannot be written, and for the name
    of the page beside it.
    """
    folders = [folder for folder in folders if has_data(folder)]
    if not folders:
        raise UsageError("no data to report: `python -m experiments run` measures some")
    check_writable(target.parent, "--output")
    if target.name == EXPLORER:
        raise UsageError(f"{EXPLORER} is the name of the page beside it: pass another --output")
    if target.is_dir():
        raise UsageError(f"{target} is a folder: --output takes the name of a file")
    with unchanging(), Bars(console or Console(quiet=True), "report") as bars:
        write_whole(target, render(folders, target, questions, own, bars, *explore(bars)))
    return target


def choose(own: Path, published: Path = PUBLISHED) -> list[Path]:
    """The folders to report on: this machine's, and what is published beside it; the first has speeds of rungs.

    Without a GPU a machine checks kernels and counts, and the published speeds come first.
    """
    others = sorted(folder for folder in published.parent.glob("*") if has_data(folder) and folder != own)
    others.sort(key=lambda folder: folder != published)
    folders = [own, *others] if has_data(own) else others
    return sorted(folders, key=lambda folder: not View(folder).has_speeds)


def has_data(folder: Path) -> bool:
    """Whether some experiment has rows there."""
    return any(csv_path(folder, name).exists() for name in studies.names())
