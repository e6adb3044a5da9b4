"""Kernels of loops.cu, each of which repeats a piece of PTX: how they are compiled, checked and started."""

from __future__ import annotations

import ctypes
import json
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from cuda_kernels.ceilings import FOLDER
from cuda_kernels.ceilings.image import Image
from cuda_kernels.source import compile_ptx
from gemm_ref.build import BuildError
from gemm_ref.sass import listing, patch, tools
from gemm_ref.sass.control import COUNTERS
from gemm_ref.sass.listing import SassKernel
from gemm_ref.sass.sections import INSTRUCTION_BYTES, code_places
from gemm_ref.toolchain import assemble

WARP = 32
_FEW = 4  # instructions of the loop's own that may have the opcode too, since they count trips


class Walk(ctypes.Structure):
    """loops.cu's struct of this name; fields of Loop have the same names."""

    _fields_ = tuple(
        (name, ctypes.c_uint32)
        for name in "step mask lane_bytes warp_bytes block_bytes shared_lane_bytes shared_warp_bytes shared_step "
        "filled_bytes filled_mask a b spread".split()
    )


@dataclass(frozen=True)
class Loop:
    """One kernel of loops.cu: which PTX it repeats, and how it is started. From `step` on see its Walk."""

    body: str  # %0 to %13 are the operands that loops.cu describes
    opcode: str  # the machine instruction that a body must become, with the suffixes that matter; several with spaces
    chains: int = 1  # bodies that do not depend on each other
    unroll: int = 64  # bodies in a trip
    offset: int = 0  # bytes from the address of one body to that of the next
    declare: str = ""
    setup: str = ""
    after: str = ""
    finish: str = ""
    threads: int = WARP
    blocks: int = 1
    shared_bytes: int = 0
    waits_for_operands: bool = False  # each instruction until the operands of the one before have been read
    step: int = 0
    mask: int = 0
    lane_bytes: int = 0
    warp_bytes: int = 0
    block_bytes: int = 0
    shared_lane_bytes: int = 0
    shared_warp_bytes: int = 0
    shared_step: int = 0
    filled_bytes: int = 0
    filled_mask: int = 0
    a: int = 0
    b: int = 0
    spread: int = 0

    @property
    def source(self) -> str:
        """The arguments of its LOOP, without the name."""
        texts = (json.dumps(text) for text in (self.declare, self.setup, self.body, self.after, self.finish))
        return ", ".join((*map(str, (self.threads, self.chains, self.unroll, self.offset)), *texts))

    def launch(
        self, image: Image, kernel: str, data: torch.Tensor, tensor_map: torch.Tensor, trips: int
    ) -> torch.Tensor:
        """Starts its kernel in an image; returns (blocks, warps, 3) of int64: when each warp began and ended, where."""
        clocks = torch.zeros((self.blocks, -(-self.threads // WARP), 3), dtype=torch.int64, device=data.device)
        sink = torch.empty(self.blocks * self.threads, dtype=torch.int32, device=data.device)
        self.launch_into(image, kernel, (data, tensor_map, clocks, sink), trips)
        return clocks

    def launch_into(self, image: Image, kernel: str, tensors: Sequence[torch.Tensor], trips: int) -> None:
        """Starts the kernel on the tensors that are its first arguments."""
        walk = Walk(*(getattr(self, field[0]) for field in Walk._fields_))
        arguments = (*tensors, ctypes.c_int(trips), walk)
        image.launch(kernel, self.blocks, self.threads, *arguments, shared_bytes=self.shared_bytes)

    def places(self, kernel: SassKernel) -> dict[str, list[int]]:
        """Where each part of `opcode` is in the loop: between readings of the clock, the farthest jump back."""
        if not self.opcode:
            return {}
        clock, *_, clock_again = [i for i, each in enumerate(kernel.code) if "SR_CLOCKLO" in each.operands]
        timed = range(clock, clock_again)
        jumps = [(kernel.labels[kernel.code[i].target], i) for i in timed if kernel.code[i].name == "BRA"]
        begin, end = max(jumps, key=lambda jump: jump[1] - jump[0])
        parts = {i: set(kernel.code[i].opcode.split(".")) for i in range(begin, end + 1) if not kernel.code[i].never}
        return {name: [i for i in parts if set(name.split(".")) <= parts[i]] for name in self.opcode.split()}


@dataclass(frozen=True)
class Compiled:
    """A loop's kernel in a cubin that has several."""

    cubin: bytes
    kernel: str


def compile_loops(loops: Sequence[Loop], capability: tuple[int, int]) -> list[Compiled | BuildError]:
    """Each loop's machine code, or what is wrong with it: it must contain what is to be measured, as often.

    Raises BuildError without a compiler, and for PTX that does not compile.
    """
    names = [f"loop{i}" for i in range(len(loops))]
    text = (FOLDER / "loops.cu").read_text(encoding="utf-8")
    text += "".join(f"LOOP({name}, {loop.source})\n" for name, loop in zip(names, loops, strict=True))
    cubin = assemble(compile_ptx(text, "loops.cu", capability)[0], capability)
    kernels = {kernel.name: kernel for kernel in listing.parse(tools.disassemble(cubin))}
    wrong: dict[str, BuildError] = {}
    for name, loop in zip(names, loops, strict=True):
        found = loop.places(kernels[name])
        for opcode, places in found.items():
            if not loop.unroll <= len(places) <= loop.unroll + _FEW:
                wrong[name] = BuildError(f"the loop has {len(places)} {opcode}, not {loop.unroll}: {loop.body}")
        if loop.waits_for_operands:
            begin, length = code_places(cubin)[name]
            at = [begin + INSTRUCTION_BYTES * place for place in sum(found.values(), [])]
            cubin = patch.with_operand_waits(cubin, range(begin, begin + length, INSTRUCTION_BYTES), at, COUNTERS - 1)
    return [wrong.get(name) or Compiled(cubin, name) for name in names]
