"""The pitfalls of docs/pitfalls.md, each in a kernel that looks right, passes at one size and fails at another.

The kernels are in tests/cuda_kernels/pitfalls/ and run on the reference GPU from nvcc's PTX. An entry of pitfalls.txt
is a kernel, a size and the inputs, if they are not integers; below it is what is reported: nothing, a fault, or a wrong
result, and the findings of the detectors. `python -m tests.cuda_kernels.test_pitfalls` rewrites these reports.
"""

from __future__ import annotations

import functools
import itertools
import re
from pathlib import Path

import pytest
import torch

import cuda_kernels
import gemm_ref
from cuda_kernels import source
from gemm_ref import Launch, Problem, WrongResult, cdiv, make_inputs, ptx
from gemm_ref.build import BuildError
from tests.imports import ROOT
from tests.messages import read_reports, write_reports

DOCUMENT = ROOT / "docs" / "pitfalls.md"
SOURCES = sorted((ROOT / "tests" / "cuda_kernels" / "pitfalls").glob("*.cu"))

REPORTS = Path(__file__).with_name("pitfalls.txt")

# Blocks as (x, y, z), and the tile of C that they own.
SQUARE = {"block": (32, 32, 1), "tile": 32}
ROWS_ON_X = SQUARE | {"rows_on_x": True}
SHAPES = {"half_a_warp": {"block": (4, 4, 1), "tile": 32}, "mixed_axes_32": ROWS_ON_X, "mixed_axes_16": ROWS_ON_X}
SHAPES |= {"rows_on_x_staged": ROWS_ON_X, "rows_on_x_b_turned": ROWS_ON_X}
SHAPES_OF_FILES = {"one_element": SQUARE, "shared_tile": SQUARE, "thread_tile": {"block": (16, 16, 1), "tile": 128}}


# --- running -------------------------------------------------------------------------------------------------


def compile_ptx(path: Path, *flags: str) -> str:
    return source.compile_ptx(path.read_text(encoding="utf-8"), path.name, flags=(*source.FLAGS, *flags))[0]


@functools.cache
def compiled() -> dict[str, tuple[str, str]]:
    """The file of each kernel of tests/cuda_kernels/pitfalls/, by the kernel's name, and its PTX."""
    texts = {path.stem: compile_ptx(path) for path in SOURCES}
    return {name: (stem, text) for stem, text in texts.items() for name in ptx.entries(text)}


def load(name: str) -> ptx.DecodedKernel:
    return ptx.load(compiled()[name][1], name)


def run(name, a, b, c, block, tile, rows_on_x=False):
    """Run a kernel of pitfalls/ over the tiles of C, threadIdx.x along the columns unless `rows_on_x`."""
    m, k, n = *a.shape, b.shape[1]
    across, down = cdiv(n, tile), cdiv(m, tile)
    grid = (down, across, 1) if rows_on_x else (across, down, 1)
    ptx.run(load(name), Launch(grid, block), [a, b, c, m, n, k], names=("A", "B", "C"))


def operands(sizes, inputs="integers") -> tuple[torch.Tensor, torch.Tensor]:
    """A and B, from torch's allocator so that they start at a multiple of 64 bytes; `ones` is 1 everywhere."""
    if inputs == "ones":
        m, n, k = sizes
        return torch.ones(m, k), torch.ones(k, n)
    a, b = make_inputs(Problem(*sizes), inputs)
    return a.clone(), b.clone()


def report(name, sizes, inputs="integers", observers=()) -> list[str]:
    """Returns what the check, to the bit, and the detectors report of a kernel at one size: nothing if it is right.

    inputs: a kind of `operands`, or "zeroed": integers, with a C of zeros.
    """
    zeroed = inputs == "zeroed"
    a, b = operands(sizes, "integers" if zeroed else inputs)
    shape = SHAPES.get(name, SHAPES_OF_FILES[compiled()[name][0]])
    reported, detectors = [], ptx.Detectors(outputs=() if zeroed else ("C",))

    def fn(a, b, out):
        with ptx.watched(detectors, *observers):
            run(name, a, b, out.zero_() if zeroed else out, **shape)
        return out

    try:
        gemm_ref.checked_run(fn, a, b, exact=True)
    except ptx.MemoryFault as error:
        reported = [re.sub(r"^\S+ (\S+) [^:]*:", r"\1:", str(error)).split(" (address")[0]]  # registers are nvcc's
    except WrongResult as error:
        reported = [str(error).replace("\n", " | ")]
    for each in detectors.findings:
        places = [(each.file, each.line), *([(each.other_file, each.other_line)] if each.other_line else [])]
        reported.append(f"{each.kind}: {' / '.join(_code(*place) for place in places)}")
    return reported


def _code(file: str, line: int) -> str:
    path = next(path for path in SOURCES if path.name == file)
    return path.read_text(encoding="utf-8").splitlines()[line - 1].split("//")[0].strip()


def report_entry(entry: str) -> list[str]:
    """Returns what is reported of an entry."""
    name, sizes, *inputs = entry.split()
    return report(name, tuple(map(int, sizes.split("x"))), *inputs)


@pytest.mark.parametrize("entry, reported", read_reports(REPORTS).items())
def test_what_is_reported_of_a_pitfall(entry, reported):
    assert report_entry(entry) == reported


# --- seeing --------------------------------------------------------------------------------------------------


def most(counter: ptx.Counter, number: str) -> dict[tuple[str, str], float]:
    """(kind, array) -> the most `sectors`, `wavefronts` or `lanes` that a request of one of its accesses needs."""
    found: dict[tuple[str, str], float] = {}
    for count in counter.counts():
        if count.requests and getattr(count, number) and count.space in ("global", "shared"):
            key = count.kind, count.array
            found[key] = max(found.get(key, 0), getattr(count, number) / count.requests)
    return found


def see(name, number, sizes=(32, 32, 32), **more) -> dict[tuple[str, str], float]:
    """What the requests need of a kernel of tests/cuda_kernels/pitfalls/, whose result must be right."""
    assert report(name, sizes, observers=[counter := ptx.Counter()], **more) == []
    return most(counter, number)


def see_rung(stage: str, number, sizes=(32, 32, 32)) -> dict[tuple[str, str], float]:
    """What the requests of a rung of the ladder need."""
    with ptx.watched(counter := ptx.Counter()):
        cuda_kernels.gemm(*operands(sizes), stage=stage)
    return most(counter, number)


A, B, C = ("load", "A"), ("load", "B"), ("store", "C")
STORE_A, STORE_B, READ_A, READ_B = itertools.product(("store", "load"), ("a_smem", "b_smem"))


# --- who reads and writes what -------------------------------------------------------------------------------


def test_rows_on_x():
    """Sectors of 32 bytes that a warp's request touches."""
    assert see_rung("s01", "sectors") == {A: 32, B: 1, C: 32}
    assert see_rung("s02", "sectors") == {A: 1, B: 4, C: 4}
    assert see("rows_on_x_staged", "sectors") == {A: 32, B: 32, C: 32}
    assert see_rung("s04", "sectors") == {A: 4, B: 4, C: 4}


def test_turning_b_round():
    """Wavefronts that a request to shared memory takes."""
    staged = see("rows_on_x_staged", "wavefronts")
    turned = see("rows_on_x_b_turned", "wavefronts")
    assert staged == {STORE_A: 32, STORE_B: 32, READ_A: 32, READ_B: 1}
    assert turned == {STORE_A: 32, STORE_B: 1, READ_A: 32, READ_B: 1}
    assert see_rung("s04", "wavefronts") == {STORE_A: 1, STORE_B: 1, READ_A: 1, READ_B: 1}


def test_the_side_that_conflicts():
    whole, rows, columns = (
        see(f"tile_{cut}", "wavefronts", (128, 128, 8)) for cut in ("whole", "rows_cut", "columns_cut")
    )
    assert (whole[READ_A], whole[READ_B]) == (2, 8)
    assert (rows[READ_A], rows[READ_B]) == (2, 8)
    assert (columns[READ_A], columns[READ_B]) == (2, 4)


def test_padding_a_slice_that_is_stored_right():
    """Only a slice that is stored turned round has the conflict that padding cures."""
    turned = see("slice_turned_round", "wavefronts", inputs="ones")
    assert (turned[STORE_A], turned[STORE_B]) == (32, 1)
    assert see_rung("s04", "wavefronts")[STORE_A] == 1


def test_half_a_warp():
    assert set(see("half_a_warp", "lanes").values()) == {16}
    assert set(see_rung("s07", "lanes", (128, 128, 16)).values()) == {32}


# --- offsets and the language ---


class _Stored(ptx.Observer):
    def on_access(self, access: ptx.Access) -> None:
        if access.kind == "store":
            self.offset = int(access.addresses[2 * 32]) - int(access.addresses[0])  # of thread (0, 2) from (0, 0)


def test_offsets_of_32_bits():
    """Where row 2 of a C of 3 x 2^30 is stored: 2^33 bytes on, or 2^33 bytes back. K is 0, and C only pretends."""
    chosen = next(i for i in gemm_ref.implementations(("cuda",)) if i.stage.id == "s02_coalesced")
    offsets = []
    for kernel in (ptx.load(source.ptx(chosen)), load("offsets_of_32_bits")):
        seen, none = _Stored(), torch.empty(0)
        with pytest.raises(ptx.MemoryFault):
            launch = Launch((1, 1, 1), (32, 32, 1))
            ptx.run(kernel, launch, [none, none, torch.empty(32), 3, 2**30, 0], observers=[seen])
        offsets.append(seen.offset)
    assert offsets == [2**33, -(2**33)]


def test_own_initialiser():
    """nvcc may drop what depends on such a variable, and does: the kernel is empty. A warning is all it says."""
    assert [i.name for i in load("own_initialiser").entry.instructions] == ["ret"]
    with pytest.raises(BuildError, match='variable "row" is used before its value is set'):
        compile_ptx(ROOT / "tests" / "cuda_kernels" / "pitfalls" / "one_element.cu", "-Werror", "all-warnings")


def test_unaligned_vectors():
    kernel, rows, c = load("unaligned_vectors"), torch.ones(32, 4), torch.empty(32)
    with pytest.raises(ptx.MemoryFault, match="at byte 12 of shared memory .* not at a multiple of 16"):
        ptx.run(kernel, Launch((1, 1, 1), (32, 1, 1)), [rows, c, 0])


# --- words ---------------------------------------------------------------------------------------------------


def test_slices_are_not_split_k():
    """Walking K in slices adds no block; split-K (s13) does."""
    grids = {stage: {gemm_ref.get_stage(stage).launch(64, 64, k).grid for k in (64, 8192)} for stage in ("s04", "s13")}
    assert grids["s04"] == {(2, 2, 1)}
    assert max(z for _, _, z in grids["s13"]) > 1


def test_the_grid_covers_c():
    """It takes many blocks, none of more than 1024 threads, to have a thread for each element of C."""
    launch = gemm_ref.get_stage("s02").launch(4096, 4096, 4096)
    assert launch.threads == 1024 and launch.grid == (128, 128, 1)


# --- the document --------------------------------------------------------------------------------------------


def test_the_document_names_every_test_and_kernel():
    text = DOCUMENT.read_text(encoding="utf-8")
    tests = {name for name in globals() if name.startswith("test_") and not name.startswith("test_the_document")}
    assert set(re.findall(r"`(test_\w+)`", text)) == tests
    assert {name for name in compiled() if f"`{name}`" not in text} == set()


def test_the_document_shows_code_that_is_run():
    """Each line of code in it stands in a kernel here or in a rung."""
    files = [*SOURCES, *ROOT.glob("cuda_kernels/*.cu")]
    lines = {line.strip() for path in files for line in path.read_text(encoding="utf-8").splitlines()}
    shown = "\n".join(re.findall(r"```cpp\n(.*?)```", DOCUMENT.read_text(encoding="utf-8"), re.S)).splitlines()
    assert shown and [line for line in shown if line.strip() not in lines] == []


if __name__ == "__main__":
    write_reports(REPORTS, report_entry)
