"""The one loop that times anything, for every study:

    check -> warm up -> interleave the rounds -> repeat with -A -> floor -> row

Nothing wrong is ever timed. After the timed calls each contender is called once more with -A in the place of A, which
detects kernels that return a memoised result, and a time below what the GPU needs at least is rejected. On a GPU cuBLAS
takes part twice: where that control is not SAME, tables and plots mark the problem (`records.controls`).

What differs between studies is data: a `TimingProtocol` (timer, rounds, warm-up), and entries, which are what is timed.
`Bench` does all of it for plain products; studies of something else derive their own entries.
"""

from __future__ import annotations

import abc
import functools
import weakref
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, TypeVar

import numpy as np
import torch

import gemm_ref
from experiments.bench import eligibility, floor, provenance, rounds, timers
from experiments.bench.kernel_names import kernel_names
from experiments.bench.rounds import RoundPlan
from experiments.bench.telemetry import Conditions, Telemetry, summarize
from experiments.bench.verify import CheckResult, Inputs, failure, load, refusal, report, tail_probe, verify
from experiments.progress import Bars
from experiments.records import stats
from experiments.records.contenders import OR_SGEMM, Contender, Gemm
from experiments.records.rows import COLD, FAIL, LAYERS, SKIPPED, Row, TimedRow
from gemm_ref.baselines import BASELINES
from gemm_ref.epilogue import Extras

CPU_PLAN = RoundPlan(min_rounds=3, min_slow_rounds=3, max_rounds=10, precision=0.02, per_contender_s=0.7, total_s=5.0)
# One-hot inputs prove the arithmetic of every element; past this many products the normal inputs alone are checked,
# since the same kernel has passed one-hot inputs at smaller sizes and some take 20 s per call.
MAX_ONE_HOT_PRODUCTS = 2**40

TimeOnce = Callable[["Entry"], float]  # runs an entry once and returns microseconds
WarmUp = Callable[[Sequence["Entry"], TimeOnce, Telemetry], object]  # the reference is the first of the entries


def settle_clock(entries: Sequence[Entry], time_once: TimeOnce, telemetry: Telemetry) -> None:
    """Runs the first entry until the GPU's clock has settled."""
    rounds.warm_up(lambda: time_once(entries[0]), telemetry.has_settled)


def time_each(count: int) -> WarmUp:
    """A warm-up that times every entry `count` times."""

    def warm_up(entries: Sequence[Entry], time_once: TimeOnce, telemetry: Telemetry) -> None:
        for entry in entries:
            for _ in range(count):
                time_once(entry)

    return warm_up


@dataclass(frozen=True)
class TimingProtocol:
    """How times are taken."""

    make_timer: Callable[[], timers.Timer]  # called once per set of rounds
    plan: RoundPlan
    warm_up: WarmUp = time_each(0)


class Entry(abc.ABC):
    """Something that is timed beside the others of its problem: a contender with its operands."""

    work: timers.Work  # one timed call

    @abc.abstractmethod
    def check(self) -> CheckResult:
        """Runs it once, before anything is timed."""

    @abc.abstractmethod
    def check_negated(self) -> CheckResult:
        """Runs it once more, after the timed calls, with -A in the place of A."""

    @abc.abstractmethod
    def row(self, **values: Any) -> Row:
        """A row about it."""

    @abc.abstractmethod
    def timed_row(self, times_us: Mapping[Any, np.ndarray], conditions: Conditions) -> Row:
        """Its row from the times of all entries in the same rounds, by entry."""

    def failed(self, error: Exception) -> CheckResult:
        """What an exception in a timed call means."""
        return failure(self, error, "cuda" if torch.cuda.is_available() else "cpu")


AnyEntry = TypeVar("AnyEntry", bound=Entry)
AnyProduct = TypeVar("AnyProduct", bound="Product")


class EntryRef:
    """An attribute that refers to an entry weakly: a cycle of entries would keep their operands on the GPU."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = f"_{name}_ref"

    def __get__(self, entry: Entry, owner: type) -> Any:
        return entry.__dict__.get(self._name, lambda: None)()

    def __set__(self, entry: Entry, other: Entry | None) -> None:
        entry.__dict__[self._name] = weakref.ref(other) if other else lambda: None


@dataclass(frozen=True)
class MeasuringLoop:
    """Takes entries from the check to their rows."""

    protocol: TimingProtocol
    bars: Bars
    telemetry: Telemetry = field(default_factory=Telemetry)  # reads nothing unless it was entered

    def check(self, entries: Sequence[AnyEntry], title: str) -> Generator[Row, None, list[AnyEntry]]:
        """Yields a row for each entry that is wrong, broken or left out; returns the others.

        Raises DeviceLost after the row of a contender that left the GPU unusable.
        """
        self.bars.begin(title, len(entries))
        passed = []
        for entry in entries:
            self.bars.doing(str(entry))
            result = entry.check()
            if result.passed:
                passed.append(entry)
            else:
                yield from report(entry.row(**result.columns), result)
            self.bars.done()
        tail_probe.cache_clear()  # its operands would take room of the timed ones
        return passed

    def time(
        self, entries: Sequence[AnyEntry], title: str = "", reference: AnyEntry | None = None
    ) -> Generator[Row, None, list[AnyEntry]]:
        """Yields a row for each entry; returns those that were right to the end.

        An entry that breaks off becomes a failure, and the others begin anew. title: of a progress bar of its own.
        Raises DeviceLost as `check` does, and KeyboardInterrupt after the rows that the finished rounds give.
        """
        if not entries:
            return []
        timer, plan = self.protocol.make_timer(), self.protocol.plan
        running: Entry = entries[0]

        def time_once(entry: Entry) -> float:
            nonlocal running
            running = entry
            self.bars.doing(str(entry))
            return timer(entry.work)

        def time_in_round(entry: Entry) -> float:
            time_us = time_once(entry)
            if title:
                self.bars.done()
            return time_us

        if title:
            self.bars.begin(title, plan.max_rounds * len(entries))
        failed: CheckResult | None = None
        try:
            reference_first = sorted(entries, key=lambda entry: entry is not reference)
            self.protocol.warm_up(reference_first, time_once, self.telemetry)
            with self.telemetry.window() as samples:
                times_us, interruption = rounds.interleave(entries, time_in_round, plan, reference)
        except Exception as error:
            failed = running.failed(error)
        finally:
            if title:
                self.bars.finish()
        if failed:
            yield from report(running.row(**failed.columns), failed)
            others = [entry for entry in entries if entry is not running]
            return (yield from self.time(others, title, None if running is reference else reference))
        conditions, right = summarize(samples), []
        for entry in times_us:
            row = entry.timed_row(times_us, conditions)
            result = CheckResult() if interruption else entry.check_negated()
            if result.passed:
                right.append(entry)
                row = floor.judge(row, _gpu_environment())
            else:
                detail = f"right until it was timed, then, with -A in the place of A: {result.detail}"
                row = floor.reject(row, result.status, detail)
            yield from report(row, result)
        if interruption:
            raise interruption
        return right


@functools.cache
def _gpu_environment() -> dict[str, Any]:
    """What the floor needs to know of the environment."""
    if not torch.cuda.is_available():
        return {"gpu": None, "device": ""}
    return {"gpu": provenance.gpu(), "device": torch.cuda.get_device_name()}


@dataclass(frozen=True)
class Setting:
    """How a study times products."""

    experiment: str
    device: str  # "cpu" or "cuda"
    mode: str = COLD  # on a GPU
    plan: RoundPlan = RoundPlan()  # on a GPU
    row: type[Row] = TimedRow  # what its rows are
    limit_s: float = float("inf")  # a rung is left out if, by its speed so far, one call would take longer
    hint: str = ""  # ends the reason for which the limit leaves a contender out
    more_modes: tuple[str, ...] = ()  # in which what was right to the end is timed again, with the clock as it is

    def protocol(self, mode: str) -> TimingProtocol:
        warm_up = settle_clock if mode == self.mode else time_each(1)
        return TimingProtocol(functools.partial(timers.make_timer, mode), self.plan, warm_up)


class Product(Entry):
    """A contender's product: checked with each of the inputs and the probe of K's tail, and timed with the last."""

    reference = EntryRef()  # what its speed is given as a share of

    def __init__(self, setting: Setting, contender: Contender, inputs: Sequence[Inputs], /, **columns: Any) -> None:
        self.setting, self.contender, self.inputs, self.columns = setting, contender, inputs, columns
        self.problem = inputs[-1].problem
        self.extras = Extras()
        self.device = contender.home
        self.accuracy = gemm_ref.Accuracy(0.0, 0.0)
        self.is_wrong = False  # set by a check
        self.mode = ""  # of the timed calls on a GPU, if not that of the setting

    def __str__(self) -> str:
        return str(self.contender)

    def load(self) -> tuple[Gemm, CheckResult | None]:
        """The callable, or why there is none."""
        return load(self.contender)

    def refusal(self) -> CheckResult | None:
        """Why it is left out, if it is."""
        return refusal(self.contender, self.device)

    def verify(self, fn: Gemm, inputs: Inputs) -> CheckResult:
        """One checked call."""
        return verify(self.contender, fn, inputs, extras=self.extras)

    def check(self) -> CheckResult:
        self.fn, result = self.load()
        if result := result or self.refusal():
            return result
        probes = [] if self.extras.specified else [tail_probe(self.problem, self.inputs[-1].a.device.type)]
        for inputs in [*probes, *self.inputs]:
            result = self.verify(self.fn, inputs)
            if not result.accuracy:
                self.is_wrong = result.status == FAIL
                return result
            self.accuracy = result.accuracy
        return result or CheckResult()

    def bind(self, rotation: timers.Rotation) -> None:
        """Sets the operands of the timed calls."""
        self._rotation, fn, given = rotation, self.fn, self.extras.specified
        if len(rotation) == 1:
            a, b, c = rotation.take()
            self.work = functools.partial(fn, a, b, out=c, **given)
            return

        def work() -> None:
            a, b, c = rotation.take()
            fn(a, b, out=c, **given)

        self.work = work

    def check_negated(self) -> CheckResult:
        a, b, c = self._rotation.take()

        def into_timed_c(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor, **given: Any) -> torch.Tensor:
            return out.copy_(self.fn(a, b, out=c.fill_(float("nan")), **given))

        negate_in_place(a)
        result = self.verify(into_timed_c, self.inputs[-1].negated(a, b))
        if not result.lost:
            negate_in_place(a)
        return result

    def row(self, **values: Any) -> Row:
        return self.setting.row.about(self.setting.experiment, self.contender, self.problem, **self.columns | values)

    def timed_row(self, times_us: Mapping[Any, np.ndarray], conditions: Conditions) -> Row:
        summary = stats.summarize(times_us[self])
        values = asdict(self.accuracy) | asdict(summary) | asdict(conditions) | self.ratios(times_us)
        mode = (self.mode or self.setting.mode) if self.device == "cuda" else ""
        return self.row(mode=mode, tflops=stats.tflops(self.problem.flops, summary.median_us), **values)

    def ratios(self, times_us: Mapping[Any, np.ndarray]) -> dict[str, Any]:
        """The columns that compare it with others in the same rounds."""
        if self.reference not in times_us:
            return {}
        name = self.reference.contender.stage
        detail = {} if self.reference.contender.is_reference else {"detail": f"a share of {name}, as cuBLAS is wrong"}
        return detail | share_of_cublas(times_us[self], times_us[self.reference])


def select_reference(entries: Sequence[AnyProduct], passed: Sequence[AnyProduct]) -> AnyProduct | None:
    """Returns what speeds are a share of: cuBLAS, or, where its product is wrong, the next right baseline of the GPU.

    None where cuBLAS takes no part or was not checked, and where no baseline is right.
    """
    references = [each for each in entries if each.contender.is_reference]
    if any(each.is_wrong for each in references):
        references = [each for each in entries if each.contender.stage in BASELINES and each.device == "cuda"]
    return next((each for each in references if each in passed), None)


def rotate(inputs: Inputs, mode: str = "") -> timers.Rotation:
    """The inputs' operands for timed calls, as many sets as the mode needs, on the inputs' device."""
    out_dtype, least = gemm_ref.MATHS[inputs.problem.math].out_dtype, timers.LAYER_CALLS if mode == LAYERS else 2
    return timers.Rotation(inputs.a, inputs.b, timers.cache_bytes(mode), out_dtype, inputs.a.device.type, least)


def share_of_cublas(times_us: np.ndarray, reference_us: np.ndarray) -> dict[str, Any]:
    """The speed as a share of the reference's in the rounds that timed both, and the verdict, by column."""
    ratio = stats.speed_ratio(times_us, reference_us)
    shorter_us = min(stats.summarize(each).median_us for each in (times_us, reference_us))
    return ratio.columns("vs_cublas") | {"verdict": stats.verdict(ratio, stats.margin_for(shorter_us))}


def negate_in_place(x: torch.Tensor) -> None:
    """Flips the sign bit of each element, fp8 included."""
    bits = x.view({1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[x.itemsize])
    bits.bitwise_xor_(torch.iinfo(bits.dtype).min)


class Bench:
    """Times problem after problem in one setting; a context manager, as it reads the GPU's clocks meanwhile."""

    def __init__(self, setting: Setting, chosen: Sequence[Contender], bars: Bars) -> None:
        self.setting, self._bars, self._telemetry = setting, bars, Telemetry()
        self.contenders = eligibility.with_controls(chosen) if setting.device == "cuda" else list(chosen)
        self.flops_per_us: dict[Contender, float] = {}  # of the last problem

    def __enter__(self) -> Bench:
        if self.setting.device == "cuda":
            self._telemetry.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._telemetry.__exit__(*error)

    def time(self, problem: gemm_ref.Problem) -> Iterator[Any]:
        """Yields a row for each contender at one problem; raises as `MeasuringLoop.time` does."""
        yield from self._time(problem)
        if self.setting.device == "cuda":
            torch.cuda.empty_cache()  # the next problem's sets are of other sizes

    def _time(self, problem: gemm_ref.Problem) -> Iterator[Row]:
        inputs = [Inputs.make(problem, "normal")]
        if problem.flops // 2 <= MAX_ONE_HOT_PRODUCTS:
            inputs.insert(0, Inputs.make(problem, "one_hot", b=inputs[0].b))
        columns = {"b_layout": problem.b_layout} if "b_layout" in self.setting.row.columns() else {}
        placed = {home: [each.on(home) for each in inputs] for home in {each.home for each in self.contenders}}
        entries = [_BenchProduct(self, each, placed[each.home], **columns) for each in self.contenders]
        modes = (self.setting.mode, *self.setting.more_modes)
        loops = {mode: MeasuringLoop(self.setting.protocol(mode), self._bars, self._telemetry) for mode in modes}
        passed = yield from loops[modes[0]].check(entries, f"{problem}: checking")
        here = [each for each in passed if each.contender.home == "cuda"]
        for mode in modes:
            if here:
                reference = select_reference(entries, here)
                self._prepare(here, mode, reference)
                here = yield from loops[mode].time(here, f"{problem}: timing, {mode}", reference)
        if here := [each for each in passed if each.contender.home == "cpu"]:
            self._prepare(here, "", None)
            on_cpu = TimingProtocol(lambda: timers.cpu_timer, CPU_PLAN)
            yield from MeasuringLoop(on_cpu, self._bars).time(here, f"{problem}: timing on the CPU")

    def _prepare(self, entries: Sequence[Product], mode: str, reference: Product | None) -> None:
        """Gives the entries of one device their operands and their reference; mode: empty on the CPU."""
        rotation = rotate(entries[0].inputs[-1], mode)
        for entry in entries:
            entry.bind(rotation)
            if mode:
                entry.mode, entry.reference = mode, reference
                chooses = entry.contender.is_baseline or entry.contender.variant == OR_SGEMM
                if chooses and "kernel" not in entry.columns:
                    entry.columns["kernel"] = kernel_names(entry.work)


class _BenchProduct(Product):
    """A product that is left out if one call would take too long."""

    def __init__(self, bench: Bench, contender: Contender, inputs: Sequence[Inputs], **columns: Any) -> None:
        super().__init__(bench.setting, contender, inputs, **columns)
        self._bench = bench

    def refusal(self) -> CheckResult | None:
        if self.device == "cpu":
            return eligibility.too_slow_on_cpu(self.contender, self.problem)
        seconds = self.problem.flops / self._bench.flops_per_us.get(self.contender, float("inf")) / 1e6
        if seconds <= self.setting.limit_s:
            return super().refusal()
        why = f"one call would take about {seconds:.2g} s, and the limit is {self.setting.limit_s:g} s"
        return CheckResult(SKIPPED, why + self.setting.hint)

    def timed_row(self, times_us: Mapping[Any, np.ndarray], conditions: Conditions) -> Row:
        self._bench.flops_per_us[self.contender] = self.problem.flops / stats.summarize(times_us[self]).median_us
        return super().timed_row(times_us, conditions)
