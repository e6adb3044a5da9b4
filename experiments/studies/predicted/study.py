"""How fast would each rung be on a GPU that is not here, and how far is that from what was measured there?

Expectation: of kernels on CUDA cores half are predicted within a tenth of the measured time, and of two kernels whose
times differ by more than that the faster one is almost always known.

Method: `gemm_ref.clock` predicts the time from what one block does on the reference GPU, from the machine code, and
from the constants of a card in gemm_ref/clock/gpus.toml, none of which was fitted to a kernel (docs/clock.md). Beside
it stands the newest published time of the same kernel, problem and card, with cold caches, so that the error is data.
Times of Triton and Gluon depend on Triton's version, and so does their machine code: published predictions are made
with the version of the published times. A kernel with an instruction that has no cost yet is skipped, with its name.

Run: `python -m experiments run predicted [--preset full] [--stage S] [--backend cuda|triton|gluon] [--size MxNxK]`
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import torch

from experiments.bench import parallel
from experiments.bench.verify import describe
from experiments.progress import Bars
from experiments.records import store, workloads
from experiments.records.contenders import Contender
from experiments.records.frames import LAYOUT, SIZES
from experiments.records.request import DEFAULT, FULL, Request
from experiments.records.rows import COLD, ERROR, PASS, SKIPPED
from experiments.studies.predicted.row import PredictedRow
from gemm_ref import Problem, clock
from gemm_ref.clock.gpu import cards
from gemm_ref.operands import as_layout

NAME = "predicted"
_TIMED_IN = ("ladder", "squares", "shapes", "tensor_cores")  # studies whose times are of the same kernels
_CAPABILITY = (9, 0)  # of all cards in the table
_KERNEL = ("stage", "variant", "dialect", "math", *SIZES)


def unsuited(contender: Contender, request: Request) -> str:
    """Why the contender is no part of this experiment; empty if it is. The device does not matter: none is used."""
    if contender.kernel is None:
        return "baselines are not part of it: their machine code is not compiled here"
    if request.preset == FULL or request.math or request.stages:
        return ""
    is_first = contender.is_default and contender.math == contender.kernel.stage.maths[0]
    return "" if is_first else "variants and further compute types: --stage, --math or --preset full predicts them"


def measure(request: Request, contenders: Sequence[Contender], bars: Bars) -> Iterator[PredictedRow]:
    """A row for each contender, problem and card: the first card of the table, and with the full preset all of them."""
    edges = (workloads.LARGEST,) if request.preset == DEFAULT else workloads.PREDICTED
    problems = request.problems or [Problem(*workloads.cube(edge)) for edge in edges]
    parts = [(problem, card) for problem in problems for card in list(cards())[: None if request.preset == FULL else 1]]
    bars.begin("predicting", len(contenders) * len(parts))
    measured = {card: published_times(card) for _, card in parts}
    jobs = [(contender, parts) for contender in contenders]
    for rows in parallel.measure_parts(jobs, _work, bars, request.row_cache):
        yield from (_beside(row, measured[row.card]) for row in rows)


def published_times(card: str) -> dict[tuple, tuple[float, str]]:
    """By kernel and sizes: the microseconds of the newest published row of a card, and the study that has it."""
    found: dict[tuple, tuple[str, float, str]] = {}
    for study in _TIMED_IN:
        frame = store.read(store.PUBLISHED.parent / card, study)
        frame = frame[frame["median_us"].notna() & (frame["mode"] == COLD) & (frame["status"] == PASS)]
        if "b_layout" in frame:
            frame = frame[frame["b_layout"] == frame["math"].map(LAYOUT)]
        for row in frame.itertuples():
            key = tuple(getattr(row, name) for name in _KERNEL)
            found[key] = max(found.get(key, ("", 0.0, "")), (row.run, row.median_us, study))
    return {key: (time, study) for key, (_, time, study) in found.items()}


def _beside(row: PredictedRow, measured: Mapping[tuple, tuple[float, str]]) -> PredictedRow:
    """The row with the measured time; after the row cache, which does not know of published results."""
    time, study = measured.get(tuple(getattr(row, name) for name in _KERNEL), (None, ""))
    ratio = row.predicted_us / time if row.predicted_us and time else None
    return replace(row, measured_us=time, measured_in=study, ratio=ratio)


def _work(contender: Contender, parts: Sequence[tuple[Problem, str]]) -> Iterator[list[PredictedRow]]:
    return ([_row(contender, *part)] for part in parts)


def _row(contender: Contender, problem: Problem, card: str) -> PredictedRow:
    problem = replace(problem, math=contender.math, b_layout=LAYOUT[contender.math])
    if reason := contender.refusal(_CAPABILITY):
        return PredictedRow.about(NAME, contender, problem, card=card, status=SKIPPED, detail=reason)

    def gemm(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return contender.load()(a, as_layout(b, problem.b_layout))

    try:
        prediction = clock.predict(gemm, problem, card)
    except ValueError as refusal:  # an instruction without a cost, or machine code that cannot be followed
        return PredictedRow.about(NAME, contender, problem, card=card, status=SKIPPED, detail=str(refusal))
    except Exception as error:  # a rung that does not compile is a row, and the others go on
        return PredictedRow.about(NAME, contender, problem, card=card, status=ERROR, detail=describe(error))
    (low, high), (limit, share), longest = prediction.interval_us, prediction.limit, prediction.longest
    return PredictedRow.about(
        NAME,
        contender,
        problem,
        card=card,
        predicted_us=prediction.microseconds,
        low_us=low,
        high_us=high,
        tflops=prediction.tflops,
        launches=len(prediction.launches),
        limit=limit,
        limit_share=share,
        waves=longest.waves,
        blocks_held=longest.held.blocks,
        unexplained=longest.unexplained,
    )
