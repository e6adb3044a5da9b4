"""PTX's fundamental types (PTX ISA, section 5.2) as NumPy's."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

DTYPES: dict[str, np.dtype] = {
    name: np.dtype(kind)
    for name, kind in {
        "pred": np.bool_,
        "b8": np.uint8,
        "u8": np.uint8,
        "s8": np.int8,
        "b16": np.uint16,
        "u16": np.uint16,
        "s16": np.int16,
        "b32": np.uint32,
        "u32": np.uint32,
        "s32": np.int32,
        "b64": np.uint64,
        "u64": np.uint64,
        "s64": np.int64,
        "f16": np.float16,
        "f32": np.float32,
        "f64": np.float64,
    }.items()
}
# Formats that NumPy lacks, and pairs of halves: by their bits.
ALTERNATE: dict[str, np.dtype] = {
    name: DTYPES[bits] for name, bits in (("bf16", "u16"), ("f16x2", "u32"), ("bf16x2", "u32"))
}
UNSIGNED: dict[int, np.dtype] = {size: np.dtype(f"u{size}") for size in (1, 2, 4, 8)}  # by bytes
SIGNED: dict[int, np.dtype] = {size: np.dtype(f"i{size}") for size in (1, 2, 4, 8)}

# A value in a register: one number when all lanes hold the same, else one element a lane. NumPy's numbers do all that
# its arrays do here, which the types of `np.generic` do not say: so they are `Any`.
Value: TypeAlias = np.ndarray | Any


def is_float(dtype: np.dtype) -> bool:
    return dtype.kind == "f"


def is_signed(dtype: np.dtype) -> bool:
    return dtype.kind == "i"


def per_lane(value: Value, lanes: int) -> np.ndarray:
    """A value with an element for each lane, also where it is one number for all of them; not to be written to."""
    return value if value.ndim else np.full(lanes, value)
