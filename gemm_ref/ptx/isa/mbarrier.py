"""The instructions of mbarriers (PTX ISA, 9.7.13.15); `units.mbarriers` has their state."""

from __future__ import annotations

import numpy as np

from gemm_ref.ptx.core.decode import Decoder, require_form
from gemm_ref.ptx.core.machine import Control, Execute, Machine, Mask
from gemm_ref.ptx.text.dtypes import DTYPES, per_lane
from gemm_ref.ptx.text.errors import AsyncFault, ParseError
from gemm_ref.ptx.text.operands import Address
from gemm_ref.ptx.text.parser import Instruction
from gemm_ref.ptx.units.mbarriers import MAX_COUNT, MBarriers, Words

_SPACES = {"shared", "shared::cta", "shared::cluster"}
_ORDERS = {"release", "acquire", "relaxed", "cta", "cluster"}
_FORMS: dict[str, set[str]] = {
    **dict.fromkeys(("init", "inval", "expect_tx", "complete_tx", "pending_count"), set()),
    **dict.fromkeys(("arrive", "arrive_drop"), {"expect_tx", "noComplete"}),
    **dict.fromkeys(("try_wait", "test_wait"), {"parity"}),
}


def _parse(instruction: Instruction) -> tuple[str, set[str]]:
    """Return the operation and its form. Raises Unsupported for an unknown modifier."""
    operation, *modifiers = instruction.parts[1:-1]
    form = set(modifiers) - _SPACES - _ORDERS
    known = operation in _FORMS and form <= _FORMS[operation] and len(form) <= 1
    require_form(known and instruction.parts[-1] == "b64", instruction)
    return operation, form


def mbarrier(decoder: Decoder, instruction: Instruction) -> Execute | Control:
    """`mbarrier`: `.init .inval .expect_tx .complete_tx .arrive .arrive_drop .try_wait .test_wait .pending_count`."""
    operation, form = _parse(instruction)
    if operation in ("try_wait", "test_wait"):
        return _wait(decoder, instruction, by_parity=bool(form))
    operands = list(instruction.operands)
    if operation == "pending_count":
        to, state = decoder.destination(operands[0]), decoder.source(operands[1], DTYPES["u64"])
        return lambda machine, mask: to(machine, (state(machine) & np.uint64(MAX_COUNT)).astype(np.uint32), mask)
    arrives = operation.startswith("arrive")
    returned = operands.pop(0) if arrives and not isinstance(operands[0], Address) else None
    write = None if returned is None else decoder.destination(returned)
    where = decoder.place(operands[0])
    number = decoder.source(operands[1], DTYPES["u32"]) if len(operands) > 1 else None
    if number is None and (operation in ("init", "expect_tx", "complete_tx") or form & {"expect_tx", "noComplete"}):
        raise ParseError(f"{instruction.origin}: its count is missing")

    def execute(machine: Machine, mask: Mask) -> None:
        barriers = machine.unit(MBarriers)
        active = machine.lanes_of(mask)
        lanes = np.flatnonzero(active)
        numbers = barriers.numbers(instruction, lanes, where(machine))
        count = np.ones(lanes.size, np.int64)
        if number is not None:
            count = per_lane(number(machine), machine.lanes)[lanes].astype(np.int64)
        if operation == "init":
            barriers.initialise(instruction, lanes, numbers, count)
            return
        barriers.tell_use(instruction, lanes, numbers)
        if operation == "inval":
            barriers.invalidate(instruction, numbers)
        elif operation == "expect_tx":
            barriers.expect(instruction, numbers, count)
        elif operation == "complete_tx":
            barriers.complete(instruction, numbers, count)
        else:
            words = barriers.words(instruction, numbers)
            if write is not None:
                state = np.zeros(machine.lanes, np.uint64)
                state[lanes] = words.pack()
                write(machine, state, active)
            if "expect_tx" in form:
                barriers.expect(instruction, numbers, count)
                count = np.ones(lanes.size, np.int64)
            if "noComplete" in form and (words.pending <= count).any():
                raise AsyncFault(f"{instruction.origin}: this arrival would end a phase, and it says noComplete")
            barriers.tell(instruction, lanes, numbers)
            barriers.arrive(instruction, numbers, count, operation == "arrive_drop")

    return execute


def _wait(decoder: Decoder, instruction: Instruction, by_parity: bool) -> Control:
    """Build `try_wait` and `test_wait` for the end of the phase of a state or a parity."""
    write = decoder.destination(instruction.operands[0])
    where = decoder.place(instruction.operands[1])
    parity = decoder.source(instruction.operands[2], DTYPES["u32" if by_parity else "u64"])

    def step(machine: Machine, mask: Mask, place: int) -> int:
        lanes = np.flatnonzero(machine.lanes_of(mask))
        barriers = machine.unit(MBarriers)
        numbers = barriers.numbers(instruction, lanes, where(machine))
        barriers.tell_use(instruction, lanes, numbers)
        phase = per_lane(parity(machine), machine.lanes)[lanes]
        parities = phase.astype(np.int64) & 1 if by_parity else Words.unpack(phase).parity
        return barriers.wait(instruction, lanes, numbers, parities, write, mask, place + 1)

    return Control(step)
