"""Which lanes of a machine go on, and where: branches, barriers, waits, and who is next.

It knows the barriers of a block and of a warp. Whatever else lanes wait for is a `Unit`'s: it parks and wakes them.

A program counter a lane exists only while lanes have parted: the group that is furthest behind in the program goes
first, which brings structured code back together where its branches meet. Lanes that wait are parked until what they
wait for comes; a group that goes round a loop for long, or looks at memory in it, which may be a wait too, lets the
others have a turn.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from gemm_ref.ptx.core.events import Lanes, Observer, Synchronisation
from gemm_ref.ptx.core.polling import Polling
from gemm_ref.ptx.text.dtypes import Value
from gemm_ref.ptx.text.errors import BarrierFault
from gemm_ref.ptx.text.parser import Instruction

Gather = Callable[[np.ndarray], np.ndarray]  # of lanes, some
PATIENCE = 10_000  # turns of loops that some lanes take before others, which could go on, have a turn


class Unit:
    """A part of a machine that works on its own, later than instructions ask it to; override what it takes part in."""

    def on_leave(self, instruction: Instruction, lanes: np.ndarray) -> None:
        """These lanes have left."""

    def on_open(self, barrier: tuple, lanes: np.ndarray | None) -> None:
        """A barrier of blocks opens for these lanes (None: all)."""

    def on_time_out(self) -> bool:
        """No lane can go on: whether the unit has let some that it parked."""
        return False

    def on_end(self) -> None:
        """All lanes have left."""

    def describe_waits(self) -> list[str]:
        """Who waits here forever, and for what, in lines of a report."""
        return []


class Schedule:
    """Where the lanes of a machine are in its program."""

    def __init__(
        self, machine: Lanes, program: Sequence[Instruction], observers: Sequence[Observer], polling: Polling
    ) -> None:
        self.program = program
        self.polling = polling
        self.units: list[Unit] = []  # the machine's
        self._machine = machine
        self._observers = observers
        self._lanes = machine.lanes
        self._block = machine.block_index
        # None for `active` means that every lane still alive is here; None for `alive`, that all are.
        self.alive: np.ndarray | None = None
        self.active: np.ndarray | None = None
        self._places = np.zeros(self._lanes, np.int64)  # where the lanes that are not active go on
        self._waiting = np.zeros(self._lanes, bool)
        self._waits: dict[tuple, np.ndarray] = {}  # barrier -> lanes that arrived and wait
        # Barrier -> arrivals of each block, and the threads it opens for; of a warp's, each lane's mask.
        self._arrived: dict[tuple, tuple[np.ndarray, int | None]] = {}
        self._members: dict[tuple, np.ndarray] = {}
        self.first = 0  # the place at which the kernel begins: before it are the functions that it calls
        self.stop = len(program)  # the place at which another group must be looked at
        self._resting: np.ndarray | None = None  # lanes whose loop has had its turns: the others go first
        self._turns = 0
        self.now = 0  # the place of the instruction being executed

    @property
    def instruction(self) -> Instruction:
        """The one being executed."""
        return self.program[self.now]

    def branch(self, mask: np.ndarray | None, onward: int, target: int) -> int:
        """Send the lanes of the mask to `target` and the other active ones `onward`."""
        if mask is self.active:
            alone = mask is None and not self.polling.looked  # nobody else could have a turn
            return target if alone or target > self.now else self._turn(target)
        here = self.access_mask(self.active)
        taken = self.access_mask(mask)
        if taken is None or (here is not None and np.array_equal(taken, here)):
            return target
        if not taken.any():
            return onward
        there = self.program[target] if target < len(self.program) else None
        if there is not None and there.guard is None and there.parts[0] in ("ret", "exit") and target >= self.first:
            return self.leave(mask, onward)  # at once, so that the others go on as all that are left
        here = np.ones(self._lanes, bool) if here is None else here
        self._places[here] = onward
        self._places[taken] = target
        return self._choose()

    def branch_each(self, lanes: np.ndarray, onward: int, targets: np.ndarray) -> int:
        """Send each of these lanes to its own target and the other active ones `onward`."""
        self._send(onward)
        self._places[lanes] = targets[lanes]
        return self._choose()

    def _turn(self, target: int) -> int:
        """All of a group go round a loop: after PATIENCE turns, which may be spent waiting, others have a turn."""
        self._turns += 1
        if self._turns < PATIENCE and not self.polling.looked:
            return target
        self.polling.looked = False
        here = self.living() if self.active is None else self.active & self.living()
        self._places[here] = target
        self._resting = here if self._resting is None else self._resting | here
        self._turns = 0
        return self._choose()

    def leave(self, mask: np.ndarray | None, onward: int) -> int:
        """End the lanes of the mask."""
        gone = self.access_mask(mask)
        for observer in self._observers:
            observer.on_leave(self.instruction, gone, self._machine)
        self._send(onward)
        if gone is None:
            self.alive = np.zeros(self._lanes, bool)
        else:
            self.alive = ~gone if self.alive is None else self.alive & ~gone
        everyone = np.ones(self._lanes, bool)
        for unit in self.units:
            unit.on_leave(self.instruction, everyone if gone is None else gone)
        for key in list(self._arrived):  # a barrier counts only the threads that are still there
            self._release(key)
        for key in list(self._members):
            self._release_warps(key)
        return self._choose()

    def access_mask(self, mask: np.ndarray | None) -> np.ndarray | None:
        """The lanes that really act where `mask` may change registers; None for every lane of the machine."""
        if mask is None:
            mask = self.active
        if self.alive is None:
            return mask
        return self.alive if mask is None else mask & self.alive

    def lanes_of(self, mask: np.ndarray | None) -> np.ndarray:
        """As `access_mask`, always as an array."""
        lanes = self.access_mask(mask)
        return np.ones(self._lanes, bool) if lanes is None else lanes

    def living(self) -> np.ndarray:
        """The lanes that have not left."""
        return np.ones(self._lanes, bool) if self.alive is None else self.alive

    def regroup(self, place: int) -> int | None:
        if self.access_mask(self.active) is None:
            return None  # past the last instruction, all together
        self._send(place)
        place = self._choose()
        return None if place == len(self.program) else place

    def _send(self, place: int) -> None:
        """The active lanes go on at this place."""
        here = self.access_mask(self.active)
        self._places[slice(None) if here is None else here] = place

    def _hold(self, key: tuple, lanes: np.ndarray) -> None:
        """These lanes wait at a barrier."""
        self._waits[key] = self._waits.get(key, np.zeros(self._lanes, bool)) | lanes
        self._waiting |= lanes

    def _choose(self) -> int:
        """Make the group of lanes that is furthest behind the active one; returns its place."""
        alive = self.living()
        while not (ready := alive & ~self._waiting & (self._places < len(self.program))).any():
            if not (alive & self._waiting).any():
                self.stop = len(self.program)
                self.active = np.zeros(self._lanes, bool)
                return len(self.program)
            if not any(unit.on_time_out() for unit in self.units):
                self._report_stuck()
        if self._resting is not None:
            eager = ready & ~self._resting
            if eager.any():
                ready = eager
            else:
                self._resting = None
                if self.polling.is_stuck(self._places) and not any(unit.on_time_out() for unit in self.units):
                    self._report_polling(ready)
        places = self._places[ready]
        place = int(places.min())
        active = ready & (self._places == place)
        together = np.array_equal(active, alive)
        self.active = None if together else active
        others = places[places > place]
        self.stop = int(others.min()) if others.size else len(self.program)
        return place

    # --- barriers --------------------------------------------------------------------------------------------

    def arrive(self, mask, onward: int, key: tuple, expected: int | None, waits: bool) -> int:
        """Lanes arrive at a barrier of their block; it opens for `expected` threads, or for all still there."""
        lanes = self.access_mask(mask)
        for observer in self._observers:
            observer.on_barrier(self.instruction, lanes, self._machine)
        self._tell(key, lanes, expected)
        together = mask is None and self.active is None and not self._waiting.any()
        if together and waits and key not in self._arrived and (expected is None or lanes is None):
            if expected in (None, self._machine.launch.threads):
                self._open(key, lanes, expected)
                return onward  # all threads of all blocks are here
        lanes = np.ones(self._lanes, bool) if lanes is None else lanes
        self._send(onward)
        self._join(lanes, key, expected, waits)
        return self._choose()

    def arrive_at_several(self, mask, onward: int, which: Value, expected: Value | None, waits: bool) -> int:
        """As `arrive`, at barriers whose numbers, and whose threads, differ from lane to lane."""
        lanes = self.lanes_of(mask)
        for observer in self._observers:
            observer.on_barrier(self.instruction, lanes, self._machine)
        self._send(onward)
        kinds = np.stack(
            [np.broadcast_to(which, self._lanes), np.broadcast_to(0 if expected is None else expected, self._lanes)]
        )
        for number, threads in np.unique(kinds[:, lanes], axis=1).T:
            some = lanes & (kinds[0] == number) & (kinds[1] == threads)
            key, threads = ("barrier", int(number)), None if expected is None else int(threads)
            self._tell(key, some, threads)
            self._join(some, key, threads, waits)
        return self._choose()

    def _join(self, lanes: np.ndarray, key: tuple, expected: int | None, waits: bool) -> None:
        blocks = int(self._block[-1]) + 1
        counts = np.bincount(self._block[lanes], minlength=blocks)
        before = self._arrived[key][0] if key in self._arrived else 0
        self._arrived[key] = before + counts, expected
        if waits:
            self._hold(key, lanes)
        self._release(key)

    def _release(self, key: tuple) -> None:
        """Open a barrier for the blocks in which enough threads have arrived."""
        arrived, expected = self._arrived[key]
        alive = self.living()
        if expected is None:
            needed = np.bincount(self._block[alive], minlength=len(arrived))
        else:
            needed = np.full(len(arrived), expected)
        opened = (arrived > 0) & (arrived >= needed)
        if opened.any():
            arrived[opened] = 0
            if not arrived.any():
                del self._arrived[key]
            freed = opened[self._block] & self._waits.get(key, np.zeros(self._lanes, bool))
            self._open(key, freed, expected)
            if key in self._waits:
                self._waits[key] &= ~freed
            self._waiting &= ~freed

    def _open(self, key: tuple, lanes: np.ndarray | None, expected: int | None) -> None:
        self._tell(key, lanes, expected, opens=True)
        for unit in self.units:
            unit.on_open(key, lanes)

    def park(self, key: tuple, lanes: np.ndarray, onward: int) -> int:
        """The active lanes go on at `onward`, these ones when `wake` is called for them."""
        self._send(onward)
        self._hold(key, lanes)
        return self._choose()

    def assemble(self, key: tuple, mask: np.ndarray | None, place: int, complete: Gather) -> int:
        """Lanes come to an instruction that they execute together with others; they wait there for these.

        complete: of the lanes that are at this instruction, those whose others are all among them.
        """
        lanes = self.lanes_of(mask)
        self._send(place + 1)
        self._places[lanes] = place
        here = lanes | self._waits.get(key, np.zeros(self._lanes, bool))
        together = complete(here)
        self._waits[key] = here & ~together
        self._waiting = self._waiting & ~together | self._waits[key]
        return self._choose()

    def waiting_at(self, key: tuple) -> np.ndarray | None:
        """The lanes parked with this key; None for nobody."""
        lanes = self._waits.get(key)
        return None if lanes is None or not lanes.any() else lanes

    def wake(self, key: tuple, lanes: np.ndarray) -> None:
        """These lanes, parked with this key, may go on."""
        self._turns = 0
        self._waits[key] = self._waits[key] & ~lanes
        self._waiting &= ~lanes
        ahead = self._places[lanes]
        ahead = ahead[ahead > self.now]
        if ahead.size:
            self.stop = min(self.stop, int(ahead.min()))

    def parked_place(self, lanes: np.ndarray) -> np.ndarray:
        """Where lanes that wait go on, as numbers of instructions."""
        return self._places[lanes]

    def awaited(self, lane: int) -> Instruction:
        """The instruction at which a lane that goes on behind it waits."""
        return self.program[int(self._places[lane]) - 1]

    def arrive_warp(self, mask, onward: int, member: Value) -> int:
        """Lanes wait for the lanes of their warp that `member` names."""
        lanes = self.access_mask(mask)
        key = ("warp",)  # one for all places: the lanes of a warp may wait for each other from different ones
        self._tell(key, lanes, None, member)
        if lanes is None:
            self._tell(key, lanes, None, member, opens=True)
            return onward
        self._send(onward)
        self._members[key] = np.where(lanes, member, self._members.get(key, np.uint32(0)))
        self._hold(key, lanes)
        self._release_warps(key)
        return self._choose()

    def _release_warps(self, key: tuple) -> None:
        waits, member = self._waits[key], self._members[key]
        alive = self.living()
        freed = waits & ((member & self.ballot(alive & ~waits)) == 0)
        if freed.any():
            self._tell(key, freed, None, member, opens=True)
        self._waits[key] = waits & ~freed
        if not self._waits[key].any():
            del self._members[key]
        self._waiting &= ~freed

    def _tell(self, key: tuple, lanes, expected: int | None, member: Value | None = None, opens: bool = False) -> None:
        instruction = None if opens else self.instruction
        for observer in self._observers:
            event = Synchronisation(instruction, key, expected, member, lanes, self._machine)
            observer.on_synchronisation(event)

    def ballot(self, bits: np.ndarray) -> np.ndarray:
        """For each lane, the 32 bits of its warp."""
        thread = self._machine.thread_of_lane
        warp = self._block * self._machine.launch.num_warps + thread // 32
        votes = np.zeros(int(warp[-1]) + 1, np.uint32)
        np.bitwise_or.at(votes, warp[bits], np.uint32(1) << (thread % 32).astype(np.uint32)[bits])
        return votes[warp]

    def _report_polling(self, ready: np.ndarray) -> None:
        lane, held = int(np.argmax(ready)), int((self.living() & self._waiting).sum())
        who, where = self._machine.describe_lane(lane), self.program[int(self._places[lane])].place
        raise BarrierFault(
            f"{where}: deadlock: {who} waits for what nobody stores, in a loop that begins here; {int(ready.sum())} "
            f"threads do, and {held} more wait at barriers. Blocks of a large grid run in batches, one after another: "
            "wait for blocks of lower numbers alone"
        )

    def _report_stuck(self) -> None:
        if waits := [line for unit in self.units for line in unit.describe_waits()]:
            others = int((self.living() & self._waiting).sum())
            raise BarrierFault(
                f"deadlock: no thread can go on, and {others} threads wait forever:\n  " + "\n  ".join(waits)
            )
        lane = int(np.argmax(self._waiting))
        place = int(self._places[lane]) - 1
        mates = self._block == self._block[lane]
        alive = self.living()
        waiting = int((mates & alive & (self._places == place + 1)).sum())
        raise BarrierFault(
            f"{self.program[place].place}: {self._machine.describe_lane(lane)} waits here forever: {waiting} of the "
            f"{int((mates & alive).sum())} threads of its block that are still running reach this barrier"
        )
