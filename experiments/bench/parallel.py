"""Measuring what takes no GPU: rows that cannot have changed are read, and the others are found on all cores."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Iterable, Sequence
from typing import TypeVar

from experiments import processes
from experiments.progress import Bars
from experiments.records.contenders import Contender, contenders
from experiments.records.row_cache import RowCache
from experiments.records.rows import Row

MIN_JOBS = 8  # fewer contenders are measured in this process: starting others takes seconds

# What is measured by itself, a problem and a kind of inputs for example; its words together name it.
Part = TypeVar("Part", bound=tuple)
AnyRow = TypeVar("AnyRow", bound=Row)
MeasureParts = Callable[[Contender, Sequence[Part]], Iterable[list[AnyRow]]]  # yields the rows of each part
Job = tuple[Contender, Sequence[Part]]


def measure_parts(
    jobs: Sequence[Job[Part]], function: MeasureParts[Part, AnyRow], bars: Bars, row_cache: RowCache | None
) -> Generator[list[AnyRow], None, None]:
    """Yields the rows of each contender's parts, in order; `function` measures those that are not cached.

    function: of a module. Many contenders are shared out among all cores, so it must not ask for a GPU.
    """
    cached = [row_cache.read(contender) if row_cache else {} for contender, _ in jobs]
    missing = [
        (contender, [part for part in parts if _name(part) not in rows])
        for (contender, parts), rows in zip(jobs, cached, strict=True)
    ]
    with contextlib.closing(_measure([job for job in missing if job[1]], function)) as results:  # ends its processes
        for (contender, parts), rows, (_, measured) in zip(jobs, cached, missing, strict=True):
            bars.doing(str(contender))
            new = iter(next(results) if measured else ())
            for part in parts:
                name = _name(part)
                if name not in rows:
                    rows[name] = next(new)
                yield rows[name]
                bars.done()
            if row_cache and measured:
                row_cache.write(contender, {_name(part): rows[_name(part)] for part in measured})
        next(results, None)  # its end, at which the processes are given back


def _name(part: tuple) -> str:
    return " ".join(map(str, part))


def _measure(
    jobs: Sequence[Job[Part]], function: MeasureParts[Part, AnyRow]
) -> Generator[Iterable[list[AnyRow]], None, None]:
    """Yields the rows of each job, in order; in separate processes if there are enough jobs."""
    if len(jobs) < MIN_JOBS or any(contender.kernel is None for contender, _ in jobs):
        yield from (function(*job) for job in jobs)
        return
    with processes.pool() as pool:
        futures = [pool.submit(_measure_by_name, function, str(contender), parts) for contender, parts in jobs]
        for future in futures:
            yield future.result()


def _measure_by_name(function: MeasureParts[Part, AnyRow], name: str, parts: Sequence[Part]) -> list[list[AnyRow]]:
    """In another process, to which a contender goes by its name."""
    return list(function(next(each for each in contenders() if str(each) == name), parts))
