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
from dataclasses import replace
from pathlib import Path

import torch
import triton
from triton.runtime.errors import OutOfResources

import gemm_ref
from experiments.check import diagnose, source_text
from experiments.check.cuda import layouts
from experiments.check.cuda.cuda_file import Options
from experiments.check.python import explain, functions, module, operands, untuned
from experiments.check.python.stand_in import MODELS, StandIn, renamed
from experiments.check.subject import PLAIN, Scales, Subject, vector
from experiments.check.trial import Trial, attempt
from experiments.records.request import UsageError
from gemm_ref.build import CACHE
from triton_kernels.reference_gpu import Started, on_reference_gpu

TILE = (128, 128)  # taken for the tile of C where no constant of the kernel tells
PROBE = gemm_ref.Problem(256, 512, 1024)  # whole tiles of any size, for a call that launches nothing
MOST_TRIED = 8  # forms of operands that the function takes
WITHOUT_TMA = (8, 9)  # the last of a GPU on which Triton makes ordinary accesses of a kernel's own descriptors
_LEAST, _DEEP = 64, 384  # of a tile's sides, and products of each sum, where forms are tried
MOST_WHOLE = 64  # rows, columns and products of a tile that is the whole matrix


class PythonFile(Subject):
    """A function of a Python file and the kernels that it launches. Raises UsageError."""

    def __init__(self, path: Path, options: Options, problems: Sequence[gemm_ref.Problem] = ()) -> None:
        for option in ("block", "grid", "args", "template", "shared"):
            if getattr(options, option):
                raise UsageError(f"--{option} is for CUDA: a Python file launches its kernel itself")
        if options.like not in MODELS:
            raise UsageError(f"--like {options.like} is no GPU known here: there are {', '.join(MODELS)}")
        self.path, self.tile, self.dialect = path, TILE, "triton"
        self._stand_in = StandIn(MODELS[options.like])
        self._module = module.load(path, self._stand_in)
        self._given = self._module.values(options.define)
        for kernel in self._module.untuned:
            kernel.given = self._given
        self._launcher = functions.choose(self._module, options.kernel, self._given)
        self.name = self._launcher.name
        self.scalars = tuple(role for role in (*functions.SCALARS, functions.BIAS) if role in self._launcher.roles)
        self.square = self._launcher.square
        self.zeroed = not self._launcher.fills_c  # what it allocates itself may hold zeros
        self._whole, self._refused = False, True  # its tile is the whole matrix; nothing could be run yet
        self._started: list[Started] = []
        self._settle(options.math, *problems[:1])
        self.notes += self._said(options.math)

    def _settle(self, wanted: str, probe: gemm_ref.Problem = PROBE) -> None:
        """Find the types and the layout of operands, the order of sizes and the shapes of factors that make it right.

        Those that the function does not take are found by calls whose launches are not run. Where nothing is right,
        the likeliest are taken.
        """
        fitting = self._fitting(wanted, probe)
        first = next(fitting)
        tried = itertools.chain([first], itertools.islice(fitting, MOST_TRIED), self._otherwise(first, probe))
        chosen = None
        for form in tried:
            trial = self._try()
            if trial.right or diagnose.finish(self, trial).has_epilogue:
                chosen = form
                break
            chosen = chosen or (None if trial.refusal else form)
            self._refused = chosen is None
        self._take(chosen or first, probe)
        if self.math == "fp32" and not (wanted or self.whole_numbers) and "inputPrecision = tf32" in self._ttir:
            self.judge_as_cut(
                'its tl.dot cuts fp32 operands, as Triton does by default: for fp32 write input_precision="ieee"'
            )
        known = {each.name for each in self._launcher.arguments}.union(*(each.constants for each in self._started))
        for name in self._given:
            if name not in known:
                raise UsageError(f"-D {name} is no parameter of {self.name} and no constant of its kernels")

    def _try(self) -> Trial:
        """A product of a tile or two."""
        m, n = (side * -(-_LEAST // side) for side in self.tile)
        problem = self.admit(gemm_ref.Problem(m * (n // m + 1), n, _DEEP))  # M > N: a factor for rows is not one of N
        return attempt(self, problem, zeroed=True)  # whether it reads C is another question

    def _otherwise(self, first: operands.Form, probe: gemm_ref.Problem) -> Iterator[operands.Form]:
        """The first form with other layouts and sizes in another order, those of these that the function takes."""
        for layout in layouts.others(first.layout, axes=self._launcher.roles >= set(module.SIZES)):
            with contextlib.suppress(UsageError):
                yield self._take(replace(first, layout=layout), probe)

    def _fitting(self, wanted: str, probe: gemm_ref.Problem) -> Iterator[operands.Form]:
        """The forms that the function takes, each when it is passed in it; of the likeliest elements that it takes."""
        failed: list[tuple[operands.Form, UsageError]] = []
        taken: operands.Elements | None = None
        names = f"{self.path.stem}_{self.name}"
        factors = not self._launcher.roles.isdisjoint((*functions.FACTORS, functions.FACTOR))
        text = ast.unparse(self._module.tree)  # without its comments
        for form in operands.forms(text, names, wanted, factors):
            if taken not in (None, form.elements) and not self._refused:
                return
            try:
                self._take(form, probe)
            except UsageError as error:
                failed.append((form, error))
            else:
                taken = form.elements
                yield form
        if taken is None:  # what stopped it with the likeliest types, in the form with which it went on longest
            likely = [error for form, error in failed if form.elements == failed[0][0].elements]
            raise UsageError(f"{max(likely, key=lambda error: getattr(error, 'line', math.inf))}: {functions.PLAIN}")

    def _take(self, form: operands.Form, probe: gemm_ref.Problem) -> operands.Form:
        """Pass operands in this form from now on. Raises UsageError where the function does not take it."""
        self._form, self.math, mode = form, form.elements.math, gemm_ref.MATHS[form.elements.math]
        a, b = torch.zeros(probe.a_shape, dtype=mode.dtype), torch.zeros(probe.b_shape, dtype=mode.dtype)
        made = self._call(a, b, torch.zeros(probe.m, probe.n, dtype=mode.out_dtype), dry=True)
        if made.dtype == torch.int8:
            raise UsageError(f"{self.name} returns a C of int8, which does not hold the sums")
        self.math = form.elements.judged_by(None if self._launcher.fills_c else made.dtype)
        self.whole_numbers = form.elements.whole
        self.assumed = str(form.layout)
        tiles = (f"tensor<{PROBE.m}x{PROBE.n}x", f"tensor<{PROBE.k}x", f"x{PROBE.k}x")
        self._ttir = "".join(each.ttir for each in self._started)
        self._whole = probe is PROBE and any(tile in self._ttir for tile in tiles)
        if "tt.make_tensor_descriptor" in self._ttir:
            self._stand_in.compiled_for = WITHOUT_TMA
        m, n = (untuned.side(self._started[0].constants, axis) for axis in "mn")
        self.tile = m or TILE[0], n or TILE[1]
        return form

    def _said(self, wanted: str) -> Iterator[str]:
        if ones := [each.name for each in self._launcher.arguments if each.role in functions.FACTORS]:
            yield f"{', '.join(ones)} hold ones, so it is not checked which of them an element takes"
        if self._launcher.by_itself:
            one = ", with one size for M, N and K, as there" * self.square
            yield f"no function of the file takes its matrices: the kernel is launched by itself{one}"
        if not self._launcher.fills_c:
            yield "it allocates C itself, so it is not checked whether it reads C"
        if self._form.batched:
            yield "it takes batches of matrices: it is given a batch of one"
        for kernel in self._module.untuned:
            if kernel.chosen:
                chosen = ", ".join(f"{name}={value!r}" for name, value in kernel.chosen.items())
                yield f"{kernel.name} has {chosen}, for want of its own tuner: -D says others"
        if self._stand_in.compiled_for == WITHOUT_TMA:
            yield (
                "it makes tensor descriptors itself, which the reference GPU does not know: it is compiled for sm_89, "
                "where their copies are ordinary accesses"
            )
        if foreign := {name for each in self._started for name in each.foreign}:
            yield f"{', '.join(sorted(foreign))}: not known to Triton for NVIDIA GPUs, and left out"
        if self._whole:
            yield f"its tile is the whole matrix: it is given none of more than {MOST_WHOLE} rows or columns"
        if self._form.elements.name != "fp32" and not wanted:
            name = self._form.elements.name
            yield f"A and B are {name}, by what the file says of types: --math says another"
        for old, new in renamed().items():
            if re.search(rf"\b{old}\b", source_text.read(self.path)):
                yield f"{old}, which Triton {triton.__version__} no longer has, is taken for {new}"
        if reasons := self._module.reasons:
            lines = ", ".join(f"line {each.line} ({explain.short(each.why)})" for each in reasons[:3])
            more = f" and {len(reasons) - 3} more" if len(reasons) > 3 else ""
            yield f"code outside of functions that was left out: {lines}{more}, and what needs it"

    def admit(self, problem: gemm_ref.Problem) -> gemm_ref.Problem:
        most = {axis: min(getattr(problem, axis), MOST_WHOLE) for axis in "mnk"} if self._whole else {}
        return super().admit(problem.resized(**most))

    @property
    def how(self) -> str:
        return str(self._launcher)

    def run(self, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, scales: Scales = PLAIN) -> None:
        self._form.layout.take_back(self._call(a, b, c, scales), c)

    def _call(
        self, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, scales: Scales = PLAIN, dry: bool = False
    ) -> torch.Tensor:
        """Call the function on CPU tensors; returns C as it is stored. dry: its launches are not run."""
        passed = self._form.passed(a, b, c)
        places = {x.untyped_storage().data_ptr(): name for name, x in zip("ABC", passed, strict=True)}

        def name_of(x: torch.Tensor) -> str:
            own = "C" if x.numel() == c.numel() and not self._launcher.fills_c else f"a tensor of {tuple(x.shape)}"
            return places.get(x.untyped_storage().data_ptr(), own)

        self._started = []
        problem, pointed = gemm_ref.Problem(c.shape[0], c.shape[1], a.shape[1]), self._stand_in.pointed
        with self._present(), on_reference_gpu(name_of, self._begin, self._configs, pointed, dry):
            with explain.errors(self._module, self.name):
                made = self._made(passed, problem, scales)
        if not self._started:
            raise UsageError(f"{self.name} launched no Triton kernel, so there is nothing to check")
        return made

    def _made(self, passed: list[torch.Tensor], problem: gemm_ref.Problem, scales: Scales = PLAIN) -> torch.Tensor:
        """C as it is stored, of A, B and C as they are."""
        made = self._launcher(self._values(passed, problem, scales))
        return passed[2] if self._launcher.fills_c else self._product(made, tuple(passed[2].shape))

    def _values(self, passed: list[torch.Tensor], problem: gemm_ref.Problem, scales: Scales) -> dict[str, object]:
        """What each role of a parameter is given; passed: A, B and C as they are stored."""
        a, b, c = passed
        called, shapes = self._form.layout.called(problem), operands.FACTORS[self._form.factors]
        addend = c.clone() if "BETA" in self.scalars else torch.zeros_like(c)
        matrices = {"A": a, "B": b, "C": c, functions.ADDEND: addend}
        of_a, of_b = (torch.ones(shape, device=a.device) for shape in shapes(called.m, called.n, called.k))
        return {name: self._form.shaped(x) for name, x in matrices.items()} | {
            "M": called.m,
            "N": called.n,
            "K": called.k,
            "ALPHA": scales.alpha,
            "BETA": scales.beta,
            functions.FACTORS_A: of_a,
            functions.FACTORS_B: of_b,
            functions.FACTOR: of_b if self._form.factors else 1.0,
            functions.BIAS: (scales.bias * vector(problem.n)).to(a.device, c.dtype),
            functions.TYPE: self._form.elements.c,
        }

    def _configs(self, configs: list[triton.Config]) -> list[triton.Config]:
        """Those with the constants that -D gives."""
        fitting = [
            config
            for config in configs
            if all(config.all_kwargs().get(name, value) == value for name, value in self._given.items())
        ]
        if not fitting:
            raise UsageError(f"no configuration that {self.name} is tuned over has the values that -D gives")
        return fitting

    def _begin(self, started: Started) -> contextlib.AbstractContextManager:
        most = self._stand_in.model.shared_memory_per_block_optin
        if started.shared_bytes > most:
            raise OutOfResources(started.shared_bytes, most, "shared memory")
        self._started.append(started)
        return self._stand_in.away()

    def _product(self, made: object, shape: tuple[int, ...]) -> torch.Tensor:
        """C among what the function returned."""
        several = made if isinstance(made, list | tuple) else [made]
        wanted = (1, *shape) if self._form.batched else shape
        found = next((x for x in several if isinstance(x, torch.Tensor) and tuple(x.shape) == wanted), None)
        if found is None:
            what = f"one of {tuple(made.shape)}" if isinstance(made, torch.Tensor) else f"a {type(made).__name__}"
            raise UsageError(f"{self.name} must return C of shape {wanted}; it returned {what}")
        return found.view(shape)

    @contextlib.contextmanager
    def _present(self) -> Iterator[None]:
        """Inside, the stand-in is present, and what Triton keeps of other files is not taken for this one's."""
        own = hashlib.sha256(str(self.path.resolve()).encode()).hexdigest()[:16]
        with contextlib.ExitStack() as stack:
            stack.enter_context(self._module.project.present())
            stack.enter_context(self._stand_in.present())
            stack.enter_context(triton.knobs.cache.scope())
            stack.enter_context(contextlib.redirect_stdout(io.StringIO()))
            stack.enter_context(warnings.catch_warnings())
            warnings.simplefilter("ignore")  # Triton's own, about defaults that the file leaves to it
            triton.knobs.cache.dir = str(CACHE / "checked" / own)
            yield

    def gpu_call(self, problem: gemm_ref.Problem) -> Callable[..., torch.Tensor]:
        passed = functools.lru_cache(maxsize=8)(self._form.passed)

        def call(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
            self._form.layout.take_back(self._made(passed(a, b, out), problem), out)
            return out

        return call
