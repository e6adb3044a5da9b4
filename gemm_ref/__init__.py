"""What a GEMM is: the ladder's registry, problems and inputs, the float64 oracle, the check, the baselines."""

from gemm_ref import build, ptx
from gemm_ref.call import Call, run, validate
from gemm_ref.check import Accuracy, WrongResult, check, checked_run
from gemm_ref.launch import Launch, cdiv
from gemm_ref.operands import B_LAYOUTS
from gemm_ref.problem import EXACT_KINDS, INPUT_KINDS, MATHS, Problem, make_inputs
from gemm_ref.reference import Oracle, gemm
from gemm_ref.registry import STAGES, Implementation, get_stage, implementations, stages_in
from gemm_ref.stage import DIALECTS, Box, Config, Stage

__all__ = [
    "Accuracy",
    "B_LAYOUTS",
    "Box",
    "Call",
    "Config",
    "DIALECTS",
    "EXACT_KINDS",
    "INPUT_KINDS",
    "Implementation",
    "Launch",
    "MATHS",
    "Oracle",
    "Problem",
    "STAGES",
    "Stage",
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
    "stages_in",
    "run",
    "validate",
]
