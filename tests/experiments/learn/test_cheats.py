"""Files that look for a good grade in other ways than by reaching the goals: cheats.txt has them.

Each is the solution of an exercise (@) in which lines, or parts of one, are replaced (-) by others (+), and misses the
goal that is named (>), or is refused.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from experiments.learn import course
from tests.messages import Block, read_blocks


@pytest.mark.parametrize("cheat", read_blocks(Path(__file__).with_name("cheats.txt")), ids=lambda cheat: cheat.title)
def test_a_cheat_fails(grade, cheat: Block):
    exercise = course.find(*cheat.lines[0].removeprefix("@ ").split())
    text = exercise.solution
    for changed in re.findall(r"((?:- .*\n)+)((?:\+ .*\n)+)", "".join(f"{line}\n" for line in cheat.lines[1:])):
        old, new = (re.sub("^[-+] ", "", lines.rstrip("\n"), flags=re.MULTILINE) for lines in changed)
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    found = grade(exercise, text)
    print(found)
    assert not found.passed
    missed = "refused" if found.refusal else found.first_failing.goal if found.first_failing else ""
    assert [missed] == cheat.expected, found.results
