"""The course of a check: whole tiles, ragged sizes, then why, then what it costs; all on the reference GPU."""

from __future__ import annotations

import math
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
from experiments.check.survey import survey
from experiments.check.trial import Launches, Trial, attempt
from gemm_ref import ptx

SECONDS = 12.0  # of a core's time; then no more sizes are searched for reasons
_FINITE = "it is right only where C is finite"
_BLAS = "NaN and infinity become NaN; BLAS does not read C then"
MOST_DETECTED = 8 << 20  # products; of larger problems it is seen alone whether they come out right


class Examination:
    """One check; `report` is what it says."""

    def __init__(self, subject: Subject, problems: Sequence[gemm_ref.Problem]) -> None:
        self._subject = subject
        self._given = [subject.admit(problem) for problem in problems]
        self._used_s = _used_s()
        self._trials: list[Trial] = []
        self._known: dict[tuple[gemm_ref.Problem, bool], bool] = {}
        self._asked = subject.zeroed, subject.scalars
        if subject.scalars:
            *before, last = (name.lower() for name in subject.scalars)
            names = f"{', '.join(before)} and {last} are" if before else f"{last} is"
            subject.notes.append(f"{names} drawn anew for each size")
        self.report = Report(
            subject.name,
            str(subject.path),
            subject.dialect,
            subject.how,
            notes=subject.notes,
            assumed=subject.assumed,
            square=subject.square,
            fixed=subject.fixed,
        )

    def run(self) -> Report:
        """Raises CannotCheck where the reference GPU lacks what the kernel needs, at all sizes."""
        problems = self._given or self._choose()
        for problem in problems:
            trial = self._try(problem)
            if problem is problems[0] and (self._needs_finite_c(trial) or self._does_more(trial)):
                self._forget()
                trial = self._try(problem)
            if trial.endless:  # the others would be, too, and each takes long
                self._collect_faults()
                return self.report
            self._require_one_that_runs(problem is problems[-1])
        if not self._given:
            self._try_powers()
            self._try_less_ragged()
        whole = next(trial for trial in self._trials if not trial.refusal)
        if whole.right:
            if not self._subject.whole_numbers:
                self._try_one_hot(whole.problem)
            self._try_without_c(whole)
        base = self._explain(whole)
        self._collect_faults()
        if base:
            self._count(base)
        if isinstance(self._subject, CudaKernel):
            self.report.limits += offsets.limits(self._subject)
        return self.report

    def _try_powers(self) -> None:
        """Where whole tiles are refused: powers of two, which come first then; and as deep as whole tiles were."""
        first, problem = self._trials[0], sizes.powers(self._one)
        if first.refusal and not self._try(self._subject.admit(problem)).refusal:
            self._trials.insert(0, self._trials.pop())
            self.report.limits.append(f"its host code takes powers of two, and refuses {first.problem}")
            self._try(self._subject.admit(problem.resized(k=sizes.power(first.problem.k))))

    def _try_less_ragged(self) -> None:
        """Where sizes past whole tiles are refused: the first that are not, a few elements past them."""
        first, *others = (trial for trial in self._trials if not trial.refusal)
        if any(getattr(trial.problem, axis) % 4 for trial in others for axis in sizes.AXES):
            return
        m, n, k = (getattr(first.problem, axis) for axis in sizes.AXES)
        for step in (4, 8, 16, 32):
            problem = self._subject.admit(first.problem.resized(m + step, n + step, k + step))
            if problem == first.problem or not self._try(problem).refusal:  # the source may fix its sizes
                return

    def _needs_finite_c(self, trial: Trial) -> bool:
        """Whether it is wrong because C, as it was before, is multiplied by a 0 of the source, and added."""
        if not trial.wrong or not diagnose.reads_c(trial):
            return False
        self._subject.finite = True
        if right := attempt(self._subject, trial.problem).right:
            self.report.limits.append(f"{_FINITE}: it multiplies C by 0 and adds that ({_BLAS})")
        self._subject.finite = right
        return right

    def _does_more(self, trial: Trial) -> bool:
        """Whether it is wrong because of what the kernel does to every element of C, and nothing else."""
        own = self._subject.finish = diagnose.finish(self._subject, trial)
        multiplied = f"C multiplied by {own.alpha:.4g}" * (own.alpha != 1.0)
        self._subject.assume(multiplied or f"{own.activation} of C" * own.has_epilogue)
        self.report.assumed = self._subject.assumed
        return own.has_epilogue

    def _forget(self) -> None:
        """Take back the last run, which is made again in another way."""
        self._trials.pop(), self.report.verdicts.pop()

    # --- sizes -----------------------------------------------------------------------------------------------

    def _choose(self) -> list[gemm_ref.Problem]:
        """The sizes to try, by what the first block of a large problem does."""
        subject, seen = self._subject, survey(self._subject)
        subject.tile = seen.tile or subject.tile
        found = sizes.chosen(subject.tile, seen.slice, seen.depth)
        self._one, self._slice = subject.admit(found.one), seen.slice
        first = sizes.squared(subject.tile, seen.slice, seen.depth, seen.walks) if subject.square else found.whole
        whole, *others = dict.fromkeys(subject.admit(problem) for problem in (first, *found.others))
        most = 2 * MOST_DETECTED if subject.square else math.inf  # there sizes grow to the largest
        return [whole, *(problem for problem in others if problem.flops <= max(most, whole.flops))]

    def _require_one_that_runs(self, last: bool) -> None:
        """Raises what the first run was refused for, where two were for the same reason, or all."""
        refusals = [trial.refusal for trial in self._trials]
        if all(refusals) and refusals[0] and (last or len({str(refusal) for refusal in refusals}) < len(refusals)):
            raise refusals[0]

    def _try(self, problem: gemm_ref.Problem, kind: str = "integers") -> Trial:
        small = problem.m * problem.n * problem.k <= MOST_DETECTED
        trial = self._run(problem, kind, told=True, detect=kind == "integers" and (small or bool(self._given)))
        self._trials.append(trial)
        return trial

    def _try_one_hot(self, problem: gemm_ref.Problem) -> None:
        """One-hot rows; what fails there and cuts fp32 to tf32 or to fp16 is judged as that, and said to be."""
        subject = self._subject
        with ptx.watched(launches := Launches()):
            trial = self._try(problem, "one_hot")
        cut, line, halves = diagnose.precision(kernel for kernel, _ in launches.seen)
        deep = problem if self._given else self._one
        halves = halves and diagnose.rounds_sums(subject, deep)
        if trial.wrong and cut and not halves and subject.math == "fp32" and not subject.intended:
            who = "tensor cores cut" if cut == "tf32" else "it cuts"
            subject.judge_as_cut(f"{who} its fp32 operands (line {line})", cut)
            self._forget()
            self._try(subject.admit(problem), "one_hot")
        elif halves and not trial.wrong:
            subject.assume("sums in fp16")
            subject.notes.append("its sums are kept in fp16, which rounds those past 2048")
        self.report.assumed = subject.assumed

    def _try_without_c(self, whole: Trial) -> None:
        """Where beta is 0, C may hold anything: whether a kernel that takes beta leaves it unread."""
        if "BETA" in self._subject.scalars:
            problem = min((trial.problem for trial in self._trials if trial.right), key=lambda each: each.flops)
            scales = replace(whole.scales, beta=0.0)
            if not attempt(self._subject, problem, scales=scales, zeroed=False).right:
                self.report.limits.append(f"{_FINITE}: where beta is 0 it multiplies C by it all the same ({_BLAS})")

    def _run(
        self, problem: gemm_ref.Problem, kind: str = "integers", told: bool = False, detect: bool = False
    ) -> Trial:
        """A run, which the report lists if nothing was left out for it; `told`: the verdict rests on it."""
        trial = attempt(self._subject, problem, kind, detect=detect)
        if (self._subject.zeroed, self._subject.scalars) != self._asked:
            return trial
        # What was never written is the detectors' to say: a sum that begins with the poison looks like the poison.
        wrong = re.sub(r"; \d+ of them were never written", "", trial.wrong)
        text = trial.fault or (wrong and trial.called + wrong) or str(trial.refusal or "right")
        self.report.add(Verdict(problem.m, problem.n, problem.k, kind, _outcome(trial), text, told))
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
        wrong = [trial for trial in self._trials if not trial.right and not trial.refusal]
        if any(trial.kind == "one_hot" for trial in wrong):
            self.report.why.append(
                "small integers give the right result and one-hot rows do not, although every sum there is exact in "
                f"{whole.problem.math}: the kernel cuts its operands or sums to fewer bits. If that is intended, say "
                "so with --math"
            )
            wrong = [trial for trial in wrong if trial.kind != "one_hot"]
        if not wrong:
            return whole.problem
        said = len(self.report.why)
        if self._subject.scalars:
            whole = self._explain_scales(whole)
        if self._given:
            first = self._plainly(wrong[0])
            if not first.right:
                reason = diagnose.adds_to_c(self._subject, first)
                self._say([reason] if reason else diagnose.explain(self._subject, first))
            return next((trial.problem for trial in self._trials if not trial.fault and not trial.refusal), None)
        base: gemm_ref.Problem | None = whole.problem
        reason = ""
        if not whole.right and not whole.fault:
            seen = next((trial for trial in wrong if diagnose.reads_c(trial)), whole)  # large ones are not looked into
            reason = diagnose.adds_to_c(self._subject, seen)
        if reason:
            self.report.why.append(reason)
            self._subject.zeroed = True  # what else is wrong shows only then
            whole = attempt(self._subject, whole.problem, detect=True)
        told = len(self.report.why)
        if not whole.right:
            base = self._right_elsewhere(whole.problem) or self._explain_whole(whole)
        if base and self._right(base) and (self.report.equal or len(self.report.why) == told):
            self._say_needs(base)
        if base and (self.report.needs or self.report.equal):
            self._try_as_asked(base)
        if len(self.report.why) == said:
            self._say(diagnose.explain(self._subject, self._plainly(wrong[0])))
        return base

    def _plainly(self, trial: Trial) -> Trial:
        """The run without alpha, beta and a bias."""
        plain = trial.scales == self._subject.plain
        return trial if plain else attempt(self._subject, trial.problem, detect=True)

    def _try_as_asked(self, base: gemm_ref.Problem) -> None:
        """What was found without alpha, beta and a bias holds with them."""
        if (self._subject.zeroed, self._subject.scalars) != self._asked:
            self._subject.zeroed, self._subject.scalars = self._asked
            self._try(base)

    def _explain_scales(self, whole: Trial) -> Trial:
        """Whether alpha or beta are the reason; what else is wrong is looked for without them, in the run returned."""
        subject = self._subject
        if not whole.right and not whole.fault:
            self._say(diagnose.ignored_scales(subject, whole))
        subject.zeroed, subject.scalars = subject.zeroed or "BETA" in subject.scalars, ()
        return attempt(subject, whole.problem, detect=True)

    def _right_elsewhere(self, wrong: gemm_ref.Problem) -> gemm_ref.Problem | None:
        """Other whole tiles that are right, of sizes that differ: what sizes must be multiples of says why, then."""
        rows, columns = self._subject.tile
        right = (trial.problem for trial in self._trials if trial.right)
        for problem in (*right, self._subject.admit(sizes.deeper(wrong))):
            whole = problem.m % rows == problem.n % columns == 0
            if whole and len({problem.m, problem.n, problem.k}) == len(sizes.AXES) and self._right(problem):
                return problem
        return None

    def _explain_whole(self, whole: Trial) -> gemm_ref.Problem | None:
        """Why it is wrong where all tiles are whole; returns sizes at which it runs to its end."""
        base, cube = whole.problem, self._subject.admit(sizes.cube(self._subject.tile, whole.problem.k))
        self._say(diagnose.explain(self._subject, whole))
        if cube != base and not whole.unordered:
            equal = self._run(cube, told=True, detect=True)
            if equal.right:
                self.report.equal = diagnose.equal_sizes(self._right, base, cube)
                self._say([diagnose.confused(self.report.equal)])
                self._try_equal()
                base = cube
            elif not equal.fault and not self.report.why:
                self._trials.append(equal)
                said = [f"with M = N = K = {cube.m}, {text}" for text in diagnose.explain(self._subject, equal)]
                self._say(said)
        self._say(diagnose.row_lengths(self._subject))
        return None if whole.fault and base == whole.problem else base

    def _try_equal(self) -> None:
        """Ragged sizes that are equal where the kernel needs it: whether any will do."""
        side = max(self._subject.tile) + 3
        ragged = gemm_ref.Problem(side, side + 2, side + 4)
        self._try(self._subject.admit(ragged.resized(**{axis.lower(): side for axis in self.report.equal})))

    def _say(self, sentences) -> None:
        self.report.why += [sentence for sentence in sentences if sentence not in self.report.why]

    def _say_needs(self, base: gemm_ref.Problem) -> None:
        """Which size must be a multiple of what, and why the first one past a whole size is wrong."""
        base = base if self.report.equal or not self._right(self._one) else self._one
        equal = self.report.equal or "MNK" * self._subject.square
        self._find_needs(base, equal)
        if not self._say_least(equal) and base == self._one:  # tiles that are not the last may lack the tests of those
            four = self._subject.admit(base.resized(2 * base.m, 2 * base.n))
            if self._right(four):
                self._find_needs(four, equal)
        if self.report.needs and all(need.multiple for need in self.report.needs):
            least = max([self._slice, *(need.least for need in self.report.needs)])
            # with more rows than products, tests of rows may let a thread past the end of them
            m, n = (side * (least // side + 1) for side in (base.m, base.n))
            shallow = base if "K" in equal else base.resized(m, n, least)
            past = self._try(self._subject.admit(sizes.past(shallow, self.report.needs, equal)))
            if not self._is_clean(past) and self._right(past.problem.resized(k=shallow.k)):
                self._find_needs(past.problem.resized(k=shallow.k), equal)

    def _find_needs(self, base: gemm_ref.Problem, equal: str) -> None:
        """Of the sizes of which nothing was found yet."""
        known = {need.axis for need in self.report.needs}
        likely = (*self._subject.tile, self._slice)
        found = sizes.needs(base, self._right, self._time_left, likely, equal, known)
        self.report.needs += found
        for need in found:
            axis = " = ".join(equal) if need.axis.upper() in equal else need.axis.upper()
            said = f"{axis} must be a multiple of {need.multiple}" if need.multiple else f"not every {axis} works"
            self.report.why.append(f"{said}: with the other sizes whole, {need.smallest} is the smallest that fails")
            # One short of a whole size leaves out another number of products for each slice depth.
            past = self._run(sizes.moved(base, need.axis, getattr(base, need.axis) - 1, equal), detect=True)
            self._trials.append(past)
            if past.wrong:
                self._say(diagnose.explain(self._subject, past))

    def _say_least(self, equal: str) -> bool:
        """From which K on it is sound, where a shallow multiple is not enough, as for rings of stages.

        False where a run is wrong that neither this nor a multiple explains.
        """
        ran = [run for run in self.report.verdicts if run.outcome not in (Outcome.RIGHT, Outcome.REFUSED)]
        wrong = [run.k for run in ran if self.report.fits(run)]
        fitting = [trial for trial in self._trials if not trial.refusal and self.report.fits(trial.problem)]
        shallow = max([*wrong, *(trial.problem.k for trial in fitting if not self._is_clean(trial))], default=0)
        deep = [trial.problem for trial in fitting if self._is_clean(trial) and trial.problem.k > shallow]
        if not shallow or not deep or "K" in equal:
            return not shallow
        base = min(deep, key=lambda problem: problem.flops)

        def clean(problem: gemm_ref.Problem) -> bool:
            return self._is_clean(self._run(problem, detect=True))

        known = next((need for need in self.report.needs if need.axis == "k"), None)
        known = known or sizes.Need("k", 1, base.resized(k=shallow))
        least = sizes.least(base, "k", known.multiple, clean)
        if least <= shallow:
            return False
        self.report.needs = [need for need in self.report.needs if need.axis != "k"] + [replace(known, least=least)]
        self.report.why.append(f"K must be {least} or more: with {shallow} it goes wrong")
        return True

    def _is_clean(self, trial: Trial) -> bool:
        return trial.right and not any(faults.found(trial, self._quote))

    def _collect_faults(self) -> None:
        found: dict[tuple, tuple[Fault, list[str]]] = {}
        for trial in self._trials:
            self.report.limits += [said for said in faults.formal(trial) if said not in self.report.limits]
            for fault in faults.found(trial, self._quote):
                key = (fault.kind, fault.file, fault.line, fault.other_line)
                found.setdefault(key, (fault, []))[1].append(str(trial.problem))
        self.report.limits += faults.idle(self._trials)
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


def _outcome(trial: Trial) -> Outcome:
    if trial.fault:
        return Outcome.OUTSIDE if faults.kind_of(trial.fault) in faults.OUTSIDE else Outcome.STOPPED
    return Outcome.REFUSED if trial.refusal else Outcome.WRONG if trial.wrong else Outcome.RIGHT


def _used_s() -> float:
    """Seconds of a core that this process and its compilers have had."""
    return sum(os.times()[:4])
