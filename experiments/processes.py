"""Processes for all cores, which end with the work that they were started for."""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import signal
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor

MOST = 16  # each takes about a gigabyte


class _Pool:
    """A process per core. They are new ones, not forked: a process that holds a GPU or has threads must not be."""

    def __init__(self) -> None:
        self._before = multiprocessing.active_children()
        self.executor = ProcessPoolExecutor(_cores(), multiprocessing.get_context("spawn"), _begin)

    def end(self) -> None:
        """Ends the processes, also those that still work: after Ctrl-C nobody wants their results."""
        for process in multiprocessing.active_children():
            if process not in self._before:
                process.terminate()
        self.executor.shutdown(cancel_futures=True)


class _Shared:
    """The pool of a whole command, which is started when it is first used."""

    def __init__(self) -> None:
        self._pool: _Pool | None = None

    def start(self) -> _Pool:
        self._pool = self._pool or _Pool()
        return self._pool

    def end(self) -> None:
        if self._pool:
            self._pool.end()
        self._pool = None


_shared: _Shared | None = None


@contextlib.contextmanager
def shared() -> Iterator[None]:
    """Inside, every `pool` is the same one: its processes have imported torch and the compilers once."""
    global _shared
    outer, _shared = _shared, _Shared()
    try:
        yield
    finally:
        _shared.end()
        _shared = outer


@contextlib.contextmanager
def pool() -> Iterator[ProcessPoolExecutor]:
    """A process per core, each with one thread. Work that is left at the end is not waited for.

    Inside `shared` the processes go on to the next user, unless an error or Ctrl-C ends this one.
    """
    if _shared is None:
        own = _Pool()
        try:
            yield own.executor
        finally:
            own.end()
        return
    try:
        yield _shared.start().executor
    except BaseException:
        _shared.end()
        raise


def _cores() -> int:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores, MOST)


def _begin() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes, and the first of them decides
    os.environ["OMP_NUM_THREADS"] = "1"  # torch is not imported yet; the other processes have the other cores
    # A decoded kernel is a hundred thousand small objects that stay: to look through them for garbage again and again
    # takes a third of the time.
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
