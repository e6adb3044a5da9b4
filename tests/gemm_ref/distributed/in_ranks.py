"""What the tests have ranks do: each function is called on every rank, as (argument, say)."""

from __future__ import annotations

import functools
import os
import time

import torch
import torch.distributed as dist

import gemm_ref
from gemm_ref.baselines.products import fp32_products
from gemm_ref.distributed import layouts
from gemm_ref.distributed.layouts import Product


def in_torch(a, b, out):
    """A local product that costs a test nothing."""
    return out.copy_(torch.mm(a.float(), b.float()))


def product(name: str) -> Product:
    if name == "torch":
        return Product(in_torch)
    import cuda_kernels

    stage, math = name.split()
    more = {"prepare": lambda b: gemm_ref.split_operand(b, "b", math=math)} if math in gemm_ref.EMULATED else {}
    more |= {"adds_c": bool(gemm_ref.STAGES[stage].epilogues)}
    return Product(functools.partial(cuda_kernels.gemm, stage=stage, math=math), **more)


def compute(cases, say):
    """For each case say the whole C of each way, put together from the parts of the ranks, of two calls."""
    torch.set_num_threads(1)
    for name, problem, kind, local, least in cases:
        a, b = gemm_ref.make_inputs(problem, kind)
        found = layouts.make_layout(name, problem, product(local), "cpu", least)
        found.load(a, b)
        said = {}
        with fp32_products("ieee"):
            for way, call in found.ways.items():
                for _ in range(2):
                    found.c.fill_(float("nan"))
                    parts = [None] * dist.get_world_size()
                    dist.all_gather_object(parts, (found.rows, found.columns, call()))
                    c = torch.full((problem.m, problem.n), float("nan"), dtype=found.out_dtype)
                    for rows, columns, part in parts:
                        assert c[rows, columns].isnan().all(), "two ranks have one part of C"
                        c[rows, columns] = part
                    said.setdefault(way, []).append(c)
        say((said, found.link_bytes))


def fail(rank, say):
    """One rank raises, while the others wait for it."""
    if dist.get_rank() == rank:
        raise ValueError("planted")
    dist.all_reduce(torch.zeros(1))


def be_silent(rank, say):
    """One rank never comes to a collective."""
    say(os.getpid())
    if dist.get_rank() == rank:
        time.sleep(600)
    dist.all_reduce(torch.zeros(1))


def all_silent(_, say):
    say(os.getpid())
    time.sleep(600)
