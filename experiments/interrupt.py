"""Ctrl-C ends a command, wherever it comes.

Python raises KeyboardInterrupt between any two steps of a program. Where that is inside a finaliser or the callback of
a weak reference, of which matplotlib has many, nothing can be raised on: Python prints 'Exception ignored' and goes on.
"""

from __future__ import annotations

import _thread
import gc
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_AGAIN_S = 0.02  # by then the callback is over


@contextmanager
def heeded() -> Iterator[None]:
    """Inside, a KeyboardInterrupt that Python has to ignore is raised again; after it, the process ends soon."""
    before = sys.unraisablehook

    def raise_again(ignored: sys.UnraisableHookArgs) -> None:
        if issubclass(ignored.exc_type, KeyboardInterrupt):
            threading.Timer(_AGAIN_S, _thread.interrupt_main).start()
        else:
            before(ignored)

    sys.unraisablehook = raise_again
    try:
        yield
    finally:
        gc.freeze()  # as it ends, Python would look for garbage among all that torch and matplotlib have made
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # all is written: no traceback while Python takes itself down
        sys.unraisablehook = before
