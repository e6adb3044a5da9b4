"""What Triton makes of a rung, without a GPU and without running it."""

from __future__ import annotations

from dataclasses import replace

from triton.compiler import CompiledKernel

from gemm_ref import DIALECTS, Implementation, Problem, get_stage
from gemm_ref.call import Plan
from gemm_ref.call.choose import select_tile
from gemm_ref.compute import EMULATED
from gemm_ref.epilogue import Extras
from gemm_ref.inputs import meta_operands
from gemm_ref.operands.split import split_operands
from gemm_ref.rung import DEFAULT_VARIANT
from gemm_ref.toolchain import REFERENCE_CAPABILITY
from triton_kernels import kernel_module, without_gpu


def compile_for_inspection(
    stage: str,
    dialect: str,
    m: int,
    n: int,
    k: int,
    *,
    variant: str = DEFAULT_VARIANT,
    math: str | None = None,
    b_layout: str | None = None,
    capability: tuple[int, int] = REFERENCE_CAPABILITY,
    anew: bool = False,
) -> CompiledKernel:
    """Returns what Triton makes of a rung for operands of these sizes, laid out as `gemm` would, without a GPU.

    b_layout: how B is stored, one of those that the rung reads in this math mode; the first of them if not given.
    capability: the compute capability to compile for; from 9.0 on Triton means the architecture with its `a`.
    anew: compile also what was compiled before. In `.asm` are the texts `ttgir`, `llir` and `ptx` and the bytes
    `cubin`; `.metadata` has `shared` (bytes) and `num_warps`.

    Raises ValueError for an unknown stage, variant, dialect, math mode or layout.
    """
    rung = get_stage(stage)
    if dialect not in rung.dialects or DIALECTS[dialect].package != __package__:
        raise ValueError(f"{rung.id} has no {dialect} kernel here: triton or gluon")
    if math is not None and math not in rung.maths:
        raise ValueError(f"{rung.id} does not compute in {math}: it has {', '.join(rung.maths)}")
    problem = Problem(m, n, k, math or rung.maths[0])
    problem = replace(problem, b_layout=b_layout or rung.reads_b(problem.math, dialect)[0])
    if problem.b_layout not in rung.reads_b(problem.math, dialect):
        known = ", ".join(rung.reads_b(problem.math, dialect))
        raise ValueError(f"{rung.id} does not read B as {problem.b_layout!r} in {problem.math}: it reads {known}")
    variant = rung.find_variant(variant, dialect)
    implementation = Implementation(rung, variant, dialect, problem.math, problem.b_layout)
    a, b, c = meta_operands(problem, rung.tma is not None)
    if problem.math in EMULATED:
        a, b = split_operands(a, b, problem.b_layout, problem.math)
    plan = select_tile(Plan(implementation, problem), a, b)
    before = without_gpu.capability.set(capability), without_gpu.anew.set(anew)
    try:
        return kernel_module(implementation).prepare(plan, a, b, c)(a, b, c, Extras())
    finally:
        without_gpu.capability.reset(before[0])
        without_gpu.anew.reset(before[1])
