"""The main loop of a kernel, and one trip through it.

A loop is natural: an edge back to a block that dominates where it comes from, with all blocks that reach that edge
without passing the loop's head (Aho, Lam, Sethi, Ullman, 'Compilers', 9.6). The main loop is the one that holds the
most floating-point operations which are not in a loop within it.

A loop may hold ways past each other: 16 bytes at once or float by float, with a next slice to load or without. The
trip that is counted is the one that computes most, of those the one that moves most bytes, and of those the one of
fewest instructions: a whole slice in the middle of aligned matrices.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

from gemm_ref.sass.listing import Block, Instruction, SassKernel, blocks
from gemm_ref.sass.mix import flop_of, moved_bytes_of


@dataclass(frozen=True)
class Loop:
    head: int
    body: frozenset[int]  # blocks, the head among them


def main_trip(kernel: SassKernel) -> tuple[Instruction, ...]:
    """The instructions of one trip through the main loop, in order; none where no loop computes anything.

    Raises ValueError for flow of control that cannot be followed.
    """
    code = blocks(kernel)
    best = max(
        natural_loops(code), key=lambda loop: (_flop_outside_inner_loops(code, loop), -len(loop.body)), default=None
    )
    if best is None or not _flop_outside_inner_loops(code, best):
        return ()
    return _trip(code, best)


def _flop_outside_inner_loops(code: Sequence[Block], loop: Loop) -> float:
    """Floating-point operations in the text of a loop, less those of the loops within it."""
    inner = {block for other in natural_loops(code) if other.body < loop.body for block in other.body}
    return sum(_flop(code[block].code) for block in loop.body - inner)


def natural_loops(code: Sequence[Block]) -> list[Loop]:
    """The natural loops, with one for all edges back to the same head."""
    dominators = _dominators(code)
    bodies: dict[int, set[int]] = {}
    for source in dominators:
        for head in code[source].successors:
            if head in dominators[source]:
                bodies.setdefault(head, {head}).update(_reaching(code, source, head))
    return [Loop(head, frozenset(body)) for head, body in bodies.items()]


def _reaching(code: Sequence[Block], source: int, head: int) -> set[int]:
    """`source` and the blocks from which it is reached without passing `head`."""
    found, waiting = {head}, [source]
    while waiting:
        block = waiting.pop()
        if block not in found:
            found.add(block)
            waiting += [other for other, its in enumerate(code) if block in its.successors]
    return found


def _dominators(code: Sequence[Block]) -> dict[int, set[int]]:
    """For each block that is reached at all, the blocks that lie on every way to it, itself among them."""
    reached, waiting = {0}, [0]
    while waiting:
        new = set(code[waiting.pop()].successors) - reached
        reached |= new
        waiting += new
    dominators = {block: set(reached) for block in reached}
    dominators[0] = {0}
    changed = True
    while changed:
        changed = False
        for block in sorted(reached - {0}):
            before = [dominators[other] for other in reached if block in code[other].successors]
            now = set.intersection(*before) | {block}
            changed |= now != dominators[block]
            dominators[block] = now
    return dominators


def _trip(code: Sequence[Block], loop: Loop) -> tuple[Instruction, ...]:
    """The way round the loop that the module's text describes; edges back to the heads of inner loops are not taken."""
    dominators = _dominators(code)

    @functools.cache
    def way(block: int) -> tuple[Instruction, ...] | None:
        """The best way from `block` back to the head; None where there is none."""
        ways: list[tuple[Instruction, ...]] = [()] if loop.head in code[block].successors else []
        onward = [other for other in code[block].successors if other in loop.body - dominators[block]]
        ways += [rest for rest in map(way, onward) if rest is not None]
        return code[block].code + max(ways, key=_worth) if ways else None

    return way(loop.head) or ()  # never empty: the head of a loop is on a way back to itself


def _worth(code: Sequence[Instruction]) -> tuple[float, int, int]:
    """What a way is chosen by; the sum over its parts, so that the best way is made of best ways."""
    return _flop(code), sum(moved_bytes_of(instruction) for instruction in code), -len(code)


def _flop(code: Sequence[Instruction]) -> float:
    return sum(flop_of(instruction) for instruction in code)
