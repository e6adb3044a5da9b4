"""What one run was asked for, and the error for what cannot be carried out as asked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gemm_ref.problem import Problem

if TYPE_CHECKING:  # it takes a second to import
    from experiments.records.row_cache import RowCache

DEFAULT, FULL = "default", "full"
PRESETS = (DEFAULT, FULL)  # how much is measured where the command does not say: minutes, or all that is published

# Control characters, by which a source that is quoted could command the terminal, for `str.translate`.
CONTROL = dict.fromkeys([*range(9), *range(11, 32), *range(127, 160)], "\ufffd")


class UsageError(ValueError):
    """The command cannot be executed as given; the message says what would be right."""


@dataclass(frozen=True)
class Request:
    """The filters of one `run`. An empty filter takes everything."""

    device: str  # "cpu" or "cuda"
    stages: tuple[str, ...] = ()
    backends: tuple[str, ...] = ()
    problems: tuple[Problem, ...] = ()
    math: str = ""  # empty: what the experiment is about, fp32 in most
    preset: str = DEFAULT
    layout: str = ""  # of B, where a study times both; empty: both
    gpus: int = 0  # that `scaling` takes, or processes on a CPU; 0: all that there are
    row_cache: RowCache | None = None  # the rows that need not be measured again; None measures all
