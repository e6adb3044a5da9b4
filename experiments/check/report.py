"""What was found of a kernel, as data: `examine` fills it and `show` prints it."""

from __future__ import annotations

from dataclasses import dataclass, field

from gemm_ref.sass.ports import Ports


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

    problem: str
    inputs: str
    right: bool
    text: str


@dataclass(frozen=True)
class Asked:
    """The requests of a line, as the PTX or as the machine code has them, and what one of them takes."""

    requests: int
    bytes: float  # of a lane
    taken: float  # sectors, or wavefronts


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
    verdicts: list[Verdict] = field(default_factory=list)
    why: list[str] = field(default_factory=list)  # what is wrong with the result, in words
    faults: list[Fault] = field(default_factory=list)
    limits: list[str] = field(default_factory=list)  # what is no fault at the sizes that were run
    counted_at: str = ""
    lines: list[Line] = field(default_factory=list)
    advice: list[str] = field(default_factory=list)
    code: list[Code] = field(default_factory=list)
    ranking: list[Rank] = field(default_factory=list)
    ranked_at: str = ""
    unchecked: list[str] = field(default_factory=list)  # what could not be looked at, and why
    seconds: float = 0.0

    @property
    def sound(self) -> bool:
        """Whether nothing is wrong with the kernel."""
        return not self.why and not self.faults and all(verdict.right for verdict in self.verdicts)
