"""How fast would each rung be on a GPU that is not here, and how far is that from what was measured there?

Expectation: of kernels on CUDA cores half are predicted within a tenth of the measured time, and of two kernels whose
times differ by more than that the faster one is almost always known.

Method: `gemm_ref.clock` predicts the time from what one block does on the reference GPU, from the machine code, and
from the constants of a card in gemm_ref/clock/gpus.toml, none of which was fitted to a kernel (docs/clock.md). Beside
it stands the newest published time of the same kernel, problem and card, with cold caches, so that the error is data.
Triton's machine code depends on its version: published predictions are made with that of the published times. A kernel
with an instruction that has no cost yet is skipped, with its name.

Run: `python -m experiments run predicted [--preset full] [--stage S] [--backend cuda|triton|gluon] [--size MxNxK]`
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from experiments.bench import parallel, predictions
from experiments.bench.verify import describe
from experiments.progress import Bars
from experiments.records import frames, store, workloads
from experiments.records.contenders import Contender
from experiments.records.request import DEFAULT, FULL, Request
from experiments.records.rows import COLD, ERROR, PASS, SKIPPED
from experiments.records.source_lines import kernel_file
from experiments.studies.predicted.row import PredictedRow
from gemm_ref import DIALECTS, Problem
from gemm_ref.clock.gpu import cards

NAME = "predicted"
# The default preset leaves out Triton's rungs that are another rung's kernel, Gluon, half of whose predicted times are
# within 5% of CUDA's, and kernels that take 9 to 20 s each: their blocks compute several tiles.
_SIMILAR = "gluon"
_SLOW = (("s14_register_banks", "triton"), ("s20_emulated", "cuda"), ("s20_emulated", "triton"))
_TIMED_IN = ("ladder", "squares", "shapes", "tensor_cores")  # studies whose times are of the same kernels


def unsuited(contender: Contender, request: Request) -> str:
    """Why the contender is no part of this experiment; empty if it is. The device does not matter: none is used."""
    if contender.kernel is None:
        return "baselines are not part of it: their machine code is not compiled here"
    if request.preset == FULL or request.math or request.stages or request.backends:
        return ""
    is_first = contender.is_default and contender.math == contender.kernel.stage.maths[0]
    kernel = contender.stage, contender.dialect
    has_own_file = kernel_file(*kernel) == DIALECTS[contender.dialect].file_of(contender.stage)
    if is_first and has_own_file and contender.dialect != _SIMILAR and kernel not in _SLOW:
        return ""
    return "it is not in the default preset: --stage, --backend, --math or --preset full predicts it"


def measure(request: Request, contenders: Sequence[Contender], bars: Bars) -> Iterator[PredictedRow]:
    """A row for each contender, problem and card: the first card of the table, and with the full preset all of them."""
    edges = (workloads.LARGEST,) if request.preset == DEFAULT else workloads.PREDICTED
    problems = request.problems or [Problem(*workloads.cube(edge)) for edge in edges]
    parts = [(problem, card) for problem in problems for card in list(cards())[: None if request.preset == FULL else 1]]
    bars.begin("predicting", len(contenders) * len(parts))
    measured = {card: published_times(card) for _, card in parts}
    jobs = [(contender, parts) for contender in contenders]
    work = functools.partial(_work, fresh=request.row_cache is None or request.row_cache.fresh)
    for rows in parallel.measure_parts(jobs, work, bars, request.row_cache):
        yield from (_with_measured(row, measured[row.card]) for row in rows)


def published_times(card: str) -> Mapping[tuple, tuple[float, str]]:
    """By kernel and sizes: the microseconds of the newest published row of a card, and the study that has it."""
    found: dict[tuple, tuple[str, float, str]] = {}  # and its run, which is a date
    for study in _TIMED_IN:
        rows = store.read(store.PUBLISHED.parent / card, study)
        rows = rows[rows["median_us"].notna() & (rows["mode"] == COLD) & (rows["status"] == PASS)]
        for row in (frames.shown(rows) if "b_layout" in rows else rows).itertuples():
            found[_key(row)] = max(found.get(_key(row), ("", 0.0, "")), (row.run, row.median_us, study))
    return {key: (time, study) for key, (_, time, study) in found.items()}


def _key(row) -> tuple:
    return (row.stage, row.variant, row.dialect, row.math, row.m, row.n, row.k)


def _with_measured(row: PredictedRow, measured: Mapping[tuple, tuple[float, str]]) -> PredictedRow:
    """The row with its measured time; the row cache has none, since it does not know of published results."""
    time, study = measured.get(_key(row), (None, ""))
    ratio = row.predicted_us / time if row.predicted_us and time else None
    return replace(row, measured_us=time, measured_in=study, ratio=ratio)


def _work(contender: Contender, parts: Sequence[tuple[Problem, str]], fresh: bool) -> Iterator[list[PredictedRow]]:
    return ([_row(contender, *part, fresh)] for part in parts)


def _row(contender: Contender, problem: Problem, card: str, fresh: bool) -> PredictedRow:
    assert contender.kernel is not None
    problem = replace(problem, math=contender.math, b_layout=frames.LAYOUT[contender.math])
    about = functools.partial(PredictedRow.about, NAME, contender, problem, card=card)
    try:
        found = predictions.predict(contender.kernel, problem, card, fresh)
    except ValueError as refusal:  # of an instruction that has no cost yet, or of code that cannot be followed
        return about(status=SKIPPED, detail=str(refusal))
    except Exception as error:  # a rung that does not compile is a row, and the others go on
        return about(status=ERROR, detail=describe(error))
    (low, high), longest = found.interval_us, found.kernels.longest
    return about(
        predicted_us=found.microseconds,
        low_us=low,
        high_us=high,
        tflops=found.tflops,
        limit=longest.limit.name,
        limit_share=longest.limit.share,
        waves=longest.waves,
        blocks_held=longest.held.blocks,
        unexplained=longest.unexplained,
    )
