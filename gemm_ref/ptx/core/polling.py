"""Loops that look at memory again and again, until another thread has stored what they wait for."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

_FIRST = 64  # rounds after which it is looked at whether they lead anywhere


class Polling:
    """What a machine's lanes do that may be such a wait."""

    def __init__(self, state: Callable[[], tuple[bytes | None, ...]]) -> None:
        self.looked = False  # an atomic, a strong load or a nanosleep, since the active lanes last went round a loop
        self._state = state  # gives everything that lanes know
        self._rounds = 0  # since memory last changed, of all lanes that are not held elsewhere
        self._before: tuple | None = None

    @property
    def goes_on(self) -> bool:
        """Whether lanes wait, and memory has not changed since: then storing what was there is no change either."""
        return self._rounds > 0

    def stored(self) -> None:
        """A lane has changed memory."""
        self._rounds = 0

    def is_stuck(self, places: np.ndarray) -> bool:
        """All lanes that can go on have gone round such loops: whether they will forever.

        They will if nothing differs from the round before, for then neither does the next. places: where they are.
        """
        self._rounds += 1
        if self._rounds >= _FIRST and self._rounds.bit_count() == 1:  # not at each, since states are large
            self._before = (places.tobytes(), *self._state())
        elif self._rounds > _FIRST and (self._rounds - 1).bit_count() == 1:
            return self._before == (places.tobytes(), *self._state())
        return False
