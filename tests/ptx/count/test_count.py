"""The counts of the reference GPU: against an H200's counters, against cases worked out by hand, and as properties.

`python -m tests.ptx.count.test_count` rewrites counts.txt.
"""

from __future__ import annotations

import csv
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gemm_ref.ptx import Counter
from gemm_ref.ptx.count.banks import BANKS, line_passes, turns, wavefronts
from gemm_ref.ptx.count.counts import flops_of
from gemm_ref.ptx.count.sectors import sectors
from gemm_ref.sass import accesses
from tests.messages import Block, read_blocks, write_blocks
from tests.ptx.harness import run_kernel

LANE = np.arange(32)
ALL = np.ones(32, bool)
MEASURED, COUNTS = (Path(__file__).with_name(name) for name in ("h200_shared_wavefronts.csv", "counts.txt"))
NUMBERS = ("requests", "lanes", "sectors", "wavefronts", "ideal", "flop")


def in_sectors(addresses, active=ALL) -> int:
    return int(sectors(np.asarray(addresses, np.int64)[None], np.asarray(active)[None])[0])


def in_wavefronts(addresses, size, active=ALL, load=True) -> tuple[int, int]:
    """(wavefronts, ideal) of one request."""
    taken, ideal = wavefronts(np.asarray(addresses, np.int64)[None], np.asarray(active)[None], size, pairs=load)
    return int(taken[0]), int(ideal[0])


# --- the hardware's counts -----------------------------------------------------------------------------------


def measured() -> list[dict[str, str]]:
    """One warp, lane l at the vector of index f(l): what ncu counted on an H200."""
    with MEASURED.open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_every_pattern_that_was_measured_is_counted_as_the_hardware_did():
    rows = measured()
    assert len(rows) == 72
    for row in rows:
        size = int(row["bits"]) // 8
        index = eval(row["vector_index_of_lane_l"].replace("/", "//"), {"l": LANE}) + 0 * LANE
        taken, ideal = in_wavefronts(index * size, size, load=row["op"] == "ld")
        assert (taken, taken - ideal) == (int(row["wavefronts"]), int(row["bank_conflicts"])), row


# --- sectors and wavefronts of one request -------------------------------------------------------------------


@pytest.mark.parametrize(("addresses", "active", "expected"), [
    (4 * LANE, ALL, 4),  # neighbouring floats: 128 bytes
    (4096 * LANE, ALL, 32),  # a column: each lane its own
    (4 + 4 * LANE, ALL, 5),  # neighbours that start one float late
    (16 * LANE, ALL, 16),  # neighbouring vectors of 16 bytes: 512 bytes
    (4 * (LANE % 8) + 4096 * (LANE // 8), ALL, 4),  # four rows of 32 bytes
    (4 * LANE, LANE < 9, 2),
    (32 * LANE, LANE % 2 == 1, 16),
    (4 * LANE, LANE < 0, 0),
])  # fmt: skip
def test_sectors(addresses, active, expected):
    assert in_sectors(addresses, active) == expected


def test_lanes_that_take_no_part_cause_no_conflict():
    column = 128 * LANE
    assert in_wavefronts(column, 4, LANE < 8) == (8, 1)
    assert in_wavefronts(column, 4, LANE < 0) == (0, 0)
    assert in_wavefronts(16 * LANE, 16, LANE < 16) == (2, 2)  # two quarters


requests = st.tuples(
    st.lists(st.integers(0, 255), min_size=32, max_size=32), st.sampled_from([4, 8, 16]), st.booleans(), st.data()
)


@given(requests)
def test_wavefronts_lie_between_the_ideal_and_one_a_lane(request):
    index, size, load, data = request
    active = np.array(data.draw(st.lists(st.booleans(), min_size=32, max_size=32)))
    taken, ideal = in_wavefronts(np.array(index) * size, size, active, load)
    assert ideal <= taken <= active.sum()
    assert (ideal > 0) == active.any()


@given(requests)
def test_every_wavefront_serves_one_word_of_a_bank(request):
    index, size, load, data = request
    addresses, active = np.array(index) * size, np.array(data.draw(st.lists(st.booleans(), min_size=32, max_size=32)))
    served = turns(addresses, active, size, pairs=load)
    assert len({wavefront for _, _, wavefront in served}) == in_wavefronts(addresses, size, active, load)[0]
    words = {(wavefront, word) for _, word, wavefront in served}
    assert len(words) == len({(wavefront, word % BANKS) for wavefront, word in words})
    assert {(lane, word) for lane, word, _ in served} == {
        (lane, index[lane] * size // 4 + at) for lane in np.flatnonzero(active) for at in range(size // 4)
    }


# --- a kernel's counts ---------------------------------------------------------------------------------------


def aligned(count: int) -> torch.Tensor:
    """Floats at a multiple of 256 bytes, as a GPU allocates."""
    whole = torch.zeros(count + 64)
    return whole[-whole.data_ptr() // 4 % 64 :][:count]


def counts(block: Block) -> list[str]:
    """Returns the counts of a kernel on two matrices of one float per thread; of each count what is not 0.

    The places of the lanes' accesses are in bytes of global memory, or in words of the block's shared memory.
    """
    blocks, threads = map(int, re.search(r": (\d+) blocks? of (\d+) threads$", block.title).groups())
    counter, matrices = Counter(), [aligned(blocks * threads) for _ in range(2)]
    run_kernel("\n".join(block.lines), matrices, (blocks, 1, 1), (threads, 1, 1), observers=[counter])
    found = []
    for count in counter.counts():
        numbers = [f"{value} {name}" for name, value in vars(count).items() if value and name in NUMBERS]
        places = " ".join("-" if at is None else str(at) for at in count.words or count.offsets)
        access = f"{count.file}:{count.line}: {count.space} {count.kind} of {count.array}".replace("  ", " ")
        found.append(f"{access}, {count.op}: {', '.join(numbers)}{f'; the last at {places}' if places else ''}")
    return found


@pytest.mark.parametrize("block", read_blocks(COUNTS), ids=lambda block: block.title)
def test_a_kernels_accesses_are_counted(block):
    assert counts(block) == block.expected


@pytest.mark.parametrize(("name", "flop"), [
    ("fma.rn.f32", 2), ("add.f32", 1), ("mul.rn.f32", 1), ("add.s32", 0), ("max.f32", 0),
    ("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32", 2 * 16 * 8 * 8 // 32),
    ("wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32", 2 * 16**3 // 32),
    ("wmma.load.a.sync.aligned.row.m16n16k16.f16", 0),
    ("wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16", 2 * 64 * 128 * 16 // 128),
])  # fmt: skip
def test_flops(name, flop):
    assert flops_of(name) == flop


# --- as compiled ---------------------------------------------------------------------------------------------

LISTING = """
	.section	.text.probe,"ax",@progbits
.text.probe:
	//## File ".nv_debug_ptx_txt", line 7
        /*0000*/                   LDS.128 R4, [R2] ;
	//## File ".nv_debug_ptx_txt", line 9
        /*0010*/              @!P0 LDG.E.LTC128B.CONSTANT R0, desc[UR4][R2.64] ;
        /*0020*/                   LDG.E.64 R0, desc[UR4][R2.64+0x8] ;
        /*0030*/                   STL [R1], R0 ;
        /*0040*/                   FFMA R0, R1, R2, R3 ;
	.section	.text.other,"ax",@progbits
.text.other:
	//## File ".nv_debug_ptx_txt", line 40
        /*0000*/                   LDSM.16.M88.4 R4, [R2] ;
"""


def test_a_listing_is_read():
    code = accesses.read(LISTING)
    assert {line: [(a.name, a.size) for a in made] for line, made in code["probe"].accesses.items()} == {
        7: [("LDS.128", 16)],
        9: [("LDG.E.LTC128B.CONSTANT", 4), ("LDG.E.64", 8)],
    }
    assert code["probe"].spills == 1 and code["other"].spills == 0
    assert code["other"].accesses[40][0].size == 16
    with pytest.raises(ValueError, match="-lineinfo"):
        accesses.read(LISTING.replace("//## File", ""))


@pytest.mark.parametrize(
    ("row_bytes", "size", "active", "passes"),
    [
        (4 * 32, 4, 32, 0),  # a warp's words side by side: one line
        (4 * 8, 4, 32, 3),  # four rows of 8 words
        (4 * 8, 4, 8, 0),  # the first of them alone
        (16 * 32, 16, 32, 0),  # a quarter of the warp has one line each
        (16 * 4, 16, 32, 4),  # rows of 64 bytes: two lines a quarter
        (16 * 4, 16, 0, 0),  # zeros alone are read from nowhere
        (8 * 8, 8, 32, 2),  # rows of 64 bytes: two lines a half
    ],
)
def test_a_copy_takes_a_wavefront_for_each_further_line(row_bytes, size, active, passes):
    """Rows of `row_bytes` that lie 4096 bytes apart, copied `size` bytes a lane."""
    byte = np.arange(32) * size
    addresses = byte // row_bytes * 4096 + byte % row_bytes
    reads = np.arange(32) < active
    assert line_passes(addresses[None], reads[None], size).tolist() == [passes]


if __name__ == "__main__":
    write_blocks(COUNTS, counts)
