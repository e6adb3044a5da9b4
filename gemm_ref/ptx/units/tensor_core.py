"""The arithmetic of Hopper's tensor cores, A @ B + C, to the last bit (PTX ISA, 9.7.14 and 9.7.15).

**One sum.** Products are exact, of subnormal numbers too. The products of a group and the addend are aligned to the
largest exponent among those that are not zero; a product's exponent is the sum of its factors' (a subnormal number
has the smallest normal one's), even where the product of the fractions reaches 2; and no exponent counts that is below
-133, for fp16 sums below -21. Of each, what lies more than `fraction` bits below that exponent is cut off, toward zero.
They are added exactly, and the sum is made a number once: an fp32 is cut to `result_bits` of fraction, an fp16 is
rounded to nearest. A sum of zero is +0. Infinities and NaN go as in IEEE arithmetic, and any NaN is 0x7FFFFFFF
(0x7FFF). A longer sum is a chain: one group's sum is the next one's addend.

**Sources.** Fasi, Higham, Mikaitis and Pranesh, 'Numerical behavior of NVIDIA tensor cores', PeerJ Computer Science
7:e330 (2021) for the scheme; Khattak and Mikaitis, 'Accurate models of NVIDIA tensor cores', arXiv 2512.07004 (2025)
and Xie et al., 'MMA-Sim', arXiv 2511.10909 (2025) for Hopper's numbers. Which instructions are made of several is read
from ptxas' machine code (13.0, sm_90a). All of it was compared with an H200, whose outputs are kept beside the tests.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from gemm_ref.ptx.text.dtypes import FORMATS, UNSIGNED
from gemm_ref.ptx.units.formats import INTEGERS

_FP8 = ("e4m3", "e5m2")
_INT32 = -(1 << 31), (1 << 31) - 1
_ZERO, _SPECIAL = -2048, 4096  # exponents of zeros, and of infinities and NaN; twice as much is still an int16
_PLAIN = 100  # exponents up to here, of either sign, are far from the ends of fp32's range
_LEAST_TOP = {np.dtype(np.float32): -133, np.dtype(np.float16): -21}
_AT_A_TIME = 1 << 18  # products: as many as stay in a cache
_NAN = {np.dtype(np.float32): 0x7FFFFFFF, np.dtype(np.float16): 0x7FFF}


@dataclass(frozen=True)
class Sum:
    """How an instruction adds products."""

    group: int  # products that one sum adds
    fraction: int = 25  # bits kept below the largest exponent
    result_bits: int = 23  # bits of fraction of an fp32 result


def sum_of(instruction: str, kind: str, k: int) -> Sum:
    """Return how `mma`, `wmma` or `wgmma` of this depth adds products of this format.

    ptxas makes a `wmma` of tf32, k8, from two HMMA.1684. `mma` of fp8 is not one sum: see `multiply_add`.
    """
    if kind in _FP8:
        return Sum(32, fraction=13, result_bits=13)
    return Sum(4 if (instruction, kind) == ("wmma", "tf32") else k)


def multiply_add(
    instruction: str, x: np.ndarray, y: np.ndarray, kinds: tuple[str, str], c: np.ndarray, clamps: bool = False
) -> np.ndarray:
    """Return x @ y^T + c as an instruction does: x (tiles, m, k), y (tiles, n, k), c and the result (tiles, m, n).

    x, y: fp32 that hold numbers of the formats `kinds`; c: fp32 or fp16, and int32 of s8 and u8, which wraps around or
    `clamps`.
    """
    if kinds[0] in INTEGERS:  # the sum of an instruction's products is below 2**24: exact
        total = np.matmul(x, y.transpose(0, 2, 1)).astype(np.int64) + c
        return (np.clip(total, *_INT32) if clamps else total).astype(np.int32)
    if instruction == "mma" and kinds[0] in _FP8:
        # Hopper has no such instruction: ptxas makes fp8 into fp16, of which the first HMMA takes the lower half of
        # each word of four and the second the upper half, and adds c to their sum in IEEE arithmetic.
        word = np.arange(x.shape[2]).reshape(-1, 2, 2)
        order = np.concatenate([word[:, 0].ravel(), word[:, 1].ravel()])
        sums = add_products(x[..., order], y[..., order], ("f16", "f16"), np.zeros_like(c), Sum(16)) + c
        return _with_plain_nan(sums)
    return add_products(x, y, kinds, c, sum_of(instruction, kinds[0], x.shape[2]))


def add_products(x: np.ndarray, y: np.ndarray, kinds: tuple[str, str], c: np.ndarray, how: Sum) -> np.ndarray:
    """Do as `multiply_add`, by a chain of sums; k is a multiple of the group."""
    if _is_exact(x, y, c, how):
        return (np.matmul(x, y.transpose(0, 2, 1)) + c).astype(c.dtype) + c.dtype.type(0)  # which makes -0 +0
    filled = x.any(axis=(1, 2)) & y.any(axis=(1, 2)), x.any(axis=(0, 2)), y.any(axis=(0, 2))
    is_full = how.result_bits < 23 or all(part.all() for part in filled)
    if is_full or not all(np.isfinite(values).all() for values in (x, y, c)):
        return _chain(x, y, kinds, c, how)
    # Past the edge of a matrix a tile is filled with zeros, which leave a finite sum as it is.
    result, (tiles, rows, columns), place = c + c.dtype.type(0), filled, np.ix_(*filled)
    if tiles.any():
        result[place] = _chain(x[tiles][:, rows], y[tiles][:, columns], kinds, c[place], how)
    return result


def _chain(x: np.ndarray, y: np.ndarray, kinds: tuple[str, str], c: np.ndarray, how: Sum) -> np.ndarray:
    """Return the chain of sums, of any numbers."""
    operands = (x, _exponents(x, kinds[0])), (y, _exponents(y, kinds[1]))
    result = np.empty_like(c)
    for tiles, rows in _parts(c.shape, how.group):
        # k first and tiles last: so NumPy's inner loops are long where tiles are many and small, and where few and wide
        left, right = (
            [np.ascontiguousarray(part[tiles, lines].transpose(2, 1, 0)) for part in parts]
            for parts, lines in zip(operands, (rows, slice(None)), strict=True)
        )
        sums = np.ascontiguousarray(c[tiles, rows].transpose(1, 2, 0))
        for first in range(0, x.shape[2], how.group):
            group = slice(first, first + how.group)
            (x_part, xe_part), (y_part, ye_part) = ([part[group] for part in parts] for parts in (left, right))
            values, exponents = (x_part[:, :, None], y_part[:, None]), (xe_part[:, :, None], ye_part[:, None])
            sums = _add_group(values, exponents, sums, how)
        result[tiles, rows] = sums.transpose(2, 0, 1)
    return result


def _parts(shape: tuple[int, ...], group: int) -> Iterator[tuple[slice, slice]]:
    """Yield some tiles, and rows of them, at a time, so that their products fit into a cache."""
    tiles, m, n = shape
    many = max(1, _AT_A_TIME // (m * n * group)) if n < 64 else 1
    some = m if n < 64 else max(1, _AT_A_TIME // (n * group))
    for tile in range(0, tiles, many):
        for row in range(0, m, some):
            yield slice(tile, tile + many), slice(row, row + some)


def _is_exact(x: np.ndarray, y: np.ndarray, c: np.ndarray, how: Sum) -> bool:
    """Return whether all are integers so small that no sum of them is cut: then any order gives the same result."""
    bits = min(how.result_bits, 10 if c.dtype == np.float16 else how.result_bits)
    largest = [float(np.abs(values).max(initial=0)) for values in (x, y, c)]
    if not largest[0] * largest[1] * x.shape[2] + largest[2] < 2.0 ** (bits + 1):  # false for NaN, too
        return False
    return all(bool((np.rint(values) == values).all()) for values in (x, y, c))


def _exponents(values: np.ndarray, kind: str) -> np.ndarray:
    """Return the exponents, as int16, of fp32 that hold numbers of a format."""
    fields = (values.view(np.uint32) >> np.uint32(23)).astype(np.int16) & np.int16(255)
    found = np.maximum(fields - np.int16(127), np.int16(FORMATS[kind].lowest))
    found[values == 0] = _ZERO
    found[fields == 255] = _SPECIAL
    return found


def _add_group(
    values: tuple[np.ndarray, np.ndarray], exponents: tuple[np.ndarray, np.ndarray], c: np.ndarray, how: Sum
) -> np.ndarray:
    """Return one sum of products of (group, m, 1, tiles) by (group, 1, n, tiles), and c (m, n, tiles)."""
    wide = c.astype(np.float32, copy=False)
    own = _exponents(wide, "f16" if c.dtype == np.float16 else "f32")
    top = np.maximum((exponents[0] + exponents[1]).max(axis=0), own)
    top[top < -1000] = 0  # of zeros alone
    np.maximum(top, np.int16(_LEAST_TOP[c.dtype]), out=top)
    if top.min() < -_PLAIN or top.max() > _PLAIN:
        return _add_any(values, top, c, how)
    scale = (127 + how.fraction - top.astype(np.int32) << 23).view(np.float32)
    products = values[0] * values[1]  # of up to 22 bits
    products *= scale
    cut = products.astype(np.int32)  # toward zero, and below 2**27: so half of a group at a time cannot overflow
    half = len(cut) // 2
    total = cut[:half].sum(axis=0, dtype=np.int32).astype(np.float64)
    total += cut[half:].sum(axis=0, dtype=np.int32)
    total += np.trunc(wide * scale)
    total *= (1023 - how.fraction + top.astype(np.int64) << 52).view(np.float64)
    if c.dtype == np.float16:
        return total.astype(np.float16) + np.float16(0)
    return _cut(total, how.result_bits) + np.float32(0)


def _add_any(values: tuple[np.ndarray, np.ndarray], top: np.ndarray, c: np.ndarray, how: Sum) -> np.ndarray:
    """Do as `_add_group`, for exponents of any size, infinities and NaN."""
    products = np.multiply(*values, dtype=np.float64)
    wide = c.astype(np.float64)
    lowest = np.clip(top.astype(np.int64), -300, 300) - how.fraction
    special = top > 1000
    plain = products.sum(axis=0) + wide if special.any() else None  # in float64 finite numbers stay finite
    scale = _power(-lowest)
    products *= scale
    np.trunc(products, out=products)
    total = products.sum(axis=0) + np.trunc(wide * scale)
    total *= _power(lowest)
    if c.dtype == np.float16:
        result = total.astype(np.float16)
    else:
        subnormal, step = np.abs(total) < 2.0**-126, 2.0 ** (-126 - how.result_bits)
        result = _cut(np.where(subnormal, np.trunc(total / step) * step, total), how.result_bits)
    result += c.dtype.type(0)
    return result if plain is None else _with_plain_nan(np.where(special, plain.astype(c.dtype), result))


def _power(exponent: np.ndarray) -> np.ndarray:
    """Return 2 to an int64, as float64."""
    return (1023 + exponent << 52).view(np.float64)


def _cut(total: np.ndarray, result_bits: int) -> np.ndarray:
    """Convert float64 to fp32 with so many bits of fraction, toward zero."""
    return (total.view(np.int64) & -(1 << 52 - result_bits)).view(np.float64).astype(np.float32)


def _with_plain_nan(values: np.ndarray) -> np.ndarray:
    nan = np.isnan(values)
    if nan.any():
        values.view(UNSIGNED[values.itemsize])[nan] = _NAN[values.dtype]
    return values
