"""How sizes are divided among ranks, and in which order a rank takes the parts of its peers."""

from __future__ import annotations

from collections.abc import Sequence

from gemm_ref.launch import cdiv


def part(size: int, ranks: int, rank: int) -> slice:
    """What one of the ranks has of `size`: each the same, but the last that have any, which have less or nothing.

    So the parts of all ranks, each padded to that of the first and put one after another, begin with the whole.
    """
    return nth(size, cdiv(size, ranks), rank)


def nth(size: int, step: int, index: int) -> slice:
    """What is left of `size` for one of the parts that hold `step` each."""
    return slice(min(index * step, size), min((index + 1) * step, size))


def length(piece: slice) -> int:
    """How many it holds."""
    return piece.stop - piece.start


def ring(rank: int, ranks: int) -> list[int]:
    """The peers in the order in which a rank turns to them: at each step no two ranks turn to the same one."""
    return [(rank + step) % ranks for step in range(1, ranks)]


def sent(rank: int, ranks: int) -> list[int]:
    """Whose parts of a sum a rank adds to, in turn, where each part goes round from the rank after its owner to it."""
    return [(rank - 1 - step) % ranks for step in range(ranks)]


def pieces(elements: int, least: int) -> int:
    """In how many pieces a part of C is computed and sent: in two, where each has at least `least` elements."""
    return 2 if elements >= 2 * least else 1


def gathered(size: int, ranks: int, rank: int, least: int) -> list[tuple[Sequence[int], slice]]:
    """Which peers' parts are multiplied together, in the order of `ring`: the peers, and where their parts lie.

    Parts that follow each other are joined until they hold `least`, since a small product leaves much of a GPU idle.
    """
    found: list[tuple[list[int], slice]] = []
    for peer in ring(rank, ranks):
        own = part(size, ranks, peer)
        if not length(own):
            continue
        if found and found[-1][1].stop == own.start and length(found[-1][1]) < least:
            peers, before = found[-1]
            found[-1] = ([*peers, peer], slice(before.start, own.stop))
        else:
            found.append(([peer], own))
    return list(found)
