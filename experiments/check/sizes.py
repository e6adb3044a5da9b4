"""Which sizes tell most about a kernel, and which it can take: aligned, ragged, and the smallest that go wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import gemm_ref

AXES = ("m", "n", "k")
_MULTIPLES = (2, 4, 8, 16, 32, 64, 128, 256)
_DEPTHS = (128, 64, 192, 256)  # whole slices for every BLOCK_K that divides 64
_MOST_PRODUCTS = 4 << 20  # of the aligned problem: a second or two, with detectors


def aligned(tile: tuple[int, int]) -> gemm_ref.Problem:
    """Whole tiles, two down, of three different sizes, so that no size can stand for another unseen."""
    m = 2 * max(16, tile[0])
    n = 3 * tile[1] if 16 <= tile[1] <= 64 else max(48, tile[1])
    n = n if n != m else n + tile[1]
    depths = [k for k in _DEPTHS if k not in (m, n)]
    return gemm_ref.Problem(m, n, next((k for k in depths if m * n * k <= _MOST_PRODUCTS), 64))


def cube(base: gemm_ref.Problem) -> gemm_ref.Problem:
    """Whole tiles of equal sizes."""
    side = next((side for side in (32, 64, 128, 256) if side % base.m == 0 or side >= max(base.m, base.n)), 256)
    return gemm_ref.Problem(side, side, side)


def ragged(tile: tuple[int, int]) -> list[gemm_ref.Problem]:
    """Sizes with a partial tile on each side, and the smallest ones."""
    m, n = (max(16, min(side, 128)) for side in tile)
    return [gemm_ref.Problem(m + 3, n + 5, 39), gemm_ref.Problem(5, 3, 2), gemm_ref.Problem(1, 1, 1)]


@dataclass(frozen=True)
class Need:
    """What one size must be a multiple of, and the smallest at which the kernel goes wrong, the others being whole."""

    axis: str  # m, n or k
    multiple: int  # 0 where no multiple that was tried will do, or there was no time to look
    smallest: gemm_ref.Problem


def needs(
    base: gemm_ref.Problem, right: Callable[[gemm_ref.Problem], bool], time_left: Callable[[], bool]
) -> list[Need]:
    """What each size must be a multiple of, of those that must; `right` tells whether a problem comes out right.

    base: sizes that are right. The multiples tried are powers of two, each beside a whole size.
    """
    found = []
    for axis in AXES:
        size = getattr(base, axis)
        if right(base.resized(**{axis: size + 1})):
            continue

        def enough(step: int, axis: str = axis, size: int = size) -> bool:
            return right(base.resized(**{axis: size + step}))

        multiple = _least(enough, time_left)
        small = (base.resized(**{axis: number}) for number in (1, 2, 3) if not multiple or number % multiple)
        smallest = next((problem for problem in small if not right(problem)), base.resized(**{axis: size + 1}))
        found.append(Need(axis, multiple, smallest))
    return found


def _least(enough: Callable[[int], bool], time_left: Callable[[], bool]) -> int:
    """The smallest of _MULTIPLES that is enough, found by halving; 0 if none is, or time runs out."""
    low, high = 0, len(_MULTIPLES)
    while low < high and time_left():
        middle = (low + high) // 2
        low, high = (low, middle) if enough(_MULTIPLES[middle]) else (middle + 1, high)
    return _MULTIPLES[low] if low == high < len(_MULTIPLES) else 0
