"""The plot of `example`: a mark per row that passed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from experiments.publish.drawing import style
from experiments.publish.drawing.sheet import Sheet
from experiments.records import store
from experiments.records.rows import PASS


def draw(folder: Path) -> Iterator[style.Picture]:
    """Draws example.csv of `folder`; nothing where no row passed."""
    frame = store.read(folder, "example")
    passed = frame[frame["status"] == PASS]
    if len(passed):
        sheet = Sheet((4, 3), "An example", "each product that is right", store.caption(passed, folder))
        sheet.figure.subplots().plot(passed["m"], passed["n"], "o")
        yield "example", sheet.figure
