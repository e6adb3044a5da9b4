"""What kernels are tried with: which combinations, numbers at other places in memory, and numbers that parts lose."""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence
from math import prod
from pathlib import Path

import numpy as np
import torch


def in_turn(*axes: Sequence) -> list[tuple]:
    """Combinations in which every value of each axis occurs, as few as the longest axis has values.

    For axes that a kernel's source does not tell apart by one another, such as its tile and its math mode, where each
    combination is compiled anew. With EVERY=1 in the environment, and on a GPU, all combinations.
    """
    if os.environ.get("EVERY") or torch.cuda.is_available():
        return list(itertools.product(*axes))
    return [tuple(axis[number % len(axis)] for axis in axes) for number in range(max(map(len, axes)))]


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
