"""Every mistake a caller can make gets an error that names it: messages.txt has a call and its error, by area.

`python -m tests.gemm_ref.test_messages` rewrites the errors.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from cuda_kernels.__main__ import app
from tests.messages import Messages


def alike(functions, *operands, **more) -> None:
    """Raises what each of the functions raises."""
    errors = []
    for function in functions:
        with pytest.raises(ValueError) as caught:
            function(*operands, **more)
        errors.append(caught.value)
    assert len({str(error) for error in errors}) == 1
    raise errors[0]


def export(arguments: str) -> None:
    """Raises what the command says."""
    done = CliRunner().invoke(app, ["export", *arguments.split()])
    assert done.exit_code == 2
    raise ValueError(done.stderr.strip())


MESSAGES = Messages(Path(__file__).with_name("messages.txt"), {"alike": alike, "export": export})


@pytest.mark.parametrize("area, call, error", list(MESSAGES.entries()))
def test_a_mistake_is_named(area, call, error):
    assert MESSAGES.error_of(area, call) == error


if __name__ == "__main__":
    MESSAGES.main()
