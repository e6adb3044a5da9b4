"""What a row of results holds: dataclasses whose fields are the columns of a CSV.

All rows begin with who and what (`Row`), and end with how it went and in which run. Times are in microseconds; None
is a value that was not measured.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, ClassVar, Self

from experiments.records.contenders import Contender
from gemm_ref.compute import MATHS
from gemm_ref.problem import Problem
from gemm_ref.rung import DEFAULT_VARIANT

PASS, FAIL, ERROR, SKIPPED = "pass", "fail", "error", "skipped"
COLD, WARM, GRAPH = "cold", "warm", "graph"  # how a time is taken; `experiments.bench.timers` says what each is
MODES = (COLD, WARM, GRAPH)
LAYERS = "layers"  # as GRAPH, of calls on as many sets of operands
OWN_MODES = (*MODES, LAYERS)
# How others take times.
PROFILER, DO_BENCH, EVENTS, HOST = "profiler", "do_bench", "events", "host clock"
WAYS = (*MODES, PROFILER, DO_BENCH, EVENTS, HOST)
STRONG, WEAK = "strong", "weak"  # of `scaling`: one problem divided, or one that grows with the cards
# What is timed there beside the ways of `gemm_ref.distributed.layouts`; the last two are of one card.
COLLECTIVE, COPIES, PRODUCT, ONE_CARD = "collective", "copies", "product", "one card"
BURST, SUSTAINED = "burst", "sustained"  # of `energy`: back to back for some milliseconds, and for seconds
HARDWARE = "hardware"  # the view of rows that a GPU's own counters gave, beside `written` and `compiled`; or its sums,
PREDICTED = "predicted"  # beside those of the reference GPU

_IN_FRAMES: dict[str, str | type] = {"str": str, "int": "int64"}


@dataclass(frozen=True, kw_only=True)
class Row:
    """The columns that every row has. A rerun replaces the row with the same values of the columns KEY.

    What is measured of the device, and not of a contender at a problem, has no dialect, math, type and sizes.
    """

    # The columns that say which measurement it is.
    KEY: ClassVar[tuple[str, ...]] = ("experiment", "stage", "variant", "backend", "dialect", "math", "m", "n", "k")

    experiment: str
    stage: str  # a rung's id or a baseline's name
    variant: str = DEFAULT_VARIANT
    backend: str
    dialect: str = ""  # empty for baselines
    math: str = ""
    dtype: str = ""
    m: int = 0
    n: int = 0
    k: int = 0
    status: str = PASS
    detail: str = ""  # why it was skipped or how it failed, whole; the CSV keeps a cell's length of it
    run: str = ""  # key of environment.json; set when saved

    @classmethod
    def about(cls, experiment: str, contender: Contender, problem: Problem, **values: Any) -> Self:
        """Returns a row about one contender and one problem."""
        return cls(
            experiment=experiment,
            stage=contender.stage,
            variant=contender.variant,
            backend=contender.backend,
            dialect=contender.dialect,
            math=contender.math,
            dtype=str(MATHS[contender.math].dtype).removeprefix("torch."),
            m=problem.m,
            n=problem.n,
            k=problem.k,
            **contender.columns,
            **values,
        )

    @classmethod
    def columns(cls) -> tuple[str, ...]:
        """Returns the columns of the CSV in order: status, detail and run are last."""
        names = [field.name for field in fields(cls)]
        last = ("status", "detail", "run")
        return (*(name for name in names if name not in last), *last)

    @classmethod
    def types(cls) -> dict[str, str | type]:
        """Returns each column's type in a data frame; a number that may be missing is a float."""
        return {field.name: _IN_FRAMES.get(str(field.type), "float64") for field in fields(cls)}


@dataclass(frozen=True, kw_only=True)
class CheckedRow(Row):
    """The result of one check against the oracle."""

    KEY: ClassVar[tuple[str, ...]] = (*Row.KEY, "inputs")
    inputs: str = ""  # kind of the inputs
    rel_error: float | None = None
    bound_share: float | None = None  # largest |error| / allowed error; at most 1 when correct


@dataclass(frozen=True, kw_only=True)
class TimedRow(CheckedRow):
    """The times of one contender at one problem, which was checked first."""

    KEY: ClassVar[tuple[str, ...]] = (*CheckedRow.KEY, "mode")
    mode: str = ""  # of `experiments.bench.timers`: what the caches hold and whether a launch is part of the time
    median_us: float | None = None
    p20_us: float | None = None
    p80_us: float | None = None
    repeats: int | None = None
    tflops: float | None = None
    vs_cublas: float | None = None  # speed as a share of cuBLAS of the same math in the same rounds: the median, and
    vs_cublas_low: float | None = None  # its 95% interval
    vs_cublas_high: float | None = None
    verdict: str = ""  # FASTER, SLOWER, SAME or UNSURE, beside cuBLAS
    kernel: str = ""  # what the GPU ran, where a library or the call chose it
    sm_mhz: float | None = None  # median of the multiprocessors' clock while the problem was timed,
    sm_mhz_low: float | None = None  # and the lowest that was seen
    power_w: float | None = None  # median,
    power_w_high: float | None = None  # and the largest
    temperature_c: float | None = None  # the largest
    throttle: str = ""  # reasons for which the driver held the clock down, if any


@dataclass(frozen=True, kw_only=True)
class LayoutRow(TimedRow):
    """The time of one contender with B stored by rows or by columns."""

    KEY: ClassVar[tuple[str, ...]] = (*TimedRow.KEY, "b_layout")
    b_layout: str = ""  # of gemm_ref.B_LAYOUTS; the weight of torch.nn.Linear, (N, K), is nk


@dataclass(frozen=True, kw_only=True)
class ScalingRow(TimedRow):
    """As `TimedRow`, of a product on several cards, beside the library's in turn; or of a part of it.

    Sizes are those of the whole product; of PRODUCT and ONE_CARD, those of what a card computes by itself.
    """

    KEY: ClassVar[tuple[str, ...]] = (*TimedRow.KEY, "layout", "way", "gpus", "scaling")
    layout: str = ""  # of `gemm_ref.distributed.layouts.LAYOUTS`
    way: str = ""  # of its WAYS, or one of COLLECTIVE, COPIES, PRODUCT, ONE_CARD
    gpus: int = 0  # ranks; processes on a CPU
    grid: str = ""  # rows x columns of ranks, where they are a grid
    scaling: str = ""  # STRONG or WEAK
    link_bytes: int = 0  # that each rank receives in a call
    efficiency: float | None = None  # speed of a card as a share of ONE_CARD in the same rounds: the median, and
    efficiency_low: float | None = None  # its 95% interval
    efficiency_high: float | None = None
