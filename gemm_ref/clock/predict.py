"""The time of a kernel on a GPU that is not there, from what a few of its blocks do on the reference GPU.

Of each launch the blocks that one multiprocessor holds at a time are simulated together (`machine`), with a main loop
of a few trips; more trips take as long as those that go evenly. A multiprocessor with more blocks than it holds takes
them one wave after another.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from gemm_ref.clock import flow, machine
from gemm_ref.clock.gpu import Gpu
from gemm_ref.clock.machine import Multiprocessor, Rates, Run, Step
from gemm_ref.clock.sample import Sample
from gemm_ref.clock.steps import ALU, IMAD, SHUFFLE, XU, Steps
from gemm_ref.clock.traffic import memory_share
from gemm_ref.launch import cdiv
from gemm_ref.sass import tools
from gemm_ref.sass.listing import SassKernel, parse
from gemm_ref.sass.occupancy import ARCHITECTURES, Occupancy, occupancy, requested_bytes
from gemm_ref.sass.schedule import controlled

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
        machine.REGISTERS: "register ports",
        machine.SHARED: "waiting for shared memory",
        machine.GLOBAL: "waiting for global memory",
        machine.BARRIER: "waiting at barriers",
        machine.BEFORE: "waiting for results",
        machine.PIPE: "waiting for a busy pipe",
    }
)
ARCHITECTURE = "sm_90a"  # of all GPUs in the table
MOST_UNEXPLAINED = 0.2  # share of the executions of PTX lines; beyond, no time is given
TO_SHARED = 4.0  # clocks from a scheduler to L1 and shared memory (an assumption)
ISSUES = 150_000  # of all warps in a main loop, about as many as are simulated in a second


@dataclass(frozen=True)
class Line:
    """A source line's share of a launch."""

    file: str
    line: int
    share: float  # of the time
    waits: Mapping[str, float]  # shares of the time in which schedulers waited there, by reason


@dataclass(frozen=True)
class LaunchTime:
    """One launch of a kernel."""

    kernel: str
    microseconds: float
    held: Occupancy
    waves: float
    busy: Mapping[str, float]  # shares of the time in which each resource worked
    waiting: Mapping[str, float]  # shares of the time in which schedulers could not issue, by reason
    lines: tuple[Line, ...]  # the one of the largest share first
    unexplained: float  # share of the executions of PTX lines that no path through the machine code explains


@dataclass(frozen=True)
class _Path:
    """What the warps of a block execute, in clocks."""

    paths: Sequence[tuple[Sequence[Step], Sequence[int]]]  # of each warp: steps, and where trips begin
    trips: float  # of the main loop in the sample
    body: frozenset[int]  # places of the main loop
    unexplained: float


def time_launch(sample: Sample, gpu: Gpu, scale: float = 1.0) -> LaunchTime:
    """The time of one launch whose main loop is `scale` times as long as the sample's.

    Raises ValueError where the machine code cannot be followed, and NotModelled for instructions without a cost.
    """
    launch = sample.launch
    kernel, cubin = machine_code(sample)
    held = _held(sample, cubin, gpu)
    if not held.blocks:
        raise ValueError(f"{kernel.name}: a multiprocessor holds no block of it: {held.limited_by}")
    blocks = cdiv(math.prod(launch.grid), gpu.multiprocessors)  # of the busiest multiprocessor
    at_once = min(held.blocks, blocks)
    path = _path(sample, kernel, gpu, ISSUES / (launch.num_warps * at_once))
    whole, rest = divmod(blocks, at_once)
    rates = _rates(gpu, memory_share(sample, at_once * gpu.multiprocessors, gpu.l2_bytes))
    runs = {count: Multiprocessor(rates, path.paths, count).run() for count in {at_once, rest} - {0}}
    simulated = max(len(heads) for _, heads in path.paths)
    more = max(0.0, path.trips * scale - simulated) if simulated else 0.0
    clocks = {count: run.end + more * run.trip for count, run in runs.items()}
    total = whole * clocks[at_once] + (clocks[rest] if rest else 0.0)
    busy, waiting, lines = _shares(sample, kernel, path, runs[at_once], (simulated + more) / max(1, simulated))
    return LaunchTime(
        kernel.name, total / _mhz(kernel, busy.get(machine.TENSOR, 0.0), gpu), held, blocks / at_once, busy, waiting, lines, path.unexplained
    )  # fmt: skip


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


def _path(sample: Sample, kernel: SassKernel, gpu: Gpu, instructions: float) -> _Path:
    entry, executed = sample.kernel.entry, sample.executed
    steps = Steps(kernel, sample, gpu)
    found: dict[tuple[int, ...], tuple[tuple[list[Step], Sequence[int]], flow.Path, float]] = {}
    paths: list[tuple[Sequence[Step], Sequence[int]]] = []
    for warp in range(sample.launch.num_warps):
        key = tuple(int(count[warp]) for count in executed.values())
        if key not in found:
            its = flow.solve(kernel, flow.passes(entry, dict(zip(executed, map(float, key), strict=True))))
            path = flow.walk(its, instructions)
            found[key] = (steps.of(path.places), path.heads), path, its.unexplained
        paths.append(found[key][0])
    missed = max(missed for *_, missed in found.values())
    if missed > MOST_UNEXPLAINED:
        raise ValueError(
            f"{kernel.name}: no path through its machine code explains what was executed ({missed:.0%} is missing)"
        )
    longest = max((path for _, path, _ in found.values()), key=lambda path: path.trips)
    body = frozenset(longest.places[longest.heads[0] : longest.heads[-1]]) if longest.heads else frozenset()
    return _Path(paths, longest.trips, body, missed)


def _rates(gpu: Gpu, memory_share: float) -> Rates:
    a_clock = 1e6 / (gpu.multiprocessors * gpu.max_sm_clock_mhz)  # of one multiprocessor, from TB/s
    returned, lanes = 64.0, 32 * 4  # bytes a clock, and of a request of words: what every measured latency has in it
    on_the_way = TO_SHARED + 1 + lanes / returned
    distinct = gpu.roof["l2_read"] * a_clock  # where each multiprocessor asks for other lines
    base, more = gpu.barrier["1"], (gpu.barrier["32"] - gpu.barrier["1"]) / 31
    return Rates(
        l2_bytes=1 / (memory_share / distinct + (1 - memory_share) / gpu.bandwidth["LDG.128 same"]),
        memory_bytes=gpu.roof["dram_read"] * a_clock / memory_share,
        memory_latency=gpu.latency["LDG DRAM"] - on_the_way,
        l1_latency=gpu.latency["LDG L1"] - on_the_way,
        shared_latency=gpu.latency["LDS.32"] - on_the_way,
        return_bytes=returned,
        to_shared=TO_SHARED,
        barrier=(base - more, more),
    )


def _mhz(kernel: SassKernel, tensor_share: float, gpu: Gpu) -> float:
    """The clock of the multiprocessors while a kernel keeps the tensor cores busy for a share of its time.

    Tensor cores draw so much current that the clock falls within microseconds, which the driver's readings do not show.
    How far is known at full use, from the rates that `roofs` reached and the clocks that an instruction takes.
    """
    for name in {each.opcode for each in kernel.code if each.name == "HMMA"}:
        kind = "tf32" if "TF32" in name else "bf16" if "BF16" in name else "fp16"
        shape = "1688.F32.TF32" if kind == "tf32" else "16816.F32"
        products = 16 * 8 * (8 if kind == "tf32" else 16)
        a_clock = 2 * products * machine.SCHEDULERS * gpu.multiprocessors / gpu.interval[f"HMMA.{shape} 16 warps"]
        full = gpu.roof[f"mma_{kind}"] * 1e6 / a_clock
        return gpu.max_sm_clock_mhz - min(1.0, tensor_share) * (gpu.max_sm_clock_mhz - full)
    return gpu.max_sm_clock_mhz


def _shares(
    sample: Sample, kernel: SassKernel, path: _Path, run: Run, longer: float
) -> tuple[dict[str, float], dict[str, float], tuple[Line, ...]]:
    """Shares of the time by resource, by reason and by line, with the main loop as long as it really is."""

    def weight(place: int) -> float:
        return longer if place in path.body else 1.0

    busy: dict[str, float] = defaultdict(float)
    waiting: dict[str, float] = defaultdict(float)
    by_line: dict[int, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for (resource, place), clocks in run.busy.items():
        busy[resource] += weight(place) * clocks
        if resource == machine.ISSUE:
            by_line[kernel.code[place].ptx_line][machine.ISSUE] += weight(place) * clocks
    for (reason, place), clocks in run.waiting.items():
        waiting[reason] += weight(place) * clocks
        by_line[kernel.code[place].ptx_line][reason] += weight(place) * clocks
    total = busy[machine.ISSUE] + sum(waiting.values())
    places = {each.ptx_line: (each.file, each.line) for each in sample.kernel.entry.instructions}
    merged: dict[tuple[str, int], dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for ptx_line, reasons in by_line.items():
        for reason, clocks in reasons.items():
            merged[places.get(ptx_line, ("", 0))][reason] += clocks / total
    lines = [
        Line(file, line, sum(of.values()), {reason: share for reason, share in of.items() if reason != machine.ISSUE})
        for (file, line), of in merged.items()
    ]
    return (
        {resource: clocks / total for resource, clocks in busy.items()},
        {reason: clocks / total for reason, clocks in waiting.items()},
        tuple(sorted(lines, key=lambda each: -each.share)),
    )
