"""mbarriers that a thread uses without knowing that they are initialised.

`mbarrier.init` is a write like any other: a barrier of the block, or of the cluster, must be between it and another
thread's use. Blocks of a cluster need a release of cluster scope besides, which `fence.mbarrier_init` is for inits
alone (PTX ISA, 9.7.13.4); in one block the barrier between the two is that already.
"""

from __future__ import annotations

import numpy as np

from gemm_ref.ptx.core.events import BarrierUse
from gemm_ref.ptx.core.lanes import Lanes
from gemm_ref.ptx.detect.finding import RACE, Scene
from gemm_ref.ptx.detect.happens_before import Order
from gemm_ref.ptx.detect.shadow import NOBODY

_UNORDERED = "and no barrier orders the two: put __syncthreads(), or a barrier of the cluster, between them"
_UNRELEASED = "and another block of the cluster may not see that yet: put fence.mbarrier_init after it"


class MBarrierFaults:
    """Watches the mbarriers of one machine, by their numbers."""

    def __init__(self, machine: Lanes, scene: Scene, order: Order) -> None:
        self._scene, self._order = scene, order
        self._per_block = max(machine.shared.stride // 8, 1)
        words = self._per_block * order.blocks
        self._thread = np.full(words, NOBODY, np.int64)  # who has initialised it, by number in the grid
        self._time = np.zeros(words, np.int32)
        self._instruction = np.zeros(words, np.int32)

    def on_mbarrier(self, use: BarrierUse) -> None:
        scene, order, lanes, numbers = self._scene, self._order, use.lanes, use.numbers
        threads = scene.threads(use.machine, lanes)
        if use.initialises:
            self._thread[numbers], self._time[numbers] = threads, order.now
            self._instruction[numbers] = scene.number(use.instruction)
            return
        first, time = self._thread[numbers], self._time[numbers]
        others = (first != NOBODY) & (first != threads)
        unordered = others & order.concurrent(lanes, first, time)
        blocks = numbers // self._per_block
        remote = others & (blocks != use.machine.block_index[lanes])
        self._report(use, threads, unordered, _UNORDERED)
        self._report(use, threads, remote & ~unordered & (time >= order.released[blocks]), _UNRELEASED)

    def _report(self, use: BarrierUse, threads: np.ndarray, wrong: np.ndarray, why: str) -> None:
        if not wrong.any():
            return
        scene, at = self._scene, int(np.argmax(wrong))
        number = int(use.numbers[at])
        there = scene.instructions[self._instruction[number]]
        first, name = self._thread[number], scene.describe_shared(number % self._per_block * 8)
        text = (
            f"uses the mbarrier at {name}, which {scene.describe_thread(first, threads[at])} initialises at "
            f"{there.line_seen_from(use.instruction)}, {why}"
        )
        scene.report(RACE, use.instruction, threads[at], text, first, there, int(wrong.sum()))
