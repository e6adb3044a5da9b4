"""`experiments check` on CUDA kernels, beside what reports.txt has: costs, options, encodings and exit codes."""

from __future__ import annotations

import functools
import json
import re
from pathlib import Path

import pytest

from cuda_kernels import source
from experiments.check.faults import FaultKind
from experiments.check.messages import Advice, Limit
from gemm_ref import toolchain
from gemm_ref.sass import tools
from tests.experiments.check.helpers import MULTIPLY, SIGNATURE, check_file, values
from tests.experiments.check.test_reports import CASES

PITFALLS = Path(__file__).resolve().parents[2] / "cuda_kernels" / "pitfalls"
TILES = {"block": "16,16", "grid": "cdiv(N,128),cdiv(M,128)"}
SQUARES = {"block": "32,32", "grid": "cdiv(N,32),cdiv(M,32)"}
ROWS_ON_X = {"block": "32,32", "grid": "cdiv(M,32),cdiv(N,32)"}


@pytest.fixture(scope="module", autouse=True)
def _compiled_once():
    """All kernels of a file are in its PTX: nvcc, ptxas and the disassembler see each text once."""
    with pytest.MonkeyPatch.context() as patch:
        for module, name in ((source, "compile_ptx"), (toolchain, "assemble")):
            patch.setattr(module, name, functools.cache(getattr(module, name)))
        for name in ("usage", "disassemble"):
            patch.setattr(tools, name, functools.cache(getattr(tools, name)))
        yield


@pytest.fixture
def write(tmp_path):
    def to(text: str, name: str = "kernel.cu") -> Path:
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return path

    return to


@pytest.fixture
def run(invoke):
    return lambda *arguments: invoke("check", "--device", "cpu", *arguments)


# What is said of each kernel of tests/cuda_kernels/pitfalls/ that is only slow; reports.txt has what is wrong.
SOUND = {
    ("one_element", "offsets_of_32_bits"): ({}, Limit.OFFSETS_IN_32_BITS, "C"),
    ("shared_tile", "mixed_axes_32"): (ROWS_ON_X, Advice.NOT_COALESCED, "load of A (32 sectors per request where 4"),
    ("shared_tile", "rows_on_x_staged"): (ROWS_ON_X, Advice.BANK_CONFLICTS, "store of b_smem (32 wavefronts"),
    ("shared_tile", "rows_on_x_b_turned"): (ROWS_ON_X, Advice.BANK_CONFLICTS, "store of a_smem (32 wavefronts"),
    ("thread_tile", "tile_whole"): (TILES, Advice.BANK_CONFLICTS, "load of b_smem (8 wavefronts per request where 4"),
    ("thread_tile", "tile_rows_cut"): (TILES, Advice.REGISTER_BANKS, ""),
    ("thread_tile", "tile_columns_cut"): (TILES, Advice.NOT_COALESCED, ""),
    ("thread_tile", "half_a_warp"): ({"block": "4,4", "grid": SQUARES["grid"]}, Advice.NOT_COALESCED, "store of C (16"),
}


@pytest.mark.parametrize(("file", "kernel"), SOUND)
def test_what_is_only_slow_is_sound(file, kernel):
    options, code, text = SOUND[file, kernel]
    whole = "64x32x32" if options.get("grid") != TILES["grid"] else "128x128x8"
    found = check_file(PITFALLS / f"{file}.cu", sizes=(whole, "33x31x9"), kernel=kernel, **options)
    assert found.sound and not found.faults and not found.why
    sentence = values([*found.limits, *found.advice], code)
    assert text in sentence.get("places", sentence.get("matrix"))
    assert found.code[0].kernel == kernel and found.code[0].registers > 0
    assert all(line.request and len(line.request.offsets) == 32 for line in found.lines)
    for line in found.lines:  # ptxas may join accesses into fewer and wider ones, and loses none
        assert line.compiled.requests * line.compiled.bytes == line.written.requests * line.written.bytes, line


def test_every_pitfall_is_tried():
    """All that multiply matrices: unaligned_vectors does not."""
    names = set()
    for path in PITFALLS.glob("*.cu"):
        names |= set(re.findall(r"__global__ void\s*(?:__launch_bounds__\(\d+\))?\s*(\w+)\(", path.read_text()))
    wrong = {name.removeprefix("the pitfall ") for name in CASES if name.startswith("the pitfall ")}
    assert {*wrong, *(kernel for _, kernel in SOUND)} == names - {"unaligned_vectors"}


def test_a_loop_without_an_end(write, uncounted, monkeypatch):
    monkeypatch.setattr("experiments.check.limits.MAX_INSTRUCTIONS", 3000)
    monkeypatch.setattr("experiments.check.sizes.SIDE", 32)  # where it waits for a thread that computes a row of C
    text = "__global__ void forever" + SIGNATURE + "{ for (;;) { __syncthreads(); C[0] += A[0]; } }"
    found = check_file(write(text), block="32", grid="1", sizes=("16",))
    assert FaultKind.ENDLESS_LOOP in {fault.kind for fault in found.faults}


def test_only_the_sizes_that_were_asked_for(run):
    file = PITFALLS / "thread_tile.cu"
    options = ("--kernel", "whole_tiles_only", "--block", TILES["block"], "--grid", TILES["grid"])
    result = run(file, *options, "--size", "128x128x8", "--json")
    assert result.exit_code == 0
    found = json.loads(result.stdout)
    tried = [(run["m"], run["n"], run["k"], run["inputs"]) for run in found["verdicts"]]
    assert found["sound"] and tried == [(128, 128, 8, "integers"), (128, 128, 8, "one_hot")]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("missing.cu",), "there is no file missing.cu"),
        (("two.cu",), "choose one with --kernel, of one, multiply"),
        (("two.cu", "--kernel", "multiply", "--size", "12x"), "1021x509x131"),
    ],
)
def test_a_refusal_is_printed(run, write, monkeypatch, tmp_path, arguments, message):
    write(MULTIPLY.replace("multiply", "one") + MULTIPLY, "two.cu")
    monkeypatch.chdir(tmp_path)
    result = run(*arguments)
    assert result.exit_code == 2 and message in result.said, result.output


def test_the_document_shows_what_is_printed(run, write, tmp_path, monkeypatch):
    text = (Path(__file__).resolve().parents[3] / "docs" / "check.md").read_text(encoding="utf-8")
    shown = re.search(r"```cpp\n(.*?)```.*?```\n(.*?)```", text, re.S)
    write(shown[1], "my_gemm.cu")
    monkeypatch.chdir(tmp_path)
    seconds = r"\(\d+\.\d s\)"
    result = run("my_gemm.cu")
    assert result.exit_code == 1
    assert re.sub(seconds, "", result.stdout).split() == re.sub(seconds, "", shown[2]).split()


# --- files as editors leave them: Latin-1, a byte order mark, Windows line ends; and no text -----------------

ACCENTED = MULTIPLY.replace("sum = 0;", "sum = 0;  // na\u00efve, \u00e9l\u00e9ment par \u00e9l\u00e9ment")


@pytest.fixture
def run_bytes(run, tmp_path, uncounted):
    def of(content: bytes):
        (tmp_path / "kernel.cu").write_bytes(content)
        return run(tmp_path / "kernel.cu", "--size", "17")

    return of


@pytest.mark.parametrize(("encoding", "newline"), [("latin-1", "\r\n"), ("utf-8-sig", "\n")], ids=["windows", "mark"])
def test_a_source_is_read_in_the_encoding_it_has(run_bytes, encoding, newline):
    result = run_bytes(ACCENTED.replace("\n", newline).encode(encoding))
    assert result.exit_code == 0 and "right at 17x17x17" in result.output, result.output


def test_what_nvcc_quotes_may_be_in_any_encoding(run_bytes):
    result = run_bytes(ACCENTED.replace("sum = 0;", "sum = \u00e9;").encode("latin-1"))
    assert result.exit_code == 2 and "does not compile" in result.output and "kernel.cu(3)" in result.output


@pytest.mark.parametrize("content", [bytes(range(256)), ACCENTED.encode("utf-16")], ids=["binary", "utf-16"])
def test_what_is_no_text_is_refused(run_bytes, content):
    result = run_bytes(content)
    assert result.exit_code == 2 and "saved as UTF-8" in result.output
