"""Shared memory as a warp asks for it: wavefronts over 32 banks of 4 bytes.

A wavefront is one pass over the banks, in which each bank gives or takes one word, to or from any number of lanes. The
rule below is fitted to the counters of an H200, and a test holds it against them (h200_shared_wavefronts.csv):

- a request of 4 bytes a lane is served as one group of 32 lanes, of 8 bytes as two groups of 16, of 16 bytes as four
  groups of 8 (so that a group asks for 128 bytes at most), and each group takes as many wavefronts as the bank
  with the most distinct words in it;
- loads of 8 and 16 bytes get groups of twice as many lanes where every lane l has the address of lane l ^ 1, or every
  lane that of lane l ^ 2. So 16 bytes that all lanes read alike cost 2 wavefronts: not 4, and not 1.

How lanes that take no part count in the second rule was not measured; here they agree with any address.

A cp.async takes more, since what it writes arrives by cache lines: each 128-byte line of global memory beyond the first
that a group's lanes read from is a wavefront of its own (`line_passes`). With that the counts of all kernels of the
ladder that copy so are the H200's to the last wavefront; a copy that only fills with zeros reads no line.
"""

from __future__ import annotations

import numpy as np

from gemm_ref.ptx.count.sectors import WARP

BANKS = 32
WORD = 4  # bytes of a bank's word
_PASS = BANKS * WORD  # bytes that a group may ask for
_WORD_BITS = 32


def wavefronts(addresses: np.ndarray, active: np.ndarray, size: int, pairs: bool) -> tuple[np.ndarray, np.ndarray]:
    """Wavefronts of each request, and its ideal: what it would take were no two of a group's words in one bank.

    addresses (W, 32): bytes, active (W, 32): who takes part, size: bytes a lane, pairs: whether groups may be joined as
    above (loads; not stores, and not the rows of ldmatrix). Returns two vectors (W,), 0 for a warp in which no lane
    takes part. The difference is what profilers call bank conflicts.
    """
    group = _groups(addresses, active, size, pairs) + WARP * np.arange(len(addresses))[:, None]  # (W, 32)
    words = addresses[..., None] // WORD + np.arange(max(1, size // WORD))  # (W, 32, words a lane)
    asked = (group[..., None] << _WORD_BITS) + words
    asked = np.unique(asked[active])
    place = (asked >> _WORD_BITS) * BANKS + asked % BANKS
    in_bank = np.bincount(place, minlength=len(addresses) * WARP * BANKS).reshape(len(addresses), WARP, BANKS)
    fullest = in_bank.max(axis=2)  # (W, groups)
    return fullest.sum(axis=1), np.count_nonzero(fullest, axis=1)


def turns(addresses: np.ndarray, active: np.ndarray, size: int, pairs: bool) -> list[tuple[int, int, int]]:
    """(lane, word, wavefront that serves it, from 0) for each word that the lanes of one request ask for.

    As `wavefronts`, with addresses and active of one warp, (32,). The words of a bank have their turns in the order of
    lanes, which the hardware does not promise.
    """
    found, begun = [], 0
    groups = _groups(addresses[None], active[None], size, pairs)[0]
    for group in np.unique(groups):
        queues: dict[int, list[int]] = {}
        for lane in np.flatnonzero((groups == group) & active):
            first = int(addresses[lane]) // WORD
            for word in range(first, first + max(1, size // WORD)):
                queue = queues.setdefault(word % BANKS, [])
                if word not in queue:
                    queue.append(word)
                found.append((int(lane), word, begun + queue.index(word)))
        begun += max(map(len, queues.values()), default=0)
    return found


def line_passes(addresses: np.ndarray, active: np.ndarray, size: int) -> np.ndarray:
    """The wavefronts that a cp.async takes for the lines it reads from, beyond those of its banks; (W,).

    addresses (W, 32): bytes of global memory, active (W, 32): who reads, size: bytes a lane copies.
    """
    groups = WARP * size // _PASS if size > WORD else 1
    group = np.arange(WARP) * groups // WARP + groups * np.arange(len(addresses))[:, None]  # (W, 32)
    asked = np.unique(((group << _WORD_BITS) + (addresses // _PASS & ((1 << _WORD_BITS) - 1)))[active])
    lines = np.bincount(asked >> _WORD_BITS, minlength=groups * len(addresses)).reshape(len(addresses), groups)
    return np.maximum(lines - 1, 0).sum(axis=1)


def _groups(addresses: np.ndarray, active: np.ndarray, size: int, pairs: bool) -> np.ndarray:
    """Which group of its request each lane is in, (W, 32)."""
    together = np.full(len(addresses), min(WARP, _PASS // max(size, WORD)))
    if pairs and size > WORD:
        together <<= _agree(addresses, active, 1) | _agree(addresses, active, 2)
    return np.arange(WARP) // together[:, None]


def _agree(addresses: np.ndarray, active: np.ndarray, distance: int) -> np.ndarray:
    """Of each warp, whether each lane l has the address of lane l ^ distance, (W,)."""
    other = np.arange(WARP) ^ distance
    return ((addresses == addresses[:, other]) | ~active | ~active[:, other]).all(axis=1)
