"""Predicted times of the kernels that the explorer shows, and of each line of their files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from experiments import processes
from experiments.bench import predictions
from experiments.explore.page import TOUR, key_of
from experiments.progress import Bars
from experiments.publish.pages.coloured import TimedFile
from experiments.records import frames
from experiments.records.source_lines import kernel_file
from gemm_ref import Implementation, clock, implementations


def gather_times(items: Sequence[Implementation], bars: Bars) -> dict[Implementation, TimedFile]:
    """Returns what is predicted of kernels at the size of the tables, on the first card of `clock`.

    What an earlier run has predicted is read; of the others only the kernels that the tour goes to are predicted, in
    seconds. A kernel without a prediction, or of which the clock refuses one, is left out.
    """
    found = {item: kept for item in items if (kept := predictions.read(item, *predictions.at_tables(item)))}
    toured = {kernel for kernel, *_ in TOUR}
    missing = [item for item in items if item not in found and _key(item) in toured]
    if missing:
        bars.begin("predicting", len(missing))
        with processes.pool() as pool:
            for item, predicted in zip(missing, pool.map(_predict_by_name, map(str, missing)), strict=True):
                found |= {item: predicted} if predicted else {}
                bars.done()
    return {item: _for_readers(item, predicted) for item, predicted in found.items()}


def is_default(item: Implementation) -> bool:
    """Whether a kernel is what its rung takes by default in its dialect."""
    return frames.is_default(item.stage.id, item.variant, item.dialect)


def by_key(times: Mapping[Implementation, TimedFile]) -> dict[str, TimedFile]:
    """The times of kernels by their names in the explorer."""
    return {_key(item): time for item, time in times.items()}


def _key(item: Implementation) -> str:
    return key_of(item.stage.id, item.dialect, item.variant)


def _predict_by_name(name: str) -> clock.Prediction | None:
    """Runs in another process, which gets a kernel by its name; None where the clock or a compiler refuses."""
    item = next(item for item in implementations() if str(item) == name)
    try:
        return predictions.predict(item, *predictions.at_tables(item))
    except Exception:  # whatever stops it, the page says that there is no prediction
        return None


def _for_readers(item: Implementation, predicted: clock.Prediction) -> TimedFile:
    said = str(predicted)
    says = f"{said[0].upper()}{said[1:]}. Beside lines: their shares of that time, with what is called there."
    lines = predicted.longest.lines_in(kernel_file(item.stage.id, item.dialect).rpartition("/")[2])
    shown = [line for line in lines if line.share >= clock.MIN_SHARE]
    return TimedFile(says, {line.line: (f"{line.share:.0%}", str(line)) for line in shown})
