"""The runs of a check, and why some are wrong: other runs, each of which an explanation must hold in."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from experiments.check import diagnose, faults, sizes
from experiments.check.limits import used_s
from experiments.check.messages import Message, Note, Why, message
from experiments.check.report import Outcome, Report, Run
from experiments.check.subject import Subject, Trial, attempt, read_source
from gemm_ref import Problem

MAX_SECONDS = 12.0  # of a core's time; then no more sizes are searched for reasons
_MAX_STEPS = 64  # of tiles along a side, to find from how many on it is wrong
MAX_DETECTED = 8 << 20  # products; of larger problems only the result is checked


class Explainer:
    """The kernel, its runs and the report on them, to which `_explain` adds what is wrong with the results."""

    _one_tile: Problem  # the smallest whole sizes
    _slice: int  # products of each sum that are fetched at a time

    def __init__(self, subject: Subject, problems: Sequence[Problem]) -> None:
        """problems: the sizes that are specified; where there are none, they follow from what the kernel does."""
        self._specified = [subject.nearest_problem(problem) for problem in problems]
        self._start_s = used_s()
        self._trials: list[Trial] = []
        self._half: Problem | None = None  # of half tiles and slices
        self._many: Problem | None = None  # of many whole tiles
        self._is_right_at: dict[tuple[Problem, bool], bool] = {}
        if subject.scalars:
            *before, last = (name.lower() for name in subject.scalars)
            names = f"{', '.join(before)} and {last} are" if before else f"{last} is"
            subject = subject.with_note(Note.SCALARS_VARY, names=names)
        self.subject = subject
        self._original = subject
        about = subject.name, str(subject.path), subject.dialect, subject.how
        self.report = Report(*about, square=subject.square, fixed=dict(subject.fixed))

    # --- runs ---------------------------------------------------------------------------------------------------------

    def _try(self, problem: Problem, kind: str = "integers") -> Trial:
        """A run that the verdict rests on."""
        small = problem.m * problem.n * problem.k <= MAX_DETECTED
        detect = kind == "integers" and (small or bool(self._specified))
        trial = self._record(problem, kind, decisive=True, detect=detect)
        self._trials.append(trial)
        return trial

    def _forget_last(self) -> None:
        """Takes back the last run, which is repeated in another way."""
        self._trials.pop(), self.report.verdicts.pop()

    def _record(self, problem: Problem, kind: str = "integers", decisive: bool = False, detect: bool = False) -> Trial:
        """A run, which the report lists if nothing was left out for it."""
        trial = attempt(self.subject, problem, kind, detect=detect)
        if self._is_as_called:
            # The detectors report what was never written: a sum that begins with the poison looks like the poison.
            wrong = re.sub(r"; \d+ of them were never written", "", trial.wrong)
            text = trial.fault or (wrong and trial.scales_text + wrong) or str(trial.refusal or "right")
            self.report.add(Run(problem.m, problem.n, problem.k, kind, _outcome(trial), text, decisive))
        return trial

    @property
    def _is_as_called(self) -> bool:
        """Whether the kernel runs with all that it was found to take, and on C as it is."""
        now, before = self.subject, self._original
        return (now.zeroed, now.scalars) == (before.zeroed, before.scalars)

    def _is_right(self, problem: Problem) -> bool:
        """Whether C is right at sizes that are no part of the report by themselves."""
        problem = self.subject.nearest_problem(problem)
        key = (problem, self.subject.zeroed)
        if key not in self._is_right_at:
            self._is_right_at[key] = self._record(problem).right
        return self._is_right_at[key]

    def _is_clean(self, trial: Trial) -> bool:
        return trial.right and not any(faults.find_faults(trial, self._quote))

    def _repeat_plain(self, trial: Trial) -> Trial:
        """The run without alpha, beta and a bias."""
        is_plain = trial.scales == self.subject.plain
        return trial if is_plain else attempt(self.subject, trial.problem, detect=True)

    def _add_reasons(self, *reasons: Message | None) -> None:
        self.report.why += [reason for reason in reasons if reason and reason not in self.report.why]

    def _quote(self, file: str, line: int) -> str:
        if file != self.subject.path.name:
            return ""
        lines = read_source(self.subject.path).split("\n")
        return lines[line - 1].strip() if 0 < line <= len(lines) else ""

    # --- reasons ------------------------------------------------------------------------------------------------------

    def _explain(self, whole: Trial) -> Problem | None:
        """Adds why results are wrong; returns sizes at which the kernel can be counted, if there are any."""
        wrong = [trial for trial in self._trials if not trial.right and not trial.refusal]
        if any(trial.kind == "one_hot" for trial in wrong):
            self._add_reasons(message(Why.FEWER_BITS, math=whole.problem.math))
        wrong = [trial for trial in wrong if trial.kind == "integers"]
        if not wrong:
            return whole.problem
        if by_order := next((trial for trial in wrong if trial.is_by_order), None):
            self._add_reasons(None if by_order.fault else message(Why.ORDER_OF_BLOCKS))
            return None if whole.fault else whole.problem
        if reason := diagnose.several_tiles(self.subject, wrong[0]):
            self._add_reasons(reason)
            return None if whole.fault else whole.problem
        before = len(self.report.why)
        if self.subject.scalars:
            whole = self._explain_scales(whole)
        if self._specified:
            first = self._repeat_plain(wrong[0])
            if not first.right:
                self._add_reasons(diagnose.adds_to_c(self.subject, first) or diagnose.explain(self.subject, first))
            return next((trial.problem for trial in self._trials if not trial.fault and not trial.refusal), None)
        whole = self._explain_reads_of_c(whole, wrong)
        if whole.right and (self._explain_tiles(whole.problem) or self._explain_halves()):
            return whole.problem
        base: Problem | None = whole.problem
        known = len(self.report.why)
        if not whole.right:
            base = self._right_elsewhere(whole.problem) or self._explain_whole(whole)
        if base and self._is_right(base) and (self.report.equal or len(self.report.why) == known):
            self._explain_needs(base)
        if base and (self.report.needs or self.report.equal) and not self._is_as_called:
            # what was found without alpha, beta and a bias holds with them
            original = self._original
            self.subject = replace(self.subject, zeroed=original.zeroed, scalars=original.scalars)
            self._try(base)
        if len(self.report.why) == before:
            self._add_reasons(diagnose.explain(self.subject, self._repeat_plain(wrong[0])))
        return base

    def _explain_scales(self, whole: Trial) -> Trial:
        """Whether alpha or beta are the reason; other reasons are looked for without them, in the run returned."""
        subject = self.subject
        if not whole.right and not whole.fault:
            self._add_reasons(diagnose.ignored_scales(subject, whole))
        self.subject = replace(subject, zeroed=subject.zeroed or "BETA" in subject.scalars, scalars=())
        return attempt(self.subject, whole.problem, detect=True)

    def _explain_reads_of_c(self, whole: Trial, wrong: Sequence[Trial]) -> Trial:
        """Whether the kernel adds to C; other reasons are looked for on a C of zeros, in the run returned."""
        if whole.right or whole.fault:
            return whole
        trial = next((trial for trial in wrong if diagnose.reads_c(trial)), whole)  # large ones have no detectors
        reason = diagnose.adds_to_c(self.subject, trial)
        if not reason:
            return whole
        self._add_reasons(reason)
        self.subject = replace(self.subject, zeroed=True)
        return attempt(self.subject, whole.problem, detect=True)

    def _right_elsewhere(self, wrong: Problem) -> Problem | None:
        """Other whole tiles that are right, of sizes that differ: multiples explain the wrong ones then."""
        rows, columns = self.subject.tile
        right = (trial.problem for trial in self._trials if trial.right)
        deeper = wrong.resized(k=sizes.power(wrong.k, wrong.m, wrong.n))  # an even number of most slices
        for problem in (*right, self.subject.nearest_problem(deeper)):
            whole = problem.m % rows == problem.n % columns == 0
            if whole and len({problem.m, problem.n, problem.k}) == len(sizes.AXES) and self._is_right(problem):
                return problem
        return None

    def _explain_whole(self, whole: Trial) -> Problem | None:
        """Why it is wrong where all tiles are whole; returns sizes at which it runs to its end."""
        base, cube = whole.problem, self.subject.nearest_problem(sizes.cube(self.subject.tile, whole.problem.k))
        self._add_reasons(diagnose.explain(self.subject, whole))
        if cube != base and not whole.unordered:
            in_cube = self._record(cube, decisive=True, detect=True)
            equal = diagnose.equal_sizes(self._is_right, base, cube) if in_cube.right else ""
            if in_cube.right and self._explain_tiles(cube, equal or "MNK"):
                return cube
            if equal:
                self.report.equal = equal
                two = message(Why.EQUAL_ONLY, one=equal[0], other=equal[1])
                self._add_reasons(message(Why.SQUARE_ONLY) if equal == "MNK" else two)
                side = max(self.subject.tile) + 3  # whether any ragged sizes do that are equal where they must
                ragged = Problem(side, side + 2, side + 4).resized(**dict.fromkeys(equal.lower(), side))
                self._try(self.subject.nearest_problem(ragged))
                base = cube
            elif in_cube.wrong and not self.report.why:
                self._trials.append(in_cube)
                if reason := diagnose.explain(self.subject, in_cube):
                    self._add_reasons(message(Why.IN_A_CUBE, side=cube.m, reason=reason))
        self._add_reasons(*diagnose.wrong_strides(self.subject))
        return None if whole.fault and base == whole.problem else base

    def _explain_tiles(self, few: Problem, equal: str = "") -> bool:
        """From how many tiles on it is wrong; few: whole tiles that are right. False where many are right, too."""
        if self._many is None:
            return False
        sides, ends = dict(zip("mn", self.subject.tile, strict=True)), {"m": self._many.m, "n": self._many.n}
        paths = [ends] if equal else [{"m": ends["m"]}, {"n": ends["n"]}, ends]  # along which sizes grow
        grown = (lambda path: sizes.moved(few, "m", path["m"], equal)) if equal else lambda path: few.resized(**path)
        path = next((path for path in paths if not self._is_right(grown(path))), None)
        if path is None:
            return False
        steps = [{axis: min(count * sides[axis], end) for axis, end in path.items()} for count in range(1, _MAX_STEPS)]
        wrong = next(problem for problem in map(grown, [*steps, path]) if not self._is_right(problem))
        self._trials.append(self._record(wrong, decisive=True, detect=True))
        rows, columns = self.subject.tile
        runs = self.report.verdicts
        whole = (run for run in runs if not (run.m % rows or run.n % columns or run.k % self._slice))
        if all(run.right or run.m * run.n >= wrong.m * wrong.n for run in whole):
            self._add_reasons(message(Why.MANY_TILES, wrong=str(wrong), rows=rows, columns=columns))
        return True

    def _explain_halves(self) -> bool:
        """Whether half a slice or tile is wrong where other parts of one are right: a test that lets halves pass."""
        if self._half is None or self._is_right(self._half):
            return False
        for axis in sizes.AXES:
            whole, half = getattr(self._one_tile, axis), getattr(self._half, axis)
            others = (self._one_tile, *(self._one_tile.resized(**{axis: whole + step}) for step in (1, 3)))
            if not self._is_right(self._one_tile.resized(**{axis: half})) and all(map(self._is_right, others)):
                self._add_reasons(message(Why.HALF_PASSES, axis=axis.upper(), half=half, whole=whole, odd=whole + 1))
                return True
        return False

    def _explain_needs(self, base: Problem) -> None:
        """Which size must be a multiple of what, and why the first one past a whole size is wrong."""
        base = base if self.report.equal or not self._is_right(self._one_tile) else self._one_tile
        equal = self.report.equal or "MNK" * self.subject.square
        self._find_needs(base, equal)
        if not self._find_least(equal) and base == self._one_tile:  # tiles that are not the last may lack the tests
            four = self.subject.nearest_problem(base.resized(2 * base.m, 2 * base.n))
            if self._is_right(four):
                self._find_needs(four, equal)
        if self.report.needs and all(need.multiple for need in self.report.needs):
            least = max([self._slice, *(need.least for need in self.report.needs)])
            # with more rows than products, tests of rows may let a thread past the end of them
            m, n = (side * (least // side + 1) for side in (base.m, base.n))
            shallow = base if "K" in equal else base.resized(m, n, least)
            past = self._try(self.subject.nearest_problem(sizes.past(shallow, self.report.needs, equal)))
            if not self._is_clean(past) and self._is_right(past.problem.resized(k=shallow.k)):
                self._find_needs(past.problem.resized(k=shallow.k), equal)

    def _find_needs(self, base: Problem, equal: str) -> None:
        """What each size must be a multiple of, of those of which nothing is known yet."""
        known = {need.axis for need in self.report.needs}
        likely = (*self.subject.tile, self._slice)
        deadline_s = self._start_s + MAX_SECONDS
        found = sizes.needs(base, self._is_right, lambda: used_s() < deadline_s, likely, equal, known)
        self.report.needs += found
        for need in found:
            axis = " = ".join(equal) if need.axis.upper() in equal else need.axis.upper()
            code = Why.NEEDS_MULTIPLE if need.multiple else Why.NO_MULTIPLE
            self.report.why.append(message(code, axis=axis, multiple=need.multiple, smallest=str(need.smallest)))
            # One short of a whole size leaves out another number of products for each slice depth.
            past = self._record(sizes.moved(base, need.axis, getattr(base, need.axis) - 1, equal), detect=True)
            self._trials.append(past)
            if past.wrong:
                self._add_reasons(diagnose.explain(self.subject, past))

    def _find_least(self, equal: str) -> bool:
        """Finds the K from which on it is sound, as for rings of stages; False where a wrong run stays unexplained."""
        fitting = [trial for trial in self._trials if not trial.refusal and self.report.fits(trial.problem)]
        bad = [run.k for run in self.report.verdicts if not run.right and self.report.fits(run) and not run.refused]
        shallow = max([*bad, *(trial.problem.k for trial in fitting if not self._is_clean(trial))], default=0)
        deep = [trial.problem for trial in fitting if self._is_clean(trial) and trial.problem.k > shallow]
        if not shallow or not deep or "K" in equal:
            return not shallow
        base = min(deep, key=lambda problem: problem.flops)
        known = next((need for need in self.report.needs if need.axis == "k"), None)
        known = known or sizes.Need("k", 1, base.resized(k=shallow))
        least = sizes.least(base, "k", known.multiple, lambda size: self._is_clean(self._record(size, detect=True)))
        if least <= shallow:
            return False
        self.report.needs = [need for need in self.report.needs if need.axis != "k"] + [replace(known, least=least)]
        self.report.why.append(message(Why.NEEDS_DEPTH, least=least, shallow=shallow))
        return True


def _outcome(trial: Trial) -> Outcome:
    if trial.fault:
        return Outcome.OUTSIDE if faults.kind_of(trial.fault).is_outside else Outcome.STOPPED
    return Outcome.REFUSED if trial.refusal else Outcome.WRONG if trial.wrong else Outcome.RIGHT
