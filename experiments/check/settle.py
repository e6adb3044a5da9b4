"""What is found by trying: a launch of a CUDA kernel, how its matrices are stored, and which size is which."""

from __future__ import annotations

import itertools
import time
from enum import Enum

import torch

import gemm_ref
from experiments.check import sizes
from experiments.check.cuda import layouts
from experiments.check.cuda.cuda_file import CudaKernel
from experiments.check.subject import Survey
from experiments.check.survey import first_block
from experiments.check.trial import Trial, attempt
from experiments.records.request import UsageError
from gemm_ref.launch import cdiv
from gemm_ref.ptx.detect.finding import RACE

_LEAST = 16  # of a tile's sides
_SECONDS = 30.0  # of a core's time, after which no other launch is tried


def settle(kernel: CudaKernel, layout: bool) -> CudaKernel:
    """The kernel with a launch, if nobody told one, and with the `layout` that makes it right if rows are not.

    The report says what was found. Raises UsageError where no launch that was tried stores a tile.
    """
    if guessed := bool(kernel.untold):
        kernel = _launched(kernel)
    if not layout:
        return kernel
    seen, trial = first_block(kernel)
    kernel.seen = seen
    problem = _problem(kernel, seen)
    if trial.endless or _right(kernel, problem):  # no layout ends a loop
        return kernel
    regridded = list(kernel.regridded())
    if turned := next((each for each in regridded if _right(each, problem)), None):
        kernel.notes.append(f"its program has sizes of its own, from which its grid is told: {turned.shape}")
        return turned
    if attempt(kernel, problem, zeroed=True, detect=True).unordered:
        return kernel
    free = not (kernel.says_sizes or kernel.square or kernel.fixed)
    cube = _cube(kernel, seen)  # it may take no others
    cubes = layouts.others(kernel.layout, axes=False) if cube != problem and not _right(kernel, cube) else ()
    regrid = guessed or bool(regridded)  # nothing tells which size a grid of equal ones is made of
    tried = [(other, problem) for other in layouts.others(kernel.layout, axes=free)] + [(x, cube) for x in cubes]
    for other, size in tried:
        for shape in kernel.shape.grids(kernel.tile, other.axes) if regrid and other.axes != "MNK" else [kernel.shape]:
            changed = kernel.changed(layout=other, shape=shape, assumed=str(other))
            if _right(changed, size):
                changed.notes.append(f"right if {other}, which is how it is checked{_as_option(other)}")
                if shape.grid != kernel.shape.grid and not guessed:
                    changed.notes.append(f"its program has sizes of its own, from which its grid is told: {shape}")
                return changed
    if unknown := kernel.undetermined:
        raise UsageError(
            f"what is {' and what is '.join(unknown)}? {kernel.name} is given that at all sizes, and is wrong with it: "
            "say with --args, --grid and --block how it is launched"
        )
    return kernel


def _launched(kernel: CudaKernel) -> CudaKernel:
    """With the block whose first one stores what it should, or at least a whole tile, and a grid of such tiles.

    What a wrong guess does is no fault of the kernel, so at whole tiles it must show none. If all show some, a launch
    that is right, and stores each element once, is none that is wrong: what races there is the kernel's.
    """
    racing: list[CudaKernel] = []
    whole: list[tuple[CudaKernel, Survey]] = []
    failed: list[Exception] = []
    tried = ""
    begun = time.process_time()
    for guess in itertools.takewhile(lambda _: time.process_time() - begun < _SECONDS, kernel.launches()):
        try:
            seen, trial = first_block(guess)
        except UsageError as error:  # the template may not be compiled with every argument
            failed.append(error)
            continue
        failed += [trial.refusal] if trial.refusal else []
        stored = _stored(seen, trial)
        if stored is _Stored.RIGHT:
            found, tried = _with_grid(guess, seen, racing)
            if found:
                return found
        elif stored is _Stored.WHOLE:
            whole.append((guess, seen))
    for guess, seen in whole[: not tried]:
        found, tried = _with_grid(guess, seen, racing)
        if found:
            return found
    if racing:
        return racing[0]
    if not tried and failed:
        raise failed[0]
    raise UsageError(kernel.untold + (f"; what was tried is {tried}" if tried else ""))


def _with_grid(found: CudaKernel, seen: Survey, racing: list[CudaKernel]) -> tuple[CudaKernel | None, str]:
    """With a grid of the first block's tiles, if that shows no fault, and the launch in words.

    One that is right and shows races alone is added to `racing`.
    """
    tile = seen.tile or found.tile
    grids = found.shape.grids(tile) if found.shape.grid == ("1",) else [found.shape]
    with_grid = [found.changed(shape=shape, tile=tile) for shape in grids]
    problem = _problem(with_grid[0], seen)
    right = next((each for each in with_grid if _right(each, problem)), with_grid[0])
    seen_there = attempt(right, problem, detect=True)
    clean = not seen_there.findings
    if clean or seen_there.right and {finding.kind for finding in seen_there.findings} == {RACE}:
        note = f"nobody launches it: {right.shape} is guessed, as what stores whole tiles of C"
        right = right.changed(notes=[*right.notes, note])
        racing += [] if clean else [right]
    return right if clean else None, str(right.shape)


class _Stored(Enum):
    """What the first block left of C."""

    PART, WHOLE, RIGHT = range(3)


def _stored(seen: Survey, trial: Trial) -> _Stored:
    if seen.tile is None or trial.fault or trial.refusal or seen.tile == (1, 1):
        return _Stored.PART
    rows, columns = seen.tile
    tile = trial.c[:rows, :columns].double()
    if torch.equal(tile, trial.a[:rows].double() @ trial.b[:, :columns].double()):
        return _Stored.RIGHT
    return _Stored.PART if tile.isnan().any() else _Stored.WHOLE


def _problem(kernel: CudaKernel, seen: Survey) -> gemm_ref.Problem:
    """Whole tiles, as deep as all of the kernel's buffers."""
    return _cube(kernel, seen) if kernel.square else kernel.admit(_whole(seen.tile or kernel.tile, seen))


def _cube(kernel: CudaKernel, seen: Survey) -> gemm_ref.Problem:
    """The same with equal sizes."""
    return kernel.admit(sizes.squared(seen.tile or kernel.tile, seen.slice, seen.depth, seen.walks))


def _whole(tile: tuple[int, int], seen: Survey) -> gemm_ref.Problem:
    """Whole tiles of sizes that differ, as few as that takes, and as deep as all of the kernel's buffers."""
    m, n = (side * cdiv(_LEAST, side) for side in tile)
    n = 2 * n if n == m else n
    k = seen.depth
    while k in (m, n):
        k += seen.slice
    return gemm_ref.Problem(m, n, k)


def _right(kernel: CudaKernel, problem: gemm_ref.Problem) -> bool:
    return attempt(kernel, problem, zeroed=True).right  # whether it reads C is another question


def _as_option(found: layouts.Layout) -> str:
    return f": --layout {found.option}" if found.option and found.axes == "MNK" else ""
