"""Traces of many kernels: those that cannot have changed are read from the cache, the others are made on all cores."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from experiments import processes
from experiments.bench import provenance
from experiments.explore.traces import kernel
from experiments.explore.traces.record import Trace, from_json, to_json
from experiments.progress import Bars
from experiments.records import cache
from gemm_ref import DIALECTS, Implementation, implementations
from gemm_ref.build import BuildError

MIN_FOR_POOL = 6  # fewer kernels are traced in this process, because starting others takes seconds
_SOURCES = ("gemm_ref", "experiments/bench", "experiments/explore/traces")


@dataclass(frozen=True)
class TraceSet:
    """Traces in the registry's order, and the kernels that could not be traced."""

    traces: tuple[Trace, ...]
    failures: dict[str, str]  # name of a kernel (`str` of an Implementation) -> why it has no trace


def first_modes() -> list[Implementation]:
    """Returns every rung, variant and dialect of the registry in its rung's first compute type."""
    return [item for item in implementations() if item.math == item.stage.maths[0]]


def gather_traces(items: Sequence[Implementation] | None = None, bars: Bars | None = None) -> TraceSet:
    """Returns the traces of these kernels, or of `first_modes`.

    A kernel without a compiler here (`gemm_ref.build.BuildError`, ModuleNotFoundError for Triton) is among `failures`.
    """
    items = first_modes() if items is None else items
    versions = provenance.versions()
    found = {item: trace for item in items if (trace := _read(item, versions))}
    waiting = [item for item in items if item not in found]
    failures: dict[str, str] = {}
    if bars:
        bars.begin("tracing", len(items))
        bars.done(len(found))
    for item, (text, why) in zip(waiting, _trace_all(waiting, versions), strict=True):
        if why:
            failures[str(item)] = why
        else:
            found[item] = from_json(text)
            cache.save(_name(item), _state(item, versions), text.encode())
        if bars:
            bars.done()
    return TraceSet(tuple(found[item] for item in items if item in found), failures)


def _trace_all(items: Sequence[Implementation], versions: dict) -> Iterator[tuple[str, str]]:
    """Yields for each kernel the text of its trace, or the reason why it has none."""
    if len(items) < MIN_FOR_POOL:
        yield from (_trace_one(item, versions) for item in items)
        return
    with processes.pool() as pool:
        yield from pool.map(_trace_by_name, map(str, items), [versions] * len(items))


def _trace_by_name(name: str, versions: dict) -> tuple[str, str]:
    """Runs in another process, which gets a kernel by its name."""
    return _trace_one(next(item for item in implementations() if str(item) == name), versions)


def _trace_one(item: Implementation, versions: dict) -> tuple[str, str]:
    dialect = DIALECTS[item.dialect]
    try:
        return to_json(kernel.trace(item, f"{dialect.compiler} {versions[dialect.version]}")), ""
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
