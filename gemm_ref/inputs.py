"""Seeded inputs of a GEMM: the same bits on every machine."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch

from gemm_ref.compute import MATHS
from gemm_ref.operands import as_layout, with_tma_rows
from gemm_ref.problem import INPUT_KINDS, INTEGER_LIMIT, TAIL, Problem, integers_are_exact

LINE = 128  # bytes of a cache line
_CHUNK = 1 << 22  # elements that one random stream fills; part of the definition of the inputs


def make_inputs(
    problem: Problem, kind: str = "normal", seed: int = 0, device: str | torch.device = "cpu",
    b: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """Seeded A (M x K) and B (K x N), the same bits on every machine; B's strides are those of its layout.

    b: returned as B; for `one_hot`, whose B is that of `normal`, it saves the time to make the same once more.

    kind: `normal` N(0, 1); `uniform` on [-1, 1); `integers` in [-4, 4], whose products sum exactly in fp32;
    `one_hot`: a row of A holds one full-precision number and zeros, so each element of C is a single product,
    rounded once: exact for IEEE fp32 at any K, and wrong in nearly every element for any lower precision;
    `k_tail`: A is zero but in its last TAIL columns, and those and all of B are 1 or 2. All compute types hold the sums
    exactly at any K, and a kernel that loses any of the last TAIL products makes every element of C too small;
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
        a = _one_hot(problem.m, problem.k, seed_a)
    else:
        a = _random((problem.m, problem.k), kind, seed_a)
    if kind == "k_tail":
        a[:, : max(0, problem.k - TAIL)] = 0.0
    if b is None:
        made = _random((problem.k, problem.n), "normal" if kind == "one_hot" else kind, seed_b)
        b = as_layout(torch.from_numpy(made).to(device=device, dtype=dtype), problem.b_layout)
    return torch.from_numpy(a).to(device=device, dtype=dtype), b


def meta_operands(problem: Problem, tma: bool) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """A, B and C without memory, laid out as by `gemm_ref.run` for a rung with the TMA unit, or one without."""
    math, rows = MATHS[problem.math], problem.b_shape if problem.b_layout == "kn" else problem.b_shape[::-1]
    a, b = (torch.empty(shape, dtype=math.dtype, device="meta") for shape in (problem.a_shape, rows))
    c = torch.empty((problem.m, problem.n), dtype=math.out_dtype, device="meta")
    a, b, c = (with_tma_rows(x) if tma else x for x in (a, b, c))
    return a, b if problem.b_layout == "kn" else b.t(), c


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
        elif kind == "k_tail":
            view[:] = rng.integers(1, 3, view.size, dtype=np.int8)
        else:
            view[:] = rng.integers(-INTEGER_LIMIT, INTEGER_LIMIT, view.size, dtype=np.int8, endpoint=True)

    streams = seed.spawn(len(starts))
    if len(starts) == 1:  # threads would take longer to start
        fill(starts[0], streams[0])
        return out
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(fill, starts, streams))
    return out


def _one_hot(m: int, k: int, seed: np.random.SeedSequence) -> np.ndarray:
    a = np.zeros((m, k), np.float32)
    if k:
        rng = np.random.default_rng(seed)
        a[np.arange(m), rng.integers(0, k, m)] = rng.standard_normal(m, dtype=np.float32)
    return a


def aligned(x: torch.Tensor) -> torch.Tensor:
    """A copy of x that begins where a line does, as what a GPU allocates; torch's memory on a CPU may lie anyhow."""
    room = torch.empty(x.numel() + LINE // x.itemsize, dtype=x.dtype)
    first = -room.data_ptr() % LINE // x.itemsize
    return room[first : first + x.numel()].view(x.shape).copy_(x)
