"""How sizes are divided among ranks, and the order in which a rank takes the parts of its peers."""

from __future__ import annotations

from collections.abc import Sequence

from gemm_ref.launch import cdiv


def rank_slice(size: int, ranks: int, rank: int) -> slice:
    """The indices that a rank owns: ceil(size / ranks) of them, and fewer or none on the last ranks.

    So the slices of all ranks, each padded to the length of the first and concatenated, begin with the whole.
    """
    return chunk_slice(size, cdiv(size, ranks), rank)


def chunk_slice(size: int, chunk: int, index: int) -> slice:
    """The indices of the chunk number `index`, cut off at `size`."""
    return slice(min(index * chunk, size), min((index + 1) * chunk, size))


def slice_length(indices: slice) -> int:
    """The number of indices of a slice without a step."""
    return indices.stop - indices.start


def peer_order(rank: int, ranks: int) -> list[int]:
    """The peers in the order in which a rank addresses them: at each step no two ranks address the same one."""
    return [(rank + step) % ranks for step in range(1, ranks)]


def reduce_scatter_order(rank: int, ranks: int) -> list[int]:
    """Ring order of the reduce-scatter: each part starts at its owner's successor and ends at its owner."""
    return [(rank - 1 - step) % ranks for step in range(ranks)]


def count_pieces(elements: int, min_elements: int) -> int:
    """A part of C is computed and sent in two pieces if each has at least `min_elements`, else in one."""
    return 2 if elements >= 2 * min_elements else 1


def group_peers(size: int, ranks: int, rank: int, min_length: int) -> list[tuple[Sequence[int], slice]]:
    """The peers whose parts are multiplied together, and the indices of those parts, in the order of `peer_order`.

    Adjacent parts are joined until they have `min_length` indices, since a small product leaves most of a GPU idle.
    """
    groups: list[tuple[list[int], slice]] = []
    for peer in peer_order(rank, ranks):
        part = rank_slice(size, ranks, peer)
        if not slice_length(part):
            continue
        if groups and groups[-1][1].stop == part.start and slice_length(groups[-1][1]) < min_length:
            peers, before = groups[-1]
            groups[-1] = ([*peers, peer], slice(before.start, part.stop))
        else:
            groups.append(([peer], part))
    return list(groups)
