"""Runs on the reference GPU that several studies need: the refusal of long ones, and counts of memory accesses."""

from __future__ import annotations

from dataclasses import replace

import gemm_ref
from experiments.bench.verify import CheckResult, Inputs, load, verify
from experiments.records.contenders import Contender
from experiments.records.request import DEFAULT, Request
from experiments.records.rows import PASS, SKIPPED
from gemm_ref import ptx
from gemm_ref.build import BuildError
from gemm_ref.inputs import aligned
from gemm_ref.sass import tools
from gemm_ref.wait import describe_seconds, seconds_on_reference_gpu

MAX_PRODUCTS = 10**9  # multiply-adds: what the reference GPU is asked for at most


def refuse_long_run(problem: gemm_ref.Problem) -> CheckResult | None:
    """SKIPPED, with how long it would take, where the reference GPU would take more than some seconds."""
    products = problem.flops // 2
    if products <= MAX_PRODUCTS:
        return None
    time = describe_seconds(seconds_on_reference_gpu(problem))
    why = f"{products:.2g} multiply-adds would take the reference GPU about {time}: pass a smaller --size"
    return CheckResult(SKIPPED, why)


def left_to_full_preset(contender: Contender, request: Request) -> str:
    """Why the default preset leaves a kernel out without a GPU, where compiling takes most of the time; empty if not.

    A math mode that is asked for is run as a whole.
    """
    if contender.kernel is None or request.device != "cpu" or request.preset != DEFAULT or request.math:
        return ""
    if contender.math == "fp16":
        return "on a CPU, bf16 represents fp16: --math fp16 or --preset full runs it"
    if contender.math != contender.kernel.stage.maths[0] and not contender.is_default:
        return f"on a CPU, variants are run in their first math mode: --math {contender.math} or --preset full runs it"
    return ""


def missing_disassembler() -> str:
    """Why machine code cannot be read here, so that accesses are counted as written alone; empty if it can."""
    try:
        tools.find("nvdisasm")
    except BuildError as error:
        return str(error)
    return ""


def count_accesses(contender: Contender, problem: gemm_ref.Problem) -> tuple[CheckResult, list[ptx.Count]]:
    """Runs a contender once, checked: its result, and what each source line asked of memory where it passed."""
    inputs = Inputs.make(problem, "normal")
    fn, result = load(contender)
    counter = ptx.Counter(None if missing_disassembler() else tools.disassemble)
    if result is None:
        with ptx.watched(counter):
            result = verify(contender, fn, replace(inputs, a=aligned(inputs.a), b=aligned(inputs.b)))
        if result.status == PASS and not counter.launches:
            result = CheckResult(SKIPPED, "it ran no kernel on the reference GPU, so there was nothing to count")
    return result, counter.counts() if result.status == PASS else []
