"""What Triton made of a rung for an H200, as the tests of the registry's findings read it; a rung is named as for
`compile_for_inspection`: stage, dialect, and if need be variant and sizes."""

from __future__ import annotations

import functools
import re
from collections import Counter

from gemm_ref.stage import DEFAULT_VARIANT


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
