"""Whose element of C is it: which block stores a tile, and which thread had the element's sum in its registers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from experiments.trace.observe import Seen, Watcher
from experiments.trace.origin import EXACT, Ids, of_sums
from experiments.trace.record import NOWHERE, Tile
from gemm_ref.ptx.core.memory import Tensor
from gemm_ref.stage import Config

WARP = 32
_SUMMING = ("fma", "mad", "mma", "wmma", "wgmma")  # opcodes that add a product to a sum
_ROW_ELEMENTS, _LANE_ELEMENTS = 8, 2  # of a row of stmatrix, and of those what one lane holds


def is_result(tensor: Tensor) -> bool:
    """Whether a kernel's sums go there: to C, or to the partial sums of a part of K."""
    return tensor.name in ("C", "partials")


def tiles(watched: Watcher, config: Config, ids: Ids) -> tuple[Tile, ...]:
    """The tiles of C, or of a part's partial sums, and the blocks that store to them."""
    n, size = ids.problem.n, ids.problem.m * ids.problem.n
    found: dict[tuple[int, int, int], list[np.ndarray]] = {}
    for stored in watched.stored:
        if not is_result(stored.tensor):
            continue
        elements = _elements(stored.tensor, stored.offsets, stored.size) % size
        blocks = np.broadcast_to(stored.blocks[:, None], elements.shape).ravel()
        row, column = elements.ravel() // n, elements.ravel() % n
        keys = np.stack([blocks, row // config.BLOCK_M, column // config.BLOCK_N])
        for key in np.unique(keys, axis=1).T:
            chosen = (keys == key[:, None]).all(axis=0)
            found.setdefault(tuple(key.tolist()), []).append(np.stack([row[chosen], column[chosen]]))
    result = []
    for (block, _, _), places in sorted(found.items()):
        low, high = (f(np.concatenate(places, axis=1), axis=1).tolist() for f in (np.min, np.max))
        result.append(Tile(block, low[0], low[1], high[0] - low[0] + 1, high[1] - low[1] + 1))
    return tuple(result)


def epilogue(steps: Sequence[Seen], threads: int) -> list[int]:
    """The numbers of the steps in which threads that have done their last product write sums to shared memory.

    The bulk stores that copy what is there are among them.
    """
    last = np.full(threads, len(steps))
    for number in reversed(range(len(steps))):
        if steps[number].kind == "multiply" and steps[number].instruction.parts[0] in _SUMMING:
            last[steps[number].active & (last == len(steps))] = number
    found = []
    for number, seen in enumerate(steps):
        if seen.kind == "bulk store" or (seen.kind == "store" and seen.space == "shared"):
            if seen.kind == "bulk store" or (number > last[seen.active]).all():
                found.append(number)
    return found


def ids_of_sums(passes: Sequence[Watcher], numbers: Sequence[int], tile: Tile, ids: Ids) -> Mapping[int, np.ndarray]:
    """The ids of C's elements that these steps write or read, (threads or pieces, elements) each.

    passes: the run for the rows and the one for the columns.
    """
    found: dict[int, np.ndarray] = {}
    if max(tile.rows, tile.columns) > EXACT:
        return found
    place = (tile.row, tile.column, tile.rows, tile.columns)
    for number in numbers:
        rows, columns = (each.steps[number] for each in passes)
        if rows.contents is None or columns.contents is None:
            continue
        there = of_sums(rows.contents[rows.active], columns.contents[rows.active], place, ids)
        if there is not None:
            found[number] = np.full((len(rows.offsets), there.shape[1]), NOWHERE)
            found[number][rows.active] = there
    return found


def owners(steps: Sequence[Seen], of_sums: Mapping[int, np.ndarray], tile: Tile, ids: Ids, threads: int) -> np.ndarray:
    """(rows, columns) of the tile: the first thread that stored the element anywhere; `threads` where none did."""
    found = np.full((tile.rows, tile.columns), threads)
    n, first = ids.problem.n, ids.first["C"]
    for number, seen in enumerate(steps):
        if number in of_sums and seen.kind == "store":
            elements = of_sums[number] - first
        elif seen.kind in ("store", "atomic") and seen.tensor is not None and is_result(seen.tensor):
            elements = _elements(seen.tensor, seen.offsets, seen.size) % (ids.problem.m * n)
            elements[~seen.active] = NOWHERE
        else:
            continue
        who = _holders(seen, elements.shape)
        there = elements >= 0
        row, column = elements[there] // n - tile.row, elements[there] % n - tile.column
        new = (row >= 0) & (row < tile.rows) & (column >= 0) & (column < tile.columns)
        row, column, who = row[new], column[new], who[there][new]
        free = found[row, column] == threads
        found[row[free], column[free]] = who[free]
    return found


def _holders(seen: Seen, shape: tuple[int, ...]) -> np.ndarray:
    """(threads, elements): the thread that held each element which a store writes.

    For stmatrix a lane gives the address of a row, and two neighbours in it, or in a column with `.trans`, are another
    lane's (`gemm_ref.ptx.isa.load_store.matrix`).
    """
    threads = np.arange(shape[0])[:, None]
    if seen.instruction.parts[0] != "stmatrix":
        return np.broadcast_to(threads, shape)
    row, element = threads % _ROW_ELEMENTS, np.arange(shape[1])
    if "trans" in seen.instruction.parts:
        row, element = element, row
    lane = row * (_ROW_ELEMENTS // _LANE_ELEMENTS) + element // _LANE_ELEMENTS
    return threads // WARP * WARP + lane


def _elements(tensor: Tensor, offsets: np.ndarray, size: int) -> np.ndarray:
    """(places, elements): the numbers of the tensor's elements in `size` bytes from each of these on."""
    bytes_ = tensor.owner.element_size()
    return offsets[:, None] // bytes_ + np.arange(size // bytes_)
