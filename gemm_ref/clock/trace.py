"""From what the warps of an asynchronous kernel do to the steps of the simulated multiprocessor.

An instruction that is not for memory, tensor cores or barriers counts a clock: these kernels are held back by tensor
cores, memory and each other.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gemm_ref.clock.gpu import Gpu
from gemm_ref.clock.machine import Step
from gemm_ref.clock.recorder import COPY, MEET, STORE, Executed
from gemm_ref.clock.sample import Sample, average, average_global
from gemm_ref.clock.steps import WARP, NotModelled
from gemm_ref.launch import cdiv
from gemm_ref.ptx.text.operands import Immediate, Register, Vector
from gemm_ref.ptx.text.parser import Instruction
from gemm_ref.sass.control import COUNTERS

_NOT_MODELLED = ("mma", "wmma", "tcgen05")  # beside wgmma or mbarriers


class TracedSteps:
    """Makes the steps of a recorded kernel on a GPU. Their places are lines of the PTX."""

    def __init__(self, sample: Sample, gpu: Gpu) -> None:
        self._sample, self._gpu = sample, gpu

    def of(self, warp: Sequence[Executed]) -> tuple[list[Step], list[int]]:
        """The steps of one warp, and where its slices begin: at each commit of products."""
        steps, heads = [], []
        loaded: dict[str, int] = {}  # registers that a load fills -> the number of its step
        for number, each in enumerate(warp):
            operands = each.instruction.operands
            needs = tuple({loaded[name] for operand in operands for name in _registers(operand) if name in loaded})
            if each.instruction.parts[:2] == ["wgmma", "commit_group"]:
                heads.append(number)
            steps.append(self._step(each, needs))
            if each.instruction.parts[0] in ("ld", "ldmatrix"):
                loaded |= dict.fromkeys(_registers(operands[0]), number)
        return steps, heads

    def _step(self, each: Executed, needs: tuple[int, ...]) -> Step:
        instruction, gpu = each.instruction, self._gpu
        if instruction.parts[0] in _NOT_MODELLED:
            raise NotModelled(f"{instruction.name} in line {instruction.line} of {instruction.file} has no cost yet")
        parts, line = instruction.parts, instruction.ptx_line
        fields: dict = {"events": tuple(each.events), "needs": needs}
        if parts[0] == "wgmma" and parts[1] == "mma_async":
            fields |= {"tensor": products_clocks(instruction, gpu), "latency": gpu.latency["HGMMA n8"]}
        elif parts[:2] == ["wgmma", "commit_group"]:
            fields["kind"] = "commit products"
        elif parts[:2] == ["wgmma", "wait_group"]:
            fields["products_left"] = _number(instruction.operands[0])
        elif met := [event for event in each.events if event.kind == MEET]:
            kind = "arrive" if "arrive" in parts else ""
            fields |= {"barrier": str(met[0].barrier), "arrivals": cdiv(met[0].amount, WARP), "kind": kind}
        elif parts[:3] == ["cp", "async", "commit_group"]:
            fields["kind"] = "commit"
        elif parts[:2] == ["cp", "async"] and parts[2] in ("wait_group", "wait_all"):
            fields["leaves"] = _number(instruction.operands[0]) if instruction.operands else 0
        elif line in self._sample.globals and parts[0] in ("ld", "st", "red", "atom", "cp"):
            written = average(self._sample.shared, line, "served") if parts[0] == "cp" else 0.0
            fields |= average_global(self._sample.globals, line, max(1.0, written)) | {"is_global": True}
            fields |= {"kind": "copy" if parts[0] == "cp" else "", "is_store": parts[0] not in ("ld", "cp")}
        elif line in self._sample.shared:
            fields["served"] = average(self._sample.shared, line, "served") or 1.0
        if any(event.kind in (COPY, STORE) for event in each.events):
            fields |= {"pipe": "tma", "interval": gpu.interval["UTMALDG"]}
        fields["is_plain"] = set(fields) == {"events", "needs"} and not each.events and not needs
        return Step(line, parts[0], 1, COUNTERS, COUNTERS, (), (0, 0), **fields)


def products_clocks(instruction: Instruction, gpu: Gpu) -> float:
    """The clocks of the tensor cores for a wgmma, interpolated between the measured widths."""
    columns = int(next(part for part in instruction.parts if part.startswith("m64n"))[4:].partition("k")[0])
    in_registers = isinstance(instruction.operands[1], Vector)
    place = "registers" if in_registers else "shared"
    names = [name.split() for name in gpu.wgmma]
    table = {int(name[1][1:]): gpu.wgmma[" ".join(name)] for name in names if name[0] == "bf16" and name[-1] == place}
    widths = sorted(table)
    return float(np.interp(columns, widths, [table[width] for width in widths]))


def _registers(operand: object) -> list[str]:
    """The names of the registers in an operand."""
    if isinstance(operand, Register):
        return [operand.name]
    if isinstance(operand, Vector):
        return [name for element in operand.items for name in _registers(element)]
    base = getattr(operand, "base", None)
    return [base.name] if isinstance(base, Register) else []


def _number(operand: object) -> int:
    """An immediate operand; 0 for another."""
    return int(operand.value) if isinstance(operand, Immediate) else 0
