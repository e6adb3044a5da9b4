"""Memory accesses of many lanes: their state space, the checks, and the values (PTX ISA, 5.1 and 6.4).

A `shared::cluster` address below REMOTE is one of the executing block's own shared memory, as every `shared::cta`
address is; above, its upper bits hold the rank of the block that owns it. `mapa` makes such addresses.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gemm_ref.ptx.core.decode import Decoder, expect
from gemm_ref.ptx.core.events import Access
from gemm_ref.ptx.core.machine import Machine, Mask
from gemm_ref.ptx.core.memory import LOCAL_WINDOW, PARAMETER_WINDOW, SHARED_BASE, SHARED_WINDOW, Block, Footprint
from gemm_ref.ptx.text.dtypes import UNSIGNED, Value, per_lane
from gemm_ref.ptx.text.errors import AsyncFault, MemoryFault, Unsupported
from gemm_ref.ptx.text.operands import Address, Operand
from gemm_ref.ptx.text.parser import Instruction

SPACES = {"global": "global", "shared": "shared", "shared::cta": "shared", "local": "local", "const": "global"}
SPACES |= {"param": "param", "param::entry": "param", "param::func": "param"}
SPACES["shared::cluster"] = "shared::cluster"  # an address there says whose it is; a block's own are among them
_BEFORE_WINDOW = 1 << 32


@dataclass(frozen=True)
class Piece:
    """The part of an access that is in one memory block: some lanes, or all if `lanes` is None."""

    block: Block
    start: int  # a lane's first element in block.view(width) is index + start
    index: Value
    lanes: np.ndarray | None

    def view(self, width: int, element: int = 0) -> np.ndarray:
        """Return the elements of `width` bytes in which `index` addresses the vector element number `element`."""
        return self.block.view(width)[self.start + element :]


class Accessor:
    """Resolves the address operand of one instruction to pieces of memory, with all checks."""

    def __init__(self, decoder: Decoder, instruction: Instruction, operand: Operand, space: str, size: int, width: int):
        address = expect(operand, Address)
        self.instruction = instruction
        self.offset = address.offset
        self.space = space
        self.size = size  # bytes per lane
        self.width = width  # bytes of one element of a vector access
        self.base = decoder.address(address)

    def locate(self, machine: Machine, mask: Mask, kind: str | None, values: Sequence[Value] = ()) -> list[Piece]:
        """Check the access, tell observers of it, and return its pieces; none if no lane takes part.

        kind, values: those of `Access`; None if observers know these bytes from another access.
        """
        footprint = machine.footprint(self.base(machine))
        offset, space = self.offset, self.space
        active = machine.access_mask(mask)
        every = footprint
        if active is not None:
            if not np.count_nonzero(active):
                return []
            if not footprint.uniform:  # inactive lanes may hold any address
                footprint = footprint.among(active)
        if space == "generic":
            space, offset = self._resolve_generic(footprint)
            kind = None if space == "param" else kind  # read-only
        if space != self.space or space == "shared::cluster":
            if space.startswith("shared") and footprint.high + offset >= REMOTE:
                return self._locate_in_cluster(machine, every.addresses + offset, active, kind)
            space = "shared" if space == "shared::cluster" else space
        if machine.observers and kind:
            addresses = every.addresses + (offset - SHARED_BASE if space == "shared" else offset)
            access = Access(self.instruction, kind, space, self.size, addresses, active, machine, values=values)
            machine.observe(access)
        if not ((footprint.low_bits | offset) & (self.size - 1)):
            low, high = footprint.low + offset, footprint.high + offset
            for block in machine.blocks(space):
                if block.holds(low, high, self.size):
                    start, index = offset // self.width, footprint.index(block, self.width)
                    if start < 0 or footprint.low < block.first:  # a view cannot begin before its block
                        start, index = 0, index + start
                    return [Piece(block, start, index, active)]
        return self._locate_lane_by_lane(machine, footprint, offset, space, active)

    def _locate_in_cluster(self, machine: Machine, addresses: Value, active: Mask, kind: str | None) -> list[Piece]:
        """Resolve an access in which some lanes address shared memory of another block of the cluster."""
        lanes = np.arange(machine.lanes) if active is None else np.flatnonzero(active)
        blocks, offsets = locate_shared(machine, self.instruction, lanes, addresses, self.size, self.size)
        places, owners = np.zeros((2, machine.lanes), np.int64)
        places[lanes], owners[lanes] = offsets, blocks
        if machine.observers and kind:
            machine.observe(Access(self.instruction, kind, "shared", self.size, places, active, machine, owners))
        index = (places + owners * machine.shared.stride) >> (self.width.bit_length() - 1)
        return [Piece(machine.shared, 0, index, active)]

    def access(self, machine: Machine, kind: str, lanes: np.ndarray | None) -> Access:
        """Return the access that `locate` has reported, for these lanes; not for generic addresses."""
        offset = self.offset - SHARED_BASE if self.space == "shared" else self.offset
        addresses = machine.footprint(self.base(machine)).addresses + offset
        return Access(self.instruction, kind, self.space, self.size, addresses, lanes, machine)

    def _locate_lane_by_lane(
        self, machine: Machine, footprint: Footprint, offset: int, space: str, active
    ) -> list[Piece]:
        """Resolve an access whose lanes are not all within the bounds of one memory block."""
        addresses = per_lane(footprint.addresses, machine.lanes) + offset
        waiting = np.ones(machine.lanes, bool) if active is None else active.copy()
        misaligned = waiting & ((addresses & (self.size - 1)) != 0)
        if misaligned.any():
            self._fault(machine, addresses, misaligned, space, f"is not at a multiple of {self.size}")
        pieces = []
        for block in machine.blocks(space):
            inside = waiting & (addresses >= block.first) & (addresses + self.size <= block.first + block.size)
            if inside.any():
                safe = np.where(inside, addresses, addresses[np.argmax(inside)])
                pieces.append(Piece(block, 0, block.index(safe, self.width), inside))
                waiting &= ~inside
        if waiting.any():
            self._fault(machine, addresses, waiting, space, "is out of bounds")
        return pieces

    def _resolve_generic(self, footprint: Footprint) -> tuple[str, int]:
        """Return the state space of generic addresses, and the offset that makes them addresses of that space."""
        space, window = _space_of(footprint.low)
        if _space_of(footprint.high) != (space, window):
            raise Unsupported(f"{self.instruction.place}: one instruction whose lanes access different state spaces")
        return space, self.offset - window

    def _fault(self, machine: Machine, addresses: np.ndarray, wrong: np.ndarray, space: str, what: str) -> None:
        lane = int(np.argmax(wrong))
        address = int(addresses[lane])
        if space == "global":
            where = machine.memory.describe(address)
        else:
            block = machine.blocks(space)[0]
            where = f"at byte {address - block.first} of {block.name} ({block.size} bytes)"
        raise MemoryFault(
            f"{self.instruction.place}: {machine.describe_lane(lane)} accesses {self.size} bytes {where}, which {what}"
            f"; {int(wrong.sum())} lanes do (address {address:#x})"
        )


def _space_of(address: int) -> tuple[str, int]:
    """Return the state space of a generic address, and the start of that space's window."""
    # addresses just before a window belong to it: a base below an array, to which an offset is added
    for space, window in (("param", PARAMETER_WINDOW), ("local", LOCAL_WINDOW), ("shared", SHARED_WINDOW)):
        if address >= window - _BEFORE_WINDOW:
            return space, window
    return "global", 0


def gather(pieces: list[Piece], dtype: np.dtype, element: int) -> Value:
    """Return the lanes' values of the vector element number `element`, from one piece or more.

    Inactive lanes get any value.
    """
    values: Value = np.False_  # of the pieces so far
    for piece in pieces:
        # `clip` is the fast mode of take; the access is known to be in bounds
        found = piece.view(dtype.itemsize, element).take(piece.index, mode="clip").view(dtype)
        values = found if piece is pieces[0] or piece.lanes is None else np.where(piece.lanes, found, values)
    return values


def scatter(view: np.ndarray, index: Value, value: Value, lanes: np.ndarray | None) -> None:
    """Write the lanes' values; if several write to one place, the last wins, as an undefined one does on a GPU."""
    if lanes is not None:
        if not lanes.any():
            return
        index = index[lanes] if index.ndim else index
        value = value[lanes] if value.ndim else value
    if index.ndim == 0 and value.ndim:
        value = value[-1]
    view[index] = value


_RANK_BITS = 24  # where a remote address has its block's rank, plus 1
REMOTE = 1 << _RANK_BITS


def with_rank(offsets: np.ndarray, rank: np.ndarray) -> np.ndarray:
    """Return the addresses of the same places in the shared memory of the blocks with these ranks."""
    return np.where(offsets >= REMOTE, offsets & REMOTE - 1, offsets) | rank + 1 << _RANK_BITS


def rank_of(offsets: np.ndarray) -> np.ndarray:
    """Return the rank in each address; -1 for an address of the executing block itself."""
    return (offsets >> _RANK_BITS) - 1


def locate_shared(
    machine: Machine, instruction: Instruction, lanes: np.ndarray, addresses: Value, size: int, align: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return (block of the machine, byte in its shared memory) for lanes that access `size` bytes at these addresses.

    Addresses: of all lanes, or one for all; shared, shared::cluster or generic. Raises MemoryFault for one that is
    out of bounds or misaligned, and AsyncFault for one in a block whose threads have all left.
    """
    own = machine.block_index[lanes]
    chosen = per_lane(addresses.view(UNSIGNED[addresses.dtype.itemsize]).astype(np.int64), machine.lanes)[lanes]
    offsets = np.where(chosen >= SHARED_WINDOW, chosen - SHARED_WINDOW, chosen)
    rank, offsets = rank_of(offsets), (offsets & REMOTE - 1) - SHARED_BASE
    blocks_of = math.prod(machine.launch.cluster)
    outside = (offsets < 0) | (offsets + size > machine.shared.size)
    wrong = (rank >= blocks_of) | outside | (offsets % align != 0)
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
    """Raise AsyncFault if all threads of one of these blocks have exited: its shared memory does not exist any more."""
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
