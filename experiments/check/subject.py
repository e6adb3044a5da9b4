"""What is checked: one kernel, from a CUDA or a Python file, as an immutable value; its source, and one run of it."""

from __future__ import annotations

import functools
import io
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self

import numpy as np
import torch

import gemm_ref
from experiments.check import limits, progress
from experiments.check.messages import Message, Note
from experiments.records.request import UsageError
from gemm_ref import ptx
from gemm_ref.epilogue import Extras
from gemm_ref.inputs import aligned
from gemm_ref.problem import INTEGER_LIMIT
from gemm_ref.ptx.detect.finding import EARLY, MIXED, RACE, SKIPPED, TWICE

# The reference GPU cannot run the kernel, which is no fault of the kernel.
UNSUPPORTED = (ptx.Unsupported, ptx.ParseError)
SCALES = (-3.0, -2.0, 2.0, 3.0)  # sums stay exact in half precision as well
_PER_PRODUCT = 16  # instructions
FEW_MULTIPROCESSORS = 4  # of the GPU that host code sees, so that blocks of persistent kernels have several tiles each
RACE_OF_LAUNCHES = "a race of launches"  # how the fault of two that overlap begins
_NO_INPUTS = ("survey", "assumed", "settings", "intended_math")  # attributes of a subject that no run depends on
_ONES = ("ones", "a_ones", "b_ones")  # kinds of inputs in which all elements of a matrix are equal
_INTEGERS = (*_ONES, "positive", "infinite")  # kinds of integers; sums of positive ones exceed what fp16 holds exactly


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
    trust: bool = False  # the code runs even where it cannot be confined


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
    # Inputs, whether with detectors, and trial of each run of all copies of a kernel that does the same each time
    past: list[tuple[object, bool, Trial]] | None = None

    @property
    def notes(self) -> list[Message]:
        """All notes, those that only arise when the kernel is compiled included."""
        return list(self.settings)

    @property
    def guess(self) -> str:
        """The options that specify what was inferred by trying, and so may be why results are wrong; empty if none."""
        return ""

    @property
    def others(self) -> str:
        """The other kernels that the function which launches it passes C, and that are left out."""
        return ""

    @property
    def on_whole_gpu(self) -> Subject:
        """The kernel as launched on a GPU with all its multiprocessors, where host code asks for their number."""
        return self

    @property
    def warnings(self) -> list[tuple[str, int, str]]:
        """The compiler's warnings as (number, line, text)."""
        return []

    def with_note(self, code: Note, **values: object) -> Self:
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
        """Returns a kernel for fp32 that is compared as one that rounds its operands to tf32, or fp16."""
        return replace(self, math="tf32").assume(f"operands cut to {to}").with_note(code, to=to, **values)

    @property
    @abstractmethod
    def how(self) -> str:
        """The call and the launch, in a line."""

    @property
    def group(self) -> int:
        """How many rows or columns of tiles it takes together, as far as its constants tell; else 0."""
        return 0

    @property
    def operand_type(self) -> torch.dtype:
        """The type of the elements of A, as the kernel takes them."""
        return gemm_ref.MATHS[self.math].dtype

    @property
    def result_type(self) -> torch.dtype:
        """The type of the elements of C, as the kernel stores them."""
        return gemm_ref.MATHS[self.math].out_dtype

    def rounds_sums(self, problem: gemm_ref.Problem) -> bool:
        """Whether sums that `result_type` holds exactly are rounded, where C is compared in a smaller type."""
        return False

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

    def find_overflows(self) -> list[Message]:
        """Returns a limit for each matrix whose offsets or indices are computed in too few bits."""
        return []

    def row_steps(self) -> Iterable[tuple[int, str, str, str]]:
        """Yields (line, matrix, name, size) of each `matrix[row * name + ...]` in the source, name being M, N or K."""
        return ()


def read_source(path: Path) -> str:
    """Returns a file's text, of UTF-8 or Latin-1, with newlines as line ends. Raises UsageError if it is no text."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error
    if b"\0" in content:
        raise UsageError(f"{path.name} is not text, or is in UTF-16: pass a source file, saved as UTF-8")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = content.decode("latin-1")
    return io.StringIO(text, newline=None).read()


# --- one run -----------------------------------------------------------------------------------------------------


class CannotCheck(Exception):
    """The reference GPU cannot run the kernel; the message says what it lacks, and where."""


@dataclass(frozen=True)
class Trial:
    """A run at one size."""

    problem: gemm_ref.Problem
    kind: str  # of the inputs
    a: torch.Tensor = field(compare=False, repr=False)
    b: torch.Tensor = field(compare=False, repr=False)
    c: torch.Tensor = field(compare=False, repr=False)  # as it was left
    wrong: str = ""  # what is wrong with C; empty where it is right, or was not looked at because of a fault
    fault: str = ""  # what stopped the run
    refusal: Exception | None = None  # why it could not be run at this size
    findings: tuple[ptx.Finding, ...] = ()
    scales: Scales = PLAIN
    accuracy: gemm_ref.Accuracy | None = None  # where it is right

    @property
    def right(self) -> bool:
        return not self.wrong and not self.fault and not self.refusal

    @property
    def scales_text(self) -> str:
        """`with alpha = 2 and beta = -3, ` where they are not those of a plain product."""
        drawn = {name: value for name, value in vars(self.scales).items() if value != getattr(PLAIN, name)}
        parts = ["a bias" if name == "bias" else f"{name} = {value:g}" for name, value in drawn.items()]
        return f"with {' and '.join(parts)}, " if parts else ""

    @property
    def unordered(self) -> bool:
        """Whether threads are not synchronised, which neither sizes nor layouts explain."""
        return self.is_by_order or any(finding.kind in (RACE, EARLY, SKIPPED, MIXED) for finding in self.findings)

    @property
    def is_by_order(self) -> bool:
        """Whether C depends on the order of launches, or of two statements of different blocks, that nothing orders."""
        twice = [each for each in self.findings if each.kind == TWICE and each.line != each.other_line]
        return RACE_OF_LAUNCHES in self.fault or bool(self.wrong and twice)

    @property
    def endless(self) -> bool:
        return "still running after" in self.fault


class Launches(ptx.Observer):
    def __init__(self) -> None:
        self.seen: list[tuple[ptx.DecodedKernel, gemm_ref.Launch]] = []

    def on_launch(self, kernel, launch, memory) -> None:
        self.seen.append((kernel, launch))


def attempt(
    subject: Subject,
    problem: gemm_ref.Problem,
    kind: str = "integers",
    *,
    scales: Scales | None = None,
    zeroed: bool | None = None,
    detect: bool = False,
    observers: Sequence[ptx.Observer] = (),
    compare: bool = True,
) -> Trial:
    """Runs the kernel on seeded inputs of a kind and checks the result.

    scales: `draw_scales` by default for integers, else those of a plain product. zeroed: C holds zeros when the kernel
    starts, and not NaN; by default where beta is among the parameters. If beta is not 0, C holds integers. detect: with
    the fault detectors. compare: whether C is compared; where it is not, the trial is not wrong.
    """
    if scales is None:
        scales = draw_scales(subject, problem) if kind == "integers" else subject.plain
    zeroed = (subject.zeroed or "BETA" in subject.scalars) if zeroed is None else zeroed
    attributes = {name: value for name, value in vars(subject).items() if name not in _NO_INPUTS}
    inputs = (attributes, problem, kind, scales, zeroed)
    past = [] if subject.past is None or observers else subject.past
    for known, has_detectors, trial in past:
        if known == inputs and has_detectors >= detect:
            return trial
    progress.step(f"runs {subject.name} at {problem}")
    before = integers(problem) if scales.beta or subject.finite else None
    if before is not None and kind != "integers":
        before.zero_()  # sums stay exact
    bias = scales.bias * bias_vector(problem.n) if scales.bias else None
    detectors = ptx.Detectors(outputs=() if zeroed or before is not None else ("C",), tile=subject.tile)
    limit = limits.InstructionLimit(max(limits.MAX_INSTRUCTIONS, _PER_PRODUCT * problem.n * problem.k))  # of a row of C
    all_observers = [limit, *observers, *([detectors] if detect else ())]
    outputs = []

    def fn(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor, **_: object) -> torch.Tensor:
        outputs.append(out)
        if before is not None:
            out.copy_(before)
        elif zeroed:
            out.zero_()
        with ptx.watched(*all_observers):
            subject.run(a, b, out, scales)
        return out

    a, b = operands(problem, kind)
    if subject.unsigned or kind == "positive":
        a, b = a.abs(), b.abs()
    wrong = fault = ""
    accuracy = None
    refusal: Exception | None = None
    exact = kind in _INTEGERS or gemm_ref.MATHS[problem.math].is_exact(kind)
    own = subject.finish
    exact = exact and abs(math.frexp(own.alpha)[0]) == 0.5  # a power of two rounds nothing
    added, beta = (before, scales.beta) if scales.beta else (None, None)
    extras = own._replace(c=added, alpha=scales.alpha * own.alpha, beta=beta, bias=bias)
    try:
        if compare:
            accuracy = gemm_ref.checked_run(fn, a, b, math=problem.math, exact=exact, extras=extras)
        else:
            dtype = gemm_ref.MATHS[problem.math].out_dtype
            fn(a, b, torch.full((problem.m, problem.n), math.nan, dtype=dtype))
    except limits.OutOfTime:
        raise
    except gemm_ref.WrongResult as error:
        wrong = str(error)
    except UNSUPPORTED as error:
        refusal = CannotCheck(str(error))
    except UsageError as error:
        refusal = error
    except ptx.AssertFailed as error:
        refusal = UsageError(f"{subject.name} refuses to run: {error}")
    except ptx.PtxError as error:
        fault = str(error)
    trial = Trial(problem, kind, a, b, outputs[0], wrong, fault, refusal, detectors.findings, scales, accuracy)
    past.append((inputs, detect, trial))
    return trial


def draw_scales(subject: Subject, problem: gemm_ref.Problem) -> Scales:
    """Returns alpha, beta and a bias for a kernel that takes them, other ones at every size."""
    chosen = np.random.default_rng([problem.m, problem.n, problem.k]).choice(SCALES, 2, replace=False)
    named = {"ALPHA": float(chosen[0]), "BETA": float(chosen[1]), "BIAS": 1.0}
    return replace(subject.plain, **{x.lower(): value for x, value in named.items() if x in subject.scalars})


def integers(problem: gemm_ref.Problem) -> torch.Tensor:
    """Returns (M, N) integers in [-4, 4] of C's dtype, which C holds beforehand."""
    rng = np.random.default_rng([problem.n, problem.m])
    values = rng.integers(-INTEGER_LIMIT, INTEGER_LIMIT + 1, (problem.m, problem.n))
    return torch.from_numpy(values).to(gemm_ref.MATHS[problem.math].out_dtype)


def operands(problem: gemm_ref.Problem, kind: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns A and B, each aligned to a cache line, as a GPU allocates. `a_ones`: ones in A, integers in B."""
    a, b = _inputs(problem, "integers" if kind in _INTEGERS else kind)
    if kind in ("ones", "a_ones"):
        a = torch.ones_like(a)
    if kind in ("ones", "b_ones"):
        b = torch.ones_like(b)
    a, b = aligned(a), aligned(b)  # copies
    if kind == "infinite":  # where whoever reads past the end of an even row comes
        a[1::2, 0] = torch.inf
    return a, b


_inputs = functools.lru_cache(maxsize=4)(gemm_ref.make_inputs)  # launches and layouts are tried at one size
