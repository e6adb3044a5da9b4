"""What an H200 made of many vectors, each instruction by itself: h200_tensor_cores.npz, beside this file.

`python -m tests.ptx.units.h200_tensor_cores` writes it again, on a GPU. The vectors are made anew, lot by lot.
"""

from __future__ import annotations

import functools
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from experiments.studies.shared.dot_vectors import Vectors, random_vectors
from experiments.studies.shared.dots import DOTS, Dots, on_gpu
from tests.ptx.units.crafted_vectors import crafted_vectors

FILE = Path(__file__).with_suffix(".npz")
LOTS, LOT = 100, 1000  # of random vectors
ARRAYS = ("crafted", "first", "given", "made")  # what the file calls the fields of Recorded


@dataclass(frozen=True)
class Recorded:
    """Of one instruction: outputs for the crafted vectors and the first lot, and checksums, those of lots from 1 on."""

    crafted: np.ndarray
    first: np.ndarray
    inputs: np.ndarray  # checksums of the crafted vectors, then of each lot,
    outputs: np.ndarray  # and of their outputs


def lots(dots: Dots) -> Iterator[Vectors]:
    """The crafted vectors, then lot after lot."""
    yield crafted_vectors(dots.kinds, dots.k)
    for seed in range(LOTS):
        yield random_vectors(dots.kinds, dots.k, LOT, seed)


def inputs_checksum(vectors: Vectors) -> int:
    return checksum(np.concatenate([part.view(np.uint8).ravel() for part in (vectors.a, vectors.b, vectors.c)]))


def checksum(values: np.ndarray) -> int:
    return zlib.crc32(values.tobytes())


@functools.cache
def recorded() -> dict[str, Recorded]:
    """By the instruction's name."""
    with np.load(FILE) as file:
        return {str(dots): Recorded(*(file[f"{dots}/{name}"] for name in ARRAYS)) for dots in DOTS}


def record(path: Path = FILE, make: Callable[[Dots, Vectors], np.ndarray] = on_gpu) -> None:
    found = {}
    for dots in DOTS:
        given = list(lots(dots))
        made = [make(dots, vectors) for vectors in given]
        sums = ([of(part) for part in parts] for of, parts in ((inputs_checksum, given), (checksum, made)))
        own = Recorded(made[0], made[1], *(np.array(some, np.uint32) for some in sums))
        found |= {f"{dots}/{name}": value for name, value in zip(ARRAYS, vars(own).values(), strict=True)}
    np.savez_compressed(path, **found)


if __name__ == "__main__":
    record()
