"""A kernel from a user's Python file: a function that launches a Triton or Gluon kernel on the tensors it is given.

The function is `gemm(a, b, c)`, which fills c, or `gemm(a, b)`, which returns a C of its own: a (M, K), b (K, N) or
(N, K), c (M, N), row-major. Any name will do, and what else it takes is found by name. A GPU's stand-in is present
while it runs, and the launches inside it run on the reference GPU. With several functions, --kernel names it.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import itertools
import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
import triton

import gemm_ref
from experiments.check import diagnose
from experiments.check.limits import used_s
from experiments.check.messages import Limit, Message, Note, message
from experiments.check.python import functions, module, offsets, operands, untuned
from experiments.check.python.caged import CagedCall, open_caged
from experiments.check.python.stand_in import MODELS, renamed
from experiments.check.subject import PLAIN, Options, Scales, Subject, Trial, attempt, read_source
from experiments.check.subject import operands as operands_of
from experiments.records.request import UsageError
from gemm_ref.launch import cdiv
from triton_kernels.reference_gpu import Started

TILE = (128, 128)  # assumed for the tile of C where no constant of the kernel is its side
PROBE = gemm_ref.Problem(256, 512, 1024)  # whole tiles of any size, for a call that launches nothing
MAX_WHOLE = 64  # rows, columns and products of a tile that is the whole matrix
_MAX_TRIED = 8  # forms of operands that the function takes
_SEARCH_S = 10.0  # of a core's time, after which no other form is tried
_MIN_SIDE, _DEPTH = 64, 384  # of a tile, and products of each sum, where forms are tried


def open_python(path: Path, options: Options, problems: Sequence[gemm_ref.Problem] = ()) -> PythonKernel:
    """Returns the kernel that a Python file launches, with operands as it takes them. Raises UsageError."""
    for option in ("block", "grid", "args", "template", "shared"):
        if getattr(options, option):
            raise UsageError(f"--{option} is for CUDA: a Python file launches its kernel itself")
    if options.like not in MODELS:
        raise UsageError(f"--like {options.like} is no GPU known here: there are {', '.join(MODELS)}")
    return _Search(open_caged(path, options), options.math, *problems[:1]).run()


@dataclass(frozen=True, kw_only=True, eq=False)
class PythonKernel(Subject):
    """A function that launches, with one way of passing its operands."""

    call: CagedCall
    form: operands.Form
    started: list[Started]  # by a call whose launches were not run
    made: torch.dtype  # of the C that it allocates, or is passed
    tile_is_matrix: bool = False

    @property
    def result_type(self) -> torch.dtype:
        return self.made

    def rounds_sums(self, problem: gemm_ref.Problem) -> bool:
        compared = gemm_ref.MATHS[self.math].out_dtype
        if self.made == compared or self.finish.has_epilogue or self.scalars:
            return False
        a, b = (x.abs() for x in operands_of(problem, "positive"))
        c = torch.zeros(problem.m, problem.n, dtype=compared)
        exact = torch.empty(problem.m, problem.n, dtype=torch.float64)
        self.form.storage.load(self.call.run(self.form, a, b, c, PLAIN)[0], exact)
        return not torch.equal(exact, a.double() @ b.double())

    @property
    def how(self) -> str:
        return self.call.text

    @property
    def guess(self) -> str:
        if self.call.is_guess:
            return "--kernel with a function gemm(a, b, c) that launches it, once the file has one"
        names = itertools.chain.from_iterable(self.call.state.selected.values())
        return " ".join(f"-D {name}=..." for name in dict.fromkeys(names) if name not in self.call.constants)

    @property
    def operand_type(self) -> torch.dtype:
        return self.form.elements.a

    @property
    def group(self) -> int:
        constants = (item for each in self.started for item in each.constants.items())
        found: list[object] = [value for name, value in constants if re.search("group|swizzle|super", name, re.I)]
        if re.search("multi_?processor_count|num_sms?\\b", _without_comments(self.path), re.I):  # a program each
            found.append(cdiv(self.call.model.multi_processor_count, 2))  # of two columns of tiles
        return max((value for value in found if isinstance(value, int)), default=0)

    def find_overflows(self) -> list[Message]:
        found: dict[tuple[Limit, object], Message] = {}
        for launch in self.started:
            for each in offsets.find_narrow(launch.ttir):
                name = launch.constants.get(each.parameter)
                matrix = name if name in functions.MATRICES else each.parameter
                code = Limit.NARROW_INDEX if each.is_index else Limit.NARROW_OFFSETS
                values = {"width": each.bits + 1, "bits": each.bits, "file": each.file, "line": each.line}
                found.setdefault((code, matrix), message(code, matrix=matrix, **values))
        return list(found.values())

    @property
    def ttir(self) -> str:
        return "".join(each.ttir for each in self.started)

    def nearest_problem(self, problem: gemm_ref.Problem) -> gemm_ref.Problem:
        limits = {axis: min(getattr(problem, axis), MAX_WHOLE) for axis in "mnk"} if self.tile_is_matrix else {}
        return super().nearest_problem(problem.resized(**limits))

    def run(self, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, scales: Scales = PLAIN) -> None:
        self.form.storage.load(self.call.run(self.form, a, b, c, scales)[0], c)

    def gpu_call(self, problem: gemm_ref.Problem) -> Callable[..., torch.Tensor]:
        host = self.call.open_here()
        passed = functools.lru_cache(maxsize=8)(self.form.passed)

        def call(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
            self.form.storage.load(host.product(self.form, passed(a, b, out), problem), out)
            return out

        return call


class _Search:
    """Finds the types and the storage of operands, the order of sizes and the shapes of factors that make it right.

    Those that the function rejects are found by calls whose launches are not run. Where nothing is right, the
    likeliest are taken.
    """

    def __init__(self, call: CagedCall, math_: str, probe: gemm_ref.Problem = PROBE) -> None:
        self._call, self._math, self._probe = call, math_, probe
        self._all_refused = True  # nothing could be run yet

    def run(self) -> PythonKernel:
        fitting = self._fitting()
        first = next(fitting)
        chosen = None
        others = itertools.islice(fitting, _MAX_TRIED), self._other_orders(first)
        end_s = used_s() + _SEARCH_S
        every = itertools.chain([first], self._other_grid(first), *others)
        for kernel in itertools.takewhile(lambda _: used_s() < end_s, every):
            trial = _try(kernel)
            if trial.right or diagnose.find_finish(kernel, trial).has_epilogue:
                chosen = kernel
                break
            chosen = chosen or (None if trial.refusal else kernel)
            self._all_refused = chosen is None
        self._call = (chosen or first).call
        kernel = self._passing((chosen or first).form)
        if kernel.math == "fp32" and not (self._math or kernel.is_integer) and "inputPrecision = tf32" in kernel.ttir:
            kernel = kernel.with_reduced_operands(Note.REDUCED_BY_TRITON, "tf32")
        names = self._call.parameters.union(*(x.constants for x in kernel.started))
        if unknown := [name for name in self._call.constants if name not in names]:
            raise UsageError(f"-D {unknown[0]} is no parameter of {kernel.name} and no constant of its kernels")
        return replace(kernel, settings=(*kernel.settings, *_notes(kernel, self._math)))

    def _other_grid(self, first: PythonKernel) -> Iterator[PythonKernel]:
        """The first form of a kernel that is launched alone, with the other order of the grid's axes."""
        if first.call.has_columns:
            yield replace(first, call=replace(first.call, by_columns=True))

    def _other_orders(self, first: PythonKernel) -> Iterator[PythonKernel]:
        """The first form with other storage and sizes in another order, those of these that the function takes."""
        axes = self._call.roles >= set(module.SIZES)
        for storage in first.form.storage.others(axes):
            with contextlib.suppress(UsageError):
                yield self._passing(replace(first.form, storage=storage))

    def _fitting(self) -> Iterator[PythonKernel]:
        """The kernel in each form that the function takes; of the likeliest elements that it takes."""
        call = self._call
        failed: list[tuple[operands.Form, UsageError]] = []
        taken: operands.Elements | None = None
        has_factors = not call.roles.isdisjoint((*functions.FACTORS, functions.FACTOR))
        text = _without_comments(call.path)
        for form in operands.forms(text, f"{call.path.stem}_{call.name}", self._math, has_factors):
            if taken not in (None, form.elements) and not self._all_refused:
                return
            try:
                kernel = self._passing(form)
            except UsageError as error:
                failed.append((form, error))
            else:
                taken = form.elements
                yield kernel
        if taken is None:  # what stopped it with the likeliest types, in the form with which it went on longest
            likely = [error for form, error in failed if form.elements == failed[0][0].elements]
            raise UsageError(f"{max(likely, key=lambda error: getattr(error, 'line', math.inf))}: {functions.PLAIN}")

    def _passing(self, form: operands.Form) -> PythonKernel:
        """The kernel with operands in this form. Raises UsageError where the function does not take it."""
        call, probe, mode = self._call, self._probe, gemm_ref.MATHS[form.elements.math]
        fixed = {"n": 1} if call.takes_vector else {}
        probe = probe.resized(**fixed)
        a, b = torch.zeros(probe.a_shape, dtype=mode.dtype), torch.zeros(probe.b_shape, dtype=mode.dtype)
        made, started = call.run(form, a, b, torch.zeros(probe.m, probe.n, dtype=mode.out_dtype), PLAIN, dry=True)
        if made.dtype == torch.int8:
            raise UsageError(f"{call.name} returns a C of int8, which does not hold the sums")
        ttir = "".join(each.ttir for each in started)
        if "tt.make_tensor_descriptor" in ttir:
            call.state.without_tma = True
        m, n = (untuned.tile_side(started[0].constants, axis) for axis in "mn")
        whole = (f"tensor<{PROBE.m}x{PROBE.n}x", f"tensor<{PROBE.k}x", f"x{PROBE.k}x")
        return PythonKernel(
            path=call.path,
            name=call.name,
            dialect="triton",
            tile=(m or TILE[0], n or TILE[1]),
            math=form.elements.compared_as(None if call.fills_c else made.dtype),
            square=call.square,
            fixed=fixed,
            zeroed=not call.fills_c,  # what it allocates itself may hold zeros
            is_integer=form.elements.is_integer,
            scalars=tuple(role for role in (*functions.SCALARS, functions.BIAS) if role in call.roles),
            assumed=str(form.storage),
            call=call,
            form=form,
            started=started,
            made=made.dtype,
            tile_is_matrix=self._probe is PROBE and not fixed and any(tile in ttir for tile in whole),
        )


@functools.cache
def _without_comments(path: Path) -> str:
    return ast.unparse(ast.parse(read_source(path)))


def _try(kernel: PythonKernel) -> Trial:
    m, n = (side * cdiv(_MIN_SIDE, side) for side in kernel.tile)
    m *= n // m + 1  # more than N: a factor for rows is not one of columns
    problem = kernel.nearest_problem(gemm_ref.Problem(m, n, _DEPTH))
    return attempt(kernel, problem, zeroed=True)  # whether it reads C is another question


def _notes(kernel: PythonKernel, math_: str) -> Iterator[Message]:
    """What was decided for the user; math_: of --math."""
    call = kernel.call
    if ones := call.factors:
        yield message(Note.FACTORS_ARE_ONES, names=", ".join(ones))
    if call.is_kernel:
        square = ", with one size for M, N and K, as there" * kernel.square
        yield message(Note.KERNEL_LAUNCHED_ALONE, square=square)
    if call.takes_vector:
        yield message(Note.ONE_COLUMN)
    if not call.fills_c:
        yield message(Note.ALLOCATES_C)
    if kernel.form.batched:
        yield message(Note.BATCH_OF_ONE)
    for kernel_name, selected in call.state.selected.items():
        values = ", ".join(f"{name}={value}" for name, value in selected.items())
        yield message(Note.TUNER_REPLACED, kernel=kernel_name, values=values)
    if call.state.without_tma:
        yield message(Note.COMPILED_WITHOUT_TMA)
    if foreign := {name for each in kernel.started for name in each.foreign}:
        yield message(Note.FOREIGN_OPTIONS, names=", ".join(sorted(foreign)))
    if kernel.tile_is_matrix:
        yield message(Note.TILE_IS_MATRIX, limit=MAX_WHOLE)
    if kernel.form.elements.name != "fp32" and not math_:
        yield message(Note.ELEMENTS_FROM_TEXT, elements=kernel.form.elements.name)
    for old, new in renamed().items():
        if re.search(rf"\b{old}\b", read_source(kernel.path)):
            yield message(Note.RENAMED_IN_TRITON, old=old, new=new, version=triton.__version__)
    if call.left_out:
        more = f" and {len(call.left_out) - 3} more" if len(call.left_out) > 3 else ""
        yield message(Note.CODE_LEFT_OUT, lines=", ".join(call.left_out[:3]) + more)
