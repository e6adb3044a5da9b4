"""Made-up rows with plausible values, for the tests of results, plots and README; they claim nothing."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import experiments.studies
from experiments import runner
from experiments.records import store, studies
from experiments.records.contenders import Contender, contenders
from experiments.records.request import Request
from experiments.records.rows import Row, TimedRow
from gemm_ref import DIALECTS, Problem, stages_in

TFLOPS = {
    stage: {dialect: (3.0 - 0.1 * place) * i for place, dialect in enumerate(DIALECTS)}
    for i, stage in enumerate((s.id for s in stages_in("fp32")), 1)
}
TFLOPS["s03_block_tile"] |= {"cuda": 5.1, "triton": 8.7, "gluon": 5.0}  # slower than s02's in CUDA and Gluon
CUBLAS, CPU = 51.3, {"cpu_loop": 0.0011, "numpy_blas": 0.9, "torch_blas": 0.85}
ENVIRONMENT = {
    "date": "2020-02-02T02:02:02Z",
    "commit": "0123456789abcdef",
    "dirty": False,
    "device": "NVIDIA Fixture",
    "slug": "nvidia-fixture",
    "gpu": {"driver": "1.2.3"},
    "cuda": "13.0",
    "cpu": "a CPU",
    "torch": "2.11.0",
    "triton": "3.6.0",
    "numpy": "2.3.5",
}
# As environment.json has it.
H200 = {"capability": "9.0", "multiprocessors": 132, "max_sm_clock_mhz": 1980, "l2_bytes": 52428800}


def right(a, b, out=None):
    """A kernel that is right; `wrong` and `interrupting` are not."""
    return torch.mm(a, b, out=out)


def wrong(a, b, out=None):
    return torch.mm(a, b, out=out).mul_(1.5)


def raising(error: BaseException):
    """A function that raises it, whatever it is called with."""

    def fn(*_, **__):
        raise error

    return fn


interrupting = raising(KeyboardInterrupt())


@contextlib.contextmanager
def studies_in(*folders: Path) -> Iterator[None]:
    """The only studies are those in the first folder, and their modules are imported anew from these folders."""
    before = {name: module for name, module in sys.modules.items() if name.startswith("experiments.studies.")}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(studies, "FOLDER", folders[0])
        patch.setattr(experiments.studies, "__path__", list(map(str, folders)))
        _forget_studies()
        try:
            yield
        finally:
            _forget_studies()
            sys.modules.update(before)


def _forget_studies() -> None:
    for cached in (studies.abouts, studies.row_type, studies.captions):
        cached.cache_clear()
    for name in [name for name in sys.modules if name.startswith("experiments.studies.")]:
        del sys.modules[name]


def needs_study(*names: str) -> pytest.MarkDecorator:
    """Skips a test that reads the rows of other studies where one of those was deleted."""
    missing = [name for name in names if name not in studies.names()]
    return pytest.mark.skipif(bool(missing), reason=f"there is no study {', '.join(missing)}")


class Entered:
    """Of what is entered for a while, in a test in which that does nothing."""

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass


class NoBars:
    """In place of progress bars."""

    def begin(self, *_: object) -> None:
        pass

    doing = done = finish = begin


def changed(folder: Path, **changes: Callable[[pd.DataFrame], pd.DataFrame | None]) -> Path:
    """`folder` with the published data; the CSVs of some experiments as their `changes` edit them, all in texts.

    A change edits the frame in place and returns None, or returns another one.
    """
    for path in store.PUBLISHED.glob("*"):
        if path.suffix in (".csv", ".json"):
            (folder / path.name).write_bytes(path.read_bytes())
    for name, change in changes.items():
        frame = pd.read_csv(folder / f"{name}.csv", dtype=str, keep_default_na=False)
        edited = change(frame)
        (frame if edited is None else edited).to_csv(folder / f"{name}.csv", index=False)
    return folder


def ladder_rows(sizes: tuple[int, ...] = (1024, 2048, 4096)) -> list[TimedRow]:
    """A ladder over `sizes` in which s03 does not beat s02 in CUDA and Gluon."""
    rng = np.random.default_rng(0)
    return [
        _timed(contender, Problem(s, s, s), s / max(sizes), rng)
        for s in sizes
        for contender in contenders()
        if contender.math == "fp32"
    ]


def checked_row(**values: object) -> Row:
    """One check of a kernel, which passed unless `values` say otherwise."""
    who = {"experiment": "correctness", "stage": "s01_naive", "backend": "cuda", "dialect": "cuda"}
    return studies.row_type("correctness")(
        **(who | {"math": "fp32", "dtype": "float32", "m": 3, "n": 5, "k": 7} | values)
    )


def _timed(contender: Contender, problem: Problem, scale: float, rng: np.random.Generator) -> TimedRow:
    full = TFLOPS.get(contender.stage, {}).get(contender.dialect) or CPU.get(contender.stage, CUBLAS)
    tflops = full * scale**0.3
    median = problem.flops / tflops / 1e6
    spread = 1 + 0.02 * rng.random()
    values = {"median_us": median, "p20_us": median / spread, "p80_us": median * spread, "repeats": 9, "tflops": tflops}
    if contender.devices != ("cpu",):
        share = full / CUBLAS
        values |= {"vs_cublas": share, "vs_cublas_low": share / 1.01, "vs_cublas_high": share * 1.01}
    return TimedRow.about("ladder", contender, problem, rel_error=1e-6, bound_share=0.01, **values)


def select_contenders(module: ModuleType, device: str = "cuda", **filters: Any) -> list[Contender]:
    """Who takes part in a study on a device."""
    return runner.choose(module, Request(device, **filters), contenders())


def renamed(name: str, rows: list[TimedRow], **changes: Any) -> list[TimedRow]:
    """The rows as those of another experiment."""
    return [replace(row, experiment=name, **changes) for row in rows]
