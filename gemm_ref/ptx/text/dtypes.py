"""PTX's fundamental types (PTX ISA, section 5.2) as NumPy's."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import numpy as np

UNSIGNED: dict[int, np.dtype] = {size: np.dtype(f"u{size}") for size in (1, 2, 4, 8)}  # by bytes
SIGNED: dict[int, np.dtype] = {size: np.dtype(f"i{size}") for size in (1, 2, 4, 8)}
DTYPES: dict[str, np.dtype] = {"pred": np.dtype(np.bool_)}
for _letter, _by_size in (("b", UNSIGNED), ("u", UNSIGNED), ("s", SIGNED)):
    DTYPES |= {f"{_letter}{8 * size}": dtype for size, dtype in _by_size.items()}
DTYPES |= {f"f{8 * size}": np.dtype(f"f{size}") for size in (2, 4, 8)}
PAIRS = {"f16x2": "f16", "bf16x2": "bf16"}  # two halves in a register of 32 bits
# Formats that NumPy lacks, and pairs of halves: by their bits.
ALTERNATE: dict[str, np.dtype] = {"bf16": UNSIGNED[2], **dict.fromkeys(PAIRS, UNSIGNED[4])}


class NumberFormat(NamedTuple):
    """A floating-point format (PTX ISA, 5.2.2 and 5.2.3)."""

    bits: np.dtype  # the unsigned integer that holds a number
    precision: int  # bits of the significand
    lowest: int  # exponent of the smallest normal number
    highest: int  # exponent of the largest number


FORMATS = {
    "f16": NumberFormat(UNSIGNED[2], 11, -14, 15),
    "bf16": NumberFormat(UNSIGNED[2], 8, -126, 127),
    "tf32": NumberFormat(UNSIGNED[4], 11, -126, 127),
    "f32": NumberFormat(UNSIGNED[4], 24, -126, 127),
    "e4m3": NumberFormat(UNSIGNED[1], 4, -6, 8),
    "e5m2": NumberFormat(UNSIGNED[1], 3, -14, 15),
}
# A value in a register: one number when all lanes hold the same, else one element a lane. NumPy's numbers do all that
# its arrays do here, which the types of `np.generic` do not say: so they are `Any`.
Value: TypeAlias = np.ndarray | Any


def is_signed(dtype: np.dtype) -> bool:
    return dtype.kind == "i"


def per_lane(value: Value, lanes: int) -> np.ndarray:
    """A value with an element for each lane, also where it is one number for all of them; not to be written to."""
    return value if value.ndim else np.full(lanes, value)
