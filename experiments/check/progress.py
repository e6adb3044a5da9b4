"""What a check does at the moment, on stderr from its second second on: on a terminal in one line, else in a few."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.markup import escape

_FIRST_S, _EVERY_S, _REFRESH_S = 1.5, 10.0, 0.5  # the first line, and the next ones where there is no terminal
_now = "starts"


def step(what: str) -> None:
    """Names what is done from now on, as in `compiles kernel.cu`; an empty text ends what is shown."""
    global _now
    _now = what


@contextlib.contextmanager
def shown(console: Console, elapsed_s: Callable[[], float]) -> Iterator[None]:
    """Shows the steps in this context, each with the seconds that have passed."""
    step("starts")
    ended = threading.Event()
    shows = threading.Thread(target=_show, args=(console, elapsed_s, ended), daemon=True)
    shows.start()
    try:
        yield
    finally:
        ended.set()
        shows.join()


def _show(console: Console, elapsed_s: Callable[[], float], ended: threading.Event) -> None:
    if ended.wait(_FIRST_S):
        return
    if console.is_terminal:
        with console.status("") as status:
            while _now and not ended.wait(_REFRESH_S):
                status.update(escape(f"{elapsed_s():.0f} s: check {_now}"))
        return
    while _now:
        text = f"{elapsed_s():.0f} s: check {_now}"
        console.print(text, style="dim", markup=False, highlight=False, soft_wrap=True)
        if ended.wait(_EVERY_S):
            return
