"""What was asked for on the command line, turned into experiments, problems and contenders; or a UsageError."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable, Sequence
from dataclasses import replace

import gemm_ref
from experiments.records import studies
from experiments.records.contenders import Contender
from experiments.records.request import DEFAULT, PRESETS, Request, UsageError
from gemm_ref import DIALECTS
from gemm_ref.baselines import BASELINES
from gemm_ref.compute import MAX_SIZE

MOST_PROCESSES = 16  # that stand for GPUs: each takes half a gigabyte


def named(names: Sequence[str]) -> list[str]:
    """The experiments of these names; all of them where there are none. Raises UsageError with the closest names."""
    for name in names:
        _known("experiment", name, studies.names())
    return list(names) or list(studies.names())


def make_request(
    stages: Sequence[str],
    backends: Sequence[str],
    sizes: Sequence[str],
    math: str,
    device: str,
    preset: str = DEFAULT,
    gpus: int = 0,
    layout: str = "",
) -> Request:
    """Check all filters. Raises UsageError naming what was wrong and what would be right."""
    for backend in backends:
        _known("backend", backend, known_backends())
    if math:
        _known("math mode", math, gemm_ref.MATHS)
    _known("preset", preset, PRESETS)
    if layout:
        _known("layout of B", layout, gemm_ref.B_LAYOUTS)
    try:
        ids = tuple(gemm_ref.get_stage(stage).id for stage in stages)
        problems = tuple(gemm_ref.Problem.parse(size) for size in sizes)
    except ValueError as error:
        raise UsageError(str(error)) from error
    for problem in problems:
        _fits(problem)
    device = choose_device(device)
    _there_are(gpus, device)
    return Request(device, ids, tuple(backends), problems, math, preset, layout, gpus)


def _there_are(gpus: int, device: str) -> None:
    """Raise UsageError where so many ranks cannot be started; 0 stands for all."""
    if gpus < 0 or gpus == 1:
        raise UsageError(f"--gpus {gpus}: a product is divided among 2 or more")
    most = MOST_PROCESSES
    if gpus and device == "cuda":
        import torch

        most = torch.cuda.device_count()
    if gpus > most:
        what = "GPUs" if device == "cuda" else "processes at most on the reference GPU"
        raise UsageError(f"--gpus {gpus}, and there are {most} {what}: pass --gpus {most}, or leave it out")


def _fits(problem: gemm_ref.Problem) -> None:
    """Raise UsageError for a problem whose sizes the kernels cannot count, or that this machine cannot hold."""
    if max(problem.m, problem.n, problem.k) > MAX_SIZE:
        raise UsageError(f"size {problem}: kernels count in 32 bits, so no size may pass {MAX_SIZE}")
    oracle = 8 * (2 * problem.m * problem.n + problem.k * problem.n)  # product, scale, and B, in float64
    needed, there = problem.min_bytes + oracle, memory_bytes()
    if there is not None and needed > there:
        raise UsageError(
            f"size {problem} needs {needed / 2**30:,.0f} GiB for A, B, C and the float64 oracle, and this machine has "
            f"{there / 2**30:,.0f} GiB: pass a smaller --size"
        )


def memory_bytes() -> int | None:
    """The machine's main memory; None where the system does not tell."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):  # Windows has no sysconf
        return None


def known_backends() -> tuple[str, ...]:
    """What --backend takes: a rung's dialect, or a baseline's backend."""
    return tuple(dict.fromkeys((*DIALECTS, *(baseline.backend for baseline in BASELINES.values()))))


def choose_device(device: str) -> str:
    """`auto` is the GPU where there is one. Raises UsageError for a GPU that is not there."""
    _known("device", device, ("auto", "cpu", "cuda"))
    if device == "cpu":
        return device
    import torch  # two seconds, after all that can be refused without it

    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cuda" and not torch.cuda.is_available():
        build = torch.version.cuda or "no CUDA (a CPU build)"
        raise UsageError(
            f"--device cuda, but torch sees no GPU: torch {torch.__version__} is built for {build}. "
            "On a machine with an NVIDIA GPU, `python -m experiments doctor` says what is missing; "
            "without one, --device cpu runs every kernel on the reference GPU"
        )
    return device


def select(request: Request, contenders: Iterable[Contender]) -> list[Contender]:
    """The contenders that pass the filters; which device they need is for the experiment to judge.

    --backend names a rung's dialect or a baseline's backend; --stage alone leaves the baselines out.
    """
    return [contender for contender in contenders if _passes(request, contender)]


def why_none(request: Request, contenders: Sequence[Contender]) -> str:
    """Why no contender passes the filters: what there would be without one of them."""
    for without, asked, has in (
        (replace(request, math=""), request.math, lambda each: each.math),
        (replace(request, backends=()), " or ".join(request.backends), lambda each: each.dialect or each.backend),
    ):
        if left := select(without, contenders):
            who, there = (", ".join(dict.fromkeys(map(of, left))) for of in (lambda each: each.stage, has))
            return f"{who} has no kernel in {asked}: it has {there}"
    return "no kernel and no baseline passes all of the filters"


def _passes(request: Request, contender: Contender) -> bool:
    if request.math and contender.math != request.math:
        return False
    name = contender.backend if contender.is_baseline else contender.dialect
    if request.backends and name not in request.backends:
        return False
    if contender.is_baseline:
        return bool(request.backends) or not request.stages
    return not request.stages or contender.stage in request.stages


def kernels(stage: str, dialect: str, variant: str, math: str) -> list[gemm_ref.Implementation]:
    """The kernels of one rung that pass the filters, which may be empty; without `math` those of its first mode.

    Raises UsageError naming what was wrong and what would be right.
    """
    if dialect:
        _known("dialect", dialect, DIALECTS)
    try:
        rung = gemm_ref.get_stage(stage)
    except ValueError as error:
        raise UsageError(str(error)) from error
    found = [item for item in gemm_ref.implementations() if item.stage is rung]
    for of, name in (("math", math or rung.maths[0]), ("variant", variant), ("dialect", dialect)):
        there = dict.fromkeys(getattr(item, of) for item in found)
        found = [item for item in found if not name or getattr(item, of) == name]
        if not found:
            which = f" for variant {variant!r}" if of == "dialect" and variant else ""
            raise UsageError(f"{rung.id} has no {of} {name!r}{which}: it has {', '.join(there)}")
    return found


def _known(what: str, name: str, known: Iterable[str]) -> None:
    known = list(known)
    if name not in known:
        close = difflib.get_close_matches(name, known, n=3, cutoff=0.6)
        hint = f"; did you mean {' or '.join(close)}?" if close else ""
        raise UsageError(f"unknown {what} {name!r}: there are {', '.join(known)}{hint}")
