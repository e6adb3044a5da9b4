"""Fixtures that the tests of several rooms of `experiments` share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from experiments import cli


@pytest.fixture(autouse=True)
def trust(monkeypatch):
    """The project's own files are checked even where the kernel cannot confine their code."""
    monkeypatch.setattr("experiments.check.cage.policy.trusted", True)


@pytest.fixture
def invoke(monkeypatch):
    """`invoke("run", "ladder", pool=[...])`: a command in this process, if need be with these contenders alone.

    The result's `said` is its output in one line.
    """
    monkeypatch.setattr(cli.out, "width", 200)

    def run(*arguments, pool=None):
        if pool is not None:
            monkeypatch.setattr("experiments.records.contenders.contenders", lambda: pool)
        # The consoles were made at import; they print to whatever is stdout now.
        result = CliRunner().invoke(cli.app, [str(argument) for argument in arguments])
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        result.said = " ".join(result.output.split())
        return result

    return run


@pytest.fixture
def example_study() -> Iterator[None]:
    """The studies `example`, which checks products, and `needs_gpu` stand in the place of all real ones."""
    import experiments.publish.blocks  # noqa: F401 (its tables are those of the studies at its first import)
    from experiments.records import studies
    from tests.experiments.fixtures import studies_in

    with studies_in(Path(__file__).with_name("example_study"), studies.FOLDER):
        yield


@pytest.fixture
def seen(monkeypatch):
    """(problem, timing mode, contenders) of each call of `Bench.time` and each mode; it times nothing."""
    from experiments.bench.measure import Bench

    calls = []

    def time(bench, problem):
        modes = bench.setting.mode, *bench.setting.more_modes
        calls.extend((problem, mode, bench.contenders) for mode in modes)
        return []

    monkeypatch.setattr(Bench, "time", time)
    monkeypatch.setattr(Bench, "__enter__", lambda bench: bench)
    return calls


@pytest.fixture
def fake_gpu(monkeypatch):
    """Products are computed on the CPU, with torch in the place of cuBLAS, and nothing is warmed up."""
    import torch

    from experiments.bench import measure, rounds, timers
    from tests.experiments.fixtures import right

    load = measure.load
    monkeypatch.setattr(measure, "load", lambda contender: load(contender) if contender.dialect else (right, None))
    monkeypatch.setattr(measure, "refusal", lambda *_: None)
    monkeypatch.setattr(timers, "make_timer", lambda mode: None)
    monkeypatch.setattr(timers, "cache_bytes", lambda mode: 0)
    monkeypatch.setattr(rounds, "warm_up", lambda *_, **__: None)
    for name in ("synchronize", "empty_cache"):
        monkeypatch.setattr(torch.cuda, name, lambda: None)


@pytest.fixture
def draw_pictures(tmp_path):
    """`draw_pictures("ladder", rows)` saves these rows in tmp_path and returns the SVG of each picture, by name.

    Without rows, the pictures are of what was saved there, or in `folder`.
    """
    from experiments.publish import pictures
    from experiments.publish.drawing import style
    from experiments.records import store
    from tests.experiments.fixtures import ENVIRONMENT

    def draw(name, rows=(), folder=tmp_path):
        if rows := list(rows):
            store.save(folder, name, rows, ENVIRONMENT)
        files = pictures.render(name, folder, style.SVG)
        return {file.removesuffix(style.SVG): content.decode() for file, content in files.items()}

    return draw
