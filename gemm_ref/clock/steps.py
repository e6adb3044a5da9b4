"""From the machine code on a warp's path, and what its requests take, to the steps of the simulated multiprocessor."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace
from types import MappingProxyType

from gemm_ref.clock.gpu import Gpu
from gemm_ref.clock.machine import TENSOR, Step
from gemm_ref.clock.sample import LINE, Sample, average, average_global
from gemm_ref.launch import cdiv
from gemm_ref.sass.control import COUNTERS
from gemm_ref.sass.listing import Instruction, SassKernel
from gemm_ref.sass.mix import bits
from gemm_ref.sass.ports import bank_reads, loaded

WARP = 32
ALU, IMAD, XU, SHUFFLE = "integer", "multiply", "conversion", "shuffle"  # pipes that take more than a clock
# The pipe of each opcode, and the opcode of gpus.toml whose interval is its own: pairs that were measured together tell
# what shares a pipe (LOP3+PRMT takes 4 clocks, IMAD+IADD3 takes 2).
_PIPES = MappingProxyType(
    {
        **dict.fromkeys(
            "IADD IADD3 VIADD ISETP ICMP IABS LEA SHF SHL SHR BMSK SGXT VIMNMX IMNMX".split(), (ALU, "IADD3")
        ),
        **dict.fromkeys("LOP LOP3 PLOP3 SEL FSEL PRMT P2R R2P FMNMX FSETP FSET".split(), (ALU, "LOP3")),
        **dict.fromkeys(("F2FP", "I2FP"), (ALU, "F2FP.F16.F32")),
        "IMAD": (IMAD, "IMAD"),
        "IMAD.WIDE": (IMAD, "IMAD.WIDE"),
        "IMAD.HI": (IMAD, "IMAD.HI"),
        "HFMA2": (IMAD, "HFMA2"),
        "HADD2": (IMAD, "HADD2.F32"),
        "HMUL2": (IMAD, "HFMA2"),
        **dict.fromkeys(("F2F", "F2I", "I2F", "FRND"), (XU, "F2I")),
        **dict.fromkeys(("POPC", "FLO"), (XU, "POPC")),
        "MUFU": (XU, "MUFU"),
        "SHFL": (SHUFFLE, "SHFL"),
    }
)
_TO_SHARED = ("LDS", "LDSM", "STS", "STSM", "ATOMS")
_TO_GLOBAL = ("LDG", "LD", "STG", "ST", "LDGSTS", "RED", "REDG", "ATOM", "ATOMG")
_LOADS = ("LDS", "LDSM", "LDG", "LD", "LDL")
_NOT_MODELLED = (
    *("HGMMA", "QGMMA", "IGMMA", "BGMMA", "IMMA", "QMMA", "DMMA", "DFMA", "DADD", "DMUL", "UTMALDG", "UTMASTG"),
    *("UTMAREDG", "UBLKCP", "UBLKRED", "SYNCS", "UCGABAR_ARV", "UCGABAR_WAIT", "NANOSLEEP"),
)


class NotModelled(ValueError):
    """An instruction that the model has no cost for."""


class Steps:
    """Makes the steps of a sample's kernel on a GPU; each instruction has one step, which all warps share."""

    def __init__(self, kernel: SassKernel, sample: Sample, gpu: Gpu) -> None:
        self._kernel, self._sample, self._gpu = kernel, sample, gpu
        self._reads = bank_reads(kernel.code)

    def of(self, places: Sequence[int]) -> list[Step]:
        """The steps of a path. Raises NotModelled for an instruction without a cost."""
        return [self.at(place) for place in places]

    @functools.cache  # noqa: B019 (as long as the prediction)
    def at(self, place: int) -> Step:
        """The step of one instruction."""
        instruction = self._kernel.code[place]
        if instruction.name in _NOT_MODELLED:
            raise NotModelled(f"{self._kernel.name}: {instruction.opcode} has no cost in this model yet")
        control = instruction.control
        assert control is not None
        step = Step(
            place, instruction.name, control.stall, control.result, control.operands, control.waits,
            self._reads[place], latency=self._latency(instruction),
        )  # fmt: skip
        if not instruction.never:
            step = self._with_memory(self._with_pipe(step, instruction), instruction)
            step = with_waits(step, instruction)
        return replace(step, is_plain=is_plain(step))

    def _latency(self, instruction: Instruction) -> float:
        """Clocks until a counter falls for a result that does not come from memory."""
        known = self._gpu.latency
        _, like = _PIPES.get(instruction.name, ("", "S2R+SHF+SGXT+IADD3"))
        return known["SHFL"] if instruction.name == "SHFL" else known.get(like, known["MUFU"])

    def _with_pipe(self, step: Step, instruction: Instruction) -> Step:
        if instruction.name == "HMMA":
            return replace(step, pipe=TENSOR, interval=_hmma(instruction.opcode, self._gpu))
        if instruction.opcode.startswith("IMAD.MOV"):  # may take either of two pipes
            return step
        long = ".".join(instruction.opcode.split(".")[:2])
        pipe, like = _PIPES.get(long) or _PIPES.get(instruction.name) or ("", "")
        interval = round(self._gpu.interval[like]) if pipe else 0  # what is above is the loop of the measurement
        return replace(step, pipe=pipe, interval=interval) if interval > 1 else step

    def _with_memory(self, step: Step, instruction: Instruction) -> Step:
        name, line, sample, gpu = instruction.name, instruction.ptx_line, self._sample, self._gpu
        width = bits(instruction)
        if name in ("LDL", "STL"):  # spills: the words of a warp's lanes lie side by side
            step = replace(step, is_global=True, served=WARP * width / 8 / LINE, released=gpu.release["LDG.32"])
        elif name in _TO_SHARED:
            step = replace(step, served=average(sample.shared, line, "served") or 1.0)
            step = replace(step, released=gpu.release["STS.32" if name.startswith("ST") else "LDS.32"])
        elif name in _TO_GLOBAL:
            step = replace(step, is_global=True, released=gpu.release["LDG.32"])
            step = replace(step, is_store=name not in (*_LOADS, "LDGSTS"))
            step = replace(step, **average_global(sample.globals, line, gpu.request["LDG.32"]))
            if name == "LDGSTS":  # beside lines, what it writes to shared memory
                written = max(WARP * width / 8 / LINE, average(sample.shared, line, "served"))
                step = replace(step, served=max(1.0, written), kind="copy")
        if name in _LOADS:
            step = replace(step, returned=WARP * width / 8, writes=loaded(instruction))
        return step


def is_plain(step: Step) -> bool:
    """Returns whether a step has nothing but a stall: it waits for no counter, and nothing waits for it."""
    counted = step.waits or step.result < COUNTERS or step.operands < COUNTERS
    return not (
        counted or step.pipe or step.served or any(step.writes) or step.barrier or step.kind or step.leaves >= 0
    )


def with_waits(step: Step, instruction: Instruction) -> Step:
    """A step that waits for other warps, or for copies."""
    if instruction.name == "LDGDEPBAR":
        return replace(step, kind="commit")
    if instruction.name == "DEPBAR":
        return replace(step, leaves=int(instruction.operands.split(",")[1], 16))
    if instruction.name == "BAR":
        number, *count = [part.strip() for part in instruction.operands.split(",")]
        arrivals = cdiv(int(count[0], 16), WARP) if count and count[0].startswith("0x") else 0
        kind = "arrive" if ".ARV" in instruction.opcode else ""
        return replace(step, barrier=number, arrivals=arrivals, kind=kind)
    return step


def _hmma(opcode: str, gpu: Gpu) -> float:
    """Clocks that a scheduler's tensor core takes for an mma.sync."""
    if ".16816." in opcode:
        return gpu.interval["HMMA.16816.F32.BF16 16 warps" if "BF16" in opcode else "HMMA.16816.F32 16 warps"]
    if ".1688." in opcode or ".1684." in opcode:
        full = gpu.interval["HMMA.1688.F32.TF32 16 warps"]
        return full if "1688.F32.TF32" in opcode else full / 2  # with half as many products, or of half the size
    raise NotModelled(f"{opcode} has no cost in this model yet")
