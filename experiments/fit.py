"""Fits the table of `gemm_ref.choice` for one kind of GPU to the times that `run choice --preset full` took on it.

Fitted are the logarithms of all costs at once, by gradient descent: those of each tile, those of each rung and dialect,
and those of the GPU. An error that all candidates of a problem have in common counts little, since it does not affect
the choice. A weak spring holds each cost, so one that the rows say nothing about stays as it was. Where a rung has no
rows the costs of the GPU stay, except for the start of a kernel, which does not affect the choice either.
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
from experiments.grouping import group_pairs
from experiments.records import frames, stats, store
from experiments.records.request import UsageError
from gemm_ref import choice
from gemm_ref.build import write_whole
from gemm_ref.choice import costs
from gemm_ref.choice.costs import CACHE, SHARES, TABLE, Cache, Costs, Device, SplitCosts
from gemm_ref.choice.work import Wave, Work, count_work
from gemm_ref.operands import TMA_BYTES

ROUNDS, STEPS = 4, 200  # rounds, after each of which the weights follow the predictions; steps of the search per round
WEIGHT_POWER = 8  # the higher, the more count the rows near to the fastest of their problem
PROBLEM_WEIGHT = 0.6  # of the mean error of a problem's rows, relative to one row's difference from it
LEAST_COST = 1e-4  # where the search for a cost that is 0 begins, since logarithms are fitted
HUBER_ERROR = 0.1  # error from which on a row counts by its size, and no longer by its square
TILE_SPRING = 0.4  # the error of one row that weighs as much as a tile's cost that has changed e-fold
SHARED_SPRING = 0.02  # the same for costs that tiles share
SIZES = [len(fields(kind)) for kind in (SplitCosts, Cache, Costs)]
START = "start_ns"
FACTS = ("l2_bytes", "peak_bytes_per_ns", "sm_mhz")  # known of a GPU, and not fitted
DEVICE_COSTS = [field.name for field in fields(Device) if field.name not in (*FACTS, "rungs")]


@dataclass(frozen=True)
class Fit:
    """The result of a fit: the kind of GPU, and the regrets at shapes that it was not fitted to, before and after."""

    name: str
    rows: int
    before: list[float]
    after: list[float]

    def __str__(self) -> str:
        if not self.after:
            return f"{self.name}: fitted on {self.rows} times; no other shape was timed"
        before, after = (
            f"{stats.geometric_mean([1 + loss for loss in losses]) - 1:.1%} and {max(losses):.1%}"
            for losses in (self.before, self.after)
        )
        return (
            f"{self.name}: fitted on {self.rows} times. At other shapes the choice loses (geometric mean and at "
            f"worst) {after}; by the table as it was, {before}"
        )


def fit(folder: Path, path: Path = TABLE) -> Fit:
    """Write to `path` the table with the kind of GPU that the rows of choice.csv in `folder` are of.

    Raises UsageError where there are no rows to fit to.
    """
    frame = frames.tried(store.read(folder, "choice"))
    unseen = frames.held_out(frame)
    rows = read_rows(frame.drop(unseen.index))
    if not rows:
        raise UsageError(
            f"{folder} has no times to fit on: `python -m experiments run choice --preset full` measures them on a GPU"
        )
    run = store.runs_of(frame, folder)[-1]
    name, sms = run["device"], run["gpu"]["multiprocessors"]
    start = costs.load_devices().get(name) or replace(
        costs.borrow_costs(costs.find_device(name)), l2_bytes=run["gpu"]["l2_bytes"]
    )
    device = fit_device(rows, start, sms)
    write_whole(path, format_table({**costs.load_devices(), name: device}))
    unseen_rows = read_rows(unseen)
    return Fit(name, len(rows), *(regrets(unseen_rows, each, sms) for each in (start, device)))


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

    def predicted_ns(self, device: Device, sms: int) -> float:
        """The prediction from the costs of `device`."""
        candidate = choice.Candidate(self.tile, self.blocks)
        return choice.predict_ns(self.stage, self.dialect, candidate, self.problem, sms, device)


def read_rows(frame: pd.DataFrame) -> list[Row]:
    """The timed candidates of a frame of `choice`, without tiles that no longer exist and without copied operands.

    A copy takes the same time for every candidate of a problem.
    """
    timed = frames.rungs(frame)
    fastest = timed.groupby([*frames.SIZES, "math", "stage", "dialect"])["median_us"].transform("min")
    rows = []
    for row, fastest_us in zip(timed.itertuples(), fastest, strict=True):
        stage = gemm_ref.STAGES[row.stage]
        problem = gemm_ref.Problem(row.m, row.n, row.k, row.math, b_layout=frames.LAYOUT[row.math])
        if row.variant not in stage.tiles.get(row.dialect, ()):
            continue
        if not _copies_operands(stage, row.dialect, row.variant, problem):
            times_ns = 1e3 * row.median_us, 1e3 * fastest_us
            rows.append(Row(stage, row.dialect, row.variant, problem, row.blocks, *times_ns))
    return rows


def _copies_operands(stage: gemm_ref.Rung, dialect: str, tile: str, problem: gemm_ref.Problem) -> bool:
    """Whether a tile's A or B is copied before it is read, or its C stored without the TMA unit."""
    reads_any = stage.config(tile, dialect).uses_mma_sync
    if problem.b_layout not in stage.reads_b(problem.math, dialect) and not reads_any:
        return True
    mode = gemm_ref.MATHS[problem.math]
    b_columns = problem.n if problem.b_layout == "kn" else problem.k
    row_bytes = [*(x * mode.dtype.itemsize for x in (problem.k, b_columns)), problem.n * mode.out_dtype.itemsize]
    return bool(stage.tma) and (problem.n == 1 or any(x % TMA_BYTES for x in row_bytes))


def fit_device(rows: Sequence[Row], start: Device, sms: int) -> Device:
    """The device whose costs predict the times of `rows` best, on `sms` multiprocessors; the search begins at `start`.

    All costs are one vector; a group of them belongs to the GPU, to a family of tiles or to a tile.
    """
    from scipy.optimize import minimize

    offsets: dict[tuple[str, ...], int] = {}  # of each group in the vector; its name has 0, 2 or 3 parts
    initial: list[float] = []
    springs: list[float] = []
    indices: list[list[int]] = []  # per row, of its costs in the vector
    works, problems = [], []
    numbers: dict[tuple[Any, ...], int] = {}  # of the problems
    for row in rows:
        config = row.stage.config(row.tile, row.dialect)
        works.append(count_work(config, row.problem, sms, row.blocks, start.l2_bytes))
        key = row.stage.id, costs.family_name(row.stage.id, row.dialect, row.problem.math)
        problems.append(numbers.setdefault((*key, row.problem), len(numbers)))
        family = start.rungs[key[0]][key[1]]
        groups: dict[tuple[str, ...], Sequence[float]] = {
            (): [getattr(start, name) for name in DEVICE_COSTS],
            key: (*astuple(family.splitting), *astuple(family.cache)),
            (*key, row.tile): astuple(family.tiles[row.tile]),
        }
        for name in groups.keys() - offsets.keys():
            offsets[name] = len(initial)
            initial += groups[name]
            springs += [TILE_SPRING if len(name) == 3 else SHARED_SPRING] * len(groups[name])
        indices.append([offsets[name] + i for name, values in groups.items() for i in range(len(values))])
    work, columns, first = _stack_work(works), torch.tensor(indices).T, _tensor(initial).clamp(min=LEAST_COST).log()
    stiffness, is_fixed = _tensor(springs), torch.zeros(len(springs), dtype=torch.bool)
    if start.rungs.keys() - {row.stage.id for row in rows}:  # they share the GPU's costs
        is_fixed[[i for i, name in zip(indices[0], DEVICE_COSTS, strict=False) if name != START]] = True
    measured, fastest = (_tensor([getattr(row, name) for row in rows]) for name in ("measured_ns", "fastest_ns"))

    def predict(logs: torch.Tensor) -> Any:
        of_device, splitting, cache, tile = logs.exp()[columns].split([len(DEVICE_COSTS), *SIZES])
        device = replace(start, **_device_costs(of_device))
        return costs.time_ns(work, Costs(*tile), SplitCosts(*splitting), Cache(*cache), device)

    of_problem = torch.tensor(problems)

    def split_errors(logs: torch.Tensor, weights: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The weighted mean error of each problem's rows, and the difference of each row's error from it."""
        errors = (predict(logs) / measured).log()
        sums = torch.zeros(2, len(numbers)).double().index_add(1, of_problem, torch.stack([weights * errors, weights]))
        means = sums[0] / sums[1]
        return means, errors - means[of_problem]

    logs, weights = first, (fastest / measured) ** WEIGHT_POWER
    for _ in range(ROUNDS):
        # A row counts most if it is near to the fastest, or is predicted to be
        weights = (fastest / measured / split_errors(logs, weights)[1].exp().clamp(max=1)) ** WEIGHT_POWER

        def loss(at: np.ndarray, weights: torch.Tensor = weights) -> tuple[float, np.ndarray]:
            logs = torch.tensor(at, requires_grad=True)
            means, differences = split_errors(logs, weights)
            errors = torch.cat([weights * differences, PROBLEM_WEIGHT * means, stiffness * (logs - first)])
            total = (((errors / HUBER_ERROR) ** 2 + 1).sqrt() - 1).sum()
            total.backward()
            assert logs.grad is not None
            return total.item(), logs.grad.masked_fill(is_fixed, 0.0).numpy()

        logs = torch.tensor(minimize(loss, logs.numpy(), jac=True, options={"maxiter": STEPS}, method="L-BFGS-B").x)
    return _replace_costs(start, offsets, logs.exp().tolist())


def _replace_costs(device: Device, offsets: Mapping[tuple[str, ...], int], values: list[float]) -> Device:
    """`device` with the costs of each group, from its offset on."""
    rungs = {stage: dict(families) for stage, families in device.rungs.items()}
    for (stage, dialect, *tile), first in ((name, first) for name, first in offsets.items() if name):
        family, cache = rungs[stage][dialect], first + SIZES[0]
        if tile:
            tiles = {**family.tiles, tile[0]: Costs(*values[first : first + SIZES[2]])}
            rungs[stage][dialect] = replace(family, tiles=tiles, fitted=True)
        else:
            splitting, caching = SplitCosts(*values[first:cache]), Cache(*values[cache : cache + SIZES[1]])
            rungs[stage][dialect] = replace(family, splitting=splitting, cache=caching)
    return replace(device, **_device_costs(values[offsets[()] :]), rungs=rungs)


def _device_costs(values: Sequence[Any]) -> dict[str, Any]:
    """The first of `values`, which are those of the GPU, by name."""
    return dict(zip(DEVICE_COSTS, values, strict=False))


def _stack_work(works: Sequence[Work]) -> Work:
    """One `Work` whose fields are tensors with an element per work."""
    columns: dict[str, Any] = {}
    for name in (field.name for field in fields(Work)):
        values = [getattr(work, name) for work in works]
        is_wave = isinstance(values[0], Wave)
        columns[name] = Wave(*_tensor([astuple(wave) for wave in values]).T) if is_wave else _tensor(values)
    return Work(**columns)


def _tensor(values: Sequence[Any]) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def regrets(rows: Sequence[Row], device: Device, sms: int) -> list[float]:
    """The regret of the choice by the costs of `device`, per problem and dialect, among the timed candidates."""
    problems = group_pairs(((row.problem, row.stage.id, row.dialect), row) for row in rows)
    return [
        min(timed, key=lambda row: row.predicted_ns(device, sms)).measured_ns / min(row.measured_ns for row in timed)
        - 1
        for timed in problems.values()
    ]


def format_table(table: Mapping[str, Device]) -> str:
    """The text of costs.toml: a section per kind of GPU, one per rung and dialect, a line per tile.

    Costs that were not fitted are left out.
    """
    lines: list[str] = []
    for name, device in table.items():
        facts = (f"{field} = {_format_number(getattr(device, field))}" for field in (*DEVICE_COSTS, *FACTS))
        lines += [f'["{name}"]', *facts, ""]
        for stage, families in device.rungs.items():
            for dialect, family in ((key, family) for key, family in families.items() if family.fitted):
                entries: list[tuple[str, Any]] = [(SHARES, family.splitting), (CACHE, family.cache)]
                entries += sorted(family.tiles.items())
                rows = (f"{key} = [{', '.join(map(_format_number, astuple(of)))}]" for key, of in entries)
                lines += [f'["{name}".{stage}.{dialect}]', *rows, ""]
    return "\n".join(lines).rstrip() + "\n"


def _format_number(x: float) -> str:
    return f"{x:.0f}" if x >= 1000 else f"{x:.4g}"
