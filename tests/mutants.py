"""Mutation: does anything tell when a kernel of the ladder has one small mistake?

Every rule of tests/mutation_rules.py is applied wherever it fits in every rung, in CUDA, Triton and Gluon. A mutant is
run on the reference GPU at a few sizes, and is *reported* if the machine stops at it, a fault detector finds something,
or the check rejects the result. One that survives is either listed in tests/mutation_score.py, with the reason why it
cannot give a wrong result, or a hole in the tests.

Run: `python -m tests.mutants [--stage s04] [--dialect cuda] [--jobs 2]`, some 40 minutes a core for all of them.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import importlib.util
import itertools
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from unittest import mock

import torch

import gemm_ref
import triton_kernels
from cuda_kernels import source
from experiments.contenders import gemm_of
from gemm_ref import Implementation, Problem, launches, ptx
from gemm_ref.build import BuildError
from gemm_ref.toolchain import architecture, run_nvcc
from tests.mutation_rules import Mutant, cuda_mutants, ptx_mutants, triton_mutants
from tests.mutation_score import REPORTED, SURVIVED, UNCHANGED, Outcome, Trial, score, stale, unexplained

ROOT = Path(__file__).resolve().parent.parent
SIMT = tuple(stage.id for stage in gemm_ref.stages_in("fp32"))
TENSOR_CORES = {  # the math modes in which a rung's mutants are tried: s18 reads B by rows otherwise in tf32
    "s15_wmma": ("bf16",),
    "s16_mma_sync": ("bf16",),
    "s17_wgmma_tma": ("bf16",),
    "s18_warp_specialized": ("bf16", "tf32"),
}
ALL = (*SIMT, *TENSOR_CORES)


def trials(dialects: Sequence[str] = gemm_ref.DIALECTS, stages: Sequence[str] = ALL) -> list[Trial]:
    """Every mutant of one variant of each rung; those of a header for each rung that includes it."""
    found = []
    for implementation in gemm_ref.implementations(tuple(dialects)):
        stage, dialect = implementation.stage, implementation.dialect
        default = implementation.variant == stage.find_variant("default", dialect)
        if stage.id in stages and default and implementation.math in TENSOR_CORES.get(stage.id, ("fp32",)):
            found += [Trial(implementation, mutant) for path in _files(implementation) for mutant in _mutants(path)]
    return found


def compiled_trials(dialects: Sequence[str], stages: Sequence[str]) -> list[Trial]:
    """As `trials`, for the barriers and waits that Triton has put into its PTX; compiles each kernel."""
    found = []
    for trial in {t.implementation: t for t in trials(dialects, stages)}.values():
        implementation = trial.implementation
        if implementation.dialect != "cuda":
            from triton_kernels.launcher import compile_for_inspection

            (problem, _), *_ = runs(implementation)
            sizes = (problem.m, problem.n, problem.k)
            stage, dialect = implementation.stage.id, implementation.dialect
            text = compile_for_inspection(stage, dialect, *sizes, variant=implementation.variant).asm["ptx"]
            found += [Trial(implementation, mutant) for mutant in ptx_mutants(f"{stage}.ptx", text)]
    return found


def _files(implementation: Implementation) -> list[Path]:
    """The rung's own file and, in CUDA, the headers it includes."""
    name = implementation.stage.id
    if implementation.dialect != "cuda":
        folder = ROOT / "triton_kernels" / ("gluon" if implementation.dialect == "gluon" else "")
        return [folder / f"{name}.py"]
    files = [source.FOLDER / f"{name}.cu"]
    for path in files:  # which grows
        names = re.findall(r'^#include "(\w+\.cuh)"', path.read_text(encoding="utf-8"), re.M)
        files += [source.INCLUDE / n for n in names if source.INCLUDE / n not in files]
    return files


@functools.cache
def _mutants(path: Path) -> list[Mutant]:
    rules = triton_mutants if path.suffix == ".py" else cuda_mutants
    return rules(path.name, path.read_text(encoding="utf-8"))


# --- running -------------------------------------------------------------------------------------------------


def runs(implementation: Implementation) -> Iterator[tuple[Problem, str]]:
    """(problem, operand that starts beside a 16-byte vector or ""), the one that tells the most first."""
    config = implementation.config
    if implementation.stage.id in TENSOR_CORES:
        yield from _tensor_core_runs(implementation)
        return
    slice_ = config.BLOCK_K or 16
    deep = 9 * slice_ if implementation.stage.id.startswith("s13") else 4 * slice_  # so that K is split there
    vectors = Problem(config.BLOCK_M + 16, config.BLOCK_N + 16, deep + 16)
    yield vectors, ""
    yield Problem(config.BLOCK_M + 1, config.BLOCK_N + 3, deep - slice_ + 1), ""  # no vectors
    yield Problem(3, 2, 1), ""
    for shifted in "abc":
        yield vectors, shifted


def _tensor_core_runs(implementation: Implementation) -> Iterator[tuple[Problem, str]]:
    """The same, after the shortest: every stage is used twice, and two clusters' tiles lie one below the other.

    Where TMA copies, an operand that starts elsewhere is copied first.
    """
    config, math = implementation.config, implementation.math
    slice_ = (config.BLOCK_K_BYTES or config.BLOCK_K * 2) // gemm_ref.MATHS[math].dtype.itemsize
    m, n, deep = config.BLOCK_M * (config.CLUSTER_M or 1), config.BLOCK_N, (config.NUM_STAGES + 1) * slice_
    chunks = Problem(m + 16, n + 16, deep + 16, math)
    yield Problem(3, 2, 1, math), ""
    yield (replace(chunks, n=n) if implementation.stage.tma else chunks), ""
    yield Problem(m + 1, n + 3, deep + 1, math), ""
    if config.GROUP_M and not config.CLUSTER_M:  # more tiles down than a group has
        yield Problem((config.GROUP_M + 1) * m, n + 1, 1, math), ""
    if not implementation.stage.tma:
        for shifted in "abc":
            yield chunks, shifted


def try_out(trial: Trial) -> Outcome:
    """Compile a mutant and run it until something tells."""
    with _mutated(trial) as changed:
        if not changed:
            return Outcome(trial, UNCHANGED)
        for problem, shifted in itertools.islice(runs(trial.implementation), 1 if _compiled(trial) else None):
            by, text = _run(trial.implementation, problem, shifted)
            if by:
                return Outcome(trial, REPORTED, by, text)
    return Outcome(trial, SURVIVED)


def _compiled(trial: Trial) -> bool:
    """Whether the mutant is of PTX, which is that of the first problem alone."""
    return trial.mutant.file.endswith(".ptx")


def _run(implementation: Implementation, problem: Problem, shifted: str) -> tuple[str, str]:
    """What told of a fault, and in which words; empty where nothing did."""
    a, b = gemm_ref.make_inputs(problem, "integers", seed=1)
    a, b = (_beside(x) if name == shifted else x for name, x in (("a", a), ("b", b)))
    gemm = gemm_of(implementation)

    def fn(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        return out.copy_(gemm(a, b, out=_beside(out))) if shifted == "c" else gemm(a, b, out=out)

    detectors = ptx.Detectors(tile=(implementation.config.BLOCK_M, implementation.config.BLOCK_N))
    try:
        with ptx.watched(detectors), mock.patch.object(launches, "SMS", 2):  # so that a persistent block has many tiles
            gemm_ref.checked_run(fn, a, b, math=problem.math, exact=True, config=implementation.config)
    except ptx.PtxError as error:
        return type(error).__name__, str(error)
    except gemm_ref.WrongResult as error:
        if not detectors.findings:
            return "check", str(error)
    if detectors.findings:
        return detectors.findings[0].kind, str(detectors.findings[0])
    return "", ""


def _beside(x: torch.Tensor) -> torch.Tensor:
    """The same numbers, starting one element past a vector."""
    return torch.cat([x.new_zeros(1), x.reshape(-1)])[1:].view(x.shape)


@contextlib.contextmanager
def _mutated(trial: Trial) -> Iterator[bool]:
    """Inside, the rung's `gemm` runs the mutant; False if that is the same kernel."""
    with tempfile.TemporaryDirectory() as folder:
        if trial.implementation.dialect == "cuda":
            text, original = _compile(trial, Path(folder)), source.ptx(trial.implementation)
            with mock.patch.object(source, "ptx", lambda implementation: text):
                yield _instructions(text) != _instructions(original)
        elif _compiled(trial):
            load, mutant = ptx.load, trial.mutant
            with mock.patch.object(ptx, "load", lambda text: load(text.replace(mutant.source, mutant.text))):
                yield True
        else:
            module = _import(trial, Path(folder))
            with mock.patch.object(triton_kernels, "kernel_module", lambda implementation: module):
                yield True


def _instructions(text: str) -> str:
    """PTX without its table of files and the places in them, which a mutant moves."""
    return re.sub(r"//[^\n]*|\.loc[^\n]*", "", text.split("\n\t.file")[0])


def _compile(trial: Trial, folder: Path) -> str:
    """The mutant's PTX, from a copy of the headers and of the rung's file."""
    shutil.copytree(source.INCLUDE, folder / "include")
    target = folder / "out.ptx"
    text = source.compose(trial.implementation)
    if trial.mutant.file.endswith(".cu"):
        text = text.replace(trial.mutant.source, trial.mutant.text)
    else:
        (folder / "include" / trial.mutant.file).write_text(trial.mutant.text, encoding="utf-8")
    rung = folder / f"{trial.implementation.stage.id}.cu"
    rung.write_text(text, encoding="utf-8")
    flags = [f"-I{folder / 'include'}" if flag.startswith("-I") else flag for flag in source.FLAGS]
    run_nvcc(
        [*flags, "-ptx", f"-arch=compute_{architecture(source.REFERENCE_CAPABILITY)}", str(rung), "-o", str(target)]
    )
    return target.read_text(encoding="utf-8")


def _import(trial: Trial, folder: Path):
    path = folder / trial.mutant.file
    path.write_text(trial.mutant.text, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(f"mutant_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# --- all of them ---------------------------------------------------------------------------------------------


def main(arguments: Sequence[str] | None = None) -> int:
    """Try all mutants that the arguments name; 0 if each is reported, unchanged or listed as equivalent."""
    parser = argparse.ArgumentParser(description="Try every mutant of the ladder's kernels.")
    parser.add_argument("--stage", help="one rung, by its id or number")
    parser.add_argument("--dialect", choices=gemm_ref.DIALECTS)
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time")
    chosen = parser.parse_args(arguments)
    dialects = (chosen.dialect,) if chosen.dialect else gemm_ref.DIALECTS
    stages = (gemm_ref.get_stage(chosen.stage).id,) if chosen.stage else ALL
    plan, outcomes = _plan(dialects, stages), []
    with ProcessPoolExecutor(chosen.jobs) as pool:
        # by number, since what a trial holds does not travel between processes
        found = pool.map(_try_number, *zip(*[(dialects, stages, number) for number in range(len(plan))], strict=True))
        for trial, fields in zip(plan, found, strict=True):
            outcomes.append(Outcome(trial, *fields))
            print(f"{len(outcomes)}/{len(plan)} {fields[0]}: {trial}\n    {fields[2]}", file=sys.stderr)
    print(score(outcomes))
    return 1 if unexplained(outcomes) or stale(outcomes) else 0


@functools.cache
def _plan(dialects: tuple[str, ...], stages: tuple[str, ...]) -> list[Trial]:
    return trials(dialects, stages) + compiled_trials(dialects, stages)


def _try_number(dialects: tuple[str, ...], stages: tuple[str, ...], number: int) -> tuple[str, str, str]:
    try:
        outcome = try_out(_plan(dialects, stages)[number])
    except BuildError as error:
        return SURVIVED, "", f"is no mutant, since it does not compile: {error}"
    return outcome.status, outcome.by, outcome.text


if __name__ == "__main__":
    sys.exit(main())
