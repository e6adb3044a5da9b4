"""The page itself: what the templates are given."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path

import jinja2
from markupsafe import Markup, escape

import gemm_ref
from experiments.html import theme
from experiments.progress import Bars
from experiments.publish import pictures
from experiments.publish.drawing import style
from experiments.publish.outcomes import in_order
from experiments.publish.report import figures, rungs, views
from experiments.publish.report.views import Section, View
from experiments.publish.templates import templates
from experiments.records import frames
from gemm_ref import DIALECTS
from gemm_ref.build import CHECKOUT

_TEMPLATES = Path(__file__).resolve().parent / "templates"


def render(
    folders: Sequence[Path],
    target: Path,
    questions: Mapping[str, str],
    own: Path | None,
    bars: Bars,
    explored: Collection[str] = (),
) -> str:
    """The whole page about the results in `folders`, to be written to `target`; the rest is as for `make`.

    explored: the ids of the rungs that the explorer shows.
    """
    found = [View(folder, index == 0, folder == own) for index, folder in enumerate(folders)]
    sections = _sections(found, questions, bars)
    drawn = [figure for view in found for section in sections[view.slug] for figure in section.figures]
    template = _environment(partial(doc, target=target)).get_template("page.html.j2")
    return template.render(
        plot_colours=figures.variables(drawn),
        views=found,
        sections=sections,
        rungs=rungs.rungs(found, bars),
        groups=rungs.groups(found),
        banner=_banner(found, own),
        kernels=len(gemm_ref.implementations()),
        dialects=DIALECTS,
        looks=style.LOOKS,
        explored=explored,
    )


def _sections(found: Sequence[View], questions: Mapping[str, str], bars: Bars) -> dict[str, list[Section]]:
    """The experiments of each view, by its slug, in the order of `in_order`."""
    places = [(view, name) for view in found for name in in_order(questions) if name in view.experiments()]
    sections: dict[str, list[Section]] = {view.slug: [] for view in found}
    bars.begin("pictures and tables", len(places))
    drawn = pictures.drawn_all([(name, view.folder) for view, name in places], style.PAGE)
    for (view, name), files in zip(places, drawn, strict=True):
        bars.doing(f"{name} of {view.device}")
        stems = {file.removesuffix(style.PAGE): svg.decode() for file, svg in files.items()}
        plots = figures.in_order(figures.inline(stem, svg, view.prefix) for stem, svg in stems.items())
        sections[view.slug].append(view.section(name, questions[name], plots))
        bars.done()
    return sections


def _banner(found: Sequence[View], own: Path | None) -> View | None | bool:
    """This machine's view, where it has no speeds: the page says whose it shows. True where it has no data at all."""
    if own is None:
        return None
    mine = next((view for view in found if view.is_own), None)
    return True if mine is None else None if mine.has_speeds else mine


def _environment(doc_of: Callable[[str], Markup]) -> jinja2.Environment:
    made = templates(_TEMPLATES, html=True)
    made.filters |= {"words": partial(_words, doc_of=doc_of), "doc": doc_of, "number": style.number}
    made.filters |= {"sentence": _sentence, "beside": views.beside, "tally": frames.tally}
    made.globals["theme"] = Markup(theme())
    made.globals["file"] = lambda name: Markup((_TEMPLATES / name).read_text(encoding="utf-8"))
    return made


def _words(text: str, doc_of: Callable[[str], Markup]) -> Markup:
    """A text with Markdown's code and bold type as HTML, and pages of docs/ as links."""
    marked = re.sub(r"(`+)(.+?)\1", r"<code>\2</code>", str(escape(text)))
    marked = re.sub(r"\*\*(.+?)\*\*", r"<strong>\1</strong>", marked)
    return Markup(re.sub(r"\bdocs/(\w+\.md)", lambda match: doc_of(match[1]), marked))


def _sentence(text: str) -> str:
    """With a capital at its beginning, where what followed a label and a colon begins with a word."""
    return text[:1].upper() + text[1:] if text[:2].isalpha() else text


def doc(name: str, target: Path) -> Markup:
    """A page of docs/ by its name, with `#place` or without: a link where the report is written into a checkout."""
    text = Markup("<code>docs/{}</code>").format(name.split("#")[0])
    if CHECKOUT is None or not target.resolve().is_relative_to(CHECKOUT):
        return text
    path = os.path.relpath(CHECKOUT / "docs", target.resolve().parent)
    return Markup('<a href="{}/{}">{}</a>').format(Path(path).as_posix(), name, text)
