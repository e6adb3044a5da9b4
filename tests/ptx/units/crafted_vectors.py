"""Vectors of which each asks one question about how an instruction of the tensor cores adds: a . b + c."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from experiments.studies.shared.dot_vectors import LAYOUTS, Vectors
from gemm_ref.ptx.units.formats import to_bf16, to_e4m3, to_e5m2


def crafted_vectors(kinds: tuple[str, str, str], k: int) -> Vectors:
    """Vectors of which each asks one question; see `_questions`."""
    rows = list(_questions(kinds, k))
    values = [np.array([row[i] for row in rows], np.float64) for i in (0, 1, 2)]
    return Vectors(*(_encode(value, kind) for value, kind in zip(values, kinds, strict=True)))


def _questions(kinds: tuple[str, str, str], k: int) -> Iterator[tuple[np.ndarray, np.ndarray, float]]:
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
