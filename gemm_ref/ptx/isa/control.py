"""Instructions that move the program counter or make threads wait: PTX ISA, 9.7.12 and 9.7.13."""

from __future__ import annotations

import numpy as np

from gemm_ref.ptx.core.decode import Decoder, require_form
from gemm_ref.ptx.core.machine import Control, Machine, Mask
from gemm_ref.ptx.isa.cluster import cluster_barrier
from gemm_ref.ptx.text.dtypes import DTYPES, per_lane
from gemm_ref.ptx.text.errors import KernelTrap, ParseError, Unsupported
from gemm_ref.ptx.text.operands import Symbol
from gemm_ref.ptx.text.parser import Instruction
from gemm_ref.ptx.units.barriers import Reductions


def branch(decoder: Decoder, instruction: Instruction) -> Control:
    """`bra`: all lanes together where they agree, else in groups, the one that is furthest behind first."""
    target_name = instruction.operands[0]
    if not isinstance(target_name, Symbol) or target_name.name not in decoder.entry.labels:
        raise ParseError(f"{instruction.place}: there is no such label")
    target = decoder.first + decoder.entry.labels[target_name.name]
    return Control(lambda machine, mask, place: machine.schedule.branch(mask, place + 1, target))


def branch_by_table(decoder: Decoder, instruction: Instruction) -> Control:
    """`brx`: `.idx`, each lane to the label that its index chooses from a table."""
    index, table = instruction.operands[:2]
    names = decoder.entry.tables.get(table.name, []) if isinstance(table, Symbol) else []
    if not names or any(name not in decoder.entry.labels for name in names):
        raise ParseError(f"{instruction.place}: there is no such table of labels")
    targets = decoder.first + np.array([decoder.entry.labels[name] for name in names])
    read = decoder.source(index, DTYPES["u32"])

    def step(machine: Machine, mask: Mask, place: int) -> int:
        lanes, chosen = machine.lanes_of(mask), per_lane(read(machine), machine.lanes)
        if (wrong := lanes & (chosen >= targets.size)).any():
            lane = int(np.argmax(wrong))
            raise ParseError(
                f"{instruction.place}: {machine.describe_lane(lane)} chooses label {chosen[lane]} of {targets.size}"
            )
        return machine.schedule.branch_each(lanes, place + 1, targets[np.where(lanes, chosen, 0)])

    return Control(step)


def leave(decoder: Decoder, instruction: Instruction) -> Control:
    """`ret`, `exit`: these lanes are done, or back where their function was called."""
    if decoder.entry.is_function and instruction.parts[0] == "ret":

        def back(machine: Machine, mask: Mask, place: int) -> int:
            lanes = machine.lanes_of(mask)
            return machine.schedule.branch_each(lanes, place + 1, machine.calls.return_from(lanes))

        return Control(back)
    return Control(lambda machine, mask, place: machine.schedule.leave(mask, place + 1))


def trap(decoder: Decoder, instruction: Instruction) -> Control:
    """`trap`: the kernel asked to be stopped."""

    def step(machine: Machine, mask: Mask, place: int) -> int:
        raise KernelTrap(f"{instruction.place}: {machine.describe_first(machine.lanes_of(mask))} executed a trap")

    return Control(step)


def barrier(decoder: Decoder, instruction: Instruction) -> Control:
    """`bar`, `barrier`: `.sync .arrive .red` by number, for all threads or a count; `.warp.sync`, `.cluster`."""
    if instruction.parts[1] == "cluster":
        return cluster_barrier(decoder, instruction)
    if "red" in instruction.parts:
        return _reducing_barrier(decoder, instruction)
    build = _warp_barrier if "warp" in instruction.parts else _block_barrier
    return build(decoder, instruction)


def _reducing_barrier(decoder: Decoder, instruction: Instruction) -> Control:
    """`bar.red`: `.popc .and .or`, of a predicate of all threads that it opens for."""
    modes = set(instruction.parts[1:-1]) - {"red", "cta", "aligned"}
    mode = modes.pop() if len(modes) == 1 else ""
    kind = {"popc": "u32", "and": "pred", "or": "pred"}.get(mode)
    require_form(instruction.parts[-1] == kind, instruction)
    target, number, *counted, predicate = instruction.operands
    write, read = decoder.destination(target), decoder.source(predicate, DTYPES["pred"])
    which, count = (decoder.source(o, DTYPES["u32"]) if o else None for o in (number, counted[0] if counted else None))

    def step(machine: Machine, mask: Mask, place: int) -> int:
        lanes = machine.lanes_of(mask)
        named = [np.unique(per_lane(r(machine), machine.lanes)[lanes]) if r else np.array([0]) for r in (which, count)]
        if any(values.size != 1 for values in named):
            raise Unsupported(f"{instruction.place}: lanes that name different barriers in one instruction")
        key = ("barrier", int(named[0][0]))
        machine.unit(Reductions).vote(key, lanes, per_lane(read(machine), machine.lanes), write, mode)
        return machine.schedule.arrive(mask, place + 1, key, int(named[1][0]) if count else None, True)

    return Control(step)


def _block_barrier(decoder: Decoder, instruction: Instruction) -> Control:
    """`bar.sync`, `barrier.sync`, `barrier.cta.sync` and their `.arrive`."""
    parts = set(instruction.parts[1:])
    known = {"sync", "arrive", "aligned", "cta"}
    require_form(parts <= known and bool(parts & {"sync", "arrive"}), instruction)
    number = decoder.source(instruction.operands[0], DTYPES["u32"])
    count = decoder.source(instruction.operands[1], DTYPES["u32"]) if len(instruction.operands) > 1 else None
    waits = "sync" in parts

    def step(machine: Machine, mask: Mask, place: int) -> int:
        lanes, which = machine.access_mask(mask), number(machine)
        if which.ndim and len(named := np.unique(which if lanes is None else which[lanes])) == 1:
            which = named[0]
        expected = None if count is None else count(machine)
        if which.ndim == 0 and (expected is None or expected.ndim == 0):
            expected = None if expected is None else int(expected)
            return machine.schedule.arrive(mask, place + 1, ("barrier", int(which)), expected, waits)
        return machine.schedule.arrive_at_several(mask, place + 1, which, expected, waits)

    return Control(step)


def _warp_barrier(decoder: Decoder, instruction: Instruction) -> Control:
    """`bar.warp.sync`: the lanes of the mask wait for each other."""
    member = decoder.source(instruction.operands[0], DTYPES["u32"])
    return Control(lambda machine, mask, place: machine.schedule.arrive_warp(mask, place + 1, member(machine)))
