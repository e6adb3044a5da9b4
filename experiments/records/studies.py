"""The studies: each is a folder of `experiments/studies`. No module imports one by name; they are loaded here."""

from __future__ import annotations

import importlib
from types import ModuleType


def load(study: str, part: str) -> ModuleType:
    """One module of a study: its `study`, `picture` or `table`."""
    return importlib.import_module(f"experiments.studies.{study}.{part}")
