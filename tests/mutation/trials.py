"""Which mutants each rung's kernel has, and the sizes that they are run at (`tests.mutation.mutants` runs them)."""

from __future__ import annotations

import ast
import contextlib
import functools
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from unittest import mock

import gemm_ref
from cuda_kernels import source
from cuda_kernels.mutants import Mutant, cuda_mutants
from experiments.records.source_lines import kernel_file
from gemm_ref import Implementation, Problem, choice
from gemm_ref.rung import Rung
from tests.imports import ROOT
from tests.mutation.rules import ptx_mutants, triton_mutants
from tests.mutation.score import Trial

SIMT = tuple(stage.id for stage in gemm_ref.stages_in("fp32"))
TENSOR_CORES = {  # the math modes that mutants are tried in: the first, and tf32 where C^T is computed
    stage.id: (stage.maths[0], *(("tf32",) if stage.tma and stage.tma.transpose_tf32 else ()))
    for stage in gemm_ref.STAGES.values()
    if stage.id not in SIMT
}
ALL = (*SIMT, *TENSOR_CORES)
BLOCKS = 7  # that tiles are dealt to
WIDE = "wide"  # in place of an operand's name: lines that s20 does not hold in parts (`tests.matrices.wide`)


def trials(dialects: Sequence[str] = gemm_ref.DIALECTS, stages: Sequence[str] = ALL) -> list[Trial]:
    """Every mutant of one variant of each rung; those of a header for each rung that includes it."""
    found = []
    for implementation in gemm_ref.implementations(tuple(dialects)):
        stage, dialect = implementation.stage, implementation.dialect
        default = implementation.variant == stage.find_variant("default", dialect)
        if stage.id in stages and default and implementation.math in TENSOR_CORES.get(stage.id, ("fp32",)):
            for path, used in _files(implementation):
                found += [Trial(implementation, mutant) for mutant in _mutants(path, used)]
    return found


def compiled_trials(dialects: Sequence[str], stages: Sequence[str]) -> list[Trial]:
    """As `trials`, for the barriers, waits and fences that Triton has put into its PTX; compiles each kernel."""
    found = []
    for implementation in {trial.implementation: None for trial in trials(dialects, stages)}:
        if implementation.dialect != "cuda":
            from triton_kernels.inspection import compile_for_inspection

            stage, dialect, problem = implementation.stage.id, implementation.dialect, compiled_for(implementation)
            names = {"variant": implementation.variant, "math": implementation.math}
            with few_blocks():  # which decide whether the kernel has code for shares
                kernel = compile_for_inspection(stage, dialect, problem.m, problem.n, problem.k, **names)
            found += [Trial(implementation, mutant) for mutant in ptx_mutants(f"{stage}.ptx", kernel.asm["ptx"])]
    return found


@contextlib.contextmanager
def few_blocks() -> Iterator[None]:
    """Inside, the rungs that select a tile by shape take the tile and the few blocks that the sizes are for."""
    with mock.patch.object(choice, "choose", functools.partial(_choose, choice.choose)):
        yield


def _choose(choose: Callable[..., choice.Candidate], stage: Rung, dialect: str, *about, **more) -> choice.Candidate:
    """A tile, and so few blocks to which the tiles are dealt that each has several, and a share of one or two.

    A strip is never shared. The tile is what `choose` says, or on tensor cores the first, which the sizes are for.
    """
    if stage.id not in TENSOR_CORES:
        chosen = choose(stage, dialect, *about, **more)
        return chosen if stage.tiles[dialect][chosen.tile].SPLIT_WARPS else replace(chosen, blocks=BLOCKS)
    tile, config = next(iter(stage.tiles[dialect].items()))
    return choice.Candidate(tile, 3 * config.CLUSTER_M)


def compiled_for(implementation: Implementation) -> Problem:
    """The problem whose PTX `compiled_trials` changes: whole vectors, and every stage is used twice."""
    first, second, *_ = (problem for problem, _ in runs(implementation))
    return second if implementation.stage.id in TENSOR_CORES else first


def _files(implementation: Implementation) -> list[tuple[Path, frozenset[str] | None]]:
    """The file of the rung's kernel, and the headers it includes or helpers it imports, with the names that it uses."""
    name = implementation.stage.id
    if implementation.dialect == "cuda":
        files = [source.FOLDER / f"{name}.cu"]
        for path in files:  # which grows
            names = re.findall(r'^#include "(\w+\.cuh)"', path.read_text(encoding="utf-8"), re.M)
            files += [source.INCLUDE / n for n in names if source.INCLUDE / n not in files]
        return [(path, None) for path in files]
    path = ROOT / kernel_file(name, implementation.dialect)
    pattern = r"^from (triton_kernels(?:\.gluon)?)\.(tiles|schedule|hopper|finish|tile_io) import (.*)$"
    imports = re.findall(pattern, path.read_text(encoding="utf-8"), re.M)
    helpers = [(module_file(folder, helper), names.split(", ")) for folder, helper, names in imports]
    return [(path, None), *((path, _with_callees(path, frozenset(names))) for path, names in helpers)]


def package_of(implementation: Implementation) -> str:
    return gemm_ref.DIALECTS[implementation.dialect].module


def module_file(package: str, name: str) -> Path:
    return ROOT / package.replace(".", "/") / f"{name}.py"


def _with_callees(path: Path, names: frozenset[str]) -> frozenset[str]:
    """These functions of a file, and those of the same file that they call."""
    functions = {n.name: n for n in ast.parse(path.read_text(encoding="utf-8")).body if isinstance(n, ast.FunctionDef)}
    called = {
        node.id for name in names & functions.keys() for node in ast.walk(functions[name]) if isinstance(node, ast.Name)
    }
    more = names | called & functions.keys()
    return more if more == names else _with_callees(path, more)


@functools.cache
def _mutants(path: Path, used: frozenset[str] | None) -> list[Mutant]:
    text = path.read_text(encoding="utf-8")
    return triton_mutants(path.name, text, used) if path.suffix == ".py" else cuda_mutants(path.name, text)


def runs(implementation: Implementation) -> Iterator[tuple[Problem, str]]:
    """(problem, operand that starts beside a 16-byte vector, WIDE or ""), the one that tells the most first."""
    config = implementation.config
    if implementation.stage.id in TENSOR_CORES:
        yield from _tensor_core_runs(implementation)
        return
    slice_ = config.BLOCK_K or 16
    deep = 9 * slice_ if implementation.stage.second_kernel else 4 * slice_  # so that K is split where it can be
    vectors = Problem(config.BLOCK_M + 16, config.BLOCK_N + 16, deep + 16)
    yield vectors, ""
    yield Problem(config.BLOCK_M + 1, config.BLOCK_N + 3, deep - slice_ + 1), ""  # no vectors
    yield Problem(3, 2, 1), ""
    for shifted in "abc":
        yield vectors, shifted
    if any(tile.SPLIT_WARPS for tile in implementation.stage.tiles.get(implementation.dialect, {}).values()):
        for k in (2052, 1025):  # one row and one column, with vectors and without
            yield Problem(1, k + 32, k), ""
            yield Problem(517, 1, k), ""
        for shifted in "ab":
            yield Problem(517, 1, 2052), shifted


def _tensor_core_runs(implementation: Implementation) -> Iterator[tuple[Problem, str]]:
    """The same, after the shortest: every stage is used twice, and two clusters' tiles lie one below the other.

    Where TMA copies, an operand that starts elsewhere is copied first.
    """
    config, math = implementation.config, implementation.math
    slice_ = config.depth(gemm_ref.MATHS[math].part_dtype.itemsize)
    m, n, deep = config.BLOCK_M * config.CLUSTER_M, config.BLOCK_N, (config.NUM_STAGES + 1) * slice_
    if implementation.dialect in implementation.stage.tiles:  # so that a share behind a tile uses every stage again
        deep *= 2
    chunks = Problem(m + 16, n + 16, deep + 16, math)
    yield Problem(3, 2, 1, math), ""
    yield (replace(chunks, n=n) if implementation.stage.tma else chunks), ""
    yield Problem(m + 1, n + 3, deep + 1, math), ""
    tma = implementation.stage.tma
    if tma and implementation.dialect in tma.a_in_phases:  # A is read in phases, where B need not be copied
        yield Problem(m + 1, n, deep + 1, math), ""
    if math in gemm_ref.EMULATED:
        yield Problem(m + 1, n + 3, 9, math), WIDE
    if "GROUP_M" in config.constants() and "CLUSTER_M" not in config.constants():  # more tiles down than a group has
        yield Problem((config.GROUP_M + 1) * m, n + 1, 1, math), ""
    if not implementation.stage.tma:
        for shifted in "abc":
            yield chunks, shifted
