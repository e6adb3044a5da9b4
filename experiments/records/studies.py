"""The studies: an experiment is a folder of `experiments/studies` that has about.toml, and is found by its presence.

No module imports a study: its parts are loaded here, by name. `study.py` measures, `row.py` has the class of its rows
where that is none of `records.rows`, `picture.py` draws, `text.py` makes sentences and blocks of the documents from the
rows, and about.toml has its places in listings and in the report, a caption for each of its pictures, and the name of
another class of `records.rows` than TimedRow.
"""

from __future__ import annotations

import ast
import functools
import importlib
import tomllib
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from experiments.records import rows
from experiments.records.rows import Row

FOLDER = Path(__file__).resolve().parents[1] / "studies"


@functools.cache
def abouts() -> dict[str, Mapping[str, Any]]:
    """Returns each study's about.toml by the study's name, in the order in which studies are run and listed."""
    paths = FOLDER.glob("*/about.toml")
    found = {path.parent.name: tomllib.loads(path.read_text(encoding="utf-8")) for path in paths}
    return dict(sorted(found.items(), key=lambda item: item[1]["order"]))


def names() -> tuple[str, ...]:
    """Returns the names of all studies, in order."""
    return tuple(abouts())


def has(study: str, part: str) -> bool:
    """Returns whether the study has a module of this name."""
    return (FOLDER / study / f"{part}.py").exists()


def load(study: str, part: str) -> ModuleType:
    """Imports and returns a module of a study. Raises ModuleNotFoundError if it has none of this name."""
    return importlib.import_module(f"experiments.studies.{study}.{part}")


@functools.cache
def row_type(study: str) -> type[Row]:
    """What the rows of one study's CSV are, without its measuring code. Raises KeyError for a study that is not."""
    if not has(study, "row"):
        return getattr(rows, abouts()[study].get("row", "TimedRow"))
    own = load(study, "row")
    return next(each for each in vars(own).values() if getattr(each, "__module__", "") == own.__name__)


def questions() -> dict[str, str]:
    """Returns each study's question by its name: the docstring of study.py, which is parsed and not imported."""
    trees = {name: ast.parse((FOLDER / name / "study.py").read_text(encoding="utf-8")) for name in names()}
    return {name: ast.get_docstring(tree) or "" for name, tree in trees.items()}


@functools.cache
def captions() -> Mapping[str, str]:
    """Returns each picture's caption by the stem of its file, in the order in which pictures are shown."""
    return {stem: text for about in abouts().values() for stem, text in about["captions"].items()}
