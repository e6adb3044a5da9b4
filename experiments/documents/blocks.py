"""The generated blocks of the README and of docs/, and whole pages, from the published data and the registry.

A block stands between `<!-- NAME:begin -->` and `<!-- NAME:end -->`: `ladder` is the whole table, `deep` the speed at
a small C with a deep K, and a rung's id its own numbers (in fp32) and what the compilers decided; what README has is
written by `readme`, and other tables by `instruction_tables`, `memory_tables` and `tensor_tables` of this package.
"""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pandas as pd

import gemm_ref
from experiments.documents import (
    cost,
    findings,
    instruction_tables,
    instructions,
    markdown,
    memory_tables,
    readme,
    tensor_tables,
)
from experiments.plots.look import style
from experiments.records import environment, frames, stats, store, workloads
from experiments.records.controls import Controls, explained
from experiments.records.request import UsageError
from gemm_ref import DIALECTS
from gemm_ref.baselines import BASELINES
from gemm_ref.build import CHECKOUT, write_whole
from gemm_ref.stage import DEFAULT_VARIANT, Stage

ROOT = Path(__file__).resolve().parents[2]


def _rungs_of(page: str) -> list[str]:
    """The rungs whose section is on one page of docs/."""
    return [stage.id for stage in gemm_ref.STAGES.values() if markdown.page(stage) == page]


DOCUMENTS = {  # file -> the blocks that it must have
    ROOT / "README.md": readme.IN["en"],
    ROOT / "README.zh-CN.md": readme.IN["zh"],
    ROOT / "docs" / "ladder.md": ("ladder", "deep", *_rungs_of("ladder.md")),
    ROOT / "docs" / "compilers.md": instruction_tables.BLOCKS,
    ROOT / "docs" / "memory.md": memory_tables.BLOCKS,
    ROOT / "docs" / "tensor_cores.md": (tensor_tables.OVERVIEW, *tensor_tables.PAGE, *_rungs_of("tensor_cores.md")),
}
PAGES = {  # file -> what writes the whole of it from a folder of results
    ROOT / "docs" / "findings.md": findings.render,
    ROOT / "docs" / "cost.md": cost.render,
    ROOT / "docs" / "instructions.md": instructions.render,
}


class MarkerError(UsageError):
    """A document lacks the markers of a generated block."""


def update(document: Path, blocks: tuple[str, ...], write: bool, published: Path = store.PUBLISHED) -> bool:
    """Whether a block in `document` differs from what the data and the registry say; rewrites them if `write`.

    Raises MarkerError where the file or the markers of one of `blocks` are missing.
    """
    old = document.read_text(encoding="utf-8") if document.exists() else ""
    new, frame = old, store.read(published, "ladder")
    for name in blocks:
        begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
        if old.count(begin) != 1 or old.count(end) != 1 or old.index(begin) > old.index(end):
            raise MarkerError(f"{document.name} needs one line {begin} and below it one line {end}: what goes between")
        text = f"{begin}\n{_block(name, frame, published)}\n{end}"
        new = new[: new.index(begin)] + text + new[new.index(end) + len(end) :]
    if write and new != old:
        write_whole(document, new)
    return new != old


def update_page(document: Path, write: bool, published: Path = store.PUBLISHED) -> bool:
    """Whether one of PAGES differs from what the data say; rewrites it if `write`."""
    old = document.read_text(encoding="utf-8") if document.exists() else ""
    new = PAGES[document](published)
    if write and new != old:
        write_whole(document, new)
    return new != old


def stale(write: bool) -> list[Path]:
    """All documents that are not what the published data give; they are rewritten if `write`.

    Raises MarkerError and UsageError as `update` does, and where the documents are not here.
    """
    if CHECKOUT is None:
        raise UsageError("the documents are not part of the installed package: run this in a checkout of the repo")
    changed = [path for path, blocks in DOCUMENTS.items() if update(path, blocks, write)]
    return changed + [path for path in PAGES if update_page(path, write)]


def block(name: str, published: Path) -> str:
    """The Markdown of one block, by name."""
    return _block(name, store.read(published, "ladder"), published)


def _block(name: str, frame: pd.DataFrame, published: Path) -> str:
    for tables in (instruction_tables, memory_tables, readme, tensor_tables):
        if name in tables.BLOCKS:
            return tables.block(name, published)
    at_size = frames.largest_cube(frame)
    if name == "deep":
        return _deep(frames.at(frames.timed(frame), workloads.DEEP))
    if name == "ladder":
        return _ladder(at_size, published)
    stage = gemm_ref.get_stage(name)
    decided = "\n".join(f"- {DIALECTS[dialect].title} {finding}" for dialect, finding in stage.compiler.items())
    numbers = _rung(stage, at_size) if "fp32" in stage.maths else ""
    return "\n\n".join(filter(None, [numbers, decided]))


def _ladder(at_size: pd.DataFrame, published: Path) -> str:
    """Table, caption, and a line for each rung that is not FASTER than the one below it."""
    return "\n\n".join(filter(None, [_table(at_size), _caption(at_size, published), _not_faster(at_size)]))


def _caption(at_size: pd.DataFrame, published: Path) -> str:
    if at_size.empty:
        return ""
    runs = store.runs_of(at_size, published)
    size = f"{at_size.iloc[0].m:.0f}{Controls(at_size).mark()}"
    said = f"TFLOP/s at M = N = K = {size} in fp32, and % of cuBLAS measured in the same rounds."
    return f"{said} {explained(environment.caption(runs), size)}."


def _rung(stage: Stage, at_size: pd.DataFrame) -> str:
    """One rung's variants, each with its speed over the rung below in the same dialect."""
    rungs = gemm_ref.stages_in("fp32")
    place = rungs.index(stage)
    below = rungs[place - 1] if place else None
    against = "TFLOP/s (% of cuBLAS)"
    if below:
        against += f", times `{below.id[:3]}` {markdown.defaults(below)}".rstrip()
    lines = [[against, *(DIALECTS[dialect].title for dialect in DIALECTS)]]
    lines.append(["---", *["---:"] * len(DIALECTS)])
    for variant in stage.variants:
        cells = [_cell(stage, variant, d, at_size) + _gain(below, stage, variant, d, at_size) for d in DIALECTS]
        lines.append([variant, *cells])
    return markdown.table(lines)


def _gain(below: Stage | None, stage: Stage, variant: str, dialect: str, at_size: pd.DataFrame) -> str:
    times = gain(below, stage, variant, dialect, at_size)
    return "" if times is None else f", {style.number(times)}"


def gain(below: Stage | None, stage: Stage, variant: str, dialect: str, at_size: pd.DataFrame) -> float | None:
    """A kernel's `frames.speedup` over the rung `below` in the same dialect; None where one of them is missing."""
    if below is None or dialect not in below.dialects or dialect not in stage.dialects:
        return None
    old, new = default_row(at_size, below, dialect), row_of(at_size, stage, variant, dialect)
    ratio = None if old is None or new is None else frames.speedup(old, new)
    return ratio.median if ratio else None


def _deep(at_size: pd.DataFrame) -> str:
    """The six fastest kernels at one deep problem."""
    if at_size.empty:
        return "not measured"
    rungs = at_size[at_size["dialect"] != ""].sort_values("median_us")
    lines = [["rung", "dialect", "µs", "of cuBLAS", "95% interval"], ["---", "---", "---:", "---:", "---:"]]
    for row in rungs.head(6).itertuples():
        name = markdown.named(row.stage, row.variant)
        interval = f"{row.vs_cublas_low:.3f} to {row.vs_cublas_high:.3f}"
        lines.append([name, DIALECTS[row.dialect].title, f"{row.median_us:.1f}", f"{row.vs_cublas:.3f}", interval])
    reference = at_size[at_size["backend"] == "cublas"].iloc[0]
    size = " x ".join(map(str, workloads.DEEP)) + Controls(at_size).mark()
    said = explained(f"The six fastest at {size}; cuBLAS takes {reference.median_us:.1f} µs", size)
    return f"{markdown.table(lines)}\n\n{said}."


def _table(at_size: pd.DataFrame) -> str:
    head = ["rung", "idea", *(DIALECTS[dialect].title for dialect in DIALECTS)]
    lines = [head, ["---", "---", *["---:"] * len(DIALECTS)]]
    for stage in gemm_ref.stages_in("fp32"):
        for index, variant in enumerate(stage.variants):
            name = markdown.named(stage.id, variant)
            cells = [_cell(stage, variant, dialect, at_size) for dialect in DIALECTS]
            lines.append([name, "" if index else stage.idea, *cells])
    for row in at_size[at_size["backend"] == "cutlass"].itertuples():
        baseline = BASELINES[row.stage]
        lines.append([baseline.title, baseline.idea, _speed(row), "", ""])
    reference = at_size[at_size["backend"] == "cublas"]
    if not reference.empty:
        speed = f"{style.number(reference.iloc[0].tflops)} TFLOP/s"
        lines.append(["cuBLAS", "the vendor's library, in IEEE fp32", speed, "", ""])
    return markdown.table(lines)


def _cell(stage: Stage, variant: str, dialect: str, at_size: pd.DataFrame) -> str:
    if dialect not in stage.dialects:
        return "no kernel: see below" if dialect in stage.compiler else "no kernel"
    if variant not in stage.variants_in(dialect):
        return "–"
    row = row_of(at_size, stage, variant, dialect)
    return "not measured" if row is None else _speed(row)


def _speed(row) -> str:
    """TFLOP/s, and % of cuBLAS where that was measured."""
    share = "" if pd.isna(row.vs_cublas) else f" ({style.number(100 * row.vs_cublas)}%)"
    return f"{style.number(row.tflops)}{share}"


def _not_faster(at_size: pd.DataFrame) -> str:
    """A line for each rung and dialect whose verdict beside the rung under it is not FASTER; default variants."""
    lines = []
    rungs = gemm_ref.stages_in("fp32")
    for below, rung in itertools.pairwise(rungs):
        for dialect in DIALECTS:
            if dialect not in below.dialects or dialect not in rung.dialects:
                continue
            old, new = (default_row(at_size, stage, dialect) for stage in (below, rung))
            if old is None or new is None:
                continue
            verdict, ratio = frames.verdict(old, new), frames.speedup(old, new)
            if verdict == stats.FASTER:
                continue
            said = "is not known to beat" if verdict == stats.UNSURE else "does not beat"
            speed = f"{ratio.median:.3f} ({ratio.low:.3f} to {ratio.high:.3f}) of its speed" if ratio else "no interval"
            who, other = markdown.named(rung.id, new.variant), markdown.named(below.id, old.variant)
            lines.append(f"- {who} {said} {other} in {DIALECTS[dialect].title}: {speed}, {verdict}.")
    if not lines:
        return ""
    return "\n".join(["Rungs that are not faster than the rung below, best variant beside best variant:\n", *lines])


def default_row(at_size: pd.DataFrame, stage: Stage, dialect: str):
    """As `row_of`, for the variant that is the dialect's default."""
    return row_of(at_size, stage, stage.find_variant(DEFAULT_VARIANT, dialect), dialect)


def row_of(at_size: pd.DataFrame, stage: Stage, variant: str, dialect: str):
    """The first row of one kernel, or None."""
    wanted = {"stage": stage.id, "variant": variant, "dialect": dialect}
    own = np.logical_and.reduce([at_size[column].to_numpy() == name for column, name in wanted.items()])
    return at_size.iloc[np.argmax(own)] if own.any() else None
