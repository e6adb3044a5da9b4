"""Tensor maps, as `cuTensorMapEncodeTiled` of the CUDA driver makes them for bulk copies of tiles (PTX ISA, 5.5.8).

    a = torch.zeros(256, 512, dtype=torch.bfloat16)
    ptx.run(kernel, launch, [ptx.TensorMap(a, box=(64, 128), swizzle=128), ...])

Sizes, strides and boxes are in the driver's order, the innermost dimension first: this box is 128 rows of 64 elements.
The rules and their numbers are those of the CUDA driver API, 'Tensor Map Object Management'.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch

from gemm_ref.launch import round_up

SWIZZLES = (0, 32, 64, 128)  # bytes of the span in which 16-byte pieces change places; 0 for none
MAX_RANK = 5
MAX_SIZE = 1 << 32  # elements along a dimension
MAX_STRIDE = 1 << 40  # bytes, exclusive
MAX_BOX = 256  # elements along a dimension
ALIGNMENT = 16  # bytes, of the tensor and its strides
PIECE = 16  # bytes that the unit stores at once


class TensorMap:
    """A tensor on the CPU as bulk copies see it; the value of a `const __grid_constant__ CUtensorMap` parameter.

    tensor: its first element is the map's, its dtype the element type. box: elements of a tile along each dimension.
    swizzle: one of SWIZZLES. sizes, strides: elements along each dimension, and bytes from one index to the next of
    each but the innermost; left out, those of `tensor`. Elements outside of `sizes` are read as zeros, and not written,
    but that a store ends the PIECE bytes of a row that it begins (on an H200, of a row of one bf16, 8 are stored).
    to_tf32: copies into shared memory round float32 to tf32, to nearest and ties to even, as an H200 does with
    CU_TENSOR_MAP_DATA_TYPE_TFLOAT32 (measured: the manuals do not say how it rounds).
    Raises ValueError for what the driver would refuse, naming the rule, and where the map would leave the tensor.
    """

    def __init__(
        self,
        tensor: torch.Tensor,
        box: Sequence[int],
        swizzle: int = 0,
        sizes: Sequence[int] | None = None,
        strides: Sequence[int] | None = None,
        to_tf32: bool = False,
    ) -> None:
        if tensor.device.type != "cpu":
            raise ValueError(f"a TensorMap takes a tensor on the CPU, and this one is on {tensor.device}")
        sizes = tuple(int(size) for size in sizes or reversed(tensor.shape))
        if strides is None:
            if len(sizes) != tensor.dim() or (tensor.dim() and tensor.stride(-1) != 1 and tensor.shape[-1] != 1):
                raise ValueError(
                    f"a tensor of shape {tuple(tensor.shape)} and strides {tensor.stride()} does not fit a map of "
                    f"sizes {sizes}, whose innermost elements are neighbours: give strides in bytes"
                )
            strides = [stride * tensor.element_size() for stride in reversed(tensor.stride()[:-1])]
        self.tensor, self.swizzle, self.to_tf32 = tensor, swizzle, to_tf32
        self.box, self.sizes = tuple(int(size) for size in box), sizes
        self.strides = tuple(int(stride) for stride in strides)
        self._check()

    @property
    def element_size(self) -> int:
        """Bytes of an element."""
        return self.tensor.element_size()

    @property
    def box_bytes(self) -> int:
        """Bytes of a tile, by which its copy decreases a transaction count, even at the tensor's edges."""
        return self.element_size * math.prod(self.box)

    @property
    def span(self) -> int:
        """Bytes of the tensor from its first element that the map can reach."""
        steps = (self.element_size, *self.strides)
        return sum((size - 1) * step for size, step in zip(self.sizes, steps, strict=True)) + self.element_size

    @property
    def stored_columns(self) -> int:
        """Elements of a row that a store may write: whole pieces."""
        return round_up(self.sizes[0], PIECE // self.element_size)

    def _check(self) -> None:
        rank, item, inner = len(self.sizes), self.element_size, self.box[0] * self.element_size if self.box else 0
        faults = [
            (not 1 <= rank <= MAX_RANK, f"a tensor map has 1 to {MAX_RANK} dimensions, not {rank}"),
            (len(self.strides) != rank - 1, f"{rank} dimensions have {rank - 1} strides (none for the innermost), not "
             f"{len(self.strides)}"),
            (len(self.box) != rank, f"a box of {len(self.box)} dimensions in a tensor of {rank}"),
            (any(not 1 <= size <= MAX_SIZE for size in self.sizes), f"sizes are 1 to 2^32 elements, not {self.sizes}"),
            (any(not 1 <= size <= MAX_BOX for size in self.box), f"a box has 1 to {MAX_BOX} elements along each "
             f"dimension, not {self.box}: split the tile into several copies"),
            (self.swizzle not in SWIZZLES, f"swizzle is one of {SWIZZLES} bytes, not {self.swizzle}"),
            (any(stride % ALIGNMENT for stride in self.strides), f"strides are multiples of {ALIGNMENT} bytes, not "
             f"{self.strides}: pad the rows"),
            (any(not 0 <= stride < MAX_STRIDE for stride in self.strides), f"strides are less than 2^40 bytes, not "
             f"{self.strides}"),
            (self.tensor.data_ptr() % ALIGNMENT, f"the tensor starts at {self.tensor.data_ptr():#x}, which is not at a "
             f"multiple of {ALIGNMENT} bytes: copy it, or start at another element"),
            (inner % ALIGNMENT, f"the innermost dimension of a box is a multiple of {ALIGNMENT} bytes, not {inner} "
             f"({self.box[0] if self.box else 0} elements of {item})"),
            (self.swizzle and inner > self.swizzle, f"the innermost dimension of a box is at most the swizzle's "
             f"{self.swizzle} bytes, not {inner}: split the tile into several copies"),
            (self.to_tf32 and self.tensor.dtype != torch.float32, f"only float32 can be rounded to tf32, not "
             f"{self.tensor.dtype}"),
        ]  # fmt: skip
        for wrong, message in faults:
            if wrong:
                raise ValueError(f"{message} (cuTensorMapEncodeTiled)")
        if self.span > self._available_bytes:
            raise ValueError(
                f"sizes {self.sizes} with strides {self.strides} reach {self.span} bytes from the tensor's first "
                f"element, and its memory has {self._available_bytes}"
            )

    @property
    def _available_bytes(self) -> int:
        """Bytes of the tensor's memory from its first element on."""
        return self.tensor.untyped_storage().nbytes() - self.tensor.storage_offset() * self.element_size

    def reached(self) -> np.ndarray:
        """Return for each element of `memory()` whether the map reaches it; it does not reach the padding of rows."""
        numbers = np.zeros(1, np.int64)
        for size, step in zip(self.sizes, (self.element_size, *self.strides), strict=True):
            numbers = (numbers[:, None] + np.arange(size) * step).ravel()
        reached = np.zeros(self.memory().numel(), bool)
        reached[numbers // self.element_size] = True
        return reached

    def memory(self) -> torch.Tensor:
        """Return the memory that the map reaches and may store to: the tensor itself if it is contiguous.

        It ends where the memory of the tensor ends, even if a store would write past that.
        """
        past = (self.stored_columns - self.sizes[0]) * self.element_size
        if not past and self.tensor.is_contiguous() and self.span <= self.tensor.numel() * self.element_size:
            return self.tensor
        return self.tensor.detach().as_strided(
            (min(self.span + past, self._available_bytes) // self.element_size,), (1,)
        )
