"""The rooms of the house, their lines and budgets: `make size` prints them, and fails where a room exceeds its own.

Counted are the lines of Python, CUDA, C++, JavaScript, style sheets, templates and TOML that git tracks, without
results. A room is a path or several; the longest path that a file begins with says in which room it is.
"""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SUFFIXES = {".py", ".cu", ".cuh", ".cpp", ".h", ".js", ".css", ".j2", ".toml"}

# Room -> (the paths that belong to it, the most lines it may have)
BUDGETS: dict[str, tuple[tuple[str, ...], int]] = {
    "cuda_kernels": (("cuda_kernels/",), 6_300),
    "triton_kernels": (("triton_kernels/",), 4_300),
    "gemm_ref without ptx, sass, clock": (("gemm_ref/",), 5_600),
    "gemm_ref/ptx": (("gemm_ref/ptx/",), 9_400),
    "gemm_ref/sass and clock": (("gemm_ref/sass/", "gemm_ref/clock/"), 2_600),
    "experiments: bench, records": (("experiments/bench/", "experiments/records/"), 3_200),
    "experiments: studies, publish": (("experiments/studies/", "experiments/publish/"), 8_200),
    "experiments: explore": (("experiments/explore/",), 2_800),
    "experiments: check": (("experiments/check/",), 5_500),
    "experiments: learn": (("experiments/learn/",), 1_800),
    "experiments: top, cards": (("experiments/",), 1_900),
    "tests": (("tests/",), 17_500),
}
ALL = 69_100  # lines of all rooms and of what stands in none


def room_of(path: str) -> str:
    """The room that a file is in; empty for a file of the top folder."""
    places = {place: room for room, (paths, _) in BUDGETS.items() for place in paths}
    return max(((place, room) for place, room in places.items() if path.startswith(place)), default=("", ""))[1]


def tracked_files() -> list[str]:
    """The source files that git tracks, by their path from the root."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    sources = (path for path in listed.splitlines() if Path(path).suffix in SUFFIXES and "/results/" not in path)
    return [path for path in sources if (ROOT / path).exists()]


def lines_per_room(paths: Iterable[str]) -> Counter[str]:
    """Room -> the lines of its files."""
    lines: Counter[str] = Counter()
    for path in paths:
        lines[room_of(path)] += (ROOT / path).read_bytes().count(b"\n")
    return lines


def main() -> int:
    """Print the table; 1 where a budget is exceeded, else 0."""
    lines = lines_per_room(tracked_files())
    rows = [(room, lines[room], budget) for room, (_, budget) in BUDGETS.items()]
    rows.append(("all", lines.total(), ALL))
    for room, count, budget in rows:
        excess = f"  {count - budget:,} too many" if count > budget else ""
        print(f"{room:<36}{count:>8,} of {budget:>7,}{excess}")
    return int(any(count > budget for _, count, budget in rows))


if __name__ == "__main__":
    sys.exit(main())
