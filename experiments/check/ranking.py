"""The kernel's place on the ladder: timed on this machine's GPU, in the same rounds as the rungs and cuBLAS."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

import gemm_ref
from experiments.bench.measure import Bench, Setting
from experiments.bench.verify import DeviceLost
from experiments.check.messages import Unchecked, message
from experiments.check.report import Rank, Report
from experiments.check.subject import Subject
from experiments.progress import Bars
from experiments.records import stats
from experiments.records.contenders import Contender, contenders
from experiments.records.controls import CONTROL
from experiments.records.rows import TimedRow
from gemm_ref import DIALECTS

SIZE = gemm_ref.Problem(4096, 4096, 4096)  # as in the README's table, unless --size sets others
NAME = "check"
OWN = "checked"  # the variant that the user's kernel is, so that it may have the name of a rung


def rank(subject: Subject, report: Report, problems: Sequence[gemm_ref.Problem]) -> None:
    """Fills the report's ranking, fastest first; a kernel that is wrong at whole tiles is not timed."""
    if not report.verdicts[0].right:
        report.unchecked.append(message(Unchecked.PLACE_OF_WRONG_KERNEL))
        return
    other = ["more than the product"] * subject.finish.has_epilogue
    other += ["its sums in fp16"] * ("sums in fp16" in subject.assumed)
    if other:
        reason = f"it computes {' and '.join(other)}, and no rung does"
        report.unchecked.append(message(Unchecked.PLACE, reason=reason))
        return
    problem = subject.nearest_problem(max(problems, key=lambda each: each.flops) if problems else SIZE)
    own = Contender(
        stage=subject.name,
        variant=OWN,
        backend=DIALECTS[subject.dialect].backend,
        dialect=subject.dialect,
        math=problem.math,
        devices=("cpu", "cuda"),
        load=lambda: subject.gpu_call(problem),
    )
    rivals = [each for each in contenders() if each.math == problem.math and not each.is_baseline and each.is_default]
    rows: list[TimedRow] = []
    console = Console(stderr=True)
    with Bars(console) as bars, Bench(Setting(NAME, "cuda"), [own, *rivals], bars) as bench:
        try:
            rows += bench.time(problem)
        except DeviceLost as error:
            report.unchecked.append(message(Unchecked.PLACE, reason=str(error)))
            return
    report.ranked_at = str(problem)
    if any(row.stage == CONTROL and row.verdict != stats.SAME for row in rows):
        report.unchecked.append(message(Unchecked.TIMES))
    ranks = [_rank(row) for row in rows if row.stage != CONTROL]
    report.ranking = sorted(ranks, key=lambda each: each.median_us or float("inf"))


def _rank(row: TimedRow) -> Rank:
    own = row.variant == OWN
    name = row.stage if own or not row.dialect else f"{row.stage} {row.dialect}"
    return Rank(name, own, row.median_us, row.tflops, row.vs_cublas, row.detail)
