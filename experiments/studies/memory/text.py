"""The generated blocks of docs/memory.md, from memory.csv."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd

import gemm_ref
from experiments.publish.numbers import format_fixed, format_number
from experiments.publish.table import Table
from experiments.publish.wording import NOT_MEASURED, dialect_title, join_words, kernel_name, name_defaults
from experiments.records import environment, store, traffic
from experiments.records.rows import HARDWARE, PASS
from gemm_ref import DIALECTS
from gemm_ref.dialect import BY_HAND
from gemm_ref.ptx.count.counts import COMPILED
from gemm_ref.rung import DEFAULT_VARIANT

BLOCKS = dict.fromkeys(("requests", "hardware"), "memory.md")  # block -> the page of docs/ that has it


def block(name: str, published: Path) -> str:
    """The Markdown of one block; `not measured` where the counts are missing."""
    frame = store.read(published, "memory")
    return _hardware(frame, published) if name == "hardware" else _requests(frame, published)


def _requests(frame: pd.DataFrame, published: Path) -> str:
    """A line per rung: FLOP per byte of shared memory and of the sectors asked for; default variants."""
    if frame.empty:
        return NOT_MEASURED
    table = traffic.totals(traffic.best_view(frame)).set_index(["stage", "variant", "dialect"])
    lines = []
    for stage in gemm_ref.stages_in("fp32"):
        keys = [(stage.id, stage.find_variant("default", dialect), dialect) for dialect in stage.dialects]
        cells = [
            " / ".join("–" if pd.isna(each) else format_number(each) for each in own.reindex(keys))
            for own in (table["shared_intensity"], table["l2_intensity"])
        ]
        lines.append([f"`{stage.id}` {name_defaults(stage)}".strip(), *cells])
    m, n, k = table.iloc[0][["m", "n", "k"]]
    caption = environment.compilers_caption(store.runs_of(frame[frame["view"] == COMPILED], published))
    said = f"CUDA / Triton / Gluon at {m} x {n} x {k}, as compiled. {caption}."
    head = ["rung", "FLOP per byte of shared memory", "FLOP per byte asked of global memory"]
    return f"{Table.of(head, lines).to_markdown()}\n\n{said}"


def _hardware(frame: pd.DataFrame, published: Path) -> str:
    """How many launches agree in every count, and the counts of those that do not."""
    table = traffic.confirmed(frame)
    if table.empty:
        return NOT_MEASURED
    ratios = table.xs("ratio", axis=1, level=1)
    off = float(np.nanmax(np.abs(ratios.to_numpy(dtype=float) - 1)))
    agrees = (ratios.isna() | (ratios == 1)).all(axis=1)
    said = f"{agrees.sum()} of {len(ratios)} launches agree in every count; the largest difference is {100 * off:.2g}%."
    lines = []
    for key, row in table[~agrees].iterrows():
        stage, variant, _, dialect = key[:4]
        second = ", second kernel" if key[-1] == 2 else ""
        name = f"{kernel_name(stage, variant)} {DIALECTS[dialect].title}{second}"
        lines.append([name, *(_counts(row[what]) for what in ratios.columns)])
    head = ["kernel", *(f"{space} {traffic.TITLES[space, kind]}" for space, kind in ratios.columns)]
    differing = Table.of(head, lines).to_markdown() if lines else ""
    caption = f"{store.caption(frame[frame['view'] == HARDWARE], published)}."
    return "\n\n".join(filter(None, [said, differing, caption]))


def _counts(cell: pd.Series) -> str:
    """What was counted, and what was predicted where that is something else."""
    if pd.isna(cell["ratio"]):
        return "–"
    predicted = "" if cell["ratio"] == 1 else f" ({format_fixed(cell['predicted'])} predicted)"
    return f"{format_fixed(cell['counted'])}{predicted}"


def describe(frame: pd.DataFrame) -> Iterator[str]:
    """Yields the sentences about the result; none where the rows say nothing."""
    rows = traffic.best_view(frame[frame["status"] == PASS])
    rows = rows[(rows["dialect"] == BY_HAND) & (rows["math"] == "fp32")]
    loads = rows[(rows["space"] == "global") & (rows["kind"] == "load")]
    if loads.empty:
        return
    sectors = (loads["sectors"] / loads["requests"]).groupby(loads["stage"]).max().head(2)
    each = [f"{of:.3g} sectors in `{stage[:3]}`" for stage, of in sectors.items()]
    yield f"In {dialect_title(BY_HAND)}, the dearest load of a warp asks for {join_words(each)}"
    shared = rows[(rows["space"] == "shared") & (rows["ideal"] > 0)]
    if len(shared):
        kernels = [shared["stage"].str[:3], shared["variant"].where(shared["variant"] != DEFAULT_VARIANT, "")]
        worst = (shared["wavefronts"] / shared["ideal"]).groupby(kernels, sort=False).max().sort_values()[::-1]
        each = [f"{format_number(of)} times in `{' '.join(kernel).strip()}`" for kernel, of in worst.head(3).items()]
        yield f"Bank conflicts multiply the wavefronts of an access to shared memory at most {join_words(each)}"
        yield f"{(worst == 1).sum()} of {len(worst)} kernels have none"
    both = traffic.confirmed(frame)
    if len(both):
        ratios = both.xs("ratio", axis=1, level=1)
        exact = int((ratios.isna() | (ratios == 1)).all(axis=1).sum())
        yield f"The GPU's own counters agree in every count at {exact} of {len(both)} launches"
