"""What each warp asks for with one access, and what serving it takes by the rules of `sectors` and `banks`."""

from __future__ import annotations

import numpy as np

from gemm_ref.ptx.core.events import Access
from gemm_ref.ptx.core.lanes import Lanes
from gemm_ref.ptx.count.banks import wavefronts
from gemm_ref.ptx.count.sectors import WARP, sectors
from gemm_ref.ptx.text.dtypes import per_lane

_ROW = 16  # bytes of a row of an 8 x 8 matrix that LDSM reads, and that no other part of wmma does


def rows(values: np.ndarray, machine: Lanes, missing: int | bool) -> np.ndarray:
    """One value a lane as (warps, 32); the lanes that a block's last warp lacks get `missing`."""
    launch = machine.launch
    if launch.threads % WARP == 0:
        return values.reshape(-1, WARP)
    blocks = values.reshape(-1, launch.threads)
    found = np.full((len(blocks), launch.num_warps * WARP), missing, values.dtype)
    found[:, : launch.threads] = blocks
    return found.reshape(-1, WARP)


def of_warps(access: Access) -> tuple[np.ndarray, np.ndarray]:
    """The addresses of an access, and who takes part, (warps, 32) each."""
    machine = access.machine
    lanes = np.ones(machine.lanes, bool) if access.lanes is None else access.lanes
    return rows(per_lane(access.addresses, machine.lanes), machine, 0), rows(lanes, machine, False)


def served(access: Access, addresses: np.ndarray, active: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What each warp's request takes, and what it would take without bank conflicts; (warps,) each.

    Wavefronts of shared memory; of other spaces sectors, twice the same. addresses, active: as `of_warps` gives them,
    or with those of the machine code. What a cp.async takes beyond that is `banks.line_passes`.
    """
    if access.space != "shared":
        taken = sectors(addresses, active)
        return taken, taken
    return wavefronts(addresses, active, access.size, joins(access.instruction.parts[0], access.kind, access.size))


def joins(op: str, kind: str, size: int) -> bool:
    """Whether groups of lanes that agree are joined (`banks.wavefronts`): in loads, but for rows of matrices.

    op: an instruction's name, or its first part, in PTX or in machine code.
    """
    opcode = op.partition(".")[0]
    return kind == "load" and opcode not in ("ldmatrix", "LDSM") and not (opcode == "wmma" and size == _ROW)
