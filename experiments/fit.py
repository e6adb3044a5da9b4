"""The table of `gemm_ref.choice` for one kind of GPU, from the times that `run choice --preset full` took on it.

What is fitted are logarithms: of each cost, beside the predicted time over the measured one. First the costs of each
tile, from its own rows, then those of sharing tiles and those of the GPU, and again, some times. A cost that the rows
say nothing of stays as it was: it is held by a weak spring.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass, fields, replace
from pathlib import Path

import numpy as np
import pandas as pd

import gemm_ref
from experiments.records import frames, stats, store
from experiments.records.request import UsageError
from gemm_ref import choice
from gemm_ref.build import write_whole

ROUNDS = 8
SPRING = 0.02  # the error of one row, that a cost e times another one weighs as much as
OF_GPU = [field.name for field in fields(choice.Device) if field.name != "rungs"]


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
        losses = [f"{_percent(_mean(of))} and {_percent(max(of))}" for of in (self.before, self.now)]
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
    start = choice.device(name)
    gpu = fitted(rows, start, sms)
    write_whole(path, written({**choice.devices(), name: gpu}))
    unseen = rows_of(seen)
    return Fit(name, len(rows), *(regret(unseen, each, sms) for each in (start, gpu)))


@dataclass(frozen=True)
class Row:
    """A candidate that was timed."""

    stage: gemm_ref.Stage
    dialect: str
    tile: str
    problem: gemm_ref.Problem
    blocks: int
    measured_ns: float
    weight: float  # the nearer to the fastest of its problem, the more it counts

    def predicted_ns(self, gpu: choice.Device, sms: int) -> float:
        """By the table `gpu`."""
        config, family = self.stage.config(self.tile, self.dialect), gpu.rungs[self.stage.id][self.dialect]
        return choice.predict(config, self.tile, family, gpu, self.problem, sms, self.blocks)


def rows_of(frame: pd.DataFrame) -> list[Row]:
    """The timed candidates of a frame of `choice`, but for tiles that have gone since."""
    own = frames.rungs(frame)
    there = zip(own["stage"], own["dialect"], own["variant"], strict=True)
    stages = gemm_ref.STAGES  # of which those on Hopper's units have a table of their own
    known = [not stages[stage].tma and tile in stages[stage].tiles.get(dialect, ()) for stage, dialect, tile in there]
    own = own[np.array(known, dtype=bool)]
    least = own.groupby([*frames.SIZES, "math", "stage", "dialect"])["median_us"].transform("min")
    return [
        Row(
            gemm_ref.STAGES[row.stage],
            row.dialect,
            row.variant,
            gemm_ref.Problem(row.m, row.n, row.k, row.math),
            row.blocks,
            1e3 * row.median_us,
            fastest / row.median_us,
        )
        for row, fastest in zip(own.itertuples(), least, strict=True)
    ]


def fitted(rows: Sequence[Row], start: choice.Device, sms: int) -> choice.Device:
    """The table that predicts the times of `rows` best, on a GPU of `sms` multiprocessors; `start`: where to begin."""
    gpu = start
    of_family: dict[tuple[str, str], list[Row]] = {}
    of_tile: dict[tuple[str, str, str], list[Row]] = {}
    for row in rows:
        of_family.setdefault((row.stage.id, row.dialect), []).append(row)
        of_tile.setdefault((row.stage.id, row.dialect, row.tile), []).append(row)
    for _ in range(ROUNDS):
        for tile, own in of_tile.items():
            gpu = _least(gpu, own, sms, start, *_of_tile(*tile))
        for family, own in of_family.items():
            gpu = _least(gpu, own, sms, start, *_of_shares(*family))
        gpu = _least(gpu, rows, sms, start, *_OF_GPU)
    return gpu


Get = Callable[[choice.Device], Sequence[float]]
Put = Callable[[choice.Device, Sequence[float]], choice.Device]


def _of_tile(stage: str, dialect: str, tile: str) -> tuple[Get, Put]:
    """How to read and how to write the costs of one tile."""

    def put(gpu: choice.Device, values: Sequence[float]) -> choice.Device:
        family = gpu.rungs[stage][dialect]
        return _with(gpu, stage, dialect, replace(family, tiles={**family.tiles, tile: choice.Costs(*values)}))

    return lambda gpu: astuple(gpu.rungs[stage][dialect].tiles[tile]), put


def _of_shares(stage: str, dialect: str) -> tuple[Get, Put]:
    """How to read and how to write what sharing a tile costs in one rung and dialect."""

    def put(gpu: choice.Device, values: Sequence[float]) -> choice.Device:
        return _with(gpu, stage, dialect, replace(gpu.rungs[stage][dialect], shares=choice.Shares(*values)))

    return lambda gpu: astuple(gpu.rungs[stage][dialect].shares), put


def _with(gpu: choice.Device, stage: str, dialect: str, family: choice.Family) -> choice.Device:
    return replace(gpu, rungs={**gpu.rungs, stage: {**gpu.rungs[stage], dialect: family}})


_OF_GPU: tuple[Get, Put] = (
    lambda gpu: [getattr(gpu, name) for name in OF_GPU],
    lambda gpu, values: choice.Device(**dict(zip(OF_GPU, values, strict=True)), rungs=gpu.rungs),
)


def _least(
    gpu: choice.Device, rows: Sequence[Row], sms: int, start: choice.Device, get: Get, put: Put
) -> choice.Device:
    """`gpu` with the values that `get` reads and `put` writes changed so that predictions are nearest."""
    from scipy.optimize import least_squares

    origin = np.log(get(start))

    def errors(logs: np.ndarray) -> np.ndarray:
        tried = put(gpu, np.exp(logs).tolist())
        off = [row.weight * np.log(row.predicted_ns(tried, sms) / row.measured_ns) for row in rows]
        return np.concatenate([off, SPRING * (logs - origin)])

    return put(gpu, np.exp(least_squares(errors, np.log(get(gpu)), loss="soft_l1", f_scale=0.1).x).tolist())


def regret(rows: Sequence[Row], gpu: choice.Device, sms: int) -> list[float]:
    """What each problem and dialect would lose by the table `gpu`, of the candidates that were timed there."""
    problems: dict[tuple, list[Row]] = {}
    for row in rows:
        problems.setdefault((row.problem, row.stage.id, row.dialect), []).append(row)
    return [
        min(own, key=lambda row: row.predicted_ns(gpu, sms)).measured_ns / min(row.measured_ns for row in own) - 1
        for own in problems.values()
    ]


def _mean(losses: Sequence[float]) -> float:
    return stats.geometric_mean([1 + loss for loss in losses]) - 1


def _percent(share: float) -> str:
    return f"{100 * share:.1f}%"


def written(table: dict[str, choice.Device]) -> str:
    """The text of choice.toml: a section for each kind of GPU, one for each rung and dialect, a line for each tile."""
    lines: list[str] = []
    for name, gpu in table.items():
        lines += [f'["{name}"]', *(f"{field} = {getattr(gpu, field):.0f}" for field in OF_GPU), ""]
        for stage, dialects in gpu.rungs.items():
            for dialect, family in dialects.items():
                lines += [f'["{name}".{stage}.{dialect}]', _line(choice.SHARES, family.shares)]
                lines += [*(_line(tile, family.tiles[tile]) for tile in sorted(family.tiles)), ""]
    return "\n".join(lines).rstrip() + "\n"


def _line(name: str, costs: choice.Costs | choice.Shares) -> str:
    return f"{name} = [{', '.join(f'{cost:.0f}' for cost in astuple(costs))}]"
