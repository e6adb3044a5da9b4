"""The oracle: the product in float64, the scale that its error bound grows with, and two sharper bounds.

Each of the two says where it holds, since the worst case (`gemm_ref.compute.ComputeType`) holds everywhere: sums of
integers are exact, and sums of products of either sign stay small.
"""

from __future__ import annotations

import math
from functools import cached_property

import torch

from gemm_ref.call.validate import check_shapes
from gemm_ref.compute import ComputeType

_CHUNK_ELEMENTS = 1 << 25  # of A converted to float64 at a time: 256 MiB
_CPU_MOST_PRODUCTS = 1 << 34  # past this many a GPU computes its oracle itself: seconds instead of minutes
_CONVERTED_ROWS = 1024  # of A that take a CPU about as long as the conversion of B to float64
FALSE_ALARM = 1e-10  # probability per call that a sound kernel exceeds the bound of likely sums
MAX_LIKELY_PRODUCTS = 2**40  # of a problem whose bound of likely sums is computed: a third product in float64
_MAX_INTEGER = 2**8  # in magnitude, that every part and every reduced operand holds
_MAX_EXAMINED = 16  # elements, those furthest outside of their bound
_BLOCKS, _STRIDES = (1, 8, 16, 32, 64, 128), (1, 2, 4, 8, 16, 32)  # of products, in which kernels add them up


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

        A GPU is given the CPU's result; past 2**34 products, with B's conversion, it computes its own in float64.
        """
        key = (name, device)
        if key not in self._placed:
            products = (self.shape[0] + _CONVERTED_ROWS) * self.shape[1] * self.k
            large = device.type != "cpu" and products > _CPU_MOST_PRODUCTS
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


def sums_exactly(a: torch.Tensor, b: torch.Tensor, mode: ComputeType, scale: torch.Tensor) -> bool:
    """Returns whether A and B hold integers whose sums need no rounding; scale: |A| @ |B|, which no sum exceeds."""
    if not (_are_integers(a) and _are_integers(b)) or not scale.numel() or scale.max() > mode.exact_sum:
        return False
    largest = max((float(x.abs().max()) for x in (a.double(), b.double()) if x.numel()), default=0.0)
    return largest <= _MAX_INTEGER or not mode.operand_eps


def _are_integers(x: torch.Tensor) -> bool:
    """Most matrices differ in their first row already."""
    parts = (part if part.itemsize >= 4 else part.float() for part in (x[:1], x))
    return all(torch.equal(part, part.round()) for part in parts)


class LikelySums:
    """The bound of the sums of a call whose products have independent random signs, and whether they have.

    Let p_k be the products of an element, Q the sum of their squares, and s_n the partial sums of a kernel, whose order
    does not depend on the values. A kernel is sound if its n-th addition loses at most e_n * max(|s_n|, max |p_k|),
    where all e_n add up to K * sum_eps / 2 (`gemm_ref.compute`); rounding may have any direction, and tensor cores have
    one. No |p_k| exceeds sqrt(Q). If the signs of the p_k are independent and fair, each s_n is a Rademacher sum, so by
    Khinchine's inequality (constants of Haagerup, 1981) its p-norm, and by Minkowski's that of the average of the |s_n|
    weighted by e_n, is at most sqrt(Q) times that of a normal number. With p = x^2 Markov's inequality gives

        P(sum of e_n * |s_n| > x * sqrt(Q) * sum of e_n) <= sqrt(2) * exp(-x^2 / 2)

    for each element, and x is such that FALSE_ALARM bounds the sum over all elements, and of two such events. Operands
    are rounded symmetrically, so what that loses is a Rademacher sum as well. Thus the bound, with the table's factor
    2 for what the s_n have lost already, is

        (x + 1) * K * sum_eps * sqrt(Q) + x * 2 * operand_eps * sqrt(Q)

    where the worst case has |A| @ |B|, about 0.64 * sqrt(K) * sqrt(Q) for normal inputs, in place of sqrt(Q).
    """

    def __init__(self, oracle: Oracle, mode: ComputeType, device: torch.device) -> None:
        elements = max(1, math.prod(oracle.shape))
        self.reach = math.sqrt(2 * math.log(2 * math.sqrt(2) * elements / FALSE_ALARM))  # x
        self._oracle, self._mode, self._device = oracle, mode, device
        # sqrt(Q) >= |A| @ |B| / sqrt(K), so a smaller K gains nothing; past the second limit a sum may lose half of it.
        # In emulated compute types rows may be computed in fp32 instead, whose sums lose more than the table has.
        sharper = oracle.k > (self.reach + 1) ** 2 and oracle.k * mode.sum_eps <= 1 and mode.parts == 1
        self.applies = sharper and elements * oracle.k <= MAX_LIKELY_PRODUCTS

    def allowed(self) -> torch.Tensor:
        """Returns the error that the sum of each element may have, shape (M, N)."""
        eps = (self.reach + 1) * self._oracle.k * self._mode.sum_eps + self.reach * 2 * self._mode.operand_eps
        return self._oracle.on(self._device, "squares").sqrt() * eps

    def holds_at(self, a: torch.Tensor, b: torch.Tensor, excess: torch.Tensor) -> bool:
        """Returns whether it holds in one of the elements that exceed it most; excess (M, N): 0 where none does.

        The signs of a caller's inputs may be anything, so the partial sums of those elements are computed: the bound
        holds, whatever the inputs are, in an order whose sums are small.
        """
        places = excess.flatten().topk(min(_MAX_EXAMINED, excess.numel())).indices
        places = places[excess.flatten()[places] > 0]
        for row, column in (divmod(int(place), excess.shape[1]) for place in places):
            if self._are_sums_small(a[row].detach().cpu().double(), b[:, column].detach().cpu().double()):
                return True
        return False

    def _are_sums_small(self, left: torch.Tensor, right: torch.Tensor) -> bool:
        """Whether no sum over a range of K, in blocks or strided, is larger than likely; nor what rounding loses."""
        products = left * right
        limit = self.reach * float(products.norm())
        for block in _BLOCKS:
            for stride in _STRIDES:
                padded = torch.nn.functional.pad(products, (0, -len(products) % (block * stride)))
                sums = padded.view(-1, stride, block).sum(2).cumsum(0)
                if not bool((sums.abs() <= limit).all()):
                    return False
        if not self._mode.operand_eps:
            return True
        rounded = [[_to_tf32(x, half) for half in (0, 1 << 12)] for x in (left, right)]
        lost = (abs(float((x * y - products).sum())) for x in rounded[0] for y in rounded[1])
        return all(each <= 2 * self._mode.operand_eps * limit for each in lost)


def _to_tf32(x: torch.Tensor, half: int) -> torch.Tensor:
    """Cuts fp32 numbers to 10 bits of fraction, rounded if half is that of their last bit."""
    return ((x.float().view(torch.int32) + half) & ~0x1FFF).view(torch.float32).double()
