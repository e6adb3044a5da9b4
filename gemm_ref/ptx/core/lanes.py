"""The lanes of a machine: the threads of the blocks that it executes in lockstep, and the memory that they share.

PTX ISA, 2.2 (thread hierarchy) and 2.3 (memory hierarchy). x is the fastest dimension of a block and of a grid.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gemm_ref.launch import Launch
from gemm_ref.ptx.core.memory import SHARED_BASE, GlobalMemory, PerOwner
from gemm_ref.ptx.text.parser import Instruction


def coordinates(linear, extent: tuple[int, int, int]) -> tuple:
    """Return x, y and z of a linear index."""
    return linear % extent[0], linear // extent[0] % extent[1], linear // (extent[0] * extent[1])


class Lanes:
    """What observers may ask of a machine: its lanes, the active mask, the current instruction, and its memory."""

    def __init__(
        self,
        launch: Launch,
        blocks: np.ndarray,
        memory: GlobalMemory,
        shared_bytes: int,
        instructions: Sequence[Instruction],
    ) -> None:
        """blocks: linear numbers in the grid of the blocks that the machine executes."""
        self.launch = launch
        self.memory = memory
        self.instructions = instructions  # of the program
        self.lanes = len(blocks) * launch.threads  # the number of lanes
        self.every_lane = lane = np.arange(self.lanes)
        self.block_index = lane // launch.threads  # of each lane, among the blocks of this machine
        self.block_of_lane = blocks[self.block_index]  # linear, in the whole grid
        self.thread_of_lane = lane % launch.threads  # linear, in its block
        self.warp_of_lane = self.block_index * launch.num_warps + self.thread_of_lane // 32  # in the machine
        # Linear, in the whole grid; int32, as the detectors store it, since NumPy compares equal types faster.
        self.thread_in_grid = (self.block_of_lane * launch.threads + self.thread_of_lane).astype(np.int32)
        self.shared = PerOwner("shared memory", shared_bytes, self.block_index, len(blocks), SHARED_BASE)
        self.active: np.ndarray | None = None  # the lanes that execute the current instruction; None: all alive ones
        self.alive: np.ndarray | None = None  # the lanes that have not exited; None: all
        self.now = 0  # the place of the current instruction in the program

    @property
    def instruction(self) -> Instruction:
        """The instruction that is being executed."""
        return self.instructions[self.now]

    def access_mask(self, mask: np.ndarray | None) -> np.ndarray | None:
        """Return the lanes that really execute under `mask`, which ignores exited lanes; None for every lane."""
        if mask is None:
            mask = self.active
        if self.alive is None:
            return mask
        return self.alive if mask is None else mask & self.alive

    def lanes_of(self, mask: np.ndarray | None) -> np.ndarray:
        """Return `access_mask`, always as an array."""
        lanes = self.access_mask(mask)
        return np.ones(self.lanes, bool) if lanes is None else lanes

    def living(self) -> np.ndarray:
        """Return which lanes have not exited."""
        return np.ones(self.lanes, bool) if self.alive is None else self.alive

    def mask_of(self, numbers: np.ndarray) -> np.ndarray:
        """Return the mask of the lanes with these numbers."""
        mask = np.zeros(self.lanes, bool)
        mask[numbers] = True
        return mask

    def ballot(self, bits: np.ndarray) -> np.ndarray:
        """Return for each lane the 32 bits of its warp."""
        threads, warps = self.launch.threads, self.launch.num_warps
        votes = np.zeros((self.lanes // threads, 32 * warps), bool)
        votes[:, :threads] = bits.reshape(-1, threads)
        return np.packbits(votes, bitorder="little").view(np.uint32)[self.warp_of_lane]

    def describe_lane(self, lane: int) -> str:
        """Return `block (x, y, z) thread (x, y, z)`."""
        thread = coordinates(int(self.thread_of_lane[lane]), self.launch.block)
        return f"{self.describe_block(lane)} thread {thread}"

    def describe_block(self, lane: int) -> str:
        """Return `block (x, y, z)` of a lane."""
        return f"block {coordinates(int(self.block_of_lane[lane]), self.launch.grid)}"

    def describe_first(self, mask: np.ndarray) -> str:
        """Return `describe_lane` of the first lane of a mask."""
        return self.describe_lane(int(np.argmax(mask)))
