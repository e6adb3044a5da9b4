"""Traces as files of their own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from experiments.records.request import UsageError
from experiments.records.store import RESULTS
from experiments.trace.record import Trace, to_json
from gemm_ref.build import write_whole

FOLDER = RESULTS / "cpu" / "traces"  # a trace is the reference GPU's on any machine


def write(traces: Sequence[Trace], output: Path | None = None) -> list[Path]:
    """Write each trace into the folder `output`, or the only one into the `.json` file; returns the files.

    Raises UsageError for one file and several traces, `gemm_ref.build.CannotWrite` for what cannot be written.
    """
    output = output or FOLDER
    single = output.suffix == ".json"
    if single and len(traces) > 1:
        names = ", ".join(dict.fromkeys(f"--dialect {each.dialect} --variant {each.variant}" for each in traces))
        raise UsageError(f"{output} is one file, and these are {len(traces)} traces: give a folder, or one of {names}")
    paths = [output if single else output / f"{name_of(each)}.json" for each in traces]
    for path, each in zip(paths, traces, strict=True):
        write_whole(path, to_json(each))
    return paths


def name_of(trace: Trace) -> str:
    """A name for a trace's file: s09_conflict_free-cuda-two_blocks-fp32."""
    return "-".join((trace.stage, trace.dialect, trace.variant, trace.math))
