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

from gemm_ref.ptx.core.events import Access as Access
from gemm_ref.ptx.core.events import BulkAccess as BulkAccess
from gemm_ref.ptx.core.events import Observer as Observer
from gemm_ref.ptx.core.events import Synchronisation as Synchronisation
from gemm_ref.ptx.core.events import first_block as first_block
from gemm_ref.ptx.core.events import some_blocks as some_blocks
from gemm_ref.ptx.core.events import watched as watched
from gemm_ref.ptx.core.machine import DecodedKernel as DecodedKernel
from gemm_ref.ptx.count.counter import Counter as Counter
from gemm_ref.ptx.count.counts import Count as Count
from gemm_ref.ptx.detect.detectors import Detectors as Detectors
from gemm_ref.ptx.detect.finding import Finding as Finding
from gemm_ref.ptx.program import Pointers as Pointers
from gemm_ref.ptx.program import Struct as Struct
from gemm_ref.ptx.program import argument_bytes as argument_bytes
from gemm_ref.ptx.program import entries as entries
from gemm_ref.ptx.program import is_called as is_called
from gemm_ref.ptx.program import load as load
from gemm_ref.ptx.program import run as run
from gemm_ref.ptx.text.errors import AssertFailed as AssertFailed
from gemm_ref.ptx.text.errors import AsyncFault as AsyncFault
from gemm_ref.ptx.text.errors import BarrierFault as BarrierFault
from gemm_ref.ptx.text.errors import EndlessLoop as EndlessLoop
from gemm_ref.ptx.text.errors import KernelTrap as KernelTrap
from gemm_ref.ptx.text.errors import LaunchFault as LaunchFault
from gemm_ref.ptx.text.errors import LeftOver as LeftOver
from gemm_ref.ptx.text.errors import MemoryFault as MemoryFault
from gemm_ref.ptx.text.errors import ParseError as ParseError
from gemm_ref.ptx.text.errors import PtxError as PtxError
from gemm_ref.ptx.text.errors import UndefinedRegister as UndefinedRegister
from gemm_ref.ptx.text.errors import Unsupported as Unsupported
from gemm_ref.ptx.text.errors import WarpFault as WarpFault
from gemm_ref.ptx.text.parser import MAP_BYTES as MAP_BYTES
from gemm_ref.ptx.units.tensor_map import TensorMap as TensorMap
