"""mbarriers (PTX ISA, 9.7.13.15): barriers in shared memory that count arrivals and the bytes of bulk copies.

An mbarrier is one 64-bit word of the block's own shared memory, whose layout the manual leaves open; here it is

    bits 0-19 arrivals still pending, 20-39 arrivals a phase, 40-60 bytes still to come plus 2^20, 61 parity of the
    phase, 62 set, 63 clear

so that what overwrites a barrier, or waits at one that was never initialised, is noticed. A phase ends when neither
arrivals nor bytes are pending.

Threads that wait are parked until their phase ends. Bulk copies land at the last moment: when a thread waits for
their barrier, and nothing but their bytes is missing. When no thread at all can go on, `try_wait` and `test_wait`
return false, as the manual allows at any time; after LAST_CHANCES such rounds without a change, it is a deadlock.
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
LAST_CHANCES = 64
MAX_COUNT = (1 << 20) - 1  # of arrivals, and of bytes either way
_BIAS = 1 << 20  # of the bytes still to come, which may be negative
_VALID, _VALID_MASK = np.uint64(1 << 62), np.uint64(3 << 62)
_INVALID = np.uint64(0xFFFFFFFFFFFFFFFF)
_SHOWN = 8  # waits that a report of a deadlock names


@dataclass
class Words:
    """The fields of some barriers, an int64 array each."""

    pending: np.ndarray  # arrivals until the phase may end
    expected: np.ndarray  # arrivals of a whole phase
    bytes: np.ndarray  # of bulk copies, still to come
    parity: np.ndarray  # of the phase that has not ended yet

    @classmethod
    def unpack(cls, words: np.ndarray) -> Words:
        bits = words.astype(np.int64)
        return cls(bits & MAX_COUNT, bits >> 20 & MAX_COUNT, (bits >> 40 & (1 << 21) - 1) - _BIAS, bits >> 61 & 1)

    def pack(self) -> np.ndarray:
        bits = self.pending | self.expected << 20 | self.bytes + _BIAS << 40 | self.parity << 61
        return bits.astype(np.uint64) | _VALID


class MBarriers(Unit):
    """The mbarriers of one machine; each has its number, its place among the 8-byte words of all shared memory."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        # Bulk copies: what lands those that signal some barriers, until a phase ends; and what describes those that
        # have yet to complete at a barrier, as the end of a sentence.
        self.land_copies: Callable[[np.ndarray], None] = lambda barriers: None
        self.describe_copies: Callable[[int], str] = lambda barrier: ""
        self._memory = machine.shared.view(8)
        self._live = np.zeros(self._memory.size, bool)  # initialised, and not invalidated since
        self._numbers = np.full(machine.lanes, -1, np.int64)  # of the barrier that a parked lane waits for
        self._parities = np.zeros(machine.lanes, np.int64)  # of the phase that it waits for
        self._answers: dict[int, Write] = {}  # place at which a parked lane goes on -> its predicate
        # Arrivals of copies that have not landed: barrier, instruction, lanes, and what lands them.
        self._deferred: list[tuple[int, Instruction, np.ndarray, Callable[[np.ndarray], None]]] = []
        self._chances = 0
        self._chosen = np.zeros(self._memory.size + 1, bool)  # all false; the last is for lanes that wait for nothing

    # --- where barriers are ----------------------------------------------------------------------------------

    def numbers(self, instruction: Instruction, lanes: np.ndarray, addresses) -> np.ndarray:
        """The barriers that these lane numbers name. Raises MemoryFault for an address that holds none."""
        blocks, offsets = locate_shared(self._machine, instruction, lanes, addresses, 8, 8)
        return (offsets + blocks * self._machine.shared.stride) // 8

    def words(self, instruction: Instruction, numbers: np.ndarray) -> Words:
        """The fields of barriers. Raises AsyncFault where there is none."""
        words = self._memory[numbers]
        wrong = (words & _VALID_MASK) != _VALID
        if wrong.any():
            raise AsyncFault(
                f"{instruction.origin}: there is no mbarrier at {self.describe(int(numbers[np.argmax(wrong)]))}: it "
                "was never initialised (mbarrier.init), or was overwritten or invalidated since"
            )
        return Words.unpack(words)

    def describe(self, number: int) -> str:
        """`byte 1024 of shared memory of block (0, 0, 0)`."""
        machine = self._machine
        block, byte = divmod(number * 8, max(machine.shared.stride, 1))
        lane = int(np.argmax(machine.block_index == block))
        return f"byte {byte} of shared memory of {machine.describe_block(lane)}"

    def _put(self, numbers: np.ndarray, words: Words | np.uint64) -> None:
        self._memory[numbers] = words.pack() if isinstance(words, Words) else words

    # --- what changes them -----------------------------------------------------------------------------------

    def initialise(
        self, instruction: Instruction, lanes: np.ndarray, numbers: np.ndarray, counts: np.ndarray
    ) -> None:  # fmt: skip
        """New barriers for these counts of arrivals, one entry per lane. Raises AsyncFault for one that is there.

        PTX leaves that undefined, and for two threads at once it would be so too. Where it would change nothing it is
        let pass: Triton 3.6 does so in kernels that it specialises by warps.
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
        self._put(numbers, fresh)

    def invalidate(self, instruction: Instruction, numbers: np.ndarray) -> None:
        self.words(instruction, numbers)
        self._live[numbers] = False
        self._put(numbers, _INVALID)

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
        self._put(barriers, words)
        self._advance(barriers)

    def defer(
        self,
        instruction: Instruction,
        lanes: np.ndarray,
        numbers: np.ndarray,
        awaited: int,
        finish: Callable[[np.ndarray], None],
    ) -> None:
        """One arrival for each of these lanes, when somebody waits for nothing else; `finish` is called before it.

        awaited: arrivals that the phase awaits in addition, for each lane.
        """
        barriers, lanes_each, words = self._count(instruction, numbers, np.ones(numbers.size))
        words.pending += awaited * lanes_each
        self._put(barriers, words)
        self._deferred += [(int(n), instruction, lanes[numbers == n], finish) for n in barriers]
        self._advance(barriers)

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
        self._chances = 0

    def complete(self, instruction: Instruction, numbers: np.ndarray, bytes_: np.ndarray) -> None:
        """Complete bytes of transactions, one entry per copy; phases that are complete now end."""
        self._end(self._add_bytes(instruction, numbers, -bytes_))

    def _add_bytes(self, instruction: Instruction, numbers: np.ndarray, bytes_: np.ndarray) -> np.ndarray:
        barriers, totals, words = self._count(instruction, numbers, bytes_)
        words.bytes += totals
        if (wrong := abs(words.bytes) > MAX_COUNT).any():
            at = int(np.argmax(wrong))
            raise AsyncFault(
                f"{instruction.origin}: the mbarrier at {self.describe(int(barriers[at]))} would wait for "
                f"{words.bytes[at]} bytes, and it counts to {MAX_COUNT}"
            )
        self._put(barriers, words)
        return barriers

    def _advance(self, barriers: np.ndarray) -> None:
        """After arrivals: end phases, and where only bytes are missing and someone waits, let the copies land."""
        self._end(barriers)
        lanes = self._waiting_for(barriers)
        if lanes.size:
            self.land(np.unique(self._numbers[lanes]))

    def _end(self, barriers: np.ndarray) -> None:
        """End the phases of these barriers that lack nothing, and wake those who wait for them."""
        self._chances = 0
        words = Words.unpack(self._memory[barriers])
        done = (words.pending == 0) & (words.bytes == 0)
        if not done.any():
            return
        barriers = barriers[done]
        words = Words(*(field[done] for field in (words.expected, words.expected, words.bytes, words.parity ^ 1)))
        self._put(barriers, words)
        for observer in self._machine.observers:
            observer.on_phase([(*KEY, number) for number in barriers.tolist()], self._machine)
        waiting = self._waiting_for(barriers)
        parity = words.parity[np.searchsorted(barriers, self._numbers[waiting])]
        if (woken := waiting[parity != self._parities[waiting]]).size:
            self._wake(woken)

    def _waiting_for(self, barriers: np.ndarray) -> np.ndarray:
        """The parked lanes that wait for one of these barriers."""
        self._chosen[barriers] = True
        lanes = np.flatnonzero(self._chosen[self._numbers])
        self._chosen[barriers] = False
        return lanes

    def _wake(self, lanes: np.ndarray) -> None:
        self.tell(None, lanes, self._numbers[lanes])
        self._numbers[lanes] = -1
        self._machine.schedule.wake(KEY, self._machine.mask_of(lanes))

    def land(self, barriers: np.ndarray) -> None:
        """Copies to barriers that lack nothing but their bytes land, or of whose arrivals they are what is awaited."""
        if self._deferred:
            self._arrive_deferred(barriers)
        self.land_copies(self.lacking_bytes(barriers))

    def lacking_bytes(self, barriers: np.ndarray) -> np.ndarray:
        """Those of these barriers whose phase lacks nothing but bytes."""
        words = Words.unpack(self._memory[barriers])
        return barriers[(words.pending == 0) & (words.bytes != 0)]

    # --- who waits -------------------------------------------------------------------------------------------

    def wait(
        self, instruction: Instruction, lanes: np.ndarray, numbers: np.ndarray, parities: np.ndarray, write: Write,
        mask: Mask, onward: int,
    ) -> int:  # fmt: skip
        """Lane numbers wait for the end of a phase of this parity: `write` gets true where it has ended.

        The others are parked, and have their true already for when they go on. Returns a place.
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
        """Let all parked lanes go on with a false, because nobody else can, if that may still help."""
        schedule = self._machine.schedule
        lanes = schedule.waiting_at(KEY)
        if lanes is None or self._chances >= LAST_CHANCES:
            return False
        self._chances += 1
        places = schedule.parked_place(lanes)
        for place in np.unique(places):
            false = self._machine.mask_of(np.flatnonzero(lanes)[places == place])
            self._answers[int(place)](self._machine, np.bool_(False), false)
        self._numbers[lanes] = -1
        schedule.wake(KEY, lanes)
        return True

    def describe_waits(self) -> list[str]:
        """A line for each place and barrier at which lanes are parked."""
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
        if len(found) > _SHOWN:
            found[_SHOWN:] = [f"and {len(found) - _SHOWN} waits more"]
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
