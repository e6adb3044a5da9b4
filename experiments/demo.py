"""The first thing to run: one rung in its dialects, checked, counted, broken on purpose, and the project's answer.

All of it runs on the reference GPU, from the PTX that a GPU would get, so no GPU is needed. Two mistakes are planted in
copies of the rung's own .cu (`cuda_kernels.mutants`), and what is printed about them is what the machine said.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace

from rich.console import Console, RenderableType
from rich.markdown import Markdown
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

import gemm_ref
from experiments import doctor
from experiments.bench import predictions
from experiments.bench.verify import describe
from experiments.check.faults import Fault, find_faults, without_instruction
from experiments.check.python.rung import RungKernel
from experiments.check.subject import Trial, attempt
from experiments.records.contenders import gemm_of
from gemm_ref import DIALECTS, Implementation, Problem, ptx
from gemm_ref.compute import ComputeType
from gemm_ref.dialect import BY_HAND
from gemm_ref.ptx.count.sectors import SECTOR
from gemm_ref.rung import DEFAULT_VARIANT

SLICES = 9  # along K: each stage of a pipeline is used twice, and K is split where a rung splits it
WIDTH = 100  # columns at most: longer lines are hard to read

PLANTED = {"barrier": "a synchronisation", "bound": "a condition"}  # what is broken, by the kind of mutant


@dataclass(frozen=True)
class Run:
    """One kernel: it was right or not at each size, and what it asked of memory at whole tiles."""

    item: Implementation
    trials: tuple[Trial, ...] = ()
    counts: tuple[ptx.Count, ...] = ()
    error: str = ""  # what kept it from running
    missing: str = ""  # what this machine lacks for it, and what to do

    @property
    def name(self) -> str:
        """Its dialect, and its variant where the rung has several."""
        variant = "" if self.item.variant == DEFAULT_VARIANT else self.item.variant
        return f"{DIALECTS[self.item.dialect].title} {variant}".strip()

    @property
    def right(self) -> bool:
        """Whether C was the product at every size, and no detector saw a fault."""
        return bool(self.trials) and all(trial.right and not trial.findings for trial in self.trials)


def demo(stage: gemm_ref.Rung, out: Console) -> bool:
    """Show a rung; returns whether all was as it should be: each kernel right, and each planted mistake found.

    A dialect whose compiler is missing is left out, with what to do; False if that leaves none.
    """
    return _Demo(stage, out).run()


class _Demo:
    """One demonstration, printed as it goes."""

    def __init__(self, stage: gemm_ref.Rung, out: Console) -> None:
        self._stage, self._out = stage, out
        self._items = [
            Implementation(stage, stage.find_variant(DEFAULT_VARIANT, name), name, math, stage.reads_b(math, name)[0])
            for math in stage.maths[:1]
            for name in stage.dialects
        ]
        self.ragged, self.whole = _problems(self._items[0])

    def _variants(self, item: Implementation) -> list[Implementation]:
        """The kernels of a default one's dialect, in the registry's order."""
        return [replace(item, variant=name) for name in self._stage.variants_in(item.dialect)]

    def run(self) -> bool:
        start = time.perf_counter()
        self._say(Text(f"{self._stage.id}: {self._stage.idea}", style="bold"))
        with self._out.status("importing compilers") as status, ThreadPoolExecutor(1) as beside:
            lacking = {item.dialect: doctor.missing_for(item.dialect) for item in self._items}
            by_hand = next(item for item in self._items if item.dialect == BY_HAND)
            planted = [] if lacking[BY_HAND] else list(_plant(by_hand, beside))
            runs, others = [], []
            for item in self._items:
                status.update(f"{DIALECTS[item.dialect].title}: compiling and running")
                runs.append(self._try(item, lacking[item.dialect]))
                if runs[-1].right:
                    others += [self._try(each) for each in self._variants(item) if each != item]
            right = self._show_right([*runs, *(each for each in others if not each.right)])
            self._show_memory([each for each in (*runs, *others) if each.right])
            status.update("predicting the time on a GPU")
            self._show_time([each.item for each in runs if each.right and each.item == by_hand])
            status.update("running two broken copies")
            found = self._show_planted(by_hand, planted, lacking[BY_HAND])
            status.update("reading the published data")
            self._show_answer()
        self._show_next()
        self._say(Text(f"\n{time.perf_counter() - start:.0f} s", style="dim"))
        return right and found

    def _try(self, item: Implementation, missing: str = "") -> Run:
        """A default variant at both sizes, with detectors; another, of which the counts are shown, at whole tiles."""
        if missing:
            return Run(item, missing=missing)
        counter, is_default = ptx.Counter(), item in self._items
        try:
            rung = RungKernel.of(item, gemm_of(item))
            ragged = [attempt(rung, self.ragged, "normal", detect=True)] if is_default else []
            whole = attempt(rung, self.whole, "normal", detect=is_default, observers=(counter,))
        except Exception as error:  # a kernel that breaks off is a line, and the others go on
            return Run(item, error=describe(error))
        return Run(item, (*ragged, whole), tuple(counter.counts()))

    # --- what is printed ------------------------------------------------------------------------------------

    def _say(self, what: RenderableType, indent: int = 0) -> None:
        self._out.print(Padding(what, (0, 0, 0, indent)), width=min(WIDTH, self._out.width))

    def _title(self, text: str) -> None:
        self._say(Text(f"\n{text}", style="bold"))

    def _show_right(self, runs: list[Run]) -> bool:
        """A line for each kernel; whether all that could run are right, and any could."""
        self._title("Is it right?")
        table = Table.grid(padding=(0, 2))
        for run in runs:
            table.add_row(run.name, *_verdict(run))
        self._say(table, 2)
        self._say(
            f"Checked in {self._items[0].math} at M x N x K = {self.ragged} and {self.whole}: every element of C "
            "against the float64 product, memory around C, A and B unchanged, races, barriers, and memory read before "
            f"it was written. The bound is the most that rounding can cost. {_rounding_of_c(runs)}".strip(),
            2,
        )
        return any(run.right for run in runs) and all(run.right or run.missing for run in runs)

    def _show_memory(self, runs: list[Run]) -> None:
        if not runs:
            return
        self._title(f"What does it ask of memory, at {self.whole}?")
        table = Table.grid(padding=(0, 2))
        table.add_row("", *(Text(name, style="dim") for name in _REQUEST_COLUMNS))
        order = [each for item in self._items for each in self._variants(item)]
        for run in sorted(runs, key=lambda run: order.index(run.item)):
            table.add_row(run.name, *_count_requests(run.counts))
        self._say(table, 2)
        said = "A sector is 32 bytes of global memory. A wavefront is a pass over shared memory's 32 banks."
        self._say(" ".join([said, *_why_fewer([run.counts for run in runs])]), 2)

    def _show_time(self, items: list[Implementation]) -> None:
        """A line for each kernel: the time that the clock predicts."""
        for item in items:
            self._title("How fast would it be?")
            try:
                text = str(predictions.predict(item, *predictions.at_tables(item)))
            except Exception as error:  # whatever stops the clock says nothing of the kernel
                text = f"not predicted: {describe(error)}"
            self._say(f"{DIALECTS[item.dialect].title}, {text}", 2)

    def _show_planted(self, item: Implementation, planted: list[_Planted], lacking: str) -> bool:
        """The two broken copies, each with what was said of it; whether every one was found."""
        self._title("Would a mistake be found?")
        if lacking:
            self._say(f"Mistakes are planted in the CUDA file, which cannot be compiled here: {lacking}", 2)
            return True
        for kind in PLANTED.keys() - {each.kind for each in planted}:
            self._say(f"{PLANTED[kind]}: there is none in {self._stage.id}.cu, so this mistake is not shown", 2)
        return all([self._show_one(item, each) for each in planted])  # a list: each is shown, found or not

    def _show_one(self, item: Implementation, planted: _Planted) -> bool:
        from cuda_kernels import gemm_of_ptx

        self._say(Text(f"{planted.title}, line {planted.line}: {planted.change}"), 2)
        rung = RungKernel.of(item, gemm_of_ptx(item, planted.compiled.result()[0]))
        trial = attempt(rung, self.ragged, "normal", detect=True)
        told = find_faults(trial, planted.quote)
        if told:
            self._show_fault(told[0])
        elif trial.wrong:
            self._say(Text.assemble(("found", "green"), f": C is wrong: {trial.wrong}"), 4)
        else:
            self._say(Text("NOT FOUND: C came out right, and no detector saw a fault", style="red"), 4)
        return bool(told or trial.wrong)

    def _show_fault(self, fault: Fault) -> None:
        place = f" at {fault.file}:{fault.line}" if fault.file else ""
        self._say(Text.assemble(("found", "green"), f": {fault.kind}{place}"), 4)
        if fault.quote:
            self._say(Text(fault.quote, style="cyan"), 6)
        if fault.other_quote:
            self._say(Text(f"{fault.other_quote}  (line {fault.other_line})", style="cyan"), 6)
        self._say(Text(without_instruction(fault.text)), 6)

    def _show_answer(self) -> None:
        from experiments.publish.answer import Answer  # with pandas and scipy
        from experiments.records import store

        self._title("CUDA or Triton? What a GPU measured, published with the repo")
        for paragraph in Answer().paragraphs():
            self._say(Markdown(paragraph), 2)
            self._say("")
        caption = store.caption(store.read(store.PUBLISHED, "ladder"), store.PUBLISHED)
        self._say(Text(caption, style="dim"), 2)

    def _show_next(self) -> None:
        stages = list(gemm_ref.STAGES.values())
        after = stages[(stages.index(self._stage) + 1) % len(stages)].id.split("_")[0]
        self._title("Next")
        table = Table.grid(padding=(0, 2))
        for command, what in (
            (f"python -m experiments demo {after}", "the next rung"),
            ("python -m experiments check KERNEL.cu", "a kernel of your own, in the same way"),
            ("make experiments", "all that this machine can measure"),
        ):
            table.add_row(Text(command, style="cyan"), what)
        self._say(table, 2)


def _problems(item: Implementation) -> tuple[Problem, Problem]:
    """Sizes with a partial tile on each side, and the same in whole tiles."""
    config, math = item.config, item.math
    slice_ = config.BLOCK_K or (config.BLOCK_K_BYTES or 32) // gemm_ref.MATHS[math].dtype.itemsize
    m, n, k = config.BLOCK_M * config.CLUSTER_M, config.BLOCK_N, SLICES * slice_
    return Problem(m + 1, n + 3, k + 1, math), Problem(m, n, k, math)


def _verdict(run: Run) -> tuple[Text, str]:
    """Returns `right` with the largest error, or `WRONG` with the reasons."""
    if run.missing:
        return Text("--", style="yellow"), f"not run: {run.missing}"
    if run.right:
        share = max(trial.accuracy.bound_share for trial in run.trials if trial.accuracy)
        return Text("right", style="green"), f"the largest error is {100 * share:.2g}% of the bound; no fault"
    said = [run.error, *(text for trial in run.trials for text in (trial.wrong, trial.fault, *trial.findings) if text)]
    return Text("WRONG", style="red"), "; ".join(str(text) for text in said if text)


def _rounding_of_c(runs: list[Run]) -> str:
    """Returns a sentence on the share of the bound that rounding the exact product to C's type takes alone."""
    trials = next((run.trials for run in runs if run.right), ())
    mode = gemm_ref.MATHS[runs[0].item.math]
    if not trials or not mode.result_eps:
        return ""
    share = max(_rounded(trial, mode).bound_share for trial in trials)
    return f"C is rounded to {mode.out_element.name}, which takes {100 * share:.2g}% of it by itself."


def _rounded(trial: Trial, mode: ComputeType) -> gemm_ref.Accuracy:
    """Returns the accuracy of the exact product after one rounding to C's type."""
    exact = trial.a.double() @ trial.b.double()
    return gemm_ref.check(exact.to(mode.out_dtype), trial.a, trial.b, math=mode.name)


_REQUEST_COLUMNS = ("sectors per request", "least", "wavefronts", "without conflicts")


def _count_requests(counts: tuple[ptx.Count, ...]) -> tuple[str, str, str, str]:
    """Returns the cells of _REQUEST_COLUMNS: sectors and wavefronts, each with the minimum for the same bytes."""
    in_global, in_shared = [c for c in counts if c.space == "global" and c.requests], _shared(counts)
    sectors, wavefronts = ("none: TMA copies", ""), ("none", "")
    if in_global:
        requests = sum(count.requests for count in in_global)
        least = _bytes(in_global) / SECTOR
        sectors = f"{sum(count.sectors for count in in_global) / requests:.3g}", f"{least / requests:.3g}"
    if in_shared:
        wavefronts = f"{sum(c.wavefronts for c in in_shared):,}", f"{sum(c.ideal for c in in_shared):,}"
    return *sectors, *wavefronts


def _why_fewer(kernels: list[tuple[ptx.Count, ...]]) -> list[str]:
    """Returns sentences on why some kernels need fewer wavefronts than others even without conflicts."""
    found = [(sum(c.ideal for c in own), _bytes(own), sum(c.requests for c in own)) for own in map(_shared, kernels)]
    found = [each for each in found if each[0]]
    if not found:
        return []
    most, asked, requests = max(found)
    fewer = [each for each in found if each[0] < 0.9 * most]  # nearer to one another, no reason stands out
    alike = [each for each in fewer if each[1] > 0.9 * asked]
    reasons = {
        "wider reads ask less often": any(each[2] < 0.9 * requests for each in alike),
        "threads ask shared memory for fewer bytes": len(alike) < len(fewer),
    }
    return [f"Fewer wavefronts without conflicts: {why}." for why, is_true in reasons.items() if is_true]


def _shared(counts: tuple[ptx.Count, ...]) -> list[ptx.Count]:
    return [count for count in counts if count.space == "shared" and count.requests]


def _bytes(counts: Iterable[ptx.Count]) -> int:
    """What the lanes ask for."""
    return sum(count.size * count.lanes for count in counts)


@dataclass(frozen=True)
class _Planted:
    """A mistake in a copy of the rung's file."""

    kind: str
    title: str
    line: int
    change: str
    text: str  # of the copy
    name: str  # of the file
    compiled: Future[tuple[str, str]]  # its PTX, and nvcc's warnings

    def quote(self, file: str, line: int) -> str:
        """A line of the copy, or of a header that it includes."""
        from cuda_kernels import source

        header = source.INCLUDE / file
        text = self.text if file == self.name else header.read_text(encoding="utf-8") if header.is_file() else ""
        return text.split("\n")[line - 1].strip() if text else ""


def _plant(item: Implementation, beside: ThreadPoolExecutor) -> Iterator[_Planted]:
    """The first mistake of each kind of PLANTED that the file has room for; nvcc compiles the copies meanwhile."""
    from cuda_kernels import source
    from cuda_kernels.mutants import cuda_mutants

    name = f"{item.stage.id}.cu"
    original = (source.FOLDER / name).read_text(encoding="utf-8")
    mutants = cuda_mutants(name, original)
    for kind in PLANTED:
        if mutant := next((mutant for mutant in mutants if mutant.kind == kind), None):
            text = source.compose(item).replace(original, mutant.text)
            compiled = beside.submit(source.compile_ptx, text, name)
            was, now = original[mutant.start : mutant.end], mutant.put
            change = f"without `{was.rstrip(';')}`" if now == ";" else f"`{now}` in place of `{was}`"
            yield _Planted(kind, _title_of(kind, was, now), mutant.line, change, mutant.text, name, compiled)


def _title_of(kind: str, was: str, now: str) -> str:
    """What was done to the code `was`."""
    if kind == "barrier":
        return f"{PLANTED[kind]} {'taken out' if now == ';' else 'weakened'}"
    return f"{'a limit' if was.startswith('min(') else PLANTED[kind]} dropped"
