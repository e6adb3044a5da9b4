"""The reference GPU: runs any kernel's PTX on a CPU, with NumPy, and sees every access.

    kernel = ptx.load(text)
    ptx.run(kernel, Launch(grid=(2, 2, 1), block=(32, 32, 1)), [a, b, c, m, n, k])

It is functional, not a timing model: right results and exact counts, never times. nvcc, Triton and Gluon all end in
PTX, so all of them run here as they were compiled. Observers see every access and barrier; `Detectors` is one that
reports races and other faults which lockstep hides. Hopper's asynchronous units (mbarriers, bulk copies, wgmma,
clusters) do their work as late as they may, so that what does not wait for them shows; a `TensorMap` is the argument
for a CUtensorMap. The instruction set is the one those compilers use for GEMM (`isa.table`, docs/instructions.md); an
instruction that is missing is an error that names it and its source line. Sections of the manual, 'PTX ISA', are quoted
everywhere by the numbers that they have in its version 8.7.

The rooms, each standing on those before it: `text` reads PTX; `core` is the machine, with what it tells observers;
`units` work on their own, later than they are asked to; `isa` is one table of instructions; `program` puts these
together. `detect` and `count` are observers.
"""

from gemm_ref.ptx.core.events import Access, BulkAccess, Observer, Synchronisation, first_block, watched
from gemm_ref.ptx.core.machine import DecodedKernel
from gemm_ref.ptx.count.counter import Counter
from gemm_ref.ptx.count.records import Count
from gemm_ref.ptx.detect.detectors import Detectors
from gemm_ref.ptx.detect.finding import Finding
from gemm_ref.ptx.program import Pointers, Struct, entries, is_called, load, run
from gemm_ref.ptx.text.errors import (
    AssertFailed,
    AsyncFault,
    BarrierFault,
    EndlessLoop,
    KernelTrap,
    LaunchFault,
    LeftOver,
    MemoryFault,
    ParseError,
    PtxError,
    UndefinedRegister,
    Unsupported,
    WarpFault,
)
from gemm_ref.ptx.text.parser import MAP_BYTES
from gemm_ref.ptx.units.tensor_map import TensorMap

__all__ = [
    "Access",
    "AssertFailed",
    "AsyncFault",
    "BarrierFault",
    "BulkAccess",
    "Count",
    "Counter",
    "DecodedKernel",
    "Detectors",
    "EndlessLoop",
    "Finding",
    "KernelTrap",
    "LaunchFault",
    "LeftOver",
    "MAP_BYTES",
    "MemoryFault",
    "Observer",
    "ParseError",
    "PtxError",
    "Pointers",
    "Struct",
    "Synchronisation",
    "TensorMap",
    "UndefinedRegister",
    "Unsupported",
    "WarpFault",
    "entries",
    "first_block",
    "is_called",
    "load",
    "run",
    "watched",
]
