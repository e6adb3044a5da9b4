"""The README's generated block: the ladder's table from the published data and the registry."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pandas as pd

import gemm_ref
from experiments import environment, results, style
from gemm_ref.build import write_whole
from gemm_ref.stage import DEFAULT_VARIANT, Stage

README = Path(__file__).resolve().parent.parent / "README.md"
BEGIN, END = "<!-- ladder:begin -->", "<!-- ladder:end -->"
LARGEST = 4096  # the size of the table: the largest published cube up to this


class MarkerError(ValueError):
    """The README lacks the markers of the generated block."""


def update(readme: Path, write: bool, published: Path = results.PUBLISHED) -> bool:
    """Whether the block in `readme` differs from what the data and the registry say; rewrites it if `write`.

    Raises MarkerError where the file or its markers are missing.
    """
    old = readme.read_text(encoding="utf-8") if readme.exists() else ""
    if old.count(BEGIN) != 1 or old.count(END) != 1 or old.index(BEGIN) > old.index(END):
        raise MarkerError(f"{readme.name} needs one line {BEGIN} and below it one line {END}: the table goes between")
    block = f"{BEGIN}\n{ladder_block(published)}\n{END}"
    new = re.sub(f"{re.escape(BEGIN)}.*{re.escape(END)}", lambda _: block, old, flags=re.DOTALL)
    if write and new != old:
        write_whole(readme, new)
    return new != old


def ladder_block(published: Path) -> str:
    """Table, caption, and a line for each rung that does not beat the one below it, as Markdown."""
    frame = results.read(published, "ladder")
    timed = frame[frame["median_us"].notna() & (frame["math"] == "fp32")]
    cubes = timed[(timed["m"] == timed["n"]) & (timed["n"] == timed["k"]) & (timed["m"] <= LARGEST)]
    at_size = cubes[cubes["m"] == cubes["m"].max()]
    parts = [_table(at_size)]
    if not at_size.empty:
        size = f"{at_size.iloc[0].m:.0f}"
        runs = results.runs_of(at_size, published)
        parts.append(
            f"TFLOP/s at M = N = K = {size} in fp32, and % of cuBLAS measured in the same rounds. "
            f"{environment.caption(runs)}."
        )
        parts.append("\n".join(_not_faster(at_size)))
    findings = [
        f"- `{stage.id}`: {style.LABELS[dialect]} {finding}"
        for stage in gemm_ref.STAGES.values()
        for dialect, finding in stage.compiler.items()
    ]
    parts.append("What each compiler decided, from its TTGIR, PTX or SASS:\n\n" + "\n".join(findings))
    return "\n\n".join(part for part in parts if part)


def _table(at_size: pd.DataFrame) -> str:
    head = ["rung", "idea", *(style.LABELS[dialect] for dialect in gemm_ref.DIALECTS)]
    lines = [head, ["---", "---", *["---:"] * len(gemm_ref.DIALECTS)]]
    for stage in gemm_ref.STAGES.values():
        for variant in stage.variants:
            name = f"`{stage.id}`" + ("" if variant == DEFAULT_VARIANT else f" {variant}")
            cells = [_cell(stage, variant, dialect, at_size) for dialect in gemm_ref.DIALECTS]
            lines.append([name, stage.idea, *cells])
    reference = at_size[at_size["backend"] == "cublas"]
    if not reference.empty:
        speed = f"{style.number(reference.iloc[0].tflops)} TFLOP/s"
        lines.append(["cuBLAS", "the vendor's library, in IEEE fp32", speed, "", ""])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(stage: Stage, variant: str, dialect: str, at_size: pd.DataFrame) -> str:
    if dialect not in stage.dialects:
        return "no kernel: see below" if dialect in stage.compiler else "no kernel"
    if variant not in stage.variants_in(dialect):
        return "–"
    row = _row(at_size, stage, variant, dialect)
    if row is None:
        return "not measured"
    share = "" if pd.isna(row.vs_cublas) else f" ({style.number(100 * row.vs_cublas)}%)"
    return f"{style.number(row.tflops)}{share}"


def _not_faster(at_size: pd.DataFrame) -> list[str]:
    """A line for each rung and dialect whose median is not below that of the rung under it."""
    lines = []
    rungs = list(gemm_ref.STAGES.values())
    for below, rung in itertools.pairwise(rungs):
        for dialect in gemm_ref.DIALECTS:
            if dialect not in below.dialects or dialect not in rung.dialects:
                continue
            old, new = (_default(at_size, stage, dialect) for stage in (below, rung))
            if old is None or new is None or new.median_us < old.median_us:
                continue
            ratio = style.number(old.median_us / new.median_us)
            lines.append(f"- `{rung.id}` does not beat `{below.id}` in {style.LABELS[dialect]}: {ratio} of its speed.")
    return lines


def _default(at_size: pd.DataFrame, stage: Stage, dialect: str):
    return _row(at_size, stage, stage.find_variant(DEFAULT_VARIANT, dialect), dialect)


def _row(at_size: pd.DataFrame, stage: Stage, variant: str, dialect: str):
    own = at_size[(at_size["stage"] == stage.id) & (at_size["variant"] == variant) & (at_size["dialect"] == dialect)]
    return None if own.empty else own.iloc[0]
