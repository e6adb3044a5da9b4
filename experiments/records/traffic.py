"""Sums the rows of `memory` to one row per kernel: bytes moved at each level, and FLOP per byte."""

from __future__ import annotations

import numpy as np
import pandas as pd

from experiments.records.rows import HARDWARE, PASS
from gemm_ref.ptx.count.counts import COMPILED, ONCE
from gemm_ref.ptx.count.sectors import SECTOR

WAVEFRONT = 128  # bytes: the most that shared memory moves in one
KERNEL = ("stage", "variant", "backend", "dialect", "math", "m", "n", "k")
ACCESSES = {  # as profilers tell them apart: those of a cp.async, which passes the registers by, are neither
    "global": ("load", "store", "async load"),
    "shared": ("load", "store", "async store"),
}
_MEASURES = {
    "global": ("requests", "lanes", "bytes", "sectors"),
    "shared": ("requests", "lanes", "bytes", "wavefronts", "ideal"),
}


COST = {"global": "sectors", "shared": "wavefronts"}  # what an access is paid for in,
COUNTED = tuple((space, kind, cost) for space, cost in COST.items() for kind in ACCESSES[space])  # and ncu counts
TITLES = {
    ("global", "load"): "loads",
    ("global", "store"): "stores",
    ("global", "async load"): "cp.async",
    ("shared", "load"): "reads",
    ("shared", "store"): "writes",
    ("shared", "async store"): "cp.async",
}


def totals(frame: pd.DataFrame, each: tuple[str, ...] = ()) -> pd.DataFrame:
    """Returns a row for each kernel, problem and view; `each` names further columns to group by, such as `launch`.

    Columns such as `global_load_sectors` and `shared_async_store_wavefronts` for each of ACCESSES, 0 where there are
    none; `bytes` is what lanes asked for. `flop` is 2 M N K, the same for all kernels of a problem, `done_flop` what
    was executed. `dram_bytes` counts each sector once per launch that reads or writes it, `l2_bytes` all that were
    asked for (the L1 cache answers some of them), `shared_bytes` 128 per wavefront; `dram_intensity`, `l2_intensity`
    and `shared_intensity` are flop over those, missing where nothing was moved.
    """
    keys = [*KERNEL, "view", *each]
    counted = frame[frame["status"] == PASS]
    counted = counted.assign(bytes=counted["lane_bytes"] * counted["lanes"])
    table = counted.groupby(keys)[["flop"]].sum().rename(columns={"flop": "done_flop"})
    for space, kinds in ACCESSES.items():
        own = counted[counted["space"] == space]
        for kind in kinds:
            sums = own[own["kind"] == kind].groupby(keys)[list(_MEASURES[space])].sum()
            table = table.join(sums.add_prefix(f"{space}_{kind.replace(' ', '_')}_"))
    once = counted[counted["space"] == ONCE].groupby(keys)["sectors"].sum()
    table = table.join(SECTOR * once.rename("dram_bytes")).fillna(0).astype("int64").reset_index()
    table["l2_bytes"] = SECTOR * _over_kinds(table, "global", "sectors")
    table["shared_bytes"] = WAVEFRONT * _over_kinds(table, "shared", "wavefronts")
    table["flop"] = 2 * table["m"] * table["n"] * table["k"]
    for level in ("dram", "l2", "shared"):
        moved = table[f"{level}_bytes"]
        table[f"{level}_intensity"] = (table["flop"] / moved).where(moved > 0)
    return table


def _over_kinds(table: pd.DataFrame, space: str, measure: str) -> pd.Series:
    return sum(table[f"{space}_{kind.replace(' ', '_')}_{measure}"] for kind in ACCESSES[space])


def best_view(frame: pd.DataFrame) -> pd.DataFrame:
    """Returns the rows as compiled; of kernels whose machine code was not read, those as written."""
    compiled = frame["view"] == COMPILED
    who = frame[list(KERNEL)].apply(tuple, axis=1)
    return frame[compiled | ~who.isin(set(who[compiled & (frame["status"] == PASS)]))]


def confirmed(frame: pd.DataFrame) -> pd.DataFrame:
    """Returns a row per kernel: for each (space, kind) the predicted and counted sums and their ratio, or NaN.

    frame: rows of `memory`. Empty where the hardware was not asked. The columns are a MultiIndex ((space, kind), what).
    """
    table = totals(frame, each=("launch",))
    keys = [*KERNEL, "launch"]
    views = {view: table[table["view"] == view].set_index(keys) for view in (COMPILED, HARDWARE)}
    both = views[COMPILED].index.intersection(views[HARDWARE].index)
    found = {}
    for space, kind, measure in COUNTED:
        column = f"{space}_{kind.replace(' ', '_')}_{measure}"
        predicted, counted = (views[view].loc[both, column] for view in (COMPILED, HARDWARE))
        some = (predicted > 0) | (counted > 0)
        ratio = (predicted / counted.where(counted > 0)).where(counted > 0, np.inf)
        for name, values in (("predicted", predicted), ("counted", counted), ("ratio", ratio)):
            found[(space, kind), name] = values.where(some)
    return pd.DataFrame(found, index=both)
