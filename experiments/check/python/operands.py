"""The forms of A and B that a function may take: types, storage, and shapes of factors that change nothing."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch

import gemm_ref
from experiments.check.cuda.parameters import StorageOrder
from gemm_ref.inputs import aligned
from gemm_ref.launch import cdiv


@dataclass(frozen=True)
class Elements:
    """The types of A and B, and of C where the caller makes it."""

    name: str
    pattern: str  # of its names in torch
    a: torch.dtype
    b: torch.dtype
    c: torch.dtype
    math: str  # in which the result is compared, unless C's type determines another

    @property
    def is_integer(self) -> bool:
        """Whether some have no fractions."""
        return torch.int8 in (self.a, self.b)

    def compared_as(self, made: torch.dtype | None) -> str:
        """Returns the math mode for a C of this type, if the function allocates it."""
        halves = {torch.float16: "fp16", torch.bfloat16: "bf16"}
        return halves.get(made, self.math) if self.is_integer and made else self.math


def _plain(math: str, pattern: str) -> Elements:
    mode = gemm_ref.MATHS[math]
    return Elements(math, pattern, mode.dtype, mode.dtype, mode.out_dtype, math)


_HALF, _BFLOAT = r"torch\.(float16|half)\b|\.half\(\)|tl\.float16", r"torch\.bfloat16\b|\.bfloat16\(\)|tl\.bfloat16"
_ELEMENTS = (
    _plain("fp16", _HALF),
    _plain("bf16", _BFLOAT),
    _plain("fp32", r"torch\.float(32)?\b|\.float\(\)|pointer_type\(tl\.float32"),
    _plain("fp8", r"torch\.float8_e4m3fn\b|tl\.float8e4nv\b|\bfp8\b"),
    # Integers are compared as fp32 numbers, which hold them exactly.
    Elements("int8", r"\bint8\b", torch.int8, torch.int8, torch.int32, "fp32"),
    Elements("int8 to fp16", r"$^", torch.int8, torch.int8, torch.float16, "fp16"),
    Elements("fp16 and int8", r"$^", torch.float16, torch.int8, torch.float16, "fp16"),
    Elements("bf16 and int8", r"$^", torch.bfloat16, torch.int8, torch.bfloat16, "bf16"),
)
_BY_COLUMNS = (("", "B"), ("A", "AB"))  # matrices that are stored column-major, likely ones first
_BLOCK = 128  # of elements that share a factor, in most files
# The shapes of the factors of A and B, by M, N and K.
FACTORS: tuple[Callable[[int, int, int], tuple[tuple[int, ...], tuple[int, ...]]], ...] = (
    lambda m, n, k: ((m,), (n,)),
    lambda m, n, k: ((1,), (n,)),
    lambda m, n, k: ((n,), (m,)),
    lambda m, n, k: ((m, 1), (1, n)),
    lambda m, n, k: ((m, 1), (n, 1)),
    lambda m, n, k: ((1,), (1,)),
    lambda m, n, k: ((), ()),
    lambda m, n, k: ((m, k), (k, n)),  # of a row, of a block, or of all: as it likes
    lambda m, n, k: ((m, cdiv(k, _BLOCK)), (cdiv(n, _BLOCK), cdiv(k, _BLOCK))),
    lambda m, n, k: ((m, cdiv(k, _BLOCK)), (cdiv(k, _BLOCK), cdiv(n, _BLOCK))),
)
_FIRST_OF_BLOCKS = 8  # the first with a factor for each block


@dataclass(frozen=True)
class Form:
    """One way of passing A, B, C and their sizes."""

    elements: Elements
    factors: int = 0  # which of FACTORS
    storage: StorageOrder = StorageOrder()
    batched: bool = False  # as batches of one matrix

    def passed(self, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> list[torch.Tensor]:
        """Returns A (M, K), B (K, N) and C (M, N) in its types, as stored; the same tensor where nothing differs."""
        own = self.elements
        types = (own.a, own.b, own.c) if own.is_integer else (a.dtype, b.dtype, c.dtype)
        given = [(x, self.storage.store(name, x, kind)) for name, x, kind in zip("ABC", (a, b, c), types, strict=True)]
        return [x if x is stored else aligned(stored) for x, stored in given]


def forms(text: str, name: str, math: str, factors: bool) -> Iterator[Form]:
    """Yields the forms to try, likely ones first: with the types that a file names most.

    A type in `name` comes before those, unless the file has others alone. text: of the file; name: its own and the
    function's; math: of --math, or empty; factors: whether it takes some.
    """
    count = {each: len(re.findall(each.pattern, text)) for each in _ELEMENTS}
    # A function with factors most likely has operands of few bits; the factors themselves are fp32.
    few = {each: factors * (each.name == "fp32") - factors * (each.name in ("int8", "fp8")) for each in _ELEMENTS}
    named = {each: _named(each, name) and bool(count[each] or not any(count.values())) for each in _ELEMENTS}
    ordered = sorted(count, key=lambda e: (not named[e], few[e] if count[e] else 0, -count[e], e.math != "fp32"))
    chosen = [each for each in ordered if not math or each.name == math or each.math == math and each.is_integer]
    if math and not chosen:  # such as tf32, which is another arithmetic of the same elements
        chosen = [_plain(math, "")]
    shapes = list(range(len(FACTORS))) if factors else [0]
    if re.search("block|group", name, re.I):
        shapes = sorted(shapes, key=lambda each: each < _FIRST_OF_BLOCKS)
    for elements, stored, shape, batched in itertools.product(chosen, _BY_COLUMNS, shapes, (False, True)):
        for names in stored:
            yield Form(elements, shape, StorageOrder(frozenset(names)), batched)


def _named(elements: Elements, name: str) -> bool:
    of_int8 = elements.name == "int8" and re.search(r"(^|_)(int|i8|a8w8|w8a8)(_|$)", name)
    return elements.name in name or bool(of_int8)
