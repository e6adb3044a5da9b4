"""What instructions do: the kind of each, the bytes that it moves, and the floating-point operations that it does."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from types import MappingProxyType

from gemm_ref.sass.listing import Instruction

# kind -> opcodes without suffixes. Those that move data are told apart by width too: `lds_128`.
_NAMED = {
    "ffma": "FFMA",
    "ffma2": "FFMA2",  # two multiply-adds in one instruction, from sm_100 on
    "mma": "HMMA HGMMA IMMA QMMA QGMMA",
    "lds": "LDS",
    "ldsm": "LDSM",
    "sts": "STS",
    "stsm": "STSM",
    "ldg": "LDG",
    "ldgsts": "LDGSTS",
    "stg": "STG",
    "spill": "LDL STL",  # local memory: in these kernels, what did not fit the registers
    "barrier": "BAR",
    "integer": """IADD IADD3 IMAD LEA LOP LOP3 SHF SHL SHR ISETP IMNMX IABS ISCADD VIADD VIADDMNMX VIMNMX
        VIMNMX3 PLOP3 P2R R2P SEL PRMT BMSK SGXT POPC FLO UIADD3 UIMAD ULEA ULOP3 USHF UISETP USEL UPLOP3 UPRMT
        UIMNMX UVIADD UVIMNMX UFLO UPOPC UBMSK USGXT UP2UR UR2UP""",
    "control": "BRA BSSY BSYNC EXIT RET CALL WARPSYNC YIELD DEPBAR LDGDEPBAR ARRIVES SYNCS NANOSLEEP ELECT",
}
_KIND = {name: kind for kind, names in _NAMED.items() for name in names.split()}
_WIDE = ("lds", "sts", "ldg", "ldgsts")  # the kinds that are counted by width

# Columns of the results, in order. `other` is what is left: moves, reads of constants and of special registers.
KINDS = (
    *("ffma", "ffma2", "mma"),
    *("lds_32", "lds_64", "lds_128", "ldsm", "sts_32", "sts_64", "sts_128", "stsm"),
    *("ldg_32", "ldg_64", "ldg_128", "ldgsts_32", "ldgsts_64", "ldgsts_128", "stg"),
    *("integer", "barrier", "control", "spill", "other"),
)
# The same in fewer groups, for shares of a loop.
GROUPS = MappingProxyType(
    {
        "multiply-add": ("ffma", "ffma2", "mma"),
        "shared read": ("lds_32", "lds_64", "lds_128", "ldsm"),
        "shared write": ("sts_32", "sts_64", "sts_128", "stsm"),
        "global": ("ldg_32", "ldg_64", "ldg_128", "ldgsts_32", "ldgsts_64", "ldgsts_128", "stg"),
        "integer": ("integer",),
        "control": ("barrier", "control"),
        "spill": ("spill",),
        "other": ("other",),
    }
)


def kind_of(instruction: Instruction) -> str:
    """One of KINDS. Raises ValueError for a width of memory access that has no column."""
    kind = _plain_kind(instruction)
    if kind not in _WIDE:
        return kind
    wide = f"{kind}_{max(32, bits(instruction))}"  # a byte or two take an instruction like a word
    if wide not in KINDS:
        raise ValueError(f"{instruction.opcode}: there is no column {wide}; add it to KINDS")
    return wide


def _plain_kind(instruction: Instruction) -> str:
    """The kind without its width."""
    if instruction.never or instruction.opcode.startswith("IMAD.MOV"):  # the multiplier is used for moves too
        return "other"
    return _KIND.get(instruction.name, "other")


def count(code: Iterable[Instruction]) -> dict[str, int]:
    """How many instructions of each kind there are, with all KINDS in order."""
    counts = Counter(map(kind_of, code))
    return {kind: counts[kind] for kind in KINDS}


def moved_bytes_of(instruction: Instruction) -> int:
    """Bytes that one thread moves between its registers, shared and global memory; 0 for what does not, and spills."""
    kind = _plain_kind(instruction)
    return bits(instruction) // 8 if kind in (*_WIDE, "ldsm", "stsm", "stg") else 0


def spilled_bytes(code: Iterable[Instruction]) -> int:
    """Bytes of all accesses to local memory in the text, for one thread."""
    return sum(bits(instruction) // 8 for instruction in code if _plain_kind(instruction) == "spill")


def shared_read_bytes(code: Iterable[Instruction]) -> int:
    """Bytes that one thread receives from shared memory."""
    return sum(moved_bytes_of(instruction) for instruction in code if _plain_kind(instruction) in ("lds", "ldsm"))


def flop_of(instruction: Instruction) -> float:
    """Floating-point operations of one thread, two for a multiply-add; a warp's or warpgroup's MMA is shared out."""
    kind = _plain_kind(instruction)
    if kind == "mma":
        m, n, k, threads = _mma_shape(instruction.opcode)
        return 2 * m * n * k / threads
    return {"ffma": 2, "ffma2": 4}.get(kind, 0)


def _mma_shape(opcode: str) -> tuple[int, int, int, int]:
    """m, n, k and the threads that share the work: HMMA.16816 is a warp's, HGMMA.64x256x16 four warps'."""
    if named := re.search(r"\.(\d+)x(\d+)x(\d+)", opcode):
        threads = 128
    elif named := re.search(r"\.(16|8)(8)(\d+)", opcode):
        threads = 32
    else:
        raise ValueError(f"{opcode}: its shape is not in its name")
    m, n, k = map(int, named.groups())
    return m, n, k, threads


def bits(instruction: Instruction) -> int:
    """The width of a memory access for one thread; LDSM and STSM move 1, 2 or 4 matrices of a word a thread."""
    parts = instruction.opcode.split(".")[1:]
    if instruction.name in ("LDSM", "STSM"):
        return 32 * (int(parts[-1]) if parts[-1] in ("2", "4") else 1)
    widths = {"U8": 8, "S8": 8, "U16": 16, "S16": 16, "64": 64, "128": 128, "256": 256}
    return next((widths[part] for part in parts if part in widths), 32)
