"""The rooms of the house with their lines: `make size` prints them, and fails where a room has more than its ceiling.

Counted are the lines of Python, CUDA, C++, JavaScript, style sheets, templates and TOML that git tracks, without
results. A room is a path or several; the longest path that a file begins with says in which room it is.
"""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
SUFFIXES = {".py", ".cu", ".cuh", ".cpp", ".h", ".js", ".css", ".j2", ".toml"}


class Budget(NamedTuple):
    """The lines of a room: what it may have today, and what it should come down to."""

    ceiling: int  # lowered with every change that makes the room smaller; raised only with a reason in the commit
    goal: int
    paths: tuple[str, ...]


BUDGETS = {
    "cuda_kernels": Budget(7_742, 6_300, ("cuda_kernels/",)),
    "triton_kernels": Budget(4_783, 4_300, ("triton_kernels/",)),
    "gemm_ref without ptx, sass, clock": Budget(7_736, 5_600, ("gemm_ref/",)),
    "gemm_ref/ptx": Budget(10_306, 9_400, ("gemm_ref/ptx/",)),
    "gemm_ref/sass and clock": Budget(3_097, 2_600, ("gemm_ref/sass/", "gemm_ref/clock/")),
    "experiments: bench, records": Budget(4_680, 3_200, ("experiments/bench/", "experiments/records/")),
    "experiments: studies, publish": Budget(14_487, 8_200, ("experiments/studies/", "experiments/publish/")),
    "experiments: explore": Budget(3_226, 2_800, ("experiments/explore/",)),
    "experiments: check": Budget(11_380, 5_500, ("experiments/check/",)),
    "experiments: learn": Budget(1_800, 1_800, ("experiments/learn/",)),
    "experiments: top, cards": Budget(2_548, 1_900, ("experiments/",)),
    "tests": Budget(23_270, 17_500, ("tests/",)),
}


def room_of(path: str) -> str:
    """Returns the room that a file is in; empty for a file of the top folder."""
    places = {place: room for room, budget in BUDGETS.items() for place in budget.paths}
    return max(((place, room) for place, room in places.items() if path.startswith(place)), default=("", ""))[1]


def tracked_files() -> list[str]:
    """Returns the source files that git tracks, by their path from the root."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    sources = (path for path in listed.splitlines() if Path(path).suffix in SUFFIXES and "/results/" not in path)
    return [path for path in sources if (ROOT / path).exists()]


def lines_per_room(paths: Iterable[str]) -> Counter[str]:
    """Returns the lines of each room's files."""
    lines: Counter[str] = Counter()
    for path in paths:
        lines[room_of(path)] += (ROOT / path).read_bytes().count(b"\n")
    return lines


def main() -> int:
    """Prints the table; returns 1 if a room exceeds its ceiling, else 0."""
    lines = lines_per_room(tracked_files())
    print(f"{'lines of':<36}{'now':>8}{'ceiling':>9}{'goal':>8}")
    for room, (ceiling, goal, _) in BUDGETS.items():
        excess = f"  {lines[room] - ceiling:,} too many" if lines[room] > ceiling else ""
        print(f"{room:<36}{lines[room]:>8,}{ceiling:>9,}{goal:>8,}{excess}")
    print(f"{'all':<36}{lines.total():>8,}{'':>9}{sum(budget.goal for budget in BUDGETS.values()):>8,}")
    return int(any(lines[room] > budget.ceiling for room, budget in BUDGETS.items()))


if __name__ == "__main__":
    sys.exit(main())
