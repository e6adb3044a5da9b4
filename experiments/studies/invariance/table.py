"""The block of docs/invariance.md: which rungs are batch-invariant, and what that costs."""

from __future__ import annotations

from pathlib import Path

import gemm_ref
from experiments.publish.numbers import format_number, format_percent
from experiments.publish.table import Table
from experiments.publish.wording import NOT_MEASURED
from experiments.records import frames, store
from experiments.records.contenders import BATCH_INVARIANT
from experiments.records.controls import Controls, explained
from gemm_ref import DIALECTS

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
