"""gemm_ref/clock/gpus.toml: the constants of each published card, from its CSVs, with the runs that measured them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pandas as pd

from experiments.grouping import group_pairs
from experiments.publish.numbers import format_precise
from experiments.records import store
from experiments.records.rows import PASS

_HEAD = """\
# The constants that gemm_ref.clock predicts times from: `python -m experiments readme` writes this file from roofs.csv,
# latencies.csv and environment.json of the published cards. latencies.csv describes each entry.
"""
_FACTS = ("multiprocessors", "max_sm_clock_mhz", "l2_bytes", "memory_bytes", "power_limit_w")
_WIDTH = 120


def render(published: Path = store.PUBLISHED) -> str:
    """The whole file, of all published cards; `published` is the first of them.

    A card whose latencies were not measured has those of the first that was: cards of one chip differ in memory alone.
    """
    cards = store.published(published.parent)
    return "\n".join([_HEAD, *(line for card in cards for line in _card(card, cards))])


def _card(folder: Path, cards: list[Path]) -> Iterator[str]:
    runs = [run for run in store.read_runs(folder).values() if run["gpu"] and run["gpu"].get("power_w")]
    if not runs:
        return
    last, idle = runs[-1], min(runs, key=lambda run: run["gpu"]["power_w"])
    yield f'["{folder.name}"]\nname = "{last["device"]}"'
    for name, run in {**dict.fromkeys(_FACTS, last), "power_w": idle}.items():
        value = f'value = {run["gpu"][name]:.15g}, source = "the driver", date = {run["date"][:10]}'
        yield f"{'idle_' * (name == 'power_w')}{name} = {{ {value} }}"
    roofs = _passed(folder, "roofs")
    if len(roofs):
        yield from _head(folder, "roofs", folder, roofs)
        for column in ("value", "sm_mhz"):
            yield from _table(column, dict(zip(roofs["stage"], roofs[column], strict=True)))
    measured = next((card for card in (folder, *cards) if len(_passed(card, "latencies"))), folder)
    latencies = _passed(measured, "latencies")
    if len(latencies):
        yield from _head(folder, "latencies", measured, latencies)
    if measured == folder:
        rows = (
            stage.split(".", 1) + [value] for stage, value in zip(latencies["stage"], latencies["value"], strict=True)
        )
        for table, entries in group_pairs((table, (entry, value)) for table, entry, value in rows).items():
            yield from _table(table, dict(entries))
    yield ""


def _passed(folder: Path, study: str) -> pd.DataFrame:
    frame = store.read(folder, study)
    return frame[frame["status"] == PASS]


def _head(card: Path, study: str, measured: Path, rows: pd.DataFrame) -> Iterator[str]:
    """The head of a card's table of what a study measured, on another card of the same chip perhaps."""
    yield f'\n["{card.name}".{study}]'
    yield f'source = "{study}.csv of {measured.name}"\ndate = {max(rows["run"])[:10]}'
    if measured != card:
        yield f'of = "{measured.name}"  # whose multiprocessors are the same'


def _table(name: str, values: Mapping[str, float]) -> Iterator[str]:
    """Entries and their values, in lines of at most _WIDTH characters."""
    line = f"{name} = ["
    for entry in (f'["{key}", {format_precise(value).replace(",", "")}],' for key, value in values.items()):
        if len(line) + len(entry) >= _WIDTH:
            yield line
            line = "   "
        line += f" {entry}"
    yield f"{line} ]"
