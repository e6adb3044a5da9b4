"""What Triton decides by itself on the rungs of tensor cores, s15 to s18: the evidence behind the registry's sentences.

Read off the TTGIR, the PTX and the cubin that the installed Triton makes for an H200 (sm_90a), without a GPU. A test
that fails here after an upgrade means that a sentence is no longer true, not that a kernel is wrong.
"""

from __future__ import annotations

import functools
import re
from collections import Counter

import pytest

from gemm_ref.rung import DEFAULT_VARIANT
from gemm_ref.sass import tools
from tests.triton_kernels.harness import opcodes_in, total

pytest.importorskip("triton")

THREADS = 256  # of s16's and s17's blocks
ROWS, COLUMNS = 128, 256  # of their tiles


@functools.cache
def compiled(stage: str, dialect: str, math: str = "bf16", variant: str = DEFAULT_VARIANT, capability=(9, 0)):
    from triton_kernels.launcher import compile_for_inspection

    sizes = (4096,) * 3
    return compile_for_inspection(stage, dialect, *sizes, math=math, variant=variant, capability=capability)


def ptx(*which) -> str:
    return compiled(*which).asm["ptx"]


def ttgir(*which) -> str:
    return compiled(*which).asm["ttgir"]


def opcodes(*which) -> Counter[str]:
    return opcodes_in(ptx(*which))


def products(*which) -> set[str]:
    """The shapes of the multiplying instructions."""
    return set(re.findall(r"(?:wgmma\.mma_async|mma)\.sync\.aligned\.(m\d+n\d+k\d+)", ptx(*which)))


def pendings(*which) -> list[str]:
    """How many slices' products may be under way after each wait in the TTGIR."""
    return re.findall(r"pendings = (\d+)", ttgir(*which))


@pytest.mark.parametrize("math, k", [("bf16", 16), ("tf32", 8)])
def test_dot_becomes_wgmma_where_there_is_wgmma(math, k):
    assert products("s15", "triton", math) == {f"m64n128k{k}"}
    assert products("s16", "triton", math) == {f"m64n256k{k}"}
    assert pendings("s15", "triton", math) == ["0"]
    assert "1" in pendings("s16", "triton", math)


def test_dot_becomes_mma_sync_where_there_is_none():
    assert products("s15", "triton", "bf16", DEFAULT_VARIANT, (8, 0)) == {"m16n8k16"}


def test_tf32_turns_b_round_in_triton():
    """wgmma reads K-major operands of 32 bits alone, and B lies by rows."""
    for stage in ("s15", "s16"):
        layouts = re.findall(r"nvmma_shared<\{[^}]*transposed = (\w+)", ttgir(stage, "triton", "tf32"))
        assert sorted(layouts) == ["false", "true"], stage
        assert "transposed = true" not in ttgir(stage, "triton", "bf16")
    # s15: B by the word, A by four of them; 128 threads
    counts = opcodes("s15", "triton", "tf32")
    assert (counts["st.shared.b32"], total(counts, "st.shared.v4") >= 8) == (32 * 128 // 128, True)
    # s16: two slices before the loop and one in it, of 32 deep
    sizes = Counter(re.findall(r"cp\.async\.c[ag]\S* \[[^\n]*?, (0x\w+),", ptx("s16", "triton", "tf32")))
    assert sizes == {"0x4": 3 * 32 * COLUMNS // THREADS, "0x10": 3 * 32 * ROWS // 4 // THREADS}


@pytest.mark.parametrize("stage, slices", [("s15", 1), ("s16", 4)])
def test_gluon_multiplies_fragments_that_ldmatrix_reads(stage, slices):
    depth = 64 if stage == "s15" else 32
    counts = opcodes(stage, "gluon")
    assert products(stage, "gluon") == {"m16n8k16"}
    steps = slices * depth // 16
    assert total(counts, "mma.sync") == steps * (64 // 16) * (64 // 8)
    ahead = 4 if stage == "s16" else 0  # of B, before the loop
    assert total(counts, "ldmatrix") == steps * 8 + ahead
    assert sum(count for name, count in counts.items() if "ldmatrix" in name and ".trans" in name) == steps * 4 + ahead


@pytest.mark.parametrize("math", ["bf16", "tf32"])
def test_s16_gluon_has_one_barrier_a_slice(math):
    """One before the loop, for the first slice."""
    assert opcodes("s16", "gluon", math)["bar.sync"] == 1 + 4


@pytest.mark.parametrize("dialect", ["triton", "gluon"])
@pytest.mark.parametrize("stage", ["s17", "s18"])
def test_tma_brings_the_slices_and_takes_c_away(stage, dialect):
    counts, text = opcodes(stage, dialect), ptx(stage, dialect)
    assert products(stage, dialect) == {"m64n256k16"}
    assert total(counts, "cp.async.bulk.tensor.2d.shared") and total(counts, "cp.async.bulk.tensor.2d.global")
    assert total(counts, "stmatrix") and not total(counts, "st.global", "ld.global", "cp.async.c")
    assert "1" in pendings(stage, dialect)  # a slice is multiplied while the next is waited for
    assert ("setmaxnreg" in text) == (stage == "s18" and dialect == "gluon")


def test_b_by_rows_is_the_operand_as_it_lies_in_16_bits():
    """The last two numbers of a wgmma say whether its operands lie along M and N."""
    for dialect in ("triton", "gluon"):
        last = set(re.findall(r"wgmma\.mma_async[^\n]*?, (\d), (\d);", ptx("s17", dialect)))
        assert last == {("0", "1")}, dialect


def test_s18_gluon_shares_out_the_registers():
    counts = Counter(re.findall(r"setmaxnreg\.(\w+)\.sync\.aligned\.u32\s+(\d+)", ptx("s18", "gluon")))
    assert counts["inc", "232"] == counts["dec", "232"] == 1 and counts["dec", "40"]


def test_s18_triton_stores_c_inside_the_loop_over_slices():
    """Its two loops are one, so the slices of the next tile are on their way meanwhile; s17's loop ends before."""
    for stage, inside in (("s17", False), ("s18", True)):
        after = ttgir(stage, "triton").split("ttng.warp_group_dot ")[1]
        order = re.findall(r"async_tma_copy_local_to_global|scf\.yield", after)
        assert order[-1] == ("scf.yield" if inside else "async_tma_copy_local_to_global")
        assert order.count("async_tma_copy_local_to_global") == 2


@pytest.mark.parametrize("stage, dialect, math", [
    ("s16", "gluon", "bf16"), ("s16", "gluon", "tf32"), ("s16", "triton", "bf16"),
    *[(stage, dialect, "bf16") for stage in ("s17", "s18") for dialect in ("triton", "gluon")],
])  # fmt: skip
def test_nothing_spills_and_no_wgmma_waits_for_the_one_before(stage, dialect, math):
    cubin = compiled(stage, dialect, math).asm["cubin"]
    (usage,) = tools.usage(cubin).values()
    assert usage.stack_bytes == 0
    text = tools.disassemble(cubin)
    assert not re.search(r"\b(STL|LDL)\b", text)
    # Serialised, each would begin with a fence of its own.
    assert len(re.findall(r"HGMMA", text)) == 4 * len(re.findall(r"WARPGROUP\.ARRIVE", text))
