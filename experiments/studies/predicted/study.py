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
_EACH = 8  # of a kernel's shapes that are no cubes
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
    """A row for each contender, problem and card, with the full preset at what the card's published rows have."""
    measured = {card: published_times(card) for card in list(cards())[: None if request.preset == FULL else 1]}
    jobs = [(contender, list(_parts(contender, request, measured))) for contender in contenders]
    bars.begin("predicting", sum(len(parts) for _, parts in jobs))
    work = functools.partial(_work, fresh=request.row_cache is None or request.row_cache.fresh)
    for rows in parallel.measure_parts(jobs, work, bars, request.row_cache):
        yield from (_with_measured(row, measured[row.card]) for row in rows)


def _parts(
    contender: Contender, request: Request, measured: Mapping[str, Mapping[tuple, tuple[float, str]]]
) -> Iterator[tuple[Problem, str]]:
    """The problems and cards that a contender is predicted at.

    Those asked for; in the default preset the largest cube; else the cubes of PREDICTED, what `tensor_cores` measured,
    and every so many of the other shapes, so that no choice of ours is in it.
    """
    if request.problems or request.preset == DEFAULT:
        problems = request.problems or [Problem(*workloads.cube(workloads.LARGEST))]
        yield from ((problem, card) for problem in problems for card in measured)
        return
    cubes = {workloads.cube(edge) for edge in workloads.PREDICTED}
    for card, times in measured.items():
        own = {key[4:]: study for key, (_, study) in times.items() if key[:4] == _kernel(contender)}
        others = sorted(sizes for sizes, study in own.items() if study == "shapes" and sizes not in cubes)
        chosen = [sizes for sizes, study in own.items() if sizes in cubes or study == "tensor_cores"]
        yield from ((Problem(*sizes), card) for sizes in sorted({*chosen, *others[::_EACH]}))


def _kernel(row: Contender | PredictedRow) -> tuple[str, str, str, str]:
    return (row.stage, row.variant, row.dialect, row.math)


def published_times(card: str) -> Mapping[tuple, tuple[float, str]]:
    """By kernel and sizes: the microseconds of the newest published row of a card, and the study that has it."""
    found: dict[tuple, tuple[str, float, str]] = {}  # and its run, which is a date
    for study in _TIMED_IN:
        rows = store.read(store.PUBLISHED.parent / card, study)
        rows = rows[rows["median_us"].notna() & (rows["mode"] == COLD) & (rows["status"] == PASS)]
        for row in frames.shown(rows).itertuples():
            found[_key(row)] = max(found.get(_key(row), ("", 0.0, "")), (row.run, row.median_us, study))
    return {key: (time, study) for key, (_, time, study) in found.items()}


def _key(row) -> tuple:
    return (*_kernel(row), row.m, row.n, row.k)


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
    (low, high), longest = found.interval_us, found.longest
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
