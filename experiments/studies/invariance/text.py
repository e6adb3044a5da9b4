"""The block of docs/invariance.md: which rungs are batch-invariant, and what that costs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pandas as pd

import gemm_ref
from experiments.publish.numbers import format_number, format_percent, format_percent_range
from experiments.publish.table import Table
from experiments.publish.wording import NOT_MEASURED, dialect_title, join_words
from experiments.records import frames, store
from experiments.records.contenders import BATCH_INVARIANT
from experiments.records.controls import Controls, explained
from gemm_ref import DIALECTS

MANY_ROWS = 128  # rows from which on a tile of C is full
BLOCKS = {"invariance": "invariance.md"}  # block -> the page of docs/ that has it


def block(name: str, published: Path) -> str:
    """The table of rungs from the registry, and the shares of cuBLAS on the first card that has them."""
    cards = (published, *store.published(published.parent))
    measured = [card for card in cards if len(store.read(card, "invariance"))]
    return f"{_rungs()}\n\n{_shares(measured[0]) if measured else NOT_MEASURED}"


def _rungs() -> str:
    lines = [
        [f"`{rung.id}`", ", ".join(rung.maths), *(_answer(rung, dialect) for dialect in DIALECTS)]
        for rung in gemm_ref.STAGES.values()
    ]
    titles = [dialect.title for dialect in DIALECTS.values()]
    return Table.of(["rung", "compute types", *titles], lines, 2 + len(titles)).to_markdown()


def _answer(rung: gemm_ref.Rung, dialect: str) -> str:
    return rung.batch_invariance(dialect) if dialect in rung.dialects else "–"


def _shares(published: Path) -> str:
    frame = frames.timed(store.read(published, "invariance"), "bf16")
    rows = frames.rungs(frame)
    rows = rows[rows["variant"] == BATCH_INVARIANT]
    controls, lines = Controls(frame), []
    cublas = frame[frame["backend"] == "cublas"].set_index(["m", "n", "k"])["median_us"]
    for (n, k, m), own in rows.groupby(["n", "k", "m"]):
        shares = own.set_index("dialect")["vs_cublas"]
        cells = [format_percent(shares[dialect]) if dialect in shares else "–" for dialect in DIALECTS]
        size = f"{m} × {n} × {k}{controls.mark(m=m, n=n, k=k)}"
        lines.append([size, f"{format_number(cublas[m, n, k])} µs", *cells])
    head = ["M × N × K", "cuBLAS", *(dialect.title for dialect in DIALECTS.values())]
    table = Table.of(head, lines).to_markdown()
    said = "Time of cuBLAS in bf16, and the share of its speed that the last rung has with `batch_invariant=True`."
    return f"{table}\n\n{said} {explained(store.caption(frame, published), table)}."


def describe(frame: pd.DataFrame) -> Iterator[str]:
    """Yields the sentences about the result; none where the rows say nothing."""
    rungs = frames.rungs(frame.dropna(subset="vs_cublas"))
    asked = rungs[rungs["variant"] == BATCH_INVARIANT]
    for few, rows in ((True, asked[asked["m"] < MANY_ROWS]), (False, asked[asked["m"] >= MANY_ROWS])):
        if rows.empty:
            continue
        each = [
            f"{format_percent_range(own.min(), own.max())} in {dialect_title(str(dialect))}"
            for dialect, own in rows.groupby("dialect", sort=False)["vs_cublas"]
        ]
        where = f"below {MANY_ROWS} rows" if few else f"from {MANY_ROWS} rows on"
        yield f"With equal bits for any number of rows the last rung has {join_words(each)} of cuBLAS {where}"
    keys = ["dialect", "math", "m", "n", "k", "stage"]
    both = asked.merge(rungs[rungs["variant"] != BATCH_INVARIANT], on=keys, suffixes=("", "_free"))
    if len(both):
        price = 1 - (both["vs_cublas"] / both["vs_cublas_free"]).median()
        yield f"In the median that costs {format_percent(max(price, 0.0), 1)} of the default choice's speed"
