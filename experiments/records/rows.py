"""What a row of results holds: dataclasses whose fields are the columns of a CSV; EXPERIMENTS says whose are which.

All rows begin with who and what (`Row`), and end with how it went and in which run. Times are in microseconds; None
is a value that was not measured.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, ClassVar, Self

from experiments.records.contenders import Contender
from gemm_ref.compute import MATHS
from gemm_ref.problem import Problem
from gemm_ref.rung import DEFAULT_VARIANT

PASS, FAIL, ERROR, SKIPPED = "pass", "fail", "error", "skipped"
COLD, WARM, GRAPH = "cold", "warm", "graph"  # how a time is taken; `experiments.bench.timers` says what each is
MODES = (COLD, WARM, GRAPH)
# How others take times; `experiments.bench.other_timers` has them.
PROFILER, DO_BENCH, EVENTS, HOST = "profiler", "do_bench", "events", "host clock"
WAYS = (*MODES, PROFILER, DO_BENCH, EVENTS, HOST)
STRONG, WEAK = "strong", "weak"  # of `scaling`: one problem divided, or one that grows with the cards
# What is timed there beside the ways of `gemm_ref.distributed.layouts`; the last two are of one card.
COLLECTIVE, COPIES, PRODUCT, ONE_CARD = "collective", "copies", "product", "one card"
BURST, SUSTAINED = "burst", "sustained"  # of `energy`: back to back for some milliseconds, and for seconds
HARDWARE = "hardware"  # the view of rows that a GPU's own counters gave, beside `written` and `compiled`; or its sums,
PREDICTED = "predicted"  # beside those of the reference GPU

_IN_FRAMES: dict[str, str | type] = {"str": str, "int": "int64"}


@dataclass(frozen=True, kw_only=True)
class Row:
    """What every row has. A rerun replaces the row whose columns KEY are the same.

    What is measured of the device, and not of a contender at a problem, has no dialect, math, type and sizes.
    """

    # The columns that say which measurement it is.
    KEY: ClassVar[tuple[str, ...]] = ("experiment", "stage", "variant", "backend", "dialect", "math", "m", "n", "k")

    experiment: str
    stage: str  # a rung's id or a baseline's name
    variant: str = DEFAULT_VARIANT
    backend: str
    dialect: str = ""  # empty for baselines
    math: str = ""
    dtype: str = ""
    m: int = 0
    n: int = 0
    k: int = 0
    status: str = PASS
    detail: str = ""  # why it was skipped or how it failed, whole; the CSV keeps a cell's length of it
    run: str = ""  # key of environment.json; set when saved

    @classmethod
    def about(cls, experiment: str, contender: Contender, problem: Problem, **values: Any) -> Self:
        """A row about one contender and one problem."""
        return cls(
            experiment=experiment,
            stage=contender.stage,
            variant=contender.variant,
            backend=contender.backend,
            dialect=contender.dialect,
            math=contender.math,
            dtype=str(MATHS[contender.math].dtype).removeprefix("torch."),
            m=problem.m,
            n=problem.n,
            k=problem.k,
            **contender.columns,
            **values,
        )

    @classmethod
    def columns(cls) -> tuple[str, ...]:
        """The columns of the CSV, in order: status, detail and run are last."""
        names = [field.name for field in fields(cls)]
        last = ("status", "detail", "run")
        return (*(name for name in names if name not in last), *last)

    @classmethod
    def types(cls) -> dict[str, str | type]:
        """Column -> its type in a data frame; a number that may be missing is a float."""
        return {field.name: _IN_FRAMES.get(str(field.type), "float64") for field in fields(cls)}


@dataclass(frozen=True, kw_only=True)
class Checked(Row):
    """One run against the oracle."""

    KEY: ClassVar[tuple[str, ...]] = (*Row.KEY, "inputs")
    inputs: str = ""  # kind of the inputs
    rel_error: float | None = None
    bound_share: float | None = None  # largest |error| / allowed error; at most 1 when correct


@dataclass(frozen=True, kw_only=True)
class Proved(Checked):
    """A check of `correctness`; or, in a published folder, of several the one that used most of what is allowed."""

    checks: int = 1  # that the row stands for: passed ones of one kernel, K and kind of inputs


@dataclass(frozen=True, kw_only=True)
class Summed(Checked):
    """A product's error and its bits; or, of an instruction by itself, how many of its sums are not as predicted."""

    KEY: ClassVar[tuple[str, ...]] = (*Checked.KEY, "view")
    view: str = ""  # HARDWARE or PREDICTED
    checksum: str = ""  # CRC-32 of C's bytes
    dealt: str = ""  # the tile, and the blocks that its tiles are dealt to, of a rung that chooses them by shape
    vectors: int | None = None  # that an instruction was given,
    mismatches: int | None = None  # and of how many the sum has other bits than the reference GPU's


@dataclass(frozen=True, kw_only=True)
class Lost(Checked):
    """What a product lost on inputs of one kind."""

    KEY: ClassVar[tuple[str, ...]] = (*Checked.KEY, "view")
    view: str = ""  # HARDWARE or PREDICTED
    max_error: float | None = None  # the largest |error| / (|A| @ |B|) of an element
    widened: float | None = None  # share of the rows of A and columns of B that parts did not hold


@dataclass(frozen=True, kw_only=True)
class Timed(Checked):
    """Times of one contender at one problem, checked first."""

    KEY: ClassVar[tuple[str, ...]] = (*Checked.KEY, "mode")
    mode: str = ""  # of `experiments.bench.timers`: what the caches hold and whether a launch is part of the time
    median_us: float | None = None
    p20_us: float | None = None
    p80_us: float | None = None
    repeats: int | None = None
    tflops: float | None = None
    vs_cublas: float | None = None  # speed as a share of cuBLAS of the same math in the same rounds: the median, and
    vs_cublas_low: float | None = None  # its 95% interval
    vs_cublas_high: float | None = None
    verdict: str = ""  # FASTER, SLOWER, SAME or UNSURE, beside cuBLAS
    kernel: str = ""  # what the GPU ran, where a library chose it
    sm_mhz: float | None = None  # median of the multiprocessors' clock while the problem was timed,
    sm_mhz_low: float | None = None  # and the lowest that was seen
    power_w: float | None = None  # median,
    power_w_high: float | None = None  # and the largest
    temperature_c: float | None = None  # the largest
    throttle: str = ""  # reasons for which the driver held the clock down, if any


@dataclass(frozen=True, kw_only=True)
class TimedLayout(Timed):
    """As `Timed`, where B may be stored either way."""

    KEY: ClassVar[tuple[str, ...]] = (*Timed.KEY, "b_layout")
    b_layout: str = ""  # of gemm_ref.B_LAYOUTS


@dataclass(frozen=True, kw_only=True)
class Ported(Timed):
    """A loop that reads registers: one of chosen registers, or the main loop of a rung whose text is changed.

    Clocks are those of one scheduler for one instruction, of a rung's loop for one multiply-add.
    """

    KEY: ClassVar[tuple[str, ...]] = (*Timed.KEY, "form", "warps")
    form: str = ""  # what the loop asks of the ports; of a rung, which of its text's rules are applied
    warps: int | None = None  # of a scheduler, at a time
    registers: int | None = None  # of a thread of a rung
    predicted: float | None = None  # clocks, from the machine code alone
    clocks: float | None = None  # measured: the median,
    clocks_low: float | None = None  # the 20th
    clocks_high: float | None = None  # and the 80th percentile


@dataclass(frozen=True, kw_only=True)
class Tried(Timed):
    """As `Timed`, of a tile (`variant`) and blocks that could have been chosen for the problem."""

    KEY: ClassVar[tuple[str, ...]] = (*Timed.KEY, "blocks")
    blocks: int = 0  # that the tiles are dealt to; 0 for a library
    predicted_us: float | None = None
    chosen: int = 0  # 1 where the model chose it
    candidates: int = 0  # for this problem and dialect, with those that were not tried
    autotune_s: float | None = None  # where Triton's autotune picked it: the seconds that this took


@dataclass(frozen=True, kw_only=True)
class Finished(Timed):
    """As `Timed`, of a product of which more is made; its time is beside that of the plain one too."""

    KEY: ClassVar[tuple[str, ...]] = (*Timed.KEY, "form", "how")
    form: str = ""  # what is made of it, of `experiments.studies.epilogues.study.FORMS`
    how: str = ""  # in one kernel, "fused", or in several, "in turn"
    over_plain: float | None = None  # the time over that of the same contender's plain product: the median, and
    over_plain_low: float | None = None  # its 95% interval
    over_plain_high: float | None = None


@dataclass(frozen=True, kw_only=True)
class Scaled(Timed):
    """As `Timed`, of a product on several cards, beside the library's in turn; or of a part of it.

    Sizes are those of the whole product; of PRODUCT and ONE_CARD, those of what a card computes by itself.
    """

    KEY: ClassVar[tuple[str, ...]] = (*Timed.KEY, "layout", "way", "gpus", "scaling")
    layout: str = ""  # of `gemm_ref.distributed.layouts.LAYOUTS`
    way: str = ""  # of its WAYS, or one of COLLECTIVE, COPIES, PRODUCT, ONE_CARD
    gpus: int = 0  # ranks; processes on a CPU
    grid: str = ""  # rows x columns of ranks, where they are a grid
    scaling: str = ""  # STRONG or WEAK
    link_bytes: int = 0  # that each rank receives in a call
    efficiency: float | None = None  # speed of a card as a share of ONE_CARD in the same rounds: the median, and
    efficiency_low: float | None = None  # its 95% interval
    efficiency_high: float | None = None


@dataclass(frozen=True, kw_only=True)
class HostCost(Row):
    """What one call of a contender costs the host: the time until it is in the GPU's queue, C allocated."""

    median_us: float | None = None
    p20_us: float | None = None
    p80_us: float | None = None
    repeats: int | None = None  # samples, of several calls each


@dataclass(frozen=True, kw_only=True)
class Cost(Row):
    """What one kernel takes to write, to compile and to hold."""

    own_lines: int | None = None  # of code, as `experiments.records.source_lines` counts it
    own_tokens: int | None = None
    shared_lines: int | None = None  # of the files that it uses and others too
    shared_tokens: int | None = None
    arch: str = ""  # that it was compiled for
    compile_s: float | None = None  # CPU seconds from source to cubin, nothing compiled before: the median,
    compile_s_low: float | None = None  # the least
    compile_s_high: float | None = None  # and the most
    compiles: int | None = None  # of so many times
    registers: int | None = None  # of a thread, in the rung's main kernel
    shared_bytes: int | None = None  # of a block, static and dynamic
    code_bytes: int | None = None  # of machine code


@dataclass(frozen=True, kw_only=True)
class Compiled(Row):
    """One kernel as machine code. The counts are of one trip through its main loop, for one thread."""

    KEY: ClassVar[tuple[str, ...]] = (*Row.KEY, "arch")
    arch: str  # "sm_90a"
    registers: int | None = None  # of a thread
    stack_bytes: int | None = None  # of a thread, in local memory
    spill_bytes: int | None = None  # of a thread: what all loads and stores of local memory in the text move
    shared_bytes: int | None = None  # of a block, static and dynamic
    threads: int | None = None  # of a block
    blocks_per_sm: int | None = None  # that fit a multiprocessor at once, and
    occupancy: float | None = None  # the share of its warps that they fill
    limited_by: str = ""  # what runs out first, with commas
    instructions: int | None = None  # in the trip; the columns below are parts of it, as in `gemm_ref.sass.mix`
    ffma: int | None = None
    ffma2: int | None = None
    mma: int | None = None
    lds_32: int | None = None
    lds_64: int | None = None
    lds_128: int | None = None
    ldsm: int | None = None
    sts_32: int | None = None
    sts_64: int | None = None
    sts_128: int | None = None
    stsm: int | None = None
    ldg_32: int | None = None
    ldg_64: int | None = None
    ldg_128: int | None = None
    ldgsts_32: int | None = None
    ldgsts_64: int | None = None
    ldgsts_128: int | None = None
    stg: int | None = None
    integer: int | None = None
    barrier: int | None = None
    control: int | None = None
    spill: int | None = None
    other: int | None = None
    flop_per_trip: float | None = None
    k_per_trip: float | None = None  # steps along K
    ffma_share: float | None = None  # of the instructions, FFMA2 and MMA with it
    integer_share: float | None = None
    ffma_per_lds_byte: float | None = None  # multiply-adds a byte that the thread gets from shared memory
    even_reads: int | None = None  # of registers with even numbers, where the trip has FFMA and on sm_90a alone,
    odd_reads: int | None = None  # and with odd ones
    port_clocks: int | None = None  # the least of a scheduler for one warp's trip, as in `gemm_ref.sass.ports`
    clocks: float | None = None  # what it takes, of fp32 on sm_90a, as `gemm_ref.sass.schedule` executes the trip;
    wait_registers: float | None = None  # of these it waits for registers,
    wait_shared: float | None = None  # for shared memory,
    wait_global: float | None = None  # for loads and copies from global memory,
    wait_barrier: float | None = None  # for its block,
    wait_before: float | None = None  # and for the instructions before


@dataclass(frozen=True, kw_only=True)
class Ceiling(Row):
    """What the device reached in one micro-kernel, which `stage` names; it has no sizes M, N, K."""

    KEY: ClassVar[tuple[str, ...]] = ("experiment", "stage")
    unit: str = ""  # TFLOP/s or TB/s, of all that follow
    value: float | None = None  # the median of `repeats` runs,
    low: float | None = None  # and their 20th
    high: float | None = None  # and 80th percentile
    repeats: int | None = None
    median_us: float | None = None
    by_clock: float | None = None  # what the device's own properties allow at its highest clock
    datasheet: float | None = None  # the vendor's figure
    source: str = ""  # the title of the document that it is from
    sm_mhz: float | None = None  # the multiprocessors' clock under this load


@dataclass(frozen=True, kw_only=True)
class Counted(Row):
    """What one source line of a kernel asks of memory by one kind of access; a kernel has many such rows.

    All numbers are sums over the launch. `space` once: the distinct sectors of a tensor that the launch touches at all.
    """

    KEY: ClassVar[tuple[str, ...]] = Row.KEY  # a kernel is counted whole: its lines may have moved since the last time
    view: str = ""  # written: as the PTX says; compiled: with the widths of the machine code
    launch: int = 0  # of the kernels that one call starts, from 1
    file: str = ""
    line: int = 0
    op: str = ""  # the instruction, in PTX or in machine code
    space: str = ""  # global, shared, local, once; empty for arithmetic
    array: str = ""  # a tensor's name, or that of a shared array where the kernel names it
    kind: str = ""  # load, store, async load and async store (the sides of a cp.async), atomic; flop
    lane_bytes: int = 0
    requests: int = 0  # of a warp
    lanes: int = 0
    sectors: int = 0  # of 32 bytes
    wavefronts: int = 0
    ideal: int = 0  # wavefronts without bank conflicts
    flop: int = 0
    spills: int = 0  # compiled: instructions that keep registers in local memory, in the launch's kernel
    unmatched: int = 0  # compiled: bytes asked for beyond the written ones by all of the launch's accesses of this kind
    words: str = ""  # shared: the first word of each lane, - for one that takes no part, in the worst request


# Each is a folder of `experiments/studies`, and its CSV's name: what the rows of that CSV are.
# They are run in this order: `cost` compiles anew what the others then find compiled.
EXPERIMENTS: dict[str, type[Row]] = {
    "cost": Cost,
    "correctness": Proved,
    "ladder": Timed,
    "squares": Timed,
    "shapes": Timed,
    "choice": Tried,
    "roofs": Ceiling,
    "registers": Ported,
    "modes": Timed,
    "timers": Timed,
    "host": HostCost,
    "tensor_cores": TimedLayout,
    "energy": Timed,
    "epilogues": Finished,
    "scaling": Scaled,
    "accuracy": Checked,
    "rounding": Summed,
    "emulation": Lost,
    "memory": Counted,
    "instructions": Compiled,
}
