"""The table of `gemm_ref.choice` for one kind of GPU, from the times that `run choice --preset full` took on it.

What is fitted are logarithms, of all costs at once, down the slope that torch derives: those of each tile, those of
sharing tiles in each rung and dialect, and those of the GPU. A cost that the rows say nothing of stays as it was: it is
held by a weak spring. Those of the GPU stay where a rung has no rows, but for the start of a kernel, which is the same
for whatever a rung chooses.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

import gemm_ref
from experiments.grouped import grouped
from experiments.records import frames, stats, store
from experiments.records.request import UsageError
from gemm_ref import choice
from gemm_ref.build import write_whole
from gemm_ref.choice.costs import CACHE, SHARES, borrowed, family_name
from gemm_ref.operands import TMA_BYTES

ROUNDS, STEPS = 4, 200  # in which weights follow what is predicted; of the search in each
NEAR = 8  # the higher, the more do those rows count that are near to the fastest of their problem
FAR = 0.1  # error from which on a row counts by its size, and no longer by its square
SPRING = 0.4  # the error of one row, that a tile's cost e times another one weighs as much as
LOOSE = 0.02  # the same, of what all tiles share
SIZES = [len(fields(each)) for each in (choice.Shares, choice.Cache, choice.Costs)]
START = "start_ns"
FACTS = ("l2_bytes",)  # of a GPU, which are known
OF_GPU = [field.name for field in fields(choice.Device) if field.name not in (*FACTS, "rungs")]


@dataclass(frozen=True)
class Fit:
    """What came of a fit: the kind of GPU, and what is lost at shapes that were not fitted on, before and now."""

    name: str
    rows: int
    before: list[float]
    now: list[float]

    def __str__(self) -> str:
        if not self.now:
            return f"{self.name}: fitted on {self.rows} times; no other shape was timed"
        means = (stats.geometric_mean([1 + loss for loss in of]) - 1 for of in (self.before, self.now))
        losses = [f"{mean:.1%} and {max(of):.1%}" for mean, of in zip(means, (self.before, self.now), strict=True)]
        return (
            f"{self.name}: fitted on {self.rows} times. At other shapes the choice loses (geometric mean and at "
            f"worst) {losses[1]}; by the table as it was, {losses[0]}"
        )


def fit(folder: Path, path: Path = choice.TABLE) -> Fit:
    """Write to `path` the table with the kind of GPU that the rows of choice.csv in `folder` are of.

    Raises UsageError where there are no rows to fit on.
    """
    frame = frames.tried(store.read(folder, "choice"))
    seen = frames.held_out(frame)
    rows = rows_of(frame.drop(seen.index))
    if not rows:
        raise UsageError(
            f"{folder} has no times to fit on: `python -m experiments run choice --preset full` measures them on a GPU"
        )
    run = store.runs_of(frame, folder)[-1]
    name, sms = run["device"], run["gpu"]["multiprocessors"]
    start = choice.devices().get(name) or replace(borrowed(choice.device()), l2_bytes=run["gpu"]["l2_bytes"])
    gpu = fitted(rows, start, sms)
    write_whole(path, written({**choice.devices(), name: gpu}))
    unseen = rows_of(seen)
    return Fit(name, len(rows), *(regret(unseen, each, sms) for each in (start, gpu)))


@dataclass(frozen=True)
class Row:
    """A candidate that was timed."""

    stage: gemm_ref.Rung
    dialect: str
    tile: str
    problem: gemm_ref.Problem
    blocks: int
    measured_ns: float
    fastest_ns: float  # of its problem

    def predicted_ns(self, gpu: choice.Device, sms: int) -> float:
        """By the table `gpu`."""
        candidate = choice.Candidate(self.tile, self.blocks)
        return choice.predict(self.stage, self.dialect, candidate, self.problem, sms, gpu)

    def work(self, sms: int, l2_bytes: float) -> choice.Work:
        """What it asks of a GPU with so many multiprocessors and such an L2 cache."""
        return choice.work_of(self.stage.config(self.tile, self.dialect), self.problem, sms, self.blocks, l2_bytes)


def rows_of(frame: pd.DataFrame) -> list[Row]:
    """The timed candidates of a frame of `choice`, but for tiles that have gone since and for copied operands.

    What copies take is the same for every candidate of a problem.
    """
    own = frames.rungs(frame)
    least = own.groupby([*frames.SIZES, "math", "stage", "dialect"])["median_us"].transform("min")
    found = []
    for row, fastest in zip(own.itertuples(), least, strict=True):
        stage = gemm_ref.STAGES[row.stage]
        problem = gemm_ref.Problem(row.m, row.n, row.k, row.math, b_layout=frames.LAYOUT[row.math])
        if row.variant in stage.tiles.get(row.dialect, ()) and not _copied(stage, row.dialect, problem):
            found.append(Row(stage, row.dialect, row.variant, problem, row.blocks, 1e3 * row.median_us, 1e3 * fastest))
    return found


def _copied(stage: gemm_ref.Rung, dialect: str, problem: gemm_ref.Problem) -> bool:
    """Whether a rung copies A or B before it reads them, or stores C otherwise than the TMA unit does."""
    if problem.b_layout not in stage.reads_b(problem.math, dialect):
        return True
    math = gemm_ref.MATHS[problem.math]
    of_b, of_c = problem.n if problem.b_layout == "kn" else problem.k, problem.n
    row_bytes = [problem.k * math.dtype.itemsize, of_b * math.dtype.itemsize, of_c * math.out_dtype.itemsize]
    return bool(stage.tma) and (problem.n == 1 or any(each % TMA_BYTES for each in row_bytes))


def fitted(rows: Sequence[Row], start: choice.Device, sms: int) -> choice.Device:
    """The table that predicts the times of `rows` best, on a GPU of `sms` multiprocessors; `start`: where to begin."""
    from scipy.optimize import minimize

    begins: dict[tuple[str, ...], int] = {}  # of the GPU, a family or a tile, by name: where its costs are among all
    origin: list[float] = []
    springs: list[float] = []
    places: list[list[int]] = []  # of the costs of each row
    of_gpu = [getattr(start, each) for each in OF_GPU]
    for row in rows:
        of = row.stage.id, family_name(row.stage.id, row.dialect, row.problem.math)
        family = start.rungs[of[0]][of[1]]
        shared = (*astuple(family.shares), *astuple(family.cache))
        costs = {(): of_gpu, of: shared, (*of, row.tile): astuple(family.tiles[row.tile])}
        for name in costs.keys() - begins.keys():
            begins[name] = len(origin)
            origin += costs[name]
            springs += [SPRING if len(name) == 3 else LOOSE] * len(costs[name])  # the name of a tile has three parts
        places.append([begins[name] + i for name, values in costs.items() for i in range(len(values))])
    work, where = _stacked([row.work(sms, start.l2_bytes) for row in rows]), torch.tensor(places).T
    first = torch.tensor(origin, dtype=torch.float64).log()
    stiff, stays = _tensor(springs), torch.zeros(len(springs), dtype=torch.bool)
    if start.rungs.keys() - {row.stage.id for row in rows}:  # which share the GPU's costs
        stays[[at for at, name in zip(places[0], OF_GPU, strict=False) if name != START]] = True
    measured, fastest = (_tensor([getattr(row, name) for row in rows]) for name in ("measured_ns", "fastest_ns"))

    def predicted(logs: torch.Tensor) -> Any:
        of_gpu, shares, cache, costs = logs.exp()[where].split([len(OF_GPU), *SIZES])
        return choice.took(
            work, choice.Costs(*costs), choice.Shares(*shares), choice.Cache(*cache), replace(start, **_named(of_gpu))
        )

    logs = first
    for _ in range(ROUNDS):
        # What is near to the fastest, or seems so, counts most
        weights = (fastest / torch.minimum(measured, predicted(logs))) ** NEAR

        def loss(at: np.ndarray, weights: torch.Tensor = weights) -> tuple[float, np.ndarray]:
            logs = torch.tensor(at, requires_grad=True)
            errors = torch.cat([weights * (predicted(logs) / measured).log(), stiff * (logs - first)])
            whole = (((errors / FAR) ** 2 + 1).sqrt() - 1).sum()
            whole.backward()
            assert logs.grad is not None
            return whole.item(), logs.grad.masked_fill(stays, 0.0).numpy()

        logs = torch.tensor(minimize(loss, logs.numpy(), jac=True, options={"maxiter": STEPS}, method="L-BFGS-B").x)
    return _with(start, begins, logs.exp().tolist())


def _with(gpu: choice.Device, begins: Mapping[tuple[str, ...], int], costs: list[float]) -> choice.Device:
    """`gpu` with the costs of those that are named, each from its place on."""
    rungs = {stage: dict(families) for stage, families in gpu.rungs.items()}
    for (stage, dialect, *tile), first in ((name, first) for name, first in begins.items() if name):
        family = rungs[stage][dialect]
        if tile:
            own = choice.Costs(*costs[first : first + SIZES[2]])
            rungs[stage][dialect] = replace(family, tiles={**family.tiles, tile[0]: own}, fitted=True)
        else:
            shares, cache = costs[first : first + SIZES[0]], costs[first + SIZES[0] : first + sum(SIZES[:2])]
            rungs[stage][dialect] = replace(family, shares=choice.Shares(*shares), cache=choice.Cache(*cache))
    return replace(gpu, **_named(costs[begins[()] :]), rungs=rungs)


def _named(costs: Sequence[Any]) -> dict[str, Any]:
    """The first of `costs`, which are those of the GPU, by name."""
    return dict(zip(OF_GPU, costs, strict=False))


def _stacked(works: Sequence[choice.Work]) -> choice.Work:
    """Of many, each field a tensor."""
    columns: dict[str, Any] = {}
    for name in (field.name for field in fields(choice.Work)):
        values = [getattr(each, name) for each in works]
        waves = isinstance(values[0], choice.Wave)
        columns[name] = choice.Wave(*_tensor([astuple(each) for each in values]).T) if waves else _tensor(values)
    return choice.Work(**columns)


def _tensor(values: Sequence[Any]) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def regret(rows: Sequence[Row], gpu: choice.Device, sms: int) -> list[float]:
    """What each problem and dialect would lose by the table `gpu`, of the candidates that were timed there."""
    problems = grouped(((row.problem, row.stage.id, row.dialect), row) for row in rows)
    return [
        min(own, key=lambda row: row.predicted_ns(gpu, sms)).measured_ns / min(row.measured_ns for row in own) - 1
        for own in problems.values()
    ]


def written(table: dict[str, choice.Device]) -> str:
    """The text of costs.toml: a section for each kind of GPU, one for each rung and dialect, a line for each tile.

    What was not fitted is left out.
    """
    lines: list[str] = []
    for name, gpu in table.items():
        lines += [f'["{name}"]', *(f"{field} = {_figure(getattr(gpu, field))}" for field in (*OF_GPU, *FACTS)), ""]
        for stage, dialects in gpu.rungs.items():
            for dialect, family in ((key, each) for key, each in dialects.items() if each.fitted):
                lines += [f'["{name}".{stage}.{dialect}]', _line(SHARES, family.shares), _line(CACHE, family.cache)]
                lines += [*(_line(tile, family.tiles[tile]) for tile in sorted(family.tiles)), ""]
    return "\n".join(lines).rstrip() + "\n"


def _line(name: str, costs: choice.Costs | choice.Shares | choice.Cache) -> str:
    return f"{name} = [{', '.join(_figure(cost) for cost in astuple(costs))}]"


def _figure(x: float) -> str:
    return f"{x:.0f}" if x >= 1000 else f"{x:.4g}"
