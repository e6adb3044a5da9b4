"""What Hopper's tensor cores compute for a . b + c, number by number in exact fractions: slow, and plain to read."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

from tests.ptx.ieee import FORMATS, add, decode, encode


def value_of(code: int, kind: str) -> Fraction | float:
    """Returns the number of a code; the sign of a zero is lost."""
    value = decode(code, kind)
    return Fraction(value) if math.isfinite(value) else value


def exponent_of(code: int, kind: str) -> int:
    """Returns the exponent as a tensor core reads it: a subnormal number has the smallest normal one's."""
    form = FORMATS[kind]
    field = code >> form.unread_bits + form.fraction_bits & (1 << form.exponent_bits) - 1
    return max(field, 1) - 1 + form.lowest


def add_group(a: Sequence[int], b: Sequence[int], c: int, kinds: tuple[str, str, str], fraction: int, kept: int) -> int:
    """Returns the code of a . b + c for codes that are added at once; kinds are of a, b and c."""
    to = kinds[2]
    terms = [(value_of(c, to), exponent_of(c, to))]
    for x, y in zip(a, b, strict=True):
        p, q = value_of(x, kinds[0]), value_of(y, kinds[1])
        special = not (isinstance(p, Fraction) and isinstance(q, Fraction))
        terms.append((float(p) * float(q) if special else p * q, exponent_of(x, kinds[0]) + exponent_of(y, kinds[1])))
    odd = [float(value) for value, _ in terms if not isinstance(value, Fraction)]
    if odd:
        return encode(math.fsum(odd) if not (math.inf in odd and -math.inf in odd) else math.nan, to)
    least = {"f32": -133, "f16": -21}[to]
    top = max((exponent for value, exponent in terms if value and exponent > least), default=least)
    step = Fraction(2) ** (top - fraction)
    total = sum((math.trunc(value / step) * step for value, _ in terms), Fraction(0))
    if to == "f16":
        return encode(total, "f16") if abs(total) > Fraction(2) ** -25 else 0
    if abs(total) >= Fraction(2) ** 128:
        return encode(math.copysign(math.inf, total), "f32")
    code = encode(total, "f32", "rz") & -(1 << 23 - kept)
    return code if code & 0x7FFFFFFF else 0


def add_chain(
    a: Sequence[int], b: Sequence[int], c: int, kinds: tuple[str, str, str], group: int, fraction: int, kept: int
) -> int:
    """Returns the code of a . b + c where the sum of each group of products is the next group's addend."""
    for i in range(0, len(a), group):
        c = add_group(a[i : i + group], b[i : i + group], c, kinds, fraction, kept)
    return c


def hopper(instruction: str, a: Sequence[int], b: Sequence[int], c: int, kinds: tuple[str, str, str]) -> int:
    """Returns the code of a . b + c, of as many elements as the instruction has k."""
    fp8 = kinds[0] in ("e4m3", "e5m2")
    if instruction == "wgmma" and fp8:
        return add_chain(a, b, c, kinds, 32, 13, 13)
    if fp8:  # two HMMA of fp16 from zero, to which e4m3's subnormal numbers are normal ones; then FADD or HADD2
        a, b = ([encode(decode(x, kind), "f16") for x in part] for part, kind in ((a, kinds[0]), (b, kinds[1])))
        total = 0
        for half in ((0, 1), (2, 3)):
            own = [i for i in range(len(a)) if i % 4 in half]
            total = add_group([a[i] for i in own], [b[i] for i in own], total, ("f16", "f16", kinds[2]), 25, 23)
        return add(decode(total, kinds[2]), decode(c, kinds[2]), kinds[2])
    return add_chain(a, b, c, kinds, 4 if (instruction, kinds[0]) == ("wmma", "tf32") else len(a), 25, 23)
