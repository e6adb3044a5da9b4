"""What is computed: the sizes and the arithmetic of one GEMM, and seeded inputs for it."""

from __future__ import annotations

import os
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import torch

from gemm_ref.operands import as_layout

INPUT_KINDS = ("normal", "uniform", "integers", "one_hot", "zeros")
INTEGER_LIMIT = 4  # integers are in [-4, 4]: sums of products stay exact in fp32 while K * 16 <= 2**24
EXACT_KINDS = ("integers", "one_hot")  # any order of IEEE operations gives the oracle's bits
_CHUNK = 1 << 22  # elements that one random stream fills; part of the definition of the inputs


@dataclass(frozen=True)
class Math:
    """A math mode: what the elements are, what the arithmetic between them is, and what each step of it may lose.

    An element of C may be off by (2 * operand_eps + K * sum_eps) * (|A| @ |B|) + result_eps * |C|; each eps is twice
    what a sound kernel loses at worst.
    """

    name: str
    dtype: torch.dtype  # of A and B
    operand_eps: float  # for cutting an operand down before it is multiplied; 0 where it is taken as it is
    sum_eps: float  # for each of the K additions
    result_eps: float  # for rounding the sum to the dtype of C; 0 where it is the sum
    out_dtype: torch.dtype  # of C
    exact_sum: int = 2**24  # integers up to here are added without rounding

    def is_exact(self, kind: str) -> bool:
        """Whether inputs of this kind leave no room for rounding: any order of operations gives the oracle's bits."""
        return kind in EXACT_KINDS and not (kind == "one_hot" and self.operand_eps)


_FP32_EPS = torch.finfo(torch.float32).eps
_BF16_EPS = torch.finfo(torch.bfloat16).eps
# TF32 keeps 10 bits of fraction. Tensor cores sum in fp32, but cut what IEEE would round: twice the error. Hopper's
# keep 13 bits of fraction in sums of fp8 products (DeepSeek-V3 technical report, 2024, section 3.3.2: 'about 14 bits').
_TABLE = (
    Math("fp32", torch.float32, 0.0, _FP32_EPS, 0.0, torch.float32),
    Math("tf32", torch.float32, 2**-9, 2 * _FP32_EPS, 0.0, torch.float32),
    Math("fp16", torch.float16, 0.0, 2 * _FP32_EPS, torch.finfo(torch.float16).eps, torch.float16),
    Math("bf16", torch.bfloat16, 0.0, 2 * _FP32_EPS, _BF16_EPS, torch.bfloat16),
    Math("fp8", torch.float8_e4m3fn, 0.0, 2.0**-12, _BF16_EPS, torch.bfloat16, exact_sum=2**13),
)
MATHS = {math.name: math for math in _TABLE}


@dataclass(frozen=True)
class Problem:
    """C[m, n] = A[m, k] @ B[k, n]; any size may be 0 (k = 0 gives zeros, as in BLAS).

    A and C are row-major; B is as `b_layout` says, one of B_LAYOUTS.
    """

    m: int
    n: int
    k: int
    math: str = "fp32"
    b_layout: str = "kn"

    @classmethod
    def parse(cls, text: str) -> Problem:
        """`"4096"` is a cube and `"1021x509x131"` is M x N x K. Raises ValueError for anything else."""
        if not re.fullmatch(r"[0-9]+(x[0-9]+x[0-9]+)?", text):
            raise ValueError(f"size {text!r} is not understood: write 4096 for a cube, or MxNxK such as 1021x509x131")
        sizes = [int(part) for part in text.split("x")]
        m, n, k = sizes * 3 if len(sizes) == 1 else sizes
        return cls(m, n, k)

    @property
    def a_shape(self) -> tuple[int, int]:
        return self.m, self.k

    @property
    def b_shape(self) -> tuple[int, int]:
        return self.k, self.n

    @property
    def flops(self) -> int:
        """Floating-point operations: a multiply and an add for each of the M*N*K products."""
        return 2 * self.m * self.n * self.k

    @property
    def min_bytes(self) -> int:
        """The fewest bytes device memory must move: A and B read once, C written once."""
        math = MATHS[self.math]
        operands = (self.m * self.k + self.k * self.n) * math.dtype.itemsize
        return operands + self.m * self.n * math.out_dtype.itemsize

    def __str__(self) -> str:
        return f"{self.m}x{self.n}x{self.k}"


def check_shapes(a: torch.Tensor, b: torch.Tensor) -> None:
    """Raise ValueError unless a (M, K) and b (K, N) are dense matrices whose inner sizes agree."""
    for name, x, shape in (("a", a, "(M, K)"), ("b", b, "(K, N)")):
        if not isinstance(x, torch.Tensor):
            raise ValueError(
                f"{name} must be a torch.Tensor, not {type(x).__name__}: torch.as_tensor({name}) makes one"
            )
        if x.layout != torch.strided:
            raise ValueError(f"{name} must be dense; its layout is {x.layout}: pass {name}.to_dense()")
        if x.dim() != 2:
            raise ValueError(f"{name} must have 2 dimensions, {shape}; its shape is {tuple(x.shape)}")
    if a.shape[1] != b.shape[0]:
        raise ValueError(
            f"the inner sizes differ: a is {tuple(a.shape)} and b is {tuple(b.shape)}; "
            f"b must have {a.shape[1]} rows, as a has columns"
        )


def integers_are_exact(problem: Problem) -> bool:
    """Whether sums of products of `integers` inputs stay exact in the problem's math, in any order."""
    return problem.k * INTEGER_LIMIT**2 <= MATHS[problem.math].exact_sum


def make_inputs(
    problem: Problem, kind: str = "normal", seed: int = 0, device: str | torch.device = "cpu"
) -> tuple[torch.Tensor, torch.Tensor]:
    """Seeded A (M x K) and B (K x N), the same bits on every machine; B's strides are those of its layout.

    kind: `normal` N(0, 1); `uniform` on [-1, 1); `integers` in [-4, 4], whose products sum exactly in fp32;
    `one_hot`: a row of A holds one full-precision number and zeros, so each element of C is a single product,
    rounded once: exact for IEEE fp32 at any K, and wrong in nearly every element for any lower precision;
    `zeros`, which check nothing and are for measuring power.
    Raises ValueError for another kind, and for integers whose sums could pass 2**24.
    """
    if kind not in INPUT_KINDS:
        raise ValueError(f"unknown input kind {kind!r}: there are {', '.join(INPUT_KINDS)}")
    if kind == "integers" and not integers_are_exact(problem):
        most = MATHS[problem.math].exact_sum // INTEGER_LIMIT**2
        raise ValueError(f"integer inputs stay exact up to K = {most} in {problem.math}; K is {problem.k}")
    dtype = MATHS[problem.math].dtype
    if kind == "zeros":
        a, b = (torch.zeros(shape, dtype=dtype, device=device) for shape in (problem.a_shape, problem.b_shape))
        return a, as_layout(b, problem.b_layout)
    seed_a, seed_b = np.random.SeedSequence(seed).spawn(2)
    if kind == "one_hot":
        a, b = _one_hot(problem.m, problem.k, seed_a), _random((problem.k, problem.n), "normal", seed_b)
    else:
        a, b = _random((problem.m, problem.k), kind, seed_a), _random((problem.k, problem.n), kind, seed_b)
    a, b = (torch.from_numpy(x).to(device=device, dtype=dtype) for x in (a, b))
    return a, as_layout(b, problem.b_layout)


def _random(shape: tuple[int, int], kind: str, seed: np.random.SeedSequence) -> np.ndarray:
    """Fill in chunks of one random stream each, on all cores; the chunks, not the cores, decide the bits."""
    out = np.empty(shape, np.float32)
    flat = out.reshape(-1)
    starts = range(0, flat.size, _CHUNK)

    def fill(start: int, stream: np.random.SeedSequence) -> None:
        view, rng = flat[start : start + _CHUNK], np.random.default_rng(stream)
        if kind == "normal":
            rng.standard_normal(out=view, dtype=np.float32)
        elif kind == "uniform":
            rng.random(out=view, dtype=np.float32)
            view *= 2
            view -= 1
        else:
            view[:] = rng.integers(-INTEGER_LIMIT, INTEGER_LIMIT, view.size, dtype=np.int8, endpoint=True)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(fill, starts, seed.spawn(len(starts))))
    return out


def _one_hot(m: int, k: int, seed: np.random.SeedSequence) -> np.ndarray:
    a = np.zeros((m, k), np.float32)
    if k:
        rng = np.random.default_rng(seed)
        a[np.arange(m), rng.integers(0, k, m)] = rng.standard_normal(m, dtype=np.float32)
    return a
