"""Rows of earlier runs that cannot have changed, so that they are read and not measured again.

What the reference GPU says of a kernel, and what compilers make of it, follows from texts: the kernel's source and the
code that launches it, the compilers' versions, and the code that measures. While all of these are as they were, rows
that passed are read, with the run that measured them. What did not pass is measured again, so that what it says is of
now. There is a small file for each experiment and contender; `read` and `keep` do the same for pictures and traces.
"""

from __future__ import annotations

import functools
import json
import os
import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from experiments.records import studies
from experiments.records.contenders import Contender
from experiments.records.rows import PASS, Row
from experiments.records.source_lines import shared_files
from gemm_ref import build
from gemm_ref.registry import STAGES, get_stage

_ROOT = Path(__file__).resolve().parents[2]
_MEASURING = ("gemm_ref", "experiments/bench", "experiments/records", "experiments/studies")
_SHOWING = ("picture.py", "table.py")  # of a study: no row follows from them
_SUFFIXES = (".py", ".toml", ".cu", ".cuh", ".cpp")
_VERSIONS = ("python", "torch", "triton", "numpy", "nvcc")  # of an environment
_COMPILERS = ("TRITON_", "NVCC_", "LLVM_", "MLIR_", "DISABLE_")  # variables that may change what compilers write,
_CACHES = ("TRITON_CACHE_DIR", "TRITON_HOME")  # and those that do not
_MOST = 256  # parts of a contender that are kept, the newest: a default run has 37

Parts = dict[str, list[Any]]  # a problem with its inputs, say -> the rows of it, of the experiment's own class


class Kept:
    """What one experiment keeps of its rows, for a run in `environment`; with `fresh` nothing is read."""

    def __init__(self, experiment: str, environment: dict, *, fresh: bool = False) -> None:
        self.environments: dict[str, dict] = {}  # of the rows that were read: run -> environment
        self._experiment, self._environment, self._fresh = experiment, environment, fresh
        self._state_at_start = functools.cache(self._state)

    def read(self, contender: Contender) -> Parts:
        """The rows that need not be measured again, each with the run that measured it."""
        if contender.kernel is None:
            return {}
        state = self._state_at_start(*_kernel(contender))
        if self._fresh:
            return {}
        parts, runs = self._load(contender, state)
        self.environments |= runs
        return parts

    def write(self, contender: Contender, measured: Mapping[str, Sequence[Row]]) -> None:
        """Keep the rows of those parts that passed whole, unless a source was changed since the run began."""
        if contender.kernel is None:
            return
        state = self._state(*_kernel(contender))
        if state != self._state_at_start(*_kernel(contender)):
            return
        run = self._environment["date"]
        parts, runs = self._load(contender, state)
        parts = {part: rows for part, rows in parts.items() if part not in measured}
        passed = {part: rows for part, rows in measured.items() if all(row.status == PASS for row in rows)}
        parts |= {part: [replace(row, run=run) for row in rows] for part, rows in passed.items()}
        parts = dict(list(parts.items())[-_MOST:])
        used = {row.run for rows in parts.values() for row in rows}
        content = {
            "runs": {key: value for key, value in (runs | {run: self._environment}).items() if key in used},
            "parts": {part: [asdict(row) for row in rows] for part, rows in parts.items()},
        }
        keep(self._name(contender), state, json.dumps(content).encode())

    def _name(self, contender: Contender) -> str:
        return re.sub(r"[^a-z0-9]+", "-", f"{self._experiment} {contender}".lower())

    def _load(self, contender: Contender, state: str) -> tuple[Parts, dict[str, dict]]:
        """The parts and the environments in the contender's file; none where there are none of this state."""
        content = json.loads(read(self._name(contender), state) or '{"runs": {}, "parts": {}}')
        make = studies.row_type(self._experiment)
        return {part: [make(**row) for row in rows] for part, rows in content["parts"].items()}, content["runs"]

    def _state(self, package: str, stage: str) -> str:
        """A hash of all that rows of a rung follow from."""
        return state([*_MEASURING, package], stage, [self._environment[name] for name in _VERSIONS])


def state(folders: Sequence[str], stage: str, versions: Sequence[object]) -> str:
    """A hash of what a rung follows from: the folders' sources without rungs it does not use, versions, variables."""
    used = {path.stem for dialect in get_stage(stage).dialects for path in shared_files(stage, dialect)} | {stage}
    measuring = [path for path in sources(*folders) if path.name not in _SHOWING]
    paths = [path for path in measuring if path.stem in used or path.stem not in STAGES]
    names = [name for name in sorted(os.environ) if name.startswith(_COMPILERS) and name not in _CACHES]
    return digest(paths, *versions, *((name, os.environ[name]) for name in names))


def read(name: str, state: str) -> bytes | None:
    """What was kept by this name in this state; None where there is none that is whole."""
    try:
        head, _, content = _place(name).read_bytes().partition(b"\n")
    except OSError:
        return None
    return content if head == _head(state, content) else None


def keep(name: str, state: str, content: bytes) -> None:
    """Spare later runs some work, until `state` is another; what cannot be written is warned of, and costs no more."""
    try:
        build.write_whole(_place(name), _head(state, content) + b"\n" + content)
    except build.CannotWrite as error:
        why = f"the next run does everything again: nothing can be kept in {_place(name).parent} ({error.__cause__})"
        warnings.warn(why, stacklevel=2)


def _place(name: str) -> Path:
    return build.CACHE / "kept" / name


def _head(state: str, content: bytes) -> bytes:
    """The first line of a file: a damaged one has another."""
    return f"{state} {build.digest(content)}".encode()


def sources(*folders: str) -> list[Path]:
    """The files of the repo's folders, and of those in them, that programs are made of."""
    return [path for folder in folders for path in sorted((_ROOT / folder).rglob("*")) if path.suffix in _SUFFIXES]


def digest(paths: Iterable[Path], *more: object) -> str:
    """A hash of files, their places in the repo with them, and of whatever else counts."""
    return build.digest(*(part for path in paths for part in (path.relative_to(_ROOT), path.read_bytes())), *more)


def _kernel(contender: Contender) -> tuple[str, str]:
    """The package that launches the contender's kernel, and the rung."""
    return f"{contender.backend}_kernels", contender.stage
