"""One place that launches a jit function: on a GPU, on the reference GPU, or nowhere, where it is only compiled."""

from __future__ import annotations

import copy
import functools
import math
import types
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
import triton
from triton.compiler import CompiledKernel

import gemm_ref
from gemm_ref import Problem
from gemm_ref.call import Plan, Prepare, driver
from gemm_ref.call.streams import flags_for, stream_of
from gemm_ref.choice.work import count_tiles
from gemm_ref.epilogue import Extras
from gemm_ref.launch import cdiv
from gemm_ref.operands import VECTOR_BYTES, pairs_with_padding
from gemm_ref.operands.split import Split
from triton_kernels import reference_gpu, without_gpu
from triton_kernels.descriptors import Descriptor, Operand

MAX_REGISTERS, SM_REGISTERS = 255, 65536  # of a thread, and of a multiprocessor from compute capability 7.0 on
ALL_ADD = triton.language.constexpr(2)  # of SHARES: the programs with a share of a tile each add parts of it
MOST_ADDRESSES = 256  # launches whose arguments a launcher caches: one for each set of addresses and stream


def prepare(
    kernel: triton.JITFunction,
    plan: Plan,
    *,
    num_stages: int,
    num_warps: int | None = None,
    names: tuple[str, ...] = ("A", "B", "C"),
    describe: Callable[..., tuple[Operand, ...]] | None = None,
    sizes: tuple[int, ...] | None = None,
    other_warps: int = 0,
    **more: int | str,
) -> Prepared:
    """`kernel(a, b, c, M, N, K, constants)` over the registry's grid with the registry's warps, or `num_warps`.

    The constants are those of the config that the kernel has parameters for, `B_LAYOUT`, those of an epilogue, and
    `more`; what it leaves to the compiler it does not name. After K come `scale_a` and `scale_b` where it has
    parameters for them: tensors of one element, or None for 1; and what an epilogue is given (`_of_epilogue`).
    names: of the matrices, where it takes more than these. describe: from the operands and C to the tensor
    descriptors that the kernel takes in their place. sizes: what it takes for M, N, K, where it is not those.
    other_warps: those of its partitions beside the first.
    """
    problem, implementation, shape = plan.problem, plan.implementation, plan.launch
    if num_warps is not None:
        shape = replace(shape, block=(32 * num_warps, 1, 1))
    epilogue = {**implementation.epilogue.constants(), "FINISHES": bool(implementation.epilogue)}
    epilogue["VECTOR"] = _vector(problem) if implementation.epilogue.adds_c else 1
    epilogue["C_BY_THREADS"] = int(implementation.c_by_threads)
    constants = {**implementation.config.constants(), "B_LAYOUT": problem.b_layout, **epilogue, **more}
    constants = {name: value for name, value in constants.items() if name in kernel.arg_names}
    blocks = implementation.config.BLOCKS_PER_SM
    if blocks > 1:  # CUDA's launch bounds ask the same of nvcc; a cap that caps nothing would still change its choice
        threads = 32 * (shape.num_warps + other_warps)
        constants["maxnreg"] = min(MAX_REGISTERS, SM_REGISTERS // (threads * blocks) // 8 * 8)
    if constants.get("SHARES") == ALL_ADD.value:  # programs wait for each other, so all must run at the same time
        constants["launch_cooperative_grid"] = True
    return Prepared(
        kernel, shape, names, sizes or (problem.m, problem.n, problem.k), describe, num_stages=num_stages, **constants
    )


def _vector(problem: Problem) -> int:
    """How many elements of a row of c are read at once, of 16 bytes at most; rows of an odd number are padded."""
    most = VECTOR_BYTES // gemm_ref.MATHS[problem.math].out_dtype.itemsize
    return most if problem.n % 2 else math.gcd(problem.n, most)


def _of_epilogue(extras: Extras, vector: int) -> tuple[torch.Tensor | float | None, ...]:
    """Bias, addend, the addend's step from row to row in vectors, alpha and beta; None for each that there is not."""
    bias, c = (None if x is None else pairs_with_padding(x) for x in (extras.bias, extras.c))
    return bias, c, None if c is None else c.shape[1] // vector, extras.alpha, None if c is None else extras.beta


def early(a: torch.Tensor) -> dict[str, int]:
    """The constant EARLY: 1 where a kernel can start before the one in front of it has ended, and waits for that.

    Triton's interpreter has no such kernels.
    """
    capability = torch.cuda.get_device_capability(a.device) if a.is_cuda else without_gpu.capability.get()
    return {"EARLY": int(capability >= (9, 0) and not triton.knobs.runtime.interpret)}


@dataclass(frozen=True)
class TwoKernels:
    """Starts a kernel that writes to C and `floats` of partial sums, and then one that adds these.

    add: None where no tile is shared; then no partial sum is stored either.
    """

    multiply: Prepared
    add: Prepared | None
    floats: int

    def __call__(self, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, extras: Extras) -> object:
        partials = c.new_empty(self.floats) if self.add else c
        compiled = self.multiply(a, b, c, partials, extras)
        if self.add:
            self.add(partials, c)
        return compiled


def make_prepare(kernel: triton.JITFunction, num_stages: int = 1) -> Prepare:
    """Returns the `prepare` of a rung whose kernel takes A, B, C, M, N, K and constants of its config."""
    return lambda plan, a, b, c: prepare(kernel, plan, num_stages=num_stages)


def prepare_shared(
    kernel: triton.JITFunction,
    plan: Plan,
    device: torch.device,
    *,
    describe: Callable[..., tuple[Operand, ...]],
    **about: Any,
) -> SharedLauncher:
    """As `prepare`, for `kernel(left, right, c, partials, flags, M, N, K, shared, constants)`, which adds up shares.

    left, right: B^T and A^T where its tiles are of C^T, and M and N are those of what it multiplies; so describe takes
    (left, right, c). A kernel with `narrow_desc` and its `describe` take right twice.
    """
    sizes = *_sides(plan, plan.problem.m, plan.problem.n), plan.problem.k, plan.launch.shared_tiles
    names = "left", *("right",) * (1 + _has_narrow(kernel)), "C", "partials", "flags"
    about = _with_side(plan, about)
    return SharedLauncher(prepare(kernel, plan, names=names, sizes=sizes, describe=describe, **about), plan, device)


def prepare_split(
    kernel: triton.JITFunction,
    plan: Plan,
    a: Split,
    b: Split,
    *,
    describe: Callable[..., tuple[Operand, ...]],
    **about: Any,
) -> SharedLauncher:
    """As `prepare_shared`, for operands in parts; without what is for shares where the rung has none in this dialect.

    The kernel's are (left, right, c, partials, flags, exponents, exponents, left, right, M, N, K, steps, shared): left
    and right are the parts of the operands, (parts, rows, columns); then come the exponents of their lines and the
    operands as they are stored, and after the sizes the steps from row to row of these.
    """
    problem, mode, has_shares = plan.problem, gemm_ref.MATHS[plan.problem.math], _has_shares(plan)
    names = "parts of left", "parts of right", "C", *("partials", "flags") * has_shares
    names = *names, "exponents of left", "exponents of right", "left", "right"
    steps = (x.matrix.shape[1] for x in _sides(plan, a, b))
    sizes = *_sides(plan, problem.m, problem.n), problem.k, *steps, *(plan.launch.shared_tiles,) * has_shares
    about = {"PARTS": mode.parts, "SMALL": 2.0**-mode.part_shift, **_with_side(plan, about)}
    multiply = prepare(kernel, plan, names=names, sizes=sizes, describe=describe, **about)
    return SharedLauncher(multiply, plan, a.parts.device)


def _has_narrow(kernel: triton.JITFunction) -> bool:
    """Whether a kernel takes a second descriptor of its right operand, whose blocks are narrower."""
    return "narrow_desc" in kernel.arg_names


def _sides(plan: Plan, a: Any, b: Any) -> tuple[Any, Any]:
    """What belongs to the left operand of the kernel, and to its right one."""
    return (b, a) if plan.implementation.transpose_c else (a, b)


def _with_side(plan: Plan, about: dict[str, Any]) -> dict[str, Any]:
    return {"TRANSPOSE_C": int(plan.implementation.transpose_c), **about}


def phases(plan: Plan) -> dict[str, int]:
    """The constants ROUNDS, how many complete tiles a program has (0, 1, or 2 for any number), SHARES of tiles, PART.

    SHARES is 0 where there are none, 1 where the program with a tile's first slice adds them, and ALL_ADD where all of
    a tile's programs do, in parts of PART sums. A kernel that needs no code for one of them has none, because fetching
    it would take time.
    """
    launch, config = plan.launch, plan.implementation.config
    down, right, slices = count_tiles(config, plan.problem)
    rounds = cdiv(down * right - launch.shared_tiles, launch.grid[0])
    part, _ = config.parts(down * right, launch.grid[0], slices)
    return {"ROUNDS": min(rounds, 2), "SHARES": ALL_ADD.value if part else int(launch.shared_tiles > 0), "PART": part}


def _has_shares(plan: Plan) -> bool:
    return plan.implementation.dialect in plan.implementation.stage.tiles


class SharedLauncher:
    """Starts a kernel that adds up the shares of its tiles, with partial sums and flags where its launch has any.

    On the reference GPU it raises `ptx.LeftOver` where the kernel has not set its flags back to 0.
    """

    def __init__(self, multiply: Prepared, plan: Plan, device: torch.device) -> None:
        self._multiply, self._plan, self._launch = multiply, plan, plan.launch
        self._transpose_c, self._has_shares = plan.implementation.transpose_c, _has_shares(plan)
        self._rights = 1 + multiply.describes_right_twice
        # Without elements they hold no memory, which might be a CUDA graph's.
        self._unused = torch.empty(0, device=device), torch.empty(0, dtype=torch.int32, device=device)

    def __call__(self, a: Any, b: Any, c: torch.Tensor, extras: Extras) -> object:
        left, right = (b, a) if self._transpose_c else (a, b)
        room: tuple[torch.Tensor, ...] = self._allocate(c) if self._has_shares else ()
        if isinstance(left, Split):
            lines = left.exponents, right.exponents, left.matrix, right.matrix
            compiled = self._multiply(left.parts, right.parts, c, *room, *lines, extras)
        else:
            compiled = self._multiply(left, *(right,) * self._rights, c, *room, extras)
        if self._launch.flags and not (c.is_cuda or c.is_meta) and room[1].any():
            raise gemm_ref.ptx.LeftOver(
                f"{self._plan.implementation} leaves flags that are not 0, and the next launch would not wait: take "
                "each back"
            )
        return compiled

    def _allocate(self, c: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Partial sums and flags for one launch."""
        if not self._launch.flags:
            return self._unused
        partials, index = c.new_empty(self._launch.partials, dtype=torch.float32), c.get_device()
        if c.is_cuda:
            return partials, flags_for(self._launch.flags, index, stream_of(index))
        return partials, torch.zeros(self._launch.flags, dtype=torch.int32, device=c.device)


class Prepared:
    """A kernel, its grid, its sizes and its constants: a launcher for matrices that are alike (`call.Prepare`).

    names: what messages of the reference GPU call the matrices.
    """

    def __init__(
        self,
        kernel: triton.JITFunction,
        shape: gemm_ref.Launch,
        names: tuple[str, ...],
        sizes: tuple[int, ...],
        describe: Callable[..., tuple[Operand, ...]] | None = None,
        *,
        num_stages: int = 1,
        **constants: int | str,
    ) -> None:
        self._kernel, self._grid, self._names, self._sizes, self._describe = kernel, shape.grid, names, sizes, describe
        self.describes_right_twice = _has_narrow(kernel)
        self._partly = shape.partly
        self._vector = int(constants.get("VECTOR", 1))
        self._options = {"num_warps": shape.num_warps, "num_stages": num_stages, "enable_fp_fusion": True, **constants}
        self._scaled, self._finishes = "scale_a" in kernel.arg_names, "bias_ptr" in kernel.arg_names
        self._again: Callable[..., CompiledKernel] | None = None

    def __call__(self, *given) -> CompiledKernel | None:
        """Run it on the matrices, and after them what else the call gives (`gemm_ref.epilogue.Extras`).

        Where the first is decides who runs it: CUDA tensors their GPU, CPU tensors the reference GPU (or Triton's
        interpreter, in a process that has it switched on), and `meta` tensors nobody: they are compiled for only.
        Returns the compiled kernel; the interpreter has none.
        """
        matrices = given[: len(self._names)]
        more = self._of_extras(given[len(matrices)]) if self._scaled else ()
        if self._again is not None and not self._kernel.pre_run_hooks:
            return self._again(matrices, more)
        described = matrices
        if self._describe is not None:
            count = 3 + self.describes_right_twice
            described = (*self._describe(*matrices[:count]), *matrices[count:])
        args = (*described, *self._sizes, *more)
        if matrices[0].is_cuda or not isinstance(self._kernel, triton.JITFunction):
            with without_gpu.driver_lock, torch.cuda.device_of(matrices[0]):
                if matrices[0].is_cuda:
                    driver.bind_context()  # Triton encodes tensor maps before anything else that needs one
                compiled = self._kernel[self._grid](*args, **self._options)
            if isinstance(compiled, CompiledKernel):
                self._again = self._launched(compiled, matrices[0].get_device(), args, described)
            return compiled
        compiled = without_gpu.compiled(
            self._kernel, *_without_ones(self._kernel, args), grid=self._grid, **self._options
        )
        if not matrices[0].is_meta:
            reference_gpu.run(compiled, self._grid, args, self._names, self._partly)
        return compiled

    def _of_extras(self, extras: Extras) -> tuple[torch.Tensor | float | None, ...]:
        """What the kernel is given of them, behind its sizes."""
        if not self._finishes:
            return extras[:2]
        plain = not self._options["FINISHES"]
        return *extras[:2], *((None,) * 5 if plain else _of_epilogue(extras, self._vector))

    def _launched(
        self, compiled: CompiledKernel, index: int, args: tuple, described: tuple[Operand, ...]
    ) -> Callable[..., CompiledKernel]:
        """`again(matrices, more)`, which launches on GPU `index` what was compiled for `args`, as Triton would.

        Triton looks at every argument of a launch, to find the kernel that was compiled for such arguments. That one
        is known here, since the matrices are alike (an address that is a multiple of 16 stays one), and so are the
        sizes. Its launcher takes all of the jit function's parameters, constants too, and addresses for pointers. For
        addresses that were launched before, the launcher's own work is cached too (`_bind_launch`).
        """
        parameters = self._kernel.signature.parameters
        names = self._kernel.arg_names[len(args) :]
        constants = [self._options[name] if name in self._options else parameters[name].default for name in names]
        by_triton, run, sizes = compiled[self._grid], compiled.run, self._sizes
        # Memory, or an address sanitiser's state, that differs between launches
        differs = run.global_scratch_size or run.profile_scratch_size or getattr(run, "gsan_enabled", False)
        operand_at = [_describer(x) for x in described]

        def list_args(addresses: tuple[int, ...], extras: tuple[float | None, ...]) -> list:
            operands = [make(address) for make, address in zip(operand_at, addresses, strict=True)]
            return [*operands, *sizes, *extras, *constants]

        @functools.lru_cache(MOST_ADDRESSES)
        def bind(addresses: tuple[int, ...], extras: tuple[float | None, ...], stream: int) -> Callable[[], object]:
            about = self._grid, stream, compiled.function, compiled.packed_metadata
            with without_gpu.driver_lock:
                driver.bind_context()
                return _bind_launch(run, *about, list_args(addresses, extras))

        def again(matrices: tuple[torch.Tensor, ...], more: tuple[torch.Tensor | float | None, ...]) -> CompiledKernel:
            if torch.cuda.current_device() != index:
                with torch.cuda.device(index):
                    return again(matrices, more)
            addresses = tuple([x.data_ptr() for x in matrices])
            extras = tuple([x.data_ptr() if isinstance(x, torch.Tensor) else x for x in more])
            if differs or _has_hooks():
                with without_gpu.driver_lock:
                    driver.bind_context()
                    by_triton(*list_args(addresses, extras), stream=stream_of(index))
            else:
                bind(addresses, extras, stream_of(index))()
            return compiled

        return again


def _has_hooks() -> bool:
    """Whether somebody, such as a profiler, is to be called at each launch: then Triton's own launcher is used."""
    enter, leave = triton.knobs.runtime.launch_enter_hook, triton.knobs.runtime.launch_exit_hook
    return bool(getattr(enter, "calls", enter) or getattr(leave, "calls", leave))


def _bind_launch(
    run: Any, grid: tuple[int, int, int], stream: int, function: int, metadata: object, args: list
) -> Callable[[], object]:
    """Returns the call of Triton's C function that `run`, its launcher, makes for these arguments.

    In every launch `run` encodes a tensor map for each descriptor, in Python: `run.launch` is then a closure around
    the C function. Here both are called once, with a function in the C function's place that records its arguments.
    """
    recorded: list[tuple] = []
    launch, start = run.launch, run.launch
    recording = copy.copy(run)
    if isinstance(launch, types.FunctionType):
        cells = dict(zip(launch.__code__.co_freevars, launch.__closure__ or (), strict=True))
        start = cells["launcher"].cell_contents
        cells["launcher"] = types.CellType(lambda *given: recorded.append(given))
        recording.launch = types.FunctionType(launch.__code__, launch.__globals__, closure=tuple(cells.values()))
    else:
        recording.launch = lambda *given: recorded.append(given)
    recording(*grid, stream, function, metadata, None, None, None, *args)
    return functools.partial(start, *recorded[0])


@dataclass(frozen=True)
class _Address:
    """What a launch reads of a descriptor's matrix; unlike the matrix it keeps no memory from being used again."""

    value: int
    dtype: torch.dtype

    def data_ptr(self) -> int:
        return self.value


def _describer(x: Operand) -> Callable[[int], Descriptor | int]:
    """From an address to what a launch takes of a tensor there that is like x, or like the matrix that x describes."""
    if isinstance(x, torch.Tensor):
        return lambda address: address
    dtype = x.base.dtype
    pattern = replace(x, base=_Address(x.base.data_ptr(), dtype))
    return lambda address: replace(pattern, base=_Address(address, dtype))


_NO_MULTIPLE = 3  # of 16, nor 1


def _without_ones(kernel: triton.JITFunction, args: tuple) -> list:
    """What to compile for: `args`, but for sizes of 1 whose parameters have a type as their annotation.

    Such a parameter stays a variable for 1 too, and what it says is what any size says that 16 does not divide; yet
    Triton's key of a kernel has the 1 apart, and so it would compile the same kernel again.
    """
    pairs = zip(kernel.params, args, strict=False)
    return [_NO_MULTIPLE if parameter.annotation_type and type(x) is int and x == 1 else x for parameter, x in pairs]
