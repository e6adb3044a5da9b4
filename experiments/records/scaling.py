"""The model of `gemm_ref.distributed.model`, made from the rows of `scaling`, and how far it is from them."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from pathlib import Path

import pandas as pd

from experiments.records import store
from experiments.records.ceilings import Roofs
from experiments.records.rows import COLLECTIVE, COPIES, ONE_CARD, PRODUCT
from gemm_ref.distributed.layouts import ALL_GATHER, GRID, LAYOUTS, WAYS, grid_shape
from gemm_ref.distributed.model import Link, Model, Network, Speed, grid_products
from gemm_ref.problem import Problem
from gemm_ref.registry import STAGES
from gemm_ref.rung import DEFAULT_VARIANT

MOST_GPUS = 1024
# Not measured: hosts of 8 GPUs with an adapter of 400 Gb/s for each, and what a message between hosts takes.
ASSUMED = Network(8, Link(0.0, 5.0, 50.0))
SMALLEST_TILE = 64 * 64  # that large products are given by kernels that choose by shape, cuBLAS among them
Kernel = tuple[str, str, str]  # stage, dialect, math


def timed(frame: pd.DataFrame) -> pd.DataFrame:
    """Returns the rows of complete products (`way` in WAYS) that have a time."""
    return frame[frame["median_us"].notna() & frame["way"].isin(WAYS) & frame["efficiency"].notna()]


def kernels(frame: pd.DataFrame) -> list[Kernel]:
    """Returns the kernels (stage, dialect, math) of the timed local products, in the order of the rows."""
    own = timed(frame)
    return list(dict.fromkeys(zip(own["stage"], own["dialect"], own["math"], strict=True)))


def models(folder: Path, network: Network | None = None) -> dict[Kernel, Model]:
    """Returns a fitted model for each kernel in a folder's scaling.csv; empty if nothing was timed."""
    frame = store.read(folder, "scaling")
    gpus = [run["gpu"] for run in store.runs_of(frame, folder) if run.get("gpu")]
    read = roofs.read * 1e3 if (roofs := Roofs.of(folder)) else float("inf")
    links = {way: _links(frame[frame["way"] == way]) for way in (COLLECTIVE, COPIES)}
    if not all(links.values()) or not gpus:
        return {}
    found = {}
    for kernel in kernels(frame):
        own = frame[_is(frame, kernel) & frame["way"].isin((ONE_CARD, PRODUCT)) & frame["median_us"].notna()]
        on_grid = (own["layout"] == GRID) & (own["way"] == PRODUCT)
        if on_grid.all():
            continue  # none was timed on one card
        sms, adds = gpus[-1]["multiprocessors"], adds_c(*kernel[:2])
        speed = functools.partial(Speed.fit, read_gb_per_s=read, wave=_wave(*kernel[:2], sms))
        of_grid = speed(_products(own[on_grid])) if on_grid.any() else None
        others = speed(_products(own[~on_grid]))
        found[kernel] = Model(others, links[COLLECTIVE], links[COPIES], sms, network, adds, of_grid)
    return found


def _products(rows: pd.DataFrame) -> Iterator[tuple[Problem, float]]:
    """Each product that was timed alone, and its microseconds; a rank of the grid has several, taken as alike."""
    for row in rows.itertuples():
        whole = Problem(row.m, row.n, row.k, row.math)
        parts = grid_products(whole, grid_shape(row.gpus)[0]) if row.layout == GRID and row.way == PRODUCT else [whole]
        yield parts[0], row.median_us / len(parts)


def _wave(stage: str, dialect: str, sms: int) -> int:
    """Elements of C that all SMs compute at once, with the tile of a rung, or the smallest where it chooses."""
    rung = STAGES.get(stage)
    if rung is None or dialect in rung.tiles:
        return sms * SMALLEST_TILE
    config = rung.config(rung.find_variant(DEFAULT_VARIANT, dialect), dialect)
    return sms * config.BLOCK_M * config.BLOCK_N


def adds_c(stage: str, dialect: str) -> bool:
    """Returns whether a local product adds to C in its epilogue: cuBLAS does, and so do rungs with epilogues."""
    return not dialect or (stage in STAGES and dialect in STAGES[stage].epilogues)


def compared(frame: pd.DataFrame, by: Mapping[Kernel, Model]) -> pd.DataFrame:
    """Returns the timed rows whose kernel has a model, with `predicted_us` and its relative `error`."""
    own = timed(frame)
    own = own[[(row.stage, row.dialect, row.math) in by for row in own.itertuples()]]
    predicted = [
        by[row.stage, row.dialect, row.math].predict_us(
            row.layout, row.way, Problem(row.m, row.n, row.k, row.math), row.gpus
        )
        for row in own.itertuples()
    ]
    return own.assign(predicted_us=predicted, error=predicted / own["median_us"] - 1)


def _is(frame: pd.DataFrame, kernel: Kernel) -> pd.Series:
    stage, dialect, math = kernel
    return (frame["stage"] == stage) & (frame["dialect"] == dialect) & (frame["math"] == math)


def _links(rows: pd.DataFrame) -> dict[str, dict[int, Link]]:
    """By layout; one that was not measured, as the grid of two GPUs, is taken as all-gather."""
    found = {}
    for layout, own in rows.dropna(subset="median_us").groupby("layout", sort=False):
        messages = [sum(side - 1 for side in grid_shape(n)) if layout == GRID else n - 1 for n in own["gpus"]]
        found[str(layout)] = Link.fit(zip(own["gpus"], messages, own["link_bytes"], own["median_us"], strict=True))
    return {layout: found.get(layout, found[ALL_GATHER]) for layout in LAYOUTS} if ALL_GATHER in found else {}
