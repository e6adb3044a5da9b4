"""Rows of earlier runs that cannot have changed, so that they are read and not measured again.

What the reference GPU says of a kernel, and what compilers make of it, follows from texts: the kernel's source and the
code that launches it, the compilers' versions, and the code that measures. While all of these are as they were, rows
that passed are read, with the run that measured them; rows that did not pass are measured again. There is an entry of
the cache (`records.cache`) for each experiment and contender.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from experiments.records import cache, studies
from experiments.records.contenders import Contender
from experiments.records.rows import PASS, Row

_MEASURING = ("gemm_ref", "experiments/bench", "experiments/records", "experiments/studies")
_VERSIONS = ("python", "torch", "triton", "numpy", "nvcc")  # of an environment
_MAX_PARTS = 256  # of a contender, the newest: a default run has 37

Parts = dict[str, list[Any]]  # a problem with its inputs, say -> its rows, of the experiment's own class


class RowCache:
    """The cached rows of one experiment, for a run in `environment`; with `fresh` nothing is read."""

    def __init__(self, experiment: str, environment: dict, *, fresh: bool = False) -> None:
        self.environments: dict[str, dict] = {}  # of the rows that were read: run -> environment
        self.fresh = fresh
        self._experiment, self._environment = experiment, environment
        self._digest_at_start = functools.cache(self._digest)

    def read(self, contender: Contender) -> Parts:
        """Returns the rows that need not be measured again, each with the run that measured it."""
        if contender.kernel is None:
            return {}
        digest = self._digest_at_start(*_kernel(contender))
        if self.fresh:
            return {}
        parts, runs = self._load(contender, digest)
        self.environments |= runs
        return parts

    def write(self, contender: Contender, measured: Mapping[str, Sequence[Row]]) -> None:
        """Caches the parts whose rows all passed, unless a source was changed since the run began."""
        if contender.kernel is None:
            return
        digest = self._digest(*_kernel(contender))
        if digest != self._digest_at_start(*_kernel(contender)):
            return
        run = self._environment["date"]
        parts, runs = self._load(contender, digest)
        parts = {part: rows for part, rows in parts.items() if part not in measured}
        passed = {part: rows for part, rows in measured.items() if all(row.status == PASS for row in rows)}
        parts |= {part: [replace(row, run=run) for row in rows] for part, rows in passed.items()}
        parts = dict(list(parts.items())[-_MAX_PARTS:])
        used = {row.run for rows in parts.values() for row in rows}
        content = {
            "runs": {key: value for key, value in (runs | {run: self._environment}).items() if key in used},
            "parts": {part: [asdict(row) for row in rows] for part, rows in parts.items()},
        }
        cache.save(self._name(contender), digest, json.dumps(content).encode())

    def _name(self, contender: Contender) -> str:
        return re.sub(r"[^a-z0-9]+", "-", f"{self._experiment} {contender}".lower())

    def _load(self, contender: Contender, digest: str) -> tuple[Parts, dict[str, dict]]:
        """The contender's parts and their environments; none if there are none of this digest."""
        content = json.loads(cache.load(self._name(contender), digest) or '{"runs": {}, "parts": {}}')
        make = studies.row_type(self._experiment)
        return {part: [make(**row) for row in rows] for part, rows in content["parts"].items()}, content["runs"]

    def _digest(self, package: str, stage: str) -> str:
        row_type = studies.row_type(self._experiment).__name__  # named by about.toml, which is no source of a rung
        versions = [self._environment[name] for name in _VERSIONS]
        return cache.digest_rung([*_MEASURING, package], stage, [row_type, *versions])


def _kernel(contender: Contender) -> tuple[str, str]:
    """The package that launches the contender's kernel, and the rung."""
    return f"{contender.backend}_kernels", contender.stage
