"""Make a folder of results ready to be committed: checked, with its pictures, where published folders are."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from experiments.cards.requirements import Shortfall, open_shortfalls, read_excuses
from experiments.publish import pictures
from experiments.publish.drawing import style
from experiments.records import frames, store, studies
from experiments.records.request import UsageError
from experiments.records.store import CARD
from gemm_ref.build import CHECKOUT, write_whole

_HEAD = """\
# `python -m experiments submit` wrote this file, which makes the folder a published one.
# Below: what the folder lacks of what `submit` asks for, and why it is published all the same.

[excused]
"""


@dataclass(frozen=True)
class Submitted:
    """The outcome: the folder that was written, or the shortfalls that prevent it."""

    folder: Path | None
    shortfalls: list[Shortfall]
    needless: list[str]  # excuses that no shortfall needs


def submit(folder: Path, more: Mapping[str, str], published: Path | None = None) -> Submitted:
    """Check `folder` and copy it, with its pictures, to where published folders are, unless something is lacking.

    more: excuses beyond those in the folder; published: the target, if not this checkout's results.
    Raises UsageError without a checkout, and as `find_shortfalls` does.
    """
    if published is None and CHECKOUT is None:
        raise UsageError("a card is added to a checkout of the repo: run this in one, and name the folder of results")
    shortfalls, needless = open_shortfalls(folder, more)
    if shortfalls or needless:
        return Submitted(None, shortfalls, needless)
    target = (published or store.PUBLISHED.parent) / folder.name
    target.mkdir(parents=True, exist_ok=True)
    for path in _results(folder):
        if path != target / path.name:
            shutil.copyfile(path, target / path.name)
    if store.csv_path(target, "correctness").exists():  # thousands of rows of which nobody reads another one
        store.replace(target, "correctness", frames.summarize_checks(store.read(target, "correctness")))
    excused = sorted((read_excuses(folder) | dict(more)).items())
    write_whole(target / CARD, _HEAD + "".join(f"{key} = {json.dumps(why)}\n" for key, why in excused))
    places = [(name, target) for name in studies.names() if store.csv_path(target, name).exists()]
    for files in pictures.render_all(places, style.PNG):
        for name, content in files.items():
            write_whole(target / name, content)
    return Submitted(target, [], [])


def _results(folder: Path) -> Iterator[Path]:
    yield folder / store.ENVIRONMENT
    yield from (path for name in studies.names() if (path := store.csv_path(folder, name)).exists())
