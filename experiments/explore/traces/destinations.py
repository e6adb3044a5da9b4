"""Traces as files of their own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from experiments.explore.traces.kernel import name_of
from experiments.records.request import UsageError
from experiments.records.store import RESULTS, check_writable
from gemm_ref import DIALECTS, Implementation

FOLDER = RESULTS / "cpu" / "traces"  # a trace is the reference GPU's on any machine


def paths(items: Sequence[Implementation], output: Path | None = None) -> dict[str, Path]:
    """Where each kernel's trace goes, by its name: into the folder `output`, or the only one into a .json file.

    Raises UsageError for one file and several kernels, for a file of another kind, and for a folder that cannot be
    written to.
    """
    output = output or FOLDER
    single = output.suffix == ".json"
    if single and len(items) > 1:
        raise UsageError(
            f"{output} is one file, and these are {len(items)} kernels: give a folder, or name one kernel: "
            f"add {_to_one(items)}"
        )
    if not single and output.suffix[1:].isalpha() and not output.is_dir():
        raise UsageError(f"{output}: a trace is a .json file, or give a folder")
    check_writable(output.parent if single else output, "--output")
    return {name: output if single else output / f"{name}.json" for name in map(name_of, items)}


def _to_one(items: Sequence[Implementation]) -> str:
    """The options that choose one of these kernels of a rung, those that have no choice left out."""
    dialects = [name for name in DIALECTS if any(item.dialect == name for item in items)]
    variants = dict.fromkeys(item.variant for item in items if item.dialect == dialects[0])
    said = []
    for option, (first, *others) in {"dialect": dialects, "variant": variants}.items():
        if others:
            said.append(f"--{option} {first} (or {', '.join(others)})")
    return " and ".join(said)
