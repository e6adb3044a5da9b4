"""What each thread of a block touches: traces of kernels on the reference GPU, as data.

`gather_traces` makes them; `record` defines the fields of one.
"""

from experiments.explore.traces.collection import TraceSet, gather_traces
from experiments.explore.traces.record import Trace

__all__ = ["TraceSet", "Trace", "gather_traces"]
