"""What a GEMM is: the ladder's registry, problems and inputs, the float64 oracle, the check, the baselines.

What a GEMM is called is here at once; what computes one is imported when it is first asked for, since torch takes
seconds to import, and who lists the rungs or mistypes one's name need not wait for it.
"""

from __future__ import annotations

import importlib
from types import MappingProxyType
from typing import TYPE_CHECKING

from gemm_ref import build
from gemm_ref.compute import B_LAYOUTS, EMULATED, EXACT_KINDS, MATHS, NATIVE
from gemm_ref.config import Box, Config
from gemm_ref.dialect import DIALECTS, Dialect
from gemm_ref.launch import Launch, cdiv
from gemm_ref.problem import INPUT_KINDS, Problem
from gemm_ref.registry import STAGES, Implementation, get_stage, implementations, stages_in
from gemm_ref.rung import Rung

if TYPE_CHECKING:  # the same as _LATER, for type checkers and editors
    from gemm_ref import ptx
    from gemm_ref.call import Call, validate
    from gemm_ref.call.plan import run
    from gemm_ref.correct import Accuracy, WrongResult, check, checked_run
    from gemm_ref.inputs import make_inputs
    from gemm_ref.operands.split import OutOfRange, Split, range_report, split_operand
    from gemm_ref.reference import Oracle, gemm

# Module -> what is imported from it when it is first asked for. None is called like the module that it is in.
_LATER = MappingProxyType(
    {
        "call": ("Call", "validate"),
        "correct": ("Accuracy", "WrongResult", "check", "checked_run"),
        "inputs": ("make_inputs",),
        "operands.split": ("OutOfRange", "Split", "range_report", "split_operand"),
        "call.plan": ("run",),
        "reference": ("Oracle", "gemm"),
    }
)
_HOME = MappingProxyType({name: module for module, names in _LATER.items() for name in names})

__all__ = [
    "Accuracy",
    "B_LAYOUTS",
    "Box",
    "Call",
    "Config",
    "DIALECTS",
    "Dialect",
    "EMULATED",
    "EXACT_KINDS",
    "INPUT_KINDS",
    "Implementation",
    "Launch",
    "MATHS",
    "NATIVE",
    "Oracle",
    "OutOfRange",
    "Problem",
    "STAGES",
    "Split",
    "Rung",
    "WrongResult",
    "build",
    "cdiv",
    "check",
    "checked_run",
    "gemm",
    "get_stage",
    "implementations",
    "make_inputs",
    "ptx",
    "range_report",
    "run",
    "split_operand",
    "stages_in",
    "validate",
]


def __getattr__(name: str) -> object:
    if name == "ptx":
        return importlib.import_module("gemm_ref.ptx")
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(f"gemm_ref.{_HOME[name]}"), name)
    return value
