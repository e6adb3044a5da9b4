"""The names of the package, and its baselines."""

from __future__ import annotations

from pathlib import Path

import gemm_ref
from gemm_ref import computing
from gemm_ref.baselines import BASELINES, products
from gemm_ref.baselines.cutlass import HOPPER


def test_no_name_is_hidden_by_a_module():
    """Importing a module sets its name in the package: a function of that name would be lost."""
    modules = {path.stem for path in Path(gemm_ref.__file__).parent.iterdir()}
    names = {name for name in vars(computing) if not name.startswith("_") and name != "annotations"}
    assert len(names) > 10 and all(getattr(gemm_ref, name) is getattr(computing, name) for name in names)
    assert not modules & names


def test_every_baseline_has_a_function():
    assert products.FUNCTIONS.keys() == BASELINES.keys()
    assert BASELINES["cutlass_hopper"].maths == tuple(HOPPER)
