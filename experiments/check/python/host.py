"""The function of a user's Python file that launches its kernel, called on the CPU with a GPU's stand-in present.

This executes the user's code: it is for the process that `cage` confines, and for users who trust it.
"""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import torch
import triton
from triton.runtime.errors import OutOfResources

import gemm_ref
from experiments.check.python import functions, module, operands
from experiments.check.python.stand_in import MODELS, StandIn
from experiments.check.subject import PLAIN, Options, Scales, bias_vector
from experiments.records.request import UsageError
from triton_kernels.reference_gpu import Started, on_reference_gpu


def open_host(path: Path, options: Options, folder: Path) -> HostCall:
    """Executes the file and returns its function that launches. folder: for what Triton compiles."""
    stand_in = StandIn(MODELS[options.like])
    loaded = module.load(path, stand_in)
    constants = loaded.values(options.define)
    for kernel in loaded.untuned:
        kernel.defines = constants
    return HostCall(loaded, stand_in, functions.choose(loaded, options.kernel, constants), constants, folder)


@dataclass(frozen=True)
class HostCall:
    """The function of a file that launches, with what it needs to be called here."""

    module: module.Module
    stand_in: StandIn
    launcher: functions.Launcher
    constants: dict[str, object]  # of -D
    folder: Path  # where Triton keeps what it compiles

    @property
    def name(self) -> str:
        return self.launcher.name

    def by_columns(self) -> HostCall:
        """Returns the launch of a kernel alone with the tiles of a row of C along the first axis of its grid."""
        function = self.launcher.by_columns or self.launcher.function
        return replace(self, launcher=replace(self.launcher, function=function, by_columns=None))

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
        """Inside, the stand-in and the file's project are present."""
        with contextlib.ExitStack() as stack:
            stack.enter_context(self.module.project.present())
            stack.enter_context(self.stand_in.present())
            stack.enter_context(triton.knobs.cache.scope())
            stack.enter_context(contextlib.redirect_stdout(io.StringIO()))
            stack.enter_context(warnings.catch_warnings())
            warnings.simplefilter("ignore")  # Triton's own, about defaults that the file leaves to it
            triton.knobs.cache.dir = str(self.folder)
            yield
