"""What each thread of a block touches: traces of kernels on the reference GPU, as data.

`gather` makes them, `record` says what is in one.
"""

from experiments.explore.traces.gathered import Gathered, gather
from experiments.explore.traces.record import Trace

__all__ = ["Gathered", "Trace", "gather"]
