"""Progress bars: one a step of an experiment, on the terminal, gone from nothing that is piped elsewhere."""

from __future__ import annotations

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn


class Bars:
    """Shows how far an experiment is; used as a context manager."""

    def __init__(self, console: Console) -> None:
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self._progress = Progress(*columns, TextColumn("[dim]{task.fields[now]}"), console=console)
        self._task: TaskID  # the current bar, from `begin` on

    def __enter__(self) -> Bars:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def begin(self, step: str, total: int) -> None:
        """Start a new bar of `total` parts."""
        self._task = self._progress.add_task(step, total=total, now="")

    def doing(self, what: str) -> None:
        """Name the part that is now being done."""
        self._progress.update(self._task, now=what)

    def done(self, parts: int = 1) -> None:
        """So many more parts of the current bar are done."""
        self._progress.update(self._task, advance=parts, now="")

    def finish(self) -> None:
        """The current bar ends here, however many parts were announced."""
        done = self._progress.tasks[self._task].completed
        self._progress.update(self._task, total=done, now="")
