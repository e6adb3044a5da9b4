"""Lanes of a warp that execute an instruction together: whoever comes first waits for the others, as on a GPU.

`.sync` instructions name the lanes in a mask (`shfl`, `vote`: those of them that have left do not count), or mean all
32 (`.aligned` ones such as `mma` and `ldmatrix`, which are undefined where one has left): PTX ISA, 9.7.9, 9.7.13 and
9.7.14.
"""

from __future__ import annotations

import functools

import numpy as np

from gemm_ref.ptx.core.machine import Machine, Mask, Read
from gemm_ref.ptx.core.schedule import Unit
from gemm_ref.ptx.text.dtypes import per_lane
from gemm_ref.ptx.text.errors import Unsupported, WarpFault
from gemm_ref.ptx.text.parser import Instruction

KEY = "collective"
ALL = np.uint32(0xFFFFFFFF)


class Warps(Unit):
    """The lanes of a machine that wait for others of their warp."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._lane = (machine.thread_of_lane % 32).astype(np.uint32)
        self._warp = machine.block_index * machine.launch.num_warps + machine.thread_of_lane // 32
        self._members: dict[int, Read | None] = {}  # of the places at which lanes have waited
        self._left: list[tuple[Instruction, np.ndarray]] = []

    def are_together(self, mask: Mask, member: Read | None) -> bool:
        """Whether all lanes that the instruction needs have come.

        member: gives the mask of lanes; None for all of the warp. Raises WarpFault where one of these has left, and
        for a lane that its own mask does not name.
        """
        here = self._machine.lanes_of(mask)
        if member is None:
            self._require_whole(here)
        elif (strange := here & (self._named(member) >> self._lane & 1 == 0)).any():
            who = self._machine.describe_first(strange)
            named = int(self._named(member)[np.argmax(strange)])
            raise WarpFault(f"{self._machine.instruction.origin}: {who} is no lane of the mask {named:#010x} it gives")
        return not (here & ~self._complete(here, member)).any()

    def wait(self, mask: Mask, place: int, member: Read | None) -> int:
        """Lanes that have come to this place wait there for the others. Returns a place."""
        self._members[place] = member
        complete = functools.partial(self._complete, member=member)
        return self._machine.schedule.assemble((KEY, place), mask, place, complete)

    def on_leave(self, instruction: Instruction, lanes: np.ndarray) -> None:
        self._left.append((instruction, lanes))
        schedule = self._machine.schedule
        for place, member in self._members.items():
            if (waiting := schedule.waiting_at((KEY, place))) is not None:
                schedule.wake((KEY, place), self._complete(waiting, member))

    def on_time_out(self) -> bool:
        alike: dict[str, np.ndarray] = {}
        for place in self._members:
            if (lanes := self._machine.schedule.waiting_at((KEY, place))) is not None:
                instruction = self._machine.instructions[place]
                warps = np.unique(self._warp[lanes])
                if np.isin(warps, alike.get(instruction.name, ())).any():
                    raise Unsupported(
                        f"{instruction.origin}: lanes of a warp meet in an {instruction.name} in several places"
                    )
                alike[instruction.name] = np.append(alike.get(instruction.name, ()), warps)
        return False

    def describe_waits(self) -> list[str]:
        machine, found = self._machine, []
        for place, member in self._members.items():
            if (lanes := machine.schedule.waiting_at((KEY, place))) is not None:
                lane = int(np.argmax(lanes))
                missing = int(self._needed(member)[lane] & ~machine.ballot(lanes)[lane])
                other = lane - lane % machine.launch.threads % 32 + (missing & -missing).bit_length() - 1
                found.append(
                    f"{machine.instructions[place].place}: {machine.describe_lane(lane)} waits for other lanes of "
                    f"its warp, of which {machine.describe_lane(other)} is elsewhere"
                )
        return found

    def _complete(self, lanes: np.ndarray, member: Read | None) -> np.ndarray:
        """Those of these lanes for whom nobody is missing."""
        return lanes & (self._needed(member) & ~self._machine.ballot(lanes) == 0)

    def _needed(self, member: Read | None) -> np.ndarray:
        """By lane, the lanes that its instruction needs."""
        return self._named(member) & self._machine.ballot(self._machine.living())

    def _named(self, member: Read | None) -> np.ndarray:
        return per_lane(ALL if member is None else member(self._machine), self._machine.lanes)

    def _require_whole(self, here: np.ndarray) -> None:
        """All 32 lanes of the warps that these lanes are of must still be there."""
        machine = self._machine
        short = here & (machine.ballot(machine.living()) != ALL)
        if not short.any():
            return
        lane = int(np.argmax(short))
        mates = self._warp == self._warp[lane]
        gone = mates & ~machine.living()
        if not gone.any():
            why = f"its warp has {int(mates.sum())} threads only: a block must have a multiple of 32"
        else:
            other = int(np.argmax(gone))
            where = next((at for at, lanes in self._left if lanes[other]), None)
            why = f"{machine.describe_lane(other)} of its warp has left" + (f" at line {where.line}" if where else "")
        raise WarpFault(
            f"{machine.instruction.origin}: {machine.describe_lane(lane)} executes this with its whole warp, and {why}"
        )
