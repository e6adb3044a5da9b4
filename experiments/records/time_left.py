"""How long the rest of a command takes, from what its parts took the last time on this machine."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping

from experiments.records import cache

_ENTRY = "seconds-of-parts", "1"  # of the cache: its name, and the version of its form


class TimeLeft:
    """Predicts how long the rest of a command takes, from the seconds that its parts took the last time.

    The parts that are done tell how fast this run is beside that one.
    """

    def __init__(self, name: str, parts: Mapping[str, float]) -> None:
        """name: of the command; parts: its parts in their order, with a guess in seconds where none was run before."""
        self._name = name
        self._known = json.loads(cache.load(*_ENTRY) or "{}")
        known = self._known.get(name, {})
        self._expected = {part: known.get(part, guess) for part, guess in parts.items()}
        self._taken: dict[str, float] = {}
        self._typical: dict[str, float] = {}  # of these the times that are kept
        self._part, self._begun = "", 0.0

    def begin(self, part: str) -> None:
        """The part begins."""
        self._part, self._begun = part, time.monotonic()

    def end(self, is_typical: bool) -> None:
        """The part has ended; its time is kept if it is typical, as that of a part whose results were read is not."""
        self._taken[self._part] = time.monotonic() - self._begun
        if is_typical:
            self._typical[self._part] = self._taken[self._part]
        self._part = ""

    def save(self) -> None:
        """Keeps what the parts took for the next time."""
        self._known[self._name] = self._known.get(self._name, {}) | self._typical
        cache.save(*_ENTRY, json.dumps(self._known).encode())

    def seconds(self) -> float:
        """The seconds that are left."""
        expected = sum(self._expected[part] for part in self._typical)
        pace = sum(self._typical.values()) / expected if expected else 1.0
        waiting = sum(own for part, own in self._expected.items() if part not in self._taken) * pace
        spent = time.monotonic() - self._begun if self._part else 0.0
        return waiting - min(spent, self._expected.get(self._part, 0.0) * pace)

    def describe(self) -> str:
        """`3:05 left in all`; empty where that is not known.

        It is not where a part is left that was never run, or where all parts so far were read: so may the others be.
        """
        is_known = all(own for part, own in self._expected.items() if part not in self._taken)
        if not is_known or (self._taken and not self._typical):
            return ""
        minutes, seconds = divmod(round(max(self.seconds(), 0.0)), 60)
        return f"{minutes}:{seconds:02} left in all"
