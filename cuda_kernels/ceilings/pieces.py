"""Pieces of PTX for loops.cu: what each measures is in the table or function that it is from."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

LINE = 128  # bytes
_HALVES = "{{ .reg .b16 low, high; mov.b32 {{low, high}}, %0; {} }}"

# An instruction on the result of another, in a chain; or a short sequence that ends with it. name -> (opcodes, PTX)
PIPES = MappingProxyType(
    {
        "FFMA": ("FFMA", "fma.rn.f32 %0, %0, %6, %7;"),
        "FADD": ("FADD", "add.rn.f32 %0, %0, %6;"),
        "FMUL": ("FMUL", "mul.rn.f32 %0, %0, %6;"),
        "FMNMX": ("FMNMX", "max.f32 %0, %0, %6;"),
        "IADD3": ("IADD3", "{ .reg .b32 t; add.u32 t, %0, %6; add.u32 %0, t, %7; }"),
        "LOP3": ("LOP3", "lop3.b32 %0, %0, %6, %7, 0xe2;"),
        "IMAD": ("IMAD", "mad.lo.u32 %0, %0, %6, %7;"),
        "IMAD.HI": ("IMAD.HI", "mad.hi.u32 %0, %0, %6, %7;"),
        "IMAD.WIDE": ("IMAD.WIDE", "{ .reg .b64 t; mul.wide.u32 t, %0, %6; mov.b64 {%1, %0}, t; }"),
        "LEA.HI": ("LEA.HI", "{ .reg .b32 t; shr.u32 t, %0, 3; add.u32 %0, t, %6; }"),
        "SHF": ("SHF", "shf.l.wrap.b32 %0, %0, %6, %7;"),
        "PRMT": ("PRMT", "prmt.b32 %0, %0, %6, %7;"),
        "SEL": ("SEL", "selp.b32 %0, %0, %6, q;"),
        "ISETP+SEL": ("ISETP SEL", "setp.lt.u32 q, %0, %6; selp.b32 %0, %7, %0, q;"),
        "VOTE+ISETP": ("VOTE ISETP", "vote.sync.ballot.b32 %0, q, 0xffffffff; setp.ne.u32 q, %0, %6;"),
        "HFMA2": ("HFMA2", "fma.rn.f16x2 %0, %0, %6, %7;"),
        "HFMA2.BF16_V2": ("HFMA2.BF16_V2", "fma.rn.bf16x2 %0, %0, %6, %7;"),
        "HADD2.F32": ("HADD2.F32", _HALVES.format("cvt.f32.f16 %0, low;")),
        "F2FP.F16.F32": ("F2FP.F16", "cvt.rn.f16x2.f32 %0, %0, %6;"),
        "F2FP.BF16.F32": ("F2FP.BF16", "cvt.rn.bf16x2.f32 %0, %0, %6;"),
        "F2FP.E4M3.F32+PRMT": (
            "F2FP.E4M3 PRMT",
            _HALVES.format("cvt.rn.satfinite.e4m3x2.f32 low, %0, %6; mov.b32 %0, {low, high};"),
        ),
        "I2FP": ("I2FP", "cvt.rn.f32.s32 %0, %0;"),
        "F2I": ("F2I", "cvt.rzi.s32.f32 %0, %0;"),
        "FRND": ("FRND", "cvt.rni.f32.f32 %0, %0;"),
        "POPC": ("POPC", "popc.b32 %0, %0;"),
        "MUFU": ("MUFU", "ex2.approx.ftz.f32 %0, %0;"),
        "SHFL": ("SHFL", "shfl.sync.bfly.b32 %0, %0, 1, 31, 0xffffffff;"),
        "S2R+SHF+SGXT+IADD3": ("S2R", "{ .reg .b32 t; mov.u32 t, %%warpid; add.u32 %0, %0, t; }"),
    }
)
PREDICATE = MappingProxyType({"declare": ".reg .pred q;", "setup": "setp.ne.u32 q, %6, 0;"})

# What moves %4 to %11 + (%4 - %11 + step) % (mask + 1), for a mask of ones
ADVANCE = (
    "{ .reg .b64 u; .reg .b32 t; sub.u64 u, %4, %11; cvt.u32.u64 t, u; add.u32 t, t, %9; and.b32 t, t, %10; "
    "cvt.u64.u32 u, t; add.u64 %4, %11, u; }"
)
WORDS = MappingProxyType({32: "%0", 64: "{%0, %1}", 128: "{%0, %1, %2, %3}"})  # of a chain, by bits
KINDS = MappingProxyType({32: "b32", 64: "v2.b32", 128: "v4.b32"})


def load(space: str, address: str, bits: int) -> str:
    """A load of each lane; its words are added to the chain's, so that each is needed."""
    names = [f"t{i}" for i in range(bits // 32)]
    adds = " ".join(f"add.f32 %{i}, %{i}, {name};" for i, name in enumerate(names))
    target = ", ".join(names)
    return f"{{ .reg .b32 {target}; ld.{space}.{KINDS[bits]} {{{target}}}, [{address}]; {adds} }}".replace("{t0}", "t0")


def load_matrices(count: int, address: str, *, summed: bool) -> str:
    """Matrices of 8 x 8 from shared memory, in the chain's words or combined with them."""
    names = [f"t{i}" if summed else f"%{i}" for i in range(count)]
    ptx = f"ldmatrix.sync.aligned.m8n8.x{count}.shared.b16 {{{', '.join(names)}}}, [{address}];"
    adds = " ".join(f"xor.b32 %{i}, %{i}, {name};" for i, name in enumerate(names))
    return f"{{ .reg .b32 {', '.join(names)}; {ptx} {adds} }}" if summed else ptx


def mma(shape: str, kind: str, first: str = "{%6, %6, %6, %6}", sums: str = WORDS[128]) -> str:
    """A product that is added to the chain's words, or of which the chain's words are the `first` operand."""
    return f"mma.sync.aligned.{shape}.row.col.f32.{kind}.{kind}.f32 {WORDS[128]}, {first}, {{%7, %7}}, {sums};"


def wgmma(kind: str, n: int, source: str, pending: int) -> dict[str, Any]:
    """Products of the same operands in shared memory, or of A in registers; `pending` groups may be under way."""
    k, of_both, of_b = {"bf16": ("k16", ", 0, 0", ", 0"), "tf32": ("k8", "", ""), "e4m3": ("k32", "", "")}[kind]
    sums = [f"d{i}" for i in range(n // 2)]
    a, layouts = ("da", of_both) if source == "shared" else (WORDS[128], of_b)
    name = f"wgmma.mma_async.sync.aligned.m64n{n}{k}.f32.{kind}.{kind}"
    # A descriptor: the address in units of 16 bytes, 1024 bytes from 8 rows to the next, and the 128-byte swizzle
    setup = "{ .reg .b32 t; shr.u32 t, %13, 4; cvt.u64.u32 da, t; } or.b64 da, da, 0x4000004000010000;"
    setup += " add.u64 db, da, 512;" + "".join(f" mov.f32 {each}, 0f00000000;" for each in sums)
    wait = "wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned {}; wgmma.fence.sync.aligned;"
    return {
        "body": f"{name} {{{', '.join(sums)}}}, {a}, db, 1, 1, 1{layouts};",
        "opcode": "QGMMA" if kind == "e4m3" else "HGMMA",
        "declare": f".reg .f32 d<{n // 2}>; .reg .b64 da, db;",
        "setup": f"{setup} wgmma.fence.sync.aligned;",
        "after": wait.format(pending),
        "finish": wait.format(0) + "".join(f" add.f32 d0, d0, {each};" for each in sums[1:]) + " mov.b32 %0, d0;",
    }


WAIT = "{ .reg .pred done; WAIT: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %2; @!done bra WAIT; }"
BOX = "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%1], [%12, {0, row}], [%0];"
BULK = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%1], [%4], {size}, [%0];"
STORE = "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%12, {0, row}], [%5]; cp.async.bulk.commit_group;"
ROW = MappingProxyType(  # the first row of a box: block after block, and its step
    {
        "declare": ".reg .b32 row;",
        "setup": "mov.u32 row, %%ctaid.x; mul.lo.u32 row, row, {apart}; add.u32 row, row, %6;",
    }
)
_INITIALISE = (
    "mov.b32 %0, %5; add.u32 %1, %5, 1024; mov.b32 %2, 0; "
    "mbarrier.init.shared::cta.b64 [%0], 1; fence.proxy.async.shared::cta; "
)


def next_row(rows: int, region: int) -> str:
    """What moves `row` on, in a region of so many bytes."""
    return f"add.u32 row, row, {rows}; and.b32 row, row, {region // LINE - 1};"


def ring(copy: str, size: int, region: int, apart: int) -> dict[str, Any]:
    """Copies of `size` bytes, one for each chain, each with its barrier; a body waits for one and starts the next."""
    start = f"mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], {size}; {copy.replace('{size}', str(size))}"
    body = f"{WAIT} xor.b32 %2, %2, 1; {start} {next_row(size // LINE, region)}"
    setup = ROW["setup"].format(apart=apart) + " " + _INITIALISE + start
    return {"body": body, "declare": ROW["declare"], "setup": setup, "finish": WAIT, "offset": size + 1024}


def burst(size: int, count: int) -> dict[str, Any]:
    """A warp's copies of boxes, on one barrier, on which the bytes of a trip are waited for at its end."""
    elected = "{{ .reg .pred one; elect.sync _|one, 0xffffffff; @one {} }}".format
    arrive = elected(f"mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], {count * size};")
    setup = ROW["setup"].format(apart=0) + " " + _INITIALISE
    after = f"{arrive} {WAIT} xor.b32 %2, %2, 1;"
    return {"body": elected(BOX), "declare": ROW["declare"], "setup": setup, "after": after, "unroll": count}


def store(rows: int, region: int, until: str) -> dict[str, Any]:
    """Boxes from shared memory to global memory, each waited for `until` it is written (empty) or `.read`."""
    wait = "cp.async.bulk.wait_group{} 0;"
    setup = ROW["setup"].format(apart=0)
    body = f"{STORE} {wait.format(until)} {next_row(rows, region)}"
    return {"body": body, "declare": ROW["declare"], "setup": setup, "finish": wait.format("")}


def exchange(other: int) -> dict[str, Any]:
    """Warps that each arrive at the barrier `other` bytes from their own, by exclusive or, and wait for their own."""
    setup = (
        "mov.b32 phase, 0; mov.u32 mine, %%tid.x; and.b32 other, mine, 31; setp.eq.u32 first, other, 0; "
        "shr.u32 mine, mine, 5; shl.b32 mine, mine, 3; add.u32 mine, mine, %5; "
        f"xor.b32 other, mine, {other}; @first mbarrier.init.shared::cta.b64 [mine], 1;"
    )
    wait = WAIT.replace("%0", "mine").replace("%2", "phase")
    body = f"@first mbarrier.arrive.shared::cta.b64 _, [other]; {wait} xor.b32 phase, phase, 1;"
    return {"body": body, "declare": ".reg .b32 mine, other, phase; .reg .pred first;", "setup": setup}
