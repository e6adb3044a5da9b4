"""The pitfalls of docs/pitfalls.md, each in a kernel that looks right, passes at one size and fails at another.

The kernels are in tests/cuda_kernels/pitfalls/, and run on the reference GPU from nvcc's PTX.
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
from gemm_ref.ptx.detect.finding import MISSED, RACE, TWICE, UNWRITTEN
from tests.imports import ROOT

DOCUMENT = ROOT / "docs" / "pitfalls.md"
SOURCES = sorted((ROOT / "tests" / "cuda_kernels" / "pitfalls").glob("*.cu"))

# Blocks as (x, y, z), and the tile of C that they own.
SQUARE = {"block": (32, 32, 1), "tile": 32}
TILE = {"block": (16, 16, 1), "tile": 128}
TINY = {"block": (4, 4, 1), "tile": 32}


# --- running -------------------------------------------------------------------------------------------------


def compile_ptx(path: Path, *flags: str) -> str:
    return source.compile_ptx(path.read_text(encoding="utf-8"), path.name, flags=(*source.FLAGS, *flags))[0]


@functools.cache
def texts() -> dict[str, str]:
    """The PTX that holds each kernel of tests/cuda_kernels/pitfalls/, by the kernel's name."""
    compiled = [compile_ptx(path) for path in SOURCES]
    return {name: text for text in compiled for name in ptx.entries(text)}


def load(name: str) -> ptx.DecodedKernel:
    return ptx.load(texts()[name], name)


def run(name, a, b, c, block, tile, rows_on_x=False, observers=()):
    """Run a kernel of pitfalls/ over the tiles of C, threadIdx.x along the columns unless `rows_on_x`."""
    m, k, n = *a.shape, b.shape[1]
    across, down = cdiv(n, tile), cdiv(m, tile)
    grid = (down, across, 1) if rows_on_x else (across, down, 1)
    ptx.run(load(name), Launch(grid, block), [a, b, c, m, n, k], observers, names=("A", "B", "C"))


def operands(sizes, inputs="integers") -> tuple[torch.Tensor, torch.Tensor]:
    """A and B, from torch's allocator so that they start at a multiple of 64 bytes; `ones` is 1 everywhere."""
    if inputs == "ones":
        m, n, k = sizes
        return torch.ones(m, k), torch.ones(k, n)
    a, b = make_inputs(Problem(*sizes), inputs)
    return a.clone(), b.clone()


def attempt(name, sizes, shape=SQUARE, inputs="integers", zeroed=False, **more) -> None:
    """One kernel at one size, checked to the bit and by the detectors. Raises what is wrong with its result."""
    a, b = operands(sizes, inputs)
    detectors = ptx.Detectors(outputs=() if zeroed else ("C",))

    def fn(a, b, out):
        with ptx.watched(detectors):
            run(name, a, b, out.zero_() if zeroed else out, **shape, **more)
        return out

    try:
        gemm_ref.checked_run(fn, a, b, exact=True)
    except WrongResult as error:
        error.findings = detectors.findings
        raise
    assert detectors.findings == ()


def wrong(name, sizes, shape=SQUARE, **more) -> str:
    """What is said of a result that is not the product."""
    with pytest.raises(WrongResult) as caught:
        attempt(name, sizes, shape, **more)
    return str(caught.value)


def find_faults(name, sizes, shape=SQUARE, **more) -> list[tuple[str, str, str | None]]:
    """What the detectors find wrong where the result is: the kind, the code of the line and of the other's."""
    with pytest.raises(WrongResult) as caught:
        attempt(name, sizes, shape, **more)
    return [
        (f.kind, _code(f.file, f.line), f.other_line and _code(f.other_file, f.other_line))
        for f in caught.value.findings
    ]


def _code(file: str, line: int) -> str:
    path = next(path for path in SOURCES if path.name == file)
    return path.read_text(encoding="utf-8").splitlines()[line - 1].split("//")[0].strip()


def faults(name, sizes, shape=SQUARE) -> str:
    """What is said of an access that the reference GPU stops."""
    with pytest.raises(ptx.MemoryFault) as caught:
        attempt(name, sizes, shape)
    return str(caught.value)


# --- seeing --------------------------------------------------------------------------------------------------


def most(counter: ptx.Counter, number: str) -> dict[tuple[str, str], float]:
    """(kind, array) -> the most `sectors`, `wavefronts` or `lanes` that a request of one of its accesses needs."""
    found: dict[tuple[str, str], float] = {}
    for count in counter.counts():
        if count.requests and getattr(count, number) and count.space in ("global", "shared"):
            key = count.kind, count.array
            found[key] = max(found.get(key, 0), getattr(count, number) / count.requests)
    return found


def see(name, number, shape=SQUARE, sizes=(32, 32, 32), **more) -> dict[tuple[str, str], float]:
    """What the requests need of a kernel of tests/cuda_kernels/pitfalls/, whose result must be right."""
    attempt(name, sizes, shape, observers=[counter := ptx.Counter()], **more)
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
    assert see("rows_on_x_staged", "sectors", rows_on_x=True) == {A: 32, B: 32, C: 32}
    assert see_rung("s04", "sectors") == {A: 4, B: 4, C: 4}


def test_turning_b_round():
    """Wavefronts that a request to shared memory takes."""
    staged = see("rows_on_x_staged", "wavefronts", rows_on_x=True)
    turned = see("rows_on_x_b_turned", "wavefronts", rows_on_x=True)
    assert staged == {STORE_A: 32, STORE_B: 32, READ_A: 32, READ_B: 1}
    assert turned == {STORE_A: 32, STORE_B: 1, READ_A: 32, READ_B: 1}
    assert see_rung("s04", "wavefronts") == {STORE_A: 1, STORE_B: 1, READ_A: 1, READ_B: 1}


def test_the_side_that_conflicts():
    whole, rows, columns = (
        see(f"tile_{cut}", "wavefronts", TILE, (128, 128, 8)) for cut in ("whole", "rows_cut", "columns_cut")
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
    attempt("half_a_warp", (33, 65, 70), TINY)
    assert set(see("half_a_warp", "lanes", TINY).values()) == {16}
    assert set(see_rung("s07", "lanes", (128, 128, 16)).values()) == {32}


# --- sums ----------------------------------------------------------------------------------------------------


def test_adds_into_c():
    attempt("adds_into_c", (33, 65, 70), zeroed=True)
    assert "4096 of 4096 elements" in wrong("adds_into_c", (64, 64, 64))
    add = "if (row < M && col < N) C[(size_t)row * N + col] += acc;"
    assert find_faults("adds_into_c", (64, 64, 64)) == [(UNWRITTEN, add, None)]


def test_drops_the_k_tail():
    attempt("drops_the_k_tail", (33, 65, 64))
    assert "elements of C are wrong" in wrong("drops_the_k_tail", (64, 64, 70))
    assert "got 0, want" in wrong("drops_the_k_tail", (64, 64, 31))  # no slice at all


# --- edges ---------------------------------------------------------------------------------------------------


def test_untested_edges():
    attempt("untested_edges", (64, 64, 70))
    assert "of A (12288 bytes), which is out of bounds" in faults("untested_edges", (48, 64, 64))
    assert "of B (12288 bytes), which is out of bounds" in faults("untested_edges", (64, 48, 64))


def test_untested_store():
    attempt("untested_store", (48, 64, 70))
    message = wrong("untested_store", (64, 48, 64))  # no fault: it is the wrong row, not the wrong matrix
    assert "all are in rows 1..63 and columns 0..15 of 64 x 48" in message and "got 0, want" in message
    store = "if ((size_t)row * N + col < (size_t)M * N) C[(size_t)row * N + col] = acc;"
    assert find_faults("untested_store", (64, 48, 64)) == [(TWICE, store, store)]


def test_whole_tiles_only():
    attempt("whole_tiles_only", (128, 256, 16), TILE)
    assert "of A (4224 bytes), which is out of bounds" in faults("whole_tiles_only", (132, 128, 8), TILE)
    assert "of B (4224 bytes), which is out of bounds" in faults("whole_tiles_only", (128, 132, 8), TILE)
    assert "of A (6144 bytes), which is out of bounds" in faults("whole_tiles_only", (128, 128, 12), TILE)
    assert "which is not at a multiple of 16" in faults("whole_tiles_only", (128, 128, 10), TILE)


def test_first_element_guard():
    for n in (4, 60, 64, 68, 132):
        attempt("first_element_guard", (130, n, 10), TILE)
    assert "of C (66560 bytes), which is not at a multiple of 16" in faults("first_element_guard", (128, 130, 8), TILE)
    left, right = (faults("first_element_guard", (1, n, 8), TILE) for n in (6, 66))
    assert "accesses 16 bytes at byte 16 of C (24 bytes), which is out of bounds" in left
    assert "accesses 16 bytes at byte 256 of C (264 bytes), which is out of bounds" in right


def test_leaves_before_the_barrier():
    attempt("leaves_before_the_barrier", (64, 64, 70))
    assert "all are in rows 32..47" in (below := wrong("leaves_before_the_barrier", (48, 64, 64)))
    assert "all are in rows 0..63 and columns 32..47" in (right := wrong("leaves_before_the_barrier", (64, 48, 64)))
    assert "got nan" in below and "got nan" in right
    read = "for (int k = 0; k < BLOCK; ++k) acc += a_smem[threadIdx.y][k] * b_smem[k][threadIdx.x];"
    for sizes in ((48, 64, 64), (64, 48, 64)):
        assert find_faults("leaves_before_the_barrier", sizes) == [(UNWRITTEN, read, None)]


# --- axes, strides and offsets -------------------------------------------------------------------------------


def test_mixed_axes():
    attempt("mixed_axes_32", (33, 65, 70), rows_on_x=True)
    assert "elements of C are wrong" in wrong("mixed_axes_16", (64, 64, 64), rows_on_x=True)
    store = "a_smem[threadIdx.x][threadIdx.y] = row < M && k_a < K ? A[(size_t)row * K + k_a] : 0.0f;"
    read = "for (int k = 0; k < BLOCK_K; ++k) acc += a_smem[threadIdx.x][k] * b_smem[k][threadIdx.y];"
    seen = find_faults("mixed_axes_16", (64, 64, 64), rows_on_x=True)
    assert seen == [(RACE, store, store), (UNWRITTEN, read, None)]


def test_strides_of_a_square():
    attempt("strides_of_a_square", (65, 65, 65))
    assert "of A (8192 bytes), which is out of bounds" in faults("strides_of_a_square", (64, 64, 32))
    assert "of C (8192 bytes), which is out of bounds" in faults("strides_of_a_square", (64, 32, 64))
    assert "never written" in wrong("strides_of_a_square", (32, 64, 64))
    store = "C[(size_t)row * M + col] = acc;"
    assert find_faults("strides_of_a_square", (32, 64, 64)) == [(TWICE, store, store), (MISSED, store, None)]


@pytest.mark.parametrize(
    "name, shape",
    [("no_thread_offset", SQUARE), ("slice_turned_round", SQUARE), ("x_along_block_k", SQUARE)]
    + [("stores_the_tile_elsewhere", TILE)],
)
def test_right_for_ones(name, shape):
    """Whole tiles of equal elements hide every mistake about which element is meant."""
    attempt(name, (128, 128, 32), shape, inputs="ones")
    assert "elements of C are wrong" in wrong(name, (128, 128, 32), shape)


def test_loads_by_the_tile_of_c():
    said = faults("loads_by_the_tile_of_c", (128, 128, 128), TILE)
    assert "of shared memory (8192 bytes), which is out of bounds" in said


class _Stored(ptx.Observer):
    def on_access(self, access: ptx.Access) -> None:
        if access.kind == "store":
            self.offset = int(access.addresses[2 * 32]) - int(access.addresses[0])  # of thread (0, 2) from (0, 0)


def test_offsets_of_32_bits():
    """Where row 2 of a C of 3 x 2^30 is stored: 2^33 bytes on, or 2^33 bytes back. K is 0, and C only pretends."""
    attempt("offsets_of_32_bits", (33, 65, 70))
    chosen = next(i for i in gemm_ref.implementations(("cuda",)) if i.stage.id == "s02_coalesced")
    offsets = []
    for kernel in (ptx.load(source.ptx(chosen)), load("offsets_of_32_bits")):
        seen, none = _Stored(), torch.empty(0)
        with pytest.raises(ptx.MemoryFault):
            launch = Launch((1, 1, 1), (32, 32, 1))
            ptx.run(kernel, launch, [none, none, torch.empty(32), 3, 2**30, 0], observers=[seen])
        offsets.append(seen.offset)
    assert offsets == [2**33, -(2**33)]


# --- the language --------------------------------------------------------------------------------------------


def test_own_initialiser():
    """nvcc may drop what depends on such a variable, and does: the kernel is empty. A warning is all it says."""
    assert "4096 of them were never written" in wrong("own_initialiser", (64, 64, 64))
    assert [kind for kind, _, _ in find_faults("own_initialiser", (64, 64, 64))] == [MISSED]
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
    assert {name for name in texts() if f"`{name}`" not in text} == set()


def test_the_document_shows_code_that_is_run():
    """Each line of code in it stands in a kernel here or in a rung."""
    files = [*SOURCES, *ROOT.glob("cuda_kernels/*.cu")]
    lines = {line.strip() for path in files for line in path.read_text(encoding="utf-8").splitlines()}
    shown = "\n".join(re.findall(r"```cpp\n(.*?)```", DOCUMENT.read_text(encoding="utf-8"), re.S)).splitlines()
    assert shown and [line for line in shown if line.strip() not in lines] == []
