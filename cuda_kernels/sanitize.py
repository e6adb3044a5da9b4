"""CUDA rungs at ragged sizes under compute-sanitizer, tool by tool: python -m cuda_kernels sanitize [STAGE]."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence

import torch

import gemm_ref
from cuda_kernels import gemm
from gemm_ref.epilogue import Extras
from gemm_ref.toolchain import find_toolkit

TOOLS = (
    "memcheck",  # accesses out of bounds or misaligned
    "racecheck",  # two threads at one place in shared memory without a barrier between
    "initcheck",  # device memory read before it is written
    "synccheck",  # barriers that some threads do not reach
)
RAGGED = (
    (1, 1, 1),  # one element
    (33, 129, 257),  # one past a tile on each side, K with a tail
    (127, 66, 31),  # one short of a tile, no size a multiple of 4
    (260, 132, 100),  # whole vectors, partial tiles
    (256, 512, 64),  # whole tiles
)


def select_kernels(*stages: str | None) -> list[gemm_ref.Implementation]:
    """The CUDA kernels of some rungs, or of all for None. Raises ValueError for an unknown rung."""
    rungs = [gemm_ref.get_stage(stage) for stage in stages if stage]
    return [item for item in gemm_ref.implementations(("cuda",)) if not rungs or item.stage in rungs]


def exercise(implementations: Sequence[gemm_ref.Implementation]) -> None:
    """Run each kernel at every ragged size, on the GPU. Raises gemm_ref.WrongResult for a wrong result."""
    for item in implementations:
        for sizes in RAGGED:
            a, b = gemm_ref.make_inputs(gemm_ref.Problem(*sizes, item.math), "integers", seed=1, device="cuda")
            c = torch.ones(sizes[:2], dtype=gemm_ref.MATHS[item.math].out_dtype, device="cuda")
            every = Extras(bias=torch.ones(sizes[1], device="cuda"), activation="relu", c=c, alpha=2.0)
            for extras in (Extras(), every) if item.dialect in item.stage.epilogues else (Extras(),):
                found = gemm(a, b, stage=item.stage.id, variant=item.variant, math=item.math, **extras.specified)
                gemm_ref.check(found, a, b, math=item.math, exact=True, config=item.config, extras=extras)


def sanitize(stage: str | None) -> Iterator[tuple[str, int, str]]:
    """(tool, exit code, output) of each tool over `exercise`; the code is not 0 where it found something.

    initcheck does not see what the TMA unit writes and would call every element of such a C unwritten: rungs that store
    through it are left out there, and it is the NaN that every C is filled with that shows an element never written.

    Raises FileNotFoundError where there is no compute-sanitizer, saying where it comes from.
    """
    program = shutil.which("compute-sanitizer") or shutil.which("compute-sanitizer", path=find_toolkit() / "bin")
    if program is None:
        raise FileNotFoundError("compute-sanitizer is not on PATH: it comes with NVIDIA's CUDA toolkit")
    for tool in TOOLS:
        seen = [item.stage.id for item in select_kernels(stage) if tool != "initcheck" or not item.stage.tma]
        if not seen:
            yield tool, 0, f"{tool} does not see what the TMA unit writes, so it cannot check {stage}"
            continue
        run = [sys.executable, "-m", "cuda_kernels", "exercise", *dict.fromkeys(seen)]
        command = [program, "--tool", tool, "--error-exitcode", "1", *run]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        yield tool, done.returncode, done.stdout
