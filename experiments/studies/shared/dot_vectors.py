"""Vectors that show how an instruction of the tensor cores adds: a . b + c, each a vector of its own.

Made from raw random bits and IEEE operations in a fixed order alone, so they are the same bits everywhere.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gemm_ref.ptx.units.formats import BITS, numbers


@dataclass(frozen=True)
class Layout:
    """Of a number's bits: sign, exponent, fraction, and `unread` bits below that a tensor core does not read."""

    exponent: int
    fraction: int
    infinite: bool = True  # whether the last exponent is that of infinities and NaNs
    unread: int = 0

    @property
    def bias(self) -> int:
        return (1 << self.exponent - 1) - 1

    @property
    def top(self) -> int:
        """The largest exponent field of numbers that are all finite."""
        return (1 << self.exponent) - 2

    def code(self, sign: np.ndarray, exponent: np.ndarray, fraction: np.ndarray) -> np.ndarray:
        """Codes, as int64, of the fields; the unread bits are zeros."""
        return (sign << self.exponent | exponent) << self.fraction + self.unread | fraction << self.unread


LAYOUTS = {
    "f16": Layout(5, 10),
    "bf16": Layout(8, 7),
    "tf32": Layout(8, 10, unread=13),
    "e4m3": Layout(4, 3, infinite=False),
    "e5m2": Layout(5, 2),
    "f32": Layout(8, 23),
}
WORDS = BITS | {"f32": np.dtype(np.uint32)}


@dataclass(frozen=True)
class Vectors:
    """a, b: (count, k) codes of their formats; c: (count,) codes of f32 or f16."""

    a: np.ndarray
    b: np.ndarray
    c: np.ndarray


class _Bits:
    """A stream of random numbers that depends on nothing but its seed."""

    def __init__(self, *seed: int) -> None:
        self._raw = np.random.Philox(np.random.SeedSequence(seed)).random_raw

    def below(self, most: int | np.ndarray, *shape: int) -> np.ndarray:
        """int64 in [0, most), most up to 2**31."""
        raw = self._raw(int(np.prod(shape))).reshape(shape) >> np.uint64(33)
        return (raw * np.asarray(most, np.uint64) >> np.uint64(31)).astype(np.int64)

    def one_in(self, many: int, *shape: int) -> np.ndarray:
        return self.below(many, *shape) == 0


def random_vectors(kinds: tuple[str, str, str], k: int, count: int, seed: int) -> Vectors:
    """Vectors of all sorts: any spread of exponents, sums that cancel, subnormals, zeros, infinities and NaNs.

    kinds: of a, b and c. Each vector draws what it is made of: where its exponents lie and how far they spread, how
    many of its bits are set, whether its products come in pairs that cancel, and how c lies to them.
    """
    bits = _Bits(seed, k, *(ord(letter) for kind in kinds for letter in kind))
    a, b = (_elements(LAYOUTS[kind], bits, count, k) for kind in kinds[:2])
    _cancel(LAYOUTS[kinds[0]], LAYOUTS[kinds[1]], bits, a, b)
    for codes, kind in ((a, kinds[0]), (b, kinds[1])):
        _sprinkle(LAYOUTS[kind], bits, codes)
    a, b = a.astype(WORDS[kinds[0]]), b.astype(WORDS[kinds[1]])
    return Vectors(a, b, _addends(kinds, bits, a, b))


def _elements(layout: Layout, bits: _Bits, count: int, k: int) -> np.ndarray:
    spreads = np.array([0, 1, 2, 4, 8, 16, 32, layout.top])
    middle, spread = bits.below(layout.top + 1, count, 1), spreads[bits.below(spreads.size, count, 1)]
    exponent = np.clip(middle - spread + bits.below(2 * spread + 1, count, k), 0, layout.top)
    full = (1 << layout.fraction) - 1
    fraction = bits.below(full + 1, count, k)
    style = bits.below(8, count, 1)
    fraction = np.where(style == 0, fraction & full << layout.fraction - 1 & full, fraction)  # 1 or 1.5
    fraction = np.where(style == 1, full, fraction)
    sign = bits.below(2, count, k) & ~bits.one_in(3, count, 1).astype(np.int64)  # of a third, all are positive
    codes = layout.code(sign, exponent, fraction)
    if layout.unread:
        codes |= bits.below(1 << layout.unread, count, k)
    rare = np.array([1, 1, 1, 8, 2, 16])[bits.below(6, count, 1)]  # 1: no zeros; else the part of zeros, or of others
    kept = np.where(rare == 16, bits.below(16, count, k) == 0, (bits.below(rare, count, k) != 0) | (rare == 1))
    return np.where(kept, codes, layout.code(sign, exponent * 0, fraction * 0))


def _cancel(a_layout: Layout, b_layout: Layout, bits: _Bits, a: np.ndarray, b: np.ndarray) -> None:
    """In every fourth vector products come in pairs, at random places, that cancel but for a fraction's last bit."""
    count, k = a.shape
    order = np.argsort(bits.below(1 << 31, count, k), axis=1, kind="stable")
    chosen = np.flatnonzero(bits.one_in(4, count))[:, None]
    one, other = order[chosen[:, 0], 0::2], order[chosen[:, 0], 1::2]
    last = bits.one_in(4, *one.shape).astype(np.int64) << a_layout.unread
    a[chosen, other] = a[chosen, one] ^ last
    b[chosen, other] = b[chosen, one] ^ 1 << b_layout.exponent + b_layout.fraction + b_layout.unread


def _sprinkle(layout: Layout, bits: _Bits, codes: np.ndarray) -> None:
    """Into every 16th vector infinities, NaNs, the largest and the smallest numbers, one in eight elements."""
    last, high = (1 << layout.fraction) - 1, layout.top + 1
    largest = (layout.top, last) if layout.infinite else (high, last - 1)
    often = [largest, (0, 1), (0, last), (high, 0)]  # the last is an infinity, where there are any
    exponents, fractions = np.array([*often * 3, (high, last), (high, 1)]).T
    specials = layout.code(exponents * 0, exponents, fractions)
    value = specials[bits.below(specials.size, *codes.shape)]
    value |= bits.below(2, *codes.shape) << layout.exponent + layout.fraction + layout.unread
    at = bits.one_in(16, codes.shape[0], 1) & bits.one_in(8, *codes.shape)
    codes[at] = value[at]


def _addends(kinds: tuple[str, str, str], bits: _Bits, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """c, (count,): zeros, numbers near the products, near what cancels their sum, tiny ones, and any bits at all."""
    layout, word, count = LAYOUTS[kinds[2]], WORDS[kinds[2]], len(a)
    with np.errstate(all="ignore"):
        products = numbers(a, kinds[0], np.float64) * numbers(b, kinds[1], np.float64)
        dot = np.zeros(count)
        for k in range(products.shape[1]):  # in this order everywhere
            dot = dot + products[:, k]
        size = np.abs(products)
        size[~np.isfinite(size)] = 0
        exponent = np.frexp(size.max(axis=1))[1].astype(np.int64) - 1
        near = np.clip(exponent + layout.bias + 6 - bits.below(40, count), 0, layout.top)
        sign = bits.below(2, count)
        fraction = bits.below(1 << layout.fraction, count)
        float_of = np.float32 if kinds[2] == "f32" else np.float16
        against = (-dot).astype(float_of).view(word).astype(np.int64)
        against = np.where(np.isnan(dot), 0, against ^ bits.below(8, count) & bits.below(8, count))
    anything = layout.code(sign, bits.below(layout.top + 2, count), fraction)
    choices = np.stack(
        [
            layout.code(sign, sign * 0, fraction * 0),
            *[layout.code(sign, near, fraction)] * 4,
            *[against] * 2,
            layout.code(sign, sign * 0, fraction >> bits.below(layout.fraction + 1, count)),
            anything,
        ]
    )
    return choices[bits.below(len(choices), count), np.arange(count)].astype(word)
