"""The course of a check: whole tiles, ragged sizes, then why, then what it costs; all on the reference GPU."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import replace

import gemm_ref
from experiments.check import cost, diagnose, faults, offsets, sizes, source_text
from experiments.check.cuda.cuda_file import CudaKernel
from experiments.check.cuda.nvcc import UNDEFINED
from experiments.check.report import Fault, Outcome, Report, Verdict
from experiments.check.subject import Subject
from experiments.check.trial import Trial, attempt

SECONDS = 12.0  # of a core's time; then no more sizes are searched for reasons


class Examination:
    """One check; `report` is what it says."""

    def __init__(self, subject: Subject, problems: Sequence[gemm_ref.Problem]) -> None:
        self._subject = subject
        self._given = [subject.admit(problem) for problem in problems]
        self._used_s = _used_s()
        self._trials: list[Trial] = []
        self._known: dict[tuple[gemm_ref.Problem, bool], bool] = {}
        self.report = Report(subject.name, str(subject.path), subject.dialect, subject.how, notes=subject.notes)

    def run(self) -> Report:
        """Raises CannotCheck where the reference GPU lacks what the kernel needs."""
        for problem in self._given or self._problems():
            if self._try(problem).endless:  # the others would be, too, and each takes long
                self._collect_faults()
                return self.report
        whole = self._trials[0]
        if whole.right and not self._given:
            self._try(whole.problem, "one_hot")
        base = self._explain(whole)
        self._collect_faults()
        if base:
            self._count(base)
        if isinstance(self._subject, CudaKernel):
            self._look_at_offsets(self._subject)
        return self.report

    # --- sizes -----------------------------------------------------------------------------------------------

    def _problems(self) -> list[gemm_ref.Problem]:
        tile = self._subject.tile
        return list(dict.fromkeys(self._subject.admit(p) for p in (sizes.aligned(tile), *sizes.ragged(tile))))

    def _try(self, problem: gemm_ref.Problem, kind: str = "integers") -> Trial:
        trial = self._run(problem, kind, told=True, detect=kind == "integers")
        self._trials.append(trial)
        return trial

    def _run(
        self, problem: gemm_ref.Problem, kind: str = "integers", told: bool = False, detect: bool = False
    ) -> Trial:
        """A run that the report lists; `told` where its verdict rests on it."""
        trial = attempt(self._subject, problem, kind, detect=detect)
        # What was never written is the detectors' to say: a sum that begins with the poison looks like the poison.
        text = trial.fault or re.sub(r"; \d+ of them were never written", "", trial.wrong) or "right"
        sizes_ = problem.m, problem.n, problem.k
        self.report.add(Verdict(*sizes_, kind, _outcome(trial), text, told))
        return trial

    def _right(self, problem: gemm_ref.Problem) -> bool:
        """Whether C is right at sizes that are no part of the report by themselves."""
        problem = self._subject.admit(problem)
        key = (problem, self._subject.zeroed)
        if key not in self._known:
            self._known[key] = self._run(problem).right
        return self._known[key]

    def _time_left(self) -> bool:
        return _used_s() - self._used_s < SECONDS

    # --- reasons ---------------------------------------------------------------------------------------------

    def _explain(self, whole: Trial) -> gemm_ref.Problem | None:
        """Put down why results are wrong; returns sizes at which the kernel can be counted, if there are any."""
        wrong = [trial for trial in self._trials if not trial.right]
        if not wrong:
            return whole.problem
        if all(trial.kind == "one_hot" for trial in wrong):
            self.report.why.append(
                "small integers give the right result and one-hot rows do not, although every sum there is exact in "
                f"{whole.problem.math}: the kernel cuts its operands or sums to fewer bits. If that is intended, say "
                "so with --math"
            )
            return whole.problem
        if self._given:
            reason = diagnose.adds_to_c(self._subject, wrong[0])
            self._say([reason] if reason else diagnose.explain(self._subject, wrong[0]))
            return next((trial.problem for trial in self._trials if not trial.fault), None)
        base: gemm_ref.Problem | None = whole.problem
        reason = ""
        if not whole.right and not whole.fault:
            reason = diagnose.adds_to_c(self._subject, whole)
        if reason:
            self.report.why.append(reason)
            self._subject.zeroed = True  # what else is wrong shows only then
            whole = attempt(self._subject, whole.problem, detect=True)
        if not whole.right:
            base = self._explain_whole(whole)
        if base and self._right(base) and not self._subject.square and len(self.report.why) == bool(reason):
            self._say_needs(base)
        if not self.report.why:
            self._say(diagnose.explain(self._subject, wrong[0]))
        return base

    def _explain_whole(self, whole: Trial) -> gemm_ref.Problem | None:
        """Why it is wrong where all tiles are whole; returns sizes at which it runs to its end."""
        base, cube = whole.problem, self._subject.admit(sizes.cube(whole.problem))
        self._say(diagnose.explain(self._subject, whole))
        if not self.report.why and cube != base:
            equal = self._run(cube, told=True, detect=True)
            if equal.right:
                self.report.why.append(diagnose.confused(self._subject, self._right, base))
                base = cube
            elif not equal.fault:
                self._trials.append(equal)
                said = [f"with M = N = K = {cube.m}, {text}" for text in diagnose.explain(self._subject, equal)]
                self._say(said)
        self._say(diagnose.row_lengths(self._subject))
        return None if whole.fault and base == whole.problem else base

    def _say(self, sentences) -> None:
        self.report.why += [sentence for sentence in sentences if sentence not in self.report.why]

    def _say_needs(self, base: gemm_ref.Problem) -> None:
        """Which size must be a multiple of what, and why the first one past a whole size is wrong."""
        self.report.needs = sizes.needs(base, self._right, self._time_left)
        for need in self.report.needs:
            axis = need.axis.upper()
            said = f"{axis} must be a multiple of {need.multiple}" if need.multiple else f"not every {axis} works"
            self.report.why.append(f"{said}: with the other sizes whole, {need.smallest} is the smallest that fails")
            # One short of a whole size leaves out another number of products for each slice depth.
            past = self._run(base.resized(**{need.axis: getattr(base, need.axis) - 1}), detect=True)
            self._trials.append(past)
            if not past.fault:
                self._say(diagnose.explain(self._subject, past))

    def _collect_faults(self) -> None:
        found: dict[tuple, tuple[Fault, list[str]]] = {}
        for trial in self._trials:
            self.report.limits += [said for said in faults.formal(trial) if said not in self.report.limits]
            for fault in faults.found(trial, self._quote):
                key = (fault.kind, fault.file, fault.line, fault.other_line)
                found.setdefault(key, (fault, []))[1].append(str(trial.problem))
        for number, line, text in self._subject.warnings:
            if number == UNDEFINED:
                name = self._subject.path.name
                found[number, line, text] = (Fault("undefined value", text, name, line, self._quote(name, line)), [])
            else:
                self.report.notes.append(f"nvcc warns at line {line}: {text}")
        self.report.faults = [replace(f, sizes=tuple(dict.fromkeys(where))) for f, where in found.values()]

    def _quote(self, file: str, line: int) -> str:
        lines = self._lines if file == self._subject.path.name else []
        return lines[line - 1].strip() if 0 < line <= len(lines) else ""

    @property
    def _lines(self) -> list[str]:
        return source_text.read(self._subject.path).split("\n")

    # --- cost ------------------------------------------------------------------------------------------------

    def _count(self, base: gemm_ref.Problem) -> None:
        self.report.counted_at = str(base)
        self.report.lines, self.report.code, why_not = cost.count(self._subject, base, self._quote)
        self.report.advice = cost.advice(self.report.lines, self.report.code)
        if why_not:
            self.report.unchecked.append(f"the machine code: {why_not}")

    def _look_at_offsets(self, kernel: CudaKernel) -> None:
        for name, access in offsets.narrow(kernel).items():
            where = access.instruction
            self.report.limits.append(
                f"offsets into {name} are computed in 32 bits ({where.file}:{where.line}), so the kernel fails once "
                f"{name} has 2^31 elements: write (size_t)row * N + col"
            )


def _outcome(trial: Trial) -> Outcome:
    if trial.fault:
        return Outcome.OUTSIDE if faults.kind_of(trial.fault) in faults.OUTSIDE else Outcome.STOPPED
    return Outcome.WRONG if trial.wrong else Outcome.RIGHT


def _used_s() -> float:
    """Seconds of a core that this process and its compilers have had."""
    return sum(os.times()[:4])
