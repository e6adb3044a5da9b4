"""Traces as files of their own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from experiments.records.request import UsageError
from experiments.records.store import RESULTS, check_writable
from experiments.trace.kernel import name_of
from experiments.trace.record import Trace, to_json
from gemm_ref import Implementation
from gemm_ref.build import write_whole

FOLDER = RESULTS / "cpu" / "traces"  # a trace is the reference GPU's on any machine


def paths(items: Sequence[Implementation], output: Path | None = None) -> dict[str, Path]:
    """Where each kernel's trace goes, by its name: into the folder `output`, or the only one into a .json file.

    Raises UsageError for one file and several kernels, and for a folder that cannot be written to.
    """
    output = output or FOLDER
    single = output.suffix == ".json"
    if single and len(items) > 1:
        names = ", ".join(dict.fromkeys(f"--dialect {item.dialect} --variant {item.variant}" for item in items))
        raise UsageError(f"{output} is one file, and these are {len(items)} kernels: give a folder, or one of {names}")
    check_writable(output.parent if single else output, "--output")
    return {name: output if single else output / f"{name}.json" for name in map(name_of, items)}


def write(trace: Trace, path: Path) -> None:
    """Raises `gemm_ref.build.CannotWrite` where the file cannot be written."""
    write_whole(path, to_json(trace))
