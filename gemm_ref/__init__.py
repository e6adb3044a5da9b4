"""What a GEMM is: the ladder's registry, problems and inputs, the float64 oracle, the check, the baselines.

What a GEMM is called is here at once; what computes one is imported when it is first asked for (`computing`), since
torch takes seconds to import, and who lists the rungs or mistypes one's name need not wait for it.
"""

from __future__ import annotations

import importlib
import importlib.util
from typing import TYPE_CHECKING

from gemm_ref import build as build
from gemm_ref.compute import B_LAYOUTS as B_LAYOUTS
from gemm_ref.compute import EMULATED as EMULATED
from gemm_ref.compute import EXACT_KINDS as EXACT_KINDS
from gemm_ref.compute import MATHS as MATHS
from gemm_ref.compute import NATIVE as NATIVE
from gemm_ref.config import Box as Box
from gemm_ref.config import Config as Config
from gemm_ref.dialect import DIALECTS as DIALECTS
from gemm_ref.dialect import Dialect as Dialect
from gemm_ref.launch import Launch as Launch
from gemm_ref.launch import cdiv as cdiv
from gemm_ref.problem import INPUT_KINDS as INPUT_KINDS
from gemm_ref.problem import Problem as Problem
from gemm_ref.registry import STAGES as STAGES
from gemm_ref.registry import Implementation as Implementation
from gemm_ref.registry import get_stage as get_stage
from gemm_ref.registry import implementations as implementations
from gemm_ref.registry import stages_in as stages_in
from gemm_ref.rung import Rung as Rung

if TYPE_CHECKING:
    from gemm_ref import ptx as ptx
    from gemm_ref.computing import *  # noqa: F403 (the file lists these names, once)


def __getattr__(name: str) -> object:
    if name.startswith("_"):  # asked of every package by tools, and no name of ours
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if importlib.util.find_spec(f"{__name__}.{name}"):  # as of `ptx`, the reference GPU
        return importlib.import_module(f"{__name__}.{name}")
    value = globals()[name] = getattr(importlib.import_module("gemm_ref.computing"), name)
    return value
