"""Every rung, variant, dialect and math mode under the fault detectors: `python -m tests.false_alarms [WORD]`.

All of them are sound, so each finding is a false alarm, or a fault that nobody knew. Some minutes; WORD chooses those
with the word in their name. The tests do the same for the rungs on tensor cores.
"""

from __future__ import annotations

import sys
import time

import gemm_ref
from experiments.records.contenders import gemm_of
from gemm_ref import Problem, make_inputs, ptx

# Ragged, with more slices than stages; and whole, for copies in bulk and wide loads.
SIZES = ((131, 70, 139), (128, 128, 192))


def main(word: str) -> int:
    """Run them; returns how many have findings."""
    alarms = runs = 0
    for item in gemm_ref.implementations():
        name = f"{item.stage.id} {item.dialect} {item.variant} {item.math}"
        if word not in name:
            continue
        start, found = time.perf_counter(), []
        for sizes in SIZES:
            a, b = make_inputs(Problem(*sizes, item.math), "integers", seed=1)
            with ptx.watched(detectors := ptx.Detectors()):
                c = gemm_of(item)(a, b)
            gemm_ref.check(c, a, b, math=item.math, exact=gemm_ref.MATHS[item.math].is_exact("integers"))
            found += detectors.findings
            runs += 1
        alarms += bool(found)
        said = "; ".join(f"{each.kind}: {each}" for each in found) or "nothing"
        print(f"{time.perf_counter() - start:5.1f} s  {name}: {said}", flush=True)
    print(f"{alarms} with findings, in {runs} runs")
    return alarms


if __name__ == "__main__":
    sys.exit(bool(main(*sys.argv[1:] or [""])))
