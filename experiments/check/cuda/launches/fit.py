"""Expressions in M, N and K for numbers that are known at some sizes: `cdiv(N, 128)` of what a grid was."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping

import gemm_ref
from experiments.check.cuda.expressions import evaluate

_LARGEST_TILE = 1024
_ROUNDEST_FIRST = sorted(range(1, _LARGEST_TILE + 1), key=lambda tile: (-(tile & -tile), tile))
_TILES = (1, 2, 4, 8, 16, 32, 48, 64, 80, 96, 112, 128, 160, 192, 224, 256, 512)


def expression(values: Mapping[gemm_ref.Problem, int], axis: int) -> str | None:
    """The simplest expression that gives all of these values; None where none does. `axis`: of a grid, x is 0."""
    if len(set(values.values())) == 1:
        return str(next(iter(values.values())))
    return next((text for text in _candidates(values, axis) if holds(text, values)), None)


def holds(text: str, values: Mapping[gemm_ref.Problem, int]) -> bool:
    """Whether an expression gives these values."""
    return all(evaluate(text, {"M": p.m, "N": p.n, "K": p.k}) == value for p, value in values.items())


def one_size(value: int, size: int, name: str, step: int) -> str | None:
    """How `value` may come from one size: cdiv by `step`, or by the roundest whole number if that is 0."""
    if value == 1 and size > _LARGEST_TILE:
        return None
    tiles = [tile for tile in _ROUNDEST_FIRST if gemm_ref.cdiv(size, tile) == value and step in (0, tile)]
    return f"cdiv({name}, {tiles[0]})" if tiles else None


def _candidates(values: Mapping[gemm_ref.Problem, int], axis: int) -> Iterator[str]:
    problem, value = max(values.items(), key=lambda item: item[0].m * item[0].n * item[0].k)
    sizes = {"N": problem.n, "M": problem.m, "K": problem.k}
    order = ("N", "M", "K") if axis != 1 else ("M", "N", "K")
    for name in order:
        for tile in _ROUNDEST_FIRST:
            if gemm_ref.cdiv(sizes[name], tile) == value:
                yield f"cdiv({name}, {tile})"
            if sizes[name] // tile == value:
                yield f"{name} / {tile}"
    for name in order:  # a multiple of a size: shared memory, or several blocks for a tile
        if value % sizes[name] == 0:
            yield f"{value // sizes[name]} * {name}"
        for tile in _TILES:
            blocks = gemm_ref.cdiv(sizes[name], tile)
            if value % blocks == 0:
                yield f"{value // blocks} * cdiv({name}, {tile})"
    for rows, columns in itertools.product(_TILES, repeat=2):
        if gemm_ref.cdiv(problem.m, rows) * gemm_ref.cdiv(problem.n, columns) == value:
            yield f"cdiv(M, {rows}) * cdiv(N, {columns})"
    for tile in _ROUNDEST_FIRST:
        if gemm_ref.cdiv(problem.m * problem.n, tile) == value:
            yield f"cdiv(M * N, {tile})"
