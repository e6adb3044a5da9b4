"""What importing a package loads: what computes is imported when asked for, and the reference GPU when it runs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import gemm_ref
from gemm_ref import computing
from gemm_ref.baselines import BASELINES, products
from gemm_ref.baselines.cutlass import HOPPER

ROOT = Path(__file__).parents[2]


def test_importing_loads_neither_torch_for_lists_nor_the_reference_gpu_for_kernels():
    code = """
import sys, gemm_ref, gemm_ref.baselines
gemm_ref.get_stage('s04'), gemm_ref.Problem.parse('64'), gemm_ref.implementations()
found = {'torch', 'numpy', 'pandas', 'triton'} & sys.modules.keys()
assert not found, found
assert gemm_ref.MATHS['fp32'].dtype is sys.modules['torch'].float32
import gemm_ref.computing, cuda_kernels, triton_kernels
found = [x for x in sys.modules if x.startswith(('gemm_ref.ptx', 'gemm_ref.sass', 'pandas', 'triton.', 'numba'))]
assert not found, found
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr


def test_no_name_is_hidden_by_a_module():
    """Importing a module sets its name in the package: a function of that name would be lost."""
    modules = {path.stem for path in Path(gemm_ref.__file__).parent.iterdir()}
    names = {name for name in vars(computing) if not name.startswith("_") and name != "annotations"}
    assert len(names) > 10 and all(getattr(gemm_ref, name) is getattr(computing, name) for name in names)
    assert not modules & names


def test_every_baseline_has_a_function():
    assert products.FUNCTIONS.keys() == BASELINES.keys()
    assert BASELINES["cutlass_hopper"].maths == tuple(HOPPER)
