"""The time of a kernel on a GPU that is not there, from what a few of its blocks do on the reference GPU.

Of each launch the blocks that one multiprocessor holds at a time are simulated together (`machine`), with a main loop
of a few trips; more trips take as long as those that go evenly. A multiprocessor with more blocks than it holds takes
them one wave after another.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from gemm_ref.clock import flow, machine
from gemm_ref.clock.gpu import Gpu
from gemm_ref.clock.machine import Multiprocessor, Rates, Run, Step
from gemm_ref.clock.sample import Sample
from gemm_ref.clock.steps import ALU, IMAD, SHUFFLE, XU, Steps
from gemm_ref.clock.trace import TracedSteps
from gemm_ref.clock.traffic import least_us, memory_share
from gemm_ref.launch import cdiv
from gemm_ref.sass import tools
from gemm_ref.sass.listing import SassKernel, controlled, parse
from gemm_ref.sass.occupancy import ARCHITECTURES, Occupancy, occupancy, requested_bytes
from gemm_ref.sass.ports import SCHEDULERS
from gemm_ref.sass.sections import INSTRUCTION_BYTES

# Resources and reasons, for readers.
NAMES = MappingProxyType(
    {
        machine.ISSUE: "issue slots",
        machine.L1: "L1 cache and shared memory",
        machine.L2: "L2 cache",
        machine.MEMORY: "device memory",
        machine.TENSOR: "tensor cores",
        ALU: "the integer pipe",
        IMAD: "integer multiplies",
        XU: "conversions",
        SHUFFLE: "shuffles",
        machine.REGISTERS: "waiting for register ports",
        machine.SHARED: "waiting for shared memory",
        machine.GLOBAL: "waiting for global memory",
        machine.BARRIER: "waiting at barriers",
        machine.BEFORE: "waiting for results",
        machine.PIPE: "waiting for a busy pipe",
    }
)
ARCHITECTURE = "sm_90a"  # of all GPUs in the table
MIN_SHARE = 0.005  # of the time; less would read 0%
SATURATED = 0.7  # share of the time from which on a busy resource is what holds a kernel back
MOST_UNEXPLAINED = 0.2  # share of the executions of PTX lines; beyond, no time is given
TO_SHARED = 4.0  # clocks from a scheduler to L1 and shared memory (an assumption)
FEWEST_TRIPS, MOST_TRIPS = 8, 24  # of a main loop that are simulated
_MOST_UNROLLED = 8  # times that a loop may be unrolled without the suspicion of being two
ISSUES = 100_000  # of all warps in a main loop, about as many as are simulated in a second


class Limit(NamedTuple):
    """What holds a kernel or a line back."""

    name: str  # of a resource that is busy, or of what schedulers wait for, one of NAMES
    share: float  # of the time
    is_wait: bool

    def __str__(self) -> str:
        return f"{self.name} ({'' if self.is_wait else 'busy '}{self.share:.0%} of the time)"


@dataclass(frozen=True)
class Line:
    """A source line's share of a launch."""

    file: str
    line: int
    share: float  # of the time
    waits: Mapping[str, float]  # shares of the time in which schedulers waited there, by name
    callers: tuple[str, ...] = ()  # `file:line` of the call that was inlined there, then of that one's caller, ...

    def __str__(self) -> str:
        parts = [f"{part.share:.0%} {part.name}" for part in self.parts if part.share >= MIN_SHARE]
        return f"{self.share:.0%} of the time: {', '.join(parts[:2])}"

    @property
    def parts(self) -> list[Limit]:
        """What its share of the time consists of, the issue of its own instructions and waits; the largest first."""
        issue = Limit(NAMES[machine.ISSUE], self.share - sum(self.waits.values()), is_wait=False)
        waits = [Limit(*wait, is_wait=True) for wait in self.waits.items()]
        return sorted([issue, *waits], key=lambda part: -part.share)


class NeedsHalf(Exception):
    """Half the K has to be observed too."""


@dataclass(frozen=True)
class LaunchTime:
    """One launch of a kernel."""

    kernel: str
    microseconds: float
    held: Occupancy
    waves: float
    busy: Mapping[str, float]  # shares of the time in which each resource worked
    waiting: Mapping[str, float]  # shares of the time in which schedulers could not issue, by reason
    places: tuple[Line, ...]  # one for each source line and chain of calls that leads there
    unexplained: float  # share of the executions of PTX lines that no path through the machine code explains

    @property
    def lines(self) -> list[Line]:
        """By source line, wherever it is called from; the one with the largest share of the time first."""
        return _merge(self.places, lambda place: f"{place.file}:{place.line}")

    def lines_in(self, file: str) -> list[Line]:
        """By line of a file, with what is called there in other files; the largest share first.

        file: without folders. What neither is in the file nor is called there is left out.
        """

        def name(place: Line) -> str:
            frames = (f"{place.file}:{place.line}", *place.callers)
            return next((frame for frame in frames if frame.rpartition(":")[0] == file), "")

        return [line for line in _merge(self.places, name) if line.file]

    @property
    def limit(self) -> Limit:
        """The busiest resource, or what is waited for most where none is busy for SATURATED of the time."""
        resource, share = max(self.busy.items(), key=lambda each: each[1])
        if share >= SATURATED or not self.waiting:
            return Limit(NAMES[resource], share, is_wait=False)
        reason, share = max(self.waiting.items(), key=lambda each: each[1])
        return Limit(name_wait(reason), share, is_wait=True)


def _merge(places: Sequence[Line], name: Callable[[Line], str]) -> list[Line]:
    """The sums of places with the same `file:line` by `name`, the largest share first."""
    shares: dict[str, float] = defaultdict(float)
    waits: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for place in places:
        shares[name(place)] += place.share
        for reason, share in place.waits.items():
            waits[name(place)][reason] += share
    found = []
    for key, share in sorted(shares.items(), key=lambda each: -each[1]):
        file, _, line = key.rpartition(":")
        by_share = sorted(waits[key].items(), key=lambda wait: -wait[1])
        found.append(Line(file, int(line or 0), share, dict(by_share)))
    return found


def name_wait(reason: str) -> str:
    """Returns what warps wait for, in words; the model names some waits by the resource that is busy."""
    name = NAMES[reason]
    return name if name.startswith("waiting") else f"waiting for {name}"


_Paths = Sequence[tuple[Sequence[Step], Sequence[int]]]  # of each warp: its steps, and where trips begin


@dataclass(frozen=True)
class _Work:
    """What the warps of a block execute."""

    paths: _Paths
    trips: float  # of the main loop in the sample
    simulated: float  # and in the paths
    body: Set[int]  # places of the main loop
    ptx_lines: Mapping[int, int]  # of places
    fewer: _Paths = ()  # with fewer trips: the difference tells what one takes. Of what was recorded, none
    fewer_simulated: float = 0.0
    unexplained: float = 0.0


def time_launch(
    sample: Sample, gpu: Gpu, scale: float = 1.0, is_cold: bool = True, half: Sample | None = None
) -> LaunchTime:
    """The time of one launch whose K is `scale` times the sample's.

    half: the same with half the sample's K: the difference tells what more K takes where that is not told by trips of
    the main loop, as of kernels that were recorded and of blocks that compute several tiles.
    is_cold: whether all that it reads comes from device memory; what an earlier launch wrote may be in L2.

    Raises ValueError where the machine code cannot be followed, NotModelled for instructions without a cost, and
    NeedsHalf where `half` is missing.
    """
    launch = sample.launch
    if half and _executes_the_same(sample, half):
        scale, half = 1.0, None  # K does not matter to it, as where the parts of C are added
    kernel, cubin = machine_code(sample)
    held = _held(sample, cubin, gpu)
    if not held.blocks:
        raise ValueError(f"{kernel.name}: a multiprocessor holds no block of it: {held.limited_by}")
    blocks = cdiv(math.prod(launch.grid), gpu.multiprocessors)  # of the busiest multiprocessor
    at_once = min(held.blocks, blocks)
    recorder = sample.recorder
    work = _traced(sample, gpu) if recorder else _work(sample, kernel, gpu, ISSUES / (launch.num_warps * at_once))
    whole, rest = divmod(blocks, at_once)
    same = "UTMALDG 128x64 same" if recorder else "LDG.128 same"
    share = memory_share(sample, at_once * gpu.multiprocessors, scale, gpu.l2_bytes)
    rates = _rates(gpu, share, gpu.bandwidth[same])
    needed, cluster = (recorder.needed, math.prod(launch.cluster)) if recorder else ({}, 1)
    work_of_half = None
    if half:
        its = _traced(half, gpu) if recorder else _work(half, kernel, gpu, ISSUES / (launch.num_warps * at_once))
        work_of_half = its if recorder or its.trips == work.trips else None
    elif scale > 1 and not recorder and _has_inner_loops(sample, work):
        raise NeedsHalf(f"{kernel.name}: how long it takes with more K does not follow from one K")

    def simulate(work: _Work, count: int, needed: Mapping[tuple[int, int], int]) -> tuple[Run, float, float]:
        """A run of so many blocks that a multiprocessor has at a time; the clocks of all its trips, and of one more."""
        run = Multiprocessor(rates, work.paths, count, needed, cluster).run()
        trip = run.commit
        if work.fewer and (work.trips > work.simulated or work_of_half is None):
            end = Multiprocessor(rates, work.fewer, count).run().end
            trip = (run.end - end) / (work.simulated - work.fewer_simulated)
        return run, run.end + (work.trips - work.simulated) * trip, trip

    def clocks_of(count: int) -> tuple[Run, float]:
        """What they take with the whole K."""
        run, clocks, trip = simulate(work, count, needed)
        if work_of_half is None:
            return run, clocks + max(0.0, scale - 1) * work.trips * trip
        shorter = simulate(work_of_half, count, half.recorder.needed if half and half.recorder else {})[1]
        return run, clocks + (scale - 1) * 2 * (clocks - shorter)

    run, clocks = clocks_of(at_once)
    last, rest_clocks = clocks_of(rest) if rest else (run, 0.0)
    first = _code_kib(sample, kernel) * gpu.launch["code"]  # no cache holds the code
    total = first + whole * clocks + rest_clocks + last.drained - last.end
    busy, waiting, places = _shares(sample, work, run, clocks, max(1.0, work.trips * scale / max(1.0, work.simulated)))
    mhz = _mhz(kernel, busy.get(machine.TENSOR, 0.0), gpu)
    least = least_us(sample, scale, gpu.roof["dram_read"] * 1e6) if is_cold else 0.0
    busy[machine.MEMORY] = max(busy.get(machine.MEMORY, 0.0), min(1.0, least / (total / mhz)))
    microseconds = max(total / mhz, least)
    return LaunchTime(kernel.name, microseconds, held, blocks / at_once, busy, waiting, places, work.unexplained)


def _executes_the_same(sample: Sample, other: Sample) -> bool:
    """Whether each line is executed as often in both."""
    first, second = sample.executed, other.executed
    return first.keys() == second.keys() and all(np.array_equal(first[line], second[line]) for line in first)


def _has_inner_loops(sample: Sample, work: _Work) -> bool:
    """Whether something may be executed again and again in each trip of the main loop, or there is no such loop.

    A loop whose body is executed many times a trip is another loop, or this one unrolled.
    """
    most = max(int(count.max()) for count in sample.executed.values())
    return most > _MOST_UNROLLED * work.trips


def _code_kib(sample: Sample, kernel: SassKernel) -> float:
    """The machine code of what the sample executed."""
    return sum(each.ptx_line in sample.executed for each in kernel.code) * INSTRUCTION_BYTES / 1024


def machine_code(sample: Sample) -> tuple[SassKernel, bytes]:
    """The machine code of a sample's kernel with its control codes, and the cubin that it is of."""
    if sample.kernel.cubin is None:
        raise ValueError(f"{sample.kernel.name} has no machine code here, so its time cannot be predicted")
    cubin = sample.kernel.cubin()
    (kernel,) = [each for each in parse(tools.disassemble(cubin)) if each.name == sample.kernel.name]
    return controlled(kernel, cubin), cubin


def _held(sample: Sample, cubin: bytes, gpu: Gpu) -> Occupancy:
    use, sm = tools.usage(cubin)[sample.kernel.name], ARCHITECTURES[ARCHITECTURE]
    shared = requested_bytes(sm, use.shared_bytes, sample.launch.shared_bytes)
    return occupancy(sm, sample.launch.threads, use.registers, shared)


def _work(sample: Sample, kernel: SassKernel, gpu: Gpu, instructions: float) -> _Work:
    """The paths of warps through the machine code, with about so many instructions each."""
    executed = sample.executed
    flows: dict[tuple[int, ...], flow.Flow] = {}
    warps = [tuple(int(count[warp]) for count in executed.values()) for warp in range(sample.launch.num_warps)]
    for key in dict.fromkeys(warps):
        passes = flow.passes(sample.kernel.entry, dict(zip(executed, map(float, key), strict=True)))
        flows[key] = flow.solve(kernel, passes)
    if (missed := max(each.unexplained for each in flows.values())) > MOST_UNEXPLAINED:
        raise ValueError(
            f"{kernel.name}: no path through its machine code explains what was executed ({missed:.0%} is missing)"
        )
    longest = max(flows.values(), key=lambda each: flow.trips_of(each)[0])
    trips, a_trip = flow.trips_of(longest)
    simulated = min(trips, max(FEWEST_TRIPS, min(MOST_TRIPS, instructions // max(1.0, a_trip))))
    steps = Steps(kernel, sample, gpu)

    def paths(most: float) -> _Paths:
        walked = {key: flow.walk(each, most) for key, each in flows.items()}
        made = {key: (steps.of(path.places), path.heads) for key, path in walked.items()}
        return [made[key] for key in warps]

    path = flow.walk(longest, simulated)
    body = frozenset(path.places[path.heads[0] : path.heads[-1]]) if path.heads else frozenset()
    lines = {place: each.ptx_line for place, each in enumerate(kernel.code)}
    half = simulated // 2
    return _Work(paths(simulated), trips, simulated, body, lines, paths(half) if trips else (), half, missed)


def _traced(sample: Sample, gpu: Gpu) -> _Work:
    """The paths of a kernel that was recorded; its places are lines of the PTX."""
    assert sample.recorder is not None
    steps = TracedSteps(sample, gpu)
    paths = [steps.of(warp) for warp in sample.recorder.warps]
    body = {step.place for steps, heads in paths if heads for step in steps[heads[0] : heads[-1]]}
    lines = {step.place: step.place for steps, _ in paths for step in steps}
    commits = max(len(heads) for _, heads in paths)
    return _Work(paths, commits, commits, body, lines)


def _rates(gpu: Gpu, memory_share: float, same: float) -> Rates:
    """same: bytes a clock of L2 where all multiprocessors ask for the same lines."""
    a_clock = 1e6 / (gpu.multiprocessors * gpu.max_sm_clock_mhz)  # of one multiprocessor, from TB/s
    returned, lanes = 64.0, 32 * 4  # bytes a clock, and of a request of words: what every measured latency has in it
    on_the_way = TO_SHARED + 1 + lanes / returned
    distinct = gpu.roof["l2_read"] * a_clock  # where each multiprocessor asks for other lines
    base, more = gpu.barrier["1"], (gpu.barrier["32"] - gpu.barrier["1"]) / 31
    return Rates(
        l2_bytes=1 / (memory_share / distinct + (1 - memory_share) / same),
        stored_bytes=gpu.bandwidth["STG.128"],
        memory_bytes=gpu.roof["dram_read"] * a_clock / memory_share,
        memory_latency=gpu.latency["LDG DRAM"] - on_the_way,
        l1_latency=gpu.latency["LDG L1"] - on_the_way,
        shared_latency=gpu.latency["LDS.32"] - on_the_way,
        return_bytes=returned,
        to_shared=TO_SHARED,
        barrier=(base - more, more),
        mbarrier=gpu.latency["SYNCS other"],
        tma=gpu.latency["UTMALDG 8x64 L2"] - gpu.latency["LDG L2"],
    )


def _mhz(kernel: SassKernel, tensor_share: float, gpu: Gpu) -> float:
    """The clock of the multiprocessors while a kernel keeps the tensor cores busy for a share of its time.

    Tensor cores draw so much current that the clock falls within microseconds, which the driver's readings do not show.
    How far is known at full use, from the rates that `roofs` reached and the clocks that an instruction takes.
    """
    names = [each.opcode for each in kernel.code if each.name in ("HMMA", "HGMMA", "QGMMA")]
    if not names:
        return gpu.max_sm_clock_mhz
    name = names[0]
    kind = "fp8" if name.startswith("QGMMA") else next((x for x in ("tf32", "bf16") if x.upper() in name), "fp16")
    if name.startswith("HMMA"):
        shape, k = ("1688.F32.TF32", 8) if kind == "tf32" else ("16816.F32", 16)
        a_clock = 2 * 16 * 8 * k * SCHEDULERS / gpu.interval[f"HMMA.{shape} 16 warps"]
        reached = gpu.roof[f"mma_{kind}"]
    else:
        k = {"tf32": 8, "fp8": 32}.get(kind, 16)
        a_clock = 2 * 64 * 256 * k / gpu.wgmma["bf16 n256 shared"]
        reached = gpu.roof[f"wgmma_{kind}"]
    full = reached * 1e6 / (a_clock * gpu.multiprocessors)
    return gpu.max_sm_clock_mhz - min(1.0, tensor_share) * (gpu.max_sm_clock_mhz - full)


def _shares(
    sample: Sample, work: _Work, run: Run, duration: float, longer: float
) -> tuple[dict[str, float], dict[str, float], tuple[Line, ...]]:
    """Shares of the time by resource, by reason and by line, with the main loop as long as it really is.

    duration: clocks, of which a resource is busy for a share; reasons and lines share what schedulers counted.
    """

    def weight(place: int) -> float:
        return longer if place in work.body else 1.0

    busy: dict[str, float] = defaultdict(float)
    waiting: dict[str, float] = defaultdict(float)
    by_line: dict[int, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for (resource, place), clocks in run.busy.items():
        busy[resource] += weight(place) * clocks
        if resource == machine.ISSUE:
            by_line[work.ptx_lines[place]][machine.ISSUE] += weight(place) * clocks
    for (reason, place), clocks in run.waiting.items():
        waiting[reason] += weight(place) * clocks
        by_line[work.ptx_lines[place]][reason] += weight(place) * clocks
    total = busy[machine.ISSUE] + sum(waiting.values())
    sources = {each.ptx_line: (each.file, each.line, each.callers) for each in sample.kernel.entry.instructions}
    merged: dict[tuple[str, int, tuple[str, ...]], dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for ptx_line, reasons in by_line.items():
        for reason, clocks in reasons.items():
            merged[sources.get(ptx_line, ("", 0, ()))][reason] += clocks
    places = []
    for (file, line, callers), of in merged.items():
        waits = {name_wait(reason): clocks / total for reason, clocks in of.items() if reason != machine.ISSUE}
        places.append(Line(file, line, sum(of.values()) / total, waits, callers))
    return (
        {resource: min(1.0, worked / duration) for resource, worked in busy.items()},
        {reason: clocks / total for reason, clocks in waiting.items()},
        tuple(places),
    )
