"""What each compiler decided by itself, rung by rung, as the end of a sentence whose subject is the dialect.

The sentences are in compilers.toml. Each is read off the TTGIR, PTX or SASS that it names; tests/triton_kernels/ has
the reading again.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

FINDINGS: Mapping[str, Mapping[str, str]] = MappingProxyType(  # stage id -> dialect -> sentence
    tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
)
