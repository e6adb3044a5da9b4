"""The matrices of a kernel: their element types, how they are stored, and which sizes it calls M, N and K."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch

import gemm_ref
from experiments.records.request import UsageError

TYPES: Mapping[str, torch.dtype] = {
    "float": torch.float32, "double": torch.float64, "half": torch.float16, "__half": torch.float16,
    "__nv_bfloat16": torch.bfloat16, "nv_bfloat16": torch.bfloat16, "int": torch.int32, "int32_t": torch.int32,
    "int8_t": torch.int8, "char": torch.int8, "signed char": torch.int8,
    "uint8_t": torch.uint8, "unsigned char": torch.uint8,
    "uint32_t": torch.int32, "unsigned": torch.int32, "unsigned int": torch.int32, "uint": torch.int32,
    "at::Half": torch.float16, "c10::Half": torch.float16,
    "at::BFloat16": torch.bfloat16, "c10::BFloat16": torch.bfloat16,
}  # fmt: skip
UNSIGNED = {"uint8_t", "unsigned char", "uint32_t", "unsigned", "unsigned int", "uint"}  # the same bits, no signs
# By the element type of A; others are compared in fp32: a wider type, and integers, which fp32 holds exactly.
_MATHS = {torch.float16: "fp16", torch.bfloat16: "bf16"}
_VECTOR = re.compile(r"(float|half|double|__nv_bfloat16|nv_bfloat16|__half)[248]$")
_BY_COLUMNS = {"A": "KxM", "B": "NxK", "C": "NxM"}
_BY_ROWS = {"A": "MxK", "B": "KxN", "C": "MxN"}


def element_type(type_: str, aliases: Mapping[str, str]) -> str:
    """Returns the element type of a pointer's, with typedefs and template parameters (`aliases`) resolved."""
    text = " ".join(re.sub(r"\b(?:const|volatile|struct)\b|[*&]", " ", type_).split())
    for _ in range(4):
        if text not in aliases:
            break
        text = " ".join(re.sub(r"\bconst\b", " ", aliases[text]).split())
    return _VECTOR.sub(r"\1", text.removeprefix("::"))


def type_aliases(source: str) -> dict[str, str]:
    """Returns the names of types that a source defines by `typedef`, `using` and `#define`."""
    found = dict((new, old.strip()) for old, new in re.findall(r"\btypedef\s+([\w:\s]+?)\s+(\w+)\s*;", source))
    found |= dict(re.findall(r"\busing\s+(\w+)\s*=\s*([\w:]+(?:\s+\w+)?)\s*;", source))
    macros = re.findall(r"^[ \t]*#[ \t]*define[ \t]+(\w+)[ \t]+([A-Za-z_][\w:]*(?:[ \t]+[a-z]+)?)[ \t]*$", source, re.M)
    return found | {name: old.strip() for name, old in macros}


def math_of(types: Mapping[str, torch.dtype]) -> str:
    """Returns the math mode for A, B and C of these types. Raises UsageError where A and B differ."""
    if types["A"] != types["B"]:
        raise UsageError(f"A is of {types['A']} and B of {types['B']}: they must be of one type")
    return _MATHS.get(types["A"], "fp32")


def dtype_of(kernel: str, name: str, type_: str) -> torch.dtype:
    """Raises UsageError for a type that is none of TYPES."""
    if type_ not in TYPES:
        raise UsageError(f"{name} of {kernel} has the type {type_}: there are {', '.join(TYPES)}")
    return TYPES[type_]


@dataclass(frozen=True)
class StorageOrder:
    """Which matrices are stored column-major, and the sizes that the kernel calls M, N and K."""

    by_columns: frozenset[str] = frozenset()
    axes: str = "MNK"

    def store(self, name: str, matrix: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """Returns the matrix as the kernel takes it; the same tensor where nothing differs."""
        if name in self.by_columns:
            matrix = matrix.T
        if matrix.dtype != dtype and not dtype.is_floating_point:
            matrix = matrix.double().nan_to_num(nan=-1.0e6)  # the poison of C, which no sum of the inputs reaches
            limits = torch.iinfo(dtype)
            matrix = matrix.clamp(limits.min, limits.max)
        return matrix.to(dtype).contiguous()

    def load(self, stored: torch.Tensor, c: torch.Tensor) -> None:
        """Copies what the kernel wrote into C."""
        if stored.data_ptr() != c.data_ptr():
            c.copy_(stored.T if "C" in self.by_columns else stored)

    def rename_sizes(self, problem: gemm_ref.Problem) -> gemm_ref.Problem:
        """Returns the sizes as the kernel calls them."""
        sizes = {"M": problem.m, "N": problem.n, "K": problem.k}
        m, n, k = (sizes[axis] for axis in self.axes)
        return problem.resized(m, n, k)

    def row_lengths(self, problem: gemm_ref.Problem) -> dict[str, int]:
        """Returns the length of a row of each matrix as it is stored, by LDA and so on."""
        long = {"A": problem.k, "B": problem.n, "C": problem.n}
        wide = {"A": problem.m, "B": problem.k, "C": problem.m}
        found = {f"LD{name}": (wide if name in self.by_columns else long)[name] for name in long}
        return found | {"LDD": found["LDC"]}

    def __str__(self) -> str:
        parts = [f"{name} stored as {_BY_COLUMNS[name].replace('x', ' x ')}" for name in sorted(self.by_columns)]
        parts += [f"its (M, N, K) being ({', '.join(self.axes)})"] if self.axes != "MNK" else []
        return " and ".join(parts)

    @property
    def option(self) -> str:
        """The value of --layout."""
        return ",".join(f"{name}={_BY_COLUMNS[name]}" for name in sorted(self.by_columns))

    def others(self, axes: bool) -> Iterator[StorageOrder]:
        """Yields other orders to try, the most common first; other orders of the sizes too if `axes`."""
        for names in ("B", "A", "ABC", "AB", "C", "BC", "AC"):
            if frozenset(names) != self.by_columns:
                yield StorageOrder(frozenset(names))
        for order in ("MKN", "NMK", "KNM", "NKM", "KMN") if axes else ():
            yield StorageOrder(self.by_columns, order)


def parse_layout(text: str) -> StorageOrder:
    """Parses `B=NxK` or `A=KxM,B=NxK,C=NxM`. Raises UsageError."""
    by_columns = set()
    for part in text.split(",") if text else ():
        name, _, stored = part.replace(" ", "").partition("=")
        if stored not in (_BY_COLUMNS.get(name), _BY_ROWS.get(name)):
            raise UsageError(f"--layout {text!r}: write B=NxK, or A=KxM,B=NxK,C=NxM where all are stored by columns")
        if stored == _BY_COLUMNS[name]:
            by_columns.add(name)
    return StorageOrder(frozenset(by_columns))
