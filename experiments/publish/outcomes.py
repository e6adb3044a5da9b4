"""What came of each experiment, in one to three sentences made from its rows; 'faster' and 'slower' are verdicts.

A study's sentences are those of `describe` in its text.py. A part that was not measured is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pandas as pd

from experiments.publish.numbers import format_percent
from experiments.publish.wording import join_words
from experiments.records import frames, stats, studies


def outcome(name: str, frame: pd.DataFrame) -> str:
    """The sentences on the study `name`, whose rows are `frame`; empty where the rows say nothing."""
    if frame.empty or not studies.has(name, "text"):
        return ""
    return " ".join(f"{sentence}." for sentence in studies.load(name, "text").describe(frame))


def in_order(names: Iterable[str]) -> list[str]:
    """The names of studies in the order of the report; one without a place in it comes last."""
    abouts = studies.abouts()
    return sorted(names, key=lambda name: abouts.get(name, {}).get("report_order", float("inf")))


def describe_trust(studied: Mapping[str, pd.DataFrame]) -> str:
    """How far the timed rows of studies, by name, can be trusted, by cuBLAS timed against itself; empty without any."""
    compared = {
        name: frame for name, frame in studied.items() if "vs_cublas" in frame and frame["vs_cublas"].notna().any()
    }
    controls = {name: frames.controls(frame) for name, frame in compared.items()}
    same, count = (sum(each[place] for each in controls.values()) for place in (0, 1))
    if not count:
        return ""
    off = max(off for _, own, off in controls.values() if own)
    without = join_words(f"`{name}`" for name, (_, own, _) in controls.items() if not own)
    return (
        f"cuBLAS was timed against itself beside every problem{f' but those of {without}' if without else ''}: "
        f"{same} of {count} such rows say {stats.SAME}, and the one furthest from 1 is off by {format_percent(off, 2)}."
    )
