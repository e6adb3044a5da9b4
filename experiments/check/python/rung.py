"""A rung of the ladder: the registry has its launch and its constants, so it runs through its package's `gemm`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

import gemm_ref
from experiments.check.subject import PLAIN, Options, Scales, Subject
from experiments.records.contenders import gemm_of
from experiments.records.request import UsageError
from gemm_ref import Implementation
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
    variant, math = rung.find_variant(DEFAULT_VARIANT, dialect.name), options.math or rung.maths[0]
    item = Implementation(rung, variant, dialect.name, math)
    return RungKernel.of(item, lambda a, b, out: gemm_of(item)(a, b, out=out), path)


@dataclass(frozen=True, kw_only=True, eq=False)
class RungKernel(Subject):
    """A kernel of the ladder, or a changed copy of it."""

    gemm: Callable[..., torch.Tensor]  # of a, b and out

    @staticmethod
    def of(item: Implementation, gemm: Callable[..., torch.Tensor], path: Path = Path()) -> RungKernel:
        """Returns the kernel of a rung, which `gemm` calls; path: of its file, where that is reported."""
        tile = item.config.BLOCK_M, item.config.BLOCK_N
        return RungKernel(path=path, name=item.stage.id, dialect=item.dialect, tile=tile, math=item.math, gemm=gemm)

    @property
    def how(self) -> str:
        dialect = "" if self.dialect == BY_HAND else f", dialect={self.dialect!r}"
        return f"{DIALECTS[self.dialect].package}.gemm(a, b, stage={self.name!r}{dialect}, math={self.math!r}, out=c)"

    def run(self, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, scales: Scales = PLAIN) -> None:
        self.gemm(a, b, out=c)

    def gpu_call(self, problem: gemm_ref.Problem) -> Callable[..., torch.Tensor]:
        return self.gemm
