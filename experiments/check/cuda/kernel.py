"""A kernel from a user's .cu: bound to its arguments, launched on the reference GPU, and built for a GPU."""

from __future__ import annotations

import contextlib
import functools
import math
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch

import gemm_ref
from cuda_kernels.ceilings.image import Image
from experiments.check.cuda.compile import Unit
from experiments.check.cuda.expressions import evaluate
from experiments.check.cuda.host_code import recorder
from experiments.check.cuda.host_code.recorder import Pointers, RecordedLaunch
from experiments.check.cuda.host_code.recording import Recording, instance
from experiments.check.cuda.launch import LaunchRule, Template
from experiments.check.cuda.parameters import HOST, MATRICES, MIN_SIZE, POINTERS, SIZES, StorageOrder
from experiments.check.cuda.streams import Streams
from experiments.check.cuda.syntax import Parameter, Signature, without_comments
from experiments.check.messages import Message
from experiments.check.subject import PLAIN, Scales, Subject, bias_vector, operands
from experiments.records.request import UsageError
from gemm_ref import ptx
from gemm_ref.launch import round_up
from gemm_ref.ptx.program import demangled
from gemm_ref.toolchain import REFERENCE_CAPABILITY

_DEFINITION = re.compile(r"\b(\w+)\s*=(?!=)\s*([^;={}]+)")
_GROUP = re.compile(r"group|swizzle|super|raster", re.I)  # in names of constants
_GROUP_SIDE, _MAX_GROUP_SIDE = 8, 16  # rows or columns of tiles of a group: the usual number, and the most
_LARGE_SIZES = 8192, 16384


@dataclass(frozen=True, kw_only=True, eq=False)
class CudaKernel(Subject):
    """One `__global__` function, what its parameters are given, and how it is launched."""

    dialect: str = "cuda"
    folder: tempfile.TemporaryDirectory  # of what nvcc reads; it lives as long as the kernel
    signature: Signature
    unit: Unit
    roles: tuple[str, ...]  # of the parameters
    template: Template
    dtypes: Mapping[str, torch.dtype]  # of the matrices, by role
    storage: StorageOrder
    rounded: Mapping[str, int] = field(default_factory=dict)  # multiples of M, N and K, which the program pads to
    recording: Recording | None = None
    launch: LaunchRule = LaunchRule()
    guessed: tuple[str, ...] = ()  # the options that specify what was inferred, beside the launch
    has_free_grid: bool = False  # nothing specifies which size each axis of the grid is made of

    def changed(self, **attributes: object) -> CudaKernel:
        """Returns the kernel with other attributes, whose first block has not run yet."""
        return replace(self, survey=None, **attributes)  # type: ignore[arg-type]  # replace() checks the names at run time

    def nearest_problem(self, problem: gemm_ref.Problem) -> gemm_ref.Problem:
        nearest = super().nearest_problem(problem)
        sides = {axis.lower(): step for axis, step in self.rounded.items()}
        return nearest.resized(**{axis: round_up(getattr(nearest, axis), step) for axis, step in sides.items()})

    @property
    def notes(self) -> list[Message]:
        return [*self.settings, *self.unit.notes]

    @property
    def warnings(self) -> list[tuple[str, int, str]]:
        return self.unit.warnings

    @property
    def how(self) -> str:
        texts = (p.name if role.upper() in (p.name.upper(), HOST) else f"{p.name} = {role}" for p, role in self._bound)
        template = f"<{', '.join(text for _, text in self.template)}>" if self.template else ""
        stored = f", {self.storage}" if self.storage.by_columns else ""
        return f"{self.name}{template}({', '.join(texts)}), {self.launch}{stored}"

    @property
    def operand_type(self) -> torch.dtype:
        return self.dtypes["A"]

    @property
    def result_type(self) -> torch.dtype:
        return self.dtypes["D" if "D" in self.roles else "C"]

    def rounds_sums(self, problem: gemm_ref.Problem) -> bool:
        if self.result_type == gemm_ref.MATHS[self.math].out_dtype or self.finish.has_epilogue or self.scalars:
            return False
        a, b = (x.abs() for x in operands(problem, "positive"))
        self.run(a, b, c := torch.zeros(problem.m, problem.n, dtype=self.result_type))
        return not torch.equal(c.double(), a.double() @ b.double())

    @property
    def _bound(self) -> list[tuple[Parameter, str]]:
        return list(zip(self.signature.parameters, self.roles, strict=True))

    @property
    def undetermined(self) -> list[str]:
        """`B_dim = 1`: numbers that are passed whatever the sizes are, and that may be sizes of the kernel's."""
        if not self.recording:
            return []
        assumed = self.recording.call.assumed
        numbers = [f"{p.name} = {role}" for p, role in self._bound if role.isdigit() and p.type != "bool"]
        return [text for text in numbers if text in assumed or int(text.split()[-1]) >= MIN_SIZE]

    @property
    def others(self) -> str:
        recorded = self.recording
        if not recorded or not recorded.call.passes_matrices:
            return ""
        names = recorded.first.with_roles(self.roles).others_with_c()
        return f"{recorded.call.function.name} also launches {', '.join(map(demangled, names))}" if names else ""

    @property
    def guess(self) -> str:
        parts = bool(self.recording and self.recording.first.more and not self.launch.recorded)
        launch = ("--grid and --block",) if self.has_free_grid or parts else ()
        return ", ".join(dict.fromkeys((*launch, *self.guessed)))

    @property
    def group(self) -> int:
        """How many rows or columns of tiles may be taken together; 0 where blocks are tiles in their order.

        They are not where the source divides what follows from blockIdx, or the grid is the same for large problems.
        """
        text, names, count = without_comments(self.unit.text), {"blockIdx"}, 0
        defined = [(name, {*re.findall(r"\w+", value)}) for name, value in _DEFINITION.findall(text)]
        while len(names) > count:
            count = len(names)
            names |= {name for name, words in defined if words & names}
        divided = rf"\b(?:{'|'.join(names)})\b(?:\.[xyz])?\s*\)*\s*(?:[/%]|>>|&(?!&))"
        groups = [value for name, value in self.launch.names if _GROUP.search(name)]
        has_groups = min(self.tile) > 1 and re.search(divided, text)
        group = min(max([_GROUP_SIDE, *groups]), _MAX_GROUP_SIDE) if has_groups else 0
        return max(group, gemm_ref.cdiv(self._constant_blocks, _GROUP_SIDE))

    @property
    def _constant_blocks(self) -> int:
        """The number of blocks if it is the same in all large problems, as of persistent kernels; else 0."""
        problems = [self.nearest_problem(gemm_ref.Problem(size, size, size)) for size in _LARGE_SIZES]
        with contextlib.suppress(UsageError, ptx.PtxError):
            first, second = (self.launch.at(self.storage.rename_sizes(problem)).grid for problem in problems)
            return math.prod(first) if first == second and problems[0] != problems[1] else 0
        return 0

    @functools.cached_property
    def on_whole_gpu(self) -> CudaKernel:
        whole = self.recording and self.launch.recorded and self.recording.on_whole_gpu
        if not whole or whole is self.recording:
            return self
        return self.changed(recording=whole, launch=whole.rule(self.roles, self.launch.names))

    def describe_entry(self, entry: str) -> str:
        return demangled(entry) or self.name  # C++ names it with its arguments and its template's

    def transpose_grid(self) -> tuple[CudaKernel, str] | None:
        rule = self.launch.transposed()
        return None if rule.grid == self.launch.grid else (self.changed(launch=rule), ",".join(rule.grid))

    def row_steps(self) -> Iterator[tuple[int, str, str, str]]:
        meant = dict(zip(SIZES, self.storage.axes, strict=True))
        roles = {**meant, **{parameter.name: meant.get(role, role) for parameter, role in self._bound}}
        for line, text in enumerate(self.signature.body.split("\n"), self.signature.first_line):
            for array, inside in re.findall(r"\b(\w+)\s*\[([^\[\]]*)\]", text):
                for name in re.findall(r"\*\s*(\w+)\s*\+", inside):
                    if (matrix := roles.get(array, "")) in MATRICES and roles.get(name) in SIZES:
                        yield line, matrix, name, roles[name]

    # --- on the reference GPU --------------------------------------------------------------------------------

    def run(self, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, scales: Scales = PLAIN) -> None:
        problem = gemm_ref.Problem(a.shape[0], b.shape[1], a.shape[1], self.math)
        pointers, after = self._pointers(a, b, c, scales), [record.after for record in self._more(problem)]
        result = "D" if "D" in self.roles else "C"
        try:
            with ptx.watched(streams := Streams()) if after else contextlib.nullcontext():
                for start in self._starts(problem, pointers, scales):
                    start.run()
            if after:
                streams.require_order([frozenset(), *after], pointers[result])
        finally:
            self.storage.load(pointers[result], c)

    def _more(self, problem: gemm_ref.Problem) -> tuple[RecordedLaunch, ...]:
        """The launches after the first, where the host code determines them."""
        if not (self.recording and self.launch.recorded):
            return ()
        first = self._recorded(problem).with_roles(self.roles)
        return first.more + first.then

    def _starts(self, problem: gemm_ref.Problem, pointers: Pointers, scales: Scales) -> Iterator[Start]:
        """Yields the launches in their order; only the first finds C as it was."""
        launch, more = self.launch.at(self.storage.rename_sizes(problem)), self._more(problem)
        if more or any(name == "C" for name, *_ in self.storage.padded):
            launch = replace(launch, partly=("C",))
        yield self.start(problem, launch, pointers, scales)
        for number, record in enumerate(more, 2):
            kernel = self._kernel_of(record)
            known = {"ALPHA": scales.alpha, "BETA": scales.beta}
            roles = self.roles if ptx.is_called(record.entry, self.name) else recorder.roles(record)
            values = [
                recorder.narrow(known[role], kind, self.dtypes["A"])
                if role in known
                else recorder.value(raw, kind, pointers, record)
                for role, raw, (_, kind) in zip(roles, record.arguments, kernel.entry.parameters, strict=True)
            ]
            place = f"C of launch {number}"
            names = [place if role == "C" else role if role in POINTERS else "" for role in roles]
            yield Start(kernel, replace(record.launch, partly=(place,)), values, names)

    def _pointers(self, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, scales: Scales) -> Pointers:
        found: Pointers = {
            name: self.storage.store(name, x, self.dtypes[name]) for name, x in (("A", a), ("B", b), ("C", c))
        }
        if "D" in self.roles:
            found["D"] = torch.full_like(found["C"], torch.nan if found["C"].is_floating_point() else -1)
        if "BIAS" in self.roles:
            found["BIAS"] = (scales.bias * bias_vector(b.shape[1])).to(a.device, self.dtypes["BIAS"])
        return found

    def start(
        self, problem: gemm_ref.Problem, launch: gemm_ref.Launch, pointers: Pointers, scales: Scales = PLAIN
    ) -> Start:
        """Returns the first launch with its arguments; the tensors, by role, need not have the problem's sizes.

        Buffers that the host code allocates are added to them.
        """
        kernel = self._loaded(problem)
        values = []
        for index, (role, (_, kind)) in enumerate(zip(self.roles, kernel.entry.parameters, strict=True)):
            if role == HOST:
                assert self.recording
                record = self.recording.at(self.storage.rename_sizes(problem))
                values.append(recorder.value(record.arguments[index], kind, pointers, record))
            else:
                value = self._value(role, problem, pointers, scales)
                values.append(recorder.narrow(value, kind, self.dtypes["A"]))
        renamed = {"C": "the C that beta multiplies", "D": "C"} if "D" in self.roles else {}
        return Start(kernel, launch, values, [renamed.get(x, x) if x in POINTERS else "" for x in self.roles])

    def _value(self, role: str, problem: gemm_ref.Problem, pointers: Pointers, scales: Scales):
        known = {**pointers, "ALPHA": scales.alpha, "BETA": scales.beta, "NULL": 0}
        if role in known:
            return known[role]
        return float(role) if re.fullmatch(r"-?\d*\.\d*(?:e-?\d+)?", role) else evaluate(role, self._sizes(problem))

    def _sizes(self, problem: gemm_ref.Problem) -> dict[str, int]:
        """M, N, K and the lengths of rows as the kernel calls them, and the source's own constants."""
        renamed = self.storage.rename_sizes(problem)
        constants = {name: number for name, number in self.launch.names if name not in SIZES}
        return {"M": renamed.m, "N": renamed.n, "K": renamed.k, **self.storage.row_lengths(problem)} | constants

    def _loaded(self, problem: gemm_ref.Problem) -> ptx.DecodedKernel:
        if not self.recording:
            guessed = self.template if "--template" in self.guessed else ()
            return self.unit.instance(self._template_arguments(problem), guessed)
        return self._kernel_of(self._recorded(problem))

    def _kernel_of(self, record: RecordedLaunch) -> ptx.DecodedKernel:
        assert self.recording
        return self.unit.recorded(record.entry, self.recording.program.ptx, self.recording.compiler_output)

    def _recorded(self, problem: gemm_ref.Problem) -> RecordedLaunch:
        """The launch of the host code there, or the one that is scaled."""
        assert self.recording
        return self.recording.at(self.storage.rename_sizes(problem)) if self.launch.recorded else self.recording.first

    def _template_arguments(self, problem: gemm_ref.Problem) -> tuple[str, ...]:
        sizes = self._sizes(problem)
        of_sizes = re.compile(rf"\b[{''.join(SIZES)}]\b")
        return tuple(str(evaluate(text, sizes)) if of_sizes.search(text) else text for _, text in self.template)

    # --- on a GPU --------------------------------------------------------------------------------------------

    def gpu_call(self, problem: gemm_ref.Problem):
        kernels = [self._loaded(problem), *(self._kernel_of(record) for record in self._more(problem))]
        images = {kernel.name: Image(self._machine_code(kernel)) for kernel in kernels}
        return functools.partial(self._call_on_gpu, images, problem)

    def _machine_code(self, kernel: ptx.DecodedKernel) -> bytes:
        """What runs on this GPU: of the PTX that the reference GPU runs, where the two are of one architecture."""
        capability = torch.cuda.get_device_capability()
        if capability == REFERENCE_CAPABILITY and kernel.cubin is not None:
            return kernel.cubin()
        return self.unit.assemble(instance(kernel.name, self.name).removeprefix(self.name), capability)

    def _call_on_gpu(self, images: Mapping[str, Image], problem: gemm_ref.Problem, a, b, out) -> torch.Tensor:
        """Launches on torch's current stream. Raises RuntimeError if that fails."""
        pointers = self._pointers(a, b, out, PLAIN)
        if "BETA" in self.roles or self.zeroed or self.finite:
            pointers["C"].zero_()
        for start in self._starts(problem, pointers, PLAIN):
            start.run_on_gpu(images[start.kernel.name])
        self.storage.load(pointers["D" if "D" in self.roles else "C"], out)
        return out


@dataclass(frozen=True)
class Start:
    """A launch with its arguments; `names` is what messages call the tensors among them."""

    kernel: ptx.DecodedKernel
    launch: gemm_ref.Launch
    values: Sequence[recorder.Value | float]
    names: Sequence[str]

    def run(self) -> None:
        """Runs it on the reference GPU. Raises PtxError at a fault."""
        ptx.run(self.kernel, self.launch, self.values, names=self.names)

    def run_on_gpu(self, image: Image) -> None:
        """Starts it on torch's current stream. Raises RuntimeError if that fails."""
        parameters = zip(self.values, self.kernel.entry.parameters, strict=True)
        arguments = [
            value if isinstance(value, bytes) else ptx.argument_bytes(value, kind, lambda x, _: x.data_ptr())
            for value, (_, kind) in parameters
        ]
        cluster = self.launch.cluster if self.kernel.entry.cluster is None else (1, 1, 1)
        image.start(self.kernel.name, replace(self.launch, cluster=cluster), arguments, self.kernel.cooperates)
