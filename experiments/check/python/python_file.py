"""A kernel from a user's Python file: a function that launches a Triton or Gluon kernel on the tensors it is given.

The function is `gemm(a, b, c)`, which fills c, or `gemm(a, b)`, which returns a C of its own: a (M, K), b (K, N) or
(N, K), c (M, N), row-major. Any name will do, and what else it takes is found by name. A GPU's stand-in is present
while it runs, and the launches inside it run on the reference GPU. With several functions, --kernel names it.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import hashlib
import io
import itertools
import math
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
import triton
from triton.runtime.errors import OutOfResources

import gemm_ref
from experiments.check import diagnose
from experiments.check.messages import Limit, Message, Note, message
from experiments.check.python import functions, module, offsets, operands, untuned
from experiments.check.python.stand_in import MODELS, StandIn, renamed
from experiments.check.subject import PLAIN, Options, Scales, Subject, Trial, attempt, bias_vector, read_source
from experiments.check.subject import operands as operands_of
from experiments.records.request import UsageError
from gemm_ref.build import CACHE
from gemm_ref.launch import cdiv
from triton_kernels.reference_gpu import Started, on_reference_gpu

TILE = (128, 128)  # assumed for the tile of C where no constant of the kernel is its side
PROBE = gemm_ref.Problem(256, 512, 1024)  # whole tiles of any size, for a call that launches nothing
WITHOUT_TMA = (8, 9)  # the last of a GPU on which Triton makes ordinary accesses of a kernel's own descriptors
MAX_WHOLE = 64  # rows, columns and products of a tile that is the whole matrix
_MAX_TRIED = 8  # forms of operands that the function takes
_MIN_SIDE, _DEPTH = 64, 384  # of a tile, and products of each sum, where forms are tried


def open_python(path: Path, options: Options, problems: Sequence[gemm_ref.Problem] = ()) -> PythonKernel:
    """Returns the kernel that a Python file launches, with operands as it takes them. Raises UsageError."""
    for option in ("block", "grid", "args", "template", "shared"):
        if getattr(options, option):
            raise UsageError(f"--{option} is for CUDA: a Python file launches its kernel itself")
    if options.like not in MODELS:
        raise UsageError(f"--like {options.like} is no GPU known here: there are {', '.join(MODELS)}")
    stand_in = StandIn(MODELS[options.like])
    loaded = module.load(path, stand_in)
    constants = loaded.values(options.define)
    for kernel in loaded.untuned:
        kernel.defines = constants
    launcher = functions.choose(loaded, options.kernel, constants)
    call = HostCall(loaded, stand_in, launcher, constants)
    return _Search(call, options.math, *problems[:1]).run()


@dataclass(frozen=True)
class HostCall:
    """The function of a file that launches, with what it needs to be called here."""

    module: module.Module
    stand_in: StandIn
    launcher: functions.Launcher
    constants: dict[str, object]  # of -D

    @property
    def name(self) -> str:
        return self.launcher.name

    def run(
        self, form: operands.Form, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, scales: Scales, dry: bool = False
    ) -> tuple[torch.Tensor, list[Started]]:
        """Calls the function on CPU tensors; returns C as it is stored, and what was launched. dry: nothing runs."""
        passed = form.passed(a, b, c)
        places = {x.untyped_storage().data_ptr(): name for name, x in zip("ABC", passed, strict=True)}
        started: list[Started] = []

        def name_of(x: torch.Tensor) -> str:
            own = "C" if x.numel() == c.numel() and not self.launcher.fills_c else f"a tensor of {tuple(x.shape)}"
            return places.get(x.untyped_storage().data_ptr(), own)

        def begin(launch: Started) -> contextlib.AbstractContextManager:
            limit = self.stand_in.model.shared_memory_per_block_optin
            if launch.shared_bytes > limit:
                raise OutOfResources(launch.shared_bytes, limit, "shared memory")
            named = {name: name_of(x) if isinstance(x, torch.Tensor) else x for name, x in launch.constants.items()}
            started.append(replace(launch, constants=named))
            return self.stand_in.away()

        problem = gemm_ref.Problem(c.shape[0], c.shape[1], a.shape[1])
        with self._present(), on_reference_gpu(name_of, begin, self._configs, self.stand_in.pointed, dry):
            with module.errors(self.module, self.name):
                made = self.product(form, passed, problem, scales)
        if not started:
            raise UsageError(f"{self.name} launched no Triton kernel, so there is nothing to check")
        return made, started

    def product(
        self, form: operands.Form, passed: list[torch.Tensor], problem: gemm_ref.Problem, scales: Scales = PLAIN
    ) -> torch.Tensor:
        """C as it is stored, of A, B and C as they are."""
        made = self.launcher(self._values(form, passed, problem, scales))
        if self.launcher.fills_c:
            return passed[2]
        shape = tuple(passed[2].shape)[: 2 - self.launcher.takes_vector]
        wanted = (1, *shape) if form.batched else shape
        several = made if isinstance(made, list | tuple) else [made]
        found = next((x for x in several if isinstance(x, torch.Tensor) and tuple(x.shape) == wanted), None)
        if found is None:
            what = f"one of {tuple(made.shape)}" if isinstance(made, torch.Tensor) else f"a {type(made).__name__}"
            raise UsageError(f"{self.name} must return C of shape {wanted}; it returned {what}")
        return found.view(passed[2].shape)

    def _values(
        self, form: operands.Form, passed: list[torch.Tensor], problem: gemm_ref.Problem, scales: Scales
    ) -> dict[str, object]:
        """The value of each role; passed: A, B and C as they are stored."""
        a, b, c = passed
        called = form.storage.rename_sizes(problem)
        shapes = operands.FACTORS[form.factors](called.m, called.n, called.k)
        factors_a, factors_b = (torch.ones(shape, device=a.device) for shape in shapes)
        addend = c.clone() if "BETA" in self.launcher.roles else torch.zeros_like(c)
        if self.launcher.takes_vector:
            b, c, addend = b.reshape(-1), c.reshape(-1), addend.reshape(-1)
        matrices = {"A": a, "B": b, functions.VECTOR: b, "C": c, functions.ADDEND: addend}
        return {name: x[None] if form.batched else x for name, x in matrices.items()} | {
            "M": called.m,
            "N": called.n,
            "K": called.k,
            "ALPHA": scales.alpha,
            "BETA": scales.beta,
            functions.FACTORS_A: factors_a,
            functions.FACTORS_B: factors_b,
            functions.FACTOR: factors_b if form.factors else 1.0,
            functions.BIAS: (scales.bias * bias_vector(problem.n)).to(a.device, c.dtype),
            functions.TYPE: form.elements.c,
        }

    def _configs(self, configs: list[triton.Config]) -> list[triton.Config]:
        """Those with the constants of -D."""
        wanted = self.constants
        fitting = [each for each in configs if wanted.items() <= {**wanted, **each.all_kwargs()}.items()]
        if not fitting:
            raise UsageError(f"no configuration that {self.name} is tuned over has the values that -D gives")
        return fitting

    @contextlib.contextmanager
    def _present(self) -> Iterator[None]:
        """Inside, the stand-in is present, and what Triton caches of other files is not taken for this one's."""
        file_key = hashlib.sha256(str(self.module.path.resolve()).encode()).hexdigest()[:16]
        with contextlib.ExitStack() as stack:
            stack.enter_context(self.module.project.present())
            stack.enter_context(self.stand_in.present())
            stack.enter_context(triton.knobs.cache.scope())
            stack.enter_context(contextlib.redirect_stdout(io.StringIO()))
            stack.enter_context(warnings.catch_warnings())
            warnings.simplefilter("ignore")  # Triton's own, about defaults that the file leaves to it
            triton.knobs.cache.dir = str(CACHE / "checked" / file_key)
            yield


@dataclass(frozen=True, kw_only=True, eq=False)
class PythonKernel(Subject):
    """A function that launches, with one way of passing its operands."""

    call: HostCall
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
        return str(self.call.launcher)

    @property
    def guess(self) -> str:
        if self.call.launcher.is_guess:
            return "--kernel with a function gemm(a, b, c) that launches it, once the file has one"
        tuned = (name for each in self.call.module.untuned for name in each.selected if name not in self.call.constants)
        return " ".join(f"-D {name}=..." for name in dict.fromkeys(tuned))

    @property
    def operand_type(self) -> torch.dtype:
        return self.form.elements.a

    @property
    def group(self) -> int:
        constants = (item for each in self.started for item in each.constants.items())
        found: list[object] = [value for name, value in constants if re.search("group|swizzle|super", name, re.I)]
        if re.search("multi_?processor_count|num_sms?\\b", ast.unparse(self.call.module.tree), re.I):  # a program each
            found.append(cdiv(self.call.stand_in.model.multi_processor_count, 2))  # of two columns of tiles
        return max((value for value in found if isinstance(value, int)), default=0)

    def find_overflows(self) -> list[Message]:
        found: dict[tuple[Limit, object], Message] = {}
        for launch in self.started:
            for each in offsets.find_narrow(launch.ttir):
                name = launch.constants.get(each.parameter)
                matrix = name if name in functions.MATRICES else each.parameter
                code = Limit.NARROW_INDEX if each.is_index else Limit.NARROW_OFFSETS
                place = {"file": each.file, "line": each.line}
                found.setdefault(
                    (code, matrix), message(code, matrix=matrix, width=each.bits + 1, bits=each.bits, **place)
                )
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
        passed = functools.lru_cache(maxsize=8)(self.form.passed)

        def call(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
            self.form.storage.load(self.call.product(self.form, passed(a, b, out), problem), out)
            return out

        return call


class _Search:
    """Finds the types and the storage of operands, the order of sizes and the shapes of factors that make it right.

    Those that the function rejects are found by calls whose launches are not run. Where nothing is right, the
    likeliest are taken.
    """

    def __init__(self, call: HostCall, math_: str, probe: gemm_ref.Problem = PROBE) -> None:
        self._call, self._math, self._probe = call, math_, probe
        self._all_refused = True  # nothing could be run yet

    def run(self) -> PythonKernel:
        fitting = self._fitting()
        first = next(fitting)
        chosen = None
        others = itertools.islice(fitting, _MAX_TRIED), self._other_orders(first)
        for kernel in itertools.chain([first], self._other_grid(first), *others):
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
        names = {each.name for each in self._call.launcher.arguments}.union(*(x.constants for x in kernel.started))
        if unknown := [name for name in self._call.constants if name not in names]:
            raise UsageError(f"-D {unknown[0]} is no parameter of {kernel.name} and no constant of its kernels")
        return replace(kernel, settings=(*kernel.settings, *_notes(kernel, self._math)))

    def _other_grid(self, first: PythonKernel) -> Iterator[PythonKernel]:
        """The first form of a kernel that is launched alone, with the other order of the grid's axes."""
        launcher = first.call.launcher
        if launcher.by_columns:
            exchanged = replace(launcher, function=launcher.by_columns, by_columns=None)
            yield replace(first, call=replace(first.call, launcher=exchanged))

    def _other_orders(self, first: PythonKernel) -> Iterator[PythonKernel]:
        """The first form with other storage and sizes in another order, those of these that the function takes."""
        axes = self._call.launcher.roles >= set(module.SIZES)
        for storage in first.form.storage.others(axes):
            with contextlib.suppress(UsageError):
                yield self._passing(replace(first.form, storage=storage))

    def _fitting(self) -> Iterator[PythonKernel]:
        """The kernel in each form that the function takes; of the likeliest elements that it takes."""
        call = self._call
        failed: list[tuple[operands.Form, UsageError]] = []
        taken: operands.Elements | None = None
        has_factors = not call.launcher.roles.isdisjoint((*functions.FACTORS, functions.FACTOR))
        text = ast.unparse(call.module.tree)  # without its comments
        for form in operands.forms(text, f"{call.module.path.stem}_{call.name}", self._math, has_factors):
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
        fixed = {"n": 1} if call.launcher.takes_vector else {}
        probe = probe.resized(**fixed)
        a, b = torch.zeros(probe.a_shape, dtype=mode.dtype), torch.zeros(probe.b_shape, dtype=mode.dtype)
        made, started = call.run(form, a, b, torch.zeros(probe.m, probe.n, dtype=mode.out_dtype), PLAIN, dry=True)
        if made.dtype == torch.int8:
            raise UsageError(f"{call.name} returns a C of int8, which does not hold the sums")
        ttir = "".join(each.ttir for each in started)
        if "tt.make_tensor_descriptor" in ttir:
            call.stand_in.compiled_for = WITHOUT_TMA
        m, n = (untuned.tile_side(started[0].constants, axis) for axis in "mn")
        whole = (f"tensor<{PROBE.m}x{PROBE.n}x", f"tensor<{PROBE.k}x", f"x{PROBE.k}x")
        return PythonKernel(
            path=call.module.path,
            name=call.name,
            dialect="triton",
            tile=(m or TILE[0], n or TILE[1]),
            math=form.elements.compared_as(None if call.launcher.fills_c else made.dtype),
            square=call.launcher.square,
            fixed=fixed,
            zeroed=not call.launcher.fills_c,  # what it allocates itself may hold zeros
            is_integer=form.elements.is_integer,
            scalars=tuple(role for role in (*functions.SCALARS, functions.BIAS) if role in call.launcher.roles),
            assumed=str(form.storage),
            call=call,
            form=form,
            started=started,
            made=made.dtype,
            tile_is_matrix=self._probe is PROBE and not fixed and any(tile in ttir for tile in whole),
        )


def _try(kernel: PythonKernel) -> Trial:
    m, n = (side * cdiv(_MIN_SIDE, side) for side in kernel.tile)
    m *= n // m + 1  # more than N: a factor for rows is not one of columns
    problem = kernel.nearest_problem(gemm_ref.Problem(m, n, _DEPTH))
    return attempt(kernel, problem, zeroed=True)  # whether it reads C is another question


def _notes(kernel: PythonKernel, math_: str) -> Iterator[Message]:
    """What was decided for the user; math_: of --math."""
    call, launcher = kernel.call, kernel.call.launcher
    if ones := [each.name for each in launcher.arguments if each.role in functions.FACTORS]:
        yield message(Note.FACTORS_ARE_ONES, names=", ".join(ones))
    if launcher.is_kernel:
        square = ", with one size for M, N and K, as there" * kernel.square
        yield message(Note.KERNEL_LAUNCHED_ALONE, square=square)
    if launcher.takes_vector:
        yield message(Note.ONE_COLUMN)
    if not launcher.fills_c:
        yield message(Note.ALLOCATES_C)
    if kernel.form.batched:
        yield message(Note.BATCH_OF_ONE)
    for each in call.module.untuned:
        if each.selected:
            values = ", ".join(f"{name}={value!r}" for name, value in each.selected.items())
            yield message(Note.TUNER_REPLACED, kernel=each.name, values=values)
    if call.stand_in.compiled_for == WITHOUT_TMA:
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
    if reasons := call.module.reasons:
        lines = ", ".join(f"line {each.line} ({module.short(each.why)})" for each in reasons[:3])
        more = f" and {len(reasons) - 3} more" if len(reasons) > 3 else ""
        yield message(Note.CODE_LEFT_OUT, lines=lines + more)
