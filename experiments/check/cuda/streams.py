"""Races between launches: what each accesses, and which of them nothing orders (CUDA programming guide, 'Streams')."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from experiments.check.subject import RACE_OF_LAUNCHES
from gemm_ref import ptx

_DEFAULT_STREAM = "0"
_INPUTS = ("A", "B")  # matrices that no launch writes to


class Order:
    """Which launches have ended when another begins (CUDA programming guide, 'Streams', 'Implicit Synchronization')."""

    def __init__(self) -> None:
        self._ended: set[int] = set()  # for the host, and so for all that it launches from now on
        self._behind: dict[str, set[int]] = {}  # by stream or event: the launches that the next one there waits for
        self._nonblocking: set[str] = set()  # streams that do not wait for the default stream, nor it for them

    def start(self, index: int, stream: str) -> frozenset[int]:
        """Adds a launch, and returns those that have ended before it."""
        others = self._behind.keys() - self._nonblocking if stream == _DEFAULT_STREAM else {_DEFAULT_STREAM}
        waits = set() if stream in self._nonblocking else others
        before = self._ended.union(*(self._behind.get(each, set()) for each in {stream, *waits}))
        self._behind[stream] = before | {index}
        return frozenset(before)

    def read(self, kind: str, words: Sequence[str]) -> None:
        stream, event, *_ = (*words, "", "")
        if kind == "nonblocking":
            self._nonblocking.add(stream)
        elif kind == "record":
            self._behind[event] = set(self._behind.get(stream, ()))
        elif kind == "await":
            self._behind[stream] = self._behind.get(stream, set()) | self._behind.get(event, set())
        elif kind == "join":
            self._ended |= self._behind.get(stream if event == "0" else event, set())
        elif kind == "wait":
            self._ended = self._ended.union(*self._behind.values())


class Streams(ptx.Observer):
    """Collects the addresses that each of several launches accesses, those of A and B excepted."""

    def __init__(self) -> None:
        self._tensors: list = []  # of the launch that runs
        self._launches: list[list[tuple[ptx.Access | ptx.BulkAccess, np.ndarray]]] = []

    def on_launch(self, kernel, launch, memory) -> None:
        self._tensors = [tensor for tensor in memory.tensors if tensor.name not in _INPUTS]
        self._launches.append([])

    def on_access(self, access: ptx.Access) -> None:
        if access.space == "global":
            lanes = slice(None) if access.lanes is None or access.addresses.ndim == 0 else access.lanes
            self._add(access, np.atleast_1d(access.addresses)[lanes])

    def on_bulk(self, access: ptx.BulkAccess) -> None:
        if access.space == "global" and access.started:
            self._add(access, access.addresses)

    def _add(self, access: ptx.Access | ptx.BulkAccess, addresses: np.ndarray) -> None:
        for tensor in self._tensors:
            inside = addresses[(addresses >= tensor.first) & (addresses < tensor.first + tensor.size)]
            if inside.size:  # each launch sees a tensor at an address of its own
                self._launches[-1].append((access, np.unique(inside - tensor.first + tensor.owner.data_ptr())))

    def require_order(self, after: Sequence[frozenset[int]], c: torch.Tensor) -> None:
        """Raises PtxError for two launches that may overlap where one writes an element that the other accesses.

        after: for each launch those before it that have ended.
        """
        for late, ended in enumerate(after):
            for early in sorted({*range(late)} - ended):
                for one, its_places in self._launches[early]:
                    for other, places in self._launches[late]:
                        if "load" == one.kind == other.kind or one.kind == other.kind == "atomic":
                            continue
                        common = np.intersect1d(its_places, places, assume_unique=True)
                        if common.size:
                            raise ptx.PtxError(_describe(early, one, late, other, common, c))


def _describe(early: int, one, late: int, other, common: np.ndarray, c: torch.Tensor) -> str:
    index = (int(common[0]) - c.data_ptr()) // c.element_size()
    inside = c.ndim == 2 and 0 <= index < c.numel()
    what = f"C[{index // c.shape[1]}, {index % c.shape[1]}]" if inside else "the same memory"
    verbs = ["reads" if each.kind == "load" else "writes" for each in (one, other)]
    return (
        f"{other.instruction.file}:{other.instruction.line}: {RACE_OF_LAUNCHES}: launch {late + 1} {verbs[1]} {what}, "
        f"which launch {early + 1} {verbs[0]} at line {one.instruction.line}, and they are on streams that nothing "
        f"orders ({common.size} elements): let the second stream wait for an event that the first one records"
    )
