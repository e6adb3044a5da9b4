"""What is the most that this device can do: fp32 FMA, tensor cores, device memory, caches?

Expectation: a micro-kernel that does one thing reaches over 95% of what clock and multiprocessors allow for FMA, shared
memory and tensor cores as long as power holds the clock; device memory gives around 90% of its datasheet.

Method: each micro-kernel of cuda_kernels/ceilings is first run on inputs whose result is known, and never timed if that
is wrong. Then it runs on random data, since zeros would take less power and so clock higher, for about 3 ms at a time,
so that its launch does not count. It first runs for a second, so that clock and power are those of lasting work; the
value is the median of the runs that follow. Each value is shown beside the vendor's figure, with its source, and what
the device's own properties allow. A ceiling whose instruction this GPU lacks is skipped with that reason.

Run: `python -m experiments run roofs`; it has no filters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch

from cuda_kernels import ceilings
from cuda_kernels.ceilings import MicroKernel
from experiments.bench import datasheets, provenance, timers
from experiments.bench.verify import DeviceLost, describe
from experiments.progress import Bars
from experiments.records.request import Request
from experiments.records.rows import ERROR, FAIL, SKIPPED
from experiments.records.store import short
from experiments.studies.roofs.probes import PROBES, Machine, Probe
from experiments.studies.roofs.row import RoofRow

NAME = "roofs"
CONTENDERS = tuple(PROBES.values())  # in place of the registry's kernels
RUN_US = 3000.0
WARM_UP_US = 1e6
REPEATS = 15

Work = Callable[[], object]


def unsuited(probe: Probe, request: Request) -> str:
    """Why the ceiling is not measured; empty if it is."""
    if request.device != "cuda":
        return "the ceilings need a GPU, and there is none here"
    if request.stages or request.backends or request.problems:
        return "--stage, --backend and --size choose kernels, and the ceilings are the device's"
    return ""


def measure(request: Request, chosen: Sequence[Probe], bars: Bars) -> Iterator[RoofRow]:
    """A row for each ceiling, measured where its micro-kernel is right."""
    bars.begin("ceilings: compiling", 1)
    built = _build((probe.kernel for probe in chosen), torch.cuda.get_device_capability())
    bars.done()
    bars.begin("ceilings: measuring", len(chosen))
    machine = this_machine()
    for probe in chosen:
        bars.doing(probe.title)
        broken = None
        try:
            values = built[probe.kernel] or _measure(probe, machine)
        except Exception as error:  # one that breaks hides no other
            values, broken = {"status": ERROR, "detail": describe(error)}, error
        yield _row(probe, **values)
        if broken:
            _still_there(probe, broken)
        torch.cuda.empty_cache()  # device memory is measured with buffers of up to 8 GiB
        bars.done()


def this_machine() -> Machine:
    """The current GPU."""
    gpu = torch.cuda.get_device_properties(torch.cuda.current_device())
    return Machine("cuda", gpu.multi_processor_count, gpu.L2_cache_size, gpu.total_memory)


def _build(kernels: Iterable[MicroKernel], capability: tuple[int, int]) -> dict[MicroKernel, dict[str, Any]]:
    """Compile what the GPU has instructions for, side by side; for each kernel why it cannot be run, or nothing."""

    def verdict(kernel: MicroKernel) -> dict[str, Any]:
        if reason := kernel.refusal(capability):
            return {"status": SKIPPED, "detail": reason}
        try:
            ceilings.library(kernel, capability)
        except Exception as error:
            return {"status": ERROR, "detail": describe(error)}
        return {}

    distinct = list(dict.fromkeys(kernels))  # several probes may share one
    with ThreadPoolExecutor() as pool:
        return dict(zip(distinct, pool.map(verdict, distinct), strict=True))


def _measure(probe: Probe, machine: Machine) -> dict[str, Any]:
    """The values of a row: the check, and the times where it passes."""
    if wrong := check(probe, machine, ceilings.launch):
        return {"status": FAIL, "detail": wrong}
    blocks, given = probe.blocks(machine), probe.given(machine, exact=False)
    out = probe.output(given, blocks)
    iterations = least = probe.least_iterations(given, blocks)

    def work() -> None:
        ceilings.launch(probe.kernel, given, out, iterations, blocks)

    timer = timers.CudaTimer()
    while (once := timer(work)) < RUN_US / 4:
        iterations *= 4
    iterations = max(least, round(iterations * RUN_US / once))
    times_us = _times(work, timer)
    rate = probe.work(given, blocks, iterations) / 1e6  # TFLOP or TB, a second, by microseconds
    low_us, median_us, high_us = np.percentile(times_us, [20, 50, 80])
    gpu = _gpu_under_load(work)
    sheet = datasheets.find(torch.cuda.get_device_name())
    figure = sheet.figures.get(probe.figure) if sheet else None
    return {
        "value": rate / median_us,
        "low": rate / high_us,
        "high": rate / low_us,
        "repeats": len(times_us),
        "median_us": median_us,
        "by_clock": datasheets.by_clock(probe.figure, gpu),
        "datasheet": figure,
        "source": sheet.source if sheet and figure else "",
        "sm_mhz": gpu.get("sm_clock_mhz"),
    }


def check(probe: Probe, machine: Machine, launch: Callable) -> str:
    """Run the probe once on inputs whose result is known; what is wrong with it, or nothing.

    launch(kernel, given, out, iterations, blocks): `ceilings.launch`, or what runs it on another machine.
    """
    blocks, given = probe.blocks(machine), probe.given(machine, exact=True)
    out = probe.output(given, blocks).fill_(0)
    iterations = probe.least_iterations(given, blocks)
    launch(probe.kernel, given, out, iterations, blocks)
    return probe.check(given, out, blocks, iterations)


def _times(work: Work, timer: timers.Timer) -> np.ndarray:
    """Microseconds of `work`, (REPEATS,), after as much of it as brings the device to its lasting clock."""
    spent = 0.0
    while spent < WARM_UP_US:
        spent += timer(work)
    return np.array([timer(work) for _ in range(REPEATS)])


def _gpu_under_load(work: Work) -> dict:
    """The GPU's properties and its clock while `work` runs, which is queued for longer than asking takes."""
    for _ in range(100):
        work()
    found = provenance.gpu()
    torch.cuda.synchronize()
    return found


def _still_there(probe: Probe, error: Exception) -> None:
    """Raise DeviceLost where the GPU answers no more after `error`."""
    try:
        torch.cuda.synchronize()
    except RuntimeError as lost:
        raise DeviceLost(f"{probe} left the GPU unusable in this process ({short(describe(error))})") from lost


def _row(probe: Probe, **values: Any) -> RoofRow:
    return RoofRow(experiment=NAME, stage=probe.name, backend="cuda", math=probe.math, unit=probe.unit, **values)
