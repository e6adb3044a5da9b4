"""The instructions of wgmma (PTX ISA, 9.7.15); `units.warpgroups` has what they do and when."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np

from gemm_ref.ptx.core.decode import Decoder, integer
from gemm_ref.ptx.core.machine import Control, Machine, Mask
from gemm_ref.ptx.text.dtypes import DTYPES, per_lane
from gemm_ref.ptx.text.errors import ParseError, Unsupported
from gemm_ref.ptx.text.operands import Immediate, Register, Vector, items_of
from gemm_ref.ptx.text.parser import Entry, Instruction
from gemm_ref.ptx.units.formats import BITS, INTEGERS, numbers
from gemm_ref.ptx.units.warpgroups import Warpgroups, WgmmaShape
from gemm_ref.ptx.units.wgmma_operands import K_BYTES, fragments_to_matrix

_NAME = re.compile(r"wgmma\.mma_async\.sync\.aligned\.m64n(\d+)k(\d+)\.(f32|f16|s32)\.(\w+)\.(\w+)")
_REGISTER, _LEAVES = re.compile(r"%\w+"), ("bra", "brx", "ret", "exit", "call")
_KINDS = {("f16", "f16"), ("bf16", "bf16"), ("tf32", "tf32")}
_KINDS |= {(a, b) for a in ("e4m3", "e5m2") for b in ("e4m3", "e5m2")}
_KINDS |= {(a, b) for a in INTEGERS for b in INTEGERS}


def wgmma(decoder: Decoder, instruction: Instruction) -> Control:
    """`wgmma`: `.mma_async` of f16, bf16, tf32, e4m3, e5m2 with f32 sums, f16 with f16, s8 and u8 with s32; its groups.

    Each waits for all lanes of its warpgroup.
    """
    execute = _execution(decoder, instruction)

    def step(machine: Machine, mask: Mask, place: int) -> int:
        warpgroups = machine.unit(Warpgroups)
        groups = warpgroups.find_complete(mask)
        if groups is None:
            return warpgroups.assemble(mask, place)
        if groups.size:
            execute(machine, groups)
        return place + 1

    return Control(step)


def unpack_after_waits(entry: Entry) -> list[Instruction]:
    """Return the kernel's instructions; what unpacks sums in fp16 between their wgmma and its wait stands behind that.

    So Triton writes them, and ptxas, to which such a `mov` only renames registers, places them. One stays before
    whatever else needs its registers, and in its basic block.
    """
    if not any(_NAME.match(each.name) and ".f16.f16.f16" in each.name for each in entry.instructions):
        return entry.instructions
    ordered: list[Instruction] = []
    unpacked: list[Instruction] = []  # since the last wgmma
    starts, accumulators, needed = set(entry.labels.values()), set[str](), set[str]()
    for place, each in enumerate(entry.instructions):
        names = set(_REGISTER.findall(each.text))
        if place not in starts and each.parts[0] == "mov" and isinstance(each.operands[0], Vector):
            if len(names & accumulators) == 1 and not each.guard:
                unpacked.append(each)
                needed |= names
                continue
        waits = each.name.startswith("wgmma.wait_group")
        if place in starts or each.parts[0] in _LEAVES or names & needed and not waits:
            ordered += unpacked
            unpacked, needed = [], set()
        ordered.append(each)
        if waits:
            ordered += unpacked
            unpacked, needed, accumulators = [], set(), set()
        elif _NAME.match(each.name):
            accumulators |= {item.name for item in items_of(each.operands[0]) if isinstance(item, Register)}
    return ordered + unpacked


def _execution(decoder: Decoder, instruction: Instruction) -> Callable[[Machine, np.ndarray], None]:
    """Return what executes an instruction for some warpgroups, by their numbers."""
    operation = instruction.parts[1]
    if operation == "mma_async":
        return _multiply(decoder, instruction)
    if operation == "wait_group":
        keep = integer(instruction.operands[0])
        return lambda machine, groups: machine.unit(Warpgroups).wait(groups, keep)
    if operation == "fence":
        return lambda machine, groups: machine.unit(Warpgroups).fence(groups)
    if operation == "commit_group":
        return lambda machine, groups: machine.unit(Warpgroups).commit(groups)
    raise Unsupported(f"{instruction.origin}: the reference GPU has no {instruction.name}")


def _shape(instruction: Instruction) -> WgmmaShape:
    """Return the form of an instruction. Raises Unsupported, and ParseError for contradicting operands."""
    match = _NAME.fullmatch(instruction.name)
    kinds = match.groups()[3:] if match else ()
    whole = match is not None and match[3] == "s32"
    if match is None or kinds not in _KINDS or (match[3] == "f16" and kinds != ("f16", "f16")) or (
        whole != (kinds[0] in INTEGERS)
    ):  # fmt: skip
        raise Unsupported(f"{instruction.origin}: the reference GPU has no {instruction.name}")
    columns, depth, (a_kind, b_kind) = int(match[1]), int(match[2]), kinds
    item = BITS[a_kind].itemsize
    signs = [1, 1] * whole  # integers have none
    signs += [integer(operand) for operand in instruction.operands[4:] if isinstance(operand, Immediate)]
    if depth * item != K_BYTES or columns % 8 or not 8 <= columns <= 256 or signs[0] not in (1, -1) or (
        signs[1] not in (1, -1)
    ):  # fmt: skip
        raise ParseError(f"{instruction.origin}: there is no such shape, type or sign")
    from_registers = isinstance(instruction.operands[1], Vector)
    flags = signs[2:]
    if len(flags) != (0 if item != 2 else 1 if from_registers else 2):
        raise ParseError(f"{instruction.origin}: the operands after the predicate do not fit its types")
    a_flag = 0 if item != 2 or from_registers else flags[0]
    b_flag = flags[-1] if flags else 0
    return WgmmaShape(columns, a_kind, b_kind, signs[0], signs[1], bool(a_flag), bool(b_flag), DTYPES[match[3]])


def _multiply(decoder: Decoder, instruction: Instruction) -> Callable[[Machine, np.ndarray], None]:
    """`wgmma.mma_async`: D, A, B, scale-d, scale-a, scale-b, and for 16-bit types how A and B are stored."""
    shape = _shape(instruction)
    d, a, b, scale = instruction.operands[:4]
    if len(items_of(d)) != shape.columns * shape.sums.itemsize // 8:
        raise ParseError(f"{instruction.origin}: D takes {shape.columns * shape.sums.itemsize // 8} registers")
    registers = [item for item in map(decoder.named, items_of(d)) if isinstance(item, Register)]
    if len(registers) < len(items_of(d)) or any(decoder.dtype_of(item).itemsize != 4 for item in registers):
        raise ParseError(f"{instruction.origin}: D takes registers of 32 bits")
    slots = tuple(decoder.slot(item.name) for item in registers)
    from_registers = isinstance(a, Vector)
    a_words = [decoder.source(item, DTYPES["b32" if from_registers else "b64"]) for item in items_of(a)]
    b_word, accumulates = decoder.source(b, DTYPES["b64"]), decoder.source(scale, DTYPES["pred"])
    if from_registers and len(a_words) != 4:
        raise ParseError(f"{instruction.origin}: A takes 4 registers")

    def execute(machine: Machine, groups: np.ndarray) -> None:
        warpgroups = machine.unit(Warpgroups)
        lanes = warpgroups.lanes(groups)
        if from_registers:
            held = np.stack([per_lane(read(machine), machine.lanes)[lanes] for read in a_words])
            left = numbers(fragments_to_matrix(held, BITS[shape.a_kind]), shape.a_kind, np.float32)
        else:
            left = per_lane(a_words[0](machine), machine.lanes)[lanes[:, 0]]
        right, added = (per_lane(read(machine), machine.lanes)[lanes[:, 0]] for read in (b_word, accumulates))
        warpgroups.issue(instruction, shape, slots, groups, left, right, added)

    return execute
