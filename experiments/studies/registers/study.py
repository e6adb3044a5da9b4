"""What do multiply-adds wait for: which registers may an FFMA read, and what does it cost a rung to ignore that?

Expectation: registers lie in two banks, by the last bit of their number, and each gives one of them a clock. An operand
flagged `.reuse` costs the next instruction nothing. So an FFMA whose three operands are all even takes three clocks,
and how fast a rung's main loop can be is told by its machine code alone (`gemm_ref.sass.ports`). Where the sums may lie
in any register, rungs come closer to cuBLAS.

Method: 256 equal instructions are compiled, and their registers replaced in the machine code
(`experiments.studies.registers.register_loops` has the loops). Each loop is run once round on small numbers, and never
timed where a register then holds what it should not. Then it goes round 100 times with one warp or two on each
scheduler, and the multiprocessors' clocks are counted: median and percentiles of all blocks of 5 runs. The rungs are
CUDA's in fp32 from s07 to s12, as they are and by the rules of `cuda_kernels.rewritten`, each with as many blocks on a
multiprocessor as fit, and alone on it: the same machine code with half the warps. They are timed beside cuBLAS as in
`ladder`; clocks are those of the multiprocessor at the clock rate that was seen, for each multiply-add of a scheduler.

Run: `python -m experiments run registers [--stage S] [--size 4096]`
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import groupby
from typing import Any

import numpy as np
import torch

from cuda_kernels.ceilings import patched
from cuda_kernels.ceilings.image import Image
from cuda_kernels.ceilings.patched import UNROLL, Compiled
from experiments.bench.measure import Bench, Setting
from experiments.bench.verify import describe
from experiments.progress import Bars
from experiments.records import workloads
from experiments.records.request import DEFAULT, Request
from experiments.records.rows import ERROR, FAIL, SKIPPED, TimedRow
from experiments.studies.registers.register_loops import LOOPS, Loop
from experiments.studies.registers.rewritten_rungs import Rewritten, rewritten, with_machine
from experiments.studies.registers.row import RegisterRow
from gemm_ref import Problem
from gemm_ref.sass import ports
from gemm_ref.sass.listing import Instruction
from gemm_ref.sass.occupancy import ARCHITECTURES, QUARTERS, WARP
from gemm_ref.toolchain import REFERENCE_CAPABILITY

NAME = "registers"
CONTENDERS = (*LOOPS, *rewritten())
DEVICE = "cuda"
TRIPS, REPEATS = 100, 5


def unsuited(contender: Loop | Rewritten, request: Request) -> str:
    """Why it is not measured; empty if it is."""
    if request.backends or request.math:
        return "--backend and --math choose kernels, and these are all CUDA's in fp32"
    if isinstance(contender, Loop):
        return "--stage and --size choose rungs" if request.stages or request.problems else ""
    if request.stages:
        return "" if contender.stage in request.stages else "another --stage is asked for"
    if request.device == "cpu" and request.preset == DEFAULT and not contender.is_default:
        return "on a CPU, a rung's default variant represents the others: --stage or --preset full runs them"
    return ""


def measure(request: Request, chosen: Sequence[Loop | Rewritten], bars: Bars) -> Iterator[RegisterRow]:
    """A row for each loop, and for each rung and problem; without a GPU what their machine code says."""
    loops = [each for each in chosen if isinstance(each, Loop)]
    bars.begin("loops of chosen registers", len(loops))
    for loop in loops:
        bars.doing(str(loop))
        yield _loop_row(loop, request.device)
        bars.done()
    rungs = [each for each in chosen if isinstance(each, Rewritten)]
    if rungs:
        for problem in request.problems or [Problem(*workloads.cube(workloads.LARGEST))]:
            yield from _rung_rows(rungs, problem, request.device, bars)


def _rung_rows(rungs: Sequence[Rewritten], problem: Problem, device: str, bars: Bars) -> Iterator[RegisterRow]:
    capability = torch.cuda.get_device_capability() if device == "cuda" else REFERENCE_CAPABILITY
    arch = next((name for name, sm in ARCHITECTURES.items() if sm.capability == capability), None)
    if arch is None:
        known = f"what a multiprocessor holds is known of {', '.join(ARCHITECTURES)}, and this GPU is another"
        yield from (RegisterRow.about(NAME, rung, problem, status=SKIPPED, detail=known) for rung in rungs)
        return
    able: dict[tuple, Rewritten] = {}
    bars.begin(f"{problem}: machine code", len(rungs))
    with ThreadPoolExecutor() as pool:
        # of one text after the other: it is compiled once
        texts = [list(group) for _, group in groupby(rungs, lambda rung: (rung.stage, rung.variant, rung.form))]
        for own in pool.map(lambda own: [with_machine(rung, problem, arch) for rung in own], texts):
            for rung in own:  # one that is alone anyway is not timed twice
                able.setdefault((rung.stage, rung.variant, rung.form, rung.columns["warps"]), rung)
                bars.done()
    if device != "cuda":
        yield from (RegisterRow.about(NAME, rung, problem) for rung in able.values())
        return
    sms = _multiprocessors()
    with Bench(Setting(NAME, device, row=RegisterRow), list(able.values()), bars) as bench:
        for row in bench.time(problem):
            yield with_clocks(row, sms)


def _multiprocessors() -> int:
    return torch.cuda.get_device_properties(torch.cuda.current_device()).multi_processor_count


def with_clocks(row: TimedRow, sms: int) -> RegisterRow:
    """The row with clocks of a scheduler for each of its multiply-adds, if it was timed, on `sms` multiprocessors."""
    assert isinstance(row, RegisterRow)
    if row.median_us is None or row.p20_us is None or row.p80_us is None or row.sm_mhz is None:
        return row
    of_a_us = row.sm_mhz * WARP * QUARTERS * sms / (row.m * row.n * row.k)
    median, low, high = (us * of_a_us for us in (row.median_us, row.p20_us, row.p80_us))
    return replace(row, clocks=median, clocks_low=low, clocks_high=high)


def _loop_row(loop: Loop, device: str) -> RegisterRow:
    capability = torch.cuda.get_device_capability() if device == "cuda" else REFERENCE_CAPABILITY
    values: dict[str, Any] = {}
    try:
        if refused := loop.refusal(capability):
            return _about(loop, status=SKIPPED, detail=refused)
        code = patched.compiled(loop.operation, capability)
        operands = loop.instructions(tuple(code.values), UNROLL)
        trip = [Instruction(loop.operation, its.text(loop.operation)) for its in operands]
        values["predicted"] = ports.clocks(trip).clocks / UNROLL
        if device == "cuda":
            values |= _measure(loop, code, _multiprocessors())
    except Exception as error:  # one that breaks hides no other
        values |= {"status": ERROR, "detail": describe(error)}
    return _about(loop, **values)


def _about(loop: Loop, **values: Any) -> RegisterRow:
    who: dict[str, Any] = {"stage": loop.operation, "variant": loop.name, "form": loop.form, "warps": loop.warps}
    return RegisterRow(experiment=NAME, backend="cuda", **who, **values)


def _measure(loop: Loop, code: Compiled, sms: int) -> dict[str, Any]:
    """The clocks of a loop on the current GPU of `sms` multiprocessors, or how its result is wrong."""
    operands = loop.instructions(tuple(code.values), UNROLL)
    given = code.small_words(WARP * QUARTERS * loop.warps)
    counted = torch.zeros(sms, dtype=torch.int64, device=DEVICE)
    with Image(code.with_registers(operands)) as image:
        words = torch.from_numpy(given.view(np.int32)).to(DEVICE)
        patched.launch(image, words, counted[:1], 1)
        wrong = int((words.cpu().numpy().view(np.uint32) != code.expected(given, operands)).sum())
        if wrong:
            return {"status": FAIL, "detail": f"{wrong} of {given.size} registers do not hold what they should"}
        taken = []
        for _ in range(REPEATS):
            patched.launch(image, words, counted, TRIPS)
            taken.append(counted.cpu().numpy() / (TRIPS * UNROLL * loop.warps))
    low, median, high = np.percentile(taken, [20, 50, 80])
    return {"clocks": median, "clocks_low": low, "clocks_high": high, "repeats": REPEATS}
