"""Progress of a command: a bar per step with the time that is left on a terminal, and elsewhere a line per step."""

from __future__ import annotations

from collections.abc import Callable

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)


class Bars:
    """Shows how far a part of a command is; used as a context manager."""

    def __init__(self, console: Console, part: str = "", describe_left: Callable[[], str] = str) -> None:
        """part: of the command: where there is no terminal, each step of it is a line, and without it there is none.

        describe_left: says how long the whole command still takes.
        """
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        more = (TimeRemainingColumn(), TextColumn("[dim]{task.fields[left]} {task.fields[now]}"))
        self._on_terminal = console is not None and console.is_terminal
        self._progress = Progress(*columns, *more, console=console, disable=not self._on_terminal)
        self._console, self._part, self._describe_left = console, part, describe_left
        self._task: TaskID  # the current bar, from `begin` on

    def __enter__(self) -> Bars:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def begin(self, step: str, total: int) -> None:
        """Start a new bar of `total` parts."""
        self._task = self._progress.add_task(step, total=total, now="", left=self._describe_left())
        if self._part and not self._on_terminal:
            line = ", ".join(filter(None, (f"{self._part}: {step} {total}", self._describe_left())))
            self._console.print(line, markup=False, highlight=False, soft_wrap=True)

    def doing(self, what: str) -> None:
        """Name the part that is now being done."""
        self._progress.update(self._task, now=what, left=self._describe_left())

    def done(self, parts: int = 1) -> None:
        """So many more parts of the current bar are done."""
        self._progress.update(self._task, advance=parts, now="", left=self._describe_left())

    def finish(self) -> None:
        """The current bar ends here, however many parts were announced."""
        done = self._progress.tasks[self._task].completed
        self._progress.update(self._task, total=done, now="")
