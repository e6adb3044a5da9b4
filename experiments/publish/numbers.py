"""How every number is written in README, docs, the report and the pictures: one function per kind of number.

A share or a ratio is a plain number (1 is all of it); what is written is in percent where the name says so.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pandas as pd

from experiments.records.stats import Ratio, geometric_mean
from gemm_ref import DIALECTS


def format_number(value: float) -> str:
    """Three significant digits without an exponent: TFLOP/s, seconds, factors; a dash for NaN."""
    text = f"{value:.0f}" if value >= 99.95 else f"{value:#.3g}"
    return "–" if math.isnan(value) else text


def format_precise(value: float) -> str:
    """Four significant digits, as plain as they can be: cells of tables of raw results."""
    if value == 0:
        return "0"
    if 1e-3 <= abs(value) < 1e4:
        return f"{value:#.4g}".rstrip(".")
    return f"{value:,.0f}" if 1e4 <= abs(value) < 1e9 else f"{value:.3g}"


def format_fixed(value: float, places: int = 0) -> str:
    """A number with a fixed count of decimals, for columns that are compared digit by digit; a dash for NaN."""
    return "–" if math.isnan(value) else f"{value:.{places}f}"


def format_percent(share: float, places: int | None = None) -> str:
    """`93.1%`: three significant digits, or a fixed count of decimals."""
    return f"{format_number(100 * share) if places is None else format_fixed(100 * share, places)}%"


def format_means(rows: pd.DataFrame, column: str) -> str:
    """`99 / 90 / 96%`: the geometric mean of a share in each dialect; a dash for one without rows."""
    of = {dialect: 100 * geometric_mean(own[column]) for dialect, own in rows.groupby("dialect")}
    return f"{' / '.join(format_fixed(of.get(name, math.nan)) for name in DIALECTS)}%"


def format_percent_range(low: float, high: float, places: int | None = None) -> str:
    """`93.1 to 94.2%`: two shares, as `format_percent` writes each."""
    return f"{format_percent(low, places)[:-1]} to {format_percent(high, places)}"


def format_short_percent(percent: float) -> str:
    """A value in percent for a small cell: no decimals from 10 on, one below, no sign; empty for NaN."""
    return "" if math.isnan(percent) else format_fixed(percent, 0 if percent >= 9.95 else 1)


def format_change(share: float, places: int = 1) -> str:
    """`+4.2%`: by how much a ratio differs from 1, with its sign."""
    return f"{100 * share - 100:+.{places}f}%"


def format_count(value: float) -> str:
    """`12,345`: a whole number of checks, vectors or rows."""
    return f"{value:,.0f}"


def format_error(value: float, places: int = 1) -> str:
    """`1.2e-06`: a relative error."""
    return f"{value:.{places}e}"


def format_kib(value_bytes: float) -> str:
    """Bytes in KiB, with one decimal."""
    return format_fixed(value_bytes / 1024, 1)


def format_range(values: Iterable[float], form: Callable[[float], str] = format_number, unit: str = "") -> str:
    """`0.98 to 1.03`: the least and the largest value, or one number where both are written alike."""
    known = list(values)
    low, high = form(min(known)), form(max(known))
    return f"{low}{unit}" if low == high else f"{low} to {high}{unit}"


def format_ratio(ratio: Ratio | None) -> str:
    """`0.998 (0.990 to 1.010)`: a ratio with its 95% interval; a dash without one."""
    return "–" if ratio is None else f"{ratio.median:.3f} ({format_interval(ratio.low, ratio.high)})"


def format_interval(low: float, high: float) -> str:
    """`0.990 to 1.010`: an interval of a ratio."""
    return f"{low:.3f} to {high:.3f}"


def format_size(row: Any, times: str = " x ") -> str:
    """`4096 x 4096 x 128`: M, N and K of a row or a problem."""
    return times.join(f"{getattr(row, name):.0f}" for name in ("m", "n", "k"))


def format_edges(row: Any, times: str = " x ") -> str:
    """A cube by its edge, any other problem as M, N and K."""
    return format_size(row, times) if len({row.m, row.n, row.k}) > 1 else f"{row.m:.0f}"


def format_mean_loss(losses: Sequence[float]) -> str:
    """The geometric mean of times that are longer by these shares, in %."""
    return format_percent(geometric_mean([1 + loss for loss in losses]) - 1, 1)
