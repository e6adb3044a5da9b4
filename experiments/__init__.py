"""Experiments on the ladder: one file, one question. Measure -> CSV -> plot are separate steps.

`python -m experiments --help` is the menu; `experiments/results/<device>/` holds what was measured.
"""

import time

_START_S = time.perf_counter()  # the first line of the package that a command executes


def seconds_since_start() -> float:
    """Returns how long this process has run, from the import of the package on."""
    return time.perf_counter() - _START_S
