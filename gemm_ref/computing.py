"""The names of `gemm_ref` that need torch: the package imports this file when one of them is first asked for."""

from __future__ import annotations

from gemm_ref.call import Plan as Plan
from gemm_ref.call.execute import run as run
from gemm_ref.call.validate import validate as validate
from gemm_ref.correct import Accuracy as Accuracy
from gemm_ref.correct import WrongResult as WrongResult
from gemm_ref.correct import check as check
from gemm_ref.correct import checked_run as checked_run
from gemm_ref.inputs import make_inputs as make_inputs
from gemm_ref.operands.split import OutOfRange as OutOfRange
from gemm_ref.operands.split import Split as Split
from gemm_ref.operands.split import range_report as range_report
from gemm_ref.operands.split import split_operand as split_operand
from gemm_ref.reference import Oracle as Oracle
from gemm_ref.reference import gemm as gemm
