"""The epilogue: what is done to a product before it is rounded to C's dtype, in one place for all who compute it.

    result = activation(alpha * scale_a * scale_b * (A @ B) + beta * c + bias)

all of it in fp32. `Extras` is what a call gives for that, `Epilogue` what a kernel is compiled for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import torch

# As torch calls them: `gelu` is x * Phi(x), Phi of the normal distribution, `gelu_tanh` what torch approximates it by.
ACTIVATIONS = ("relu", "gelu", "gelu_tanh", "silu")
BIASES = ("as_c", "fp32")  # how a bias is stored: as the elements of C, or in fp32
EXACT = (None, "relu")  # activations that give integers for integers


@dataclass(frozen=True)
class Epilogue:
    """What a kernel is compiled for: alpha and beta are values of a call, and that there is a c or an alpha is not.

    `Epilogue()` is that of a plain product, which is multiplied by the scales of fp8 alone.
    """

    activation: str = ""  # of ACTIVATIONS
    bias: str = ""  # of BIASES
    bias_by_rows: bool = False  # a number for each row of C, as a call of C^T has it, and not for each column
    adds_c: bool = False
    has_alpha: bool = False  # another than 1

    def constants(self) -> dict[str, str | int]:
        """By the names that kernels have for them."""
        return {
            "ACTIVATION": self.activation or "none",
            "BIAS": self.bias or "none",
            "BIAS_BY_ROWS": int(self.bias_by_rows),
            "ADDS_C": int(self.adds_c),
            "HAS_ALPHA": int(self.has_alpha),
        }

    def __bool__(self) -> bool:
        return self != Epilogue()

    def __str__(self) -> str:
        bias = f"bias_{self.bias}{'_by_rows' if self.bias_by_rows else ''}" if self.bias else ""
        named = ("alpha" if self.has_alpha else "", "c" if self.adds_c else "", bias, self.activation)
        return "_".join(filter(None, named))


class Extras(NamedTuple):
    """What a call gives beside A and B. Without any of it the product stays as it is."""

    scale_a: torch.Tensor | None = None  # one fp32 element; of fp8 alone
    scale_b: torch.Tensor | None = None
    bias: torch.Tensor | None = None  # (N,), added to every row; in C's dtype or in fp32
    activation: str | None = None  # of ACTIVATIONS
    c: torch.Tensor | None = None  # (M, N), in C's dtype
    alpha: float = 1.0
    beta: float | None = None  # None is 1 where there is a c, as for torch.addmm, and 0 where there is none

    @property
    def has_epilogue(self) -> bool:
        """Whether the call asks for more than the scales."""
        return self.alpha != 1.0 or any(x is not None for x in (self.bias, self.activation, self.c))

    @property
    def specified(self) -> dict[str, Any]:
        """The arguments that the call specifies, by name."""
        return {name: x for name, x in self._asdict().items() if x is not self._field_defaults[name]}

    def epilogue(self, out_dtype: torch.dtype, by_rows: bool = False) -> Epilogue:
        """What the kernel must be compiled for, by C's dtype; alpha and beta are numbers."""
        bias = "" if self.bias is None else BIASES[self.bias.dtype != out_dtype]
        rows = by_rows and bool(bias)
        return Epilogue(self.activation or "", bias, rows, bool(self.c is not None and self.beta), self.alpha != 1.0)

    def transpose(self) -> Extras:
        """The extras of C^T = B^T @ A^T, to which the bias is added by rows."""
        return self._replace(scale_a=self.scale_b, scale_b=self.scale_a, c=None if self.c is None else self.c.t())


def terms(product: torch.Tensor, extras: Extras, by_rows: bool = False) -> list[torch.Tensor]:
    """What is added up before the activation, in the dtype of the product (M, N): the first is the product's."""
    scaled = product * extras.alpha
    for scale in (extras.scale_a, extras.scale_b):
        scaled = scaled if scale is None else scaled * scale.to(product)
    found = [scaled]
    if extras.c is not None and extras.beta != 0:  # as in BLAS, c may be anything where beta is 0
        found.append(extras.c.to(product) * (1.0 if extras.beta is None else extras.beta))
    if extras.bias is not None:
        found.append(extras.bias.to(product)[:, None] if by_rows else extras.bias.to(product))
    return found


def activate(x: torch.Tensor, activation: str | None) -> torch.Tensor:
    """One of ACTIVATIONS, or None, of every element, in x's own dtype."""
    from torch.nn import functional

    known: dict[str | None, Callable[[torch.Tensor], torch.Tensor]] = {
        None: lambda x: x,
        "relu": functional.relu,
        "gelu": functional.gelu,
        "gelu_tanh": lambda x: functional.gelu(x, approximate="tanh"),
        "silu": functional.silu,
    }
    return known[activation](x)


def apply(product: torch.Tensor, extras: Extras, by_rows: bool = False) -> torch.Tensor:
    """What becomes of the product (M, N), in its own dtype."""
    return activate(sum(terms(product, extras, by_rows)), extras.activation)
