"""The course of a check: whole tiles, ragged sizes, then why, then the cost; all on the reference GPU."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import torch

from experiments.check import cost, diagnose, faults, predict, progress, sizes
from experiments.check.cuda.compile import UNDEFINED_VALUE
from experiments.check.cuda.kernel import CudaKernel
from experiments.check.explain import MAX_DETECTED, Explainer
from experiments.check.faults import Fault, FaultKind
from experiments.check.limits import OutOfTime, deadline_s
from experiments.check.messages import Limit, Note, Unchecked, Why, message
from experiments.check.report import Outcome, Report, Run, Word
from experiments.check.subject import Launches, Subject, Trial, attempt
from experiments.records.request import UsageError
from gemm_ref import Problem, ptx
from gemm_ref.dialect import BY_HAND

BUDGET_S = 30.0  # of a core's time; then the verdict is that of what ran until then


class Checker(Explainer):
    """One check; `report` has what was found."""

    def __init__(self, subject: Subject, problems: Sequence[Problem], gpu: str = "") -> None:
        """gpu: the name of the one that the kernel's time is predicted for, of `gemm_ref.clock`, if any."""
        super().__init__(subject, problems)
        self._gpu = gpu
        self._problems: Sequence[Problem] = ()

    def run(self) -> Report:
        """Raises CannotCheck where the reference GPU lacks what the kernel needs, at all sizes."""
        is_complete = self._run_in_time()
        self._require_evidence()
        self.report.assumed = self.subject.assumed
        self.report.notes = self.subject.notes + self.report.notes
        if self._gpu and is_complete:
            progress.step("predicts its time")
            predict.predict(self.subject.on_whole_gpu, self.report, self._gpu, self._quote)
        return self.report

    def _run_in_time(self) -> bool:
        """Runs within the budget, unless sizes are specified. Returns whether it was enough. Raises UsageError."""
        limit = deadline_s.set(min(deadline_s.get(), math.inf if self._specified else self._start_s + BUDGET_S))
        try:
            self._run()
            return True
        except OutOfTime:
            ran = {run.problem for run in self.report.verdicts}
            self.report.untried = [str(each) for each in self._problems if str(each) not in ran]
            if not ran:
                raise UsageError(
                    f"{BUDGET_S:.0f} s of processor time are not enough for one run: pass a small --size"
                ) from None
            self._collect_faults()
            left = ", ".join(self.report.untried) or "no sizes"
            self.report.unchecked.append(message(Unchecked.OUT_OF_TIME, seconds=f"{BUDGET_S:.0f}", sizes=left))
            self.report.unpredicted = "the check ran out of processor time"
            return False
        finally:
            deadline_s.reset(limit)

    def _require_evidence(self) -> None:
        """Raises UsageError where all that is wrong may be due to a guess: one that is never right at whole tiles."""
        rows, columns = self.subject.tile
        is_right = any(run.right and run.m >= rows and run.n >= columns for run in self.report.decisive)
        if self.report.word is not Word.FAULTY or is_right:
            return
        if guess := self.subject.guess:
            raise UsageError(
                f"not judged: the launch is a guess, {self.subject.how}, and with it the result is wrong at all sizes: "
                f"pass {guess}"
            )
        if self._trials[0].c.isnan().any() and (others := self.subject.others):
            raise UsageError(
                f"not judged: {others} on C, and {self.subject.name} alone, which is what is checked, leaves elements "
                "of C as they were"
            )

    def _run(self) -> None:
        problems = self._problems = self._specified or self._choose_sizes()
        for problem in problems:
            trial = self._try(problem)
            if problem is problems[0] and (self._needs_finite_c(trial) or self._does_more(trial)):
                self._forget_last()
                trial = self._try(problem)
            if trial.endless:  # the others would be, too, and each takes long
                self._collect_faults()
                return
            self._require_one_that_runs(problem is problems[-1])
        if not self._specified:
            self._try_powers()
            self._try_less_ragged()
        whole = next(trial for trial in self._trials if not trial.refusal)
        if whole.right:
            if not self.subject.is_integer:
                self._try_one_hot(whole.problem)
            self._try_without_c(whole)
            self._try_infinite()
        base = self._explain(whole)
        self._collect_faults()
        if base:
            self._count(base)
        if isinstance(self.subject, CudaKernel):
            self.report.limits += faults.find_overflows(self.subject)
        else:
            self.report.limits += self.subject.find_overflows()

    # --- what the kernel computes -------------------------------------------------------------------------------------

    def _needs_finite_c(self, trial: Trial) -> bool:
        """Whether it is wrong because C, as it was before, is multiplied by a 0 of the source, and added."""
        if not trial.wrong or not diagnose.reads_c(trial):
            return False
        finite = replace(self.subject, finite=True)
        if not attempt(finite, trial.problem).right:
            return False
        self.subject = finite
        self.report.limits.append(message(Limit.FINITE_C))
        return True

    def _does_more(self, trial: Trial) -> bool:
        """Whether it is wrong because of what the kernel does to every element of C, and nothing else."""
        finish = diagnose.find_finish(self.subject, trial)
        if finish.has_epilogue:
            what = f"C multiplied by {finish.alpha:.4g}" if finish.alpha != 1.0 else f"{finish.activation} of C"
            self.subject = replace(self.subject, finish=finish).assume(what)
        return finish.has_epilogue

    def _try_one_hot(self, problem: Problem) -> None:
        """One-hot rows; a kernel that fails there and rounds fp32 to tf32 or to fp16 is compared in that precision."""
        subject = self.subject
        with ptx.watched(launches := Launches()):
            trial = self._try(problem, "one_hot")
        cut, line, halves, rounding = diagnose.reduced_precision(kernel for kernel, _ in launches.seen)
        rounding = rounding if subject.result_type == torch.float32 else None
        deep = diagnose.deep_problem(subject, problem if self._specified else self._one_tile)
        is_rounded = bool(halves or rounding) and attempt(subject, deep, "positive").wrong != ""
        halves = halves and is_rounded
        if rounding and not halves and (is_rounded or subject.rounds_sums(deep)):
            text = f"sums that {subject.result_type} holds exactly are rounded"
            self.report.add(Run(deep.m, deep.n, deep.k, "positive", Outcome.WRONG, text))
            self._add_reasons(message(Why.SUM_ROUNDED, to=rounding.to, line=rounding.line))
        elif trial.wrong and cut and not halves and subject.math == "fp32" and not subject.intended_math:
            code = Note.REDUCED_BY_TENSOR_CORES if cut == "tf32" else Note.REDUCED_BY_CONVERSION
            self.subject = subject.with_reduced_operands(code, cut, line=line)
            self._forget_last()
            self._try(self.subject.nearest_problem(problem), "one_hot")
        elif halves and not trial.wrong:
            self.subject = subject.assume("sums in fp16").with_note(Note.SUMS_IN_FP16)

    def _try_without_c(self, whole: Trial) -> None:
        """Where beta is 0, C may hold anything: whether a kernel that takes beta leaves it unread."""
        if "BETA" in self.subject.scalars:
            problem = min((trial.problem for trial in self._trials if trial.right), key=lambda each: each.flops)
            if not attempt(self.subject, problem, scales=replace(whole.scales, beta=0.0), zeroed=False).right:
                self.report.limits.append(message(Limit.FINITE_C_AT_BETA_0))

    def _try_infinite(self) -> None:
        """Where A is not finite: whether what lies past the end of its rows is multiplied by zeros."""
        subject = self.subject
        ragged = (each.problem for each in self._trials if each.right and each.problem.k % 2 and each.problem.m > 2)
        problem = next(ragged, None)
        is_plain = not (subject.finish.has_epilogue or subject.is_integer or self.report.why)
        if problem and is_plain and subject.operand_type in (torch.float16, torch.bfloat16, torch.float32):
            if diagnose.needs_finite_a(subject, problem):
                self.report.limits.append(message(Limit.FINITE_A))

    # --- sizes --------------------------------------------------------------------------------------------------------

    def _choose_sizes(self) -> list[Problem]:
        """The sizes to try, by what the first block of a large problem does."""
        seen = self.subject.survey or sizes.first_block(self.subject)[0]
        subject = self.subject = replace(self.subject, survey=seen, tile=seen.tile or self.subject.tile)
        problems, one = sizes.choose(subject.tile, seen.slice, seen.depth)
        self._one_tile, self._slice = subject.nearest_problem(one), seen.slice
        by_hand, group = subject.dialect == BY_HAND, subject.group
        half, many = sizes.choose_more(subject.tile, seen.slice, group, by_hand)
        self._half = subject.nearest_problem(half)
        problems[-2:-2] = [half]
        if group or not by_hand:
            self._many = subject.nearest_problem(many)
            problems.append(many)
        if group and many.m < group * subject.tile[0]:
            self.report.unchecked.append(message(Unchecked.MANY_TILES, tiles=group))
        if subject.square:
            problems[0] = sizes.complete_cube(subject, seen)
        whole, *others = dict.fromkeys(map(subject.nearest_problem, problems))
        limit = 2 * MAX_DETECTED if subject.square else math.inf  # there sizes grow to the largest
        return [whole, *(problem for problem in others if problem.flops <= max(limit, whole.flops))]

    def _require_one_that_runs(self, is_last: bool) -> None:
        """Raises the first run's refusal, where two were for the same reason, or all runs were refused."""
        refusals = [trial.refusal for trial in self._trials]
        if all(refusals) and refusals[0] and (is_last or len({str(refusal) for refusal in refusals}) < len(refusals)):
            raise refusals[0]

    def _try_powers(self) -> None:
        """Where whole tiles are refused: powers of two, which come first then; and as deep as whole tiles were."""
        first, problem = self._trials[0], sizes.powers(self._one_tile)
        if first.refusal and not self._try(self.subject.nearest_problem(problem)).refusal:
            self._trials.insert(0, self._trials.pop())
            self.report.limits.append(message(Limit.POWERS_OF_TWO, problem=str(first.problem)))
            self._try(self.subject.nearest_problem(problem.resized(k=sizes.power(first.problem.k))))

    def _try_less_ragged(self) -> None:
        """Where sizes past whole tiles are refused: the first that are not, a few elements past them."""
        first, *others = (trial for trial in self._trials if not trial.refusal)
        if any(getattr(trial.problem, axis) % 4 for trial in others for axis in sizes.AXES):
            return
        m, n, k = (getattr(first.problem, axis) for axis in sizes.AXES)
        for step in (4, 8, 16, 32):
            problem = self.subject.nearest_problem(first.problem.resized(m + step, n + step, k + step))
            if problem == first.problem or not self._try(problem).refusal:  # the source may fix its sizes
                return

    # --- faults and cost ----------------------------------------------------------------------------------------------

    def _collect_faults(self) -> None:
        unpromised = [limit for trial in self._trials for limit in faults.unpromised(trial)]
        for limit in (*unpromised, *faults.unused_reads(self._trials)):
            self.report.limits += [limit] * (limit not in self.report.limits)
        self.report.faults = faults.merge_faults(self._trials, self._quote)
        for number, line, text in self.subject.warnings:
            if number == UNDEFINED_VALUE:
                name = self.subject.path.name
                fault = Fault(FaultKind.UNDEFINED_VALUE, text, name, line, self._quote(name, line))
                self.report.faults.append(fault)
            else:
                self.report.notes.append(message(Note.COMPILER_WARNS, line=line, text=text))

    def _count(self, base: Problem) -> None:
        self.report.counted_at = str(base)
        self.report.lines, self.report.code, why_not = cost.count(self.subject, base, self._quote)
        self.report.advice = cost.advice(self.report.lines, self.report.code)
        if why_not:
            self.report.unchecked.append(message(Unchecked.MACHINE_CODE, reason=why_not))
