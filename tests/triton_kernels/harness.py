"""What Triton made of a rung for an H200, as the tests of the registry's findings read it; a rung is named as for
`compile_for_inspection`: stage, dialect, and if need be variant and sizes."""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Callable

import torch

from gemm_ref import Launch, get_stage, ptx
from gemm_ref.rung import DEFAULT_VARIANT


@functools.cache
def compiled(stage: str, dialect: str, variant: str = DEFAULT_VARIANT, sizes: tuple[int, int, int] = (4096,) * 3):
    from triton_kernels.launcher import compile_for_inspection

    m, n, k = sizes
    return compile_for_inspection(stage, dialect, m, n, k, variant=variant)


def ttgir(*which) -> str:
    return compiled(*which).asm["ttgir"]


def body(*which) -> str:
    """The PTX between the braces of the kernel."""
    return compiled(*which).asm["ptx"].split("\n{", 1)[1].split("\n}", 1)[0]


def opcodes_in(text: str) -> Counter[str]:
    """How often each instruction stands in PTX, inline assembly included, predicates left out."""
    return Counter(re.findall(r"^\s*(?:@!?%p\d+\s+)?([a-z][\w.:]*)\s[^\n]*;", text, re.MULTILINE))


def opcodes(*which) -> Counter[str]:
    return opcodes_in(body(*which))


def total(counts: Counter[str], *prefixes: str) -> int:
    """How many instructions begin with one of these."""
    return sum(count for name, count in counts.items() if name.startswith(prefixes))


def product_layout(*which) -> str:
    """The name of the layout that the product has in the TTGIR."""
    (name,) = re.findall(r"tt\.dot [^\n]*-> tensor<\S+, #(\w+)>", ttgir(*which))
    return name


def shared_accesses(stage: str, dialect: str, variant: str = DEFAULT_VARIANT) -> list[ptx.Count]:
    """What one block that multiplies one slice and stores its tile of C asks of shared memory, as its PTX says."""
    rung = get_stage(stage)
    config = rung.variants[rung.find_variant(variant, dialect)]
    m, n, k = config.BLOCK_M, config.BLOCK_N, config.BLOCK_K
    kernel, counter = compiled(stage, dialect, variant, (m, n, k)), ptx.Counter()
    launch = Launch((1, 1, 1), (32 * kernel.metadata.num_warps, 1, 1), kernel.metadata.shared)
    a, b, c = torch.ones(m, k), torch.ones(k, n), torch.zeros(m, n)
    ptx.run(ptx.load(kernel.asm["ptx"]), launch, [a, b, c, m, n, k, 0, 0], observers=[counter])
    assert (c == k).all()
    return [count for count in counter.counts() if count.space == "shared"]


def worst(accesses: list[ptx.Count], name: Callable[[ptx.Count], str]) -> dict[str, float]:
    """The largest share of wavefronts to those without bank conflicts, among the accesses of one name."""
    shares: dict[str, float] = {}
    for count in accesses:
        shares[name(count)] = max(shares.get(name(count), 0), count.wavefronts / count.ideal)
    return shares
