"""Mutation: does anything tell when a kernel of the ladder has one small mistake?

Every rule of cuda_kernels/mutants.py and tests/mutation/rules.py is applied wherever it fits in every rung, in CUDA,
Triton and Gluon. A mutant is run on the reference GPU at a few sizes, and is *reported* if the machine stops at it, a
fault detector finds something, or the check rejects the result. One that survives is either in equivalent.toml, with
the reason why it cannot give a wrong result, or a hole in the tests. The barriers, waits and fences that Triton puts
into its PTX are taken out too, and may be *redundant* (`thin`).

Run: `python -m tests.mutation.mutants [--stage s04] [--dialect cuda] [--jobs 2]`, some 40 minutes a core for
all of them.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import importlib.util
import re
import shutil
import sys
import tempfile
import types
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from unittest import mock

import torch

import gemm_ref
import triton_kernels
from cuda_kernels import reference_gpu, source
from experiments.records.contenders import gemm_of
from gemm_ref import Implementation, Problem, ptx
from gemm_ref.build import BuildError, share_cache_with_triton
from gemm_ref.call import Plan, validate
from gemm_ref.config.hopper import PersistentConfig
from gemm_ref.launch import REFERENCE_SMS
from tests import matrices
from tests.mutation.score import (
    ERROR,
    REDUNDANT,
    REPORTED,
    SURVIVED,
    UNCHANGED,
    UNREACHED,
    Outcome,
    Trial,
    failed,
    score,
    stale,
    unexplained,
)
from tests.mutation.trials import (
    ALL,
    WIDE,
    compiled_for,
    compiled_trials,
    few_blocks,
    module_file,
    package_of,
    runs,
    trials,
)


def try_out(trial: Trial) -> Outcome:
    """Compile a mutant of a source and run it until something tells. What compiles at no size is no mutant."""
    refusals: list[str] = []  # by size
    with _mutated(trial) as changed:
        if not changed:
            return Outcome(trial, UNCHANGED)
        for problem, shifted in runs(trial.implementation):
            by, text = _run(trial.implementation, problem, shifted)
            if by:
                return Outcome(trial, REPORTED, by, text)
            refusals.append(text)
        said = next(filter(None, refusals), "")
        if all(refusals):
            return Outcome(trial, UNCHANGED, text=said)
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
    problem, reached = compiled_for(implementation), _Reached()
    _run(implementation, problem, "", reached)
    outcomes, thinned = [], original
    for trial in sorted(compiled, key=lambda trial: -trial.mutant.start):
        mutant = trial.mutant
        if mutant.line not in reached.lines:
            outcomes.append(Outcome(trial, UNREACHED))
            continue
        changed = thinned[: mutant.start] + mutant.put + thinned[mutant.end :]
        try:
            with _loading(original, changed):
                by, text = _run(implementation, problem, "")
        except Exception as error:
            outcomes.append(failed(trial, error))
            continue
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
    a, b = _operands(problem, shifted)
    gemm = gemm_of(implementation)

    def fn(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        return out.copy_(gemm(a, b, out=matrices.shifted(out))) if shifted == "c" else gemm(a, b, out=out)

    detectors = ptx.Detectors(tile=(implementation.config.BLOCK_M, implementation.config.BLOCK_N))
    persistent = isinstance(implementation.config, PersistentConfig)
    sms = 2 if persistent else REFERENCE_SMS  # so that a persistent block has many tiles
    try:
        with (
            ptx.watched(detectors, *observers),
            mock.patch.object(validate, "REFERENCE_SMS", sms),
            few_blocks(),
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


def _operands(problem: Problem, shifted: str) -> tuple[torch.Tensor, torch.Tensor]:
    a, b = gemm_ref.make_inputs(problem, "integers", seed=1)
    if shifted == WIDE:
        a, b = matrices.wide(a, b)
    a, b = (matrices.shifted(x) if name == shifted else x for name, x in (("a", a), ("b", b)))
    return a, b


def _is_of_compiler(error: Exception) -> bool:
    """Whether Triton refused to compile a kernel."""
    said = ("PassManager::run failed", "error encountered during parsing")
    return type(error).__name__ == "CompilationError" or str(error) in said


@contextlib.contextmanager
def _mutated(trial: Trial) -> Iterator[bool]:
    """Inside, the rung's `gemm` runs the mutant; False if that is the same kernel."""
    with tempfile.TemporaryDirectory() as folder:
        if trial.implementation.dialect == "cuda":
            texts = {item: _compile(trial, item, Path(folder)) for item in _that_run(trial.implementation)}
            changed = any(_instructions(text) != _instructions(source.ptx(item)) for item, text in texts.items())
            with mock.patch.object(source, "ptx", lambda item, *_: texts[item]):
                yield changed
        else:
            module = _import(trial, Path(folder))
            with mock.patch.object(triton_kernels, "kernel_module", lambda implementation: module):
                yield True


@functools.cache
def _that_run(implementation: Implementation) -> tuple[Implementation, ...]:
    """The kernels that run at the sizes: tiles, and forms of them, by who stores C and how A is read."""
    found: dict[Implementation, None] = {}

    def record(ran: Plan, *matrices: object, **text: str) -> None:
        found[ran.implementation] = None

    with mock.patch.object(reference_gpu, "run", record), few_blocks():
        for problem, shifted in runs(implementation):
            gemm_of(implementation)(*_operands(problem, shifted))
    return tuple(found)


@contextlib.contextmanager
def _loading(original: str, changed: str) -> Iterator[None]:
    """Inside, the reference GPU runs `changed` where it is given the PTX `original`, as it must be."""
    load, seen = ptx.load, []

    def load_changed(text: str) -> ptx.DecodedKernel:
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
    """The rung's module, with the mutant as its own file, or as the helper or the rung that it imports."""
    path, own = folder / trial.mutant.file, package_of(trial.implementation)
    package = next(each for each in (own, "triton_kernels") if module_file(each, path.stem).exists())
    path.write_text(trial.mutant.text, encoding="utf-8")
    module, name = _import_file(path), trial.implementation.stage.id
    if path.stem == name:
        return module
    with mock.patch.dict(sys.modules, {f"{package}.{path.stem}": module}):
        for other in gemm_ref.STAGES.keys() - {path.stem}:  # a rung between the two is imported again, with the mutant
            sys.modules.pop(f"{package}.{other}", None)
        return _import_file(module_file(own, name))


def _import_file(path: Path) -> types.ModuleType:
    spec = importlib.util.spec_from_file_location(f"mutant_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main(arguments: Sequence[str] | None = None) -> int:
    """Try all mutants that the arguments name; 0 if each is reported, unchanged or listed as equivalent.

    A mutant whose trial raises an error is listed behind the score, and the others are tried all the same.
    """
    share_cache_with_triton()
    parser = argparse.ArgumentParser(description="Try every mutant of the ladder's kernels.")
    parser.add_argument("--stage", help="one rung, by its id or number")
    parser.add_argument("--dialect", choices=gemm_ref.DIALECTS)
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time")
    chosen = parser.parse_args(arguments)
    dialects = (chosen.dialect,) if chosen.dialect else tuple(gemm_ref.DIALECTS)
    stages = (gemm_ref.get_stage(chosen.stage).id,) if chosen.stage else ALL
    plan, outcomes = _plan(dialects, stages), []
    with ProcessPoolExecutor(chosen.jobs) as pool:
        # by number, since what a trial holds does not travel between processes
        numbers = {pool.submit(_try_number, dialects, stages, number): number for number in range(len(plan))}
        for done in as_completed(numbers):
            together = plan[numbers[done]]
            try:
                tried = [Outcome(trial, *fields) for trial, fields in zip(together, done.result(), strict=True)]
            except BrokenProcessPool as error:  # a process has ended, and with it what was not yet tried
                tried = [failed(trial, error) for trial in together]
            outcomes += tried
            for outcome in tried:
                print(f"{outcome.status}: {outcome.trial}\n    {outcome.text}", file=sys.stderr)
    print(score(outcomes))
    has_errors = any(outcome.status == ERROR for outcome in outcomes)
    return 1 if unexplained(outcomes) or stale(outcomes) or has_errors else 0


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
    except Exception as error:
        outcomes = [failed(trial, error) for trial in together]
    return [(outcome.status, outcome.by, outcome.text) for outcome in outcomes]


if __name__ == "__main__":
    sys.exit(main())
