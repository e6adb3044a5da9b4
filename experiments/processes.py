"""Processes for all cores, which end with the work that they were started for."""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor

MOST = 16  # each takes about a gigabyte


@contextlib.contextmanager
def pool(begin: Callable[[], None] | None = None) -> Iterator[ProcessPoolExecutor]:
    """A process a core; `begin`, a function of a module, is called first in each. At the end none is waited for.

    They are new ones, not forked: a process that holds a GPU or has threads must not be.
    """
    before = multiprocessing.active_children()
    executor = ProcessPoolExecutor(_cores(), multiprocessing.get_context("spawn"), _begin, (begin,))
    try:
        yield executor
    finally:  # after Ctrl-C too, when nobody wants what they still do
        for process in multiprocessing.active_children():
            if process not in before:
                process.terminate()
        executor.shutdown(cancel_futures=True)


def _cores() -> int:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores, MOST)


def _begin(begin: Callable[[], None] | None) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes, and the first of them decides
    if begin:
        begin()
    # A decoded kernel is a hundred thousand small objects that stay: to look through them for garbage again and again
    # takes a third of the time.
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
