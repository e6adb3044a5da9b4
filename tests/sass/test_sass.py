"""Machine code as data, on small texts written by hand: blocks, the main loop, one trip, kinds, and what fits an SM."""

from __future__ import annotations

from pathlib import Path

import pytest

from gemm_ref.sass import mix
from gemm_ref.sass.listing import Instruction, blocks, parse
from gemm_ref.sass.loop import main_trip
from gemm_ref.sass.occupancy import ARCHITECTURES, occupancy
from tests.messages import read_reports


def sass(*lines: str, name: str = "kernel") -> str:
    """Lines as nvdisasm prints them: labels at the margin, an address before each instruction."""
    body = [line if line.startswith(".L") else f"        /*{16 * i:04x}*/  {line} ;" for i, line in enumerate(lines)]
    return "\n".join([f"\t.section\t.text.{name}", f"{name}:", f".text.{name}:", *body])


def trip_of(*lines: str) -> list[str]:
    (kernel,) = parse(sass(*lines))
    return [instruction.opcode for instruction in main_trip(kernel)]


TILE = (
    "S2R R0, SR_TID.X",
    "@!P0 BRA `(.L_x_9)",
    ".L_x_1:",
    "LDG.E.128.CONSTANT R4, desc[UR8][R2.64]",
    "@P1 FFMA R1, R4, R5.reuse, R1",
    "@P0 BRA `(.L_x_1)",
    ".L_x_9:",
    "EXIT",
    ".L_x_10:",
    "BRA `(.L_x_10)",
)


def test_text_is_read_into_guards_opcodes_operands_and_labels():
    first, second = parse(sass(*TILE, name="one") + "\n" + sass("EXIT", name="_Z3twov"))
    assert (first.name, second.name) == ("one", "_Z3twov")
    assert first.labels == {".L_x_1": 2, ".L_x_9": 5, ".L_x_10": 6}
    assert first.code[3] == Instruction("FFMA", "R1, R4, R5.reuse, R1", "@P1")
    assert first.code[1].target == ".L_x_9" and first.code[0].target == ""
    assert [len(block.code) for block in blocks(first)] == [2, 3, 1, 1]
    assert [block.successors for block in blocks(first)] == [(2, 1), (1, 2), (), (3,)]


@pytest.mark.parametrize("entry, trip", read_reports(Path(__file__).with_name("trips.txt")).items())
def test_the_main_loop_and_one_trip_of_it(entry, trip):
    """Semicolons separate the lines of code."""
    _, _, code = entry.partition(": ")
    assert [" ".join(trip_of(*code.split("; "))) or "nothing"] == trip


def test_a_jump_that_the_text_does_not_name_is_an_error():
    with pytest.raises(ValueError, match="BRX R4 jumps to a place"):
        trip_of(".L_x_1:", "FFMA a", "BRX R4", "EXIT")


KINDS = [
    ("FFMA", "ffma", 0, 2), ("FFMA2", "ffma2", 0, 4), ("HFMA2.MMA", "other", 0, 0),  # how sm_90 loads a constant
    ("HMMA.16816.F32.BF16", "mma", 0, 128), ("HMMA.1688.F32.TF32", "mma", 0, 64),
    ("HGMMA.64x256x16.F32.BF16", "mma", 0, 4096), ("LDS", "lds_32", 4, 0), ("LDS.U.64", "lds_64", 8, 0),
    ("LDS.U8", "lds_32", 1, 0), ("LDSM.16.M88", "ldsm", 4, 0), ("LDSM.16.MT88.4", "ldsm", 16, 0),
    ("STSM.16.M88.2", "stsm", 8, 0), ("STS.128", "sts_128", 16, 0), ("LDG.E.128.CONSTANT", "ldg_128", 16, 0),
    ("LDG.E.CONSTANT", "ldg_32", 4, 0), ("LDGSTS.E.BYPASS.128", "ldgsts_128", 16, 0), ("LDGSTS.E", "ldgsts_32", 4, 0),
    ("STG.E.64", "stg", 8, 0), ("LDL.LU.64", "spill", 0, 0), ("IMAD.WIDE.U32", "integer", 0, 0),
    ("IMAD.MOV.U32", "other", 0, 0), ("UIADD3", "integer", 0, 0), ("BAR.SYNC.DEFER_BLOCKING", "barrier", 0, 0),
    ("LDGDEPBAR", "control", 0, 0), ("MOV", "other", 0, 0),
]  # fmt: skip


def test_kinds_widths_and_flop():
    instructions = [Instruction(opcode) for opcode, *_ in KINDS]
    found = [(i.opcode, mix.kind_of(i), mix.moved_bytes_of(i), mix.flop_of(i)) for i in instructions]
    assert found == KINDS


def test_every_kind_is_in_one_group():
    assert sorted(kind for kinds in mix.GROUPS.values() for kind in kinds) == sorted(mix.KINDS)


def test_what_is_never_executed_reads_nothing():
    never = Instruction("LDS", "RZ, [RZ]", "@!PT")
    assert mix.kind_of(never) == "other"
    assert mix.shared_read_bytes([never, Instruction("LDS.128"), Instruction("LDSM.16.M88.4")]) == 32


def test_spills_are_counted_in_bytes():
    assert mix.spilled_bytes([Instruction("STL.64"), Instruction("LDL.LU"), Instruction("STS.128")]) == 12


# Architecture, threads, registers, shared bytes -> blocks, share, what runs out; NVIDIA's calculator has many more.
HELD = [
    ("sm_90a", 1024, 32, 0, 2, 1.0, "threads, registers"),
    ("sm_90a", 256, 129, 16384, 1, 0.125, "registers"),
    ("sm_90a", 128, 32, 48 * 1024, 4, 0.25, "shared memory"),  # 1 KiB is reserved in each
    ("sm_80", 128, 32, 164 * 1024, 0, 0.0, "shared memory"),
    ("sm_100a", 1024, 65, 0, 0, 0.0, "registers"),  # a block of so many registers does not start
    ("sm_90a", 48, 32, 0, 32, 1.0, "threads, registers, blocks"),  # half a warp takes the room of a whole one
    ("sm_90a", 128, 41, 0, 10, 0.625, "registers"),  # of 48 a thread: a warp has its registers by 256
    ("sm_90a", 96, 88, 0, 6, 0.28125, "registers"),  # each quarter of the registers has whole warps
    ("sm_80", 64, 16, 7814, 18, 0.5625, "shared memory"),  # by 128 bytes
]


@pytest.mark.parametrize("arch, threads, registers, shared_bytes, blocks, share, limited_by", HELD)
def test_what_a_multiprocessor_holds(arch, threads, registers, shared_bytes, blocks, share, limited_by):
    held = occupancy(ARCHITECTURES[arch], threads, registers, shared_bytes)
    assert (held.blocks, held.share, held.limited_by) == (blocks, share, limited_by)
