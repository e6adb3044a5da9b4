"""The table of opcodes is complete: each opcode is in it once, has a test, and says what it does."""

import importlib
from pathlib import Path

from gemm_ref.ptx.isa.table import OPCODES, SECTIONS
from tests.ptx.harness import COVERED

ROWS = [row for rows in SECTIONS.values() for row in rows]


def test_every_opcode_of_the_table_has_a_test():
    for path in Path(__file__).parents[1].rglob("test_*.py"):
        importlib.import_module(f"tests.ptx.{path.parent.name}.{path.stem}")
    assert set(OPCODES) == COVERED


def test_every_opcode_is_in_the_table_once_and_its_builder_has_a_docstring():
    listed = [opcode for row in ROWS for opcode in row.opcodes]
    assert len(listed) == len(set(listed)) == len(OPCODES)
    assert [row.opcodes for row in ROWS if not row.build.__doc__] == []
