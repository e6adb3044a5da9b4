"""How a kernel's matrices are stored, and what it calls M, N and K: rows one after another, or columns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch

import gemm_ref
from experiments.records.request import UsageError

_BY_COLUMNS = {"A": "KxM", "B": "NxK", "C": "NxM"}
_BY_ROWS = {"A": "MxK", "B": "KxN", "C": "MxN"}


@dataclass(frozen=True)
class Layout:
    """`turned` names the matrices that are stored by columns; `axes` are the sizes that the kernel calls M, N and K."""

    turned: frozenset[str] = frozenset()
    axes: str = "MNK"

    def stored(self, name: str, matrix: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """The matrix as the kernel is given it; the same tensor where nothing differs."""
        if name in self.turned:
            matrix = matrix.T
        if matrix.dtype != dtype and not dtype.is_floating_point:
            matrix = matrix.double().nan_to_num(nan=-1.0e6)  # the poison of C, which no sum of the inputs reaches
            limits = torch.iinfo(dtype)
            matrix = matrix.clamp(limits.min, limits.max)
        return matrix.to(dtype).contiguous()

    def take_back(self, stored: torch.Tensor, c: torch.Tensor) -> None:
        """What the kernel left, into C."""
        if stored.data_ptr() != c.data_ptr():
            c.copy_(stored.T if "C" in self.turned else stored)

    def called(self, problem: gemm_ref.Problem) -> gemm_ref.Problem:
        """The sizes as the kernel calls them."""
        sizes = {"M": problem.m, "N": problem.n, "K": problem.k}
        m, n, k = (sizes[axis] for axis in self.axes)
        return problem.resized(m, n, k)

    def rows(self, problem: gemm_ref.Problem) -> dict[str, int]:
        """The length of a row of each matrix as it is stored."""
        long = {"A": problem.k, "B": problem.n, "C": problem.n}
        wide = {"A": problem.m, "B": problem.k, "C": problem.m}
        found = {f"LD{name}": (wide if name in self.turned else long)[name] for name in long}
        return found | {"LDD": found["LDC"]}

    def __str__(self) -> str:
        told = [f"{name} stored as {_BY_COLUMNS[name].replace('x', ' x ')}" for name in sorted(self.turned)]
        told += [f"its (M, N, K) being ({', '.join(self.axes)})"] if self.axes != "MNK" else []
        return " and ".join(told)

    @property
    def option(self) -> str:
        """As --layout has it."""
        return ",".join(f"{name}={_BY_COLUMNS[name]}" for name in sorted(self.turned))


def parse(text: str) -> Layout:
    """`B=NxK` or `A=KxM,B=NxK,C=NxM`. Raises UsageError."""
    turned = set()
    for part in text.split(",") if text else ():
        name, _, stored = part.replace(" ", "").partition("=")
        if stored not in (_BY_COLUMNS.get(name), _BY_ROWS.get(name)):
            raise UsageError(f"--layout {text!r}: write B=NxK, or A=KxM,B=NxK,C=NxM where all are stored by columns")
        if stored == _BY_COLUMNS[name]:
            turned.add(name)
    return Layout(frozenset(turned))


def others(layout: Layout, axes: bool) -> Iterator[Layout]:
    """Other layouts to try, the most common first; other orders of the sizes too if `axes`."""
    for names in ("B", "A", "ABC", "AB", "C", "BC", "AC"):
        if frozenset(names) != layout.turned:
            yield Layout(frozenset(names))
    for order in ("MKN", "NMK", "KNM", "NKM", "KMN") if axes else ():
        yield Layout(layout.turned, order)
