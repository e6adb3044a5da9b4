"""The answer to the project's question, from the data: which dialect is how fast, where, and at how many lines.

README, the report and the demo say the same sentences and show the same numbers. Their words are in answer.LANGUAGE.j2
and readme.toml; every 'level', 'faster' and 'slower' in them is a verdict (`experiments.records.stats.verdict`) on two
named kernels. One rule says what to take, at one size and in each class of problems (`experiments.publish.reach`).
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path

import pandas as pd

import gemm_ref
from experiments.grouping import group_pairs
from experiments.publish.numbers import format_means, format_number, format_percent, format_size
from experiments.publish.reach import OTHER_COMMIT, Answered, Mode, Reach, ShapeClass, title_of, words_of
from experiments.publish.table import Table
from experiments.publish.templates import make_templates
from experiments.publish.wording import NOT_MEASURED, join_words
from experiments.records import frames, shape_classes, stats, store
from experiments.records.ceilings import Roofs
from experiments.records.controls import Controls
from experiments.records.rows import COLD, LAYERS
from gemm_ref import DIALECTS

FIRST_SCREEN = ("fp32", "tf32", "bf16", "fp8", "fp16x3")  # findings.md has the others too: fp16 is close to bf16
_JOINTS = {"en": (", ", " and "), "zh": ("、", " 和 ")}  # between the words of a list, and before its last
LANGUAGES = tuple(_JOINTS)
_FOLDER = Path(__file__).parent


def read_answer(folder: Path = store.PUBLISHED) -> Answer:
    """The answer of a folder, one for all that ask, as long as its files are the same."""
    return _read_answer(folder, tuple((path, path.stat().st_mtime_ns) for path in sorted(folder.glob("*.csv"))))


@functools.lru_cache(maxsize=2)
def _read_answer(folder: Path, state: tuple) -> Answer:
    return Answer(folder)


class Answer:
    """What a folder of results answers; parts that were not measured are empty."""

    def __init__(self, folder: Path = store.PUBLISHED) -> None:
        self._folder = folder
        self._at_size: dict[tuple[str, str], pd.DataFrame] = {}

    def at_size(self, math: str, layout: str = "") -> pd.DataFrame:
        """The rows of one compute type at the size of the tables, with B in `layout`, or else as the tables have it."""
        if (math, layout) not in self._at_size:
            self._at_size[math, layout] = frames.at_tables(self._folder, math, layout)
        return self._at_size[math, layout]

    @cached_property
    def modes(self) -> tuple[Mode, ...]:
        """The compute types that were timed, fp32 first, each with B as the tables have it and then the other way."""
        found = []
        for math in gemm_ref.MATHS:
            shown = frames.LAYOUT[math]
            layouts = [shown, *(each for each in gemm_ref.B_LAYOUTS if each != shown)] if math != "fp32" else [shown]
            timed = [each for each in layouts if not frames.rungs(self.at_size(math, each)).empty]
            found += [self._mode(math, layout, len(timed) > 1 or shown != "kn") for layout in timed]
        return tuple(found)

    def _mode(self, math: str, layout: str, is_layout_named: bool) -> Mode:
        rows = self.at_size(math, layout)
        size = int(rows["m"].iloc[0])
        cutlass = rows[rows["backend"] == "cutlass"]
        return Mode(
            math=math,
            best=Answered.of(math, frames.rungs(rows)).best,
            size=f"{size}{Controls(rows).mark(m=size, math=math)}",
            cublas_tflops=frames.cublas_tflops(rows),
            layout=layout,
            is_layout_named=is_layout_named,
            cutlass=format_percent(shares.max()) if len(shares := cutlass["vs_cublas"].dropna()) else "",
        )

    @property
    def take(self) -> dict[str, list[str]]:
        """At the size of the tables: dialect -> the compute types in which it is the one to take."""
        shown = {mode.math: mode for mode in reversed(self.modes)}  # with B as the tables have it
        return group_pairs((each.take, math) for math in gemm_ref.MATHS if (each := shown.get(math)) and each.take)

    def choices(self, language: str = "en") -> dict[str, list[str]]:
        """What to take in words -> the titles of the classes of problems in which it is that."""
        titles = words_of(language)["classes"]
        return group_pairs((self._words(self.take_in(name), language), titles[name]) for name in self.classes)

    def choice_at_size(self, language: str = "en") -> str:
        """What to take at the size of the tables in words."""
        return self._words(self.take, language)

    def _words(self, take: Mapping[str, list[str]], language: str) -> str:
        """`CUDA (Gluon in bf16x6)`: first what is taken in most compute types, then the exceptions."""
        words, joints = words_of(language), _JOINTS[language]
        texts = {
            name: words["exception"].format(title=title_of(name), maths=join_words(take[name], *joints))
            for name in sorted(take, key=lambda name: -len(take[name]))
        }
        first, *others = texts
        if others:
            return title_of(first) + words["exceptions"].format(each=joints[0].join(texts[name] for name in others))
        return title_of(first) if len(take[first]) > 1 else texts[first]

    @property
    def libraries(self) -> dict[str, list[str]]:
        """What shares are of -> the compute types."""
        return group_pairs((frames.reference(math), math) for math in dict.fromkeys(mode.math for mode in self.modes))

    @cached_property
    def classes(self) -> dict[str, dict[str, ShapeClass]]:
        """By class of problems, and compute type, where any was timed."""
        found: dict[str, dict[str, ShapeClass]] = {name: {} for name in shape_classes.CLASSES}
        for own in self._classified.problems:
            found[own.name][own.math] = ShapeClass(own.math, Answered.of(own.math, own.rows).best, own.name, own)
        return {name: of for name, of in found.items() if of}

    @cached_property
    def _classified(self) -> shape_classes.ClassifiedProblems:
        return shape_classes.read(self._folder)

    def take_in(self, name: str) -> dict[str, list[str]]:
        """In a class of problems: dialect -> the compute types in which it is the one to take."""
        return group_pairs((each.take, math) for math, each in self.classes[name].items() if each.take)

    @property
    def other_commits(self) -> dict[str, list[str]]:
        """Commit of rows that is not that of the tables at one size -> the compute types."""
        every = (each for of in self.classes.values() for each in of.values())
        found = group_pairs((commit, each.math) for each in every for commit in each.problems.other_commits)
        return {commit: list(dict.fromkeys(maths)) for commit, maths in found.items()}

    @property
    def excluded(self) -> int:
        """At how many tf32 problems cuBLAS computed in fp32."""
        return self._classified.excluded

    @property
    def wrong_baselines(self) -> int:
        """How many rows are of a baseline whose product is wrong."""
        return self._classified.wrong_baselines

    @cached_property
    def decode(self) -> dict[str, tuple[str, str]]:
        """By compute type of `decode`: the dialects' geometric means as a share of cuBLAS, and of the read roof.

        The first of single launches with a cold cache, the second in a CUDA graph of layers; nothing without roofs.
        """
        rows, roofs = frames.rungs(frames.on_tensor_cores(store.read(self._folder, "decode"))), Roofs.of(self._folder)
        if roofs is None:
            return {}
        rows, found = rows.assign(share=roofs.read_shares(rows)), {}
        for math in frames.maths_of(rows):
            alone, layers = (rows[(rows["math"] == math) & (rows["mode"] == mode)] for mode in (COLD, LAYERS))
            found[math] = format_means(alone, "vs_cublas"), format_means(layers, "share")
        return found

    @property
    def first_screen(self) -> list[str]:
        """The compute types of FIRST_SCREEN that were timed in any class."""
        return [math for math in FIRST_SCREEN if any(math in of for of in self.classes.values())]

    def tabulate(self, language: str = "en") -> Table:
        """A row per compute type of FIRST_SCREEN, and a column per class: what to take, and the dialects' means."""
        words = words_of(language)
        head = [words["mode"], *(words["classes"][name] for name in self.classes)]
        lines = []
        for math in self.first_screen:
            found = [of.get(math) for of in self.classes.values()]
            lines.append([math, *(_class_cell(each) if each else words["not_measured"] for each in found)])
        return Table.of(head, lines, len(head))

    def tabulate_classes(self) -> Table:
        """A row per compute type and class, with all that is known of each dialect."""
        head = ["mode", "class", "problems", "take", *(dialect.title for dialect in DIALECTS.values())]
        lines = []
        for math in gemm_ref.MATHS:
            for name, of in self.classes.items():
                if math in of:
                    cells = [_reach_cell(of[math].best[each]) if each in of[math].best else "–" for each in DIALECTS]
                    title = words_of("en")["classes"][name] + of[math].mark
                    take = of[math].choice or "–"
                    lines.append([math, title, str(of[math].count), take, *cells])
        return Table.of(head, lines, (0, 1, *range(3, len(head))))

    def tabulate_modes(self) -> Table:
        """A row per compute type and layout of B at the size of the tables."""
        head = ["M = N = K", "cuBLAS, TFLOP/s", *(dialect.title for dialect in DIALECTS.values()), "CUTLASS"]
        rows, layouts = [], words_of("en")["layouts"]
        for mode in self.modes:
            problem = f"{mode.math} at {mode.size}{layouts[mode.layout] if mode.is_layout_named else ''}"
            cells = [_cell(mode, name) for name in DIALECTS]
            rows.append([problem, format_number(mode.cublas_tflops), *cells, mode.cutlass])
        return Table.of(head, rows, (0, *range(2, 2 + len(DIALECTS))))

    def sentences(self, language: str = "en") -> list[str]:
        """What to take; what the table's cells are; what its classes are. Empty where nothing was timed."""
        settings = make_templates(_FOLDER)
        settings.filters["listed"] = lambda words: join_words(words, *_JOINTS[language])
        text = settings.get_template(f"answer.{language}.j2").render(
            answer=self, words=words_of(language), few=shape_classes.MAX_FEW_ROWS, mark=OTHER_COMMIT
        )
        return [" ".join(paragraph.split()) for paragraph in text.split("%%%") if paragraph.strip()]

    def paragraphs(self, language: str = "en") -> list[str]:
        """In Markdown: what to take, the table, and what it shows; nothing where no class of problems was timed."""
        sentences = self.sentences(language)
        first = 1 if self.take else 0
        table = self.tabulate(language).to_markdown(is_compact=True)
        return [*sentences[:first], table, " ".join(sentences[first:])] if self.classes else []


def _class_cell(own: ShapeClass) -> str:
    """What to take, then the means: `**CUDA** 97 / 88 / 90%`."""
    return f"**{own.choice}** {own.means}" if own.choice else own.means


def _reach_cell(reach: Reach) -> str:
    """Mean and median, the worst problem, and how often cuBLAS is beaten and not reached."""
    worst = f"{format_percent(reach.worst.vs_cublas)} at {format_size(reach.worst)}"
    counts = f"{reach.count(stats.FASTER)} faster, {reach.count(stats.SLOWER)} slower"
    return f"{format_percent(reach.mean)}, median {format_percent(reach.median)}; {worst}; {counts}"


def _cell(mode: Mode, dialect: str) -> str:
    """The dialect's kernel, its share in bold where it is the one to take."""
    best = mode.best.get(dialect)
    if best is None:
        return NOT_MEASURED
    share = f"**{best.percent}**" if dialect == mode.take else best.percent
    return f"{share} `{best.number}`, {best.lines} lines{mode.describe_verdict(dialect)}"
