"""What kernels are tried with: combinations of factors, operands stored in several ways, numbers that parts lose."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Sequence
from math import prod
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np
import torch

T = TypeVar("T")

# Sizes of which rows are whole vectors of 16 bytes. Triton compiles a kernel for sizes that are all multiples of 16,
# another one for sizes of which none is, and more for mixtures. Tests take sizes of these two classes alone.
VECTORS = 48, 144, 80


def cover(combinations: Sequence[T], properties: Callable[[T], Sequence[Hashable]] = lambda x: x) -> list[T]:
    """A covering array: a few of the combinations that have every property that any of them has.

    `properties` returns as many for each combination, and the places tell them apart. Of the `Pairs` of its factors it
    makes all-pairs testing; of the factors themselves, each value once. What is no combination needs no constraint.
    Greedy and deterministic: the next is the combination with the most properties that are missing, of several the one
    whose properties are rarest so far, of those the first.
    """
    numbers: dict[Hashable, int] = {}
    places: list[
        tuple[np.ndarray, np.ndarray]
    ] = []  # of each combination a row, and of each row its properties' numbers
    for place, column in enumerate(zip(*map(properties, combinations), strict=True)):
        rows = {x: row for row, x in enumerate(dict.fromkeys(column))}
        members = (x.members() if isinstance(x, Pairs) else [x] for x in rows)
        table = [[numbers.setdefault((place, each), len(numbers)) for each in group] for group in members]
        places.append((np.array([rows[x] for x in column]), np.array(table)))
    counts, selected = np.zeros(len(numbers), np.int64), []
    while not counts.all():
        missing = sum((counts[table] == 0).sum(axis=1)[row] for row, table in places)
        seen = sum(counts[table].sum(axis=1)[row] for row, table in places)
        best = int((missing * len(combinations) * len(numbers) - seen).argmax())
        selected.append(combinations[best])
        for row, table in places:
            counts[table[row[best]]] += 1
    return selected


class Pairs(NamedTuple):
    """All pairs of factors, as properties for `cover`. within: what they are told apart by, too."""

    factors: tuple[Hashable, ...]
    within: Hashable = None

    def members(self) -> list[Hashable]:
        return [(self.within, each) for each in enumerate(itertools.combinations(self.factors, 2))]


def sparse(folder: Path, dtype: torch.dtype, *shape: int) -> torch.Tensor:
    """Zeros in a new file that is one hole: they take no room but where they are written or read."""
    file = folder / str(len(list(folder.iterdir())))
    return torch.from_numpy(np.memmap(file, np.uint8, "w+", shape=prod(shape) * dtype.itemsize)).view(dtype).view(shape)


def shifted(x: torch.Tensor) -> torch.Tensor:
    """Contiguous, one element past an address that is a multiple of 16 bytes."""
    return x.new_empty(x.numel() + 1)[1:].view(x.shape).copy_(x)


def with_gaps(x: torch.Tensor) -> torch.Tensor:
    """In every other column of a wider matrix."""
    return x.new_empty((x.shape[0], 2 * x.shape[1]))[:, ::2].copy_(x)


def in_wider(x: torch.Tensor) -> torch.Tensor:
    """In the first columns of a wider matrix."""
    return x.new_empty((x.shape[0], 2 * x.shape[1]))[:, : x.shape[1]].copy_(x)


def by_columns(x: torch.Tensor) -> torch.Tensor:
    """Column after column."""
    return x.t().contiguous().t()


def wide(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """a and b with a row and a column that parts do not hold, too small as they are; where both meet C is 0."""
    a, b = a.clone(), b.clone()
    k, row, column = torch.arange(len(b)), len(a) // 2, b.shape[1] // 2
    a[row] *= 2.0**-110 * (k % 2)
    b[:, column] *= 2.0**-110 * (1 - k % 2)
    return a, b
