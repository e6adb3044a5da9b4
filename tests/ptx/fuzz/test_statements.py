"""Some random statements, as g++ computes them; `python -m tests.ptx.fuzz.statements` runs 10,000."""

from tests.ptx.fuzz.statements import differences


def test_statements_are_what_the_cpu_makes_of_them():
    assert list(differences(100, 19)) == []
