"""The report's page: what its templates are given."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path

from markupsafe import Markup, escape

import gemm_ref
from experiments.progress import Bars
from experiments.publish import pictures
from experiments.publish.compilers import compiler_findings
from experiments.publish.drawing import style
from experiments.publish.outcomes import in_order
from experiments.publish.pages import make_page_templates
from experiments.publish.pages.coloured import TimedFile
from experiments.publish.reach import words_of
from experiments.publish.report import figures
from experiments.publish.report.rungs import GROUPS, tabulate_shape
from experiments.publish.report.sources import NO_TIMES, Source, read_header, read_sources
from experiments.publish.report.views import Section, View
from experiments.publish.wording import docs_page
from experiments.records import frames, workloads
from gemm_ref.build import CHECKOUT

_TEMPLATES = Path(__file__).resolve().parent / "templates"


def render(
    folders: Sequence[Path],
    target: Path,
    questions: Mapping[str, str],
    own: Path | None,
    bars: Bars,
    explored: Collection[str] = (),
    times: Mapping[tuple[str, str], TimedFile] = NO_TIMES,
) -> str:
    """The whole page about the results in `folders`, to be written to `target`; the rest is as for `make`.

    explored: the ids of the rungs that the explorer shows; times: of default kernels, by rung and dialect.
    """
    views = [View(folder, index == 0, folder == own) for index, folder in enumerate(folders)]
    sections = _describe_experiments(views, questions, bars)
    drawn = [figure for view in views for section in sections[view.slug] for figure in section.figures]
    link = partial(link_docs, target=target)
    sources = _read_sources(bars, times)
    made = make_page_templates(_TEMPLATES)
    made.filters |= {"words": partial(_markup, link=link), "doc": link, "sentence": _capitalize, "tally": frames.tally}
    return made.get_template("page.html.j2").render(
        plot_colours=figures.variables(drawn),
        views=views,
        sections=sections,
        stages=list(gemm_ref.STAGES.values()),
        groups=GROUPS,
        sources=sources,
        header=read_header,
        shape=partial(tabulate_shape, edge=workloads.LARGEST),
        compiler_findings=compiler_findings,
        docs_page=docs_page,
        banner=_banner(views, own),
        kernels=len(gemm_ref.implementations()),
        looks=style.LOOKS,
        explored=explored,
        words=words_of("en"),
    )


def _describe_experiments(views: Sequence[View], questions: Mapping[str, str], bars: Bars) -> dict[str, list[Section]]:
    """The experiments of each view, by its slug, in the order of `in_order`."""
    places = [(view, name) for view in views for name in in_order(questions) if name in view.experiments()]
    sections: dict[str, list[Section]] = {view.slug: [] for view in views}
    bars.begin("pictures and tables", len(places))
    drawn = pictures.render_all([(name, view.folder) for view, name in places], style.PAGE)
    for (view, name), files in zip(places, drawn, strict=True):
        bars.doing(f"{name} of {view.device}")
        stems = {file.removesuffix(style.PAGE): svg.decode() for file, svg in files.items()}
        plots = figures.in_order(figures.inline(stem, svg, view.prefix) for stem, svg in stems.items())
        sections[view.slug].append(view.describe(name, questions[name], plots))
        bars.done()
    return sections


def _read_sources(bars: Bars, times: Mapping[tuple[str, str], TimedFile]) -> dict[str, list[Source]]:
    """The files of each rung in colour, by its id."""
    bars.begin("rungs", len(gemm_ref.STAGES))
    sources = {}
    for name, stage in gemm_ref.STAGES.items():
        bars.doing(name)
        sources[name] = read_sources(stage, times)
        bars.done()
    return sources


def _banner(views: Sequence[View], own: Path | None) -> View | None | bool:
    """This machine's view, where it has no speeds: the page says whose it shows. True where it has no data at all."""
    if own is None:
        return None
    mine = next((view for view in views if view.is_own), None)
    return True if mine is None else None if mine.has_speeds else mine


def _markup(text: str, link: Callable[[str], Markup]) -> Markup:
    """A text with Markdown's code and bold type as HTML, and pages of docs/ as links."""
    marked = re.sub(r"(`+)(.+?)\1", r"<code>\2</code>", str(escape(text)))
    marked = re.sub(r"\*\*(.+?)\*\*", r"<strong>\1</strong>", marked)
    return Markup(re.sub(r"\bdocs/(\w+\.md)", lambda match: link(match[1]), marked))


def _capitalize(text: str) -> str:
    """With a capital at its beginning, where what followed a label and a colon begins with a word."""
    return text[:1].upper() + text[1:] if text[:2].isalpha() else text


def link_docs(name: str, target: Path) -> Markup:
    """A page of docs/ by its name, with `#place` or without: a link where the report is written into a checkout."""
    text = Markup("<code>docs/{}</code>").format(name.split("#")[0])
    if CHECKOUT is None or not target.resolve().is_relative_to(CHECKOUT):
        return text
    path = os.path.relpath(CHECKOUT / "docs", target.resolve().parent)
    return Markup('<a href="{}/{}">{}</a>').format(Path(path).as_posix(), name, text)
