"""What each thread of a block touches: traces of kernels on the reference GPU, as data.

`gather` makes them, `record` says what is in one.
"""

from experiments.trace.gathered import Gathered, gather
from experiments.trace.record import Trace

__all__ = ["Gathered", "Trace", "gather"]
