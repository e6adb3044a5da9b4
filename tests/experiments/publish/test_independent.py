"""README and findings say what the CSVs hold: each number is computed again with pandas alone, from the files' text.

Nothing of the project's own code for frames, classes, verdicts or formats is used, so that a mistake there shows.
"""

from __future__ import annotations

import functools
import json
import math
import re

import numpy as np
import pandas as pd
import pytest

from experiments.records.source_lines import lines_of
from experiments.records.store import PUBLISHED
from tests.imports import ROOT

ITEM_BYTES = {"fp32": 4, "tf32": 4, "fp16": 2, "bf16": 2, "fp8": 1, "fp16x3": 4, "bf16x6": 4}
TITLES = {"cuda": "CUDA", "triton": "Triton", "gluon": "Gluon"}
STUDIES = ("ladder", "tensor_cores", "squares", "shapes")
SIZES = ["m", "n", "k"]
CLASSES = ("squares", "layers", "few rows", "unaligned sizes")


def class_of(row) -> str:
    per_vector = 16 // ITEM_BYTES[row.math]
    if row.n % per_vector or row.k % per_vector:
        return "unaligned sizes"
    if row.m == row.n == row.k:
        return "squares"
    return "few rows" if row.m <= 64 else "layers"


@functools.cache
def comparable_rows() -> pd.DataFrame:
    """The rows that a mean may hold, with their class; of a problem in several studies those of the first."""
    commits = {key: run["commit"] for key, run in json.loads((PUBLISHED / "environment.json").read_text()).items()}
    found, seen = [], set()
    for study in STUDIES:
        rows = pd.read_csv(PUBLISHED / f"{study}.csv", keep_default_na=False, na_values=[""])
        rows = rows[rows["median_us"].notna()]
        if "b_layout" in rows:
            rows = rows[rows["b_layout"] == np.where(rows["math"] == "fp8", "nk", "kn")]
        for compute, own in rows.groupby("math"):
            own = own[own["run"].map(commits) == commits[own["run"].max()]]
            keys = own[SIZES].apply(tuple, axis=1)
            failed = set(keys[(own["stage"] == "control") & (own["verdict"] != "SAME")])
            if compute == "tf32":
                failed |= set(keys[(own["backend"] == "cublas") & (own["rel_error"] < 1e-5)])
            kernels = own[own["dialect"].notna()]
            complete = set(keys[kernels.index][kernels["stage"] == kernels["stage"].max()])
            good = [key in complete - failed and (compute, key) not in seen for key in keys[kernels.index]]
            found.append(kernels[good])
            seen |= {(compute, key) for key in keys}
    rows = pd.concat(found, ignore_index=True)
    return rows.assign(shape_class=[class_of(row) for row in rows.itertuples()])


def rows_of(compute: str, name: str) -> pd.DataFrame:
    rows = comparable_rows()
    return rows[(rows["math"] == compute) & (rows["shape_class"] == name)]


def fastest(rows: pd.DataFrame) -> pd.DataFrame:
    return rows.loc[rows.groupby([*SIZES, "dialect"])["median_us"].idxmin()].set_index(SIZES)


def mean(shares: pd.Series) -> float:
    return math.exp(np.log(shares).mean())


def verdict(old, new) -> str:
    """As docs/method.md defines it for two kernels of one run."""
    if old["run"] != new["run"]:
        return "UNSURE"
    ratio = new["vs_cublas"] / old["vs_cublas"]
    down = math.hypot(
        math.log(new["vs_cublas"] / new["vs_cublas_low"]), math.log(old["vs_cublas_high"] / old["vs_cublas"])
    )
    up = math.hypot(
        math.log(new["vs_cublas_high"] / new["vs_cublas"]), math.log(old["vs_cublas"] / old["vs_cublas_low"])
    )
    margin = max(0.02, 0.5 / min(old["median_us"], new["median_us"]))
    low, high = ratio * math.exp(-down), ratio * math.exp(up)
    if 1 - margin <= low and high <= 1 + margin:
        return "SAME"
    return "FASTER" if low > 1 else "SLOWER" if high < 1 else "UNSURE"


def keeps_up(rows: pd.DataFrame, beside: pd.DataFrame) -> bool:
    level = [verdict(beside.loc[key], rows.loc[key]) in ("SAME", "FASTER") for key in rows.index]
    others = beside.loc[list(rows.index)]
    return 2 * sum(level) >= len(level) and mean(rows["vs_cublas"]) >= 0.95 * mean(others["vs_cublas"])


def take(rows: pd.DataFrame) -> str:
    """What the rule gives for the rows of one compute type and class, or of one problem."""
    best = {name: fastest(rows[rows["dialect"] == name]) for name in TITLES}
    top = max(best, key=lambda name: mean(best[name]["vs_cublas"]))
    top = top if top == "cuda" or keeps_up(best[top], best["cuda"]) else "cuda"
    own = best[top]
    if len(own) > 1 and 2 * (own["verdict"] == "SLOWER").sum() > len(own) and mean(own["vs_cublas"]) < 0.95:
        return "cuBLAS SGEMM" if rows["math"].iloc[0] in ("fp16x3", "bf16x6") else "cuBLAS"

    def lines(name: str) -> int:
        rungs = {stage: fastest(of) for stage, of in rows[rows["dialect"] == name].groupby("stage")}
        whole = {stage: of for stage, of in rungs.items() if len(of) == len(best[name])}
        able = [stage for stage, of in whole.items() if keeps_up(of, own)]
        able = able or [stage for stage, of in whole.items() if keeps_up(of, best[name])]
        return min(lines_of(stage, name).lines for stage in able)

    able = [name for name in TITLES if name == top or keeps_up(best[name], own)]
    return TITLES[min(able, key=lines)]


@functools.cache
def take_in(compute: str, name: str) -> str:
    return take(rows_of(compute, name))


def table_of(page: str, head: str) -> list[list[str]]:
    """The cells of the table whose head begins so."""
    lines = (ROOT / page).read_text(encoding="utf-8").splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith(head)) + 2
    end = next(number for number in range(start, len(lines)) if not lines[number].startswith("|"))
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[start:end]]


@pytest.mark.parametrize(("page", "head"), [("README.md", "| mode | squares"), ("README.zh-CN.md", "| 精度 | 方阵")])
def test_every_cell_of_the_first_table(page, head):
    table = table_of(page, head)
    assert [row[0] for row in table] == ["fp32", "tf32", "bf16", "fp8", "fp16x3"]
    for compute, *cells in table:
        for name, cell in zip(CLASSES, cells, strict=True):
            own = fastest(rows_of(compute, name))
            means = " / ".join(f"{100 * mean(own[own['dialect'] == each]['vs_cublas']):.0f}" for each in TITLES)
            assert cell.rstrip("‡") == f"**{take_in(compute, name)}** {means}%", (compute, name)


def test_every_cell_of_the_classes_in_the_findings():
    table = table_of("docs/findings.md", "| mode | class | problems")
    assert len(table) == len(ITEM_BYTES) * len(CLASSES)
    for compute, name, count, taken, *cells in table:
        rows = rows_of(compute, name.rstrip("‡"))
        assert int(count) == len(rows[SIZES].drop_duplicates()) and taken == take_in(compute, name.rstrip("‡"))
        for dialect, cell in zip(TITLES, cells, strict=True):
            own = fastest(rows[rows["dialect"] == dialect])
            shares, worst = own["vs_cublas"], own["vs_cublas"].idxmin()
            numbers = [float(each) for each in re.findall(r"([\d.]+)%", cell)]
            wanted = [100 * each for each in (mean(shares), shares.median(), shares.min())]
            assert numbers == pytest.approx(wanted, rel=6e-3), (compute, name, dialect)
            assert " x ".join(map(str, worst)) in cell
            wins = [(own["verdict"] == word).sum() for word in ("FASTER", "SLOWER")]
            assert f"{wins[0]} faster, {wins[1]} slower" in cell


def test_the_sentence_says_what_the_rule_gives():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    (sentence,) = re.findall(r"^\*\*(For squares.*?)\*\*", text, re.M)
    parts = {name: part for part in sentence.split("; ") for name in CLASSES if name in part}
    assert set(parts) == set(CLASSES)
    for name, part in parts.items():
        title, named = r"([A-Z]\w+|cuBLAS SGEMM)", r"((?:[^;,)]|, (?=[a-z]+\d))*)"
        first, *others = re.findall(rf"take {title}|(?:\(|, ){title} in {named}", part)
        exceptions = {each: title for _, title, named in others for each in re.findall(r"\w+", named) if each != "and"}
        for compute in ITEM_BYTES:
            assert exceptions.get(compute, first[0]) == take_in(compute, name), (name, compute)


def at_4096(study: str, compute: str, layout: str = "") -> pd.DataFrame:
    rows = pd.read_csv(PUBLISHED / f"{study}.csv", keep_default_na=False, na_values=[""])
    rows = rows[(rows["math"] == compute) & (rows["m"] == 4096) & rows["median_us"].notna()]
    return rows[rows["b_layout"] == layout] if layout else rows


@pytest.mark.parametrize("page", ["README.md", "README.zh-CN.md"])
def test_the_share_of_every_rung(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    for stage, compute, cells in re.findall(r"^\| \[`(s\d\d_\w+)`\].*? \| (\w+) \| (.*) \|$", text, re.M):
        rows = at_4096("ladder", compute) if compute == "fp32" else at_4096("tensor_cores", compute, "kn")
        for dialect, cell in zip(TITLES, cells.split(" | "), strict=True):
            own = rows[(rows["stage"] == stage) & (rows["dialect"] == dialect)]
            share = re.match(r"([\d.]+)%", cell)
            assert bool(len(own)) == bool(share), (stage, dialect)
            if share:
                assert float(share[1]) == pytest.approx(100 * own["vs_cublas"].loc[own["median_us"].idxmin()], rel=6e-3)


def test_what_to_take_at_4096():
    for problem, _, *cells, _ in table_of("docs/findings.md", "| M = N = K | cuBLAS, TFLOP/s | CUDA"):
        compute = problem.split()[0]
        layout = "nk" if "column-major" in problem else "kn"
        rows = at_4096("ladder", compute) if compute == "fp32" else at_4096("tensor_cores", compute, layout)
        bold = [TITLES[name] for name, cell in zip(TITLES, cells, strict=True) if "**" in cell]
        assert bold == [take(rows[rows["dialect"].notna()])], problem
        for dialect, cell in zip(TITLES, cells, strict=True):
            share, rung = re.match(r"\**([\d.]+)%\** `(s\d\d)`", cell).groups()
            own = rows[(rows["dialect"] == dialect) & rows["stage"].str.startswith(rung)]
            assert float(share) == pytest.approx(100 * own.loc[own["median_us"].idxmin(), "vs_cublas"], rel=6e-3)
