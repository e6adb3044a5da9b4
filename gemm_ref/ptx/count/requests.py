"""The requests of each warp in one access, and what it takes to serve them by the rules of `sectors` and `banks`."""

from __future__ import annotations

import numpy as np

from gemm_ref.ptx.core.events import Access
from gemm_ref.ptx.core.lanes import Lanes
from gemm_ref.ptx.count.banks import wavefronts
from gemm_ref.ptx.count.sectors import WARP, sectors
from gemm_ref.ptx.text.dtypes import per_lane

_ROW = 16  # bytes of a row of an 8 x 8 matrix, the unit of LDSM


def rows(values: np.ndarray, machine: Lanes, missing: int | bool) -> np.ndarray:
    """Return one value per lane as (warps, 32); missing lanes of a block's last warp get `missing`."""
    launch = machine.launch
    if launch.threads % WARP == 0:
        return values.reshape(-1, WARP)
    blocks = values.reshape(-1, launch.threads)
    found = np.full((len(blocks), launch.num_warps * WARP), missing, values.dtype)
    found[:, : launch.threads] = blocks
    return found.reshape(-1, WARP)


def of_warps(access: Access) -> tuple[np.ndarray, np.ndarray]:
    """Return the addresses of an access and its active lanes, (warps, 32) each."""
    machine = access.machine
    lanes = np.ones(machine.lanes, bool) if access.lanes is None else access.lanes
    return rows(per_lane(access.addresses, machine.lanes), machine, 0), rows(lanes, machine, False)


def served(access: Access, addresses: np.ndarray, active: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return what each warp's request takes, and what it would take without bank conflicts; (warps,) each.

    These are wavefronts of shared memory, and sectors of other spaces, where both are equal. addresses, active: from
    `of_warps`, or those of the machine code. A cp.async takes `banks.line_passes` in addition.
    """
    if access.space != "shared":
        taken = sectors(addresses, active)
        return taken, taken
    return wavefronts(addresses, active, access.size, joins(access.instruction.parts[0], access.kind, access.size))


def joins(op: str, kind: str, size: int) -> bool:
    """Return whether groups of lanes with equal addresses are joined (`banks.wavefronts`): in loads, but not LDSM.

    op: an instruction's name, or its first part, in PTX or in machine code.
    """
    opcode = op.partition(".")[0]
    return kind == "load" and opcode not in ("ldmatrix", "LDSM") and not (opcode == "wmma" and size == _ROW)
