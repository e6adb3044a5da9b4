"""The command `trace`, what is kept of traces, and kernels that cannot be traced."""

import pytest

import gemm_ref
from experiments import cli
from experiments.explore.traces import collection, gather_traces, kernel, record
from experiments.explore.traces.collection import first_modes
from experiments.records import cache
from gemm_ref.build import BuildError

NAIVE = [item for item in first_modes() if item.stage.number == 1]


@pytest.fixture(autouse=True)
def empty_cache(monkeypatch, tmp_path):
    monkeypatch.setattr(cache.build, "CACHE", tmp_path / "cache")


@pytest.fixture
def counted(monkeypatch):
    """The kernels that are traced, in a stub's way; those in Triton have no compiler, and those in Gluon no nvcc."""
    made = []

    def trace(item, compiler):
        made.append(item)
        if item.dialect == "triton":
            raise ModuleNotFoundError("No module named 'triton'")
        if item.dialect == "gluon":
            raise BuildError("nvcc was not found")
        return real(NAIVE[0], compiler)

    real = kernel.trace
    monkeypatch.setattr(kernel, "trace", trace)
    return made


def test_it_writes_the_kernels_that_were_asked_for(invoke, tmp_path):
    done = invoke("trace", "s01", "--dialect", "cuda", "--output", tmp_path / "out")
    assert done.exit_code == 0, done.output
    (path,) = (tmp_path / "out").iterdir()
    assert path.name == "s01_naive-cuda-default-fp32.json" and str(path) in done.output
    trace = record.from_json(path.read_text(encoding="utf-8"))
    assert trace.name == path.stem and trace.compiler.startswith("nvcc ")
    assert invoke("trace", "s01", "--dialect", "cuda", "--output", tmp_path / "one.json").exit_code == 0
    assert (tmp_path / "one.json").read_text(encoding="utf-8") == path.read_text(encoding="utf-8")


def test_what_has_no_compiler_is_named_and_the_others_are_traced(invoke, counted, tmp_path):
    done = invoke("trace", "s01", "--output", tmp_path)
    assert done.exit_code == 0 and "no trace of s01_naive-triton-fp32: No module named 'triton'" in done.output
    assert "no trace of s01_naive-gluon-fp32: nvcc was not found" in done.output
    assert invoke("trace", "s01", "--dialect", "triton", "--output", tmp_path).exit_code == cli.FAILED


def test_what_cannot_have_changed_is_read(counted, monkeypatch):
    cuda = NAIVE[:1]
    first = gather_traces(cuda)
    assert counted == cuda and not first.failures
    assert record.to_json(gather_traces(cuda).traces[0]) == record.to_json(first.traces[0]) and counted == cuda
    monkeypatch.setattr(collection, "_state", lambda *about: "another source")
    gather_traces(cuda)
    assert len(counted) == 2


def test_first_modes_are_every_variant_and_dialect_once():
    names = {(item.stage.id, item.variant, item.dialect) for item in gemm_ref.implementations()}
    assert len(first_modes()) == len(names)
    assert len({kernel.name_of(item) for item in gemm_ref.implementations()}) == len(gemm_ref.implementations())
