"""A grade: what `experiments.check` finds of a learner's file, held against the goals of its exercise.

Sizes are drawn anew for each grade, so that no file can be made for them; the file's code runs in check's cage.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from experiments.check import cage, command, limits, page, predict, progress
from experiments.check.faults import without_instruction
from experiments.check.messages import Note
from experiments.check.report import LineTraffic, Report, Traffic, WarpRequest
from experiments.check.subject import Options, Subject, attempt, read_source
from experiments.learn import honesty
from experiments.learn.course import Exercise
from experiments.records.request import Request, UsageError
from gemm_ref import Problem, ptx
from gemm_ref.build import CACHE, BuildError, digest, write_whole
from gemm_ref.ptx.count.banks import BANKS, WORD
from gemm_ref.ptx.count.sectors import SECTOR

FAULTLESS, RIGHT, USES, SPEED = "faultless", "right", "uses", "speed"
BUDGET_S = 10.0  # of a core's time for the runs of a file, compilers included
_ROUNDING = 1 + 1e-9  # of a measured number that equals the goal


@dataclass(frozen=True)
class Measure:
    """A number that a goal limits, from the lines of memory traffic that it is about."""

    text: str
    space: str
    kind: str = ""  # load, store or atomic; empty for the bytes of all per FLOP

    def measure(self, report: Report) -> tuple[float, LineTraffic | None]:
        """Returns (the number, the line that has the largest part in it)."""
        lines = [line for line in report.lines if line.space == self.space and line.kind.endswith(self.kind)]
        if not self.kind:
            most = max(lines, key=_bytes_of, default=None)
            return sum(map(_bytes_of, lines)) / Problem.parse(report.counted_at).flops, most
        if self.kind == "atomic":
            return sum(line.executed.requests for line in lines), next(iter(lines), None)
        worst = max(lines, key=lambda line: line.executed.taken, default=None)
        return worst.executed.taken if worst else 0.0, worst


def _bytes_of(line: LineTraffic) -> float:
    """The bytes that memory moves for a line: whole sectors, or whole wavefronts."""
    return line.executed.requests * line.executed.taken * (SECTOR if line.space == "global" else BANKS * WORD)


MEASURES = {
    "load_sectors": Measure("sectors per request of a global load", "global", "load"),
    "store_sectors": Measure("sectors per request of a global store", "global", "store"),
    "load_wavefronts": Measure("wavefronts per request of a shared load", "shared", "load"),
    "store_wavefronts": Measure("wavefronts per request of a shared store", "shared", "store"),
    "global_bytes": Measure("bytes of global memory per FLOP", "global"),
    "shared_bytes": Measure("bytes of shared memory per FLOP", "shared"),
    "atomics": Measure("atomic requests", "global", "atomic"),
}


class _Executed(ptx.Observer):
    """Collects the names of the instructions that are executed."""

    def __init__(self) -> None:
        self.names: set[str] = set()

    def on_instruction(self, instruction, mask, machine) -> None:
        self.names.add(instruction.name)


@dataclass(frozen=True)
class Result:
    """What came of one goal."""

    goal: str
    text: str  # what is wanted, and what was found
    passed: bool | None  # None where it was not graded, because the result is wrong
    why: str = ""
    line: int = 0  # of the learner's file; 0 where none is to blame
    quote: str = ""
    access: LineTraffic | None = None


@dataclass(frozen=True)
class Grade:
    """The results of all goals, in the order in which a learner reaches them."""

    exercise: str
    dialect: str
    sizes: str
    results: tuple[Result, ...] = ()
    refusal: str = ""  # why the file could not be run at all
    timed: str = ""  # where there is a GPU
    seconds: float = 0.0

    @property
    def passed(self) -> bool:
        return not self.refusal and all(result.passed for result in self.results)

    @property
    def first_failing(self) -> Result | None:
        return next((result for result in self.results if result.passed is False), None)

    @property
    def state(self) -> str:
        if self.refusal:
            return "cannot be run"
        count = sum(result.passed is True for result in self.results)
        return "passed" if self.passed else f"{count} of {len(self.results)} goals"


def grade(
    exercise: Exercise,
    path: Path,
    gpu: str = "h200",
    on_gpu: bool = False,
    trust: bool = False,
    seed: int | None = None,
) -> Grade:
    """Returns the grade of a file. Raises UsageError where there is none, or for a GPU that is not known.

    gpu: the one that the time is predicted for. on_gpu: a kernel that passes is timed on this machine's GPU as well,
    in no cage, where `trust` says so. seed: of the sizes, which are drawn anew without one.
    """
    predict.read_gpu(gpu)
    problems = exercise.draw_problems(random.SystemRandom() if seed is None else random.Random(seed))
    text, results, timed = read_source(path), list[Result](), ""

    def finish(subject: Subject, report: Report) -> None:
        nonlocal timed
        results.extend(_counted(exercise, subject, report, problems, text))
        if exercise.speed:
            results.append(_predicted(exercise.speed, subject, report, gpu, text, results))
        if on_gpu and all(result.passed for result in results):
            timed = _time(subject, report)

    made = Grade(exercise.id, exercise.dialect, ", ".join(map(str, problems)))
    request = Request("cpu", problems=problems, math=exercise.math)
    end_s = limits.used_s() + BUDGET_S
    deadline = limits.deadline_s.set(end_s)
    try:
        layout = "B=KxN" if exercise.dialect == "cuda" else ""  # all are stored by rows: no other storage is tried
        options = Options(math=exercise.math, layout=layout, trust=trust)
        report = command.check(path, options, request, finish=finish)
        made = replace(made, results=tuple(results), timed=timed, seconds=report.seconds)
    except (UsageError, BuildError, limits.OutOfTime) as error:
        is_late = isinstance(error, limits.OutOfTime) or limits.used_s() > end_s
        late = (
            f"it was stopped after {BUDGET_S:.0f} s of processor time: does a loop not end, or does one thread do all?"
        )
        made = replace(made, refusal=late if is_late else str(error))
    finally:
        limits.deadline_s.reset(deadline)
    keep(exercise, text, made)
    return made


def _counted(
    exercise: Exercise, subject: Subject, report: Report, problems: Sequence[Problem], text: str
) -> Iterator[Result]:
    """Yields the results of all goals but the speed; those after the first two are not graded where C is wrong."""
    fault = next(iter(report.faults), None)
    if fault:
        other = f"; line {fault.other_line} is {fault.other_quote}" if fault.other_quote else ""
        place = "" if fault.quote or not fault.file else f"{fault.file}:{fault.line}, "
        why, line = place + without_instruction(fault.text) + other, fault.line if fault.quote else 0
        yield Result(FAULTLESS, f"no fault; found: {fault.kind}", False, why, line, fault.quote)
    else:
        yield Result(FAULTLESS, "no fault", True)
    wrong, line = _wrong(report, problems)
    if not (fault or wrong) and exercise.dialect != "cuda":  # of CUDA files, host code has no memory to write to
        wrong = honesty.not_by_kernels(subject, problems[0])
    yield Result(RIGHT, f"right at {', '.join(map(str, problems))}", not wrong, wrong, line, _quote(text, line))
    if exercise.uses:
        yield _used(exercise.uses, None if fault or wrong else subject, problems[0])
    for goal, wanted in exercise.limits.items():
        measure = MEASURES[goal]
        if fault or wrong:
            yield Result(goal, f"at most {wanted:g} {measure.text}", None)
            continue
        found, worst = measure.measure(report)
        shown = f"{found:,.0f}" if found >= 1000 else f"{found:.3g}"
        about = f"{shown} {measure.text.replace('s per', ' per') if shown == '1' else measure.text}, at most {wanted:g}"
        if worst is None or found <= wanted * _ROUNDING:
            yield Result(goal, about, True)
            continue
        picture = page.picture(worst)
        place = "" if worst.quote else f"{worst.file}:{worst.line}, "
        why = f"{place}{worst.name}: {worst}. {picture.says if picture else ''}"
        yield Result(goal, about, False, why, worst.line if worst.quote else 0, worst.quote, worst)


def _used(names: Sequence[str], subject: Subject | None, problem: Problem) -> Result:
    """Returns whether instructions with these beginnings are executed; without a subject it is not graded."""
    about = f"executes {' and '.join(names)}"
    if subject is None:
        return Result(USES, about, None)
    attempt(subject, problem, observers=(executed := _Executed(),))
    missing = [name for name in names if not any(each.startswith(name) for each in executed.names)]
    return Result(USES, about, not missing, f"not executed: {', '.join(missing)}" if missing else "")


def _quote(text: str, line: int) -> str:
    lines = text.split("\n")
    return lines[line - 1].strip() if 0 < line <= len(lines) else ""


def _predicted(
    wanted: float, subject: Subject, report: Report, gpu: str, text: str, others: Sequence[Result]
) -> Result:
    """Returns the result of the speed, which is predicted where all other goals are reached: it takes seconds."""
    about = f"{wanted:.0%} of cuBLAS predicted"
    if not all(result.passed for result in others):
        return Result(SPEED, about, None)
    if reason := honesty.wrong_at_large_size(subject):
        return Result(SPEED, about, False, reason)
    name = subject.path.name
    progress.step("predicts its time")
    predict.predict(subject.on_whole_gpu, report, gpu, lambda file, line: _quote(text, line) if file == name else "")
    predicted = report.predicted
    if predicted is None or not predicted.cublas_tflops:
        return Result(SPEED, about, False, report.unpredicted or "there is no measured time of cuBLAS to compare with")
    limit = predicted.limit_line
    line, quote = (limit.line, limit.quote) if limit and limit.quote else (0, "")
    passed = predicted.tflops >= wanted * predicted.cublas_tflops
    return Result(SPEED, f"{wanted:.0%} of cuBLAS; {predicted}", passed, f"held back by {predicted.limit}", line, quote)


def _wrong(report: Report, problems: Sequence[Problem]) -> tuple[str, int]:
    """Returns (what is wrong with C, the line that it comes from if that is known)."""
    if report.why:
        return str(report.why[0]), int(str(report.why[0].values.get("line", 0)))
    if report.other_runs:
        return report.other_runs[0][1], 0
    ran = {run.problem for run in report.decisive if run.inputs == "integers"}
    if ran != set(map(str, problems)):
        return f"the file takes other sizes than those that were drawn: it ran at {', '.join(sorted(ran))}", 0
    if report.assumed:
        return f"it is right only with {report.assumed}: A, B and C are stored by rows", 0
    if any(note.code is Note.GRID_FROM_OWN_SIZES for note in report.notes):
        return "it is right only with another grid than that of its launch", 0
    return "", 0


def _time(subject: Subject, report: Report) -> str:
    """Returns the time on this machine's GPU, in words; the reason where there is none."""
    from experiments.check import ranking

    if not cage.policy.trusted:
        return "not timed on this machine's GPU, where it would run in no cage: pass --trust if you trust it"
    progress.step("")  # the ranking has bars of its own
    ranking.rank(subject.on_whole_gpu, report, ())
    own = next((rank for rank in report.ranking if rank.is_subject), None)
    if own is None or own.median_us is None:
        return f"not timed on this machine's GPU: {own.detail if own else report.unchecked[-1]}"
    share = "" if own.vs_cublas is None else f", {own.vs_cublas:.1%} of cuBLAS"
    return f"on this machine's GPU at {report.ranked_at}: {own.median_us:.4g} us, {own.tflops:.3g} TFLOP/s{share}"


# --- the last grade of a file, by its content -------------------------------------------------------------------------


def _place(exercise: Exercise, text: str) -> Path:
    return CACHE / "learn" / f"{digest(exercise, text)}.json"


def keep(exercise: Exercise, text: str, grade: Grade) -> None:
    """Keeps the grade of a file with this content, for `last_grade`. Raises CannotWrite."""
    write_whole(_place(exercise, text), json.dumps(asdict(grade)))


def last_grade(exercise: Exercise, path: Path) -> Grade | None:
    """Returns the last grade of a file as it is now; None where it was not graded since it was changed."""
    place = _place(exercise, read_source(path))
    if not place.is_file():
        return None
    about = json.loads(place.read_text(encoding="utf-8"))
    results = []
    for result in about.pop("results"):
        access = result.pop("access")
        results.append(Result(**result, access=_line_traffic(access) if access else None))
    return Grade(**about, results=tuple(results))


def _line_traffic(about: dict) -> LineTraffic:
    parts: dict = {name: Traffic(**about[name]) for name in ("written", "compiled") if about[name]}
    if request := about["request"]:
        parts["request"] = WarpRequest(request["op"], request["bytes"], tuple(request["offsets"]))
    return LineTraffic(**about | parts)
