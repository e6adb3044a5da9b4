"""docs/findings.md: what the published data say about CUDA against Triton, each number looked up when it is written.

The words are in findings.md.j2; what they may ask of the data is the public methods of `Findings`. A statement that
depends on the data (who is faster, how often) is made from a verdict, never written down.
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

import gemm_ref
from experiments.publish.answer import Answer, read_answer
from experiments.publish.numbers import format_edges, format_number, format_percent, format_ratio
from experiments.publish.outcomes import describe_trust
from experiments.publish.table import Table
from experiments.publish.templates import make_templates
from experiments.records import frames, stats, store, studies, workloads
from experiments.records.ceilings import Roofs
from experiments.records.controls import CONTROL, Controls
from experiments.records.request import UsageError
from experiments.records.rows import OWN_MODES, SUSTAINED
from gemm_ref import DIALECTS
from gemm_ref.dialect import BY_HAND
from gemm_ref.rung import DEFAULT_VARIANT, Rung

SIZE = workloads.cube(workloads.LARGEST)  # of the comparison rung by rung
_BACKENDS = {dialect.backend for dialect in DIALECTS.values()}
_MAP = f"M x N, K = {workloads.MAP_K}"  # the shapes that have no name
_WORDS = {stats.FASTER: "faster", stats.SLOWER: "slower", stats.SAME: "the same", stats.UNSURE: "undecided"}


def render(published: Path = store.PUBLISHED) -> str:
    """The whole page, from the results in a folder. Raises UsageError where one of the experiments is missing."""
    template = make_templates(Path(__file__).parent).get_template("findings.md.j2")
    return template.render(data=Findings(published))


class Findings:
    """Questions to one folder of results; a row is what `itertuples` gives, None where it was not measured."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._frames: dict[str, pd.DataFrame] = {}

    def _read(self, name: str) -> pd.DataFrame:
        if name not in self._frames:
            self._frames[name] = store.read(self._folder, name)
        frame = self._frames[name]
        if frame.empty:
            raise UsageError(f"{self._folder} has no {name}.csv: `python -m experiments run {name}` measures it")
        return frame

    @cached_property
    def answer(self) -> Answer:
        """What to take, at the size of the tables and by class of problems."""
        return read_answer(self._folder)

    @cached_property
    def _ladder(self) -> pd.DataFrame:
        return frames.at(frames.timed(self._read("ladder")), SIZE)

    @cached_property
    def dialects(self) -> list[str]:
        """The dialects that have a row at SIZE, in the order of the table of dialects."""
        return [name for name in DIALECTS if name in set(self._ladder["dialect"])]

    @property
    def others(self) -> list[str]:
        """The dialects that are compared with CUDA."""
        return [name for name in self.dialects if name != BY_HAND]

    @property
    def _titles(self) -> list[str]:
        return [DIALECTS[name].title for name in self.dialects]

    @cached_property
    def _rows(self) -> dict[tuple[str, str], Any]:
        """The row at SIZE of each rung's fastest variant, by its id and dialect."""
        return {(row.stage, row.dialect): row for row in frames.fastest_variants(self._ladder).itertuples()}

    @cached_property
    def _squares(self) -> pd.DataFrame:
        return frames.defaults(frames.cubes(frames.timed(self._read("squares"))))

    @cached_property
    def _shapes(self) -> pd.DataFrame:
        return frames.defaults(frames.timed(self._read("shapes"))).drop(columns="b_layout")  # as `squares`: by rows

    @cached_property
    def _problems(self) -> pd.DataFrame:
        """The rows of the square sizes and the shapes, of problems whose control is SAME."""
        rows = pd.concat([self._squares, self._shapes])
        return Controls(rows).passed(rows)

    def caption(self, experiment: str) -> str:
        """Device, versions, commit and date of an experiment's rows."""
        return store.caption(self._read(experiment), self._folder)

    def cublas_tflops(self) -> float:
        """The speed of cuBLAS at SIZE."""
        return frames.cublas_tflops(self._ladder)

    def mark(self, size: int) -> str:
        """The mark of a square size whose control failed, in the comparison rung by rung or over sizes."""
        return Controls(self._ladder if size == SIZE[0] else self._squares).mark(m=size, n=size, k=size)

    def row(self, stage: Rung, dialect: str) -> Any:
        """The row of a rung's fastest variant at SIZE."""
        return self._rows.get((stage.id, dialect))

    def compare(self, stage: Rung, dialect: str) -> stats.Ratio | None:
        """The speed of a dialect's kernel over CUDA's, from their shares of cuBLAS in the same rounds."""
        return frames.speedup(self.row(stage, BY_HAND), self.row(stage, dialect))

    def word(self, stage: Rung, dialect: str) -> str:
        """`faster`, `slower`, `the same` or `undecided`, beside CUDA."""
        rows = [self.row(stage, name) for name in (BY_HAND, dialect)]
        return "no kernel" if None in rows else _WORDS[frames.verdict(*rows)]

    def tally(self, dialect: str) -> str:
        """How many rungs of a dialect are faster than CUDA's, the same, and so on."""
        words = [self.word(stage, dialect) for stage in gemm_ref.stages_in("fp32") if dialect in stage.dialects]
        return ", ".join(f"{word} in {words.count(word)}" for word in _WORDS.values() if word in words)

    def tabulate_rungs(self) -> Table:
        """A row for each rung: its speed in each dialect, and what each other dialect has over CUDA."""
        lines = []
        for stage in gemm_ref.stages_in("fp32"):
            rows = [self.row(stage, dialect) for dialect in self.dialects]
            cells = [f"{format_number(row.tflops)}{_describe_variant(row)}" if row else "–" for row in rows]
            for dialect in self.others:
                cells += [format_ratio(self.compare(stage, dialect)), self.word(stage, dialect)]
            lines.append([f"[`{stage.id}`](ladder.md#{stage.id})", *cells])
        compared = [
            text for name in self.others for text in (f"{DIALECTS[name].title} / {DIALECTS[BY_HAND].title}", "verdict")
        ]
        words = [0, *(len(self.dialects) + 2 * place for place in range(1, len(self.others) + 1))]
        return Table.of(["rung", *self._titles, *compared], lines, words)

    def best(self, dialect: str) -> Any:
        """The row of the fastest kernel of a dialect at SIZE, of any variant."""
        own = self._ladder[self._ladder["dialect"] == dialect]
        return next(own.loc[[own["median_us"].idxmin()]].itertuples())

    def leaders(self) -> dict[int, dict[str, Any]]:
        """For each power of two, the fastest rung of each dialect."""
        best = frames.leaders(self._squares[[size & (size - 1) == 0 for size in self._squares["m"]]])
        return {size: {row.dialect: row for row in own.itertuples()} for size, own in best.groupby("m")}

    def tabulate_leaders(self) -> Table:
        """A row for each power of two: the fastest rung of each dialect, and its share of cuBLAS."""
        lines = [
            [
                f"{size}{self.mark(size)}",
                *(
                    f"`{best[d].stage}` {format_percent(best[d].vs_cublas)}" if d in best else "–"
                    for d in self.dialects
                ),
            ]
            for size, best in self.leaders().items()
        ]
        return Table.of(["M = N = K", *self._titles], lines, range(1, len(self._titles) + 1))

    def other_run(self) -> str:
        """That the speeds over sizes are from another run than those rung by rung; empty where they are from one."""
        there = self.leaders().get(SIZE[0], {})
        is_same_run = {row.run for row in there.values()} <= set(self._ladder["run"])
        return "" if is_same_run else "Its speeds are from another run than those above."

    def tabulate_awkward(self) -> Table:
        """A row for each size off a power of two: the speed over that at the power, the median of rungs from s08 on."""
        own = self._squares
        rows = [own[(own["dialect"] == dialect) & (own["stage"] >= "s08")] for dialect in self.dialects]
        shares = [frames.speed_off_powers(each) for each in (*rows, own[own["backend"] == "cublas"])]
        lines = [[str(size), *(format_number(each[size]) for each in shares)] for size in shares[-1]]
        return Table.of(["size", *self._titles, "cuBLAS"], lines, 0)

    def tabulate_groups(self) -> Table:
        """A row for each group of shapes that are no cubes: how many, and what each dialect's best rungs reach.

        Geometric mean and least of their shares of cuBLAS, at problems whose control is SAME.
        """
        rows = Controls(self._shapes).passed(self._shapes)
        rows = frames.leaders(frames.with_last_rung(frames.off_cubes(rows)))
        titles = {shape.sizes: shape.title for shape in workloads.named_shapes()}
        groups = [titles.get(sizes, _MAP) for sizes in rows[list(frames.SIZES)].itertuples(index=False, name=None)]
        lines = []
        for title, own in rows.groupby(groups, sort=False):
            shares = {name: 100 * each for name, each in own.groupby("dialect")["vs_cublas"]}
            cells = [
                f"{format_number(stats.geometric_mean(shares[name]))}, {format_number(shares[name].min())}"
                if name in shares
                else "not run"
                for name in self.dialects
            ]
            lines.append([title, str(len(own[list(frames.SIZES)].drop_duplicates())), *cells])
        return Table.of(["shapes", "problems", *self._titles], lines, (0, *range(2, len(self._titles) + 2)))

    def read_roof(self) -> tuple[int, dict[str, tuple[float, float]]]:
        """At how many shapes reading takes longest, and what the best rungs reach there: by dialect, "" for cuBLAS.

        The least and the largest share of the read roof; nothing where `roofs` was not measured.
        """
        roofs, rows = Roofs.of(self._folder), self._shapes[self._shapes["backend"].isin([*_BACKENDS, "cublas"])]
        best = rows.loc[rows.groupby([*frames.SIZES, "dialect"])["median_us"].idxmin()]
        shares: dict[str, list[float]] = {}
        for row in best.itertuples():
            problem = gemm_ref.Problem(row.m, row.n, row.k)
            if roofs and roofs.is_read(problem):
                shares.setdefault(row.dialect, []).append(roofs.read_us(problem) / row.median_us)
        return max(map(len, shares.values()), default=0), {d: (min(own), max(own)) for d, own in shares.items()}

    def beats_cublas(self) -> list:
        """Rows of `_problems` whose verdict is FASTER, the best of each problem, fastest first."""
        return _select_faster(frames.rungs(self._problems))

    def heuristic(self) -> tuple[list, int]:
        """Where the best of cuBLASLt's algorithms is FASTER than the one cuBLAS chose, and of how many problems.

        Rows, largest gain first.
        """
        rows = self._problems[self._problems["backend"] == "cublaslt"]
        return _select_faster(rows), len(rows.drop_duplicates(list(frames.SIZES)))

    def mode_share(self, size: int, mode: str, backend: str = "") -> float:
        """The median over all rungs, or of a library, of the time in a mode over that from a cold cache."""
        own = frames.timed(self._read("modes"))
        own = own[own["backend"] == backend] if backend else frames.rungs(own)
        return frames.time_over_cold(own[own["m"] == size])[mode]

    def inputs(self, math: str, kind: str) -> Any:
        """The row of cuBLAS in a math mode on one kind of inputs, held, from `energy`."""
        own = self._read("energy")
        own = own[(own["mode"] == SUSTAINED) & (own["backend"] == "cublas")]
        own = own[(own["math"] == math) & (own["inputs"] == kind)].sort_values("m", ascending=False)
        return next(own.itertuples())

    def error(self, stage: str, k: int, math: str = "fp32", dialect: str = "") -> float:
        """The relative error of a kernel at one depth, from `accuracy`."""
        own = self._read("accuracy")
        own = own[(own["stage"] == stage) & (own["k"] == k) & (own["math"] == math) & (own["dialect"] == dialect)]
        return float(own.iloc[0].rel_error)

    def deepest(self) -> int:
        """The largest K of `accuracy`."""
        return int(self._read("accuracy")["k"].max())

    @cached_property
    def _compared(self) -> dict[str, pd.DataFrame]:
        """The rows with a share of cuBLAS, of every study that has any."""
        found = {name: store.read(self._folder, name) for name in studies.names()}
        return {name: rows[rows["vs_cublas"].notna()] for name, rows in found.items() if "vs_cublas" in rows}

    def trust(self) -> str:
        """How often cuBLAS beside itself says SAME, in the report's words."""
        return describe_trust(self._compared)

    def failed_controls(self) -> list[str]:
        """The problems whose control is not SAME, by study."""
        found = []
        for name, rows in self._compared.items():
            failed = rows[(rows["stage"] == CONTROL) & (rows["verdict"] != stats.SAME) & rows["mode"].isin(OWN_MODES)]
            if len(failed):
                each = dict.fromkeys(f"{row.math} at {format_edges(row)}" for row in failed.itertuples())
                found.append(f"`{name}`: {', '.join(each)}")
        return found

    def precision(self) -> tuple[int, int, float]:
        """Shares of cuBLAS, but for its own: how many are known to half a percent, of how many, and the widest.

        Half the 95% interval, relative to the share.
        """
        rows = pd.concat(self._compared.values())
        rows = rows[rows["backend"] != "cublas"]
        half = (rows["vs_cublas_high"] - rows["vs_cublas_low"]) / 2 / rows["vs_cublas"]
        return int((half <= 0.005).sum()), len(rows), float(half.max())


def _describe_variant(row: Any) -> str:
    """A row's variant behind its number; nothing for a rung that has one."""
    return "" if row.variant == DEFAULT_VARIANT else f" ({row.variant})"


def _select_faster(rows: pd.DataFrame) -> list:
    """Of each problem the row that is FASTER than cuBLAS by most, where there is one; the fastest first."""
    rows = rows[rows["verdict"] == stats.FASTER].sort_values("vs_cublas", ascending=False)
    return list(rows.drop_duplicates(list(frames.SIZES)).itertuples())
