"""Measuring what takes no GPU: rows that cannot have changed are read, and the others are found on all cores."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Iterable, Sequence
from typing import TypeVar

import torch

from experiments import processes
from experiments.progress import Bars
from experiments.records.contenders import Contender, contenders
from experiments.records.kept import Kept
from experiments.records.rows import Row

ALONE = 8  # fewer contenders are measured in this process: starting others takes seconds

# What is measured apart, a problem and a kind of inputs for example; its words together name it.
Part = TypeVar("Part", bound=tuple)
Found = TypeVar("Found", bound=Row)
Work = Callable[[Contender, Sequence[Part]], Iterable[list[Found]]]  # the rows of each part
Job = tuple[Contender, Sequence[Part]]


def measure(
    jobs: Sequence[Job[Part]], work: Work[Part, Found], bars: Bars, kept: Kept | None
) -> Generator[list[Found], None, None]:
    """The rows of each contender's parts, in order; `work`, a function of a module, measures those that `kept` lacks.

    Where there are many contenders each core takes some, so that `work` must not ask for a GPU.
    """
    known = [kept.read(contender) if kept else {} for contender, _ in jobs]
    lacking = [
        (contender, [part for part in parts if _name(part) not in rows])
        for (contender, parts), rows in zip(jobs, known, strict=True)
    ]
    with contextlib.closing(_each([job for job in lacking if job[1]], work)) as found:  # and its processes with it
        for (contender, parts), rows, (_, measured) in zip(jobs, known, lacking, strict=True):
            bars.doing(str(contender))
            new = iter(next(found) if measured else ())
            for part in parts:
                name = _name(part)
                if name not in rows:
                    rows[name] = next(new)
                yield rows[name]
                bars.done()
            if kept and measured:
                kept.write(contender, {_name(part): rows[_name(part)] for part in measured})


def _name(part: tuple) -> str:
    return " ".join(map(str, part))


def _each(jobs: Sequence[Job[Part]], work: Work[Part, Found]) -> Generator[Iterable[list[Found]], None, None]:
    """What `work` finds for each job, in order; in processes of their own, if there are enough jobs."""
    if len(jobs) < ALONE or any(contender.kernel is None for contender, _ in jobs):
        yield from (work(*job) for job in jobs)
        return
    with processes.pool(alone) as pool:  # the reference GPU is one thread of Python
        futures = [pool.submit(_by_name, work, str(contender), parts) for contender, parts in jobs]
        for future in futures:
            yield future.result()


def alone() -> None:
    """Prepare a process that runs kernels on the reference GPU beside others."""
    torch.set_num_threads(1)  # the other processes have the other cores


def _by_name(work: Work[Part, Found], name: str, parts: Sequence[Part]) -> list[list[Found]]:
    """`work` in another process, to which a contender goes by its name."""
    return list(work(next(each for each in contenders() if str(each) == name), parts))
