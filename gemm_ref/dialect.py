"""What a dialect is: its name, its title, the package that runs its kernels, and where their files are.

The table is in the order of every other table's columns and every plot's marks; how a dialect looks in a plot is in
`experiments.publish.drawing.style`. What only one dialect has is asked of it here, not told from its name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True)
class Dialect:
    """A language that kernels are written in."""

    name: str  # of the option `--backend` and of the results' column
    title: str  # in words
    backend: str  # who compiles it; a package's `gemm` runs the dialect of its backend's name where none is named
    folder: str  # of its files, from the root
    compiler: str  # its name in words
    version: str  # the key of the compiler's version in a run's environment; for a Python package that of the package
    suffix: str = ".py"
    complete: bool = True  # every rung has it unless the rung's `dialects` says otherwise; False while it is begun
    compiled_ahead: bool = False  # its package's `build_all` compiles kernels before they are called
    vectors: tuple[str, ...] = ("B",)  # the operands that a tile of it copies as vectors, where it copies any so

    @property
    def package(self) -> str:
        """The package whose `gemm` runs its kernels."""
        return f"{self.backend}_kernels"

    @property
    def module(self) -> str:
        """The Python package that its files are in."""
        return self.folder.replace("/", ".")

    def file_of(self, stage: str) -> str:
        """The file of the rung with the id `stage`, from the root."""
        return f"{self.folder}/{stage}{self.suffix}"


_TABLE = (
    Dialect("cuda", "CUDA", "cuda", "cuda_kernels", "nvcc", "nvcc", suffix=".cu", compiled_ahead=True),
    Dialect("triton", "Triton", "triton", "triton_kernels", "Triton", "triton", vectors=("A", "B")),
    Dialect("gluon", "Gluon", "triton", "triton_kernels/gluon", "Triton", "triton"),
)
DIALECTS: Mapping[str, Dialect] = MappingProxyType({dialect.name: dialect for dialect in _TABLE})
COMPLETE = tuple(name for name, dialect in DIALECTS.items() if dialect.complete)
BY_HAND = "cuda"  # leaves least to its compiler: the others are compared with it, and its files say what a rung is
OTHERS = tuple(name for name in DIALECTS if name != BY_HAND)
