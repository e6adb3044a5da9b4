"""Where a kernel's launch comes from: one ordered list of sources, each tried in turn; then the storage of matrices.

This is the one place to look where a launch is wrong. Each source yields kernels with a launch. The first of all is
taken; the next ones are tried where it is wrong at whole tiles. If none is right, matrices stored column-major and
other orders of M, N and K are tried with the first launch.
"""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from enum import Enum

import torch

import gemm_ref
from experiments.check import sizes
from experiments.check.cuda import launch
from experiments.check.cuda.bind import KernelFile
from experiments.check.cuda.expressions import numbers
from experiments.check.cuda.kernel import CudaKernel
from experiments.check.cuda.launch import LaunchRule
from experiments.check.cuda.parameters import SIZES, role_of
from experiments.check.limits import used_s
from experiments.check.messages import Message, Note, message
from experiments.check.sizes import first_block
from experiments.check.subject import Survey, Trial, attempt
from experiments.records.request import UsageError
from gemm_ref.ptx.detect.finding import RACE

_MAX_SECONDS = 30.0  # of a core's time, after which no other launch is tried
_STORAGE_S = 10.0  # likewise, no other storage


def infer_kernel(file: KernelFile) -> CudaKernel:
    """Returns the kernel with the launch and storage that make it right, or the first launch. Raises UsageError."""
    candidates = itertools.chain.from_iterable(source(file) for source in SOURCES)
    kernel = next(candidates)
    if file.options.layout:
        return kernel
    seen, trial = first_block(kernel)
    if kernel.recording and "blockIdx" in kernel.unit.text and kernel.recording.has_one_tile(kernel.roles, seen.tile):
        kernel = _with_block_per_tile(kernel.changed(launch=kernel.launch.as_expressions()), seen)
        kernel = kernel.with_note(Note.GRID_FROM_OWN_SIZES, launch=kernel.launch)
    kernel = replace(kernel, survey=seen)
    problem = sizes.complete_tiles(kernel, seen)
    if trial.endless or _is_right(kernel, problem):  # no layout ends a loop
        return kernel
    if kernel.on_whole_gpu is not kernel and _is_right(kernel.on_whole_gpu, problem):  # with a block for each tile
        return kernel
    others = list(candidates)
    if right := next((other for other in others if _is_right(other, problem)), None):
        return right
    other = _with_other_storage(kernel, problem, seen, not file.options.args, bool(others))
    if other or attempt(kernel, problem, zeroed=True, detect=True).unordered:
        return other or kernel
    if unknown := kernel.undetermined:
        raise UsageError(
            f"what is {' and what is '.join(unknown)}? {kernel.name} is given that at all sizes, and is wrong with it: "
            "say with --args, --grid and --block how it is launched"
        )
    return kernel


# --- sources ----------------------------------------------------------------------------------------------------------


def from_options(file: KernelFile) -> Iterator[CudaKernel]:
    """--grid and --block."""
    if file.has_launch_options:
        names = tuple(file.bound.names.items())
        grid = launch.parse(file.options.grid, "--grid")
        yield _with_covered_sizes(_launched(file, LaunchRule(grid, file.block, file.options.shared or "0", names)))


def _with_covered_sizes(kernel: CudaKernel) -> CudaKernel:
    """The kernel for the C that a grid of plain numbers covers; itself where blocks may have several tiles each."""
    across, down, *_ = (*kernel.launch.grid, "1")
    if not across.isdigit() or not down.isdigit() or "1" in (across, down) or "gridDim" in kernel.unit.text:
        return kernel
    seen, _ = first_block(kernel)
    if not seen.tile:
        return kernel
    covered = {"m": int(down) * seen.tile[0], "n": int(across) * seen.tile[1]}
    if kernel.square:
        covered = dict.fromkeys("mnk", min(covered.values()))
    kernel = replace(kernel, fixed={**covered, **kernel.fixed}, survey=seen)
    sides = seen.tile, (kernel.fixed["m"], kernel.fixed["n"])
    tile, matrix = (" x ".join(map(str, pair)) for pair in sides)
    return kernel.with_note(Note.GRID_COVERS, grid=f"{across},{down}", tile=tile, sizes=matrix)


def from_host_code(file: KernelFile) -> Iterator[CudaKernel]:
    """The project's own host code, which was recorded with our sizes, or with its own."""
    if recording := file.host_code.recording:
        rule = recording.rule(file.bound.kernel.roles, tuple(file.bound.names.items()))
        yield _launched(file, rule, recording.describe(rule))


def from_program_sizes(file: KernelFile) -> Iterator[CudaKernel]:
    """The grid that a program's own sizes determine, and that with M and N exchanged, since they may be equal."""
    for kernel in from_host_code(file):
        if kernel.recording and len(kernel.fixed) < len(SIZES):
            rule = kernel.recording.program_rule(kernel.roles, kernel.launch.names)
            exchanged = str.maketrans("MN", "NM")
            for grid in (rule.grid, tuple(text.translate(exchanged) for text in rule.grid)) if rule else ():
                if rule and grid != kernel.launch.grid:
                    other = replace(rule, grid=grid)
                    changed = kernel.changed(launch=other, tile=other.tile())
                    yield changed.with_note(Note.GRID_FROM_OWN_SIZES, launch=other)


def from_indices(file: KernelFile) -> Iterator[CudaKernel]:
    """The row and the column that a thread computes in the source."""
    if file.has_launch_options or file.host_code.recording:
        return
    bound, options = file.bound, file.options
    if isinstance(file.grid_and_block, UsageError):
        return
    grid, block = file.grid_and_block
    grid = launch.parse(options.grid, "--grid") if options.grid else grid
    missing = [name for name in ("grid", "block") if not getattr(options, name)]
    what = f"{' and '.join(missing)} {'are' if len(missing) == 2 else 'is'}"
    rule = LaunchRule(grid, block, options.shared or "0", tuple(bound.names.items()))
    yield _launched(file, rule, message(Note.LAUNCH_FROM_INDICES, what=what))


def from_trials(file: KernelFile) -> Iterator[CudaKernel]:
    """Common blocks, and a grid of the tiles that their first one stores.

    A fault of a wrong guess is no fault of the kernel, so a launch must show none at whole tiles. If all show some, a
    launch that is right, and stores each element once, is taken: its races are the kernel's. Raises UsageError where
    none stores whole tiles.
    """
    if file.has_launch_options or file.host_code.recording or not isinstance(file.grid_and_block, UsageError):
        return
    racing: list[CudaKernel] = []
    complete: list[tuple[CudaKernel, Survey]] = []
    failed: list[Exception] = []
    tried = ""
    for guess in _blocks_in_time(file):
        try:
            seen, trial = first_block(guess)
        except UsageError as error:  # the template may not compile with these arguments
            failed.append(error)
            continue
        failed += [trial.refusal] if trial.refusal else []
        stored = _stored_part(seen, trial)
        if stored is _Stored.RIGHT:
            found, tried = _with_grid(guess, seen, racing)
            if found:
                yield found
                return
        elif stored is _Stored.WHOLE:
            complete.append((guess, seen))
    for guess, seen in complete[: not tried]:
        found, tried = _with_grid(guess, seen, racing)
        racing[:0] = [found] if found else []
    if racing:
        yield racing[0]
        return
    if not tried and failed:
        raise failed[0]
    why = f" ({file.host_code.why})" if file.host_code.why else ""
    raise UsageError(f"{file.grid_and_block}{why}" + (f"; what was tried is {tried}" if tried else ""))


SOURCES: tuple[Callable[[KernelFile], Iterator[CudaKernel]], ...] = (
    from_options,
    from_host_code,
    from_program_sizes,
    from_indices,
    from_trials,
)


def _launched(file: KernelFile, rule: LaunchRule, *notes: Message) -> CudaKernel:
    """The kernel with a launch; one row is multiplied where nothing depends on M."""
    if not rule.host_function:
        rule.at(gemm_ref.Problem(1, 1, 1))  # an expression without a value is refused now
    kernel = file.bound.kernel
    kernel = replace(kernel, launch=rule, settings=(*kernel.settings, *notes))
    for axis, note in (("M", Note.ONE_ROW), ("N", Note.ONE_COLUMN)):
        in_grid = any(text == "?" or axis in re.findall(r"\w+", text) for text in rule.grid)
        if not (axis in file.bound.passed_sizes or axis.lower() in kernel.fixed or kernel.square or in_grid):
            kernel = replace(kernel, fixed={**kernel.fixed, axis.lower(): 1}).with_note(note)
    return replace(kernel, tile=rule.tile())


# --- trials -----------------------------------------------------------------------------------------------------------


def _blocks_in_time(file: KernelFile) -> Iterator[CudaKernel]:
    """The kernel with each of its templates and of the blocks to try, with one block of these or the grid of --grid."""
    start, bound, options = time.process_time(), file.bound, file.options
    grid = launch.parse(options.grid, "--grid") if options.grid else ("1",)
    is_dynamic = re.search(r"\bextern\s+__shared__", file.signature.body)
    shared = options.shared or (str(launch.MAX_STATIC_BYTES) if is_dynamic else "0")
    for template in bound.templates:
        names = {**bound.names, **numbers(f"{parameter.name}={text}" for parameter, text in template)}
        blocks = launch.candidate_blocks(file.signature, bound.kernel.unit.text, names)
        for block in [file.block] if file.block else [tuple(map(str, block)) for block in blocks]:
            if time.process_time() - start >= _MAX_SECONDS:
                return
            rule = LaunchRule(grid, block, shared, tuple(names.items()))
            yield bound.kernel.changed(template=template, launch=rule, tile=rule.tile(), has_free_grid=True)


def _with_grid(kernel: CudaKernel, seen: Survey, racing: list[CudaKernel]) -> tuple[CudaKernel | None, str]:
    """Returns (the kernel with a grid of its first block's tiles if no fault shows, the launch); adds to `racing`."""
    right = _with_block_per_tile(kernel, seen)
    trial = attempt(right, sizes.complete_tiles(right, seen), detect=True)
    if not trial.findings:
        return right.with_note(Note.LAUNCH_TRIED, launch=right.launch), str(right.launch)
    if trial.right and {finding.kind for finding in trial.findings} == {RACE}:
        racing.append(right.with_note(Note.LAUNCH_TRIED, launch=right.launch))
    return None, str(right.launch)


def _with_block_per_tile(kernel: CudaKernel, seen: Survey) -> CudaKernel:
    """The kernel with the first grid of a block for each of its first block's tiles that is right, or the first."""
    tile = seen.tile or kernel.tile
    rules = kernel.launch.with_tile(tile) if kernel.launch.grid == ("1",) else [kernel.launch]
    launched = [kernel.changed(launch=rule, tile=tile) for rule in rules]
    problem = sizes.complete_tiles(launched[0], seen)
    return next((each for each in launched if _is_right(each, problem)), launched[0])


class _Stored(Enum):
    PART, WHOLE, RIGHT = range(3)


def _stored_part(seen: Survey, trial: Trial) -> _Stored:
    if seen.tile is None or trial.fault or trial.refusal or seen.tile == (1, 1):
        return _Stored.PART
    rows, columns = seen.tile
    tile = trial.c[:rows, :columns].double()
    if torch.equal(tile, trial.a[:rows].double() @ trial.b[:, :columns].double()):
        return _Stored.RIGHT
    return _Stored.PART if tile.isnan().any() else _Stored.WHOLE


# --- storage of the matrices ------------------------------------------------------------------------------------------


def _with_other_storage(
    kernel: CudaKernel, problem: gemm_ref.Problem, seen: Survey, sizes_are_free: bool, grid_is_scaled: bool
) -> CudaKernel | None:
    """Returns the kernel with the first storage that makes it right."""
    axes = sizes_are_free and not (kernel.square or kernel.fixed)
    cube = sizes.complete_cube(kernel, seen)  # it may take no other sizes
    free_grid = kernel.has_free_grid or grid_is_scaled
    tried = [(kernel, other, problem) for other in kernel.storage.others(axes)]
    for exchanged in _with_exchanged_operands(kernel) if sizes_are_free else ():
        tried += [(exchanged, other, problem) for other in (kernel.storage, *kernel.storage.others(axes))]
    if cube != problem and not _is_right(kernel, cube):
        tried += [(kernel, other, cube) for other in kernel.storage.others(axes=False)]
    elif axes:  # in another order it may need fewer sizes that are equal
        pairs = [
            problem.resized(**dict.fromkeys(pair, max(getattr(problem, axis) for axis in pair)))
            for pair in ("mn", "mk", "nk")
        ]
        if not any(_is_right(kernel, pair) for pair in pairs):
            orders = [other for other in kernel.storage.others(axes) if other.axes != "MNK"]
            tried += [(kernel, other, pair) for other in orders for pair in pairs]
    end_s = used_s() + _STORAGE_S
    for taken, storage, size in itertools.takewhile(lambda _: used_s() < end_s, tried):
        grid_differs = free_grid and storage.axes != "MNK"
        for rule in kernel.launch.with_tile(kernel.tile, storage.axes) if grid_differs else [kernel.launch]:
            changed = taken.changed(storage=storage, launch=rule).assume(str(storage))
            if _is_right(changed, size):
                option = f": --layout {storage.option}" if storage.option and storage.axes == "MNK" else ""
                option = option if taken is kernel else f": --args {','.join(taken.roles)} {option[2:]}".rstrip()
                changed = changed.with_note(Note.LAYOUT_FOUND, layout=changed.assumed, option=option)
                if rule.grid == kernel.launch.grid or kernel.has_free_grid:
                    return changed
                return changed.with_note(Note.GRID_FROM_OWN_SIZES, launch=rule)
    return None


def _with_exchanged_operands(kernel: CudaKernel) -> Iterator[CudaKernel]:
    """Yields the kernel with A and B exchanged, if neither a launch nor their names determine which is which."""
    pairs = zip(kernel.signature.parameters, kernel.roles, strict=True)
    names = {role: parameter.name for parameter, role in pairs if role in ("A", "B")}
    if {"A", "B"} == {*names} and not kernel.recording and not any(role_of(names[role]) == role for role in names):
        roles = tuple({"A": "B", "B": "A"}.get(role, role) for role in kernel.roles)
        yield kernel.changed(roles=roles, assumed=f"{names['B']} being A and {names['A']} B")


def _is_right(kernel: CudaKernel, problem: gemm_ref.Problem) -> bool:
    """Whether C is right; whether the kernel reads C before is another question.

    With detectors where the verdict rests on the same run: at sizes that the source fixes, on a C that is zeroed.
    """
    is_final = len(kernel.fixed) == len(SIZES) and "BETA" in kernel.scalars
    return attempt(kernel, problem, zeroed=True, detect=is_final).right
