"""What kernels are tried with: combinations of factors, operands stored in several ways, numbers that parts lose."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Sequence
from math import prod
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch

T = TypeVar("T")

# Sizes of which rows are whole vectors of 16 bytes. Triton compiles a kernel for sizes that are all multiples of 16,
# another one for sizes of which none is, and more for mixtures. Tests take sizes of these two classes alone.
VECTORS = 48, 144, 80


def cover(combinations: Sequence[T], properties: Callable[[T], Sequence[Hashable]] = lambda x: x) -> list[T]:
    """A covering array: a few of the combinations that have every property that any of them has.

    `properties` returns as many for each combination, and the places tell them apart. Of the `pairs` of its factors it
    makes all-pairs testing; of the factors themselves, each value once. What is no combination needs no constraint.
    Greedy and deterministic: the next is the combination with the most properties that are missing, of several the one
    whose properties are rarest so far, of those the first.
    """
    numbers: dict[Hashable, int] = {}
    rows = [[numbers.setdefault(x, len(numbers)) for x in enumerate(properties(each))] for each in combinations]
    has, counts, selected = np.array(rows), np.zeros(len(numbers), np.int32), []
    while not counts.all():
        seen = counts[has]
        best = int(((seen == 0).sum(axis=1) * len(combinations) * len(numbers) - seen.sum(axis=1)).argmax())
        selected.append(combinations[best])
        counts[has[best]] += 1
    return selected


def pairs(*factors: Hashable) -> list[tuple[Hashable, Hashable]]:
    """All pairs of factors, as properties for `cover`."""
    return list(itertools.combinations(factors, 2))


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
