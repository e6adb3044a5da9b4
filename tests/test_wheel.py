"""A wheel holds all that runs: every module, kernel, header and template, and the published data."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from experiments.records.store import CARD
from tests.imports import PACKAGES, ROOT

# setuptools' own list of what it would copy into a wheel; nothing is copied.
_OUTPUTS = """
from setuptools import Distribution
distribution = Distribution({"script_name": "setup.py"})
distribution.parse_config_files()
command = distribution.get_command_obj("build_py")
command.build_lib = "lib"
command.finalize_options()
print("\\n".join(command.get_outputs(include_bytecode=False)))
"""
_PICTURES = {".png", ".svg"}  # drawn from the data
_FOR_EDITORS = {"compile_flags.txt", ".clang-format"}


def test_a_wheel_holds_all_that_runs():
    done = subprocess.run([sys.executable, "-c", _OUTPUTS], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    packed = {Path(line).relative_to("lib").as_posix() for line in done.stdout.splitlines() if line}
    folders = [ROOT / package for package in PACKAGES if package != "tests"]
    files = [path for folder in folders for path in folder.rglob("*") if path.is_file() and _is_published(path)]
    wanted = {path.relative_to(ROOT).as_posix() for path in files}
    assert packed == wanted


def _is_published(path: Path) -> bool:
    """Not a picture, nor what a run of this machine left behind."""
    parts = path.relative_to(ROOT).parts
    own = parts[:2] == ("experiments", "results") and not (path.parent / CARD).exists()
    return path.suffix not in _PICTURES and path.name not in _FOR_EDITORS and "__pycache__" not in parts and not own
