"""A rung of the ladder in Triton or Gluon: the registry has its launch, so it runs through its package's `gemm`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

import gemm_ref
import triton_kernels
from experiments.check.subject import PLAIN, Options, Scales, Subject
from experiments.records.request import UsageError
from gemm_ref.dialect import BY_HAND, DIALECTS
from gemm_ref.rung import DEFAULT_VARIANT

ROOT = Path(triton_kernels.__file__).parents[1]


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
    """Returns the rung whose file this is; None if it is of none. Raises UsageError for options that a rung has not."""
    for dialect in DIALECTS.values():
        if path.resolve().parent != ROOT / dialect.folder or dialect.backend != "triton":
            continue
        rung = next((each for each in gemm_ref.STAGES.values() if each.id == path.stem), None)
        if rung is None:
            return None
        kept = Options(math=options.math, like=options.like, trust=options.trust)
        if options != kept:
            names = [f"--{name}" for name, value in vars(options).items() if value != getattr(kept, name)]
            raise UsageError(
                f"{path.name} is a rung, whose registry entry has its launch: leave out {', '.join(names)}"
            )
        if options.math and options.math not in rung.maths:
            raise UsageError(f"{rung.id} does not compute in {options.math}: it has {', '.join(rung.maths)}")
        config = rung.config(rung.find_variant(DEFAULT_VARIANT, dialect.name), dialect.name)
        return RungKernel(
            path=path,
            name=rung.id,
            dialect=dialect.name,
            tile=(config.BLOCK_M, config.BLOCK_N),
            math=options.math or rung.maths[0],
        )
    return None


@dataclass(frozen=True, kw_only=True, eq=False)
class RungKernel(Subject):
    """A rung in its default variant."""

    @property
    def how(self) -> str:
        return f"triton_kernels.gemm(a, b, stage={self.name!r}, dialect={self.dialect!r}, math={self.math!r}, out=c)"

    def run(self, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, scales: Scales = PLAIN) -> None:
        self._multiply(a, b, c)

    def gpu_call(self, problem: gemm_ref.Problem) -> Callable[..., torch.Tensor]:
        return self._multiply

    def _multiply(self, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        return triton_kernels.gemm(a, b, stage=self.name, dialect=self.dialect, math=self.math, out=out)
