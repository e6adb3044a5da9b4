"""Compiles a contender to machine code, without a GPU."""

from __future__ import annotations

from dataclasses import dataclass

import gemm_ref
from experiments.records.contenders import Contender
from gemm_ref import Implementation, Launch, Problem


@dataclass(frozen=True)
class MachineCode:
    """A cubin, and what a launch of its main kernel requests."""

    cubin: bytes
    threads: int  # of a block
    dynamic_bytes: int  # of shared memory, of a block


def launch_of(contender: Contender, problem: Problem) -> Launch:
    """The registry's launch of a contender's kernel."""
    return gemm_ref.get_stage(contender.stage).launch(problem.m, problem.n, problem.k, contender.variant)


def compile_to_cubin(
    contender: Contender, problem: Problem, capability: tuple[int, int], *, anew: bool = False
) -> MachineCode:
    """Compiles a rung's kernel for operands of these sizes, which matter in Triton's dialects alone.

    anew: compile it from its source, whatever was compiled before.
    Raises `gemm_ref.build.BuildError` and what Triton raises where it does not compile.
    """
    rung = gemm_ref.get_stage(contender.stage)
    if contender.backend == "cuda":
        from cuda_kernels import source

        layout = rung.reads_b(contender.math, contender.dialect)[0]
        item = Implementation(rung, contender.variant, contender.dialect, contender.math, layout)
        path = (source.cubin_anew if anew else source.cubin)(item, capability)
        launch = launch_of(contender, problem)
        return MachineCode(path.read_bytes(), launch.threads, launch.shared_bytes)
    from triton_kernels.inspection import compile_for_inspection

    compiled = compile_for_inspection(
        rung.id,
        contender.dialect,
        *(problem.m, problem.n, problem.k),
        variant=contender.variant,
        math=contender.math,
        capability=capability,
        anew=anew,
    )
    return MachineCode(compiled.asm["cubin"], 32 * compiled.metadata.num_warps, compiled.metadata.shared)
