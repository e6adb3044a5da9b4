"""What is checked: one kernel, from a CUDA or a Python file, as an immutable value with one interface."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self

import numpy as np
import torch

import gemm_ref
from experiments.check.messages import Message, Note
from experiments.records.request import UsageError
from gemm_ref.epilogue import Extras
from gemm_ref.problem import INTEGER_LIMIT


@dataclass(frozen=True)
class Options:
    """The kernel's options of the command line; an empty one is not specified."""

    kernel: str = ""
    block: str = ""
    grid: str = ""
    args: str = ""
    template: str = ""
    define: tuple[str, ...] = ()
    shared: str = ""
    math: str = ""  # the intended arithmetic, where the type of A, B and C does not determine it
    include: tuple[str, ...] = ()  # folders of headers
    flags: str = ""  # for nvcc
    like: str = "sm_90"  # the GPU that host code in Python sees
    layout: str = ""  # matrices that are stored column-major: B=NxK


@dataclass(frozen=True)
class Scales:
    """The coefficients of C = alpha * A @ B + beta * C + bias * `bias_vector(N)`."""

    alpha: float = 1.0
    beta: float = 0.0
    bias: float = 0.0


PLAIN = Scales()


def bias_vector(n: int) -> torch.Tensor:
    """Returns the (N,) integers that a bias is made of, in fp32."""
    values = np.random.default_rng(n).integers(-INTEGER_LIMIT, INTEGER_LIMIT + 1, n)
    return torch.from_numpy(values).float()


@dataclass(frozen=True)
class Survey:
    """What a run of the first block alone shows."""

    tile: tuple[int, int] | None  # rows and columns of C that the block stores; None where they form no tile
    slice: int  # products of each sum that are fetched at a time
    depth: int  # products that refill each of the kernel's buffers: (stages + 2) slices
    walks: bool = False  # the block stores one part of C after another: its time grows with M and N, not only with K


@dataclass(frozen=True, kw_only=True, eq=False)
class Subject(ABC):
    """A kernel that computes C = A @ B, and what is known of it before it runs. `replace` makes a changed copy."""

    path: Path = Path()
    name: str
    dialect: str  # cuda, triton or gluon
    tile: tuple[int, int]  # rows and columns of C that a block owns, as far as they are known
    math: str = "fp32"
    intended_math: str = ""  # of --math
    square: bool = False  # the kernel takes one size for M, N and K
    fixed: Mapping[str, int] = field(default_factory=dict)  # sizes that the source fixes, by `m`, `n`, `k`
    zeroed: bool = False  # C is zeroed before the launch, because it is an input as well
    finite: bool = False  # C holds integers before the launch, because it is multiplied by 0 and added
    is_integer: bool = False  # the elements have no fractions
    unsigned: bool = False  # A and B hold no negative numbers
    finish: Extras = Extras()  # what the kernel does to C beside the product
    plain: Scales = PLAIN  # of what is not in `scalars`: beta is 1 where C is added to a result D
    scalars: tuple[str, ...] = ()  # those of ALPHA, BETA and BIAS that are parameters
    survey: Survey | None = None  # of the first block, once that ran
    assumed: str = ""  # an unusual property that was found by trial: `B stored as N x K`
    settings: tuple[Message, ...] = ()  # notes on what was decided for the user

    @property
    def notes(self) -> list[Message]:
        """All notes, those that only arise when the kernel is compiled included."""
        return list(self.settings)

    @property
    def warnings(self) -> list[tuple[str, int, str]]:
        """The compiler's warnings as (number, line, text)."""
        return []

    def with_note(self, code: Note, **values: object) -> Self:
        """Returns the kernel with one more note."""
        return replace(self, settings=(*self.settings, Message(code, values)))

    def nearest_problem(self, problem: gemm_ref.Problem) -> gemm_ref.Problem:
        """Returns the problem nearest to these sizes that the kernel can be called with."""
        if self.square:
            largest = max(problem.m, problem.n, problem.k)
            problem = gemm_ref.Problem(largest, largest, largest)
        problem = problem.resized(k=min(problem.k, self.max_depth))
        return replace(problem.resized(**self.fixed), math=self.math)

    @property
    def max_depth(self) -> int:
        """The largest K whose sums of integers are exact."""
        return gemm_ref.MATHS[self.math].exact_sum // INTEGER_LIMIT**2

    def assume(self, what: str) -> Self:
        """Returns the kernel with one more unusual property in `assumed`."""
        return replace(self, assumed=" and ".join(filter(None, (self.assumed, what))))

    def with_reduced_operands(self, code: Note, to: str, **values: object) -> Self:
        """Returns a kernel for fp32 that is compared as one that rounds its operands to tf32, or to fp16 of as many
        bits."""
        return replace(self, math="tf32").assume(f"operands cut to {to}").with_note(code, to=to, **values)

    def with_math(self, math: str, dtype: torch.dtype | None = None) -> Self:
        """Returns the kernel compared in this math mode. Raises UsageError where that is for another element type."""
        wanted = gemm_ref.MATHS[math].dtype
        if dtype not in (None, wanted):
            raise UsageError(f"--math {math} is for matrices of {wanted}, and those of {self.name} are {dtype}")
        return replace(self, math=math)

    @property
    @abstractmethod
    def how(self) -> str:
        """The call and the launch, in a line."""

    @abstractmethod
    def run(self, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, scales: Scales = PLAIN) -> None:
        """Computes on the reference GPU, from and into c; what is not in `scalars` is as in `plain`.

        Raises ptx.PtxError at a fault, and UsageError where the kernel's own host code rejects these sizes.
        """

    @abstractmethod
    def gpu_call(self, problem: gemm_ref.Problem) -> Callable[..., torch.Tensor]:
        """Returns `fn(a, b, out)` for the tensors of a GPU."""

    def describe_entry(self, entry: str) -> str:
        """Returns the name to print for a kernel that its compiler names `entry`."""
        return entry

    def transpose_grid(self) -> tuple[Subject, str] | None:
        """Returns the kernel with the grid's x and y exchanged, and that grid as --grid, where the user chooses it."""
        return None

    def row_steps(self) -> list[tuple[int, str, str, str]]:
        """Returns (line, matrix, name, size) of each `matrix[row * name + ...]` in the source, name being M, N or K."""
        return []
