"""The table of opcodes is complete: each opcode is in it once, has a test, and says what it does."""

import re
from pathlib import Path

from gemm_ref.ptx.isa.table import OPCODES, SECTIONS
from tests.ptx.isa import test_floats, test_integers

ROWS = [row for rows in SECTIONS.values() for row in rows]
OTHERS = {"match", "isspacep", "movmatrix", "call", "subc"}  # in features.cu; and a name that its test puts together


def test_every_opcode_of_the_table_has_a_test():
    """In a table of cases, or in a kernel's text such as `bar.sync 0;`."""
    listed = {case.opcode for case in (*test_floats.CASES, *test_integers.CASES)}
    files = [*Path(__file__).parents[1].rglob("test_*.py"), Path(__file__).parents[1] / "core" / "programs.txt"]
    text = "\n".join(path.read_text(encoding="utf-8") for path in files if path != Path(__file__))
    written = {opcode for opcode in OPCODES if re.search(rf"(?<![\w.%]){opcode}(\.[\w{{]|\{{|;| [%\[{{\d])", text)}
    assert listed | written | OTHERS == set(OPCODES)


def test_every_opcode_is_in_the_table_once_and_its_builder_has_a_docstring():
    listed = [opcode for row in ROWS for opcode in row.opcodes]
    assert len(listed) == len(set(listed)) == len(OPCODES)
    assert [row.opcodes for row in ROWS if not row.build.__doc__] == []
