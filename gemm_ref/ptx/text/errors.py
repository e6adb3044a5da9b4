"""What can go wrong on the reference GPU, each with the place in the kernel's source."""

from __future__ import annotations


class PtxError(Exception):
    """Any fault of the reference GPU; the message names the source line and the instruction."""


class ParseError(PtxError):
    """The text is not PTX that the reference GPU reads."""


class Unsupported(PtxError):
    """An instruction, or a form of one, that the reference GPU does not have."""


class MemoryFault(PtxError):
    """An access outside every tensor or memory block, or a misaligned one."""


class LaunchFault(PtxError):
    """A launch that a GPU refuses."""


class BarrierFault(PtxError):
    """Threads wait at a barrier that the others of their block never reach."""


class WarpFault(PtxError):
    """A warp's instruction without all the lanes that it needs, or by a lane that it does not name."""


class EndlessLoop(PtxError):
    """The kernel was still running when its allowance of instructions was used up."""


class KernelTrap(PtxError):
    """The kernel executed `trap`."""


class AssertFailed(KernelTrap):
    """An `assert` in the kernel does not hold."""


class UndefinedRegister(PtxError):
    """A register was read that no instruction had written."""


class AsyncFault(PtxError):
    """An asynchronous unit (mbarrier, bulk copy, wgmma, cluster) used against the rules of its instructions."""


class LeftOver(PtxError):
    """Memory that a kernel leaves other than the next launch counts on."""
