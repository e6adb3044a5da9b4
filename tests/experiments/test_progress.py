"""What a command says of how far it is: bars on a terminal, and lines elsewhere."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from experiments.progress import Bars
from experiments.records import time_left
from gemm_ref import build


@pytest.mark.parametrize(
    ("is_terminal", "part", "said", "unsaid"),
    [
        (True, "cost", ("compiling", "1/2", "3:05 left in all", "s01"), "cost"),
        (False, "cost", ("cost: compiling 2, 3:05 left in all\n",), "1/2"),
        (False, "", (), "compiling"),
    ],
)
def test_a_step_is_a_bar_or_a_line(is_terminal, part, said, unsaid):
    file = io.StringIO()
    console = Console(file=file, force_terminal=is_terminal, width=150)
    with Bars(console, part, lambda: "3:05 left in all") as bars:
        bars.begin("compiling", 2)
        bars.done()
        bars.doing("s01")
    assert all(text in file.getvalue() for text in said) and unsaid not in file.getvalue()


def test_the_time_left_follows_the_last_run_and_the_pace_of_this_one(tmp_path, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(build, "CACHE", tmp_path)
    monkeypatch.setattr(time_left.time, "monotonic", lambda: now[0])
    parts = {"cost": 60.0, "memory": 30.0, "ladder": 10.0}

    def run(cost_s: float, is_typical: bool) -> list[str]:
        left = time_left.TimeLeft("run", parts)
        said = [left.describe()]
        left.begin("cost")
        now[0] += 15
        said.append(left.describe())
        now[0] += cost_s - 15
        left.end(is_typical)
        left.save()
        return [*said, left.describe()]

    assert run(120, is_typical=True) == ["1:40 left in all", "1:25 left in all", "1:20 left in all"]
    assert run(60, is_typical=False) == ["2:40 left in all", "2:25 left in all", ""]
    assert run(120, is_typical=True)[0] == "2:40 left in all"
    parts["choice"] = 0.0  # of which nothing is known
    assert run(120, is_typical=True) == ["", "", ""]
