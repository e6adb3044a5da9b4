"""Which version of the project this is."""

from __future__ import annotations

import importlib.metadata
import tomllib

from gemm_ref.build import CHECKOUT


def version() -> str:
    """As in 0.1.0: what a checkout's pyproject.toml says, which may be newer than what was installed from it."""
    if CHECKOUT is None:
        return importlib.metadata.version("gemm-ladder")
    return tomllib.loads((CHECKOUT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
