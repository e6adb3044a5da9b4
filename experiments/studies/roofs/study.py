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

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch

from cuda_kernels import ceilings
from cuda_kernels.ceilings import MicroKernel
from experiments.bench import datasheets, provenance, timers
from experiments.bench.measure import Entry, MeasuringLoop, TimeOnce, TimingProtocol
from experiments.bench.rounds import RoundPlan
from experiments.bench.telemetry import Conditions, Telemetry
from experiments.bench.verify import CheckResult, describe, failure
from experiments.progress import Bars
from experiments.records.request import Request
from experiments.records.rows import ERROR, FAIL, SKIPPED, Row
from experiments.studies.roofs.probes import PROBES, Machine, Probe
from experiments.studies.roofs.row import RoofRow

NAME = "roofs"
CONTENDERS = tuple(PROBES.values())  # in place of the registry's kernels
RUN_US = 3000.0
WARM_UP_US = 1e6
REPEATS = 15


def unsuited(probe: Probe, request: Request) -> str:
    """Why the ceiling is not measured; empty if it is."""
    if request.device != "cuda":
        return "the ceilings need a GPU, and there is none here"
    if request.stages or request.backends or request.problems:
        return "--stage, --backend and --size choose kernels, and the ceilings are the device's"
    return ""


def measure(request: Request, chosen: Sequence[Probe], bars: Bars) -> Iterator[Row]:
    """Yields a row for each ceiling, measured where its micro-kernel is right."""
    bars.begin("ceilings: compiling", 1)
    built = _build((probe.kernel for probe in chosen), torch.cuda.get_device_capability())
    bars.done()
    machine = this_machine()
    loop = MeasuringLoop(TimingProtocol(lambda: timers.CudaTimer(), RoundPlan.exactly(REPEATS), warm_up), bars)
    for probe in chosen:  # one at a time, since device memory is measured with buffers of up to 8 GiB
        passed = yield from loop.check([ProbeRun(probe, machine, built[probe.kernel])], probe.title)
        yield from loop.time(passed)
        del passed
        torch.cuda.empty_cache()


def warm_up(runs: Sequence[Entry], time_once: TimeOnce, telemetry: Telemetry) -> None:
    """Makes a launch as long as RUN_US, and repeats it until the device has its lasting clock."""
    (run,) = runs
    assert isinstance(run, ProbeRun)
    while (once_us := time_once(run)) < RUN_US / 4:
        run.iterations *= 4
    run.iterations = max(run.min_iterations, round(run.iterations * RUN_US / once_us))
    spent_us = 0.0
    while spent_us < WARM_UP_US:
        spent_us += time_once(run)


def this_machine() -> Machine:
    """The current GPU."""
    gpu = torch.cuda.get_device_properties(torch.cuda.current_device())
    return Machine("cuda", gpu.multi_processor_count, gpu.L2_cache_size, gpu.total_memory)


def _build(kernels: Iterable[MicroKernel], capability: tuple[int, int]) -> dict[MicroKernel, CheckResult]:
    """Compiles in parallel what the GPU has instructions for; returns whether each kernel can be run."""

    def build(kernel: MicroKernel) -> CheckResult:
        if reason := kernel.refusal(capability):
            return CheckResult(SKIPPED, reason)
        try:
            ceilings.cubin(kernel, capability)
        except Exception as error:
            return CheckResult(ERROR, describe(error))
        return CheckResult()

    distinct = list(dict.fromkeys(kernels))  # several probes may share one
    with ThreadPoolExecutor() as pool:
        return dict(zip(distinct, pool.map(build, distinct), strict=True))


class ProbeRun(Entry):
    """A ceiling's micro-kernel on random data."""

    def __init__(self, probe: Probe, machine: Machine, built: CheckResult) -> None:
        self.probe, self._machine, self._built = probe, machine, built

    def __str__(self) -> str:
        return str(self.probe)

    def check(self) -> CheckResult:
        if not self._built.passed:
            return self._built
        result = self._check_known()
        if result.passed:
            self._blocks, self._input = (
                self.probe.blocks(self._machine),
                self.probe.make_input(self._machine, exact=False),
            )
            self._output = self.probe.output(self._input, self._blocks)
            self.iterations = self.min_iterations = self.probe.least_iterations(self._input, self._blocks)
        return result

    def check_negated(self) -> CheckResult:
        """The check once more: a micro-kernel has no A, and its known inputs are not those that are timed."""
        return self._check_known()

    def _check_known(self) -> CheckResult:
        try:
            wrong = check(self.probe, self._machine, ceilings.launch)
        except Exception as error:  # one that breaks hides no other
            return failure(self, error, self._machine.device)
        return CheckResult(FAIL, wrong) if wrong else CheckResult()

    def work(self) -> None:
        ceilings.launch(self.probe.kernel, self._input, self._output, self.iterations, self._blocks)

    def row(self, **values: Any) -> RoofRow:
        about: dict[str, Any] = {"stage": self.probe.name, "math": self.probe.math, "unit": self.probe.unit}
        return RoofRow(experiment=NAME, backend="cuda", **about, **values)

    def timed_row(self, times_us: Mapping[Any, np.ndarray], conditions: Conditions) -> RoofRow:
        rate = (
            self.probe.work(self._input, self._blocks, self.iterations) / 1e6
        )  # TFLOP or TB per second, by microseconds
        low_us, median_us, high_us = np.percentile(times_us[self], [20, 50, 80])
        gpu = _gpu_under_load(self.work)
        sheet = datasheets.find(torch.cuda.get_device_name())
        figure = sheet.figures.get(self.probe.figure) if sheet else None
        return self.row(
            value=rate / median_us,
            low=rate / high_us,
            high=rate / low_us,
            repeats=len(times_us[self]),
            median_us=median_us,
            by_clock=datasheets.by_clock(self.probe.figure, gpu),
            datasheet=figure,
            source=sheet.source if sheet and figure else "",
            sm_mhz=gpu.get("sm_clock_mhz"),
        )


def check(probe: Probe, machine: Machine, launch: Callable) -> str:
    """Runs the probe once on inputs whose result is known; returns what is wrong with it, or nothing.

    launch(kernel, data, out, iterations, blocks): `ceilings.launch`, or what runs it on another machine.
    """
    blocks, data = probe.blocks(machine), probe.make_input(machine, exact=True)
    out = probe.output(data, blocks).fill_(0)
    iterations = probe.least_iterations(data, blocks)
    launch(probe.kernel, data, out, iterations, blocks)
    return probe.check(data, out, blocks, iterations)


def _gpu_under_load(work: timers.Work) -> dict:
    """The GPU's properties and its clock while `work` runs, which is queued for longer than asking takes."""
    for _ in range(100):
        work()
    found = provenance.gpu()
    torch.cuda.synchronize()
    return found
