"""A kernel from a user's Python file: a function that launches a Triton or Gluon kernel on the tensors it is given.

The function is `gemm(a, b, c)`, which fills c, or `gemm(a, b)`, which returns a C of its own: a (M, K), b (K, N) or
(N, K), c (M, N), row-major. Any name will do, and what else it takes is found by name. A GPU's stand-in is present
while it runs, and the launches inside it run on the reference GPU. With several functions, --kernel names it.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import io
import itertools
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import torch
import triton
from triton.runtime.errors import OutOfResources

import gemm_ref
from experiments.check import source_text
from experiments.check.cuda.cuda_file import Options
from experiments.check.python import explain, functions, module, operands
from experiments.check.python.stand_in import MODELS, StandIn, renamed
from experiments.check.subject import PLAIN, Scales, Subject, vector
from experiments.check.trial import attempt
from experiments.records.request import UsageError
from gemm_ref.build import CACHE
from triton_kernels.reference_gpu import Started, on_reference_gpu

TILE = (128, 128)  # taken for the tile of C where no constant of the kernel tells
PROBE = gemm_ref.Problem(256, 512, 1024)  # whole tiles of any size, for a call that launches nothing
TRIED, MOST_TRIED = gemm_ref.Problem(128, 256, 384), 8  # for shapes of factors, and how many of them
WITHOUT_TMA = (8, 9)  # the last of a GPU on which Triton makes ordinary accesses of a kernel's own descriptors
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
        self.scalars = self._launcher.scalars
        self.zeroed = not self._launcher.fills_c  # what it allocates itself may hold zeros
        self._whole = False  # its tile is the whole matrix
        self._started: list[Started] = []
        self._settle(options.math, *problems[:1])
        if any("tt.make_tensor_descriptor" in each.ttir for each in self._started):
            self._stand_in.compiled_for = WITHOUT_TMA
        self._note(options.math)

    def _settle(self, wanted: str, probe: gemm_ref.Problem = PROBE) -> None:
        """Find the types and the layout of operands that the function takes, by calls whose launches are not run.

        Where factors are among them the shapes of factors are tried, since most kernels take any and read some alone.
        """
        factors = any(each.role in (*functions.FACTORS, functions.FACTOR) for each in self._launcher.arguments)
        fitting = self._fitting(wanted, probe, factors)
        first = next(fitting)
        if factors:
            tried = itertools.chain([first], itertools.islice(fitting, MOST_TRIED))
            right = next((form for form in tried if attempt(self, self.admit(TRIED)).right), first)
            self._take(right, probe)
        cuts = any("inputPrecision = tf32" in each.ttir for each in self._started) and not self.whole_numbers
        if self.math == "fp32" and not wanted and cuts:
            self.judge_as_tf32(
                'its tl.dot cuts fp32 operands, as Triton does by default: for fp32 write input_precision="ieee"'
            )
        whole = f"tensor<{PROBE.m}x{PROBE.n}x"
        self._whole = probe is PROBE and any(whole in each.ttir for each in self._started)
        known = {each.name for each in self._launcher.arguments}.union(*(each.constants for each in self._started))
        for name in self._given:
            if name not in known:
                raise UsageError(f"-D {name} is no parameter of {self.name} and no constant of its kernels")
        constants = self._started[0].constants
        self.tile = _constant(constants, "m") or TILE[0], _constant(constants, "n") or TILE[1]

    def _fitting(self, wanted: str, probe: gemm_ref.Problem, factors: bool) -> Iterator[operands.Form]:
        """The forms that the function takes, each when it is passed in it; of the likeliest elements that it takes."""
        failed: list[tuple[operands.Form, UsageError]] = []
        taken: operands.Elements | None = None
        names = f"{self.path.stem}_{self.name}"
        for form in operands.forms(source_text.read(self.path), names, wanted, factors):
            if taken not in (None, form.elements):
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
            raise UsageError(f"{max(likely, key=explain.reached)}: {functions.PLAIN}")

    def _take(self, form: operands.Form, probe: gemm_ref.Problem) -> None:
        """Pass operands in this form from now on. Raises UsageError where the function does not take it."""
        self._form, self.math, mode = form, form.elements.math, gemm_ref.MATHS[form.elements.math]
        a, b = torch.zeros(probe.a_shape, dtype=mode.dtype), torch.zeros(probe.b_shape, dtype=mode.dtype)
        made = self._call(a, b, torch.zeros(probe.m, probe.n, dtype=mode.out_dtype), dry=True)
        if made is not None and made.dtype == torch.int8:
            raise UsageError(f"{self.name} returns a C of int8, which does not hold the sums")
        self.math = form.elements.judged_by(made.dtype if made is not None else None)
        self.whole_numbers = form.elements.whole
        self.assumed = "B stored as N x K" if form.turned else ""

    def _note(self, wanted: str) -> None:
        if ones := [each.name for each in self._launcher.arguments if each.role in functions.FACTORS]:
            self.notes.append(f"{', '.join(ones)} hold ones, so it is not checked which of them an element takes")
        if self._launcher.by_itself:
            self.notes.append("no function of the file takes its matrices: the kernel is launched by itself")
        if not self._launcher.fills_c:
            self.notes.append("it allocates C itself, so it is not checked whether it reads C")
        self.notes += self._form.notes
        for kernel in self._module.untuned:
            if kernel.chosen:
                chosen = ", ".join(f"{name}={value!r}" for name, value in kernel.chosen.items())
                self.notes.append(f"{kernel.name} has {chosen}, for want of its own tuner: -D says others")
        if self._stand_in.compiled_for == WITHOUT_TMA:
            self.notes.append(
                "it makes tensor descriptors itself, which the reference GPU does not know: it is compiled for sm_89, "
                "where their copies are ordinary accesses"
            )
        if foreign := {name for each in self._started for name in each.foreign}:
            self.notes.append(f"{', '.join(sorted(foreign))}: not known to Triton for NVIDIA GPUs, and left out")
        if self._whole:
            self.notes.append(
                f"its tile is the whole matrix: it is given none of more than {MOST_WHOLE} rows or columns"
            )
        if self._form.elements.name != "fp32" and not wanted:
            name = self._form.elements.name
            self.notes.append(f"A and B are {name}, by what the file says of types: --math says another")
        for old, new in renamed().items():
            if re.search(rf"\b{old}\b", source_text.read(self.path)):
                self.notes.append(f"{old}, which Triton {triton.__version__} no longer has, is taken for {new}")
        if reasons := self._module.reasons:
            lines = ", ".join(f"line {each.line} ({explain.short(each.why)})" for each in reasons[:3])
            more = f" and {len(reasons) - 3} more" if len(reasons) > 3 else ""
            self.notes.append(f"code outside of functions that was left out: {lines}{more}, and what needs it")

    def admit(self, problem: gemm_ref.Problem) -> gemm_ref.Problem:
        most = {axis: min(getattr(problem, axis), MOST_WHOLE) for axis in "mnk"} if self._whole else {}
        return super().admit(problem.resized(**most))

    @property
    def how(self) -> str:
        return str(self._launcher)

    def run(self, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, scales: Scales = PLAIN) -> None:
        made = self._call(a, b, c, scales)
        if made is not None:
            c.copy_(made)

    def _call(
        self, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, scales: Scales = PLAIN, dry: bool = False
    ) -> torch.Tensor | None:
        """Call the function on CPU tensors; returns C where it is not in c. dry: its launches are not run."""
        passed = self._form.passed(a, b, c)
        places = {x.untyped_storage().data_ptr(): name for name, x in zip("ABC", passed, strict=True)}

        def name_of(x: torch.Tensor) -> str:
            own = "C" if x.numel() == c.numel() and not self._launcher.fills_c else f"a tensor of {tuple(x.shape)}"
            return places.get(x.untyped_storage().data_ptr(), own)

        self._started = []
        values = self._values(*passed, scales)
        pointed = self._stand_in.pointed
        with self._present(), on_reference_gpu(name_of, self._begin, self._configs, pointed, dry):
            with explain.errors(self._module, self.name):
                made = self._launcher(values)
        if not self._started:
            raise UsageError(f"{self.name} launched no Triton kernel, so there is nothing to check")
        if self._launcher.fills_c:
            return passed[2] if passed[2] is not c else None
        return self._product(made, tuple(c.shape))

    def _values(self, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, scales: Scales) -> dict[str, object]:
        """What each role of a parameter is given: a (M, K), b as the function takes it, c (M, N)."""
        (m, k), n = a.shape, c.shape[1]
        addend = c.clone() if "BETA" in self.scalars else torch.zeros_like(c)
        matrices = {"A": a, "B": b, "C": c, functions.ADDEND: addend}
        of_a, of_b = (torch.ones(shape, device=a.device) for shape in self._form.factor_shapes(m, n, k))
        return {name: self._form.shaped(x) for name, x in matrices.items()} | {
            "M": m,
            "N": n,
            "K": k,
            "ALPHA": scales.alpha,
            "BETA": scales.beta,
            functions.FACTORS_A: of_a,
            functions.FACTORS_B: of_b,
            functions.FACTOR: of_b if self._form.factors else 1.0,
            functions.BIAS: (scales.bias * vector(n)).to(a.device, c.dtype),
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
        most = self._stand_in.model.shared_bytes
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
            values = passed(a, b, out)
            made = self._launcher(self._values(*values, PLAIN))
            own = values[2] if self._launcher.fills_c else self._product(made, tuple(out.shape))
            return out if own is out else out.copy_(own)

        return call


def _constant(constants: Mapping[str, object], side: str) -> int:
    """The constant that is a kernel's tile along M, N or K; 0 where its name does not say."""
    pattern = rf"^(b|blk|block|tile)(_?size)?_?{side}$|^{side}_?(block|tile)(_?size)?$"
    found = [value for name, value in constants.items() if re.search(pattern, name.lower()) and isinstance(value, int)]
    return found[0] if found else 0
