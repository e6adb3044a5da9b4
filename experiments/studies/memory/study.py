"""What does each rung ask of the memory system, and which rung changes what?

Expectation: s02 asks for 4 sectors where s01's column of A takes 32; from s04 on a block loads its slices once, and
what is left is shared memory. s05's layouts conflict 32-way in the reads (conflicted), in the writes (transposed) or
not at all; s09's quadrants read without conflicts where s07 and s08 take up to twice the wavefronts. Each larger tile
in registers moves fewer bytes per FLOP.

Method: each kernel runs on the reference GPU (`gemm_ref.ptx`), on any machine, is checked, and every address of every
warp is counted, by source line: 32-byte sectors per request of global memory, wavefronts of shared memory beside those
that it would take without bank conflicts (`gemm_ref.ptx.count`). 'Written' is the PTX; 'compiled' has the widths that
ptxas chose, from the machine code. Counts are exact for a compiler's version. They include neither times nor caches, so
sectors are what the L1 cache is asked for; the L2 cache sees at most that.

With the full preset, on a GPU whose driver allows it, `ncu` counts the same accesses as a third view.

Run: `python -m experiments run memory [--preset full] [--stage S] [--backend cuda|triton|gluon] [--size MxNxK]`
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace

import gemm_ref
from experiments.bench import parallel
from experiments.bench.verify import CheckResult, refusal
from experiments.progress import Bars
from experiments.records import workloads
from experiments.records.contenders import Contender
from experiments.records.request import FULL, Request
from experiments.records.rows import HARDWARE, PASS, SKIPPED
from experiments.studies.memory import ncu
from experiments.studies.memory.row import AccessRow
from experiments.studies.shared.reference_runs import count_accesses, missing_disassembler, refuse_long_run
from gemm_ref import ptx
from gemm_ref.ptx.count.counts import COMPILED

NAME = "memory"


def unsuited(contender: Contender, request: Request) -> str:
    """Why the contender is no part of this experiment; empty if it is. The device does not matter: none is used."""
    if contender.is_baseline:
        return "baselines are not kernels of this repo, and are not counted"
    counted = contender.math == (request.math or "fp32")
    return "" if counted else f"{contender.math} is counted only if --math asks for it"


def measure(request: Request, contenders: Sequence[Contender], bars: Bars) -> Iterator[AccessRow]:
    """The rows of each contender and problem; one that says why where there is nothing to count."""
    math = request.math or "fp32"
    problems = [
        replace(each, math=math) for each in request.problems or [gemm_ref.Problem(*workloads.cube(workloads.COUNTED))]
    ]
    bars.begin("counting", len(problems) * len(contenders))
    passed: dict[gemm_ref.Problem, list[Contender]] = {problem: [] for problem in problems}
    jobs = [(contender, [(problem,) for problem in problems]) for contender in contenders]
    places = ((contender, problem) for contender, parts in jobs for (problem,) in parts)
    for (contender, problem), rows in zip(
        places, parallel.measure_parts(jobs, _work, bars, request.row_cache), strict=True
    ):
        yield from rows
        if rows[0].status == PASS:
            passed[problem].append(contender)
    if request.device == "cuda" and request.preset == FULL:
        for problem, alike in passed.items():
            if alike:
                yield from _on_the_gpu(alike, problem, bars)


def _work(contender: Contender, parts: Sequence[tuple[gemm_ref.Problem]]) -> Iterator[list[AccessRow]]:
    for (problem,) in parts:
        slow = refuse_long_run(problem)
        yield [_without_counts(contender, problem, slow)] if slow else count(contender, problem)


def _on_the_gpu(contenders: Sequence[Contender], problem: gemm_ref.Problem, bars: Bars) -> Iterator[AccessRow]:
    """The hardware's own counts, as rows of a view of their own; one row that says why where it gives none."""
    bars.begin(f"{problem}: the hardware's counters", 1)
    able = [contender for contender in contenders if not refusal(contender, "cuda")]
    try:
        found = ncu.count(able, problem)
    except ncu.NoCounters as error:
        yield _without_counts(able[0], problem, CheckResult(SKIPPED, str(error)), view=HARDWARE)
        return
    for contender, launches in found.items():
        for index, counts in enumerate(launches, 1):
            for (space, kind, measure), value in counts.items():
                about = {"view": HARDWARE, "launch": index, "space": space, "kind": kind, measure: int(value)}
                yield AccessRow.about(NAME, contender, problem, **about)
    bars.done()


def count(contender: Contender, problem: gemm_ref.Problem) -> list[AccessRow]:
    """The rows of one contender."""
    result, counts = count_accesses(contender, problem)
    rows = [_row(contender, problem, each) for each in counts]
    if result.status != PASS:
        rows.append(_without_counts(contender, problem, result))
    if why_not := missing_disassembler():
        rows.append(_without_counts(contender, problem, CheckResult(SKIPPED, why_not), view=COMPILED))
    return rows


def _row(contender: Contender, problem: gemm_ref.Problem, count: ptx.Count) -> AccessRow:
    values = asdict(count) | {"words": " ".join("-" if word is None else str(word) for word in count.words)}
    values["lane_bytes"] = values.pop("size")
    del values["offsets"]
    return AccessRow.about(NAME, contender, problem, **values)


def _without_counts(contender: Contender, problem: gemm_ref.Problem, result: CheckResult, view: str = "") -> AccessRow:
    return AccessRow.about(NAME, contender, problem, view=view, **result.columns)
