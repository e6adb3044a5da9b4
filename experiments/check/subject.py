"""What is checked: one kernel, from a CUDA or a Python file, behind one face."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

import gemm_ref
from experiments.records.request import UsageError
from gemm_ref.epilogue import Extras
from gemm_ref.problem import INTEGER_LIMIT


@dataclass(frozen=True)
class Scales:
    """What a kernel computes: C = alpha * A @ B + beta * C + bias * `vector(N)`."""

    alpha: float = 1.0
    beta: float = 0.0
    bias: float = 0.0


PLAIN = Scales()


def vector(n: int) -> torch.Tensor:
    """(N,) integers that a bias is made of, in fp32."""
    drawn = np.random.default_rng(n).integers(-INTEGER_LIMIT, INTEGER_LIMIT + 1, n)
    return torch.from_numpy(drawn).float()


@dataclass(frozen=True)
class Survey:
    """What was seen of the first block."""

    tile: tuple[int, int] | None  # rows and columns of C that it stores; None where that is no tile
    slice: int  # products of each sum that it fetches at a time
    depth: int  # as many as pass through all its buffers and are fetched into each again: (stages + 2) slices
    walks: bool = False  # it stores one part of C after another: its time grows with C, and not only with K


class Subject(ABC):
    """A kernel that computes C = A @ B, and what is known of it before it runs."""

    dialect: str  # cuda, triton or gluon
    path: Path
    name: str
    math: str = "fp32"
    intended: str = ""  # the math mode that the user says, with --math
    tile: tuple[int, int]  # rows and columns of C that a block owns, as far as they are known
    square: bool = False  # it takes one size for all three
    zeroed: bool = False  # C holds zeros when it starts, because what it holds is an input too
    finite: bool = False  # C holds integers when it starts, because it is multiplied by 0 and added
    whole_numbers: bool = False  # its elements have no fractions
    unsigned: bool = False  # A and B hold no negative numbers
    finish: Extras = Extras()  # what it does to C unasked
    plain: Scales = PLAIN  # of what is not in `scalars`: beta is 1 where C is added to a result of its own
    scalars: tuple[str, ...] = ()  # of ALPHA, BETA and BIAS, those that it is given
    seen: Survey | None = None  # of its first block, where that was run
    assumed: str = ""  # what was found by trying, and is not what is usual: `B stored as N x K`

    def __new__(cls, *_: object) -> Subject:
        made = super().__new__(cls)
        made.notes, made.warnings, made.fixed = [], [], {}
        return made

    notes: list[str]  # what was decided for the user
    warnings: list[tuple[str, int, str]]  # of the compiler: number, line, text
    fixed: dict[str, int]  # sizes that the source fixes, by `m`, `n`, `k`

    def admit(self, problem: gemm_ref.Problem) -> gemm_ref.Problem:
        """The problem of these sizes that the kernel can be asked for."""
        if self.square:
            largest = max(problem.m, problem.n, problem.k)
            problem = gemm_ref.Problem(largest, largest, largest)
        problem = problem.resized(k=min(problem.k, self.deepest))
        return replace(problem.resized(**self.fixed), math=self.math)

    @property
    def deepest(self) -> int:
        """The largest K whose sums of integers are exact."""
        return gemm_ref.MATHS[self.math].exact_sum // INTEGER_LIMIT**2

    def assume(self, what: str) -> None:
        """Put down what is not usual, and was found by trying."""
        self.assumed += " and " * bool(self.assumed and what) + what

    def judge_as_cut(self, why: str, to: str = "tf32") -> None:
        """Judge a kernel for fp32 as one that cuts its operands: to tf32, or to fp16 of as many bits; and say so."""
        self.math = "tf32"
        self.assume(f"operands cut to {to}")
        beyond = ", where what is past 65504 is infinity" * (to == "fp16")
        self.notes.append(f"it is judged as {to}, to which {why}{beyond}; --math fp32 judges it by that")

    def set_math(self, math: str, dtype: torch.dtype | None = None) -> None:
        """Judge the kernel by this math mode. Raises UsageError where that is for elements of another type."""
        wanted = gemm_ref.MATHS[math].dtype
        if dtype not in (None, wanted):
            raise UsageError(f"--math {math} is for matrices of {wanted}, and those of {self.name} are {dtype}")
        self.math = math

    @property
    @abstractmethod
    def how(self) -> str:
        """The call and the launch, in a line."""

    @abstractmethod
    def run(self, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, scales: Scales = PLAIN) -> None:
        """What `Scales` says, on the reference GPU, from and into c; what is not in `scalars` is as in `plain`.

        Raises ptx.PtxError at a fault, and UsageError where the kernel's own host refuses these sizes.
        """

    @abstractmethod
    def gpu_call(self, problem: gemm_ref.Problem) -> Callable[..., torch.Tensor]:
        """`fn(a, b, out)` for the tensors of a GPU."""

    def called(self, kernel: str) -> str:
        """What a kernel that its compiler names `kernel` is called in words."""
        return kernel

    def swapped(self) -> tuple[Subject, str] | None:
        """The kernel with the grid's x and y exchanged, and that grid as --grid, where the user decides on it."""
        return None

    def row_steps(self) -> list[tuple[int, str, str, str]]:
        """(line, matrix, name, size) of each `matrix[row * name + ...]` in the source, name being M, N or K there."""
        return []
