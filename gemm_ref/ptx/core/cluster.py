"""Addresses in the shared memory of a cluster's blocks.

A `shared::cluster` address below REMOTE is one of the executing block's own shared memory, as every `shared::cta`
address is; above, its upper bits say whose it is. `mapa` makes such addresses.
"""

from __future__ import annotations

import math

import numpy as np

from gemm_ref.ptx.core.machine import Machine
from gemm_ref.ptx.core.memory import SHARED_WINDOW
from gemm_ref.ptx.text.dtypes import UNSIGNED, Value, per_lane
from gemm_ref.ptx.text.errors import AsyncFault, MemoryFault
from gemm_ref.ptx.text.parser import Instruction

_RANK_BITS = 24  # where a remote address has its block's rank, plus 1
REMOTE = 1 << _RANK_BITS


def with_rank(offsets: np.ndarray, rank: np.ndarray) -> np.ndarray:
    """The addresses of the same places in the shared memory of the blocks of these ranks."""
    return np.where(offsets >= REMOTE, offsets & REMOTE - 1, offsets) | rank + 1 << _RANK_BITS


def rank_of(offsets: np.ndarray) -> np.ndarray:
    """The rank that each address names; -1 for one of the executing block's own."""
    return (offsets >> _RANK_BITS) - 1


def locate(
    machine: Machine, instruction: Instruction, lanes: np.ndarray, addresses: Value, size: int, align: int
) -> tuple[np.ndarray, np.ndarray]:
    """(block of the machine, byte in its shared memory) for lane numbers that access `size` bytes at these addresses.

    Addresses: of all lanes, or one for all; shared, shared::cluster or generic. Raises MemoryFault for one that is
    out of bounds or misaligned, and AsyncFault for one in a block whose threads have all left.
    """
    own = machine.block_index[lanes]
    chosen = per_lane(addresses.view(UNSIGNED[addresses.dtype.itemsize]).astype(np.int64), machine.lanes)[lanes]
    offsets = np.where(chosen >= SHARED_WINDOW, chosen - SHARED_WINDOW, chosen)
    rank, offsets = rank_of(offsets), offsets & REMOTE - 1
    blocks_of = math.prod(machine.launch.cluster)
    wrong = (rank >= blocks_of) | (offsets + size > machine.shared.size) | (offsets % align != 0)
    if wrong.any():
        at = int(np.argmax(wrong))
        raise MemoryFault(
            f"{instruction.origin}: {machine.describe_lane(int(lanes[at]))} accesses {size} bytes at byte "
            f"{int(offsets[at])} of shared memory ({machine.shared.size} bytes; address {int(chosen[at]):#x}), which "
            f"is {'not at a multiple of ' + str(align) if offsets[at] % align else 'out of bounds'}"
        )
    blocks = np.where(rank < 0, own, own // blocks_of * blocks_of + rank)
    if (remote := blocks != own).any():
        require_running(machine, instruction, blocks[remote])
    return blocks, offsets


def require_running(machine: Machine, instruction: Instruction, blocks: np.ndarray) -> None:
    """Raise AsyncFault if all threads of one of these blocks of the machine have left: its shared memory is gone."""
    running = np.zeros(int(machine.block_index[-1]) + 1, bool)
    running[machine.block_index[machine.living()]] = True
    if not running[blocks].all():
        block = int(blocks[np.argmin(running[blocks])])
        lane = int(np.argmax(machine.block_index == block))
        raise AsyncFault(
            f"{instruction.origin}: shared memory of {machine.describe_block(lane)} is accessed by "
            "another block of its cluster after all of its threads have left: let the cluster meet at a barrier "
            "(barrier.cluster) before its blocks leave"
        )
