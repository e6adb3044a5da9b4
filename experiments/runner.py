"""Runs one experiment to its CSV and plots, whatever happens on the way: what was measured is always kept."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType

import torch
from rich.console import Console

from experiments.bench import provenance
from experiments.bench.verify import DeviceLost
from experiments.console import tell
from experiments.grouping import group_pairs
from experiments.progress import Bars
from experiments.records import store
from experiments.records.contenders import Contender, build_ahead
from experiments.records.request import Request
from experiments.records.row_cache import RowCache
from experiments.records.rows import ERROR, FAIL, PASS, SKIPPED, Row
from experiments.selection import select, why_none
from gemm_ref.build import CannotWrite, write_whole

SAVE_EVERY_S = 30.0


@dataclass(frozen=True)
class Outcome:
    """What came of an experiment."""

    rows: tuple[Row, ...]
    interrupted: bool = False
    stopped: str = ""  # why it ended early, if it did

    @property
    def failures(self) -> list[Row]:
        """Rows that are wrong or broke off."""
        return [row for row in self.rows if row.status in (FAIL, ERROR)]


def choose(module: ModuleType, request: Request, pool: Sequence[Contender]) -> list[Contender]:
    """The contenders that pass the filters and that this experiment measures on the device."""
    return [contender for contender in _candidates(module, request, pool) if not module.unsuited(contender, request)]


def why_nothing(module: ModuleType, request: Request, pool: Sequence[Contender]) -> str:
    """The reasons for which `choose` found nothing."""
    reasons = [module.unsuited(contender, request) for contender in _candidates(module, request, pool)]
    return ", and ".join(dict.fromkeys(reasons)) or why_none(request, pool)


def _candidates(module: ModuleType, request: Request, pool: Sequence[Contender]) -> Sequence[Contender]:
    """What passes the filters; an experiment about the device has CONTENDERS of its own, which it filters itself."""
    return getattr(module, "CONTENDERS", None) or select(request, pool)


def run(
    module: ModuleType,
    request: Request,
    chosen: Sequence[Contender],
    folder: Path,
    console: Console,
    fresh: bool,
    describe_left: Callable[[], str] = str,
) -> Outcome:
    """Measure, save now and then and after the last row or an interruption; on a GPU, also draw.

    Without a GPU all experiments are drawn at the end, on all cores (`draw_all`).
    fresh: measure also what earlier runs of the same kernels have cached (`experiments.records.row_cache`).
    describe_left: says how long this and the following experiments still take.
    Raises UsageError, before anything is measured, where `folder` could not take the rows.
    """
    store.prepare(folder)
    record = provenance.describe(request.device)  # before the work, so that its clocks are those of the start
    row_cache = RowCache(module.NAME, record, fresh=fresh)
    request = replace(request, row_cache=row_cache)
    rows: list[Row] = []
    interrupted, stopped = False, ""
    saved_at = time.monotonic()
    try:
        with Bars(console, module.NAME, describe_left) as bars:
            if request.device == "cuda":
                bars.begin("compiling", 1)
                build_ahead(chosen, torch.cuda.get_device_capability())
            for row in module.measure(request, chosen, bars):
                rows.append(row)
                if time.monotonic() - saved_at > SAVE_EVERY_S:  # a machine that is taken away loses no more than this
                    store.save(folder, module.NAME, rows, record, row_cache.environments)
                    saved_at = time.monotonic()
    except KeyboardInterrupt:
        interrupted = True
    except DeviceLost as lost:
        stopped = str(lost)
    except BrokenProcessPool:
        stopped = "a measuring process was killed, perhaps because it used too much memory: run it again for the rest"
    finally:  # also when an experiment has a bug of its own
        if rows:
            _save_all(folder, module.NAME, rows, record, row_cache.environments)
    if rows and not interrupted and request.device == "cuda":
        draw(module.NAME, folder, console)
    return Outcome(tuple(rows), interrupted, stopped)


def _save_all(folder: Path, name: str, rows: Sequence[Row], record: dict, environments: Mapping[str, dict]) -> None:
    try:
        store.save(folder, name, rows, record, environments)
    except CannotWrite as error:
        raise CannotWrite(f"{error}: {len(rows)} rows of {name} are lost; make room, and run it again") from error


def draw(name: str, folder: Path, console: Console) -> None:
    """Draw the experiment's CSV in `folder` beside it, and say which files were written."""
    from experiments.publish import pictures  # matplotlib takes a second to import

    for path in pictures.save(name, folder, folder):
        tell(f"drew {_short(path)}", console)


def draw_all(names: Sequence[str], folder: Path, console: Console) -> None:
    """Draw the CSVs of these experiments in `folder` beside them, on all cores, where they are not drawn yet."""
    from experiments.publish import pictures
    from experiments.publish.drawing import style

    places = [(name, folder) for name in names]
    forms = (style.PNG, style.SVG, style.PAGE)  # the last for the report, which comes next
    _write_drawn(pictures.render_all(places, *forms), folder, console)


def draw_published(names: Sequence[str], own: Path, console: Console, again: bool = True) -> None:
    """Draw the data that came with the repo, into folders of their own beside this machine's.

    again: also where pictures came with the data; else they are named.
    """
    from experiments.publish import pictures
    from experiments.publish.drawing import style

    places = [(name, folder) for name in names for folder in published(name, own)]
    there = {place: [] if again else pictures.find_published(*place) for place in places}
    drawn = pictures.render_all([place for place in places if not there[place]], style.PNG, style.SVG, style.PAGE)
    for (name, folder), files in there.items():
        label = store.caption(store.read(folder, name), folder)
        tell(f"published data of {name}: {label}", console)
        for path in files:
            tell(f"its picture is {_short(path)}", console)
        if not files:
            _write_drawn([next(drawn)], own / f"published-{folder.name}", console)


def _write_drawn(drawn: Iterable[Mapping[str, bytes]], folder: Path, console: Console) -> None:
    """Write pictures, but those for the report's page, into the folder, and say which are new."""
    from experiments.publish.drawing import style

    for files in drawn:
        for file, content in files.items():
            path = folder / file
            if style.form_of(file) != style.PAGE and not (path.exists() and path.read_bytes() == content):
                write_whole(path, content)
                tell(f"drew {_short(path)}", console)


def published(name: str, own: Path) -> list[Path]:
    """The folders of other machines' data that came with the repo."""
    return [folder for folder in store.holding(name) if folder != own]


def report(name: str, outcome: Outcome, folder: Path, console: Console) -> None:
    """Print what passed, what failed and why, once for each contender and then with all that a compiler said."""
    counts = {status: sum(row.status == status for row in outcome.rows) for status in (PASS, FAIL, ERROR, SKIPPED)}
    said = ", ".join(f"{count} {status}" for status, count in counts.items() if count) or "nothing measured"
    read = sum(bool(row.run) for row in outcome.rows)
    more = f" ({read} read from earlier runs of the same kernels; --fresh measures all)" if read else ""
    console.print(f"[bold]{name}[/]: {said}{more}", soft_wrap=True)
    failed = set(map(_who, outcome.failures))  # a skipped row of theirs only repeats the error
    for title, style, rows in (
        ("failed", "red", outcome.failures),
        ("skipped", "yellow", [row for row in outcome.rows if row.status == SKIPPED and _who(row) not in failed]),
    ):
        for who, of_one in group_pairs((_who(row), row) for row in rows).items():
            first = of_one[0]
            more = f" (and {len(of_one) - 1} more)" if len(of_one) > 1 else ""
            size = f" at {first.m}x{first.n}x{first.k}" if first.dtype else ""  # a ceiling has no sizes
            console.print(f"[{style}]{title}[/] {who}{size}{more}: ", end="", soft_wrap=True)
            tell(first.detail, console)
    if outcome.stopped:
        console.print("[red]stopped[/]: ", end="")
        console.print(outcome.stopped, markup=False, soft_wrap=True)
    if outcome.rows:
        tell(f"rows are in {_short(store.csv_path(folder, name))}", console)


def _who(row: Row) -> str:
    variant = "" if row.variant == "default" else f":{row.variant}"
    return f"{row.stage}{variant} {row.dialect}".strip()


def _short(path: Path) -> str:
    try:
        return str(path.resolve().relative_to(Path.cwd()))
    except ValueError:
        return str(path)
