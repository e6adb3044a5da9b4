"""Ownership of C: which block stores a tile, and which thread held an element's sum in its registers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from experiments.explore.traces.observe import ObservedStep, Watcher
from experiments.explore.traces.origin import Ids, sum_ids
from experiments.explore.traces.record import NOWHERE, Tile
from gemm_ref.config import Config
from gemm_ref.launch import cdiv

RESULTS = ("C", "partials")  # targets of sums: C, or the partial sums of a split K
_WARP = 32
_UNITS = ("mma", "wmma", "wgmma")  # opcodes of tensor cores
_SUMMING = ("fma", "mad", *_UNITS)  # opcodes that add a product to a sum
_ROW_ELEMENTS, _LANE_ELEMENTS = 8, 2  # elements of a row of stmatrix, and of a lane within it


def tiles(watched: Watcher, config: Config, ids: Ids) -> tuple[Tile, ...]:
    """Returns the tiles of C, or of the partial sums of one split, with the blocks that store them."""
    n, size, across = ids.problem.n, ids.problem.m * ids.problem.n, cdiv(ids.problem.n, config.BLOCK_N)
    cells = cdiv(ids.problem.m, config.BLOCK_M) * across
    bounds: dict[int, np.ndarray] = {}  # by block and cell: the first row and column, and the last
    for stored in watched.stored:
        if stored.array not in RESULTS:
            continue
        elements = _elements(watched, stored.array, stored.offsets, stored.size) % size
        row, column = elements // n, elements % n
        keys = stored.blocks[:, None] * cells + row // config.BLOCK_M * across + column // config.BLOCK_N
        for key in np.flatnonzero(np.bincount(keys.ravel())).tolist():
            places = np.stack([row, column])[:, keys == key]
            found = np.stack([places.min(axis=1), places.max(axis=1)])
            before = bounds.get(key, found)
            bounds[key] = np.stack([np.minimum(before[0], found[0]), np.maximum(before[1], found[1])])
    of_blocks: dict[int, list[np.ndarray]] = {}
    for key, found in sorted(bounds.items()):
        of_blocks.setdefault(key // cells, []).append(found)
    return tuple(tile for block, parts in of_blocks.items() for tile in _merge_tiles(block, parts))


def _merge_tiles(block: int, parts: Sequence[np.ndarray]) -> list[Tile]:
    """Returns the rectangles of C that a block stores as tiles, merged into one if together they fill one rectangle.

    parts: the first and the last row and column of each.
    """
    whole = np.stack([np.min(parts, axis=0)[0], np.max(parts, axis=0)[1]])
    area = sum(int(np.prod(high - low + 1)) for low, high in parts)
    if area == np.prod(whole[1] - whole[0] + 1):
        parts = [whole]
    return [Tile(block, *low.tolist(), *(high - low + 1).tolist()) for low, high in parts]


def epilogue_steps(watched: Watcher) -> list[ObservedStep]:
    """Returns the steps in which threads write sums to shared memory after their last product.

    The bulk stores that copy these sums to C are among them.
    """
    steps, threads = watched.steps, watched.launches[0][1].threads
    last = np.full(threads, NOWHERE)  # step of each thread that adds a product
    opcodes = {seen.instruction.parts[0] for seen in steps if seen.kind == "multiply"}
    summing = opcodes.intersection(_UNITS) or _SUMMING  # in a kernel for tensor cores, an fma belongs to the epilogue
    for number, seen in enumerate(steps):
        if seen.kind == "multiply" and seen.instruction.parts[0] in summing:
            last[seen.active] = number

    found = []
    for number, seen in enumerate(steps):
        if seen.kind == "store" and seen.space == "shared":
            done = last[seen.active]
            if (done != NOWHERE).all() and done.max() < number:
                found.append(seen)
        elif seen.kind == "bulk store":
            found.append(seen)
    return found


def assign_sum_ids(
    watched: Watcher, staged: Sequence[ObservedStep], passes: Sequence[Watcher], tile: Tile, ids: Ids
) -> None:
    """Assigns to these steps the ids of the elements of C that they write or read, where these are in the tile.

    passes: the runs whose products encode the row and the column of each element.
    """
    chosen = set(map(id, staged))
    place = (tile.row, tile.column, tile.rows, tile.columns)
    for seen, rows, columns in zip(watched.accesses, *(each.accesses for each in passes), strict=True):
        if id(seen) in chosen and rows.contents is not None and columns.contents is not None:
            there = sum_ids(rows.contents[rows.active], columns.contents[rows.active], place, ids)
            if there is not None:
                seen.ids = np.full((len(seen.offsets), there.shape[1]), NOWHERE)
                seen.ids[seen.active] = there


def owners(watched: Watcher, tile: Tile, ids: Ids) -> np.ndarray:
    """Returns (rows, columns) of the tile: the first thread that stored the element; `threads` if none did."""
    threads = watched.launches[0][1].threads
    found = np.full((tile.rows, tile.columns), threads)
    n, first = ids.problem.n, ids.first["C"]
    for seen in watched.steps:
        if seen.kind not in ("store", "atomic"):
            continue
        if seen.array in RESULTS:
            elements = _elements(watched, seen.array, seen.offsets, seen.size) % (ids.problem.m * n)
            elements[~seen.active] = NOWHERE
        elif seen.ids is not None:
            elements = seen.ids - first  # those of A and B have smaller ids
        else:
            continue
        row, column = elements // n - tile.row, elements % n - tile.column
        inside = (elements >= 0) & (row >= 0) & (row < tile.rows) & (column >= 0) & (column < tile.columns)
        row, column, who = row[inside], column[inside], _holders(seen, elements.shape)[inside]
        free = found[row, column] == threads
        found[row[free], column[free]] = who[free]
    return found


def _holders(seen: ObservedStep, shape: tuple[int, ...]) -> np.ndarray:
    """Returns (threads, elements): the thread that held each element which a store writes.

    In stmatrix a lane provides the address of a row, while each pair of neighbours in that row (with `.trans`: in a
    column) comes from another lane (`gemm_ref.ptx.isa.load_store.matrix`).
    """
    threads = np.arange(shape[0])[:, None]
    if seen.instruction.parts[0] != "stmatrix":
        return np.broadcast_to(threads, shape)
    row, element = threads % _ROW_ELEMENTS, np.arange(shape[1])
    if "trans" in seen.instruction.parts:
        row, element = element, row
    lane = row * (_ROW_ELEMENTS // _LANE_ELEMENTS) + element // _LANE_ELEMENTS
    return threads // _WARP * _WARP + lane


def _elements(watched: Watcher, array: str, offsets: np.ndarray, size: int) -> np.ndarray:
    """Returns (places, elements): indices of the array's elements in the `size` bytes at each offset."""
    bytes_ = watched.arrays[array].owner.element_size()
    return offsets[:, None] // bytes_ + np.arange(size // bytes_)
