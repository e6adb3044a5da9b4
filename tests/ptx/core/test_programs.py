"""Short programs of PTX (programs.txt), each with the result of thread t as an expression in t.

The result is in %r1, or in %r9 for mbarriers and clusters; it starts as 0, and 99 means that the thread stored nothing.
A program runs in 64 threads unless its title says otherwise, and for clusters in two blocks. The programs of halves
compute (1 + 2^-10)^2 - (1 + 2^-9), which is 2^-20, and 0 if the square is rounded; ptxas for sm_90 does the same.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.messages import read_blocks
from tests.ptx.harness import run_lanes
from tests.ptx.units import test_cluster

FILE = Path(__file__).with_name("programs.txt")
MBARRIER = ".shared .align 8 .b64 bar[4]; mov.u32 %r1, bar; mov.u32 %r9, 0;"


def init(count: int) -> str:
    return f"@%p1 mbarrier.init.shared::cta.b64 [%r1], {count}; bar.sync 0;"


def has_ended(parity: int, number: int) -> str:
    """Sets bit `number` of %r9 if the phase has ended; if not, the threads wait until no other thread can run."""
    test = f"mbarrier.test_wait.parity.shared::cta.b64 %p2, [%r1], {parity};"
    return f"{test} selp.u32 %r8, {1 << number}, 0, %p2; or.b32 %r9, %r9, %r8;"


def begin_copies() -> str:
    """Stores 257 t for thread t in global memory, at %rd1, and 7 in shared memory, at %r3."""
    shared = ".shared .align 4 .b8 room[256]; mov.u32 %r3, room; mad.lo.u32 %r3, %r0, 4, %r3; st.shared.u32 [%r3], 7;"
    return f"{shared} mul.lo.u32 %r4, %r0, 257; st.global.u32 [%rd1], %r4;"


WORDS = {"init": init, "has_ended": has_ended, "meet": lambda: test_cluster.MEET, "begin_copies": begin_copies}


def run(area: str, text: list[str], threads: int = 64) -> list[int]:
    """Returns the result of each thread; a line is PTX, or a word of WORDS with its arguments."""
    lines = []
    for line in text:
        name, *numbers = line.split()
        lines.append(WORDS[name](*map(int, numbers)) if name in WORDS else line)
    if area == "clusters":
        lines = ["mov.u32 %r9, 0;", *lines, "st.global.u32 [%rd1], %r9;"]
        return test_cluster.results("\n".join(lines), (2, 1, 1), (2, 1, 1), threads)
    register = "%r9" if area == "mbarriers" else "%r1"
    begin = MBARRIER if area == "mbarriers" else "mov.u32 %r1, 0;"
    return run_lanes("\n".join([begin, *lines, f"st.global.u32 [%rd1], {register};"]), threads, filled=99)


@pytest.mark.parametrize("program", read_blocks(FILE), ids=lambda program: program.title)
def test_a_program_computes_what_it_should(program):
    area, _, about = program.title.partition(": ")
    threads = int(about.rpartition(": ")[2].removesuffix(" threads")) if about.endswith(" threads") else 64
    every = range(threads * (1 + (area == "clusters")))
    assert run(area, program.lines, threads) == [eval(program.expected[0], {"t": t}) for t in every]
