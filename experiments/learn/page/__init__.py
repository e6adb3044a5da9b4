"""The course as one HTML page, with the learner's files and their last grades; and its parts for a notebook.

No script and no network; the picture of an access and the colours of sources are those of check's page.
"""

from __future__ import annotations

from pathlib import Path

import markdown_it  # rich, which prints to the terminal, depends on it
from markupsafe import Markup

from experiments.check import page as check_page
from experiments.check.subject import read_source
from experiments.learn import course, files, grading
from experiments.learn.course import Exercise
from experiments.learn.grading import Grade
from experiments.publish import pages
from experiments.publish.pages.coloured import colour_source

_FOLDER = Path(__file__).resolve().parent


def render(opened: str = "") -> str:
    """Returns the page; the exercise of this id is open, or else the first that is not passed."""
    forms = [[course.find(each, dialect) for dialect in course.dialects_of(each)] for each in course.ids()]
    states = {form.file_name: files.state(form) for exercise in forms for form in exercise}
    passed = [any(states[form.file_name] == "passed" for form in exercise) for exercise in forms]
    first = next((forms[index][0].id for index, done in enumerate(passed) if not done), "")
    template = _templates().get_template("learn.html.j2")
    return template.render(forms=forms, states=states, passed=passed, opened=opened or first, works=_works(forms))


def _works(forms: list[list[Exercise]]) -> dict[str, tuple[list[Markup], Grade | None]]:
    """Returns (the lines of the learner's file, its last grade) by the file's name, for those that there are."""
    found = {}
    for form in (form for exercise in forms for form in exercise):
        path = files.path_of(form)
        if path.is_file():
            found[form.file_name] = colour_source(read_source(path), path.suffix), grading.last_grade(form, path)
    return found


def render_grade(grade: Grade) -> str:
    """Returns a grade as a fragment of HTML, for a notebook."""
    return _fragment("{{ results(grade) }}", grade=grade)


def render_exercise(exercise: Exercise) -> str:
    """Returns an exercise's text and hints as a fragment of HTML, for a notebook."""
    text = "<h2>{{ exercise.number }}. {{ exercise.title }}</h2>{{ task(exercise) }}"
    text += "<p class='about'>Your file: <code>{{ path }}</code></p>"
    return _fragment(text, exercise=exercise, path=files.path_of(exercise))


def _fragment(body: str, **values: object) -> str:
    made = _templates()
    embed = made.globals["embed"]
    # Rules and variables of all pages hold in this fragment alone, whose colours are light in a dark notebook too.
    variables = embed("base.css").partition(":root {")[2].partition("}")[0].replace("light dark;", "light;")
    own = f"{variables} background: var(--paper); color: var(--ink); padding: 0.5rem 0.75rem;"
    style = f".gemm-ladder {{ {own} {embed('base.css')} {embed('access.css')} {embed('learn.css')} --empty: #eef1f4; }}"
    text = '{% from "parts.html.j2" import results, task with context %}<style>{{ style }}</style>'
    template = made.from_string(f'{text}<div class="gemm-ladder">{body}</div>')
    return template.render(style=Markup(style), **values)


def _templates():
    made = pages.make_page_templates(_FOLDER, Path(check_page.__file__).parent)
    made.filters["markdown"] = lambda text: Markup(markdown_it.MarkdownIt().render(text))
    made.globals |= {"picture": check_page.picture, "colour_source": colour_source}
    return made
