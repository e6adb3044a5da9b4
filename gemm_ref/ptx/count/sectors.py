"""Global memory as a warp asks for it: 32-byte sectors.

A request of a warp goes to the L1 cache as the set of sectors that its lanes touch (CUDA's Best Practices Guide,
'Coalesced Access to Global Memory'). 32 lanes reading 32 neighbouring floats need 4 sectors, the same float 1, floats
that are 32 bytes or more apart 32. Reading a vector of 16 bytes a lane is one request of 16 sectors.
"""

from __future__ import annotations

import numpy as np

WARP = 32
SECTOR = 32  # bytes


def sectors(addresses: np.ndarray, active: np.ndarray) -> np.ndarray:
    """Distinct sectors of each request: 0 for a warp of which no lane takes part.

    addresses (W, 32): the byte at which each lane's value or vector starts, active (W, 32): who takes part. The values
    are at multiples of their size and have 32 bytes at most, as PTX demands, so each lies in one sector.
    """
    touched = np.where(active, addresses // SECTOR, -1)  # no address is negative
    touched.sort(axis=1)
    new = touched[:, 1:] != touched[:, :-1]
    return new.sum(axis=1) + (touched[:, 0] >= 0)
