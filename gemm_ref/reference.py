"""The oracle: the product in float64, and the scale that its error bound grows with."""

from __future__ import annotations

from functools import cached_property

import torch

from gemm_ref.call.validate import check_shapes

_CHUNK_ELEMENTS = 1 << 25  # of A converted to float64 at a time: 256 MiB
_CPU_MOST_PRODUCTS = 1 << 34  # past this many a GPU computes its oracle itself: seconds instead of minutes


def gemm(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """A @ B in float64 on the CPU: a (M, K), b (K, N) of any real dtype and device; returns (M, N) float64.

    Raises ValueError unless they are matrices whose inner sizes agree.
    """
    return Oracle(a, b).product


class Oracle:
    """A @ B, |A| @ |B| and the sums of squared products in float64, each computed once, when first asked for.

    |A| @ |B| is what the rounding errors of any order of summation are bounded by (Higham, Accuracy and
    Stability of Numerical Algorithms, 2nd ed., section 3.1).
    """

    def __init__(self, a: torch.Tensor, b: torch.Tensor) -> None:
        check_shapes(a, b)
        self.a, self.b = a.detach().cpu(), b.detach().cpu()
        self.k = a.shape[1]
        self.shape = (a.shape[0], b.shape[1])
        self._placed: dict[tuple[str, torch.device], torch.Tensor] = {}

    def on(self, device: torch.device, name: str) -> torch.Tensor:
        """`product`, `scale` or `squares`, by name, on a device: put there once, since many kernels share an oracle.

        A GPU is given the CPU's result; only past 2**34 products does it compute its own, likewise in float64.
        """
        key = (name, device)
        if key not in self._placed:
            large = device.type != "cpu" and self.shape[0] * self.shape[1] * self.k > _CPU_MOST_PRODUCTS
            self._placed[key] = self._product(name, device) if large else getattr(self, name).to(device)
        return self._placed[key]

    @cached_property
    def product(self) -> torch.Tensor:
        """A @ B, (M, N) float64, on the CPU."""
        return self._product("product", torch.device("cpu"))

    @cached_property
    def scale(self) -> torch.Tensor:
        """|A| @ |B|, (M, N) float64, on the CPU."""
        return self._product("scale", torch.device("cpu"))

    @cached_property
    def squares(self) -> torch.Tensor:
        """The sum of the squares of each element's products, (M, N) float64, on the CPU."""
        return self._product("squares", torch.device("cpu"))

    def _product(self, name: str, device: torch.device) -> torch.Tensor:
        def convert(x: torch.Tensor) -> torch.Tensor:
            x = x.to(device).double()
            return x.abs() if name == "scale" else x.square() if name == "squares" else x

        b = convert(self.b)
        rows = max(1, _CHUNK_ELEMENTS // max(1, self.k))  # so that a 17 GB operand is never whole in float64
        out = torch.empty(self.shape, dtype=torch.float64, device=device)
        for first in range(0, self.shape[0], rows):
            torch.mm(convert(self.a[first : first + rows]), b, out=out[first : first + rows])
        return out
