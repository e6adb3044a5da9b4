"""How many clocks does an instruction, a copy, a barrier or a launch take, of itself and beside others of its kind?

Expectation: the chip's documents give lanes per multiprocessor and bytes per clock; what a pipe needs between two
instructions of a warp follows from them, and latencies are those of papers: Jia et al. 2018 (Volta) and Luo et al. 2024
(Hopper, arXiv 2402.13499). They are what `gemm_ref.clock` predicts times from, and no kernel of the ladder is among
them.

Method: each loop of `probes` repeats one piece of PTX, and its machine code is first searched for the instruction that
is meant, as often as it is meant. A latency is that of a chain in one warp, a throughput that of independent chains in
4 to 32 warps. Loops take about 200,000 clocks by the multiprocessor's own counter, after a run that brings code and
data to the caches; the value is the median of the blocks of 5 runs. Launches are timed as kernels are.

Run: `python -m experiments run latencies`; it has no filters.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from cuda_kernels import tensor_map
from cuda_kernels.ceilings.image import Image
from cuda_kernels.ceilings.loops import WARP, Compiled, Loop, compile_loops
from cuda_kernels.ceilings.pieces import LINE
from experiments.bench import telemetry, timers
from experiments.bench.verify import describe
from experiments.progress import Bars
from experiments.records.request import Request
from experiments.records.rows import ERROR, SKIPPED
from experiments.studies.latencies.probes import ALL, BOXES, CLOCKS, PROBES, RANDOM, SHARED, Probe
from experiments.studies.latencies.row import LatencyRow
from gemm_ref import Box

NAME = "latencies"
DEVICE = "cuda"
CAPABILITY = (9, 0)
RUN_CLOCKS = 200_000
REPEATS = 5
TOGETHER = 16  # loops that are compiled together
SLACK_BYTES = 1 << 24  # behind the data: where the last block's part goes on


@dataclass(frozen=True)
class LaunchProbe:
    """A constant of launches, in `unit`."""

    name: str
    measure: Callable[[Compiled], Sequence[float]]
    description: str
    loop: Loop
    unit: str = CLOCKS
    build = None

    def __str__(self) -> str:
        return self.name


def _loaded(measure: Callable[[Image, str], Sequence[float]]) -> Callable[[Compiled], Sequence[float]]:
    """A measurement of a kernel in an image that is loaded for it."""

    def measure_code(code: Compiled) -> Sequence[float]:
        with Image(code.cubin) as image:
            return measure(image, code.kernel)

    return measure_code


@_loaded
def _empty_us(image: Image, kernel: str) -> list[float]:
    """An empty kernel between events, beyond what the events take."""
    timer, nothing = timers.CudaTimer(), timers.events_us()
    launch = _launcher(image, kernel)
    return [timer(launch) - nothing for _ in range(100)]


@_loaded
def _gap_us(image: Image, kernel: str) -> list[float]:
    """What a kernel more in the stream takes."""
    timer, launch = timers.CudaTimer(), _launcher(image, kernel)

    def several(count: int) -> Callable[[], None]:
        def launch_all() -> None:
            for _ in range(count):
                launch()

        return launch_all

    few, many = several(4), several(20)
    for _ in range(3):
        timer(few), timer(many)
    return [(timer(many) - timer(few)) / 16 for _ in range(50)]


def _starts(image: Image, kernel: str, loop: Loop, blocks: int) -> Iterator[np.ndarray]:
    """For each multiprocessor when its blocks began and ended, (blocks, 2), in order."""
    given = torch.zeros(LINE, dtype=torch.int64, device=DEVICE)
    found = replace(loop, blocks=blocks).launch(image, kernel, given, given, 0).cpu().numpy()
    begins, ends, places = found[:, :, 0].min(1), found[:, :, 1].max(1), found[:, 0, 2]
    for place in np.unique(places):
        own = np.stack([begins[places == place], ends[places == place]], 1)
        yield own[np.argsort(own[:, 0])]


@_loaded
def _block_clocks(image: Image, kernel: str) -> list[float]:
    """Clocks of a multiprocessor from a block's start to that of the next, of blocks that end at once."""
    each = _starts(image, kernel, replace(EMPTY, threads=WARP), 256 * multiprocessors())
    return [float(own[-1, 0] - own[0, 0]) / (len(own) - 1) for own in each if len(own) > 1]


@_loaded
def _turnover_clocks(image: Image, kernel: str) -> list[float]:
    """Clocks from the end of a block that is alone on its multiprocessor to the first instruction of the next."""
    each = _starts(image, kernel, ALONE, 8 * multiprocessors())
    return [float(gap) for own in each for gap in own[1:, 0] - own[:-1, 1]]


def _launcher(image: Image, kernel: str) -> Callable[[], None]:
    """Starts the empty kernel, and does nothing else on the GPU."""
    tensors = [torch.zeros(LINE, dtype=torch.int64, device=DEVICE) for _ in range(4)]
    return lambda: EMPTY.launch_into(image, kernel, tensors, 0)


def _events_us(code: Compiled) -> list[float]:
    """Two events around nothing."""
    return [timers.events_us() for _ in range(5)]


def _displaced(code: Compiled) -> Iterator[Image]:
    """An image again and again, each time right after other code and data have displaced it from all caches."""
    loop, given = _everywhere(LONG), torch.zeros(LINE, dtype=torch.int64, device=DEVICE)
    elsewhere = torch.ones(FLUSHED_BYTES // 4, dtype=torch.float32, device=DEVICE)
    with contextlib.ExitStack() as stack:
        image, *others = [stack.enter_context(Image(code.cubin)) for _ in range(1 + DISPLACING)]
        for _ in range(2 * REPEATS):
            for other in others:
                loop.launch(other, code.kernel, given, given, 1)
            elsewhere.sum()
            yield image


def _cold_us(code: Compiled) -> list[float]:
    """As `launch.empty`, of a kernel that no cache holds."""
    timer, nothing = timers.CudaTimer(), timers.events_us()
    tensors, loop = [torch.zeros(1 << 16, dtype=torch.int64, device=DEVICE) for _ in range(4)], _everywhere(LONG)
    images = _displaced(code)
    image = next(images)

    def launch() -> None:
        loop.launch_into(image, code.kernel, tensors, 0)

    timer(launch)  # learns how long the host takes
    return [timer(launch) - nothing for _ in images]


def _code_clocks(code: Compiled) -> list[float]:
    """Clocks for each KiB of code that no cache holds, beyond what the same code takes from the caches."""
    loop, given = _everywhere(LONG), torch.zeros(LINE, dtype=torch.int64, device=DEVICE)

    def clocks(image: Image) -> float:
        found = loop.launch(image, code.kernel, given, given, 1).cpu().numpy()
        return float(np.median(found[:, :, 1].max(1) - found[:, :, 0].min(1)))

    return [(clocks(image) - clocks(image)) / LONG_KIB for image in _displaced(code)]


def _everywhere(loop: Loop) -> Loop:
    return replace(loop, blocks=multiprocessors())


EMPTY = Loop("", "", unroll=1, threads=128)
ALONE = replace(EMPTY, shared_bytes=SHARED)
LONG_KIB = 16  # of code in a trip, without a jump
LONG = replace(PROBES["interval.FFMA"].loop, unroll=LONG_KIB << 6, threads=128)
DISPLACING = 16  # kernels of that length, more code than caches of instructions hold
FLUSHED_BYTES = 1 << 28  # read to displace what L2 holds
LAUNCHES = (
    LaunchProbe("launch.empty", _empty_us, "an empty kernel between two events, beyond two events alone", EMPTY, "us"),
    LaunchProbe("launch.events", _events_us, "two events alone, which is part of every published time", EMPTY, "us"),
    LaunchProbe("launch.cold", _cold_us, "as launch.empty, of a kernel that no cache holds", LONG, "us"),
    LaunchProbe("launch.code", _code_clocks, "for each KiB of code that no cache holds, beyond its time", LONG),
    LaunchProbe("launch.gap", _gap_us, "from an empty kernel to the next in its stream", EMPTY, "us"),
    LaunchProbe("launch.block", _block_clocks, "from a block's start to the next one's, of blocks of a warp", EMPTY),
    LaunchProbe("launch.turnover", _turnover_clocks, "from the end of a lone block to the next one's start", ALONE),
)
CONTENDERS = (*LAUNCHES, *PROBES.values())


def unsuited(probe: Probe | LaunchProbe, request: Request) -> str:
    """Why the constant is not measured; empty if it is."""
    if request.device != "cuda":
        return "the latencies need a GPU, and there is none here"
    if request.stages or request.backends or request.problems or request.math:
        return "--stage, --backend, --size and --math choose kernels, and the latencies are the device's"
    return ""


def measure(request: Request, chosen: Sequence[Probe | LaunchProbe], bars: Bars) -> Iterator[LatencyRow]:
    """Yields a row for each constant."""
    capability = torch.cuda.get_device_capability()
    if capability != CAPABILITY:
        detail = "the loops are for compute capability {}.{}; this GPU has {}.{}".format(*CAPABILITY, *capability)
        yield from (_row(probe, status=SKIPPED, detail=detail) for probe in chosen)
        return
    bars.begin("loops: compiling", len(chosen))
    with ThreadPoolExecutor() as pool:
        parts = [chosen[i : i + TOGETHER] for i in range(0, len(chosen), TOGETHER)]
        built = [code for part in pool.map(lambda part: _compile(part, bars), parts) for code in part]
    memory: dict[tuple, tuple[torch.Tensor, torch.Tensor]] = {}
    bars.begin("loops", len(chosen))
    for probe, code in zip(chosen, built, strict=True):
        bars.doing(str(probe))
        yield _measured(probe, code, memory)
        bars.done()


def _compile(probes: Sequence[Probe | LaunchProbe], bars: Bars) -> Sequence[Compiled | Exception]:
    try:
        return compile_loops([probe.loop for probe in probes], CAPABILITY)
    except Exception as error:  # what breaks hides no others
        return [error] * len(probes)
    finally:
        for _ in probes:
            bars.done()


def _row(probe: Probe | LaunchProbe, **values: Any) -> LatencyRow:
    about: dict[str, Any] = {"stage": probe.name, "unit": probe.unit, "description": probe.description}
    return LatencyRow(experiment=NAME, backend="cuda", **about, **values)


def _measured(probe: Probe | LaunchProbe, code: Compiled | Exception, memory: dict) -> LatencyRow:
    try:
        if isinstance(code, Exception):
            raise code
        found = probe.measure(code) if isinstance(probe, LaunchProbe) else _loop_values(probe, code, memory)
        mhz = _sm_mhz()
    except Exception as error:
        return _row(probe, status=ERROR, detail=describe(error))
    low, value, high = np.percentile(found, [20, 50, 80])
    repeats = REPEATS if isinstance(probe, Probe) else len(found)
    return _row(probe, value=value, low=low, high=high, repeats=repeats, sm_mhz=mhz)


def _loop_values(probe: Probe, code: Compiled, memory: dict) -> list[float]:
    """The constant by each block of each run."""
    loop = _everywhere(probe.loop) if probe.loop.blocks == ALL else probe.loop
    data, boxes = _memory(probe, memory)
    random = np.random.default_rng(0)

    def run(trips: int) -> np.ndarray:
        line = int(random.integers(probe.data_bytes // LINE // 2))
        own = data[line * LINE // 8 :] if probe.data == RANDOM and loop.blocks == 1 else data
        first = replace(loop, a=line // 256 * 256) if probe.data == BOXES else loop
        found = first.launch(image, code.kernel, own, boxes, trips).cpu().numpy()
        return (found[:, :, 1].max(1) - found[:, :, 0].min(1)) / (trips * loop.unroll)

    with Image(code.cubin) as image:
        first = float(np.median(run(4))) * loop.unroll
        trips = max(4, round(RUN_CLOCKS / first))
        return [probe.value(clocks) for _ in range(REPEATS) for clocks in run(trips)]


def _memory(probe: Probe, kept: dict) -> tuple[torch.Tensor, torch.Tensor]:
    """What the loop reads and writes, and a tensor map of it; the last is kept, since several probes read the same."""
    key = (probe.data, probe.data_bytes, probe.box_rows)
    if key not in kept:
        kept.clear()
        torch.cuda.empty_cache()
        data = torch.zeros((probe.data_bytes + SLACK_BYTES) // 8, dtype=torch.int64, device=DEVICE)
        boxes = data[:16]
        if probe.data == RANDOM:
            lines = torch.randperm(probe.data_bytes // LINE, device=DEVICE)
            step = LINE // 8
            data[: probe.data_bytes // 8].view(-1, step)[lines, 0] = data.data_ptr() + lines.roll(-1) * LINE
        if probe.data == BOXES:
            matrix = data[: probe.data_bytes // 8].view(torch.bfloat16).view(-1, LINE // 2)
            encode = tensor_map.for_gpu((tensor_map.Boxed(matrix, Box(probe.box_rows, LINE // 2)),))
            encoded = torch.frombuffer(bytearray(bytes(encode(matrix.data_ptr()))), dtype=torch.int64)
            boxes = encoded.to(DEVICE)
        kept[key] = data, boxes
    return kept[key]


def multiprocessors() -> int:
    """Of the current GPU."""
    return torch.cuda.get_device_properties(torch.cuda.current_device()).multi_processor_count


@functools.cache
def _nvml() -> tuple:
    return telemetry.open_gpu()


def _sm_mhz() -> float | None:
    """The multiprocessors' clock now; None where it cannot be read."""
    try:
        return telemetry.read(*_nvml()).sm_mhz
    except Exception:  # a virtual GPU may hide it
        return None
