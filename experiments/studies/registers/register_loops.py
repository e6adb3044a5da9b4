"""The loops of `registers`: which registers its instructions read and write, in words that do not depend on a compiler.

A loop asks for registers by bank or by residue; `Pools` has those that the compiled loop owns. Sums are far enough
apart that none is read before it is computed, whatever its clock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations

from gemm_ref.sass import patch
from gemm_ref.sass.patch import RZ, TWO, Operands

EIGHT = 8
SUMS = 8  # that take turns
FFMA = "FFMA"


class Pools:
    """The registers that a loop may name, even and odd, and by residue of 8; three roles have registers apart."""

    def __init__(self, registers: Sequence[int]) -> None:
        self._of = {
            (modulo, residue): [register for register in sorted(registers) if register % modulo == residue]
            for modulo in (2, EIGHT)
            for residue in range(modulo)
        }

    def a(self, i: int, residue: int, modulo: int = 2) -> int:
        """One of two that take turns; so `b` and `c`, which never give the same."""
        return self._of[modulo, residue][i % 2]

    def b(self, i: int, residue: int, modulo: int = 2) -> int:
        return self._of[modulo, residue][2 + i % 2]

    def c(self, i: int, residue: int, modulo: int = 2) -> int:
        return self._of[modulo, residue][4 + i % SUMS]

    def d(self, i: int, residue: int) -> int:
        """A result that nothing reads."""
        return self._of[2, residue][4 + SUMS + i % SUMS]


@dataclass(frozen=True)
class Loop:
    """One loop: the i-th instruction is `pattern(pools, i)`."""

    form: str  # what it asks of the ports
    name: str
    pattern: Callable[[Pools, int], Operands]
    operation: str = FFMA
    warps: int = 1  # of a scheduler
    build = None  # `registers` compiles an operation's loop when it first needs it

    def instructions(self, registers: Sequence[int], count: int) -> list[Operands]:
        """The operands of `count` instructions in a loop that owns these registers."""
        pools = Pools(registers)
        return [self.pattern(pools, i) for i in range(count)]

    def refusal(self, capability: tuple[int, int]) -> str | None:
        """Why the registers of this GPU's machine code cannot be chosen, or None if they can."""
        first, last = patch.ARCHITECTURES
        if first <= capability <= last:
            return None
        needs = "{}.{} to {}.{}".format(*first, *last)
        return f"chosen registers need compute capability {needs}; this GPU has {capability[0]}.{capability[1]}"

    def __str__(self) -> str:
        return f"{self.operation}, {self.form}: {self.name}" + (f", {self.warps} warps" if self.warps > 1 else "")


def _plain(a: int, b: int, c: int, modulo: int = 2, *, two: bool = False) -> Callable[[Pools, int], Operands]:
    """Registers of these residues, none kept."""

    def pattern(pools: Pools, i: int) -> Operands:
        own = pools.c(i, b if two else c, modulo)
        if two:
            return Operands(own, pools.a(i, a, modulo), own)
        return Operands(own, pools.a(i, a, modulo), pools.b(i, b, modulo), own)

    return pattern


BANK = ("even", "odd")


def _parities() -> Iterator[Loop]:
    """Each operand even or odd."""
    for warps in (1, 2):
        for a in range(2):
            for b in range(2):
                for c in range(2):
                    yield Loop("parities", f"{BANK[a]} {BANK[b]} {BANK[c]}", _plain(a, b, c), warps=warps)


def _residues() -> Iterator[Loop]:
    """Whether more than the last bit counts: all residues of 8 for a and b, two for c."""
    for c in range(2):
        for a in range(EIGHT):
            for b in range(EIGHT):
                yield Loop("residues", f"{a} {b} {c}", _plain(a, b, c, EIGHT))


def _reads() -> Iterator[Loop]:
    """So many reads of each bank; the other operands are RZ."""
    for even, odd in ((0, 0), (1, 0), (2, 0), (3, 0), (1, 1), (2, 1)):

        def pattern(pools: Pools, i: int, even: int = even, odd: int = odd) -> Operands:
            banks = [0] * even + [1] * odd
            roles = (pools.c, pools.a, pools.b)
            c, a, b = [role(i, bank) for role, bank in zip(roles, banks, strict=False)] + [RZ] * (3 - len(banks))
            return Operands(pools.d(i, 0) if c == RZ else c, a, b, c)

        yield Loop("reads", f"{even} even, {odd} odd", pattern)

    def twice(pools: Pools, i: int) -> Operands:
        return Operands(pools.c(i, 0), pools.a(i, 0), pools.a(i, 0), pools.c(i, 0))

    yield Loop("reads", "2 even, one of them twice", twice)


def _alternating() -> Iterator[Loop]:
    """How far apart requests are evened out: as many instructions of one bank as of the other, or of none."""
    for period in (1, 2, 4, 8, 16, 32, 64, 128):

        def turns(pools: Pools, i: int, period: int = period) -> Operands:
            return _plain(*[i // period % 2] * 3)(pools, i)

        yield Loop("alternating", str(period), turns)
    for period in (1, 2, 4, 8, 16, 32):

        def rests(pools: Pools, i: int, period: int = period) -> Operands:
            busy = i // period % 4 == 0
            return _plain(0, 0, 0)(pools, i) if busy else Operands(pools.d(i, 0), RZ, RZ, RZ)

        yield Loop("resting", str(period), rests)


def _with_reuse(places: str, of: str, *, longest: int = 0) -> Callable[[Pools, int], Operands]:
    """Operands of banks `of` ("eoe") for a, b and c; those of `places` are always the same and flagged.

    longest: with a pause after so many, where the next instruction reads another register.
    """
    bank = {place: "eo".index(letter) for place, letter in zip("abc", of, strict=True)}

    def pattern(pools: Pools, i: int) -> Operands:
        block = i // longest if longest else 0
        flagged = not longest or i % longest < longest - 1
        at = {place: block if place in places else i for place in "abc"}
        c = pools.c(at["c"], bank["c"])
        d = pools.d(i, bank["c"]) if "c" in places else c
        reuse = places if flagged else ""
        return Operands(d, pools.a(at["a"], bank["a"]), pools.b(at["b"], bank["b"]), c, reuse)

    return pattern


def _unflagged(pattern: Callable[[Pools, int], Operands]) -> Callable[[Pools, int], Operands]:
    def unflagged(pools: Pools, i: int) -> Operands:
        its = pattern(pools, i)
        return Operands(its.d, its.a, its.b, its.c)

    return unflagged


def _across(between: int) -> Callable[[Pools, int], Operands]:
    """a is even and flagged in every second instruction, and the one between reads one of bank `between` there."""

    def pattern(pools: Pools, i: int) -> Operands:
        c = pools.c(i, 0)
        if i % 2:
            return Operands(c, pools.a(1, between), pools.b(i, 0), c)
        return Operands(c, pools.a(0, 0), pools.b(i, 1), c, "a")

    return pattern


def _moved(kept: str, then: str) -> Callable[[Pools, int], Operands]:
    """What every second instruction flags at one place, the next reads at another, and another of its bank there."""

    def pattern(pools: Pools, i: int) -> Operands:
        (third,) = set("abc") - {kept, then}
        sums, shared = pools.c(i, 0), pools.a(0, 0)
        at = {third: sums, then: shared, kept: pools.a(1, 0)} if i % 2 else {third: sums, kept: shared}
        at.setdefault(then, pools.b(i, 1))
        return Operands(sums if third == "c" else pools.d(i, 0), **at, reuse="" if i % 2 else kept)

    return pattern


def _reuse() -> Iterator[Loop]:
    """What `.reuse` saves, by place, for how long, and whether another warp undoes it."""
    for warps in (1, 2):
        for name, pattern in {
            "a, in rows of 8; b and c of two banks": _with_reuse("a", "eoe", longest=8),
            "a; b and c of two banks": _with_reuse("a", "eoe"),
            "a; b and c of one bank": _with_reuse("a", "eoo"),
            "b; a and c of two banks": _with_reuse("b", "eoo"),
            "c; a and b of two banks": _with_reuse("c", "eoe"),
            "c; a and b of one bank": _with_reuse("c", "ooe"),
            "a and b; all of one bank": _with_reuse("ab", "eee"),
            "a and c; all of one bank": _with_reuse("ac", "eee"),
            "a, b and c; all of one bank": _with_reuse("abc", "eee"),
            "a, not flagged; b and c of two banks": _unflagged(_with_reuse("a", "eoe")),
            "a, again after another of its bank": _across(0),
            "a, again after one of the other bank": _across(1),
            **{f"{kept}, read by the next as {then}": _moved(kept, then) for kept, then in permutations("abc", 2)},
        }.items():
            yield Loop("reuse", name, pattern, warps=warps)


def _writes() -> Iterator[Loop]:
    """Whether the results' registers count."""
    for name, read in {"reads of both banks": "eoe", "3 even reads": "eee", "1 even read": "eoe"}.items():
        for bank in range(2):

            def pattern(pools: Pools, i: int, name: str = name, read: str = read, bank: int = bank) -> Operands:
                its = _with_reuse("ab" if name == "1 even read" else "" if read == "eee" else "a", read)(pools, i)
                return Operands(pools.d(i, bank), its.a, its.b, its.c, its.reuse)

            yield Loop("writes", f"{name}, results {BANK[bank]}", pattern)


def _others() -> Iterator[Loop]:
    """The same of other instructions."""
    for operation in TWO:
        yield Loop("parities", "even even", _plain(0, 0, 0, two=True), operation)
        yield Loop("parities", "even odd", _plain(0, 1, 1, two=True), operation)
    for operation in ("IMAD", "HFMA2", "LOP3"):
        yield Loop("parities", "even even even", _plain(0, 0, 0), operation)
        yield Loop("parities", "even odd even", _plain(0, 1, 0), operation)
        yield Loop("reuse", "a; b and c of two banks", _with_reuse("a", "eoe"), operation)


LOOPS = (*_parities(), *_residues(), *_reads(), *_alternating(), *_reuse(), *_writes(), *_others())
