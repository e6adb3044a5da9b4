"""`import gemm_ref` is quick: what computes is imported when it is asked for, and type checkers see it all the same."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import gemm_ref
from gemm_ref.baselines import BASELINES, products
from gemm_ref.baselines.cutlass import HOPPER

_TEXT = Path(gemm_ref.__file__).read_text(encoding="utf-8")


def test_the_list_of_rungs_and_baselines_needs_no_torch():
    code = (
        "import sys, gemm_ref, gemm_ref.baselines\n"
        "gemm_ref.get_stage('s04'), gemm_ref.Problem.parse('64'), gemm_ref.implementations()\n"
        "found = {'torch', 'numpy', 'pandas', 'triton'} & sys.modules.keys()\n"
        "assert not found, found\n"
        "assert gemm_ref.MATHS['fp32'].dtype is sys.modules['torch'].float32"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=Path(__file__).parents[2])
    assert done.returncode == 0, done.stderr


def test_every_name_is_there_and_type_checkers_see_it():
    assert all(getattr(gemm_ref, name) is not None for name in gemm_ref.__all__)
    blocks = [node for node in ast.parse(_TEXT).body if isinstance(node, ast.If)]
    seen = {(node.module, alias.name) for block in blocks for node in block.body for alias in node.names}
    later = {(f"gemm_ref.{module}", name) for module, names in gemm_ref._LATER.items() for name in names}
    assert seen == later | {("gemm_ref", "ptx")}


def test_no_name_is_hidden_by_a_module():
    """Importing a module sets its name in the package: a function of that name would be lost."""
    modules = {path.stem for path in Path(gemm_ref.__file__).parent.iterdir()}
    assert not modules & gemm_ref._HOME.keys()


def test_a_name_that_is_not_there():
    with pytest.raises(AttributeError, match="no attribute 'gem'"):
        gemm_ref.gem  # noqa: B018 (asking is the test)


def test_every_baseline_has_a_function():
    assert products.FUNCTIONS.keys() == BASELINES.keys() >= products.BUILDS.keys()
    assert BASELINES["cutlass_hopper"].maths == tuple(HOPPER)
