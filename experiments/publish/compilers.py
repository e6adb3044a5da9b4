"""What each compiler decided by itself for each rung: compilers.toml holds ends of sentences about a dialect.

Each sentence is read off the TTGIR, PTX or SASS that it names; tests/triton_kernels/test_findings.py reads it again.
"""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Mapping
from pathlib import Path

from gemm_ref import Rung


@functools.cache
def _sentences() -> dict[str, dict[str, str]]:
    return tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))


def compiler_findings(rung: Rung) -> Mapping[str, str]:
    """The end of a sentence by dialect, as in '<Triton> keeps ...'; dialects without a finding are left out."""
    return _sentences().get(rung.id, {})
