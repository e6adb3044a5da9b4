"""What came of `ladder`, in sentences made from its rows."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from experiments.publish.kernels import fastest_row
from experiments.publish.steps import count_faster, describe_cpu, step_verdicts, written_rungs
from experiments.publish.wording import VERDICT_WORDS, dialect_title, join_words
from experiments.records import frames, stats
from gemm_ref import DIALECTS
from gemm_ref.dialect import BY_HAND, OTHERS

_ORDER = (stats.FASTER, stats.SAME, stats.SLOWER, stats.UNSURE)


def describe(frame: pd.DataFrame) -> Iterator[str]:
    """Sentences on the rows of the study; none where the rows say nothing."""
    at_size = frames.largest_cube(frame)
    if frames.rungs(at_size).empty:
        yield from describe_cpu(frame)
        return
    steps = {dialect: step_verdicts(at_size, "fp32", dialect) for dialect in DIALECTS}
    yield f"At {at_size['m'].iloc[0]} a rung is faster than the one below it at {count_faster(steps)}"
    others = [f"`{stage[:3]}`" for stage, verdict in steps[BY_HAND].items() if verdict != stats.FASTER]
    if others:
        yield f"Not faster in {dialect_title(BY_HAND)}: {join_words(others)}"
    for dialect in OTHERS:
        written = written_rungs("fp32", dialect)
        pairs = [[fastest_row(at_size, stage, name) for name in (BY_HAND, dialect)] for stage in written]
        verdicts = [frames.verdict(*pair) for pair in pairs if not any(row is None for row in pair)]
        counts = [f"{VERDICT_WORDS[each]} {verdicts.count(each)} times" for each in _ORDER if each in verdicts]
        if counts:
            yield f"Beside {dialect_title(BY_HAND)}'s rung, {dialect_title(dialect)}'s is {join_words(counts)}"
