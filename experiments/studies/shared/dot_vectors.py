"""Vectors that show how an instruction of the tensor cores adds: a . b + c, each a vector of its own.

Made from raw random bits and IEEE operations in a fixed order alone, so they are the same bits everywhere.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gemm_ref.ptx.units.formats import BITS, numbers, to_bf16, to_e4m3, to_e5m2


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


# --- crafted -------------------------------------------------------------------------------------------------


def crafted_vectors(kinds: tuple[str, str, str], k: int) -> Vectors:
    """Vectors of which each asks one question; see `_questions`."""
    rows = list(_questions(kinds, k))
    values = [np.array([row[i] for row in rows], np.float64) for i in (0, 1, 2)]
    return Vectors(*(_encode(value, kind) for value, kind in zip(values, kinds, strict=True)))


def _questions(kinds: tuple[str, str, str], k: int):
    a_layout, b_layout, c_layout = (LAYOUTS[kind] for kind in kinds)
    high = min(2 * min(a_layout.bias, b_layout.bias), 14 if kinds[2] == "f16" else 40) // 2  # 2**high in a and in b
    ones, nought = np.ones(k), np.zeros(k)
    place = np.eye(k)
    low = min(a_layout.bias, b_layout.bias) - 1  # 2**-low is normal in both

    def with_terms(*terms: tuple[np.ndarray, int]) -> tuple[np.ndarray, np.ndarray]:
        """a, b whose products are powers of two, at places: (0, +-1 vector, exponent) each."""
        a, b = nought.copy(), nought.copy()
        for where, exponent in terms:
            half = exponent // 2
            a, b = a + where * 2.0 ** (exponent - half), np.where(where != 0, 2.0**half, b)
        return a, b

    big, tiny = 2 * high, max(2 * high - 40, -2 * low)
    for i in range(k):  # Which products are added together, and whether c is among the first?
        yield *with_terms((place[i], big), (ones - place[i], tiny)), -(2.0**big)
        for j in range(i):
            others = ones - place[i] - place[j]
            yield *with_terms((place[i] - place[j], big), (others, tiny)), 0.0
            yield *with_terms((place[j] - place[i], big), (others, tiny)), 0.0
    for below in range(8, min(32, big - tiny + 1)):  # How many bits are kept below the largest, and are others cut?
        for count in (1, 2, 3, 4, 7, k - 1, k):
            some = (np.arange(k) < count).astype(float)
            for sign in (1.0, -1.0):
                yield *with_terms((some * sign, big - below)), 2.0**big
                yield *with_terms((some * sign, big - below)), 1.5 * 2.0**big
                yield *with_terms((some * sign, big - below)), -(2.0**big)
    for size in (1.5, 1.75, 1.25):  # Is a product of 2 or more an exponent higher, or aligned by its factors'?
        for below in range(8, min(32, big - tiny + 1)):
            a, b = with_terms((place[0], big), (ones - place[0], big - below))
            a[0], b[0] = a[0] * size, b[0] * size
            yield a, b, 0.0
            yield a, b, -(2.0**big) * size * size
            yield -a, b, 0.0
    bottom = -(c_layout.bias + c_layout.fraction - 1)  # 2**bottom is the smallest number of c's format
    least = -2 * (a_layout.bias + a_layout.fraction - 1)
    for exponent in range(max(bottom - 14, least), bottom + 24):  # Where do small sums end?
        for count in (1, 2, 3, 8, k):
            some = (np.arange(k) < count).astype(float)
            for c in (0.0, 2.0**bottom, -(2.0**bottom), 2.0 ** (bottom + c_layout.fraction)):
                yield *with_terms((some, exponent)), c
                yield *with_terms((-some, exponent)), c
    for exponent in range(max(bottom - 4, least), bottom + 24):  # Down to which number are bits kept at all?
        for below in range(14, 36):
            rest = exponent - below
            if rest >= least:
                for sign in (1.0, -1.0):
                    a, b = with_terms((place[0], exponent), (sign * (ones - place[0]), rest))
                    yield a, b, 0.0
                    a[0] *= 1.5
                    yield a, b, 0.0
    largest = (2 - 2.0**-c_layout.fraction) * 2.0**c_layout.bias
    for below in range(0, 30):  # Where do large sums become infinite?
        for c in (largest, -largest):
            exponent = c_layout.bias - below
            if exponent <= a_layout.bias + b_layout.bias:
                yield *with_terms((place[0], exponent)), c
                yield *with_terms((ones, exponent)), c
                yield *with_terms((-ones, exponent)), c
    inf, nan = (np.inf if a_layout.infinite else np.nan), np.nan
    for x in (0.0, -0.0, 1.0, -1.0, inf, -inf, nan):  # Special values: each kind with each.
        for y in (0.0, -0.0, 1.0, inf, nan):
            for c in (0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan):
                yield np.where(place[0] > 0, x, 0.0), np.where(place[0] > 0, y, 0.0), c
                yield np.where(place[k - 1] > 0, x, -0.0), np.where(place[k - 1] > 0, y, 1.0), c


def _encode(values: np.ndarray, kind: str) -> np.ndarray:
    with np.errstate(all="ignore"):
        if kind == "f16":
            return values.astype(np.float16).view(np.uint16)
        single = values.astype(np.float32)
        if kind in ("f32", "tf32"):
            return single.view(np.uint32)
        return {"bf16": to_bf16, "e4m3": to_e4m3, "e5m2": to_e5m2}[kind](single)
