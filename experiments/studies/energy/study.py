"""How fast is a kernel in a burst, how fast held for seconds, at how many watts, and what do its inputs' bits change?

Expectation: a burst of 20 ms runs at the highest clock; back to back for seconds a kernel near the peak meets the power
cap, the clock falls, and what counts is TFLOP/s per W. Zeros switch few transistors, so at the cap they are computed at
a higher clock: a benchmark on zeros reports a speed that real data do not reach. Where power is no limit, all kinds of
inputs are equally fast.

Method: all take turns in rounds of random order. A burst of back-to-back calls follows a pause that lets power fall, is
timed as a whole, and gives a share of cuBLAS of the same math and inputs; it is too short to be asked for its power.
Held, a kernel runs back to back for HOLD_S, since power follows load with a delay: speed, clock and power are those
after SETTLE_SHARE of it. cuBLAS and CUDA's last rung take part in every math mode with every kind of inputs, and in
fp32 the last of each dialect; the full preset has the default of every rung besides, on normal numbers. B is by rows,
and in fp8 by columns.

Run: `python -m experiments run energy [--preset full] [--stage S] [--backend B] [--math bf16] [--size 8192]`
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import torch

import gemm_ref
from experiments.bench import rounds, timers
from experiments.bench.eligibility import with_controls
from experiments.bench.measure import Entry, MeasuringLoop, Product, Setting, TimeOnce, TimingProtocol, rotate
from experiments.bench.rounds import RoundPlan
from experiments.bench.telemetry import Telemetry
from experiments.bench.verify import Inputs
from experiments.progress import Bars
from experiments.records import workloads
from experiments.records.contenders import Contender
from experiments.records.controls import CONTROL
from experiments.records.frames import LAYOUT
from experiments.records.request import DEFAULT, FULL, Request
from experiments.records.rows import BURST, SUSTAINED, Row
from gemm_ref.dialect import BY_HAND
from gemm_ref.problem import integers_are_exact

NAME = "energy"
KINDS = ("zeros", "integers", "uniform", "normal")
BURSTS, BURST_S, PAUSE_S = 9, 0.02, 0.05
HOLD_S = {DEFAULT: 1.5, FULL: 3.0}
SETTLE_SHARE = 0.6  # of HOLD_S: after a load at the power cap the clock takes about a second to rise again
BATCH_S = 0.05  # of calls that are put in the queue at a time
IN_BURSTS, HELD = (Setting(NAME, "cuda", mode) for mode in (BURST, SUSTAINED))
BURST_TIMER = functools.partial(timers.back_to_back, seconds=BURST_S, pause_s=PAUSE_S)
BURST_PROTOCOL = TimingProtocol(lambda: BURST_TIMER, RoundPlan.exactly(BURSTS))


def hold_protocol(hold_s: float) -> TimingProtocol:
    """Back-to-back batches for `hold_s`, of which those after SETTLE_SHARE count."""

    def settle(entries: Sequence[Entry], time_once: TimeOnce, telemetry: Telemetry) -> None:
        rounds.warm_up(lambda: time_once(entries[0]), least_s=SETTLE_SHARE * hold_s)

    until_the_end = replace(RoundPlan.exactly(10**6), wall_s=(1 - SETTLE_SHARE) * hold_s)
    return TimingProtocol(lambda: functools.partial(timers.back_to_back, seconds=BATCH_S), until_the_end, settle)


class _UncachedOracle(gemm_ref.Oracle):
    """Computed for each check from the operands as they are: the oracles of all kinds would fill the GPU's memory."""

    def __init__(self, a: torch.Tensor, b: torch.Tensor) -> None:
        self.a, self.b, self.k, self.shape = a, b, a.shape[1], (a.shape[0], b.shape[1])

    def on(self, device: torch.device, name: str) -> torch.Tensor:
        return self._product(name, device)


class _GpuInputs(Inputs):
    """Operands on the GPU, which are also those of the timed calls."""

    @classmethod
    def make(cls, problem: gemm_ref.Problem, kind: str, device: str = "cuda", b: torch.Tensor | None = None) -> Inputs:
        a, b = gemm_ref.make_inputs(problem, kind, device=device, b=b)
        return cls(problem, kind, a, b, _UncachedOracle(a, b))

    def negated(self, a: torch.Tensor, b: torch.Tensor) -> Inputs:
        """The same: its oracle follows A, which was negated in place."""
        return self


def unsuited(contender: Contender, request: Request) -> str:
    """Why the contender is no part of this experiment; empty if it is."""
    if request.device == "cpu":
        return "power and clocks need a GPU"
    of_full = contender.dialect and contender.is_default and request.preset == FULL
    if of_full or _is_foremost(contender):
        return ""
    last = gemm_ref.stages_in(contender.math)[-1].id
    where = "" if contender.math == "fp32" else " in CUDA"
    return f"only cuBLAS and {last}{where} take part in {contender.math}, and in the full preset each rung's default"


def _is_foremost(contender: Contender) -> bool:
    """Whether it takes part with inputs of every kind."""
    last = gemm_ref.stages_in(contender.math)[-1].id
    by_all = contender.math == "fp32" or contender.dialect == BY_HAND
    return contender.is_reference or (contender.stage == last and contender.is_default and by_all)


def measure(request: Request, chosen: Sequence[Contender], bars: Bars) -> Iterator[Row]:
    """Yields two rows for each contender, problem and kind of inputs: in bursts, and held. Controls are not held."""
    sizes = map(workloads.cube, workloads.ENERGY[request.preset])
    for size in request.problems or [gemm_ref.Problem(*each) for each in sizes]:
        yield from _measure(list(_entries(size, with_controls(chosen))), str(size), HOLD_S[request.preset], bars)
        torch.cuda.empty_cache()  # the next size's operands are others


def _entries(size: gemm_ref.Problem, chosen: Sequence[Contender]) -> Iterator[Product]:
    """What is timed; operands of one kind are the same for all of a math mode."""
    shared: dict[tuple[str, str], Inputs] = {}
    for contender in chosen:
        problem = replace(size, math=contender.math, b_layout=LAYOUT[contender.math])
        for kind in KINDS if _is_foremost(contender) else ("normal",):
            if kind == "integers" and not integers_are_exact(problem):  # in fp8 at 8192
                continue
            if (contender.math, kind) not in shared:
                shared[contender.math, kind] = _GpuInputs.make(problem, kind)
            yield Product(IN_BURSTS, contender, [shared[contender.math, kind]], mode=SUSTAINED, inputs=kind)


def _measure(entries: Sequence[Product], size: str, hold_s: float, bars: Bars) -> Iterator[Row]:
    loop = MeasuringLoop(BURST_PROTOCOL, bars)
    passed = yield from loop.check(entries, f"{size}: checking")
    references = {entry.inputs[0]: entry for entry in passed if entry.contender.is_reference}
    rotations = {inputs: rotate(inputs) for inputs in {entry.inputs[0]: None for entry in passed}}
    for entry in passed:
        entry.bind(rotations[entry.inputs[0]])
        entry.reference = references.get(entry.inputs[0])
    passed = yield from loop.time(passed, f"{size}: bursts")
    held = [entry for entry in passed if entry.contender.stage != CONTROL]
    bars.begin(f"{size}: holding", len(held))
    with Telemetry() as telemetry:
        loop = MeasuringLoop(hold_protocol(hold_s), bars, telemetry)
        for index in np.random.default_rng(0).permutation(len(held)):
            held[index].setting, held[index].reference = HELD, None
            yield from loop.time([held[index]])
            bars.done()
