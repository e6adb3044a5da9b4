"""A rung's text with its registers in mind: two rules that change how a thread multiplies, and not what it computes.

freed           The sums are multiplied by a one that the compiler cannot know, before they are stored. What is
                stored 16 bytes at a time must lie in four neighbouring registers, and without this ptxas keeps the
                sums there from the first product on, which settles their banks.
back_and_forth  Every second row of products runs backwards, so that a row begins with the operand that ended the
                one before, and finds it kept.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from types import MappingProxyType

FREED, BACK_AND_FORTH = "freed", "back_and_forth"

_ONE = """
    const float one = K >= 0 ? 1.0f : 0.0f;
#pragma unroll
    for (int m = 0; m < THREAD_M; ++m) {
#pragma unroll
        for (int n = 0; n < THREAD_N; ++n) acc[m][n] *= one;
    }"""
_TURN = r"for (int i = 0; i < THREAD_N; ++i) { const int n = m % 2 ? THREAD_N - 1 - i : i; \1 }"
RULES = MappingProxyType(  # name -> (pattern, what its match becomes)
    {
        FREED: (r"(?=\n    // Store\n)", _ONE),
        BACK_AND_FORTH: (r"for \(int n = 0; n < THREAD_N; \+\+n\) (acc\[m\]\[n\] \+= [^;{}]*\[n\];)", _TURN),
    }
)


def rewrite(text: str, rules: Iterable[str]) -> str:
    """The CUDA text after these rules of RULES. Raises ValueError where one finds nothing to change."""
    for rule in rules:
        pattern, put = RULES[rule]
        text, count = re.subn(pattern, put, text)
        if not count:
            raise ValueError(f"the rule {rule!r} finds nothing to change in this text: no match of {pattern}")
    return text
