"""What tests of the command line share."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from experiments import cli


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
