"""The two sides of a bulk copy: the elements of a tensor in a tile, and their places in shared memory.

A tile lies in shared memory row after row, in pieces of 16 bytes. A swizzle lets pieces change places: the piece at an
address takes the place whose address differs in bits 4 to 6, by what bits 7 to 9 are (of these three bits, one for a
span of 32 bytes, two for 64, three for 128). The bits are those of the address itself, not of the offset in the tile
(CUDA programming guide, 'Tensor Memory Access', the table of swizzle patterns).
"""

from __future__ import annotations

import numpy as np

from gemm_ref.ptx.core.machine import Machine
from gemm_ref.ptx.core.memory import GlobalMemory, Tensor
from gemm_ref.ptx.text.errors import MemoryFault, ParseError, Unsupported
from gemm_ref.ptx.text.parser import Instruction
from gemm_ref.ptx.units.formats import round_to_tf32
from gemm_ref.ptx.units.tensor_map import PIECE, TensorMap

_SWIZZLED_BITS = {0: 0, 32: 1, 64: 3, 128: 7}  # by the swizzle's span


def swizzle(addresses: np.ndarray, span: int) -> np.ndarray:
    """Return the addresses of the pieces at these byte addresses under a swizzle of this span (0 for none)."""
    return addresses ^ (addresses >> 7 & _SWIZZLED_BITS[span]) << 4


class Tile:
    """The tiles of a tensor map that is a kernel parameter."""

    def __init__(self, map_: TensorMap, tensor: Tensor) -> None:
        self._map, self._tensor = map_, tensor
        self.element_size = map_.element_size
        self._inner = map_.box[0] * self.element_size  # bytes of a row of the tile
        self._rows = map_.box_bytes // self._inner
        self.bytes = map_.box_bytes

    def require_rank(self, rank: int, instruction: Instruction) -> None:
        """Raise ParseError unless the map has this many dimensions, Unsupported for a layout that is not documented."""
        if len(self._map.box) != rank:
            raise ParseError(
                f"{instruction.origin}: the map of {self._tensor.name} has {len(self._map.box)} dimensions"
            )
        if self._map.swizzle not in (0, self._inner):
            raise Unsupported(
                f"{instruction.origin}: rows of {self._inner} bytes under a swizzle of {self._map.swizzle}: the "
                "manuals do not say how they are stored in shared memory; let the box be as wide as the swizzle"
            )

    def piece_numbers(self, offsets: np.ndarray) -> np.ndarray:
        """Return the pieces of the tiles, (entries, pieces), in units of 16 bytes from the start of shared memory."""
        pieces = np.arange(0, self.bytes, PIECE)
        return swizzle(offsets[:, None] + pieces, self._map.swizzle) // PIECE

    def _row_starts(self, where: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the byte offset of each row of the tiles, (entries, rows), and whether the row is in the tensor."""
        start = (where[:, 0] * self.element_size)[:, None] + np.zeros(self._rows, np.int64)
        inside = np.ones(start.shape, bool)
        row = np.arange(self._rows)
        for at, box, size, stride in zip(
            where.T[1:], self._map.box[1:], self._map.sizes[1:], self._map.strides, strict=True
        ):
            index = at[:, None] + row % box
            row = row // box
            inside &= (index >= 0) & (index < size)
            start += index * stride
        return start, inside

    def _elements(self, where: np.ndarray, columns: int = 0) -> tuple[np.ndarray, np.ndarray]:
        """Return the number of each element, (entries, rows, elements), and whether it is in the tensor.

        columns: those that count as inside; 0 for the tensor's own.
        """
        start, inside = self._row_starts(where)
        column = where[:, :1] + np.arange(self._map.box[0])
        there = (column >= 0) & (column < (columns or self._map.sizes[0]))
        numbers = start[:, :, None] // self.element_size + np.arange(self._map.box[0])
        return numbers, inside[:, :, None] & there[:, None, :]

    def addresses(self, memory: GlobalMemory, where: np.ndarray) -> np.ndarray:
        """Return the virtual addresses of the elements that are in the tensor."""
        numbers, inside = self._elements(where)
        return self._tensor.first + numbers[inside] * self.element_size

    def read(self, memory: GlobalMemory, where: np.ndarray) -> np.ndarray:
        """Return the tiles, (entries, pieces, 2 words of 8 bytes), with zeros outside of the tensor."""
        words = self._words(where)
        return round_to_tf32(words.view(np.float32)).view(np.uint64) if self._map.to_tf32 else words

    def _words(self, where: np.ndarray) -> np.ndarray:
        first, last = where[:, 0], where[:, 0] + self._map.box[0]
        if (first * self.element_size % PIECE == 0).all() and (first >= 0).all() and (last <= self._map.sizes[0]).all():
            start, inside = self._row_starts(where)
            pieces = start[:, :, None] // PIECE + np.arange(self._inner // PIECE)
            source = self._tensor.view(8).reshape(-1, 2)
            if inside.all():
                return source[pieces].reshape(len(where), -1, 2)
            pieces_read = source[np.where(inside[:, :, None], pieces, 0)]
            pieces_read[~inside] = 0
            return pieces_read.reshape(len(where), -1, 2)
        numbers, inside = self._elements(where)
        source = self._tensor.view(self.element_size)
        pieces_read = np.where(inside, source[np.where(inside, numbers, 0)], source.dtype.type(0))
        return pieces_read.reshape(len(where), -1).view(np.uint64).reshape(len(where), -1, 2)

    def write(self, memory: GlobalMemory, where: np.ndarray, data: np.ndarray) -> None:
        """Write tiles: the inverse of `read`. Elements outside of the tensor are written only to complete a piece.

        Raises MemoryFault if such a piece is past the end of memory.
        """
        numbers, inside = self._elements(where, self._map.stored_columns)
        target = self._tensor.view(self.element_size)
        places = numbers[inside]
        if places.size and (places.max() + 1) * self.element_size > self._tensor.size:
            raise MemoryFault(
                f"a tile is stored past the end of {self._tensor.name}: rows of {self._map.sizes[0]} elements end "
                f"within the {PIECE} bytes that the TMA unit stores at once; pad them to {self._map.stored_columns}"
            )
        values = np.ascontiguousarray(data).reshape(len(where), -1).view(target.dtype).reshape(numbers.shape)
        target[places] = values[inside]


class Line:
    """Contiguous bytes, which `cp.async.bulk` without a tensor map copies."""

    element_size = PIECE

    def __init__(self, size: int, instruction: Instruction) -> None:
        self.bytes = size
        self._instruction = instruction

    def piece_numbers(self, offsets: np.ndarray) -> np.ndarray:
        return offsets[:, None] // PIECE + np.arange(self.bytes // PIECE)

    def require_inside(self, machine: Machine, lanes: np.ndarray, addresses: np.ndarray) -> None:
        """Raise MemoryFault unless each copy is inside of a tensor."""
        for lane, address in zip(lanes, addresses, strict=True):
            if not any(tensor.holds(int(address), int(address), self.bytes) for tensor in machine.memory.tensors):
                raise MemoryFault(
                    f"{self._instruction.place}: {machine.describe_lane(int(lane))} copies {self.bytes} bytes "
                    f"{machine.memory.describe(int(address))}, which is out of bounds (address {int(address):#x})"
                )

    def addresses(self, memory: GlobalMemory, where: np.ndarray) -> np.ndarray:
        return (where + np.arange(0, self.bytes, PIECE)).ravel()

    def read(self, memory: GlobalMemory, where: np.ndarray) -> np.ndarray:
        return np.stack([self._words(memory, int(address)).copy() for (address,) in where])

    def write(self, memory: GlobalMemory, where: np.ndarray, data: np.ndarray) -> None:
        for (address,), words in zip(where, data, strict=True):
            self._words(memory, int(address))[:] = words

    def _words(self, memory: GlobalMemory, address: int) -> np.ndarray:
        """Return memory from this address on, (pieces, 2 words of 8 bytes)."""
        tensor = next(tensor for tensor in memory.tensors if tensor.holds(address, address, self.bytes))
        first = int(tensor.index(address, 8))
        return tensor.view(8)[first : first + self.bytes // 8].reshape(-1, 2)
