"""What Triton made of a rung for an H200, as the tests of the published findings read it.

A kernel is named by words: `s08 gluon`, then, where they are not the default, its variant, compute type and sizes of
the problem, as in `s14 triton tile64x128 64x132x20`; `sm_80` compiles it for another architecture.
"""

from __future__ import annotations

import functools
import re
from collections import Counter

import torch

from gemm_ref import MATHS, Launch, Problem, get_stage, ptx
from gemm_ref.rung import DEFAULT_VARIANT


@functools.cache
def compiled(kernel: str):
    """Returns Triton's compiled kernel, with its texts and its metadata."""
    from triton_kernels.inspection import compile_for_inspection

    stage, dialect, *words = kernel.split()
    options = {}
    problem = Problem(4096, 4096, 4096)
    for word in words:
        if word in MATHS:
            options["math"] = word
        elif word == "sm_80":
            options["capability"] = (8, 0)
        elif re.fullmatch(r"\d+x\d+x\d+", word):
            problem = Problem.parse(word)
        else:
            options["variant"] = word
    return compile_for_inspection(stage, dialect, problem.m, problem.n, problem.k, **options)


def ttgir(kernel: str) -> str:
    return compiled(kernel).asm["ttgir"]


def ptx_of(kernel: str) -> str:
    return compiled(kernel).asm["ptx"]


def opcodes_in(text: str) -> Counter[str]:
    """Counts each instruction of PTX, inline assembly included, without its predicate."""
    return Counter(re.findall(r"^\s*(?:@!?%p\d+\s+)?([a-z][\w.:]*)\s[^\n]*;", text, re.MULTILINE))


def opcodes(kernel: str) -> Counter[str]:
    return opcodes_in(ptx_of(kernel))


def loop_opcodes(kernel: str) -> Counter[str]:
    """Counts the instructions of the innermost loop of a kernel that has one."""
    (label,) = re.findall(r"^(\$L\w+):(?:[^\n]*\n +//)*[^\n]*Inner Loop", ptx_of(kernel), re.MULTILINE)
    return opcodes_in(ptx_of(kernel).split(f"{label}:", 1)[1].rsplit(label, 1)[0])


def total(counts: Counter[str], *prefixes: str) -> int:
    """Returns how many instructions begin with one of these."""
    return sum(count for name, count in counts.items() if name.startswith(prefixes))


def product_layout(kernel: str) -> str:
    """Returns the layout of the product in the TTGIR, without the name that it has there."""
    (name,) = re.findall(r"tt\.dot [^\n]*-> tensor<\S+, #(\w+)>", ttgir(kernel))
    return re.search(rf"^#{name} = (.*)$", ttgir(kernel), re.MULTILINE)[1]


def conflicts(kernel: str) -> dict[str, float]:
    """Returns by kind and size the worst access to shared memory: wavefronts over those without bank conflicts.

    One block multiplies one slice and stores its tile of C on the reference GPU.
    """
    stage, dialect, *words = kernel.split()
    rung = get_stage(stage)
    config = rung.variants[rung.find_variant(*words or [DEFAULT_VARIANT], dialect)]
    m, n, k = config.BLOCK_M, config.BLOCK_N, config.BLOCK_K
    block, counter = compiled(f"{kernel} {m}x{n}x{k}"), ptx.Counter()
    launch = Launch((1, 1, 1), (32 * block.metadata.num_warps, 1, 1), block.metadata.shared)
    a, b, c = torch.ones(m, k), torch.ones(k, n), torch.zeros(m, n)
    ptx.run(ptx.load(block.asm["ptx"]), launch, [a, b, c, m, n, k, 0, 0], observers=[counter])
    assert (c == k).all()
    shares: dict[str, float] = {}
    for count in counter.counts():
        if count.space == "shared":
            name = f"{count.kind} of {count.size}"
            shares[name] = max(shares.get(name, 0), count.wavefronts / count.ideal)
    return shares
