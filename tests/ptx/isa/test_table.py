"""The table of opcodes is whole: each has a test and says what it does, and what is not in it is named."""

import importlib
from pathlib import Path
from types import ModuleType

import pytest

from gemm_ref import ptx
from gemm_ref.ptx.isa.table import OPCODES, SECTIONS
from tests.ptx.harness import COVERED, kernel_text


def _module(name: str) -> ModuleType:
    return importlib.import_module(f"tests.ptx.isa.{name}")


def test_every_opcode_of_the_table_has_a_test():
    for path in Path(__file__).parents[1].rglob("test_*.py"):
        importlib.import_module(f"tests.ptx.{path.parent.name}.{path.stem}")
    cases = [case for name in ("test_floats", "test_integers") for case in _module(name).CASES]
    opcodes = {case.opcode for case in cases} | set(COVERED)
    assert opcodes == set(OPCODES)


def test_every_opcode_is_in_the_table_once():
    listed = [opcode for rows in SECTIONS.values() for row in rows for opcode in row.opcodes]
    assert len(listed) == len(set(listed)) == len(OPCODES)


@pytest.mark.parametrize("row", [row for rows in SECTIONS.values() for row in rows], ids=lambda row: row.opcodes[0])
def test_a_builder_says_what_its_opcodes_do(row):
    assert row.build.__doc__, f"the builder of {row.opcodes} has no docstring"


UNKNOWN = """add.rz.bf16 %h1, %h1, %h1; | add.sat.s16 %h1, %h1, %h1; | fma.rz.f16 %h1, %h1, %h1, %h1;
fma.rn.sat.bf16 %h1, %h1, %h1, %h1; | sin.f64 %d1, %d1; | cvt.rna.satfinite.tf32.f32 %r1, %f1;
| cvt.rn.sat.bf16.f32 %h1, %f1;
cvt.s32.f32 %r1, %f1; | cvt.rzi.ftz.s32.f64 %r1, %d1; | setp.lt.ftz.f64 %p1, %d1, %d1; | setp.lo.s32 %p1, %r1, %r1;
mov.b128 %r1, %r1; | mov.x.b32 %r1, %r1; | ld.global.b128 %r1, [%d1]; | ld.bogus.u32 %r1, [%d1];
| st.async.u32 [%d1], %r1;
atom.global.nand.b32 %r1, [%d1], 1; | atom.global.u32 %r1, [%d1], 1; | red.async.add.u32 [%d1], %r1;
cp.async.bulk.shared.global [%r1], [%d1], 16; | cp.async.mbarrier.bogus.b64 [%r1];
| ldmatrix.sync.aligned.m16n16.b8 {%r1}, [%r1];
shfl.idx.b32 %r1, %r1, 0, 31; | shfl.sync.around.b32 %r1, %r1, 0, 31, -1; | vote.ballot.b32 %r1, %p1;
| vote.sync.most.pred %p1, %p1, -1; | match.some.sync.b32 %r1, %r1, -1; | testp.odd.f32 %p1, %f1;
bar.red.sum.u32 %r1, 0, %p1; | barrier.cluster.bogus; | mbarrier.arrive.bogus.b64 _, [%r1];
cp.async.bulk.bogus.shared::cta.global.mbarrier::complete_tx::bytes [%r1], [%d1], 16, [%r1];
cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%d1], [%r1], 16; | min.relu.f32 %f1, %f1, %f1;
mapa.shared.u32 %r1, %r1, %r1; | setmaxnreg.inc.u32 32; | call missing; | vabsdiff4.u32.u32.u32.max %r1, %r1, %r1, %r1;
| prmt.f4e.b32 %r1, %r1, %r1, %r1; | isspacep.const %p1, %d1; | movmatrix.sync.aligned.m8n8.b16 %r1, %r1;
lop3.or.b32 %r1, %r1, %r1, %r1, 0xff; | addc.sat.u32 %r1, %r1, %r1;
wgmma.mma_async.sp.sync.aligned.m64n8k32.f32.f16.f16 {%f1, %f1, %f1, %f1}, %d1, %d1, %r1, 0, %p1, 1, 1, 0, 0;
wgmma.bogus;
mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32 {%r1}, {%r1}, {%r1}, {%r1};
mma.sync.aligned.m16n8k64.row.col.satfinite.s32.s4.s4.s32 {%r1}, {%r1}, {%r1}, {%r1};
wmma.load.a.sync.aligned.row.m16n16k32.shared.s8 {%r1}, [%r1], %r1;
wmma.load.c.sync.aligned.row.m16n16k8.shared.tf32 {%r1}, [%r1], %r1;
wmma.store.a.sync.aligned.row.m16n16k16.f16 [%r1], {%r1}, %r1;
wmma.mma.sync.aligned.row.col.m8n8k4.f64.f64.f64.f64.rz {%d1}, {%d1}, {%d1}, {%d1};"""


@pytest.mark.parametrize("text", [part.strip() for part in UNKNOWN.replace("\n", "|").split("|") if part.strip()])
def test_an_instruction_that_is_missing_is_named_with_its_line(text):
    body = ".reg .b32 %r<2>; .reg .f32 %f<2>; .reg .f64 %d<2>; .reg .b16 %h<2>; .reg .pred %p<2>;\n" + text
    with pytest.raises(ptx.Unsupported) as caught:
        ptx.load(kernel_text(body))
    assert str(caught.value).startswith(f"probe.cu:2: {text.rstrip(';')}")
