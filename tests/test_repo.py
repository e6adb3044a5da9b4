"""The registry, the files and the README say the same. `make lint` checks style, types, format and names."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib

import pytest

from experiments.publish.compilers import compiler_findings
from gemm_ref import DIALECTS, STAGES
from gemm_ref.dialect import COMPLETE
from tests.imports import ROOT

READMES = ("README.md", "README.zh-CN.md")
HEADER = ("Idea:", "Changed:", "Tile/threads:", "Cost:", "Requires:")


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_file_for_every_entry_and_no_other(dialect):
    registered = {stage.id for stage in STAGES.values() if dialect in stage.dialects}
    there = {path.stem for path in ROOT.glob(DIALECTS[dialect].file_of("s[0-9]*"))}
    assert there == registered, f"{dialect} has no file of {registered - there}, and no entry of {there - registered}"


def test_every_dialect_has_its_looks():
    from experiments.publish.drawing.style import LOOKS

    assert list(LOOKS) == list(DIALECTS)
    assert [look.lane for look in LOOKS.values()] == [place - len(LOOKS) // 2 for place in range(len(LOOKS))]
    for part in ("colour", "dark", "marker"):
        assert len({getattr(look, part) for look in LOOKS.values()}) == len(LOOKS)


def test_ids_are_in_order_and_well_formed():
    assert list(STAGES) == sorted(STAGES)
    for stage in STAGES.values():
        assert re.fullmatch(r"s\d\d_[a-z0-9_]+", stage.id)
        assert set(stage.dialects) <= set(DIALECTS) and "cuda" in stage.dialects and "triton" in stage.dialects
        # a dialect without a kernel is a finding, never an empty cell
        assert {name for name in COMPLETE if name not in stage.dialects} <= set(compiler_findings(stage))


@pytest.mark.parametrize("name", READMES)
def test_readme_has_a_row_for_every_rung_and_no_other(name):
    rows = re.findall(r"^\| \[`(s\d\d_\w+)`", (ROOT / name).read_text(encoding="utf-8"), re.M)
    lacks, left = set(STAGES) - set(rows), set(rows) - set(STAGES)
    assert not lacks and not left, f"{name} has no row of {lacks}, or one left over of {left}: make readme"


SECTIONS = {True: ("docs/ladder.md", "## "), False: ("docs/tensor_cores.md", "### ")}  # fp32 or not: headed by its id


@pytest.mark.parametrize("stage", STAGES.values(), ids=lambda stage: stage.id)
def test_every_rung_has_its_section(stage):
    page, begin = SECTIONS["fp32" in stage.maths]
    lines = (ROOT / page).read_text(encoding="utf-8").splitlines()
    assert begin + stage.id in lines, f"{page} has no section of {stage.id}: it begins '{begin}{stage.id}'"


@pytest.mark.parametrize("fp32", SECTIONS)
def test_documents_have_no_section_of_a_rung_that_is_not(fp32):
    page, begin = SECTIONS[fp32]
    found = re.findall(rf"^{begin}(s\d\d_\w+)$", (ROOT / page).read_text(encoding="utf-8"), re.M)
    assert found == [stage.id for stage in STAGES.values() if ("fp32" in stage.maths) == fp32]


def test_documents_are_what_the_data_gives():
    from experiments.publish import blocks

    assert not blocks.stale(write=False), "`make readme` rewrites them"


@pytest.mark.parametrize("path", sorted(ROOT.glob("cuda_kernels/*.cu")), ids=lambda p: p.stem)
def test_cuda_files_open_with_the_five_fields(path):
    comment = [line for line in path.read_text(encoding="utf-8").splitlines() if line.startswith("// ")]
    found = [field for line in comment for field in HEADER if line.startswith(f"// {field}")]
    assert tuple(found) == HEADER
    assert 'include "launch.cuh"' in path.read_text(encoding="utf-8")
    assert f"\nnamespace config = registry::{path.stem};\n" in path.read_text(encoding="utf-8")
    assert "torch" not in path.read_text(encoding="utf-8")


@pytest.mark.parametrize("stage", STAGES.values(), ids=lambda stage: stage.id)
def test_a_cuda_rung_has_the_kernels_that_the_registry_names(stage):
    """The first is called as the rung; another is there where launches have a second."""
    text = (ROOT / "cuda_kernels" / f"{stage.id}.cu").read_text(encoding="utf-8")
    named = [stage.id, stage.second_kernel] if stage.second_kernel else [stage.id]
    assert re.findall(r"__global__ .*?(\w+)\((?=const)", text, re.S) == named
    assert (stage.launch(1, 1, 4096).then is not None) == bool(stage.second_kernel)


def test_the_header_of_the_registry_is_the_registry():
    from cuda_kernels.source import REGISTRY_HEADER, registry_header

    stale = REGISTRY_HEADER.read_text(encoding="utf-8") != registry_header()
    assert not stale, "`python -m cuda_kernels registry` writes it"


def test_importing_builds_and_reads_nothing():
    """No compiler, no GPU, no Triton and no files at import: a machine without them can still import.

    Lists need no torch either, and kernels no reference GPU.
    """
    code = """
import importlib, os, pkgutil, sys
sys.dont_write_bytecode = True
seen = []
def audit(event, args):
    writes = event == 'open' and isinstance(args[2], int) and args[2] & (os.O_WRONLY | os.O_RDWR)
    inside = (writes or event == 'os.mkdir') and os.path.abspath(str(args[0])).startswith(f'{os.getcwd()}/')
    if inside or event == 'subprocess.Popen': seen.append((event, args))
sys.addaudithook(audit)
import gemm_ref, gemm_ref.baselines
gemm_ref.get_stage('s04'), gemm_ref.Problem.parse('64'), gemm_ref.implementations()
assert not {'torch', 'numpy', 'pandas', 'triton'} & sys.modules.keys()
assert gemm_ref.MATHS['fp32'].dtype is sys.modules['torch'].float32
import gemm_ref.computing, cuda_kernels, triton_kernels
heavy = ('gemm_ref.ptx', 'gemm_ref.sass', 'pandas', 'triton.', 'numba')
assert not [name for name in sys.modules if name.startswith(heavy)]
import experiments.cli, experiments.bench.measure
assert 'triton' not in sys.modules
for package in (gemm_ref, cuda_kernels, triton_kernels, experiments):
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + '.'):
        if not module.name.endswith('__main__'): importlib.import_module(module.name)
assert not sys.modules['torch'].cuda.is_initialized() and not seen, seen
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_citation_names_this_version_and_licence():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8").splitlines()
    assert f"version: {project['version']}" in citation and f"license: {project['license']}" in citation
    assert all((ROOT / name).exists() for name in project["license-files"])
