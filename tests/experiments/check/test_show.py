"""What `experiments check` prints of a report."""

from __future__ import annotations

import pytest
from rich.console import Console

from experiments.check.report import Asked, Line, Report
from experiments.check.show import show


@pytest.mark.parametrize(
    ("compiled", "said"),
    [
        (None, "8192 requests of 1 wavefront, ideal 2"),
        (Asked(8192, 4, 1), "8192 requests of 1 wavefront, ideal 2"),
        (
            Asked(2048, 16, 2),
            "2048 requests of 2 wavefronts, ideal 2 (16 bytes per lane; as written 8192 of 1, 4 bytes per lane)",
        ),
    ],
)
def test_wider_requests_are_told_from_narrow_ones(compiled, said, capsys):
    line = Line("a.cu", 1, "", "shared", "load", "a", Asked(8192, 4, 1), compiled, 2)
    show(Report("a", "a.cu", "cuda", "", lines=[line]), Console(width=200))
    assert f" {said}\n" in capsys.readouterr().out
