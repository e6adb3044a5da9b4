"""Instructions in which lanes of a warp exchange data: shfl, vote, redux, match, elect (PTX ISA, 9.7.9 and 9.7.13)."""

from __future__ import annotations

import re

import numpy as np

from gemm_ref.ptx.core.decode import Decoder, match_form
from gemm_ref.ptx.core.machine import Control, Execute, Machine, Mask, Read, Write
from gemm_ref.ptx.text.dtypes import DTYPES, Value, per_lane
from gemm_ref.ptx.text.operands import Operand, Pair
from gemm_ref.ptx.text.parser import Instruction
from gemm_ref.ptx.units.warps import ALL, Warps

_U32, _PRED = DTYPES["u32"], DTYPES["pred"]


def _destinations(decoder: Decoder, operand: Operand) -> list[Write]:
    """Return writers of `d` or `d|p`."""
    pair = (operand.first, operand.second) if isinstance(operand, Pair) else (operand, None)
    return [decoder.destination(item) for item in pair]


def shuffle(decoder: Decoder, instruction: Instruction) -> Control:
    """`shfl`: `.sync.up .down .bfly .idx`, a lane's value from another lane of its warp.

    What a lane gets from one that does not take part is undefined, and is all ones here (NaN), so that using it shows.
    """
    mode = match_form(r"shfl\.sync\.(up|down|bfly|idx)\.b32", instruction)[1]
    write, write_valid = _destinations(decoder, instruction.operands[0])
    value, lane_operand, clamp, member = (decoder.source(operand, _U32) for operand in instruction.operands[1:5])

    def execute(machine: Machine, mask: Mask) -> None:
        lane = machine.special("%laneid").astype(np.int64)
        b = (lane_operand(machine) & np.uint32(31)).astype(np.int64)
        c = clamp(machine).astype(np.int64)
        segment, bound = c >> 8 & 31, c & 31
        highest, lowest = (lane & segment) | (bound & ~segment), lane & segment
        source = {"up": lane - b, "down": lane + b, "bfly": lane ^ b, "idx": lowest | (b & ~segment)}[mode]
        valid = source >= highest if mode == "up" else source <= highest
        source = np.where(valid, source, lane)
        first = np.arange(machine.lanes) - lane
        last = np.minimum(first + 31, (machine.block_index + 1) * machine.launch.threads - 1)  # a partial last warp
        values = per_lane(value(machine), machine.lanes)
        given = values[np.minimum(first + source, last)]
        if not _is_converged(machine, mask, member(machine)):
            takes_part = machine.ballot(machine.lanes_of(mask)) & member(machine)
            given = np.where(takes_part >> source.astype(np.uint32) & 1, given, ALL)
        write(machine, given, mask)
        write_valid(machine, valid, mask)

    return together(execute, member)


def vote(decoder: Decoder, instruction: Instruction) -> Control:
    """`vote`: `.sync.all .any .uni .ballot` of a predicate over the warp's active lanes."""
    mode = match_form(r"vote\.sync\.(?:(all|any|uni)\.pred|ballot\.b32)", instruction)[1]
    write = decoder.destination(instruction.operands[0])
    predicate, member = decoder.source(instruction.operands[1], _PRED), decoder.source(instruction.operands[2], _U32)

    def execute(machine: Machine, mask: Mask) -> None:
        active = machine.lanes_of(mask)
        here = machine.ballot(active) & member(machine)
        true = machine.ballot(per_lane(predicate(machine), machine.lanes) & active) & here
        result = {"all": true == here, "any": true != 0, "uni": (true == here) | (true == 0), None: true}[mode]
        write(machine, result, mask)

    return together(execute, member)


_REDUX = re.compile(r"redux\.sync\.((?:add|min|max)(?=\.[us]32)|(?:and|or|xor)(?=\.b32))\.([usb]32)")
_COMBINE: dict[str, np.ufunc] = {"add": np.add, "min": np.minimum, "max": np.maximum}
_COMBINE |= {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}


def reduce(decoder: Decoder, instruction: Instruction) -> Control:
    """`redux`: `.sync.add .min .max .and .or .xor` of a number of 32 bits over the warp's lanes that the mask names."""
    mode, kind = match_form(_REDUX, instruction).groups()
    combine, dtype = _COMBINE[mode], DTYPES[kind]
    write = decoder.destination(instruction.operands[0])
    value, member = decoder.source(instruction.operands[1], dtype), decoder.source(instruction.operands[2], _U32)

    def execute(machine: Machine, mask: Mask) -> None:
        lanes = np.flatnonzero(machine.lanes_of(mask))
        warps = lanes - machine.special("%laneid")[lanes]  # by their first lanes
        named = per_lane(member(machine), machine.lanes)[lanes].astype(np.int64)
        _, group, counts = np.unique(warps << 32 | named, return_inverse=True, return_counts=True)
        values, found = per_lane(value(machine), machine.lanes)[lanes], np.zeros(machine.lanes, dtype)
        found[lanes] = combine.reduceat(values[np.argsort(group)], np.cumsum(counts) - counts)[group]
        write(machine, found, mask)

    return together(execute, member)


def match(decoder: Decoder, instruction: Instruction) -> Control:
    """`match`: `.any .all`, the lanes of the mask that have a lane's value; all of it if all have the same."""
    mode, kind = match_form(r"match\.(any|all)\.sync\.(b32|b64)", instruction).groups()
    write, write_all = _destinations(decoder, instruction.operands[0])
    value = decoder.source(instruction.operands[1], DTYPES[kind])
    member = decoder.source(instruction.operands[2], _U32)

    def execute(machine: Machine, mask: Mask) -> None:
        active = machine.lanes_of(mask)
        lanes, laneid = np.flatnonzero(active), machine.special("%laneid")
        everyone = machine.ballot(active) & member(machine)
        first = (lanes - laneid[lanes]).astype(np.uint64)
        keys = np.stack([first, per_lane(value(machine), machine.lanes)[lanes].astype(np.uint64)])
        _, group = np.unique(keys, axis=1, return_inverse=True)
        bits, same = np.zeros(group.max(initial=0) + 1, np.uint32), np.zeros(machine.lanes, np.uint32)
        np.bitwise_or.at(bits, group.ravel(), np.uint32(1) << laneid[lanes])
        same[lanes] = bits[group.ravel()]
        same &= everyone
        agree = same == everyone
        write(machine, same if mode == "any" else np.where(agree, same, np.uint32(0)), mask)
        write_all(machine, agree, mask)

    return together(execute, member)


def active_mask(decoder: Decoder, instruction: Instruction) -> Execute:
    """`activemask`: the lanes of the warp that execute this together."""
    write = decoder.destination(instruction.operands[0])

    def execute(machine: Machine, mask: Mask) -> None:
        write(machine, machine.ballot(machine.lanes_of(mask)), mask)

    return execute


def elect(decoder: Decoder, instruction: Instruction) -> Control:
    """`elect`: `.sync`, the lowest lane of the member mask is the leader."""
    write, write_leader = _destinations(decoder, instruction.operands[0])
    member = decoder.source(instruction.operands[1], _U32)

    def execute(machine: Machine, mask: Mask) -> None:
        members = machine.ballot(machine.lanes_of(mask)) & member(machine)
        leader = np.bitwise_count((members & (~members + np.uint32(1))) - np.uint32(1)).astype(np.uint32)
        write(machine, leader, mask)
        write_leader(machine, machine.special("%laneid") == leader, mask)

    return together(execute, member)


def together(execute: Execute, member: Read | None = None) -> Control:
    """Return an instruction that lanes of a warp execute together: those of a member mask, or all.

    They wait for each other. It raises WarpFault if that is impossible.
    """

    def step(machine: Machine, mask: Mask, place: int) -> int:
        if not _is_converged(machine, mask, None if member is None else member(machine)):
            warps = machine.unit(Warps)
            if not warps.are_together(mask, member):
                return warps.wait(mask, place, member)
        execute(machine, mask)
        return place + 1

    return Control(step)


def _is_converged(machine: Machine, mask: Mask, named: Value | None) -> bool:
    """Return whether all lanes of complete warps are active, and all are in the member mask."""
    here = mask is None and machine.active is None and machine.alive is None and machine.launch.threads % 32 == 0
    return here and (named is None or (named.ndim == 0 and named == ALL))
