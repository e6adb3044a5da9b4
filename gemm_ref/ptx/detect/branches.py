"""Whether two instructions are on the two sides of one branch, between it and where its sides meet again."""

from __future__ import annotations

from collections.abc import Sequence

from gemm_ref.ptx.text.operands import Symbol
from gemm_ref.ptx.text.parser import Entry, Instruction

_LEAVES = ("ret", "exit", "trap")


def are_sides(entry: Entry, first: Instruction, second: Instruction) -> bool:
    """Whether a thread that passes a branch may come to one of the two or to the other, and then goes on as one."""
    following = [_following(entry, place) for place in range(len(entry.instructions))]
    behind = _post_dominators(following)
    places = {id(instruction): place for place, instruction in enumerate(entry.instructions)}
    if id(first) not in places or id(second) not in places:
        return False  # in a function that the kernel calls
    x, y = places[id(first)], places[id(second)]
    for branch, targets in enumerate(following):
        if len(targets) > 1:
            ways = [place for place in _bits(behind[branch]) if place != branch]
            meet = max(ways, key=lambda place: behind[place].bit_count())
            own = [{x, y} & _reached(following, target, meet) for target in targets]
            if {x} in own and {y} in own:
                return True
    return False


def _following(entry: Entry, place: int) -> Sequence[int]:
    """The places that may come next; one behind the last instruction stands for having left."""
    instruction, end = entry.instructions[place], len(entry.instructions)
    opcode = instruction.parts[0]
    targets: list[int] = []
    if opcode == "bra" and isinstance(instruction.operands[0], Symbol):
        targets = [entry.labels[instruction.operands[0].name]]
    elif opcode == "brx" and isinstance(instruction.operands[1], Symbol):
        targets = [entry.labels[name] for name in entry.tables[instruction.operands[1].name]]
    elif opcode in _LEAVES:
        targets = [end]
    if not targets or instruction.guard:
        targets.append(place + 1)
    return tuple(dict.fromkeys(targets))


def _post_dominators(following: Sequence[Sequence[int]]) -> list[int]:
    """For each place, as bits, those that every way from it to the end goes through; it is one of them."""
    end = len(following)
    everything = (1 << end + 1) - 1
    behind = [everything] * end + [1 << end]
    changed = True
    while changed:
        changed = False
        for place in reversed(range(end)):
            found = everything
            for target in following[place]:
                found &= behind[target]
            found |= 1 << place
            if found != behind[place]:
                behind[place], changed = found, True
    return behind


def _reached(following: Sequence[Sequence[int]], start: int, stop: int) -> set[int]:
    """The places that one comes to from `start` before `stop`."""
    found: set[int] = set()
    left = [start]
    while left:
        place = left.pop()
        if place != stop and place < len(following) and place not in found:
            found.add(place)
            left += following[place]
    return found


def _bits(number: int) -> list[int]:
    return [place for place, bit in enumerate(reversed(f"{number:b}")) if bit == "1"]
