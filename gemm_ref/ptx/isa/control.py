"""Instructions that move the program counter or make threads wait: PTX ISA, 9.7.12 and 9.7.13."""

from __future__ import annotations

import numpy as np

from gemm_ref.ptx.core.cluster import cluster_barrier
from gemm_ref.ptx.core.decode import Control, Decoder
from gemm_ref.ptx.isa import mbarrier
from gemm_ref.ptx.isa.wgmma import wgmma
from gemm_ref.ptx.text.dtypes import DTYPES, per_lane
from gemm_ref.ptx.text.errors import KernelTrap, ParseError, Unsupported
from gemm_ref.ptx.text.parser import Instruction, Symbol


def branch(decoder: Decoder, instruction: Instruction) -> Control:
    """`bra`: all lanes together where they agree, else in groups, the one that is furthest behind first."""
    target_name = instruction.operands[0]
    if not isinstance(target_name, Symbol) or target_name.name not in decoder.entry.labels:
        raise ParseError(f"{instruction.place}: there is no such label")
    target = decoder.entry.labels[target_name.name]
    return lambda machine, mask, place: machine.branch(mask, place + 1, target)


def branch_by_table(decoder: Decoder, instruction: Instruction) -> Control:
    """`brx.idx`: each lane to the label that its index chooses from a table."""
    index, table = instruction.operands[:2]
    names = decoder.entry.tables.get(table.name, []) if isinstance(table, Symbol) else []
    if not names or any(name not in decoder.entry.labels for name in names):
        raise ParseError(f"{instruction.place}: there is no such table of labels")
    targets = np.array([decoder.entry.labels[name] for name in names])
    read = decoder.source(index, DTYPES["u32"])

    def control(machine, mask: np.ndarray | None, place: int) -> int:
        lanes, chosen = machine.lanes_of(mask), per_lane(read(machine), machine.lanes)
        if (wrong := lanes & (chosen >= targets.size)).any():
            lane = int(np.argmax(wrong))
            raise ParseError(
                f"{instruction.place}: {machine.describe_lane(lane)} chooses label {chosen[lane]} of {targets.size}"
            )
        return machine.branch_each(lanes, place + 1, targets[np.where(lanes, chosen, 0)])

    return control


def leave(decoder: Decoder, instruction: Instruction) -> Control:
    """`ret` and `exit`: these lanes are done."""
    return lambda machine, mask, place: machine.leave(mask, place + 1)


def trap(decoder: Decoder, instruction: Instruction) -> Control:
    """`trap`: the kernel asked to be stopped."""

    def control(machine, mask, place: int) -> int:
        lane = machine.first_lane(mask)
        raise KernelTrap(f"{instruction.place}: {machine.describe_lane(lane)} executed a trap")

    return control


def barrier(decoder: Decoder, instruction: Instruction) -> Control:
    """`bar.sync`, `barrier.sync`, `barrier.cta.sync` and their `.arrive`: by number, for all threads or a count."""
    parts = set(instruction.parts[1:])
    if parts - {"sync", "arrive", "aligned", "cta"} or not parts & {"sync", "arrive"}:
        raise Unsupported(f"{instruction.place}: the reference GPU has no {instruction.name}")
    number = decoder.source(instruction.operands[0], DTYPES["u32"])
    count = decoder.source(instruction.operands[1], DTYPES["u32"]) if len(instruction.operands) > 1 else None
    waits = "sync" in parts

    def control(machine, mask, place: int) -> int:
        lanes, which = machine.access_mask(mask), number(machine)
        if which.ndim and len(named := np.unique(which if lanes is None else which[lanes])) == 1:
            which = named[0]
        expected = None if count is None else count(machine)
        if which.ndim == 0 and (expected is None or expected.ndim == 0):
            expected = None if expected is None else int(expected)
            return machine.arrive(mask, place + 1, ("barrier", int(which)), expected, waits)
        return machine.arrive_at_several(mask, place + 1, which, expected, waits)

    return control


def warp_barrier(decoder: Decoder, instruction: Instruction) -> Control:
    """`bar.warp.sync`: the lanes of the mask wait for each other."""
    member = decoder.source(instruction.operands[0], DTYPES["u32"])
    return lambda machine, mask, place: machine.arrive_warp(mask, place + 1, member(machine))


def control_for(decoder: Decoder, instruction: Instruction) -> Control | None:
    """The control flow of an instruction, or None for one that simply goes on to the next."""
    first = instruction.parts[0]
    if first == "mbarrier":
        return mbarrier.wait(decoder, instruction) if instruction.parts[1] in mbarrier.WAITS else None
    if first == "wgmma":
        return wgmma(decoder, instruction)
    if first in ("bar", "barrier"):
        if instruction.parts[1] == "cluster":
            return cluster_barrier(decoder, instruction)
        build = warp_barrier if "warp" in instruction.parts else barrier
        return build(decoder, instruction)
    build = {"bra": branch, "brx": branch_by_table, "ret": leave, "exit": leave, "trap": trap}.get(first)
    return None if build is None else build(decoder, instruction)


CONTROL = ("bra", "brx", "ret", "exit", "trap", "bar", "barrier", "wgmma")
