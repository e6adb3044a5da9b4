"""The traces of many kernels: those that cannot have changed are read, and the others are made on all cores."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from experiments import processes
from experiments.bench import parallel, provenance
from experiments.explore.traces import kernel
from experiments.explore.traces.record import Trace, from_json, to_json
from experiments.progress import Bars
from experiments.records import cache
from gemm_ref import DIALECTS, Implementation, implementations
from gemm_ref.build import BuildError

ALONE = 6  # fewer are traced in this process: starting others takes seconds
_SOURCES = ("gemm_ref", "experiments/bench", "experiments/explore/traces")
_COMPILERS = {"cuda": ("nvcc", "nvcc"), "triton": ("Triton", "triton")}  # by backend: its name, and that of its version


@dataclass(frozen=True)
class Gathered:
    """Traces in the registry's order, and what could not be traced."""

    traces: tuple[Trace, ...]
    lacking: dict[str, str]  # the names of kernels (`str` of an Implementation) -> why they have none


def first_modes() -> list[Implementation]:
    """Every rung, variant and dialect of the registry, in its rung's first math mode."""
    return [item for item in implementations() if item.math == item.stage.maths[0]]


def gather(items: Sequence[Implementation] | None = None, bars: Bars | None = None) -> Gathered:
    """The traces of these kernels, or of `first_modes`.

    What has no compiler here (`gemm_ref.build.BuildError`, ModuleNotFoundError for Triton) is lacking, with the reason.
    """
    items = first_modes() if items is None else items
    versions = provenance.versions()
    found = {item: trace for item in items if (trace := _read(item, versions))}
    waiting = [item for item in items if item not in found]
    lacking: dict[str, str] = {}
    if bars:
        bars.begin("tracing", len(items))
        bars.done(len(found))
    for item, (text, why) in zip(waiting, _made(waiting, versions), strict=True):
        if why:
            lacking[str(item)] = why
        else:
            found[item] = from_json(text)
            cache.save(_name(item), _state(item, versions), text.encode())
        if bars:
            bars.done()
    return Gathered(tuple(found[item] for item in items if item in found), lacking)


def _made(items: Sequence[Implementation], versions: dict) -> Iterator[tuple[str, str]]:
    """For each kernel the text of its trace, or why it has none."""
    if len(items) < ALONE:
        yield from (_make(item, versions) for item in items)
        return
    with processes.pool(parallel.use_one_thread) as pool:
        yield from pool.map(_make_named, map(str, items), [versions] * len(items))


def _make_named(name: str, versions: dict) -> tuple[str, str]:
    """In another process, to which a kernel goes by its name."""
    return _make(next(item for item in implementations() if str(item) == name), versions)


def _make(item: Implementation, versions: dict) -> tuple[str, str]:
    name, version = _COMPILERS[item.backend]
    try:
        return to_json(kernel.trace(item, f"{name} {versions[version]}")), ""
    except (BuildError, ModuleNotFoundError) as error:
        return "", str(error)


# --- what is kept ------------------------------------------------------------------------------------------------


def _name(item: Implementation) -> str:
    return f"trace-{kernel.name_of(item)}"


def _read(item: Implementation, versions: dict) -> Trace | None:
    """The trace that was kept; None where there is none of these sources and versions."""
    text = cache.load(_name(item), _state(item, versions))
    return from_json(text.decode()) if text else None


def _state(item: Implementation, versions: dict) -> str:
    return _state_of(DIALECTS[item.dialect].package, item.stage.id, tuple(versions.items()))


@functools.cache
def _state_of(package: str, stage: str, versions: tuple) -> str:
    return cache.digest_rung([*_SOURCES, package], stage, [version for _, version in versions])
