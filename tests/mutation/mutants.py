"""Mutation: does anything tell when a kernel of the ladder has one small mistake?

Every rule of cuda_kernels/mutants.py and tests/mutation/rules.py is applied wherever it fits in every rung, in CUDA,
Triton and Gluon. A mutant is run on the reference GPU at a few sizes, and is *reported* if the machine stops at it, a
fault detector finds something, or the check rejects the result. One that survives is either listed in
tests/mutation/score.py, with the reason why it cannot give a wrong result, or a hole in the tests. The barriers, waits
and fences that Triton puts into its PTX are taken out too, and may be *redundant* (`thin`).

Run: `python -m tests.mutation.mutants [--stage s04] [--dialect cuda] [--jobs 2]`, some 40 minutes a core for
all of them.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import functools
import importlib.util
import re
import shutil
import sys
import tempfile
import types
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from unittest import mock

import torch

import gemm_ref
import triton_kernels
from cuda_kernels import source
from cuda_kernels.mutants import Mutant, cuda_mutants
from experiments.records.contenders import gemm_of
from gemm_ref import Implementation, Problem, call, choice, grids, ptx
from gemm_ref.build import BuildError
from gemm_ref.stage import Stage
from gemm_ref.toolchain import REFERENCE_SMS
from tests import matrices
from tests.imports import ROOT
from tests.mutation.rules import ptx_mutants, triton_mutants
from tests.mutation.score import (
    REDUNDANT,
    REPORTED,
    SURVIVED,
    UNCHANGED,
    UNREACHED,
    Outcome,
    Trial,
    score,
    stale,
    unexplained,
)

SIMT = tuple(stage.id for stage in gemm_ref.stages_in("fp32"))
TENSOR_CORES = {  # the math modes that mutants are tried in: the first, and tf32 where C^T is computed
    stage.id: (stage.maths[0], *(("tf32",) if stage.turned else ()))
    for stage in gemm_ref.STAGES.values()
    if stage.id not in SIMT
}
ALL = (*SIMT, *TENSOR_CORES)
BLOCKS = 7  # that tiles are dealt to


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
            from triton_kernels.launcher import compile_for_inspection

            stage, dialect, problem = implementation.stage.id, implementation.dialect, _compiled_for(implementation)
            names = {"variant": implementation.variant, "math": implementation.math}
            kernel = compile_for_inspection(stage, dialect, problem.m, problem.n, problem.k, **names)
            found += [Trial(implementation, mutant) for mutant in ptx_mutants(f"{stage}.ptx", kernel.asm["ptx"])]
    return found


def _compiled_for(implementation: Implementation) -> Problem:
    """The problem whose PTX `compiled_trials` changes: whole vectors, and every stage is used twice."""
    first, second, *_ = (problem for problem, _ in runs(implementation))
    return second if implementation.stage.id in TENSOR_CORES else first


def _files(implementation: Implementation) -> list[tuple[Path, frozenset[str] | None]]:
    """The rung's own file, and the headers it includes or the helpers it imports, these with the names that it uses."""
    name = implementation.stage.id
    if implementation.dialect == "cuda":
        files = [source.FOLDER / f"{name}.cu"]
        for path in files:  # which grows
            names = re.findall(r'^#include "(\w+\.cuh)"', path.read_text(encoding="utf-8"), re.M)
            files += [source.INCLUDE / n for n in names if source.INCLUDE / n not in files]
        return [(path, None) for path in files]
    package = _package(implementation)
    text = _module_file(package, name).read_text(encoding="utf-8")
    imports = re.findall(rf"^from {re.escape(package)}\.(tiles|hopper) import (.*)$", text, re.M)
    helpers = [(_module_file(package, helper), names.split(", ")) for helper, names in imports]
    return [
        (_module_file(package, name), None),
        *((path, _with_callees(path, frozenset(names))) for path, names in helpers),
    ]


def _package(implementation: Implementation) -> str:
    return gemm_ref.DIALECTS[implementation.dialect].module


def _module_file(package: str, name: str) -> Path:
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


# --- running -------------------------------------------------------------------------------------------------


def runs(implementation: Implementation) -> Iterator[tuple[Problem, str]]:
    """(problem, operand that starts beside a 16-byte vector or ""), the one that tells the most first."""
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


def _tensor_core_runs(implementation: Implementation) -> Iterator[tuple[Problem, str]]:
    """The same, after the shortest: every stage is used twice, and two clusters' tiles lie one below the other.

    Where TMA copies, an operand that starts elsewhere is copied first.
    """
    config, math = implementation.config, implementation.math
    slice_ = (config.BLOCK_K_BYTES or config.BLOCK_K * 2) // gemm_ref.MATHS[math].dtype.itemsize
    m, n, deep = config.BLOCK_M * (config.CLUSTER_M or 1), config.BLOCK_N, (config.NUM_STAGES + 1) * slice_
    if implementation.stage.tiles:  # so that a share behind a tile uses every stage again
        deep *= 2
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
    """Compile a mutant of a source and run it until something tells."""
    said = ""
    with _mutated(trial) as changed:
        if not changed:
            return Outcome(trial, UNCHANGED)
        for problem, shifted in runs(trial.implementation):
            by, text = _run(trial.implementation, problem, shifted)
            if by:
                return Outcome(trial, REPORTED, by, text)
            said = said or text
        loaded = _loaded(trial.implementation)
    same = loaded == _loaded(trial.implementation)
    return Outcome(trial, UNCHANGED if same else SURVIVED, text=said)


def _loaded(implementation: Implementation) -> list[str]:
    """The kernels that run at the last of the sizes."""
    load, texts = ptx.load, []
    *_, (problem, _) = runs(implementation)
    with mock.patch.object(ptx, "load", lambda text, *name: texts.append(_instructions(text)) or load(text, *name)):
        _run(implementation, problem, "")
    return texts


def thin(compiled: Sequence[Trial]) -> list[Outcome]:
    """Take what a compiler put into one kernel out again, one after the other, from its end on, while nothing tells.

    A compiler orders what might need it, so some of it orders nothing that the rest does not: it is redundant, all
    together. Of each that is left something tells when it is taken out too. Code that did not run proves nothing.
    """
    implementation, original = compiled[0].implementation, compiled[0].mutant.source
    problem, reached = _compiled_for(implementation), _Reached()
    _run(implementation, problem, "", reached)
    outcomes, thinned = [], original
    for trial in sorted(compiled, key=lambda trial: -trial.mutant.start):
        mutant = trial.mutant
        if mutant.line not in reached.lines:
            outcomes.append(Outcome(trial, UNREACHED))
            continue
        changed = thinned[: mutant.start] + mutant.put + thinned[mutant.end :]
        with _loading(original, changed):
            by, text = _run(implementation, problem, "")
        if not by:
            thinned = changed
        outcomes.append(Outcome(trial, REPORTED if by else REDUNDANT, by, text))
    return outcomes[::-1]


class _Reached(ptx.Observer):
    """Which lines of the PTX some thread has executed."""

    def __init__(self) -> None:
        self.lines: set[int] = set()

    def on_instruction(self, instruction, active, machine) -> None:
        self.lines.add(instruction.ptx_line)


def _compiled(trial: Trial) -> bool:
    """Whether the mutant is of PTX, which is that of one problem alone."""
    return trial.mutant.file.endswith(".ptx")


def _run(implementation: Implementation, problem: Problem, shifted: str, *observers: ptx.Observer) -> tuple[str, str]:
    """What told of a fault, empty where nothing did, and in which words."""
    a, b = gemm_ref.make_inputs(problem, "integers", seed=1)
    a, b = (matrices.shifted(x) if name == shifted else x for name, x in (("a", a), ("b", b)))
    gemm = gemm_of(implementation)

    def fn(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        return out.copy_(gemm(a, b, out=matrices.shifted(out))) if shifted == "c" else gemm(a, b, out=out)

    detectors = ptx.Detectors(tile=(implementation.config.BLOCK_M, implementation.config.BLOCK_N))
    persistent = implementation.stage.launch_shape is grids.persistent_clusters
    sms = 2 if persistent else REFERENCE_SMS  # so that a persistent block has many tiles
    try:
        with (
            ptx.watched(detectors, *observers),
            mock.patch.object(call, "REFERENCE_SMS", sms),
            mock.patch.object(choice, "choose", functools.partial(_choose, choice.choose)),
        ):
            gemm_ref.checked_run(fn, a, b, math=problem.math, exact=True, config=implementation.config)
    except ptx.PtxError as error:
        return type(error).__name__, str(error)
    except gemm_ref.WrongResult as error:
        if not detectors.findings:
            return "check", str(error)
    except Exception as error:
        if not _is_of_compiler(error):
            raise
        return "", f"does not compile at {problem}: {error}"  # elsewhere it may
    if detectors.findings:
        return detectors.findings[0].kind, str(detectors.findings[0])
    return "", ""


def _choose(choose: Callable[..., choice.Candidate], stage: Stage, dialect: str, *about) -> choice.Candidate:
    """A tile, and so few blocks to which the tiles are dealt that each has several, and a share of one or two.

    The tile is what `choose` says, or on tensor cores the first, which the sizes are for.
    """
    if stage.id not in TENSOR_CORES:
        return replace(choose(stage, dialect, *about), blocks=BLOCKS)
    tile, config = next(iter(stage.tiles[dialect].items()))
    return choice.Candidate(tile, 3 * (config.CLUSTER_M or 1))


def _is_of_compiler(error: Exception) -> bool:
    """Whether Triton refused to compile a kernel."""
    said = ("PassManager::run failed", "error encountered during parsing")
    return type(error).__name__ == "CompilationError" or str(error) in said


@contextlib.contextmanager
def _mutated(trial: Trial) -> Iterator[bool]:
    """Inside, the rung's `gemm` runs the mutant; False if that is the same kernel."""
    with tempfile.TemporaryDirectory() as folder:
        if trial.implementation.dialect == "cuda":
            items = _that_run(trial.implementation)
            texts = {name: _compile(trial, item, Path(folder)) for name, item in items.items()}
            originals = {name: source.ptx(item) for name, item in items.items()}
            changed = any(_instructions(texts[name]) != _instructions(originals[name]) for name in items)
            with mock.patch.object(
                source, "ptx", lambda item, *_: texts[item.variant if item.variant in texts else ""]
            ):
                yield changed
        else:
            module = _import(trial, Path(folder))
            with mock.patch.object(triton_kernels, "kernel_module", lambda implementation: module):
                yield True


def _that_run(implementation: Implementation) -> dict[str, Implementation]:
    """What runs at the sizes: by name the tiles that are chosen there, or without a name the rung itself."""
    stage, dialect = implementation.stage, implementation.dialect
    if dialect not in stage.tiles:
        return {"": implementation}
    about = ((problem, vectors) for problem, _ in runs(implementation) for vectors in (True, False))
    tiles = {_choose(choice.choose, stage, dialect, problem, REFERENCE_SMS, vectors).tile for problem, vectors in about}
    return {tile: replace(implementation, variant=tile) for tile in sorted(tiles)}


@contextlib.contextmanager
def _loading(original: str, changed: str) -> Iterator[None]:
    """Inside, the reference GPU runs `changed` where it is given the PTX `original`, as it must be."""
    load, seen = ptx.load, []

    def load_changed(text: str) -> ptx.Kernel:
        seen.append(text)
        return load(changed if text == original else text)

    with mock.patch.object(ptx, "load", load_changed):
        yield
    assert original in seen, "the kernel that ran is not the one that was changed"


def _instructions(text: str) -> str:
    """PTX without its table of files and the places in them, which a mutant moves."""
    return "".join(re.sub(r"//[^\n]*|\.loc[^\n]*|\$L__tmp\d+:", "", text.split("\n\t.file")[0]).split())


def _compile(trial: Trial, implementation: Implementation, folder: Path) -> str:
    """The mutant's PTX, from a copy of the headers and of the rung's file."""
    shutil.copytree(source.INCLUDE, folder / "include", dirs_exist_ok=True)
    text = source.compose(implementation)
    if trial.mutant.file.endswith(".cu"):
        text = text.replace(trial.mutant.source, trial.mutant.text)
    else:
        (folder / "include" / trial.mutant.file).write_text(trial.mutant.text, encoding="utf-8")
    flags = [f"-I{folder / 'include'}" if flag.startswith("-I") else flag for flag in source.FLAGS]
    return source.compile_ptx(text, f"{implementation.stage.id}.cu", flags=flags)[0]


def _import(trial: Trial, folder: Path) -> types.ModuleType:
    """The rung's module, with the mutant as its own file or as the helper that it imports."""
    path, package = folder / trial.mutant.file, _package(trial.implementation)
    path.write_text(trial.mutant.text, encoding="utf-8")
    module, name = _import_file(path), trial.implementation.stage.id
    if path.stem == name:
        return module
    with mock.patch.dict(sys.modules, {f"{package}.{path.stem}": module}):
        return _import_file(_module_file(package, name))


def _import_file(path: Path) -> types.ModuleType:
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
        for together, fields in zip(plan, found, strict=True):
            outcomes += [Outcome(trial, *each) for trial, each in zip(together, fields, strict=True)]
            for outcome in outcomes[-len(together) :]:
                print(f"{outcome.status}: {outcome.trial}\n    {outcome.text}", file=sys.stderr)
    print(score(outcomes))
    return 1 if unexplained(outcomes) or stale(outcomes) else 0


@functools.cache
def _plan(dialects: tuple[str, ...], stages: tuple[str, ...]) -> list[list[Trial]]:
    """What is tried together: all that was compiled into a kernel, and every other mutant by itself."""
    kernels: dict[Implementation, list[Trial]] = {}
    for trial in compiled_trials(dialects, stages):
        kernels.setdefault(trial.implementation, []).append(trial)
    return [*kernels.values(), *([trial] for trial in trials(dialects, stages))]


def _try_number(dialects: tuple[str, ...], stages: tuple[str, ...], number: int) -> list[tuple[str, str, str]]:
    together = _plan(dialects, stages)[number]
    try:
        outcomes = thin(together) if _compiled(together[0]) else [try_out(together[0])]
    except BuildError as error:
        return [(SURVIVED, "", f"is no mutant, since it does not compile: {error}")]
    return [(outcome.status, outcome.by, outcome.text) for outcome in outcomes]


if __name__ == "__main__":
    sys.exit(main())
