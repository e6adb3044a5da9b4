"""What `experiments check` prints of a report."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from experiments.check import progress
from experiments.check.faults import Fault, FaultKind
from experiments.check.messages import Advice, Limit, Note, Unchecked, Why
from experiments.check.report import LineTraffic, Outcome, Report, Run, Traffic, Word
from experiments.check.show import show
from experiments.check.sizes import Need
from gemm_ref import Problem


@pytest.mark.parametrize(
    ("compiled", "said"),
    [
        (None, "8192 requests of 1 wavefront, ideal 2"),
        (Traffic(8192, 4, 1), "8192 requests of 1 wavefront, ideal 2"),
        (
            Traffic(2048, 16, 2),
            "2048 requests of 2 wavefronts, ideal 2 (16 bytes per lane; as written 8192 of 1, 4 bytes per lane)",
        ),
    ],
)
def test_wider_requests_are_told_from_narrow_ones(compiled, said, capsys):
    line = LineTraffic("a.cu", 1, "", "shared", "load", "a", Traffic(8192, 4, 1), compiled, 2)
    show(Report("a", "a.cu", "cuda", "", lines=[line]), Console(width=200))
    assert f" {said}\n" in capsys.readouterr().out


def test_what_a_source_tells_a_terminal_to_do_is_not_passed_on(capsys):
    fault = Fault(FaultKind.RACE, "\x1b]0;title\x07 text", "a.cu", 1, "\x1b[2Ja = 1;\x9b1m")
    show(
        Report("a", "a\x1b[31m.cu", "cuda", "", faults=[fault]), Console(width=200, force_terminal=True, no_color=True)
    )
    printed = capsys.readouterr().out
    assert "\x1b]" not in printed and "\x1b[2J" not in printed and "\x1b[31m" not in printed and "\x9b" not in printed
    assert "[2Ja = 1;" in printed


SIZES = {"whole": (64, 96, 128), "ragged": (35, 37, 39), "odd": (64, 96, 129)}
RIGHT_AND_WRONG = {"whole": "right", "ragged": "wrong"}
REFUSES = "sound: right at the only size run, without a fault; it refuses 1 other"
REFUSED = "refused: it cannot be run here at any size, which says nothing of the kernel"
OUTSIDE = {"whole": "right", "ragged": "refused", "odd": "out of bounds"}


@pytest.mark.parametrize(
    ("outcomes", "needs", "race_at", "headline", "code"),
    [
        ({"whole": "right", "odd": "right"}, {}, "", "sound: right at all 2 sizes run, without a fault", 0),
        ({"whole": "right"}, {}, "", "sound: right at the only size run, without a fault", 0),
        ({"whole": "right", "odd": "refused"}, {}, "", REFUSES, 0),
        ({"whole": "right"}, {}, "whole", "faulty: right in every run, but 1 fault: race", 1),
        ({"whole": "refused"}, {}, "", REFUSED, 2),
        (RIGHT_AND_WRONG, {}, "", "faulty: wrong in 1 of 2 runs", 1),
        (RIGHT_AND_WRONG, {"m": 32, "n": 32}, "ragged", "right for M, N % 32, any K; elsewhere wrong, race", 3),
        (RIGHT_AND_WRONG, {"m": 32}, "ragged", "right for M % 32, any N and K; elsewhere wrong, race", 3),
        (RIGHT_AND_WRONG, {"m": 32}, "whole", "faulty: wrong in 1 of 2 runs, 1 fault: race", 1),
        (RIGHT_AND_WRONG, {"m": 0}, "", "faulty: wrong in 1 of 2 runs", 1),
        (OUTSIDE, {"k": 8}, "", "right for K % 8, any M and N; elsewhere out of bounds", 3),
        (OUTSIDE, {"k": (8, 64)}, "", "right for K % 8 and K >= 64, any M and N; elsewhere out of bounds", 3),
        (OUTSIDE, {"k": (1, 256)}, "", "faulty: wrong in 1 of 2 runs", 1),
        (OUTSIDE, {"m": 64}, "", "faulty: wrong in 1 of 2 runs", 1),
    ],
)
def test_the_verdict_and_its_exit_code(outcomes, needs, race_at, headline, code):
    made = Report("a", "a.cu", "cuda", "")
    for size, outcome in outcomes.items():
        made.add(Run(*SIZES[size], "integers", Outcome(outcome), ""))
    for axis, need in needs.items():
        multiple, least = need if isinstance(need, tuple) else (need, 0)
        made.needs.append(Need(axis, multiple, Problem(1, 1, 1), least))
    if race_at:
        made.faults = [Fault(FaultKind.RACE, "", "a.cu", 1, "", sizes=("x".join(map(str, SIZES[race_at])),))]
    assert (made.headline, made.word.exit_code) == (headline, code)


def test_of_two_runs_at_one_size_the_told_one_stays():
    made = Report("a", "a.cu", "cuda", "")
    for told, text in ((False, "first"), (True, "second"), (True, "third"), (False, "fourth")):
        made.add(Run(1, 2, 3, "integers", Outcome.RIGHT, text, told))
    assert [verdict.text for verdict in made.verdicts] == ["second"]


def test_what_takes_long_says_what_it_does(monkeypatch):
    monkeypatch.setattr(progress, "_FIRST_S", 0.0)
    console = Console(file=io.StringIO(), width=40)
    with progress.shown(console, lambda: 7.2):
        while not console.file.getvalue():  # type: ignore[attr-defined]
            progress.step("runs [a] kernel")
    assert console.file.getvalue().startswith("7 s: check ")  # type: ignore[attr-defined]


def test_the_words_of_every_code():
    """The one place of the tests that holds the words: whoever rewords a sentence rewrites its line here."""
    kinds = (Word, Outcome, FaultKind, Note, Why, Limit, Advice, Unchecked)
    words = "".join(f"{kind.__name__}.{code.name}: {code}\n" for kind in kinds for code in kind)
    assert words == (Path(__file__).parent / "words.txt").read_text(encoding="utf-8")
