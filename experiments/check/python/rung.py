"""A rung of the ladder: the registry has its launch and its constants, so it runs through its package's `gemm`."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import torch

import gemm_ref
from experiments.check.subject import PLAIN, Options, Scales, Subject
from experiments.records.request import UsageError
from gemm_ref.dialect import BY_HAND, DIALECTS
from gemm_ref.rung import DEFAULT_VARIANT

ROOT = Path(gemm_ref.__file__).parents[1]


def find_file(file: Path, dialect: str) -> Path:
    """Returns the file of a rung that is called by its name, `s08`; any other file as it is. Raises UsageError."""
    if dialect and dialect not in DIALECTS:
        raise UsageError(f"--dialect {dialect}: there are {', '.join(DIALECTS)}")
    try:
        rung = None if file.exists() or file.suffix else gemm_ref.get_stage(str(file))
    except ValueError as error:
        raise UsageError(f"there is no file {file}, and no such rung: {error}") from error
    if rung is None:
        if dialect:
            raise UsageError("--dialect is for a rung that is called by its name, such as s08")
        return file
    chosen = dialect or BY_HAND
    if chosen not in rung.dialects:
        raise UsageError(f"{rung.id} has no {chosen} kernel: pass --dialect with one of {', '.join(rung.dialects)}")
    return ROOT / DIALECTS[chosen].file_of(rung.id)


def find_rung(path: Path, options: Options) -> RungKernel | None:
    """Returns the rung whose file this is; None if it is of none, or of one in CUDA that options say how to launch.

    Raises UsageError for options that a rung in Python has not.
    """
    folders = {ROOT / dialect.folder: dialect for dialect in DIALECTS.values()}
    dialect = folders.get(path.resolve().parent)
    rung = next((each for each in gemm_ref.STAGES.values() if each.id == path.stem), None)
    if not (dialect and rung) or path.suffix != dialect.suffix:
        return None
    kept = Options(math=options.math, like=options.like, trust=options.trust)
    if options != kept:
        if dialect.name == BY_HAND:
            return None
        names = [f"--{name}" for name, value in vars(options).items() if value != getattr(kept, name)]
        raise UsageError(f"{path.name} is a rung, whose registry entry has its launch: leave out {', '.join(names)}")
    if options.math and options.math not in rung.maths:
        raise UsageError(f"{rung.id} does not compute in {options.math}: it has {', '.join(rung.maths)}")
    config = rung.config(rung.find_variant(DEFAULT_VARIANT, dialect.name), dialect.name)
    tile, math = (config.BLOCK_M, config.BLOCK_N), options.math or rung.maths[0]
    return RungKernel(path=path, name=rung.id, dialect=dialect.name, tile=tile, math=math)


@dataclass(frozen=True, kw_only=True, eq=False)
class RungKernel(Subject):
    """A rung in its default variant."""

    @property
    def how(self) -> str:
        dialect = "" if self.dialect == BY_HAND else f", dialect={self.dialect!r}"
        return f"{self._package.__name__}.gemm(a, b, stage={self.name!r}{dialect}, math={self.math!r}, out=c)"

    def run(self, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, scales: Scales = PLAIN) -> None:
        self._multiply(a, b, c)

    def gpu_call(self, problem: gemm_ref.Problem) -> Callable[..., torch.Tensor]:
        return self._multiply

    def _multiply(self, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        dialect = {} if self.dialect == BY_HAND else {"dialect": self.dialect}
        return self._package.gemm(a, b, stage=self.name, math=self.math, out=out, **dialect)

    @property
    def _package(self) -> ModuleType:
        return importlib.import_module(DIALECTS[self.dialect].package)
