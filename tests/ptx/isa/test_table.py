"""The table of opcodes is whole: each has a test and says what it does, and what is not in it is named."""

import importlib
from pathlib import Path
from types import ModuleType

import pytest

from gemm_ref.ptx.isa.table import OPCODES, SECTIONS
from tests.ptx.harness import COVERED


def _module(name: str) -> ModuleType:
    return importlib.import_module(f"tests.ptx.isa.{name}")


def test_every_opcode_of_the_table_has_a_test():
    for path in Path(__file__).parents[1].rglob("test_*.py"):
        importlib.import_module(f"tests.ptx.{path.parent.name}.{path.stem}")
    cases = [case for name in ("test_floats", "test_integers") for case in _module(name).CASES]
    opcodes = {case.opcode for case in cases} | set(COVERED)
    assert opcodes == set(OPCODES)


def test_every_opcode_is_in_the_table_once():
    listed = [opcode for rows in SECTIONS.values() for row in rows for opcode in row.opcodes]
    assert len(listed) == len(set(listed)) == len(OPCODES)


@pytest.mark.parametrize("row", [row for rows in SECTIONS.values() for row in rows], ids=lambda row: row.opcodes[0])
def test_a_builder_says_what_its_opcodes_do(row):
    assert row.build.__doc__, f"the builder of {row.opcodes} has no docstring"
