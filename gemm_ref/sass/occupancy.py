"""How many blocks of a kernel a multiprocessor holds at once, and what keeps it from holding more.

The limits are those of the CUDA programming guide, 'Technical Specifications per Compute Capability'; how registers
are handed out is as in `cuda_occupancy.h`, which comes with the CUDA toolkit.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType

from gemm_ref.launch import cdiv

WARP = 32
QUARTERS = 4  # each has its own warps and a quarter of the registers
REGISTER_UNIT = 256  # a warp's registers are handed out in pieces of this many
SHARED_UNIT = 128  # and a block's shared memory in pieces of so many bytes


@dataclass(frozen=True)
class Multiprocessor:
    """The limits of one architecture."""

    capability: tuple[int, int]
    shared_bytes: int  # at the largest share of the L1 cache
    shared_bytes_per_block: int  # that a block can ask for
    registers: int = 65536
    threads: int = 2048
    blocks: int = 32
    reserved_bytes: int = 1024  # of shared memory, in each block


ARCHITECTURES = MappingProxyType(
    {
        "sm_80": Multiprocessor((8, 0), 164 * 1024, 163 * 1024),
        "sm_90a": Multiprocessor((9, 0), 228 * 1024, 227 * 1024),
        "sm_100a": Multiprocessor((10, 0), 228 * 1024, 227 * 1024),
    }
)


def requested_bytes(sm: Multiprocessor, in_cubin: int, dynamic_bytes: int) -> int:
    """Shared memory that a block asks for: what the cubin says, without what the system reserves, and the launch's.

    From sm_90 on the cubin's figure has what is reserved in it, where the kernel uses shared memory at all.
    """
    reserved = sm.reserved_bytes if sm.capability >= (9, 0) and in_cubin else 0
    return in_cubin - reserved + dynamic_bytes


@dataclass(frozen=True)
class Occupancy:
    """`share` is of the warps that a multiprocessor can hold; `limited_by` names what runs out first, with commas."""

    blocks: int
    share: float
    limited_by: str


def occupancy(sm: Multiprocessor, threads: int, registers: int, shared_bytes: int) -> Occupancy:
    """What `sm` holds of a kernel.

    threads: of a block; registers: of a thread; shared_bytes: of a block, static and dynamic, without what is
    reserved. 0 blocks where one alone is too much.
    """
    warps = cdiv(threads, WARP)
    per_warp = cdiv(registers * WARP, REGISTER_UNIT) * REGISTER_UNIT
    warps_with_registers = QUARTERS * (sm.registers // QUARTERS // per_warp)
    shared = cdiv(shared_bytes + sm.reserved_bytes, SHARED_UNIT) * SHARED_UNIT
    limits = {
        "threads": sm.threads // (warps * WARP),
        "registers": warps_with_registers // warps,
        "shared memory": sm.shared_bytes // shared if shared_bytes <= sm.shared_bytes_per_block else 0,
        "blocks": sm.blocks,
    }
    blocks = min(limits.values())
    reasons = [name for name, limit in limits.items() if limit == blocks]
    return Occupancy(blocks, blocks * warps * WARP / sm.threads, ", ".join(reasons))
