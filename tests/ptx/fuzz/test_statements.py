"""Some random statements, as g++ computes them; `python -m tests.ptx.fuzz.statements` runs 10,000."""

from __future__ import annotations

import pytest

from tests.ptx.fuzz.statements import differences


@pytest.mark.parametrize("fmad", [False, True])
def test_statements_are_what_the_cpu_makes_of_them(fmad):
    assert list(differences(100, 19 + fmad, fmad)) == []
