"""The sizes that a kernel is tried at, by what its first block does, and those that it needs."""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

import gemm_ref
from experiments.check.subject import Subject, Survey, Trial, attempt
from gemm_ref import ptx
from gemm_ref.launch import cdiv

AXES = ("m", "n", "k")
_MULTIPLES = (2, 4, 8, 16, 32, 64, 128, 256)
_MAX_PRODUCTS = 4 << 20  # of a problem with detectors: a second or two
_MIN_SIDE = 16  # rows and columns of a tile; smaller ones are taken several at a time
_MAX_SQUARE = 768  # rows of a square problem without detectors: some seconds
_MANY = 8  # tiles that a kernel takes together, in most files; more are tried
_MAX_MANY = 128 << 20  # products where there are many tiles, two columns of them; a quarter of it where there are more
_SHALLOW = 32  # products of each sum where it is the tiles that matter

SIDE = 512  # of the cube whose first block runs: two tiles, and more slices than any pipeline has
_MAX_SIDE = SIDE // 2  # rows or columns of a tile, or products of a slice
_MAX_AHEAD = 384  # columns of A that shared memory may hold
_MAX_PARTS = 16  # of C that a block stores one after another, loading A for each; after more it is stopped
_MIN_DEPTH, _SLICE = 128, 32  # products of each sum, and those of a slice where it is not known


def choose(tile: tuple[int, int], slice_: int, depth: int) -> tuple[list[gemm_ref.Problem], gemm_ref.Problem]:
    """Returns (the problems to try, whole tiles first, and one tile with few products, for searches among sizes).

    Each has three different sizes, so that exchanged ones show. Where three by four tiles of full depth, see `Survey`,
    are too much work, they are shallow, and fewer tiles are deep.
    """
    rows, columns = (side * cdiv(_MIN_SIDE, side) for side in tile)
    shallow = _least_distinct(slice_ * cdiv(_SHALLOW, slice_), slice_, rows, columns)
    wide = gemm_ref.Problem(3 * rows, (4 if 3 * rows != 4 * columns else 5) * columns, 0)
    k = _least_distinct(depth, slice_, wide.m, wide.n)
    part = 2 * slice_ + 7 if slice_ <= _SHALLOW else slice_ + 7
    small = [gemm_ref.Problem(5, 3, 2), gemm_ref.Problem(1, 1, 1)]
    one = gemm_ref.Problem(rows, columns, shallow)
    if wide.m * wide.n * k <= _MAX_PRODUCTS:
        edges = gemm_ref.Problem(2 * rows + 3, 2 * columns + 5, max(part, 39))
        return [wide.resized(k=k), edges, *small], one
    deep = gemm_ref.Problem((2 if 2 * rows != columns else 3) * rows, columns, 0)
    deep = deep.resized(k=_least_distinct(depth, slice_, deep.m, deep.n))
    wide = wide.resized(k=_least_distinct(shallow, slice_, wide.m, wide.n))
    return [deep, wide, gemm_ref.Problem(rows + 3, columns + 5, max(part, 39)), *small], one


def choose_more(tile: tuple[int, int], slice_: int, group: int, by_hand: bool) -> list[gemm_ref.Problem]:
    """Returns (tiles and slices of which the last are halves, more tiles than any group of them has).

    A test of K % 2 in place of K % BLOCK_K lets half a slice pass. group: tiles that a kernel takes together. by_hand:
    it tests each element by itself, so that a part of a tile shows what half of one does.
    """
    rows, columns = (side * cdiv(_MIN_SIDE, side) for side in tile)
    half = gemm_ref.Problem(6, 12, 0) if by_hand else gemm_ref.Problem(rows + rows // 2, columns + columns // 2, 0)
    depth = slice_ + slice_ // 2
    shallow = slice_ * cdiv(_SHALLOW, slice_)
    most = _MAX_MANY // (4 if by_hand else 1)  # each thread is interpreted
    down = max(min(max(group, _MANY), most // (2 * rows * columns * shallow)) + 1, 3)
    across = min(max(most // (4 if by_hand else 8) // (down * rows * columns * shallow), 2), _MANY + 2)
    many = gemm_ref.Problem(down * rows, across * columns, 0)
    return [
        half.resized(k=depth if depth not in (half.m, half.n) else depth + slice_),
        many.resized(k=_least_distinct(shallow, slice_, many.m, many.n)),
    ]


def complete_tiles(subject: Subject, seen: Survey) -> gemm_ref.Problem:
    """Returns whole tiles of sizes that differ, as few as that takes, and as deep as all of the kernel's buffers."""
    if subject.square:
        return complete_cube(subject, seen)
    m, n = (side * cdiv(_MIN_SIDE, side) for side in seen.tile or subject.tile)
    n = 2 * n if n == m else n
    return subject.nearest_problem(gemm_ref.Problem(m, n, _least_distinct(seen.depth, seen.slice, m, n)))


def complete_cube(subject: Subject, seen: Survey) -> gemm_ref.Problem:
    """Returns whole tiles with equal sizes, as deep."""
    return subject.nearest_problem(squared(seen.tile or subject.tile, seen.slice, seen.depth, seen.walks))


def _least_distinct(k: int, slice_: int, *others: int) -> int:
    """Returns the least number of whole slices from k on that is no other size."""
    while k in others:
        k += slice_
    return k


def powers(problem: gemm_ref.Problem) -> gemm_ref.Problem:
    """Returns the next powers of two that differ: M, N and K of a kernel that takes no others."""
    m = power(problem.m)
    n = power(problem.n, m)
    return problem.resized(m, n, power(problem.k, m, n))


def power(size: int, *others: int) -> int:
    """Returns the next power of two that is no other size."""
    found: int = 1 << (size - 1).bit_length()
    return power(found + 1, *others) if found in others else found


def cube(tile: tuple[int, int], depth: int) -> gemm_ref.Problem:
    """Returns whole tiles of equal sizes, `depth` deep if that is not too much work."""
    side = max(_MIN_SIDE, *tile)
    side *= 2 if side <= _SHALLOW else 1
    deep = cdiv(depth, side) * side
    side = deep if deep**3 <= _MAX_PRODUCTS else side
    return gemm_ref.Problem(side, side, side)


def squared(tile: tuple[int, int], slice_: int, depth: int, walks: bool = False) -> gemm_ref.Problem:
    """Returns whole tiles and slices of one size, the least that is `depth` or more and has two tiles on each side.

    Without slices where that is too much work, or else of the longer side of a tile alone; of one such side where a
    block walks over C, which takes as long as N and K together.
    """
    if walks:
        side = max(_MIN_SIDE, *tile)
        return gemm_ref.Problem(side, side, side)
    steps = (math.lcm(*tile, slice_), math.lcm(*tile), max(tile))
    sides = [cdiv(max(depth, 2 * max(tile)), step) * step for step in steps]
    side = next((side for side in sides if side <= _MAX_SQUARE), 2 * max(tile))
    return gemm_ref.Problem(side, side, side)


def moved(problem: gemm_ref.Problem, axis: str, size: int, equal: str = "") -> gemm_ref.Problem:
    """Returns the problem with another size along one axis, and along those that must be `equal` (of MNK) to it."""
    axes = equal.lower() if axis.upper() in equal else axis
    return problem.resized(**dict.fromkeys(axes, size))


@dataclass(frozen=True)
class Need:
    """What one size must be a multiple of, and the smallest at which the kernel fails, the others being whole."""

    axis: str  # m, n or k
    multiple: int  # 0 where no multiple that was tried is enough, or time ran out
    smallest: gemm_ref.Problem
    least: int = 0  # a size below this fails even if it is a multiple

    def is_met_by(self, run: object) -> bool:
        size: int = getattr(run, self.axis)
        return size >= self.least and self.multiple > 0 and size % self.multiple == 0


def needs(
    base: gemm_ref.Problem,
    is_right: Callable[[gemm_ref.Problem], bool],
    has_time: Callable[[], bool],
    likely: Sequence[int] = (),
    equal: str = "",
    known: Container[str] = (),
) -> list[Need]:
    """Returns what sizes must be multiples of.

    base: sizes that are right. The multiples tried are powers of two and `likely`, one for each axis, each beside a
    whole size; where no time is left, those and the size of `base` alone. equal: the axes, of MNK, that must be equal,
    which count as one. known: axes that are not looked at.
    """
    found = []
    for index, axis in enumerate(AXES):
        size = getattr(base, axis)
        if axis in known or axis.upper() in equal[1:] or is_right(moved(base, axis, size + 1, equal)):
            continue

        def is_enough(step: int, axis: str = axis, size: int = size) -> bool:
            return is_right(moved(base, axis, size + step, equal))

        # A multiple may be right by chance, so two further ones must be as well.
        multiple = _least_multiple(is_enough, has_time)
        others = (step for step in _MULTIPLES if step > multiple > 0 and has_time())
        candidates = dict.fromkeys((*(multiple,) * (multiple > 0), *others, *likely[index : index + 1], size, *likely))
        multiple = next((step for step in candidates if all(is_enough(times * step) for times in (1, 2, 3))), 0)
        small = (moved(base, axis, number, equal) for number in (1, 2, 3) if not multiple or number % multiple)
        smallest = next((problem for problem in small if not is_right(problem)), moved(base, axis, size + 1, equal))
        found.append(Need(axis, multiple, smallest))
    return found


def least(base: gemm_ref.Problem, axis: str, step: int, is_right: Callable[[gemm_ref.Problem], bool]) -> int:
    """Returns the first multiple of `step` from which on an axis is right, up to that of `base`, found by halving."""
    low, high = 0, cdiv(getattr(base, axis), step)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if is_right(base.resized(**{axis: middle * step})) else (middle, high)
    return high * step


def past(base: gemm_ref.Problem, found: Iterable[Need], equal: str = "") -> gemm_ref.Problem:
    """Returns a problem past whole tiles, by the least that `needs` found, or by one."""
    steps = {need.axis: need.multiple for need in found}
    for axis in AXES:
        if axis.upper() not in equal[1:]:
            base = moved(base, axis, getattr(base, axis) + steps.get(axis, 1), equal)
    return base


def _least_multiple(is_enough: Callable[[int], bool], has_time: Callable[[], bool]) -> int:
    """The smallest of _MULTIPLES that is enough, found by halving; 0 if none is, or time runs out."""
    low, high = 0, len(_MULTIPLES)
    while low < high and has_time():
        middle = (low + high) // 2
        low, high = (low, middle) if is_enough(_MULTIPLES[middle]) else (middle + 1, high)
    return _MULTIPLES[low] if low == high < len(_MULTIPLES) else 0


# --- the first block ----------------------------------------------------------------------------------------------


def first_block(subject: Subject) -> tuple[Survey, Trial]:
    """Runs the first block alone. Returns what it does, with common values for what it does not show, and its run."""
    problem = subject.nearest_problem(gemm_ref.Problem(SIDE, SIDE, SIDE))
    seen = _Seen(problem)
    with ptx.first_block():
        trial = attempt(subject, problem, scales=subject.plain, observers=(seen,), compare=False)
    return seen.result(), trial


class _Walks(ptx.PtxError):
    """The block stores one part of C after another, such as each column of its rows."""


class _Seen(ptx.Observer):
    def __init__(self, problem: gemm_ref.Problem) -> None:
        self._problem = problem
        self._rows: list[int] = []
        self._columns: list[int] = []
        self._stored, self._parts_end = False, 0  # since A was last loaded; rows of earlier parts
        # Of C, each stored before A was loaded again: first and last row, first and last column
        self._parts: list[tuple[int, ...]] = []
        self._last: dict[int, int] = {}  # the last column of A that was loaded, by the barriers before
        self._barriers = 0
        self._shared = 0
        self._bytes = gemm_ref.MATHS[problem.math].dtype.itemsize

    def on_launch(self, kernel, launch, memory) -> None:
        self._shared = max(self._shared, kernel.static_shared.size + launch.shared_bytes)

    def on_synchronisation(self, event: ptx.Synchronisation) -> None:
        self._barriers += event.opens and event.barrier[0] in ("barrier", "mbarrier")

    def on_access(self, access: ptx.Access) -> None:
        if access.space == "global":
            lanes = slice(None) if access.lanes is None or access.addresses.ndim == 0 else access.lanes
            self._look(access.kind, np.atleast_1d(access.addresses)[lanes], access.size, access.machine)

    def on_bulk(self, access: ptx.BulkAccess) -> None:
        if access.space == "global" and access.started:
            self._look(access.kind, access.addresses, access.size, access.machine)

    def _look(self, kind: str, addresses: np.ndarray, size: int, machine) -> None:
        for tensor in machine.memory.tensors:
            inside = addresses[(addresses >= tensor.first) & (addresses < tensor.first + tensor.size)]
            if not inside.size or tensor.name not in ("A", "C"):
                continue
            width = tensor.owner.element_size()
            first = (inside - tensor.first) // width
            last = first + size // width - 1
            if tensor.name == "A" and kind == "load":
                self._begin_part()
                column = int((last % self._problem.k).max())
                self._last[self._barriers] = max(column, self._last.get(self._barriers, 0))
            elif tensor.name == "C" and kind != "load":
                self._stored = True
                self._rows += [int(first.min()) // self._problem.n, int(last.max()) // self._problem.n]
                self._columns += [int((first % self._problem.n).min()), int((last % self._problem.n).max())]

    def _begin_part(self) -> None:
        if not self._stored:
            return
        self._stored = False
        new = slice(self._parts_end, None)
        part = (min(self._rows[new]), max(self._rows[new]), min(self._columns[new]), max(self._columns[new]))
        self._parts_end = len(self._rows)
        if part not in self._parts:  # sums in C itself are stored again and again
            self._parts.append(part)
        if len(self._parts) > _MAX_PARTS:
            self._rows, self._columns = list(self._parts[0][:2]), list(self._parts[0][2:])
            raise _Walks("the first block stores one part of C after another")

    def result(self) -> Survey:
        tile = None
        if self._rows:
            sides = max(self._rows) - min(self._rows) + 1, max(self._columns) - min(self._columns) + 1
            tile = sides if max(sides) <= _MAX_SIDE else None
        reached = np.maximum.accumulate([self._last[count] + 1 for count in sorted(self._last)] or [self._problem.k])
        steps = np.diff(reached)
        steps = steps[(steps > 0) & (steps <= _MAX_SIDE)]
        slice_, ahead = (int(steps.min()), int(reached[0])) if steps.size else (_SLICE, 0)
        rows = sum(tile) if tile else 0
        held = min(self._shared // (rows * self._bytes), _MAX_AHEAD) if rows else 0
        depth = max(ahead + 3 * slice_, held + 2 * slice_, _MIN_DEPTH)
        return Survey(tile, slice_, math.ceil(depth / slice_) * slice_, len(self._parts) > _MAX_PARTS)
