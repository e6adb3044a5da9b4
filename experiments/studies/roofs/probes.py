"""The ceilings that `roofs` measures: for each a micro-kernel, its inputs, its work, and what it must compute.

A probe's numbers (LOADS, STEPS, ...) are those of its .cu: where the two differ, the check before the timing fails.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from cuda_kernels.ceilings import MicroKernel
from experiments.records.ceilings import TB_S, TFLOPS, TITLES
from gemm_ref.compute import MATHS
from gemm_ref.launch import cdiv

VECTOR = 16  # bytes
_FIRST, _LAST = -(2**31), 2**31 - 1


@dataclass(frozen=True)
class Machine:
    """What a probe's sizes are made from: the GPU `device`, or a small made-up one."""

    device: str
    multiprocessors: int
    l2_bytes: int
    memory_bytes: int


@dataclass(frozen=True)
class Probe:
    """One ceiling. `data` is the micro-kernel's input; its output has the shape of `expected`."""

    name: str  # a key of TITLES
    kernel: MicroKernel
    unit: str
    math: str = ""  # empty for memory
    tolerance: float = 0.0  # of the check, absolute
    build = None  # `roofs` compiles its micro-kernels itself, and says of each why it cannot be run

    @property
    def title(self) -> str:
        return TITLES[self.name]

    @property
    def figure(self) -> str:
        """Which of `bench.datasheets`' figures it is to be compared with; empty for L2, of which no vendor speaks."""
        if self.math:
            return self.math
        memory, _, _ = self.name.partition("_")
        return {"shared": "l1", "l2": ""}.get(memory, memory)

    def __str__(self) -> str:
        return self.name

    def blocks(self, machine: Machine) -> int:
        """As many as run at a time, so that all of them start and end together."""
        return machine.multiprocessors * self.kernel.blocks_per_sm

    def least_iterations(self, data: torch.Tensor, blocks: int) -> int:
        """The fewest for which the check sees all that the kernel does."""
        return 2

    def make_input(self, machine: Machine, exact: bool) -> torch.Tensor:
        """Seeded random input; `exact`: such that no operation of the check rounds, where the probe computes."""
        raise NotImplementedError

    def work(self, data: torch.Tensor, blocks: int, iterations: int) -> int:
        """Floating-point operations, or bytes, of one launch."""
        raise NotImplementedError

    def expected(self, data: torch.Tensor, blocks: int, iterations: int) -> torch.Tensor:
        """What the launch must leave in its output, in a wider type than the output's."""
        raise NotImplementedError

    def output(self, data: torch.Tensor, blocks: int) -> torch.Tensor:
        """Room for the output of a launch."""
        raise NotImplementedError

    def check(self, data: torch.Tensor, out: torch.Tensor, blocks: int, iterations: int) -> str:
        """What is wrong with the output of a launch; empty if it is right."""
        wrong = (out.to(torch.float64) - self.expected(data, blocks, iterations)).abs()
        worst = float(wrong.nan_to_num(nan=torch.inf).max())
        return "" if worst <= self.tolerance else f"its result is off by {worst:.3g}"


class Fma(Probe):
    """fma.cu: points on ellipses."""

    PAIRS, STEPS = 8, 32

    def make_input(self, machine, exact):
        random = _generator(machine)
        shape = (2 * self.PAIRS + 1, self.kernel.threads)
        return torch.rand(shape, generator=random, device=machine.device) - 0.5  # |c| < 1/2

    def output(self, data, blocks):
        return torch.empty((blocks, self.kernel.threads), device=data.device)

    def work(self, data, blocks, iterations):
        return blocks * self.kernel.threads * iterations * self.STEPS * self.PAIRS * 2 * 2

    def expected(self, data, blocks, iterations):
        """The steps are a linear map of (u, v); its power is computed in float64 by squaring."""
        coordinates = data[:-1].cpu().to(torch.float64).view(self.PAIRS, 2, -1)  # (pair, u or v, thread)
        c = data[-1].cpu().to(torch.float64)
        one = torch.ones_like(c)
        step = torch.stack([torch.stack([one, c]), torch.stack([-c, 1 - c * c])]).permute(2, 0, 1)
        turned = torch.linalg.matrix_power(step, iterations * self.STEPS) @ coordinates.permute(2, 1, 0)
        return turned.sum((1, 2)).expand(blocks, -1).to(data.device)


class _TensorCore(Probe):
    """Both operands have rows along k; the output is the sum of a warp's tiles of 16 x 8, as mma.cuh lays one out."""

    ROW_BYTES: int
    A_ROWS: int
    B_ROWS: int

    def make_input(self, machine, exact):
        dtype, random = MATHS[self.math].dtype, _generator(machine)
        shape = (self.A_ROWS + self.B_ROWS, self.ROW_BYTES // dtype.itemsize)
        if exact:
            return torch.randint(-2, 3, shape, generator=random, device=machine.device).to(dtype)
        return torch.randn(shape, generator=random, device=machine.device).to(dtype)

    def output(self, data, blocks):
        return torch.empty((blocks, self.kernel.threads // 32, 32, 4), device=data.device)

    def _tile(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        """A tile (..., 16, 8) = a (..., 16, k) @ b (8, k)^T as the lanes of a warp hold it: (..., 32, 4)."""
        lane, register = torch.arange(32)[:, None], torch.arange(4)
        return (a @ b.T)[..., lane // 4 + register // 2 * 8, lane % 4 * 2 + register % 2]


class Mma(_TensorCore):
    """mma.cu: each warp the same 4 x 4 tiles."""

    TILES, STEPS = 4, 4
    ROW_BYTES, A_ROWS, B_ROWS = 32, 16 * TILES, 8 * TILES

    def work(self, data, blocks, iterations):
        warps = blocks * self.kernel.threads // 32
        return warps * iterations * self.STEPS * 2 * self.A_ROWS * self.B_ROWS * data.shape[1]

    def expected(self, data, blocks, iterations):
        a, b = data.cpu().to(torch.float64).split((self.A_ROWS, self.B_ROWS))
        tile = self._tile(a.view(self.TILES, 16, -1).sum(0), b.view(self.TILES, 8, -1).sum(0))
        warps = self.kernel.threads // 32
        return (tile * iterations * self.STEPS).expand(blocks, warps, -1, -1).to(data.device)


class Wgmma(_TensorCore):
    """wgmma.cu: each warp 16 rows of its own with the same 256 columns."""

    ROW_BYTES, A_ROWS, B_ROWS = 128, 128, 256

    def work(self, data, blocks, iterations):
        return blocks * iterations * 2 * self.A_ROWS * self.B_ROWS * data.shape[1]

    def expected(self, data, blocks, iterations):
        a, b = data.cpu().to(torch.float64).split((self.A_ROWS, self.B_ROWS))
        tiles = self._tile(a.view(self.A_ROWS // 16, 16, -1), b.view(self.B_ROWS // 8, 8, -1).sum(0))
        return (tiles * iterations).expand(blocks, -1, -1, -1).to(data.device)


class Copy(Probe):
    """copy.cu. The buffer is as large as an eighth of the memory allows, up to 8 GiB: 140 times an H200's L2."""

    def blocks(self, machine):
        return max(1, min(2**33, machine.memory_bytes // 8) // (self.kernel.threads * VECTOR))  # a vector per thread

    def least_iterations(self, data, blocks):
        return 1

    def make_input(self, machine, exact):
        return _words(self.blocks(machine) * self.kernel.threads * VECTOR, machine)

    def output(self, data, blocks):
        return torch.empty_like(data)

    def work(self, data, blocks, iterations):
        return 2 * data.nbytes * iterations

    def check(self, data, out, blocks, iterations):
        return "" if torch.equal(data, out) else "the copy differs from its source"


class _Read(Probe):
    """Threads add up the words that they read, LOADS vectors in an iteration."""

    LOADS: int

    def output(self, data, blocks):
        return torch.empty((blocks, self.kernel.threads), dtype=torch.int32, device=data.device)

    def work(self, data, blocks, iterations):
        return blocks * self.kernel.threads * self.LOADS * VECTOR * iterations

    def check(self, data, out, blocks, iterations):
        right = (self.expected(data, blocks, iterations) - out) % 2**32 == 0
        return "" if right.all() else f"{int((~right).sum())} threads did not read what they should"


@dataclass(frozen=True)
class Read(_Read):
    """read.cu. `level` is the memory that the buffer fits into, and the next smaller one does not serve."""

    level: str = "dram"

    LOADS = 4

    def least_iterations(self, data, blocks):
        tiles = data.nbytes // (self.LOADS * self.kernel.threads * VECTOR)
        return cdiv(tiles, blocks) if self.level == "dram" else 2  # all of memory: what was read once is not in L2

    def make_input(self, machine, exact):
        tile = self.LOADS * self.kernel.threads * VECTOR
        if self.level == "dram":
            step = self.blocks(machine) * tile
            return _words(max(1, min(2**33, machine.memory_bytes // 8) // step) * step, machine)
        # A line that multiprocessors on both sides of an A100's or H100's L2 read lies in both of its halves, so half
        # of the cache is what all of them can share; a quarter leaves room. Loads go past L1, which could hold it too.
        size = machine.l2_bytes // 4 if self.level == "l2" else 3 * tile  # 48 KiB: an L1 of any kind holds it
        return _words(size // tile * tile, machine)

    def expected(self, data, blocks, iterations):
        tiles = data.view(-1, self.LOADS, self.kernel.threads, VECTOR // 4).sum((1, 3), dtype=torch.int64)
        sums = torch.zeros((blocks, self.kernel.threads), dtype=torch.int64, device=data.device)
        stride = (blocks % len(tiles) or 1) if len(tiles) > 1 else 0
        first = torch.arange(blocks, device=data.device)
        for step in range(iterations):
            sums += tiles[(first + step * stride) % len(tiles)]
        return sums


class Shared(_Read):
    """shared.cu."""

    LOADS, STARTS = 8, 4

    def make_input(self, machine, exact):
        return _words((self.STARTS + self.LOADS - 1) * self.kernel.threads * VECTOR, machine)

    def expected(self, data, blocks, iterations):
        rows = data.view(-1, self.kernel.threads, VECTOR // 4).sum(2, dtype=torch.int64)
        steps = [rows[step % self.STARTS :][: self.LOADS].sum(0) for step in range(iterations)]
        return torch.stack(steps).sum(0).expand(blocks, -1)


def _generator(machine: Machine) -> torch.Generator:
    return torch.Generator(machine.device).manual_seed(0)


def _words(size: int, machine: Machine) -> torch.Tensor:
    """`size` random bytes, as int32."""
    shape, random = (size // 4,), _generator(machine)
    return torch.randint(_FIRST, _LAST, shape, generator=random, dtype=torch.int32, device=machine.device)


HOPPER = (9, 0)


def _types(math: str) -> tuple[str, int]:
    """The mnemonic of a compute type's elements, and how many of them an instruction takes along k: 32 bytes."""
    return MATHS[math].mma_type, 32 // MATHS[math].dtype.itemsize


def _mma(math: str, **where) -> Mma:
    type_, k = _types(math)
    instruction = f"mma_m16n8k{k}_f32_{type_}_{type_}_f32"
    kernel = MicroKernel("mma", 256, 2, ("MMA", instruction), **where)
    return Mma(f"mma_{math}", kernel, TFLOPS, math)


def _wgmma(math: str) -> Wgmma:
    type_, k = _types(math)
    choice = "WGMMA", f"wgmma_k{k}_f32_{type_}_{type_}"
    room = 1024 + (2 * 64 + 256) * 128  # for the rows of A and B, which begin at a multiple of 1024 bytes
    kernel = MicroKernel("wgmma", 256, 1, choice, least=HOPPER, most=HOPPER, shared_bytes=room)
    return Wgmma(f"wgmma_{math}", kernel, TFLOPS, math)


_ALL = (
    Fma("fma", MicroKernel("fma", 256, 4), TFLOPS, "fp32", tolerance=1e-3),
    *(_mma(math, least=(8, 0)) for math in ("tf32", "bf16", "fp16")),
    _mma("fp8", least=(8, 9), emulated=(9, 10)),
    *(_wgmma(math) for math in ("tf32", "bf16", "fp16", "fp8")),
    Copy("dram_copy", MicroKernel("copy", 256, 8), TB_S),
    Read("dram_read", MicroKernel("read", 256, 8, ("LOAD", "load_nc")), TB_S),
    Read("l2_read", MicroKernel("read", 256, 8, ("LOAD", "load_cg")), TB_S, level="l2"),
    Read("l1_read", MicroKernel("read", 256, 8, ("LOAD", "load_nc")), TB_S, level="l1"),
    Shared("shared_read", MicroKernel("shared", 256, 5), TB_S),
)
PROBES = {probe.name: probe for probe in _ALL}
