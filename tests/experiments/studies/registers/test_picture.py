"""The pictures and tables of `registers`, from made-up rows: a bank's loops and one rung in two forms."""

from __future__ import annotations

from dataclasses import replace

import pytest

from experiments.records import store
from experiments.records.rows import COLD
from experiments.studies.registers import table as register_tables
from experiments.studies.registers.row import RegisterRow
from tests.experiments.fixtures import ENVIRONMENT

LOOP = RegisterRow(
    experiment="registers",
    stage="FFMA",
    variant="even even even",
    backend="cuda",
    form="parities",
    warps=1,
    predicted=3.0,
    clocks=3.25,
    clocks_low=3.2,
    clocks_high=3.3,
)
RUNG = replace(
    LOOP,
    stage="s09_conflict_free",
    variant="one_block",
    dialect="cuda",
    math="fp32",
    dtype="float32",
    m=4096,
    n=4096,
    k=4096,
    mode=COLD,
    median_us=4000.0,
    vs_cublas=0.625,
    form="as it is",
    warps=2,
    registers=129,
    predicted=1.35,
    clocks=2.125,
)
CUBLAS = replace(
    RUNG, stage="cublas", variant="default", backend="cublas", dialect="", form="", warps=None, clocks=1.33
)
ROWS = [
    LOOP,
    replace(LOOP, warps=2, clocks=3.05),
    *(replace(LOOP, form="residues", variant=f"{a} {b} 0", clocks=2.05) for a in range(8) for b in range(8)),
    *(replace(LOOP, form=form, variant=str(2**n), clocks=1.5) for form in ("alternating", "resting") for n in range(3)),
    replace(LOOP, form="reuse", variant="a; b and c of two banks", predicted=1.0, clocks=1.0625),
    RUNG,
    replace(RUNG, form="freed", registers=128, clocks=2.0),
    replace(RUNG, form="freed", registers=128, warps=4, clocks=1.625, vs_cublas=0.8125),
    CUBLAS,
]


@pytest.fixture
def data(tmp_path):
    store.save(tmp_path, "registers", ROWS, ENVIRONMENT)
    return tmp_path


def test_each_kind_of_rows_has_its_picture(draw_pictures):
    assert draw_pictures("registers", ROWS[:1]).keys() == {"registers_banks"}
    found = draw_pictures("registers", ROWS)
    assert found.keys() == {"registers_banks", "registers_rungs"}
    text = found["registers_rungs"]
    assert "s09 conflict free · one_block" in text and "2 warps a scheduler" in text and "4 warps a scheduler" in text


def test_tables(data, tmp_path):
    loops = register_tables.block(register_tables.LOOPS, data)
    assert "| FFMA | even even even | 3.00 | 3.25 | 3.05 |" in loops and "residues" not in loops
    rungs = register_tables.block("registers-s09", data)
    assert "| one_block | as it is | 129 | 1.35 | 2.12 (62.5%) |  |" in rungs
    assert "| one_block | freed | 128 | 1.35 | 2.00 (62.5%) | 1.62 (81.2%) |" in rungs
    assert "which takes 1.33." in rungs and "M = N = K = 4096" in rungs
    assert register_tables.block("registers-s10", data) == "not measured"
    assert {register_tables.block(name, tmp_path / "none") for name in register_tables.BLOCKS} == {"not measured"}


def test_one_block_beside_two():
    lines = register_tables.block(register_tables.BLOCKS_PER_SM, store.PUBLISHED).splitlines()
    own = {line.split(" | ")[0]: line.strip("| ").split(" | ") for line in lines[2:]}
    assert list(own) == [f"| `{rung}` {title}" for rung in ("s09", "s10") for title in ("CUDA", "Triton", "Gluon")]
    assert [cells[1] for cells in own.values()] == ["1", "1", "2", "1", "1", "1"]  # blocks of `one_block`
    assert all(cells[4] == "2" and float(cells[2]) > 1 < float(cells[5]) for cells in own.values())
