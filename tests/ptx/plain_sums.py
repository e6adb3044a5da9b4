"""What a tensor core of Hopper makes of a . b + c, number by number in Python's integers: slow, and plain to read."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

from tests.ptx.ieee import from_bits, negative, rounded, to_bits
from tests.ptx.isa.test_narrow import FORMATS, LOW_BITS, size_of

LAYOUTS = FORMATS | {"f32": (8, 23)}
NAN = {"f32": 0x7FFFFFFF, "f16": 0x7FFF}


def value_of(code: int, kind: str) -> Fraction | float:
    """The number of a code; of a zero the sign is lost."""
    if kind in ("f32", "f16"):
        found = from_bits(code, kind)
        return Fraction(found) if math.isfinite(found) else found
    code >>= LOW_BITS.get(kind, 0)
    sign = sum(FORMATS[kind])
    size = size_of(code & (1 << sign) - 1, kind)
    return -size if code >> sign else size


def exponent_of(code: int, kind: str) -> int:
    """As a tensor core takes it: a subnormal number has the smallest normal one's."""
    exponent_bits, fraction_bits = LAYOUTS[kind]
    field = code >> LOW_BITS.get(kind, 0) + fraction_bits & (1 << exponent_bits) - 1
    return max(field, 1) - ((1 << exponent_bits - 1) - 1)


def cut(value: Fraction, step: Fraction) -> Fraction:
    """Toward zero."""
    return math.trunc(value / step) * step


def add_group(a: Sequence[int], b: Sequence[int], c: int, kinds: tuple[str, str, str], fraction: int, kept: int) -> int:
    """The code of a . b + c for codes that are added at once; kinds are of a, b and c."""
    to = kinds[2]
    terms = [(value_of(c, to), exponent_of(c, to))]
    for x, y in zip(a, b, strict=True):
        p, q = value_of(x, kinds[0]), value_of(y, kinds[1])
        special = not (isinstance(p, Fraction) and isinstance(q, Fraction))
        terms.append((float(p) * float(q) if special else p * q, exponent_of(x, kinds[0]) + exponent_of(y, kinds[1])))
    odd = [float(value) for value, _ in terms if not isinstance(value, Fraction)]
    if odd:
        total = math.fsum(odd) if not (math.inf in odd and -math.inf in odd) else math.nan
        return NAN[to] if math.isnan(total) else to_bits(total, to)
    least = {"f32": -133, "f16": -21}[to]
    top = max((exponent for value, exponent in terms if value and exponent > least), default=least)
    total = sum((cut(value, Fraction(2) ** (top - fraction)) for value, _ in terms), Fraction(0))
    return (rounded(total, "f16") if abs(total) > Fraction(2) ** -25 else 0) if to == "f16" else truncated(total, kept)


def truncated(value: Fraction, kept: int) -> int:
    """The code of an fp32 with `kept` bits of fraction, cut toward zero."""
    size = abs(value)
    if not size:
        return 0
    if size >= Fraction(2) ** 128:
        return to_bits(math.copysign(math.inf, value), "f32")
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    exponent = max(exponent - (Fraction(2) ** exponent > size), -126)
    return to_bits(float(cut(value, Fraction(2) ** (exponent - kept))), "f32")


def add_rounded(x: int, y: int, kind: str) -> int:
    """The code of the sum of two numbers of a format, in IEEE arithmetic."""
    p, q = from_bits(x, kind), from_bits(y, kind)
    if math.isnan(p + q):
        return NAN[kind]
    if math.isinf(p + q) and (math.isinf(p) or math.isinf(q)):
        return to_bits(p + q, kind)
    return rounded(Fraction(p) + Fraction(q), kind, negative(p) and negative(q))


def add_chain(
    a: Sequence[int], b: Sequence[int], c: int, kinds: tuple[str, str, str], group: int, fraction: int, kept: int
) -> int:
    """The code of a . b + c where so many products are added at once, and their sum is the next ones' addend."""
    for i in range(0, len(a), group):
        c = add_group(a[i : i + group], b[i : i + group], c, kinds, fraction, kept)
    return c


def hopper(instruction: str, a: Sequence[int], b: Sequence[int], c: int, kinds: tuple[str, str, str]) -> int:
    """The code of a . b + c, of as many elements as the instruction has k."""
    fp8 = kinds[0] in ("e4m3", "e5m2")
    if instruction == "wgmma" and fp8:
        return add_chain(a, b, c, kinds, 32, 13, 13)
    if fp8:  # two HMMA of fp16 from zero, to which e4m3's subnormal numbers are normal ones; then FADD or HADD2
        a, b = (
            [to_bits(float(value_of(x, kind)), "f16") for x in part] for part, kind in ((a, kinds[0]), (b, kinds[1]))
        )
        halves = [[i for i in range(len(a)) if i % 4 in some] for some in ((0, 1), (2, 3))]
        total = 0
        for half in halves:
            total = add_group([a[i] for i in half], [b[i] for i in half], total, ("f16", "f16", kinds[2]), 25, 23)
        return add_rounded(total, c, kinds[2])
    return add_chain(a, b, c, kinds, 4 if (instruction, kinds[0]) == ("wmma", "tf32") else len(a), 25, 23)
