"""What a function takes for A and B: their types, how they are stored, and shapes of factors that change nothing."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch

import gemm_ref
from gemm_ref.inputs import aligned


@dataclass(frozen=True)
class Elements:
    """The types of A and B, and of C where the caller makes it."""

    name: str
    pattern: str  # of the words of torch for it
    a: torch.dtype
    b: torch.dtype
    c: torch.dtype
    math: str  # by which the result is judged, unless its type says another

    @property
    def whole(self) -> bool:
        """Whether some have no fractions."""
        return torch.int8 in (self.a, self.b)

    def judged_by(self, made: torch.dtype | None) -> str:
        """The math mode for a C of this type, if it was the function that made it."""
        halves = {torch.float16: "fp16", torch.bfloat16: "bf16"}
        return halves.get(made, self.math) if self.whole and made else self.math


def _plain(math: str, pattern: str) -> Elements:
    mode = gemm_ref.MATHS[math]
    return Elements(math, pattern, mode.dtype, mode.dtype, mode.out_dtype, math)


_HALF, _BFLOAT = r"torch\.(float16|half)\b|\.half\(\)|tl\.float16", r"torch\.bfloat16\b|\.bfloat16\(\)|tl\.bfloat16"
_ELEMENTS = (
    _plain("fp16", _HALF),
    _plain("bf16", _BFLOAT),
    _plain("fp32", r"torch\.float(32)?\b|\.float\(\)"),
    _plain("fp8", r"torch\.float8_e4m3fn\b|\bfp8\b"),
    # Integers are judged as the fp32 numbers that they are.
    Elements("int8", r"\bint8\b", torch.int8, torch.int8, torch.int32, "fp32"),
    Elements("int8 to fp16", r"$^", torch.int8, torch.int8, torch.float16, "fp16"),
    Elements("fp16 and int8", r"$^", torch.float16, torch.int8, torch.float16, "fp16"),
    Elements("bf16 and int8", r"$^", torch.bfloat16, torch.int8, torch.bfloat16, "bf16"),
)
_BLOCK = 128  # of elements that share a factor, in most files
# The shapes of the factors of A and B, by M, N and K.
_FACTORS: tuple[Callable[[int, int, int], tuple[tuple[int, ...], tuple[int, ...]]], ...] = (
    lambda m, n, k: ((m,), (n,)),
    lambda m, n, k: ((1,), (n,)),
    lambda m, n, k: ((m, 1), (1, n)),
    lambda m, n, k: ((m, 1), (n, 1)),
    lambda m, n, k: ((1,), (1,)),
    lambda m, n, k: ((), ()),
    lambda m, n, k: ((m, k), (k, n)),  # of a row, of a block, or of all: as it likes
    lambda m, n, k: ((m, -(-k // _BLOCK)), (-(-n // _BLOCK), -(-k // _BLOCK))),
    lambda m, n, k: ((m, -(-k // _BLOCK)), (-(-k // _BLOCK), -(-n // _BLOCK))),
)
_OF_BLOCKS = 7  # the first whose elements are those of blocks


@dataclass(frozen=True)
class Form:
    """One way of passing A and B."""

    elements: Elements
    factors: int = 0  # which of _FACTORS
    turned: bool = False  # B is taken as N x K
    batched: bool = False  # they are taken as batches, of which there is one

    @property
    def notes(self) -> list[str]:
        """What a user should know of it."""
        stored = "B is passed as it takes it, as N x K"
        batch = f"it takes batches of matrices{', and B as N x K' if self.turned else ''}: it is given a batch of one"
        return [batch] if self.batched else [stored] if self.turned else []

    def passed(
        self, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """a (M, K), b (K, N) and c (M, N) in its types, B as it is stored."""
        types = self.elements
        b = aligned(b.t().contiguous()) if self.turned else b
        if not types.whole:
            return a, b, c
        return aligned(a.to(types.a)), aligned(b.to(types.b)), aligned(c.to(types.c))

    def factor_shapes(self, m: int, n: int, k: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Of A's and B's."""
        return _FACTORS[self.factors](m, n, k)

    def shaped(self, x: torch.Tensor) -> torch.Tensor:
        """A matrix as it is passed."""
        return x[None] if self.batched else x


def forms(text: str, name: str, wanted: str, factors: bool) -> Iterator[Form]:
    """The forms to try, likely ones first: with the types that a file names most, or that `name` does.

    text: of the file; name: its own and the function's; wanted: the math mode that the user wants, or empty; factors:
    whether it takes some.
    """
    count = {each: len(re.findall(each.pattern, text)) for each in _ELEMENTS}
    # Who takes factors has operands of few bits, more likely than not; the factors themselves are fp32.
    few = {each: factors * (each.name == "fp32") - factors * (each.name in ("int8", "fp8")) for each in _ELEMENTS}
    ordered = sorted(count, key=lambda e: (not _named(e, name), few[e] if count[e] else 0, -count[e], e.math != "fp32"))
    chosen = [each for each in ordered if not wanted or each.name == wanted or each.math == wanted and each.whole]
    if wanted and not chosen:  # such as tf32, which is another arithmetic of the same elements
        chosen = [_plain(wanted, "")]
    shapes = list(range(len(_FACTORS))) if factors else [0]
    if re.search("block|group", name, re.I):
        shapes = sorted(shapes, key=lambda each: each < _OF_BLOCKS)
    for elements, shape in itertools.product(chosen, shapes):
        for batched, turned in itertools.product((False, True), (False, True)):
            yield Form(elements, shape, turned, batched)


def _named(elements: Elements, name: str) -> bool:
    return (
        elements.name in name
        or elements.name == "int8"
        and re.search(r"(^|_)(int|i8|a8w8|w8a8)(_|$)", name) is not None
    )
