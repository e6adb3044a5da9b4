"""Ctrl-C ends a command, wherever it comes.

Python raises KeyboardInterrupt between any two steps of a program. Where that is inside a finaliser or the callback of
a weak reference, of which matplotlib has many, nothing can be raised on: Python prints 'Exception ignored' and goes on.
"""

from __future__ import annotations

import gc
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


def _raise(frame: FrameType, event: str, of: object) -> None:
    sys.settrace(None)
    frame.f_trace = None
    raise KeyboardInterrupt


@contextmanager
def heeded() -> Iterator[None]:
    """Inside, a KeyboardInterrupt that Python has to ignore is raised a line later; after it, the process ends soon."""
    before = sys.unraisablehook

    def raise_again(ignored: sys.UnraisableHookArgs) -> None:
        if issubclass(ignored.exc_type, KeyboardInterrupt):
            sys._getframe(1).f_trace = _raise  # whose callback it was: at its next line
            sys.settrace(lambda *_: None)  # without one, no frame is traced
        else:
            before(ignored)

    sys.unraisablehook = raise_again
    try:
        yield
    finally:
        gc.freeze()  # as it ends, Python would look for garbage among all that torch and matplotlib have made
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # all is written: no traceback while Python takes itself down
        sys.unraisablehook = before
