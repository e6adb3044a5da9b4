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
def always_raised() -> Iterator[None]:
    """Raises a KeyboardInterrupt that Python would ignore one line later; the process ends soon after the block."""
    before = sys.unraisablehook

    def raise_again(ignored: sys.UnraisableHookArgs) -> None:
        if issubclass(ignored.exc_type, KeyboardInterrupt):
            sys._getframe(1).f_trace = _raise  # the frame whose callback was interrupted raises at its next line
            sys.settrace(lambda *_: None)  # without a global trace function no frame is traced
        else:
            before(ignored)

    sys.unraisablehook = raise_again
    try:
        yield
    finally:
        gc.freeze()  # at exit Python would search all objects of torch and matplotlib for garbage
        signal.signal(
            signal.SIGINT, signal.SIG_DFL
        )  # everything is written: a Ctrl-C during shutdown prints no traceback
        sys.unraisablehook = before
