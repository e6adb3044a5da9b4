"""A second opinion on the Triton kernels: Triton's own interpreter runs their Python source on NumPy.

The interpreter is chosen when a kernel is defined, so all of them run in one process of their own (this file, as a
program), started once; each test then reads its rung's lines. Gluon has no interpreter.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gemm_ref import EXACT_KINDS, Problem, WrongResult, checked_run, implementations, make_inputs

ROOT = Path(__file__).resolve().parents[2]
RUNGS = [item for item in implementations(("triton",)) if item.math == "fp32"]  # it has no TMA
CASES = (
    ("33x65x40", "normal"),  # every edge partial, several tiles along each axis
    ("33x65x40", "integers"),  # the same, exact: an indexing error cannot hide in the tolerance
    ("2x31x33", "one_hot"),  # less than a tile, one step past a slice of K
    ("1x1x1", "normal"),
    ("5x7x0", "integers"),  # no products: zeros
)


def _version(package: str) -> tuple[int, ...]:
    return tuple(int(part) for part in importlib.metadata.version(package).split(".")[:2])


def _why_not() -> str | None:
    if importlib.util.find_spec("triton") is None:
        return "Triton is not installed"
    if _version("triton") < (3, 7) and _version("numpy") >= (2, 4):
        return "the interpreter of Triton 3.6 needs NumPy older than 2.4"
    return None


pytestmark = pytest.mark.skipif(_why_not() is not None, reason=str(_why_not()))


@pytest.fixture(scope="module")
def verdicts() -> dict[str, list[str]]:
    """By implementation: one line for each case, empty if the result was right."""
    paths = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    env = os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": paths}
    child = subprocess.run(
        [sys.executable, __file__], env=env, capture_output=True, text=True, timeout=300, check=False
    )
    assert child.returncode == 0, child.stderr
    return json.loads(child.stdout)


@pytest.mark.parametrize("item", RUNGS, ids=str)
def test_interpreter_agrees_with_the_oracle(item, verdicts):
    assert verdicts[str(item)] == [""] * len(CASES)


def _verdict(implementation, size: str, kind: str) -> str:
    from triton.errors import TritonError

    import triton_kernels

    def fn(a, b, out):
        names = {"stage": implementation.stage.id, "variant": implementation.variant, "math": implementation.math}
        return triton_kernels.gemm(a, b, out=out, **names)

    a, b = make_inputs(Problem.parse(size), kind)
    try:
        checked_run(fn, a, b, math=implementation.math, exact=kind in EXACT_KINDS, config=implementation.config)
    except (WrongResult, TritonError) as error:
        return f"{size} {kind}: {type(error).__name__}: {error}"
    return ""


if __name__ == "__main__":
    json.dump({str(rung): [_verdict(rung, *case) for case in CASES] for rung in RUNGS}, sys.stdout)
