"""Instructions in which the lanes of a warp see each other: shfl, vote, activemask, elect (PTX ISA, 9.7.9, 9.7.13)."""

from __future__ import annotations

import numpy as np

from gemm_ref.ptx.core.context import Execute, Machine, Mask, Write
from gemm_ref.ptx.core.decode import Decoder
from gemm_ref.ptx.text.dtypes import DTYPES, Value, per_lane
from gemm_ref.ptx.text.errors import Unsupported
from gemm_ref.ptx.text.parser import Instruction, Operand, Pair

_U32, _PRED = DTYPES["u32"], DTYPES["pred"]


def _destinations(decoder: Decoder, operand: Operand) -> list[Write | None]:
    """Writers of `d` or `d|p`; None for a sink."""
    pair = (operand.first, operand.second) if isinstance(operand, Pair) else (operand, None)
    return [None if item is None else decoder.destination(item) for item in pair]


def shuffle(decoder: Decoder, instruction: Instruction) -> Execute:
    """`shfl`: `.sync.up .down .bfly .idx`, a lane's value from another lane of its warp."""
    mode = instruction.parts[2]
    write, write_valid = _destinations(decoder, instruction.operands[0])
    if instruction.name not in {f"shfl.sync.{mode}.b32" for mode in ("up", "down", "bfly", "idx")}:
        raise Unsupported(f"the reference GPU has no {instruction.name}")
    value, lane_operand, clamp, member = (decoder.source(operand, _U32) for operand in instruction.operands[1:5])

    def execute(machine: Machine, mask: Mask) -> None:
        _require_members(machine, mask, member(machine), instruction)
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
        if write is not None:
            write(machine, values[np.minimum(first + source, last)], mask)
        if write_valid is not None:
            write_valid(machine, valid, mask)

    return execute


def vote(decoder: Decoder, instruction: Instruction) -> Execute:
    """`vote`: `.sync.all .any .uni .ballot` of a predicate over the warp's active lanes."""
    mode = instruction.parts[2]
    write = decoder.destination(instruction.operands[0])
    if instruction.name not in {f"vote.sync.{form}" for form in ("all.pred", "any.pred", "uni.pred", "ballot.b32")}:
        raise Unsupported(f"the reference GPU has no {instruction.name}")
    predicate, member = decoder.source(instruction.operands[1], _PRED), decoder.source(instruction.operands[2], _U32)

    def execute(machine: Machine, mask: Mask) -> None:
        _require_members(machine, mask, member(machine), instruction)
        active = machine.lanes_of(mask)
        here = machine.schedule.ballot(active) & member(machine)
        true = machine.schedule.ballot(per_lane(predicate(machine), machine.lanes) & active) & here
        result = {"all": true == here, "any": true != 0, "uni": (true == here) | (true == 0), "ballot": true}[mode]
        write(machine, result, mask)

    return execute


def active_mask(decoder: Decoder, instruction: Instruction) -> Execute:
    """`activemask`: the lanes of the warp that execute this together."""
    write = decoder.destination(instruction.operands[0])

    def execute(machine: Machine, mask: Mask) -> None:
        write(machine, machine.schedule.ballot(machine.lanes_of(mask)), mask)

    return execute


def elect(decoder: Decoder, instruction: Instruction) -> Execute:
    """`elect`: `.sync`, the lowest lane of the member mask is the leader."""
    write, write_leader = _destinations(decoder, instruction.operands[0])
    member = decoder.source(instruction.operands[1], _U32)

    def execute(machine: Machine, mask: Mask) -> None:
        members = machine.schedule.ballot(machine.lanes_of(mask)) & member(machine)
        leader = np.bitwise_count((members & (~members + np.uint32(1))) - np.uint32(1)).astype(np.uint32)
        if write is not None:
            write(machine, leader, mask)
        if write_leader is not None:
            write_leader(machine, machine.special("%laneid") == leader, mask)

    return execute


def _require_members(machine: Machine, mask: Mask, member: Value, instruction: Instruction) -> None:
    """A GPU would wait here for the lanes of the member mask that are elsewhere; the reference GPU refuses."""
    active = machine.access_mask(mask)
    if active is None or (mask is None and machine.schedule.active is None):
        return
    alive = machine.living()
    if (active & ((machine.schedule.ballot(alive & ~active) & member) != 0)).any():
        raise Unsupported(f"{instruction.place}: {instruction.name} while some lanes of the warp are elsewhere")


def require_whole_warps(machine: Machine, mask: Mask, instruction: Instruction) -> None:
    """An instruction of the warp needs all lanes of it. Raises Unsupported where some are elsewhere."""
    active = machine.access_mask(mask)
    if machine.launch.threads % 32 == 0:
        if active is None:
            return
        warps = active.reshape(-1, 32)
        if not (warps.any(1) & ~warps.all(1)).any():
            return
    raise Unsupported(f"{instruction.place}: {instruction.name} while some lanes of the warp are elsewhere")
