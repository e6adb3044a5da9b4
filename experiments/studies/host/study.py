"""What does a call cost the host, beside torch's own `a @ b`?

Expectation: about as much. What does not change between two calls of one shape is computed once. A call then does some
look-ups, allocates C and launches; a rung with tensor maps must also find those, and Triton adds its own launcher.
Where the kernel is shorter than its call, a loop of calls waits for this.

Method: every contender is checked against the oracle first, and called BURST times, so that it is compiled and planned.
Then all take turns: with the GPU idle, BURST calls are put into its queue, which never fills, and the host's clock is
read around them. The time of a burst divided by BURST is one sample. Each call allocates C, as `a @ b` does. Python's
garbage collector is paused. Each rung takes part with its default variants, in its first math mode.

Run: `python -m experiments run host [--stage S] [--backend B] [--size 256]`
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import torch

import gemm_ref
from experiments.bench import timers
from experiments.bench.measure import MeasuringLoop, Product, Setting, TimingProtocol, rotate, time_each
from experiments.bench.rounds import RoundPlan
from experiments.bench.telemetry import Conditions
from experiments.bench.verify import Inputs
from experiments.progress import Bars
from experiments.records import stats, workloads
from experiments.records.contenders import Contender
from experiments.records.request import Request
from experiments.records.rows import Row
from experiments.studies.host.row import HostRow
from gemm_ref.baselines.products import fp32_products

NAME = "host"
BURST, ROUNDS = 20, 100  # calls of a sample, and samples of a contender
SETTING = Setting(NAME, "cuda", row=HostRow)
TORCH = "torch_matmul"


def unsuited(contender: Contender, request: Request) -> str:
    """Why the contender takes no part; empty if it does."""
    if request.device == "cpu":
        return "a call's cost on the host is the cost of a launch on a GPU"
    if contender.is_baseline:
        return "of the libraries, only torch's `a @ b` takes part"
    if not contender.is_default:
        return "only the default variant of a rung takes part"
    math = request.math or gemm_ref.get_stage(contender.stage).maths[0]
    return "" if contender.math == math else f"{contender.math} takes part only if --math asks for it"


class HostCall(Product):
    """A call that allocates C, as `a @ b` does."""

    def __init__(self, contender: Contender, inputs: Inputs, device: str) -> None:
        super().__init__(SETTING, contender, [inputs])
        self.device = device

    def bind(self, rotation: timers.Rotation) -> None:
        super().bind(rotation)
        self.work = functools.partial(self.fn, *rotation.take()[:2])

    def timed_row(self, times_us: Mapping[Any, np.ndarray], conditions: Conditions) -> Row:
        return self.row(**asdict(stats.summarize(times_us[self])))


def measure(request: Request, chosen: Sequence[Contender], bars: Bars) -> Iterator[Row]:
    """Yields a row for each contender and size, and for torch in each of their math modes."""
    maths = [math for math in gemm_ref.MATHS if any(contender.math == math for contender in chosen)]
    by_matmul = [math for math in maths if math != "tf32" and not gemm_ref.MATHS[math].has_scales]
    everyone = [*chosen, *map(_torch, by_matmul)]
    sizes = [(problem.m, problem.n, problem.k) for problem in request.problems] or map(workloads.cube, workloads.HOST)
    loop = MeasuringLoop(protocol(), bars)
    for size in sizes:
        inputs = {math: Inputs.make(gemm_ref.Problem(*size, math), "normal").on(request.device) for math in maths}
        rotations = {math: rotate(of_math) for math, of_math in inputs.items()}
        entries = [HostCall(contender, inputs[contender.math], request.device) for contender in everyone]
        with fp32_products("ieee"):  # set once, outside of what is timed
            passed = yield from loop.check(entries, f"{entries[0].problem}: checking")
            for entry in passed:
                entry.bind(rotations[entry.contender.math])
            yield from loop.time(passed, f"{entries[0].problem}: timing the host")


def protocol() -> TimingProtocol:
    """Bursts of launches in a fixed order."""
    timer = functools.partial(timers.launch_timer, calls=BURST)
    return TimingProtocol(lambda: timer, RoundPlan.exactly(ROUNDS, shuffled=False), time_each(1))


def _torch(math: str) -> Contender:
    """torch's `a @ b`, called as its users do."""
    return Contender(TORCH, "default", "torch", "", math, ("cuda",), lambda: _matmul)


def _matmul(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
    return a @ b if out is None else torch.matmul(a, b, out=out)
