"""Which lanes of a machine execute, and where: divergence, barriers, and forward progress.

PTX ISA, 9.7.12 (control flow) and 9.7.13.1 (barriers of a block and of a warp). Whatever else lanes wait for belongs to
a `Unit`, which parks and wakes them.

Lanes have a program counter each only while they diverge: the group with the least program counter executes first, so
that structured code reconverges where its branches meet. Lanes that wait are parked until their condition is met. A
group that goes around a loop for long, or polls memory in it, yields to the others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from gemm_ref.ptx.core.events import Observer, Synchronisation
from gemm_ref.ptx.core.lanes import Lanes
from gemm_ref.ptx.text.dtypes import Value
from gemm_ref.ptx.text.errors import BarrierFault
from gemm_ref.ptx.text.parser import Instruction

Gather = Callable[[np.ndarray], np.ndarray]  # from a mask of lanes to a part of it
PATIENCE = 10_000  # backward branches of a group before it yields to others that are ready
_FIRST_SNAPSHOT = 64  # rounds of polling after which the state of the lanes is compared


class Polling:
    """Whether the lanes of a machine poll memory for what another thread has yet to store."""

    def __init__(self, snapshot: Callable[[], tuple[bytes | None, ...]]) -> None:
        self.looked = False  # an atomic, a strong load or a nanosleep since the active lanes last branched backward
        self._snapshot = snapshot  # returns the contents of all registers
        self._rounds = 0  # since memory last changed, of all lanes that are not parked
        self._before: tuple | None = None

    @property
    def goes_on(self) -> bool:
        """Whether lanes poll and memory has not changed since; storing the value that was there is no change."""
        return self._rounds > 0

    def stored(self) -> None:
        """Note that a lane has changed memory."""
        self._rounds = 0

    def is_stuck(self, places: np.ndarray) -> bool:
        """Return whether all ready lanes, which have polled, will do so forever: nothing differs from the last round.

        places: the program counters of the lanes.
        """
        self._rounds += 1
        if self._rounds >= _FIRST_SNAPSHOT and self._rounds.bit_count() == 1:  # seldom, since a snapshot is large
            self._before = (places.tobytes(), *self._snapshot())
        elif self._rounds > _FIRST_SNAPSHOT and (self._rounds - 1).bit_count() == 1:
            return self._before == (places.tobytes(), *self._snapshot())
        return False


class Unit:
    """A part of a machine that works asynchronously; a unit overrides the events that it takes part in."""

    def on_leave(self, instruction: Instruction, lanes: np.ndarray) -> None:
        """These lanes have exited."""

    def on_open(self, barrier: tuple, lanes: np.ndarray | None) -> None:
        """A barrier of blocks opens for these lanes (None: all)."""

    def on_time_out(self) -> bool:
        """No lane can go on; returns whether the unit has woken some that it had parked."""
        return False

    def on_end(self) -> None:
        """All lanes have exited."""

    def describe_waits(self) -> list[str]:
        """Return a line of a report for each group that waits here forever, with what it waits for."""
        return []


class Schedule:
    """The program counters of a machine's lanes, and the barriers at which they wait."""

    def __init__(
        self,
        machine: Lanes,
        observers: Sequence[Observer],
        snapshot: Callable[[], tuple[bytes | None, ...]],
        first: int,
    ) -> None:
        """first: the place at which the kernel begins; before it are the functions that it calls."""
        self.polling = Polling(snapshot)
        self.units: list[Unit] = []  # the machine's
        self.program = machine.instructions
        self._first = first
        self._machine = machine
        self._observers = observers
        self._lanes = machine.lanes
        self._block = machine.block_index
        self._places = np.zeros(self._lanes, np.int64)  # program counters of the lanes that are not active
        self._waiting = np.zeros(self._lanes, bool)
        self._waits: dict[tuple, np.ndarray] = {}  # barrier -> lanes that arrived and wait
        # Barrier -> arrivals of each block, and the threads it opens for; of a warp's, each lane's member mask.
        self._arrived: dict[tuple, tuple[np.ndarray, int | None]] = {}
        self._members: dict[tuple, np.ndarray] = {}
        self.stop = len(self.program)  # the least program counter of the groups that are not active
        self._yielded: np.ndarray | None = None  # lanes that have yielded: the others execute first
        self._backward_branches = 0

    def branch(self, mask: np.ndarray | None, onward: int, target: int) -> int:
        """Send the lanes of the mask, which is not empty, to `target` and the other active ones `onward`."""
        if mask is self._machine.active:
            alone = mask is None and not self.polling.looked  # no other group exists
            return target if alone or target > self._machine.now else self._branch_backward(target)
        there = self.program[target] if target < len(self.program) else None
        if there is not None and there.guard is None and there.parts[0] in ("ret", "exit") and target >= self._first:
            return self.leave(mask, onward)  # at once, so that the other lanes go on as all that are alive
        self._places[self._machine.lanes_of(None)] = onward
        self._places[mask] = target
        return self._choose()

    def branch_each(self, lanes: np.ndarray, onward: int, targets: np.ndarray) -> int:
        """Send each of these lanes to its own target, and the other active ones `onward`."""
        self._send(onward)
        self._places[lanes] = targets[lanes]
        return self._choose()

    def _branch_backward(self, target: int) -> int:
        """Branch backward with a whole group: it yields to others after PATIENCE such branches, or when it polls."""
        self._backward_branches += 1
        if self._backward_branches < PATIENCE and not self.polling.looked:
            return target
        self.polling.looked = False
        here = self._machine.lanes_of(None)
        self._places[here] = target
        self._yielded = here if self._yielded is None else self._yielded | here
        self._backward_branches = 0
        return self._choose()

    def leave(self, mask: np.ndarray | None, onward: int) -> int:
        """Let the lanes of the mask exit."""
        gone = self._machine.access_mask(mask)
        for observer in self._observers:
            observer.on_leave(self._machine.instruction, gone, self._machine)
        self._send(onward)
        if gone is None:
            self._machine.alive = np.zeros(self._lanes, bool)
        else:
            self._machine.alive = ~gone if self._machine.alive is None else self._machine.alive & ~gone
        everyone = np.ones(self._lanes, bool)
        for unit in self.units:
            unit.on_leave(self._machine.instruction, everyone if gone is None else gone)
        for key in list(self._arrived):  # a barrier counts only the threads that are still there
            self._release(key)
        for key in list(self._members):
            self._release_warps(key)
        return self._choose()

    def regroup(self, place: int) -> int | None:
        """Return the place at which the next group goes on when the active one has come to `stop`; None at the end."""
        self._send(place)
        place = self._choose()
        return None if place == len(self.program) else place

    def _send(self, place: int) -> None:
        """Set the program counter of the active lanes."""
        here = self._machine.access_mask(None)
        self._places[slice(None) if here is None else here] = place

    def _hold(self, key: tuple, lanes: np.ndarray) -> None:
        """Park lanes at a barrier."""
        self._waits[key] = self._waits.get(key, np.zeros(self._lanes, bool)) | lanes
        self._waiting |= lanes

    def _choose(self) -> int:
        """Activate the ready group with the least program counter, and return that place."""
        alive = self._machine.living()
        while not (ready := alive & ~self._waiting & (self._places < len(self.program))).any():
            if not (alive & self._waiting).any():
                self.stop = len(self.program)
                self._machine.active = np.zeros(self._lanes, bool)
                return len(self.program)
            if not any(unit.on_time_out() for unit in self.units):
                self._report_stuck()
        if self._yielded is not None:
            eager = ready & ~self._yielded
            if eager.any():
                ready = eager
            else:
                self._yielded = None
                if self.polling.is_stuck(self._places) and not any(unit.on_time_out() for unit in self.units):
                    self._report_polling(ready)
        places = self._places[ready]
        place = int(places.min())
        active = ready & (self._places == place)
        together = np.array_equal(active, alive)
        self._machine.active = None if together else active
        others = places[places > place]
        self.stop = int(others.min()) if others.size else len(self.program)
        return place

    def arrive(self, mask, onward: int, key: tuple, expected: int | None, waits: bool) -> int:
        """Let lanes arrive at a barrier of their block, which opens for `expected` threads, or for all alive ones."""
        lanes = self._machine.access_mask(mask)
        self.tell(self._machine.instruction, key, lanes, expected)
        together = mask is None and self._machine.active is None and not self._waiting.any()
        if together and waits and key not in self._arrived and (expected is None or lanes is None):
            if expected in (None, self._machine.launch.threads):
                self._open(key, lanes, expected)
                return onward  # all threads of all blocks are here
        lanes = np.ones(self._lanes, bool) if lanes is None else lanes
        self._send(onward)
        self._join(lanes, key, expected, waits)
        return self._choose()

    def arrive_at_several(self, mask, onward: int, which: Value, expected: Value | None, waits: bool) -> int:
        """Do as `arrive` at barriers whose numbers and counts of threads differ from lane to lane."""
        lanes = self._machine.lanes_of(mask)
        self._send(onward)
        kinds = np.stack(
            [np.broadcast_to(which, self._lanes), np.broadcast_to(0 if expected is None else expected, self._lanes)]
        )
        for number, threads in np.unique(kinds[:, lanes], axis=1).T:
            some = lanes & (kinds[0] == number) & (kinds[1] == threads)
            key, threads = ("barrier", int(number)), None if expected is None else int(threads)
            self.tell(self._machine.instruction, key, some, threads)
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
        alive = self._machine.living()
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
        self.tell(None, key, lanes, expected)
        for unit in self.units:
            unit.on_open(key, lanes)

    def park(self, key: tuple, lanes: np.ndarray, onward: int) -> int:
        """Send the active lanes `onward`, and park these until `wake` is called for them."""
        self._send(onward)
        self._hold(key, lanes)
        return self._choose()

    def assemble(self, key: tuple, mask: np.ndarray | None, place: int, complete: Gather) -> int:
        """Park lanes at an instruction that they execute together with others, until all of those have come.

        complete: returns, of the lanes that are at the instruction, those whose partners are all among them.
        """
        lanes = self._machine.lanes_of(mask)
        self._send(place + 1)
        self._places[lanes] = place
        here = lanes | self._waits.get(key, np.zeros(self._lanes, bool))
        together = complete(here)
        self._waits[key] = here & ~together
        self._waiting = self._waiting & ~together | self._waits[key]
        return self._choose()

    def waiting_at(self, key: tuple) -> np.ndarray | None:
        """Return the lanes that are parked with this key; None if there are none."""
        lanes = self._waits.get(key)
        return None if lanes is None or not lanes.any() else lanes

    def wake(self, key: tuple, lanes: np.ndarray) -> None:
        """Wake these lanes, which are parked with this key."""
        self._backward_branches = 0
        self._waits[key] = self._waits[key] & ~lanes
        self._waiting &= ~lanes
        ahead = self._places[lanes]
        ahead = ahead[ahead > self._machine.now]
        if ahead.size:
            self.stop = min(self.stop, int(ahead.min()))

    def parked_place(self, lanes: np.ndarray) -> np.ndarray:
        """Return the places at which parked lanes go on."""
        return self._places[lanes]

    def awaited(self, lane: int) -> Instruction:
        """Return the instruction at which a lane waits: the one before the place at which it goes on."""
        return self.program[int(self._places[lane]) - 1]

    def arrive_warp(self, mask, onward: int, member: Value) -> int:
        """Let lanes wait for those lanes of their warp that `member` names."""
        lanes = self._machine.access_mask(mask)
        key = ("warp",)  # one for all places: the lanes of a warp may wait for each other from different ones
        self.tell(self._machine.instruction, key, lanes, member=member)
        if lanes is None:
            self.tell(None, key, lanes, member=member)
            return onward
        self._send(onward)
        self._members[key] = np.where(lanes, member, self._members.get(key, np.uint32(0)))
        self._hold(key, lanes)
        self._release_warps(key)
        return self._choose()

    def _release_warps(self, key: tuple) -> None:
        waits, member = self._waits[key], self._members[key]
        alive = self._machine.living()
        freed = waits & ((member & self._machine.ballot(alive & ~waits)) == 0)
        if freed.any():
            self.tell(None, key, freed, member=member)
        self._waits[key] = waits & ~freed
        if not self._waits[key].any():
            del self._members[key]
        self._waiting &= ~freed

    def tell(
        self,
        instruction: Instruction | None,
        barrier: tuple,
        lanes: np.ndarray | None,
        expected: int | None = None,
        member: Value | None = None,
    ) -> None:
        """Tell observers that lanes arrive at a barrier, or that it opens for them (instruction: None)."""
        for observer in self._observers:
            observer.on_synchronisation(Synchronisation(instruction, barrier, expected, member, lanes, self._machine))

    def _report_polling(self, ready: np.ndarray) -> None:
        lane, held = int(np.argmax(ready)), int((self._machine.living() & self._waiting).sum())
        who, where = self._machine.describe_lane(lane), self.program[int(self._places[lane])].place
        raise BarrierFault(
            f"{where}: deadlock: {who} waits for what nobody stores, in a loop that begins here; {int(ready.sum())} "
            f"threads do, and {held} more wait at barriers. Blocks of a large grid run in batches, one after another: "
            "wait for blocks of lower numbers alone"
        )

    def _report_stuck(self) -> None:
        if waits := [line for unit in self.units for line in unit.describe_waits()]:
            others = int((self._machine.living() & self._waiting).sum())
            raise BarrierFault(
                f"deadlock: no thread can go on, and {others} threads wait forever:\n  " + "\n  ".join(waits)
            )
        lane = int(np.argmax(self._waiting))
        place = int(self._places[lane]) - 1
        mates = self._block == self._block[lane]
        alive = self._machine.living()
        waiting = int((mates & alive & (self._places == place + 1)).sum())
        raise BarrierFault(
            f"{self.program[place].place}: {self._machine.describe_lane(lane)} waits here forever: {waiting} of the "
            f"{int((mates & alive).sum())} threads of its block that are still running reach this barrier"
        )
