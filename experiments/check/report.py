"""What was found of a kernel, as data: `checker` fills it; the terminal, --json and --html are renderings of it."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, is_dataclass
from enum import StrEnum

from experiments.check.faults import Fault, kind_of, place_of, without_instruction
from experiments.check.messages import Message
from experiments.check.sizes import AXES, Need
from gemm_ref import Problem, clock
from gemm_ref.sass.ports import Ports

_NAMES = {"decisive": "told", "is_subject": "own"}  # of fields in JSON, where they differ
FORMAT = 1  # of `Report.data`: goes up where a field changes its meaning or is removed


class Outcome(StrEnum):
    """How a run ended."""

    RIGHT = "right"
    WRONG = "wrong"  # C is not the product
    OUTSIDE = "out of bounds"  # stopped by an access outside its array, or misaligned
    STOPPED = "stopped"  # by another fault
    REFUSED = "refused"  # cannot be run at this size; says nothing of the kernel


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
class Run:
    m: int
    n: int
    k: int
    inputs: str
    outcome: Outcome
    text: str
    decisive: bool = True  # False for a size that was tried to find out why others are wrong

    @property
    def problem(self) -> str:
        return f"{self.m}x{self.n}x{self.k}"

    @property
    def right(self) -> bool:
        return self.outcome is Outcome.RIGHT

    @property
    def refused(self) -> bool:
        return self.outcome is Outcome.REFUSED

    @property
    def kind(self) -> str:
        return f"{self.inputs.replace('_', '-')} inputs"


@dataclass(frozen=True)
class Traffic:
    """The requests of a line, as the PTX or as the machine code has them, and the cost of one of them."""

    requests: int
    bytes: float  # per lane
    taken: float  # sectors, or wavefronts


@dataclass(frozen=True)
class WarpRequest:
    """What the lanes of one warp access at once: the last of those requests that are furthest from the ideal."""

    op: str  # the instruction, of the machine code if that is known, else of the PTX
    bytes: int  # per lane
    offsets: tuple[int | None, ...]  # of each lane in the array, or in shared memory; None for an inactive lane


@dataclass(frozen=True)
class LineTraffic:
    """The memory traffic of one source line by one kind of access, a request being an instruction of a warp."""

    file: str
    line: int
    quote: str
    space: str  # global or shared
    kind: str  # load, store, ...
    array: str
    written: Traffic
    compiled: Traffic | None  # with the widths of the machine code; None where that was not disassembled
    ideal: float  # of a request of `executed`: sectors for neighbouring elements; wavefronts without bank conflicts
    request: WarpRequest | None = None  # one of `executed`

    @property
    def unit(self) -> str:
        return "sectors" if self.space == "global" else "wavefronts"

    @property
    def executed(self) -> Traffic:
        """What the hardware does, as far as that is known."""
        return self.compiled or self.written

    @property
    def is_wasteful(self) -> bool:
        """Whether the hardware does more work than it would for the same bytes placed well."""
        return self.executed.taken > 1.25 * self.ideal

    @property
    def name(self) -> str:
        """`load of A`."""
        return f"{self.kind} of {self.array or self.space}"

    @property
    def cost(self) -> str:
        return f"{self.executed.taken:.3g} {self.unit if self.executed.taken != 1 else self.unit[:-1]}"

    @property
    def widening(self) -> str:
        """The requests as the PTX has them, where ptxas joins accesses into wider ones."""
        if self.compiled in (None, self.written):
            return ""
        wide, narrow = (f"{one.bytes:.3g} bytes per lane" for one in (self.executed, self.written))
        return f" ({wide}; as written {self.written.requests} of {self.written.taken:.3g}, {narrow})"

    def __str__(self) -> str:
        return f"{self.executed.requests} requests of {self.cost}, ideal {self.ideal:.3g}{self.widening}"


@dataclass(frozen=True)
class MachineCode:
    """What ptxas made of one kernel, and how many blocks of it a multiprocessor holds."""

    kernel: str
    arch: str
    registers: int
    spill_bytes: int  # per thread: moved by all accesses to local memory in the text
    shared_bytes: int  # per block
    threads: int  # per block
    blocks: int
    share: float  # of the warps that a multiprocessor can hold
    limited_by: str
    ports: Ports | None  # of one trip round the main loop, if that is known and has FFMA

    def __str__(self) -> str:
        clocks = self.ports and self.ports.clocks / self.ports.ffma
        loop = f"; an FFMA of its main loop takes {clocks:.2f} clocks or more" if clocks else ""
        spills = f"{self.spill_bytes} bytes of spills" if self.spill_bytes else "no spills"
        return (
            f"{self.kernel} for {self.arch}: {self.registers} registers per thread, {spills}, {self.shared_bytes} "
            f"bytes of shared memory and {self.threads} threads per block; a multiprocessor holds {self.blocks} blocks "
            f"({100 * self.share:.0f}% of its warps, limited by {self.limited_by}){loop}"
        )


@dataclass(frozen=True)
class Rank:
    """A contender in the timed round, the user's kernel or another."""

    name: str
    is_subject: bool
    median_us: float | None
    tflops: float | None
    vs_cublas: float | None
    detail: str  # why it was not timed


@dataclass(frozen=True)
class LineTime:
    """A source line's share of a predicted time."""

    file: str
    line: int
    quote: str
    share: float  # of the time of all warp schedulers
    waits: dict[str, float]  # of the same, by what the line waits for, the longest wait first

    def __str__(self) -> str:
        return str(clock.Line(self.file, self.line, self.share, self.waits))


@dataclass(frozen=True)
class Predicted:
    """The time of a kernel on a GPU that is not here."""

    gpu: str
    size: str
    microseconds: float
    low_us: float  # nine in ten kernels take between these two times
    high_us: float
    tflops: float
    cublas_tflops: float | None  # measured; None where nothing is published for the card, type and size
    limit: str  # what holds it back: a resource that is busy, or what is waited for
    limit_share: float  # of the time
    is_wait: bool
    limit_line: LineTime | None  # in which that is waited for longest; of a resource, the slowest
    lines: list[LineTime]  # the slowest

    def __str__(self) -> str:
        card, size = self.gpu.removeprefix("NVIDIA ").split()[0], self.size.split("x")
        shown = f"{_two_digits(self.tflops)} TFLOP/s"
        unit = self.cublas_tflops / 100 if self.cublas_tflops else 1.0
        low, high = (_two_digits(self.tflops * self.microseconds / us / unit) for us in (self.high_us, self.low_us))
        if self.cublas_tflops:
            shown += f", {_two_digits(self.tflops / unit)}% of cuBLAS"
        return (
            f"predicted on an {card} at {size[0] if len(set(size)) == 1 else self.size}: {shown} ({low} to {high}); "
            f"held back by {self.limit} {self._where}"
        )

    @property
    def _where(self) -> str:
        line, share = self.limit_line, f"{self.limit_share:.0%} of the time"
        if line is None:
            return f"({share})"
        place = f"line {line.line}" if line.quote else f"{line.file}:{line.line}"
        if self.is_wait:
            return f"({share}, {line.waits.get(self.limit, 0.0):.0%} in {place})"
        return f"(busy {share}), slowest in {place} ({line.share:.0%})"


@dataclass(repr=False)
class Report:
    """All that was found of a kernel; a notebook shows the headline of one."""

    name: str
    path: str
    dialect: str
    how: str
    notes: list[Message] = field(default_factory=list)
    assumed: str = ""  # an unusual property that was found by trial: `B stored as N x K`
    verdicts: list[Run] = field(default_factory=list)
    why: list[Message] = field(default_factory=list)  # what is wrong with the result
    needs: list[Need] = field(default_factory=list)  # what sizes must be multiples of
    equal: str = ""  # of MNK, the sizes that must be equal
    square: bool = False  # the kernel takes one size for all three
    fixed: dict[str, int] = field(default_factory=dict)  # sizes that the source fixes, by `m`, `n`, `k`
    faults: list[Fault] = field(default_factory=list)
    limits: list[Message] = field(default_factory=list)  # no faults at the sizes that were run
    counted_at: str = ""
    lines: list[LineTraffic] = field(default_factory=list)
    advice: list[Message] = field(default_factory=list)
    code: list[MachineCode] = field(default_factory=list)
    predicted: Predicted | None = None
    unpredicted: str = ""  # why there is no predicted time
    ranking: list[Rank] = field(default_factory=list)
    ranked_at: str = ""
    unchecked: list[Message] = field(default_factory=list)
    untried: list[str] = field(default_factory=list)  # sizes for which the processor time did not suffice
    refusal: str = ""  # why nothing was run at all
    seconds: float = 0.0

    def __repr__(self) -> str:
        return f"<{self.name}: {self.headline}>"

    def add(self, run: Run) -> None:
        """Adds a run. Of two at one size, with the same inputs, the first that is decisive is kept."""
        same = [each for each in self.verdicts if (each.problem, each.inputs) == (run.problem, run.inputs)]
        if not same or run.decisive and not same[0].decisive:
            self.verdicts = [each for each in self.verdicts if each not in same] + [run]

    @property
    def decisive(self) -> list[Run]:
        """The runs that the verdict rests on."""
        return [run for run in self.verdicts if run.decisive]

    @property
    def word(self) -> Word:
        ran = [run for run in self.decisive if not run.refused]
        if not ran and not self.faults:
            return Word.REFUSED
        if not self.why and not self.faults and all(run.right for run in ran):
            return Word.SOUND
        fitting = [run for run in self.verdicts if self.fits(run) and not run.refused]
        faulty = {size for fault in self.faults for size in fault.sizes or [run.problem for run in fitting]}
        clean = all(run.right and run.problem not in faulty for run in fitting)
        has_form = self.equal != "MNK" and (self.needs or self.equal)  # who takes three sizes means any three
        return Word.PARTIAL if has_form and fitting and clean else Word.FAULTY

    def fits(self, run: Run | Problem) -> bool:
        """Whether a run's sizes are multiples of what they must be, large enough, and equal where they must."""
        equal = len({getattr(run, axis.lower()) for axis in self.equal}) <= 1
        return equal and all(need.is_met_by(run) for need in self.needs)

    @property
    def headline(self) -> str:
        stored = f", with {self.assumed}" if self.assumed else ""
        ran = [run for run in self.decisive if not run.refused]
        wrong = [run for run in ran if not run.right]
        kinds = list(dict.fromkeys(fault.kind for fault in self.faults))
        match self.word:
            case Word.SOUND:
                sizes = len({run.problem for run in ran})
                where = f"all {sizes} sizes run" if sizes > 1 else "the only size run"
                refused = len(self.decisive) - len(ran)
                others = f"; it refuses {count_of(refused, 'other')}" if refused else ""
                late = f"; out of time for {', '.join(self.untried)}" if self.untried else ""
                return f"sound{stored}: right at {where}, without a fault{others}{late}"
            case Word.PARTIAL:
                outcomes = [str(run.outcome) for run in wrong]
                seen = ["wrong"] * (Outcome.WRONG in outcomes) + (list(map(str, kinds)) or outcomes) or ["refused"]
                return f"right for {self.required_sizes}{stored}; elsewhere {', '.join(dict.fromkeys(seen))}"
            case Word.REFUSED:
                why = self.refusal.partition("\n")[0].removesuffix(":")
                return f"refused: {why or 'it cannot be run here at any size, which says nothing of the kernel'}"
        text = f"wrong in {len(wrong)} of {count_of(len(ran), 'run')}" if wrong else "right in every run"
        if self.faults:
            text += f"{',' if wrong else ', but'} {count_of(len(self.faults), 'fault')}: {', '.join(kinds)}"
        return f"faulty: {text}"

    @property
    def required_sizes(self) -> str:
        """`M, N % 128 and K % 8`, `M = N % 32`, or `M, N % 128 and K % 16 and K >= 96`."""
        by_multiple: dict[int, list[str]] = {}
        equal = self.equal or "MNK" * self.square
        for need in self.needs:
            if need.multiple != 1 and need.axis.upper() not in equal:
                by_multiple.setdefault(need.multiple, []).append(need.axis.upper())
        multiple = next((need.multiple for need in self.needs if need.axis.upper() in equal), 0)
        parts = [" = ".join(equal) + (f" % {multiple}" if multiple else "")] if equal else []
        parts += [f"{', '.join(axes)} % {multiple}" for multiple, axes in by_multiple.items()]
        parts += [f"{need.axis.upper()} >= {need.least}" for need in self.needs if need.least]
        bound = {*equal, *(need.axis.upper() for need in self.needs), *(axis.upper() for axis in self.fixed)}
        free = [axis.upper() for axis in AXES if axis.upper() not in bound]
        return " and ".join(parts) + (f", any {' and '.join(free)}" if free and self.needs else "")

    @property
    def no_time(self) -> str:
        """Why there is no predicted time, for readers; of a wrong kernel nothing need be said."""
        shown = self.unpredicted and self.word in (Word.SOUND, Word.PARTIAL)
        return f"not predicted: {self.unpredicted}" if shown else ""

    @property
    def sound(self) -> bool:
        return self.word is Word.SOUND

    @property
    def right_runs(self) -> str:
        """The sizes of runs that were right: `64x96x128, 1x1x1; one-hot inputs: 64x96x128`."""
        sizes: dict[str, list[str]] = {}
        for run in self.decisive:
            if run.right:
                sizes.setdefault("" if run.inputs == "integers" else f"{run.kind}: ", []).append(run.problem)
        return "; ".join(kind + ", ".join(sizes[kind]) for kind in sorted(sizes, key=bool))

    @property
    def other_runs(self) -> list[tuple[Outcome, str]]:
        """The runs that were not right, with sizes and what happened; those that one fault stopped in a line."""
        sizes: dict[tuple[Outcome, str], list[str]] = {}
        for run in self.decisive:
            if not run.right:
                text, (file, line) = without_instruction(run.text), place_of(run.text)
                if run.outcome in (Outcome.OUTSIDE, Outcome.STOPPED):  # the fault itself is described elsewhere
                    text = kind_of(run.text) + (f" in {file}:{line}" if file else "")
                kind = "" if run.inputs == "integers" else f" ({run.kind})"
                sizes.setdefault((run.outcome, text), []).append(run.problem + kind)
        return [(outcome, f"at {', '.join(where)}: {text}") for (outcome, text), where in sizes.items()]

    def data(self) -> dict:
        """All of it as JSON has it: docs/check.md names the fields."""
        word = self.word
        head = {"format": FORMAT, "verdict": word, "exit_code": word.exit_code, "sound": self.sound}
        messages = ((name, getattr(self, name)) for name in ("notes", "why", "limits", "advice", "unchecked"))
        codes = {name: [each.data() for each in found] for name, found in messages}
        return head | {"headline": self.headline} | _plain(self) | {"codes": codes}


def _plain(value):
    match value:
        case Message():
            return str(value)
        case Run() | Rank():
            return {_NAMES.get(name, name): each for name, each in vars(value).items()}
        case Fault():
            return {"code": value.kind.name, **vars(value)}
        case dict():
            return {key: _plain(each) for key, each in value.items()}
        case list() | tuple():
            return [_plain(each) for each in value]
        case None | bool() | int() | float() | str():
            return value
        case _ if is_dataclass(value):
            return {each.name: _plain(getattr(value, each.name)) for each in fields(value)}
    return str(value)


def _two_digits(number: float) -> str:
    """The number with two significant digits, which is what a prediction has."""
    return f"{float(f'{number:.2g}'):g}"


def count_of(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"
