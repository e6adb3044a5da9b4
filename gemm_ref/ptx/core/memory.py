"""The memories of the reference GPU: address layout, bounds, alignment, typed views (PTX ISA, 5.1, state spaces).

Addresses are virtual. Tensor i begins near (i + 1) << 40, at the offset in a 256-byte line that it would have on a GPU,
so that alignment is real and no overrun can reach another tensor. Shared memory starts at SHARED_BASE for each thread
block and local memory at 0 for each thread; the windows map both into the generic address space.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from gemm_ref.launch import round_up
from gemm_ref.ptx.text.dtypes import SIGNED, UNSIGNED, Value
from gemm_ref.ptx.text.errors import MemoryFault
from gemm_ref.ptx.text.parser import Variable

# Where a block's own shared memory begins, from sm_90 on: the bytes before it are the system's. ptxas puts the first
# array there, and others behind it as aligned as they must be from there: one of 8192 bytes is at 0x2400 (nvcc 13.0).
SHARED_BASE = 1024
SHARED_WINDOW = 1 << 60  # generic address of the first of the system's
LOCAL_WINDOW = 1 << 61  # generic address of local byte 0
PARAMETER_WINDOW = 1 << 62  # generic address of the first parameter
PARAMETER_SPACING = 1 << 15  # bytes from a parameter to the next: at least the size of all parameters of a kernel
CODE_WINDOW = 1 << 59  # added to its place in the program this is the address of a function
HEAP_BYTES = 8 << 20  # for `malloc` in kernels: the default of cudaLimitMallocHeapSize
STACK_BYTES = 1024  # per thread, for recursive functions: the default of cudaLimitStackSize
_TENSOR_SPACING = 1 << 40
_LINE = 256  # bytes, the alignment of cudaMalloc
_UNWRITTEN = 0xFF  # unwritten bytes: NaN as floats, so that a use is noticed


class Footprint:
    """The byte addresses of one access before its immediate offset, with their range and alignment.

    Unrolled code accesses memory many times from one register, with different offsets; the footprint is computed once.
    """

    def __init__(self, addresses: Value) -> None:
        # Signed: an address just below shared memory, to which an offset is added, wraps around.
        self.addresses = addresses.view(SIGNED[addresses.dtype.itemsize]).astype(np.int64, copy=False)
        if addresses.ndim == 0:  # the same address in all lanes
            self.low = self.high = int(self.addresses)
            self.low_bits = self.low & 31
        else:
            self.low, self.high = int(np.minimum.reduce(self.addresses)), int(np.maximum.reduce(self.addresses))
            self.low_bits = int(np.bitwise_or.reduce(self.addresses)) & 31
        self.uniform = addresses.ndim == 0
        self._indices: dict[tuple, Value] = {}
        self._among: tuple[np.ndarray, Footprint] | None = None

    def among(self, lanes: np.ndarray) -> Footprint:
        """Return the footprint of these lanes, at least one; the others get the first one's address."""
        if self._among is None or self._among[0] is not lanes:
            safe = np.where(lanes, self.addresses, self.addresses[np.argmax(lanes)])
            self._among = (lanes, Footprint(safe))
        return self._among[1]

    def index(self, block: Block, width: int) -> Value:
        """Return the lanes' positions in `block.view(width)`."""
        return self.cached((id(block), width), lambda: block.index(self.addresses, width))

    def cached(self, key: tuple, compute: Callable[[], Value]) -> Value:
        """Return a cached index that depends only on these addresses and on `key`."""
        if key not in self._indices:
            self._indices[key] = compute()
        return self._indices[key]


class Block:
    """A block of memory: `size` bytes from virtual address `first` on."""

    def __init__(self, name: str, data: np.ndarray, size: int, first: int = 0, base: Value = 0) -> None:
        """base: what is added to an address to get its byte in `data`, for each lane or for all."""
        self.name = name
        self.size = size
        self.first = first
        self._base = base
        self._views = {width: data.view(dtype) for width, dtype in UNSIGNED.items()}

    def view(self, width: int) -> np.ndarray:
        """Return the block as unsigned integers of `width` bytes."""
        return self._views[width]

    def holds(self, low: int, high: int, size: int) -> bool:
        """Return whether accesses of `size` bytes at addresses low to high are all inside."""
        return self.first <= low and high + size <= self.first + self.size

    def index(self, addresses: Value, width: int) -> Value:
        """Return addresses as positions in `view(width)`."""
        return (addresses + self._base) >> (width.bit_length() - 1)


class PerOwner(Block):
    """Shared memory of each thread block, or local memory of each thread, owner after owner."""

    def __init__(self, name: str, size: int, owner_of_lane: np.ndarray, owners: int, first: int = 0) -> None:
        self.stride = round_up(size, 16)  # bytes from an owner's part to the next one's
        self.data = np.full(max(self.stride * owners, 16), _UNWRITTEN, np.uint8)
        super().__init__(name, self.data, size, first, base=owner_of_lane.astype(np.int64) * self.stride - first)


class Tensor(Block):
    """A tensor argument or a module's variable, which the kernel reads and writes in place."""

    def __init__(self, name: str, tensor: torch.Tensor, number: int) -> None:
        if not tensor.is_contiguous() or tensor.device.type != "cpu":
            raise ValueError(f"{name} must be a contiguous tensor on the CPU")
        self.owner = tensor  # keeps its memory alive
        # Returns for each element whether a kernel must write it; None if that holds for all.
        self.reached: Callable[[], np.ndarray] | None = None
        size = tensor.numel() * tensor.element_size()
        skew = tensor.data_ptr() % 16
        # An allocation begins at a line on a GPU; torch aligns it to 64 bytes on a CPU, by chance to more.
        within_line = tensor.data_ptr() % _LINE if tensor.storage_offset() else skew
        if size:
            # Viewed from the start of its 16-byte vector, so that wide accesses are elements of one array. The few
            # bytes around the tensor that this shows are never touched: `holds` is asked first.
            whole = round_up(skew + size, 16)
            data = np.frombuffer(memoryview((ctypes.c_uint8 * whole).from_address(tensor.data_ptr() - skew)), np.uint8)
        else:
            data = np.zeros(16, np.uint8)
        first = (number + 1) * _TENSOR_SPACING + within_line
        super().__init__(name, data, size, first, base=skew - first)


def parameter_block(parameters: Sequence[bytes]) -> Block:
    """Return the read-only parameters of a launch as bytes, each at its number times PARAMETER_SPACING."""
    data = np.zeros(max(len(parameters), 1) * PARAMETER_SPACING, np.uint8)
    for number, content in enumerate(parameters):
        first = number * PARAMETER_SPACING
        data[first : first + len(content)] = np.frombuffer(content, np.uint8)
    return Block("the parameters", data, data.size)


class GlobalMemory:
    """All tensors of a launch."""

    def __init__(self) -> None:
        self.tensors: list[Tensor] = []
        self._heap: Tensor | None = None
        self._allocated = 0  # bytes of the heap

    def add(self, name: str, tensor: torch.Tensor, is_output: bool = True) -> int:
        """Add a tensor, and return the virtual address of its first element.

        is_output: a kernel that writes to it must write every element.
        """
        self.tensors.append(Tensor(name, tensor, len(self.tensors)))
        if not is_output:
            self.tensors[-1].reached = lambda: np.zeros(tensor.numel(), bool)
        return self.tensors[-1].first

    def allocate(self, bytes_: int) -> int:
        """Allocate bytes for a kernel's `malloc`, and return their address; 0 if the heap is exhausted."""
        if self._heap is None:
            self.add("the heap of malloc", torch.full((HEAP_BYTES,), _UNWRITTEN, dtype=torch.uint8), is_output=False)
            self._heap = self.tensors[-1]
        first = round_up(self._allocated, 16)
        if first + bytes_ > HEAP_BYTES:
            return 0
        self._allocated = first + bytes_
        return self._heap.first + first

    def text(self, address: int) -> str:
        """Return the zero-terminated text at an address. Raises MemoryFault for an address outside of all tensors."""
        for tensor in self.tensors:
            if tensor.holds(address, address, 1):
                data = tensor.view(1)[int(tensor.index(np.int64(address), 1)) :][: tensor.first + tensor.size - address]
                return data.tobytes().partition(b"\0")[0].decode("utf-8", "replace")
        raise MemoryFault(f"there is no text {self.describe(address)}")

    def describe(self, address: int) -> str:
        """Describe the place of an address that is in no tensor."""
        if not self.tensors:
            return f"address {address:#x}: the kernel was given no tensor"
        near = min(self.tensors, key=lambda t: max(t.first - address, address - t.first - t.size))
        if address < near.first:
            return f"{near.first - address} bytes before {near.name} ({near.size} bytes)"
        return f"at byte {address - near.first} of {near.name} ({near.size} bytes)"


@dataclass(frozen=True)
class MemoryLayout:
    """The byte offsets of a kernel's variables in shared or local memory, and the size of them all."""

    offsets: dict[str, int]
    size: int


def arrange(variables: Sequence[Variable], *spaces: str, first: int = 0) -> tuple[MemoryLayout, tuple[str, ...]]:
    """Place the variables of some spaces consecutively, and return the names of those of dynamic size, which follow.

    first: the byte at which to begin, a multiple of 16.
    """
    offsets, size, dynamic, align = {}, first, [], 1
    for variable in (v for v in variables if v.space in spaces):
        if variable.size == 0:
            dynamic.append(variable.name)
            align = max(align, variable.align)
            continue
        size = round_up(size, variable.align)
        offsets[variable.name] = size
        size += variable.size
    return MemoryLayout(offsets, round_up(size, align)), tuple(dynamic)
