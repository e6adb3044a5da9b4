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
from gemm_ref.sass.listing import Instruction
from gemm_ref.sass.sections import code_places
from gemm_ref.toolchain import assemble

WARP = 32
_KERNEL = "loop"


class Walk(ctypes.Structure):
    """loops.cu's struct of this name: in bytes, where lanes, warps and blocks read and write."""

    NAMES = ("step", "mask", "lane_bytes", "warp_bytes", "block_bytes", "shared_lane_bytes", "shared_warp_bytes",
             "shared_bytes", "shared_mask", "a", "b", "spread")  # fmt: skip
    _fields_ = tuple((name, ctypes.c_uint32) for name in NAMES)


@dataclass(frozen=True)
class Loop:
    """One kernel of loops.cu: which PTX it repeats, and how it is started."""

    body: str  # %0 to %13 are the operands that loops.cu describes
    opcode: str  # the machine instruction that the body must become, with the suffixes that matter; several with spaces
    chains: int = 1  # bodies that do not depend on each other
    unroll: int = 64  # bodies in a trip
    offset: int = 0  # bytes from the address of one body to that of the next
    declare: str = ""
    setup: str = ""
    after: str = ""
    finish: str = ""
    threads: int = WARP
    blocks: int = 1
    walk: tuple[tuple[str, int], ...] = ()  # the fields of Walk that are not 0
    waits_for_operands: bool = False  # each instruction until the operands of the one before have been read

    @property
    def warps(self) -> int:
        """Warps of a block."""
        return -(-self.threads // WARP)

    @property
    def source(self) -> str:
        """The arguments of its LOOP, without the name."""
        texts = (json.dumps(getattr(self, name)) for name in ("declare", "setup", "body", "after", "finish"))
        return ", ".join((*map(str, (self.threads, self.chains, self.unroll, self.offset)), *texts))

    def launch(
        self, image: Image, kernel: str, data: torch.Tensor, tensor_map: torch.Tensor, trips: int, a: int = 0
    ) -> torch.Tensor:
        """Starts the kernel; returns (blocks, warps, 3) of int64: when each warp began and ended, and where.

        a: in place of Walk's field of this name, if that is 0.
        """
        clocks = torch.zeros((self.blocks, self.warps, 3), dtype=torch.int64, device=data.device)
        sink = torch.empty(self.blocks * self.threads, dtype=torch.int32, device=data.device)
        self.launch_into(image, kernel, (data, tensor_map, clocks, sink), trips, a)
        return clocks

    def launch_into(self, image: Image, kernel: str, tensors: Sequence[torch.Tensor], trips: int, a: int = 0) -> None:
        """Starts the kernel on the tensors that are its first arguments."""
        walk = Walk(**{"a": a, **dict(self.walk)})
        arguments = (*tensors, ctypes.c_int(trips), walk)
        image.launch(kernel, self.blocks, self.threads, *arguments, shared_bytes=walk.shared_bytes)

    def places(self, code: Sequence[Instruction]) -> dict[str, list[int]]:
        """For each part of `opcode` where it is in the kernel's code between the two readings of the clock."""
        begin, *_, end = [i for i, each in enumerate(code) if "SR_CLOCKLO" in each.operands]
        parts = {i: set(code[i].opcode.split(".")) for i in range(begin, end) if not code[i].never}
        return {name: [i for i in parts if set(name.split(".")) <= parts[i]] for name in self.opcode.split()}


_FEW = 4  # instructions of the same kind may count trips


@dataclass(frozen=True)
class Compiled:
    """A loop's kernel in a cubin that has several."""

    cubin: bytes
    kernel: str


def compile_loops(loops: Sequence[Loop], capability: tuple[int, int]) -> list[Compiled | BuildError]:
    """Each loop's machine code, or what is wrong with it: it must contain what is to be measured, as often.

    Raises BuildError without a compiler, and for PTX that does not compile.
    """
    calls = "".join(f"LOOP({_KERNEL}{i}, {loop.source})\n" for i, loop in enumerate(loops))
    text = (FOLDER / "loops.cu").read_text(encoding="utf-8") + calls
    cubin = assemble(compile_ptx(text, "loops.cu", capability)[0], capability)
    kernels = {kernel.name: kernel.code for kernel in listing.parse(tools.disassemble(cubin))}
    wrong: dict[int, BuildError] = {}
    for i, loop in enumerate(loops):
        found = loop.places(kernels[f"{_KERNEL}{i}"])
        for opcode, places in found.items():
            if not loop.unroll <= len(places) <= loop.unroll + _FEW:
                wrong[i] = BuildError(f"the loop has {len(places)} {opcode}, not {loop.unroll}: {loop.body}")
        if loop.waits_for_operands:
            begin, _ = code_places(cubin)[f"{_KERNEL}{i}"]
            (places,) = found.values()
            at = [begin + patch.SIZE * place for place in places]
            cubin = patch.with_operand_waits(cubin, at, COUNTERS - 1, loads=loop.opcode.startswith("LD"))
    return [wrong.get(i) or Compiled(cubin, f"{_KERNEL}{i}") for i in range(len(loops))]
