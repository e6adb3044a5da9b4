"""Convergence of a warp: lanes that execute an instruction together wait for each other, as on a GPU.

`.sync` instructions name the lanes in a member mask (`shfl`, `vote`: those that have exited do not count), or require
all 32 (`.aligned` ones such as `mma` and `ldmatrix`, which are undefined if one has exited): PTX ISA, 9.7.9, 9.7.13
and 9.7.14.
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
        self._members: dict[int, Read | None] = {}  # by place: reads the member mask; None for all lanes
        self._exits: list[tuple[Instruction, np.ndarray]] = []

    def are_together(self, mask: Mask, member: Read | None) -> bool:
        """Return whether all lanes that the instruction requires have come.

        member: reads the member mask; None for the whole warp. Raises WarpFault if a lane of a whole warp has exited,
        and for a lane that is not in its own member mask.
        """
        here = self._machine.lanes_of(mask)
        if member is None:
            self._require_all_lanes(here)
        elif (unnamed := here & (self._member_mask(member) >> self._lane & 1 == 0)).any():
            who = self._machine.describe_first(unnamed)
            named = int(self._member_mask(member)[np.argmax(unnamed)])
            raise WarpFault(f"{self._machine.instruction.origin}: {who} is no lane of the mask {named:#010x} it gives")
        return not (here & ~self._select_complete(here, member)).any()

    def wait(self, mask: Mask, place: int, member: Read | None) -> int:
        """Park lanes at a place until the others of their member mask have come; returns the next place."""
        self._members[place] = member
        complete = functools.partial(self._select_complete, member=member)
        return self._machine.schedule.assemble((KEY, place), mask, place, complete)

    def on_leave(self, instruction: Instruction, lanes: np.ndarray) -> None:
        self._exits.append((instruction, lanes))
        schedule = self._machine.schedule
        for place, member in self._members.items():
            if (waiting := schedule.waiting_at((KEY, place))) is not None:
                schedule.wake((KEY, place), self._select_complete(waiting, member))

    def on_time_out(self) -> bool:
        alike: dict[str, np.ndarray] = {}
        for place in self._members:
            if (lanes := self._machine.schedule.waiting_at((KEY, place))) is not None:
                instruction = self._machine.instructions[place]
                warps = np.unique(self._machine.warp_of_lane[lanes])
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
                missing = int(self._required_mask(member)[lane] & ~machine.ballot(lanes)[lane])
                other = lane - lane % machine.launch.threads % 32 + (missing & -missing).bit_length() - 1
                found.append(
                    f"{machine.instructions[place].place}: {machine.describe_lane(lane)} waits for other lanes of "
                    f"its warp, of which {machine.describe_lane(other)} is elsewhere"
                )
        return found

    def _select_complete(self, lanes: np.ndarray, member: Read | None) -> np.ndarray:
        """Return those of these lanes whose required lanes are all among them."""
        return lanes & (self._required_mask(member) & ~self._machine.ballot(lanes) == 0)

    def _required_mask(self, member: Read | None) -> np.ndarray:
        """Return for each lane the lanes that its instruction requires."""
        return self._member_mask(member) & self._machine.ballot(self._machine.living())

    def _member_mask(self, member: Read | None) -> np.ndarray:
        return per_lane(ALL if member is None else member(self._machine), self._machine.lanes)

    def _require_all_lanes(self, here: np.ndarray) -> None:
        """Raise WarpFault unless all 32 lanes of the warps of these lanes are alive."""
        machine = self._machine
        partial = here & (machine.ballot(machine.living()) != ALL)
        if not partial.any():
            return
        lane = int(np.argmax(partial))
        mates = machine.warp_of_lane == machine.warp_of_lane[lane]
        gone = mates & ~machine.living()
        if not gone.any():
            why = f"its warp has {int(mates.sum())} threads only: a block must have a multiple of 32"
        else:
            other = int(np.argmax(gone))
            where = next((at for at, lanes in self._exits if lanes[other]), None)
            why = f"{machine.describe_lane(other)} of its warp has left" + (f" at line {where.line}" if where else "")
        raise WarpFault(
            f"{machine.instruction.origin}: {machine.describe_lane(lane)} executes this with its whole warp, and {why}"
        )
