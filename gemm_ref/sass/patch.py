"""Registers of instructions, read from a cubin and written into it.

An instruction of sm_80 to sm_90 is 16 bytes. NVIDIA does not document where its fields are; these places hold for the
instructions of three registers and for those of two, and nvdisasm reads back what is written here (the tests). In a
little-endian number of 128 bits: the operation in bits 0..11, with what kinds its operands are; its guard in 12..15;
the registers d, a, b, c, of 8 bits each, in `_REGISTERS`; from bit 105 on what the scheduler is told: how many clocks
to wait before the next instruction, in 4 bits, and whether to stay with this warp; from bit 122 on a bit for each of a,
b and c that is kept for reuse.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from gemm_ref.sass.sections import INSTRUCTION_BYTES, code_places

ARCHITECTURES = ((8, 0), (9, 0))  # the first and the last whose fields are as here
RZ = 255  # reads as zero, and is no register
# name -> the operations that stand for it; ptxas takes turns where there are several
OPERATIONS = MappingProxyType(
    {
        "FFMA": (0x223,),
        "FADD": (0x221,),
        "FMUL": (0x220,),
        "IMAD": (0x224,),
        "HFMA2": (0x231, 0x235),
        "LOP3": (0x212,),
        "LDG": (0x981,),
        "STG": (0x986,),
    }
)
LOADS = (0x981, 0x984)  # LDG, LDS
TWO = ("FADD", "FMUL")  # d = a and b; the others have c too

_REGISTERS = {"d": 16, "a": 24, "b": 32, "c": 64}
_OFFSET, _STALL, _STAY, _REUSE = 40, 105, 109, 122
_RESULT, _READ, _WAITS, _NO_COUNTER = 110, 113, 116, 7
_APART = 3  # a loop's own instructions stand between those that it repeats


@dataclass(frozen=True)
class Operands:
    """The registers of one instruction, and which of the places a, b and c are flagged `.reuse`."""

    d: int
    a: int
    b: int
    c: int = RZ
    reuse: str = ""  # "a", "ab", "abc", ...

    def text(self, name: str) -> str:
        """As nvdisasm writes them behind an operation called `name`."""
        places = "ab" if name in TWO else "abc"
        read = (_written(getattr(self, place)) + (".reuse" if place in self.reuse else "") for place in places)
        return ", ".join((_written(self.d), *read))


def _written(register: int) -> str:
    return "RZ" if register == RZ else f"R{register}"


def find_run(cubin: bytes, kernel: str, name: str, count: int) -> list[int]:
    """Where in the file the `count` instructions called `name` are that stand together in a kernel.

    Raises ValueError where the machine code has no such kernel, or not one run of so many.
    """
    places = code_places(cubin)
    if kernel not in places:
        raise ValueError(f"the cubin has no kernel {kernel}: it has {', '.join(places) or 'none'}")
    begin, length = places[kernel]
    runs: list[list[int]] = [[]]
    for place in range(begin, begin + length, INSTRUCTION_BYTES):
        if _number(cubin, place) & 0xFFF in OPERATIONS[name]:
            if runs[-1] and place - runs[-1][-1] > (1 + _APART) * INSTRUCTION_BYTES:
                runs.append([])
            runs[-1].append(place)
    longest = max(runs, key=len)
    if len(longest) != count:
        raise ValueError(
            f"{kernel}: {count} {name} were to stand together, and the longest run of the machine code has "
            f"{len(longest)}: this compiler or architecture writes the loop otherwise, so registers cannot be chosen"
        )
    return longest


def offsets(cubin: bytes, kernel: str, name: str) -> set[tuple[int, int]]:
    """The register that each LDG or STG of a kernel loads or stores, and how many bytes from its address."""
    begin, length = code_places(cubin)[kernel]
    numbers = (_number(cubin, place) for place in range(begin, begin + length, INSTRUCTION_BYTES))
    bit = _REGISTERS["d" if name == "LDG" else "b"]
    return {(n >> bit & 0xFF, n >> _OFFSET & 0xFFFFFF) for n in numbers if n & 0xFFF in OPERATIONS[name]}


def read(cubin: bytes, place: int) -> Operands:
    """The registers of the instruction at a place of the file."""
    number = _number(cubin, place)
    registers = {name: number >> bit & 0xFF for name, bit in _REGISTERS.items()}
    return Operands(**registers, reuse="".join(p for i, p in enumerate("abc") if number >> _REUSE + i & 1))


def patched(cubin: bytes, places: Sequence[int], operands: Iterable[Operands], *, stall: int = 1) -> bytes:
    """The cubin with these registers in the instructions at `places`, each issued `stall` clocks before the next.

    Nothing else is changed: that no instruction reads what is not computed yet is the caller's concern.
    """
    new = bytearray(cubin)
    for place, its in zip(places, operands, strict=True):
        number = _number(cubin, place)
        for name, bit in _REGISTERS.items():
            number = _put(number, bit, 8, getattr(its, name))
        number = _put(number, _STALL, 4, stall)
        number = _put(number, _STAY, 1, 1)  # without it b and c cannot be kept both
        number = _put(number, _REUSE, 3, sum(1 << "abc".index(name) for name in its.reuse))
        new[place : place + INSTRUCTION_BYTES] = number.to_bytes(INSTRUCTION_BYTES, "little")
    return bytes(new)


def with_operand_waits(cubin: bytes, code: range, places: Sequence[int], counter: int) -> bytes:
    """The cubin with instructions at `places` that each wait until the operands of the one before have been read.

    What they load is dropped. code: their kernel, where all that waits for anything waits for the operands too;
    counter: one that nothing else raises.
    """
    new = bytearray(cubin)
    for place in code:
        number = _number(cubin, place)
        if place in places:
            number = _put(number, _READ, 3, counter)
            number = _put(number, _STALL, 4, max(2, number >> _STALL & 15))  # after 1 the next does not see the counter
            if number & 0xFFF in LOADS:
                number = _put(_put(number, _REGISTERS["d"], 8, RZ), _RESULT, 3, _NO_COUNTER)
        if place in places or number >> _WAITS & 63:
            number |= 1 << _WAITS + counter
        new[place : place + INSTRUCTION_BYTES] = number.to_bytes(INSTRUCTION_BYTES, "little")
    return bytes(new)


def _put(number: int, bit: int, width: int, value: int) -> int:
    return number & ~((1 << width) - 1 << bit) | value << bit


def _number(cubin: bytes, place: int) -> int:
    return int.from_bytes(cubin[place : place + INSTRUCTION_BYTES], "little")
