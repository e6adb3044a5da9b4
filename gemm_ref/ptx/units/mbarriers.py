"""mbarriers (PTX ISA, 9.7.13.15): barriers in shared memory with a count of arrivals and a transaction count.

An mbarrier is one 64-bit word of the block's own shared memory, whose layout the manual leaves open; here it is

    bits 0-19 pending arrivals, 20-39 expected arrivals of a phase, 40-60 transaction count (bytes) plus 2^20,
    61 phase parity, 62 set, 63 clear

so that an overwritten barrier, or a wait at one that was never initialised, is noticed. A phase completes when no
arrivals and no bytes are pending.

Threads that wait are parked until their phase completes. Bulk copies complete at the last moment: when a thread waits
for their barrier and only their bytes are pending. When no thread can go on, `try_wait` and `test_wait` return false,
as the manual allows at any time; after MAX_TIME_OUTS such rounds without a change it is a deadlock.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from gemm_ref.ptx.core.access import locate_shared
from gemm_ref.ptx.core.events import BarrierUse
from gemm_ref.ptx.core.machine import Machine, Mask, Write
from gemm_ref.ptx.core.schedule import Unit
from gemm_ref.ptx.text.errors import AsyncFault
from gemm_ref.ptx.text.parser import Instruction

KEY = ("mbarrier",)
MAX_TIME_OUTS = 64
MAX_COUNT = (1 << 20) - 1  # of arrivals, and of bytes of either sign
_BIAS = 1 << 20  # of the transaction count, which may be negative
_VALID, _VALID_MASK = np.uint64(1 << 62), np.uint64(3 << 62)
_INVALID = np.uint64(0xFFFFFFFFFFFFFFFF)
_MAX_WAITS_SHOWN = 8  # in the report of a deadlock


@dataclass
class Words:
    """The fields of some barriers, an int64 array each."""

    pending: np.ndarray  # arrivals until the phase may complete
    expected: np.ndarray  # arrivals per phase
    bytes: np.ndarray  # the transaction count, in bytes
    parity: np.ndarray  # of the current phase

    @classmethod
    def unpack(cls, words: np.ndarray) -> Words:
        bits = words.astype(np.int64)
        return cls(bits & MAX_COUNT, bits >> 20 & MAX_COUNT, (bits >> 40 & (1 << 21) - 1) - _BIAS, bits >> 61 & 1)

    def pack(self) -> np.ndarray:
        bits = self.pending | self.expected << 20 | self.bytes + _BIAS << 40 | self.parity << 61
        return bits.astype(np.uint64) | _VALID


class MBarriers(Unit):
    """The mbarriers of one machine; the number of each is its place among the 8-byte words of all shared memory."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        # Bulk copies: what lands those that signal some barriers, until a phase ends; and what describes those that
        # have yet to complete at a barrier, as the end of a sentence.
        self.land_copies: Callable[[np.ndarray], None] = lambda barriers: None
        self.describe_copies: Callable[[int], str] = lambda barrier: ""
        self._memory = machine.shared.view(8)
        self._live = np.zeros(self._memory.size, bool)  # initialised, and not invalidated since
        self._numbers = np.full(machine.lanes, -1, np.int64)  # of the barrier at which a lane is parked; -1 for none
        self._parities = np.zeros(machine.lanes, np.int64)  # of the phase that it waits for
        self._answers: dict[int, Write] = {}  # place at which a parked lane goes on -> its predicate
        # Arrivals of copies that have not completed: barrier, instruction, lanes, and what completes them.
        self._deferred: list[tuple[int, Instruction, np.ndarray, Callable[[np.ndarray], None]]] = []
        self._time_outs = 0
        self._selected = np.zeros(self._memory.size + 1, bool)  # scratch; the last is for lanes that wait for none

    def numbers(self, instruction: Instruction, lanes: np.ndarray, addresses) -> np.ndarray:
        """Return the barriers at the lanes' addresses. Raises MemoryFault for an address that cannot hold one."""
        blocks, offsets = locate_shared(self._machine, instruction, lanes, addresses, 8, 8)
        return (offsets + blocks * self._machine.shared.stride) // 8

    def words(self, instruction: Instruction, numbers: np.ndarray) -> Words:
        """Return the fields of barriers. Raises AsyncFault where there is none."""
        words = self._memory[numbers]
        wrong = (words & _VALID_MASK) != _VALID
        if wrong.any():
            raise AsyncFault(
                f"{instruction.origin}: there is no mbarrier at {self.describe(int(numbers[np.argmax(wrong)]))}: it "
                "was never initialised (mbarrier.init), or was overwritten or invalidated since"
            )
        return Words.unpack(words)

    def describe(self, number: int) -> str:
        """Return `byte 1024 of shared memory of block (0, 0, 0)`."""
        machine = self._machine
        block, byte = divmod(number * 8, max(machine.shared.stride, 1))
        lane = int(np.argmax(machine.block_index == block))
        return f"byte {byte} of shared memory of {machine.describe_block(lane)}"

    def _store(self, numbers: np.ndarray, words: Words | np.uint64) -> None:
        self._memory[numbers] = words.pack() if isinstance(words, Words) else words

    def initialise(
        self, instruction: Instruction, lanes: np.ndarray, numbers: np.ndarray, counts: np.ndarray
    ) -> None:  # fmt: skip
        """Initialise barriers with these counts of arrivals, one entry per lane. Raises AsyncFault for an existing one.

        PTX leaves that undefined, and two threads at once as well. It is accepted where it changes nothing, as Triton
        3.6 does in kernels that are specialised by warps.
        """
        if ((counts < 1) | (counts > MAX_COUNT)).any():
            raise AsyncFault(f"{instruction.origin}: an mbarrier counts from 1 to {MAX_COUNT} arrivals")
        zero = np.zeros(numbers.size, np.int64)
        fresh = Words(counts, counts, zero, zero)
        _, first = np.unique(numbers, return_index=True)
        again = self._live[numbers] & (self._memory[numbers] != fresh.pack())
        again[np.setdiff1d(np.arange(numbers.size), first)] = True
        if again.any():
            at = int(np.argmax(again))
            raise AsyncFault(
                f"{instruction.origin}: {self._machine.describe_lane(int(lanes[at]))} initialises the mbarrier at "
                f"{self.describe(int(numbers[at]))}, which has been initialised already: let one thread do it, once"
            )
        self.tell_use(instruction, lanes, numbers, initialises=True)
        self._live[numbers] = True
        self._store(numbers, fresh)

    def invalidate(self, instruction: Instruction, numbers: np.ndarray) -> None:
        self.words(instruction, numbers)
        self._live[numbers] = False
        self._store(numbers, _INVALID)

    def _count(self, instruction: Instruction, numbers: np.ndarray, amounts: np.ndarray):
        """Return the barriers that are named, the sum of the amounts for each, and their fields."""
        barriers, where = np.unique(numbers, return_inverse=True)
        return barriers, np.bincount(where, amounts).astype(np.int64), self.words(instruction, barriers)

    def arrive(self, instruction: Instruction, numbers: np.ndarray, counts: np.ndarray, drop: bool) -> None:
        """Arrive at barriers, one entry per lane; phases that are complete now end."""
        barriers, totals, words = self._count(instruction, numbers, counts)
        if (many := totals > words.pending).any():
            at = int(np.argmax(many))
            raise AsyncFault(
                f"{instruction.origin}: {totals[at]} arrivals at once at the mbarrier at "
                f"{self.describe(int(barriers[at]))}, whose phase lacks {words.pending[at]} of {words.expected[at]}: "
                "is its count too low, or its last phase not waited for?"
            )
        words.pending -= totals
        if drop:
            words.expected -= totals
        self._store(barriers, words)
        self._complete_phases(barriers)

    def defer(
        self,
        instruction: Instruction,
        lanes: np.ndarray,
        numbers: np.ndarray,
        awaited: int,
        finish: Callable[[np.ndarray], None],
    ) -> None:
        """Let each of these lanes arrive when a waiting thread needs only that; `finish` is called before.

        awaited: by how many pending arrivals each lane increases the phase now.
        """
        barriers, lanes_each, words = self._count(instruction, numbers, np.ones(numbers.size))
        words.pending += awaited * lanes_each
        self._store(barriers, words)
        self._deferred += [(int(n), instruction, lanes[numbers == n], finish) for n in barriers]
        self._complete_phases(barriers)

    def _arrive_deferred(self, barriers: np.ndarray) -> None:
        for number, pending in zip(barriers.tolist(), Words.unpack(self._memory[barriers]).pending, strict=True):
            own = [deferred for deferred in self._deferred if deferred[0] == number]
            if not own or sum(lanes.size for _, _, lanes, _ in own) < pending:
                continue
            self._deferred = [deferred for deferred in self._deferred if deferred[0] != number]
            for _, instruction, lanes, finish in own:
                finish(self._machine.mask_of(lanes))
                numbers = np.full(lanes.size, number)
                self.tell(instruction, lanes, numbers)
                self.arrive(instruction, numbers, np.ones(lanes.size, np.int64), drop=False)

    def expect(self, instruction: Instruction, numbers: np.ndarray, bytes_: np.ndarray) -> None:
        """Increase the transaction counts by bytes to come, one entry per lane."""
        self._add_bytes(instruction, numbers, bytes_)
        self._time_outs = 0

    def complete(self, instruction: Instruction, numbers: np.ndarray, bytes_: np.ndarray) -> None:
        """Complete bytes of transactions, one entry per copy; phases that are complete now end."""
        self._end_phases(self._add_bytes(instruction, numbers, -bytes_))

    def _add_bytes(self, instruction: Instruction, numbers: np.ndarray, bytes_: np.ndarray) -> np.ndarray:
        barriers, totals, words = self._count(instruction, numbers, bytes_)
        words.bytes += totals
        if (wrong := abs(words.bytes) > MAX_COUNT).any():
            at = int(np.argmax(wrong))
            raise AsyncFault(
                f"{instruction.origin}: the mbarrier at {self.describe(int(barriers[at]))} would wait for "
                f"{words.bytes[at]} bytes, and it counts to {MAX_COUNT}"
            )
        self._store(barriers, words)
        return barriers

    def _complete_phases(self, barriers: np.ndarray) -> None:
        """End complete phases after arrivals; where only bytes are pending and a lane waits, complete the copies."""
        self._end_phases(barriers)
        lanes = self._select_waiting(barriers)
        if lanes.size:
            self.land(np.unique(self._numbers[lanes]))

    def _end_phases(self, barriers: np.ndarray) -> None:
        """End the complete phases of these barriers, and wake the lanes that wait for them."""
        self._time_outs = 0
        words = Words.unpack(self._memory[barriers])
        done = (words.pending == 0) & (words.bytes == 0)
        if not done.any():
            return
        barriers = barriers[done]
        words = Words(*(field[done] for field in (words.expected, words.expected, words.bytes, words.parity ^ 1)))
        self._store(barriers, words)
        for observer in self._machine.observers:
            observer.on_phase([(*KEY, number) for number in barriers.tolist()], self._machine)
        waiting = self._select_waiting(barriers)
        parity = words.parity[np.searchsorted(barriers, self._numbers[waiting])]
        if (woken := waiting[parity != self._parities[waiting]]).size:
            self._wake(woken)

    def _select_waiting(self, barriers: np.ndarray) -> np.ndarray:
        """Return the lanes that are parked at one of these barriers."""
        self._selected[barriers] = True
        lanes = np.flatnonzero(self._selected[self._numbers])
        self._selected[barriers] = False
        return lanes

    def _wake(self, lanes: np.ndarray) -> None:
        self.tell(None, lanes, self._numbers[lanes])
        self._numbers[lanes] = -1
        self._machine.schedule.wake(KEY, self._machine.mask_of(lanes))

    def land(self, barriers: np.ndarray) -> None:
        """Complete the copies at barriers at which only their bytes, or only their arrivals, are pending."""
        if self._deferred:
            self._arrive_deferred(barriers)
        self.land_copies(self.select_pending_bytes(barriers))

    def select_pending_bytes(self, barriers: np.ndarray) -> np.ndarray:
        """Return those of these barriers at which only bytes are pending."""
        words = Words.unpack(self._memory[barriers])
        return barriers[(words.pending == 0) & (words.bytes != 0)]

    def wait(
        self, instruction: Instruction, lanes: np.ndarray, numbers: np.ndarray, parities: np.ndarray, write: Write,
        mask: Mask, onward: int,
    ) -> int:  # fmt: skip
        """Let lanes wait for the end of a phase of this parity; `write` gets true. Returns the next place.

        Lanes whose phase has not ended are parked; their true is written already, for when they go on.
        """
        machine = self._machine
        words = self.words(instruction, numbers)
        late = words.parity == parities
        if late.any():
            self.land(np.unique(numbers[late]))
            late = Words.unpack(self._memory[numbers]).parity == parities
        write(machine, np.bool_(True), mask)
        self.tell(None, lanes[~late], numbers[~late])
        if not late.any():
            return onward
        self._numbers[lanes[late]], self._parities[lanes[late]] = numbers[late], parities[late]
        self._answers[onward] = write
        return machine.schedule.park(KEY, machine.mask_of(lanes[late]), onward)

    def on_time_out(self) -> bool:
        """Wake all parked lanes with a false, since no lane can go on, unless that has not helped repeatedly."""
        schedule = self._machine.schedule
        lanes = schedule.waiting_at(KEY)
        if lanes is None or self._time_outs >= MAX_TIME_OUTS:
            return False
        self._time_outs += 1
        places = schedule.parked_place(lanes)
        for place in np.unique(places):
            false = self._machine.mask_of(np.flatnonzero(lanes)[places == place])
            self._answers[int(place)](self._machine, np.bool_(False), false)
        self._numbers[lanes] = -1
        schedule.wake(KEY, lanes)
        return True

    def describe_waits(self) -> list[str]:
        """Return a line for each place and barrier at which lanes are parked."""
        machine, found = self._machine, []
        lanes = np.flatnonzero(self._numbers >= 0)
        per_block = max(machine.shared.stride // 8, 1)
        keys = np.stack([machine.schedule.parked_place(lanes), self._numbers[lanes] % per_block, self._parities[lanes]])
        kinds, first, counts = np.unique(keys, axis=1, return_index=True, return_counts=True)
        for (_, _, parity), at, count in zip(kinds.T, first, counts, strict=True):
            number = int(self._numbers[lanes[at]])
            lane, word = int(lanes[at]), Words.unpack(self._memory[[number]])
            found.append(
                f"{machine.schedule.awaited(lane).origin}: {machine.describe_lane(lane)} waits for the phase of parity "
                f"{parity} of the mbarrier at {self.describe(number)}, which lacks {word.pending[0]} of "
                f"{word.expected[0]} arrivals and {word.bytes[0]} bytes{self.describe_copies(number)}"
                + (f"; {count - 1} more threads wait here like it" if count > 1 else "")
            )
        if len(found) > _MAX_WAITS_SHOWN:
            found[_MAX_WAITS_SHOWN:] = [f"and {len(found) - _MAX_WAITS_SHOWN} waits more"]
        return found

    def tell_use(
        self, instruction: Instruction, lanes: np.ndarray, numbers: np.ndarray, initialises: bool = False
    ) -> None:
        """Tell observers that lanes initialise barriers, or use them, one entry per lane."""
        for observer in self._machine.observers:
            observer.on_mbarrier(BarrierUse(instruction, lanes, numbers, initialises, self._machine))

    def tell(self, instruction: Instruction | None, lanes: np.ndarray, numbers: np.ndarray) -> None:
        """Tell observers of lanes that arrive at barriers, or go on there (instruction: None), barrier by barrier."""
        machine = self._machine
        if not machine.observers or not lanes.size:
            return
        for number in np.unique(numbers):
            machine.schedule.tell(instruction, (*KEY, int(number)), machine.mask_of(lanes[numbers == number]))
