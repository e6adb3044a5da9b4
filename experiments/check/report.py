"""What was found of a kernel, as data: `examine` fills it; the terminal, --json and --html say the same of it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from enum import StrEnum

from experiments.check.sizes import AXES, Need
from gemm_ref import Problem
from gemm_ref.sass.ports import Ports

FORMAT = 1  # of `Report.data`: goes up where a field changes its meaning or goes away


class Outcome(StrEnum):
    """How a run ended."""

    RIGHT = "right"
    WRONG = "wrong"  # C is not the product
    OUTSIDE = "out of bounds"  # stopped by an access outside its array, or misaligned
    STOPPED = "stopped"  # by another fault
    REFUSED = "refused"  # cannot be carried out at this size; says nothing of the kernel


class Word(StrEnum):
    """The verdict on a kernel, in a word."""

    SOUND = "sound"
    PARTIAL = "partial"  # sound where its sizes are multiples of what `needs` says
    FAULTY = "faulty"
    REFUSED = "refused"

    @property
    def exit_code(self) -> int:
        return {Word.SOUND: 0, Word.FAULTY: 1, Word.REFUSED: 2, Word.PARTIAL: 3}[self]


@dataclass(frozen=True)
class Fault:
    """One thing that is wrong, at one line, told by the first thread that showed it."""

    kind: str
    text: str
    file: str
    line: int
    quote: str  # the line of the source, empty where the file is not the user's
    other_line: int = 0  # where the other thread did its part; 0 where there is none, or on the same line
    other_quote: str = ""
    sizes: tuple[str, ...] = ()  # where it showed


@dataclass(frozen=True)
class Verdict:
    """One run: what is said of C."""

    m: int
    n: int
    k: int
    inputs: str
    outcome: Outcome
    text: str
    told: bool = True  # false for a size that was tried to find out why others are wrong

    @property
    def problem(self) -> str:
        return f"{self.m}x{self.n}x{self.k}"

    @property
    def right(self) -> bool:
        return self.outcome is Outcome.RIGHT


@dataclass(frozen=True)
class Asked:
    """The requests of a line, as the PTX or as the machine code has them, and what one of them takes."""

    requests: int
    bytes: float  # of a lane
    taken: float  # sectors, or wavefronts


@dataclass(frozen=True)
class Request:
    """What the lanes of one warp ask for at once: the last of those requests that are furthest from the ideal."""

    op: str  # the instruction, of the machine code if that is known, else of the PTX
    bytes: int  # of a lane
    offsets: tuple[int | None, ...]  # where a lane's begin in the array, or in shared memory; None: takes no part


@dataclass(frozen=True)
class Line:
    """What one source line asks of memory by one kind of access, a request being an instruction of a warp."""

    file: str
    line: int
    quote: str
    space: str  # global or shared
    kind: str  # load, store, ...
    array: str
    written: Asked
    compiled: Asked | None  # with the widths of the machine code; None where that was not looked at
    ideal: float  # of a request of `done`: sectors for neighbouring elements; wavefronts without bank conflicts
    request: Request | None = None  # one of `done`

    @property
    def unit(self) -> str:
        return "sectors" if self.space == "global" else "wavefronts"

    @property
    def done(self) -> Asked:
        """What the hardware does, as far as that is known."""
        return self.compiled or self.written

    @property
    def wasteful(self) -> bool:
        """Whether the hardware does more work than it would for the same bytes placed well."""
        return self.done.taken > 1.25 * self.ideal


@dataclass(frozen=True)
class Code:
    """What ptxas made of one kernel, and how many blocks of it a multiprocessor holds."""

    kernel: str
    arch: str
    registers: int
    spill_bytes: int  # of a thread: what all accesses to local memory in the text move
    shared_bytes: int  # of a block
    threads: int  # of a block
    blocks: int
    share: float  # of the warps that a multiprocessor can hold
    limited_by: str
    ports: Ports | None  # of one trip round the main loop, if that is known and has FFMA


@dataclass(frozen=True)
class Rank:
    """A contender in the timed round, the user's kernel or another."""

    name: str
    own: bool
    median_us: float | None
    tflops: float | None
    vs_cublas: float | None
    detail: str  # why it was not timed


@dataclass
class Report:
    """Everything that is said of a kernel."""

    name: str
    path: str
    dialect: str
    how: str
    notes: list[str] = field(default_factory=list)
    assumed: str = ""  # what was found by trying, and is not what is usual: `B stored as N x K`
    verdicts: list[Verdict] = field(default_factory=list)
    why: list[str] = field(default_factory=list)  # what is wrong with the result, in words
    needs: list[Need] = field(default_factory=list)  # what sizes must be multiples of
    equal: str = ""  # of MNK, the sizes that must be equal
    square: bool = False  # it takes one size for all three
    fixed: dict[str, int] = field(default_factory=dict)  # sizes that it has of itself, by `m`, `n`, `k`
    faults: list[Fault] = field(default_factory=list)
    limits: list[str] = field(default_factory=list)  # what is no fault at the sizes that were run
    counted_at: str = ""
    lines: list[Line] = field(default_factory=list)
    advice: list[str] = field(default_factory=list)
    code: list[Code] = field(default_factory=list)
    ranking: list[Rank] = field(default_factory=list)
    ranked_at: str = ""
    unchecked: list[str] = field(default_factory=list)  # what could not be looked at, and why
    refusal: str = ""  # why nothing was run at all
    seconds: float = 0.0

    def add(self, verdict: Verdict) -> None:
        """Put down a run. Of two at one size, with the same inputs, the first that is told stays."""
        same = [each for each in self.verdicts if (each.problem, each.inputs) == (verdict.problem, verdict.inputs)]
        if same and (same[0].told or not verdict.told):
            return
        self.verdicts = [each for each in self.verdicts if each not in same] + [verdict]

    @property
    def told(self) -> list[Verdict]:
        """The runs that the verdict rests on."""
        return [verdict for verdict in self.verdicts if verdict.told]

    @property
    def word(self) -> Word:
        ran = [verdict for verdict in self.told if verdict.outcome is not Outcome.REFUSED]
        if not ran and not self.faults:
            return Word.REFUSED
        if not self.why and not self.faults and all(verdict.right for verdict in ran):
            return Word.SOUND
        fitting = [
            verdict for verdict in self.verdicts if self.fits(verdict) and verdict.outcome is not Outcome.REFUSED
        ]
        seen = {size for fault in self.faults for size in fault.sizes or [verdict.problem for verdict in fitting]}
        clean = all(verdict.right and verdict.problem not in seen for verdict in fitting)
        return Word.PARTIAL if (self.needs or self.equal) and fitting and clean else Word.FAULTY

    def fits(self, verdict: Verdict | Problem) -> bool:
        """Whether a run's sizes are multiples of what they must be, large enough, and equal where they must."""
        equal = len({getattr(verdict, axis.lower()) for axis in self.equal}) <= 1
        return equal and all(need.met(verdict) for need in self.needs)

    @property
    def headline(self) -> str:
        """The verdict in a line."""
        stored = f", with {self.assumed}" if self.assumed else ""
        ran = [verdict for verdict in self.told if verdict.outcome is not Outcome.REFUSED]
        wrong = [verdict for verdict in ran if not verdict.right]
        kinds = list(dict.fromkeys(fault.kind for fault in self.faults))
        match self.word:
            case Word.SOUND:
                sizes = len({verdict.problem for verdict in ran})
                where = f"all {sizes} sizes run" if sizes > 1 else "the only size run"
                refused = len(self.told) - len(ran)
                others = f"; it refuses {_count(refused, 'other')}" if refused else ""
                return f"sound{stored}: right at {where}, without a fault{others}"
            case Word.PARTIAL:
                outcomes = [str(verdict.outcome) for verdict in wrong]
                seen = ["wrong"] * (Outcome.WRONG in outcomes) + (kinds or outcomes) or ["refused"]
                return f"right for {self.needed}{stored}; elsewhere {', '.join(dict.fromkeys(seen))}"
            case Word.REFUSED:
                why = self.refusal.partition("\n")[0].removesuffix(":")
                return f"refused: {why or 'it cannot be run here at any size, which says nothing of the kernel'}"
        said = f"wrong in {len(wrong)} of {_count(len(ran), 'run')}" if wrong else "right in every run"
        if self.faults:
            said += f"{',' if wrong else ', but'} {_count(len(self.faults), 'fault')}: {', '.join(kinds)}"
        return f"faulty: {said}"

    @property
    def needed(self) -> str:
        """`M, N % 128 and K % 8`, `M = N % 32`, or `M, N % 128 and K % 16 and K >= 96`."""
        by_multiple: dict[int, list[str]] = {}
        for need in self.needs:
            if need.multiple != 1:
                by_multiple.setdefault(need.multiple, []).append(need.axis.upper())
        equal = self.equal or "MNK" * self.square
        together = " = ".join(equal)
        multiple = next((need.multiple for need in self.needs if need.axis.upper() in equal), 0)
        parts = [together + (f" % {multiple}" if multiple else "")] if equal else []
        for multiple, axes in by_multiple.items():
            own = [axis for axis in axes if axis not in equal]
            parts += [f"{', '.join(own)} % {multiple}"] if own else []
        parts += [f"{need.axis.upper()} >= {need.least}" for need in self.needs if need.least]
        told = {*equal, *(need.axis.upper() for need in self.needs), *(axis.upper() for axis in self.fixed)}
        free = [axis.upper() for axis in AXES if axis.upper() not in told]
        return " and ".join(parts) + (f", any {' and '.join(free)}" if free and self.needs else "")

    @property
    def sound(self) -> bool:
        """Whether nothing is wrong with the kernel."""
        return self.word is Word.SOUND

    def data(self) -> dict:
        """All of it as JSON has it: docs/check.md names the fields."""
        word = self.word
        head = {"format": FORMAT, "verdict": word, "exit_code": word.exit_code, "sound": self.sound}
        return head | {"headline": self.headline} | asdict(self)


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"
