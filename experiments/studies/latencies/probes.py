"""The constants that `latencies` measures, each by a loop of PTX: what it repeats, and what its clocks are divided by.

Names are `table.entry`, as in gemm_ref/clock/gpus.toml:
- latency: clocks from an instruction to one that reads its result, of one warp
- interval: clocks of a scheduler for one instruction, with eight warps each
- request: clocks of a multiprocessor for one instruction of a warp, with 16 warps
- alone: the same with one warp, so with one scheduler
- release: clocks from an instruction to one that overwrites an operand, and its own latency is not subtracted
- bandwidth: bytes a clock of a multiprocessor that is alone, or of each where all are busy
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from cuda_kernels.ceilings.loops import Loop

CLOCKS, BYTES, OPERATIONS = "clocks", "bytes per clock", "operations per clock"
SHARED_BYTES = 200 * 1024  # of a block that is alone on a multiprocessor
ALL = 0  # as many blocks as multiprocessors
LINE = 128
RING, RANDOM, BOXES = "ring", "random", "boxes"  # what `data` holds: addresses of lines in turn, or at random


@dataclass(frozen=True)
class Probe:
    """One constant."""

    name: str
    loop: Loop
    description: str
    amount: float = 1.0  # the loop's clocks for each body are divided by it; of a rate, what a body of a block moves
    unit: str = CLOCKS
    data: str = ""  # RING, RANDOM or BOXES; otherwise zeros
    data_bytes: int = 1 << 24
    box_rows: int = 0
    build = None  # `latencies` compiles its loops itself

    def value(self, clocks_per_body: float) -> float:
        """The constant, from the clocks of a block for each body of its loop."""
        return clocks_per_body / self.amount if self.unit == CLOCKS else self.amount / clocks_per_body

    def __str__(self) -> str:
        return self.name


def walk(**fields: int) -> tuple[tuple[str, int], ...]:
    return tuple(fields.items())


# ---- pipes: an instruction that reads what the one before it wrote, and independent ones in many warps

_HALVES = "{{ .reg .b16 low, high; mov.b32 {{low, high}}, %0; {} }}"
_PREDICATE = dict(declare=".reg .pred q;", setup="setp.ne.u32 q, %6, 0;")
_SMALL = walk(a=0x3F800001, b=0x3F800003, spread=3)
_PIPES: dict[str, tuple[str, str]] = {
    "FFMA": ("FFMA", "fma.rn.f32 %0, %0, %6, %7;"),
    "FADD": ("FADD", "add.rn.f32 %0, %0, %6;"),
    "FMUL": ("FMUL", "mul.rn.f32 %0, %0, %6;"),
    "FMNMX": ("FMNMX", "max.f32 %0, %0, %6;"),
    "IADD3": ("IADD3", "{ .reg .b32 t; add.u32 t, %0, %6; add.u32 %0, t, %7; }"),
    "LOP3": ("LOP3", "lop3.b32 %0, %0, %6, %7, 0xe2;"),
    "IMAD": ("IMAD", "mad.lo.u32 %0, %0, %6, %7;"),
    "IMAD.HI": ("IMAD.HI", "mad.hi.u32 %0, %0, %6, %7;"),
    "IMAD.WIDE": (
        "IMAD.WIDE",
        "{ .reg .b64 t; mov.b64 t, {%0, %1}; mad.wide.u32 t, %0, %7, t; mov.b64 {%0, %1}, t; }",
    ),
    "LEA.HI": ("LEA.HI", "{ .reg .b32 t; shr.u32 t, %0, 3; add.u32 %0, t, %6; }"),
    "SHF": ("SHF", "shf.l.wrap.b32 %0, %0, %6, %7;"),
    "PRMT": ("PRMT", "prmt.b32 %0, %0, %6, %7;"),
    "SEL": ("SEL", "selp.b32 %0, %0, %6, q;"),
    "ISETP+SEL": ("ISETP SEL", "setp.lt.u32 q, %0, %6; selp.b32 %0, %7, %0, q;"),
    "POPC": ("POPC", "popc.b32 %0, %0;"),
    "HFMA2": ("HFMA2", "fma.rn.f16x2 %0, %0, %6, %7;"),
    "HFMA2.BF16_V2": ("HFMA2.BF16_V2", "fma.rn.bf16x2 %0, %0, %6, %7;"),
    "HADD2.F32": ("HADD2.F32", _HALVES.format("cvt.f32.f16 %0, low;")),
    "F2FP.F16.F32": ("F2FP.F16", "cvt.rn.f16x2.f32 %0, %0, %6;"),
    "F2FP.BF16.F32": ("F2FP.BF16", "cvt.rn.bf16x2.f32 %0, %0, %6;"),
    "F2FP.E4M3.F32": ("F2FP.E4M3", _HALVES.format("cvt.rn.satfinite.e4m3x2.f32 low, %0, %6; mov.b32 %0, {low, high};")),
    "F2I": ("F2I", "cvt.rzi.s32.f32 %0, %0;"),
    "I2FP": ("I2FP", "cvt.rn.f32.s32 %0, %0;"),
    "FRND": ("FRND", "cvt.rni.f32.f32 %0, %0;"),
    "MUFU": ("MUFU", "ex2.approx.ftz.f32 %0, %0;"),
    "SHFL": ("SHFL", "shfl.sync.bfly.b32 %0, %0, 1, 31, 0xffffffff;"),
    "VOTE": ("VOTE", "vote.sync.ballot.b32 %0, q, 0xffffffff; setp.ne.u32 q, %0, %6;"),
    "S2R": ("S2R", "{ .reg .b32 t; mov.u32 t, %%warpid; add.u32 %0, %0, t; }"),
}
_PAIRS = ("FFMA IMAD", "FFMA IADD3", "FFMA FADD", "FFMA HFMA2", "FFMA LOP3", "FFMA F2FP.BF16.F32", "IMAD IADD3",
          "IMAD HFMA2", "IADD3 LOP3", "IADD3 SHF", "LOP3 PRMT", "LOP3 SEL", "LOP3 F2FP.BF16.F32",
          "MUFU F2I", "MUFU FFMA", "IMAD.WIDE FFMA")  # fmt: skip


def _pipes() -> Iterator[Probe]:
    for name, (opcode, ptx) in _PIPES.items():
        loop = dict(unroll=256, walk=_SMALL, **_PREDICATE)
        wide = dict(loop, chains=1 if "q" in ptx else 8, threads=1024)
        yield Probe(f"latency.{name}", Loop(ptx, opcode, **loop), f"{name} on the result of another")
        yield Probe(f"interval.{name}", Loop(ptx, opcode, **wide), f"{name}, independent", amount=8)
    for pair in _PAIRS:
        (one, first), (other, second) = (_PIPES[name] for name in pair.split())
        for word in "10":
            second = second.replace(f"%{word}", f"%{int(word) + 2}")
        loop = Loop(f"{first} {second}", f"{one} {other}", 8, 128, threads=1024, walk=_SMALL, **_PREDICATE)
        yield Probe(f"pair.{pair.replace(' ', '+')}", loop, f"{pair.replace(' ', ' and ')} in turn, both", amount=8)
    yield Probe("latency.BRA", Loop("add.u32 %0, %0, %6;", "BRA", unroll=1), "a trip of a loop with one instruction: it, a count, a comparison, a jump")


# ---- shared memory

_WIDTHS = {"32": ("f32", 4, "{t0}"), "64": ("v2.f32", 8, "{t0, t1}"), "128": ("v4.f32", 16, "{t0, t1, t2, t3}")}
_REGISTERS = {"f32": "%0", "v2.f32": "{%0, %1}", "v4.f32": "{%0, %1, %2, %3}"}
_OWN = dict(shared_bytes=SHARED_BYTES, shared_mask=0xFFFFFFFF)


def _load(space: str, address: str, kind: str) -> str:
    """A load whose words are added to %0, so that each is needed."""
    words = {"f32": 1, "v2.f32": 2, "v4.f32": 4}[kind]
    names = ", ".join(f"t{i}" for i in range(words))
    adds = " ".join(f"add.f32 %{i}, %{i}, t{i};" for i in range(words))
    target = names if words == 1 else f"{{{names}}}"
    return f"{{ .reg .f32 {names}; ld.{space}.{kind} {target}, [{address}]; {adds} }}"


def _shared() -> Iterator[Probe]:
    for bits, (kind, lane_bytes, _) in _WIDTHS.items():
        suffix = "" if bits == "32" else f".{bits}"
        chase = Loop(f"ld.volatile.shared.{kind.replace('f', 'b')} {_REGISTERS[kind]}, [%0];", f"LDS{suffix}",
                     setup="mov.b32 %0, %5;", walk=walk(shared_lane_bytes=lane_bytes, **_OWN))  # fmt: skip
        yield Probe(f"latency.LDS.{bits}", chase, "a load whose address is the result of another")
        many = dict(chains=4, unroll=64, offset=32 * lane_bytes, walk=walk(shared_lane_bytes=lane_bytes, **_OWN))
        load = (_load("shared", "%5", kind), f"LDS{suffix}")
        store = (f"st.shared.{kind} [%5], {_REGISTERS[kind].replace('f', 'b')};", f"STS{suffix}")
        for name, body, opcode in (("LDS", *load), ("STS", *store)):
            for table, warps in (("request", 16), ("alone", 1)):
                loop = Loop(body, opcode, threads=32 * warps, **many)
                yield Probe(f"{table}.{name}.{bits}", loop, f"no bank conflicts, {warps} warps", amount=warps)
    for ways in (2, 8, 32):
        loop = Loop(_load("shared", "%5", "f32"), "LDS", 4, 32, 128, threads=512,
                    walk=walk(shared_lane_bytes=4 * ways, **_OWN))  # fmt: skip
        yield Probe(f"request.LDS.32 {ways}-way", loop, f"{ways} lanes of a bank each, 16 warps", amount=16)
    for count in (1, 2, 4):
        registers = ["%0", "%1", "%2", "%3"][:count]
        ld = f"ldmatrix.sync.aligned.m8n8.x{count}.shared.b16 {{{', '.join(registers)}}}"
        same = dict(_OWN, shared_mask=0)
        opcode = "LDSM" if count == 1 else f"LDSM.{count}"
        loop = Loop(f"{ld}, [%0];", opcode, setup="mov.b32 %0, %5;", walk=walk(**same))
        yield Probe(f"latency.LDSM.{count}", loop, "a load whose address is the result of another")
        names = [f"t{i}" for i in range(count)]
        adds = " ".join(f"xor.b32 %{i}, %{i}, t{i};" for i in range(count))
        many = f"{{ .reg .b32 {', '.join(names)}; {ld.split(' {')[0]} {{{', '.join(names)}}}, [%5]; {adds} }}"
        for table, warps in (("request", 16), ("alone", 1)):
            loop = Loop(many, opcode, 4, 64, 512, threads=32 * warps, walk=walk(shared_lane_bytes=16, **_OWN))
            yield Probe(f"{table}.LDSM.{count}", loop, f"no bank conflicts, {warps} warps", amount=warps)
    loop = Loop("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%5], {%0, %1, %2, %3};", "STSM", 4, 64, 512, threads=512,
                walk=walk(shared_lane_bytes=16, **_OWN))  # fmt: skip
    yield Probe("request.STSM.4", loop, "no bank conflicts, 16 warps", amount=16)
    loop = Loop("st.volatile.shared.b32 [%5], %0; ld.volatile.shared.b32 %0, [%5];", "LDS STS",
                walk=walk(shared_lane_bytes=4, **_OWN))  # fmt: skip
    yield Probe("latency.STS+LDS", loop, "a word that is stored, loaded and stored again")
    atomic = Loop("atom.shared.add.u32 %0, [%5], %0;", "ATOMS", walk=walk(shared_lane_bytes=4, **_OWN))
    yield Probe("latency.ATOMS", atomic, "an addition to shared memory on the result of another")


def _releases() -> Iterator[Probe]:
    """Each waits for the operands' counter of the one before: the machine code is patched."""
    own = walk(shared_lane_bytes=16, lane_bytes=16, shared_bytes=SHARED_BYTES)
    bodies = {
        "LDS.32": ("LDS", _load("shared", "%5", "f32")),
        "LDS.128": ("LDS.128", _load("shared", "%5", "v4.f32")),
        "STS.32": ("STS", "st.shared.b32 [%5], %0;"),
        "STS.128": ("STS.128", "st.shared.v4.b32 [%5], {%0, %1, %2, %3};"),
        "LDG.32": ("LDG", _load("global.ca", "%8", "f32")),
        "LDG.128": ("LDG.128", _load("global.ca", "%8", "v4.f32")),
        "STG.32": ("STG", "st.global.b32 [%8], %0;"),
        "STG.128": ("STG.128", "st.global.v4.b32 [%8], {%0, %1, %2, %3};"),
        "REDG.32": ("REDG", "red.global.add.f32 [%8], %0;"),
    }
    for name, (opcode, ptx) in bodies.items():
        loop = Loop(ptx, opcode, 4, 16, 512, walk=own, waits_for_operands=True)
        yield Probe(f"release.{name}", loop, "from its issue until its operands have been read, idle")


# ---- global memory

_ADVANCE = (
    "{ .reg .b64 u; .reg .b32 t; sub.u64 u, %4, %11; cvt.u32.u64 t, u; add.u32 t, t, %9; and.b32 t, t, %10; "
    "cvt.u64.u32 u, t; add.u64 %4, %11, u; }"
)
_TILE = 1024 * 16  # bytes that a block of 1024 threads moves with one instruction
_L2_BYTES = 1 << 24  # in L2, also where each half of it has a copy
_WAIT_ALL = "cp.async.wait_all;"


def _global() -> Iterator[Probe]:
    for level, kind, data_bytes in (
        ("L1", "ca", 1 << 10),
        ("L2", "cg", 1 << 23),
        ("DRAM", "cg", 1 << 28),
        ("DRAM far", "cg", 1 << 32),
    ):
        chase = Loop(
            f"ld.global.{kind}.b64 %4, [%4];",
            "LDG",
            blocks=ALL if level == "L2" else 1,
            walk=walk(block_bytes=61 * LINE),
        )
        yield Probe(
            f"latency.LDG {level}",
            chase,
            f"a load whose address is the result of another, from {data_bytes >> 10} KiB",
            data=RANDOM,
            data_bytes=data_bytes,
        )
    patterns = {"LDG.32": ("f32", 4), "LDG.64": ("v2.f32", 8), "LDG.128": ("v4.f32", 16), "LDG.32 broadcast": ("f32", 0),
                "LDG.32 8 lines": ("f32", 32), "LDG.32 32 lines": ("f32", LINE), "LDG.128 32 lines": ("v4.f32", LINE)}  # fmt: skip
    for name, (kind, lane_bytes) in patterns.items():
        opcode = name.split()[0].removesuffix(".32")
        for table, warps in (("request", 16), ("alone", 1)):
            offset = (
                4 * int(kind[1])
                if lane_bytes == LINE and kind[1] == "4"
                else 4
                if lane_bytes == LINE
                else max(32 * lane_bytes, 4)
            )
            loop = Loop(
                _load("global.ca", "%8", kind),
                opcode,
                4,
                8 if offset == 16 else 16,
                offset,
                after=_ADVANCE,
                threads=32 * warps,
                walk=walk(lane_bytes=lane_bytes),
            )
            yield Probe(f"{table}.{name}", loop, f"hits in L1, {warps} warps", amount=warps)
    moving = dict(chains=4, unroll=8, offset=_TILE, after=_ADVANCE, threads=1024)
    where = walk(
        step=8 * _TILE,
        mask=_L2_BYTES - 1,
        lane_bytes=16,
        warp_bytes=512,
        block_bytes=_TILE,
        shared_bytes=SHARED_BYTES,
        shared_lane_bytes=16,
        shared_warp_bytes=512,
    )
    narrow = walk(step=8 * _TILE, mask=_L2_BYTES - 1, lane_bytes=4, warp_bytes=128, block_bytes=_TILE)
    copies = dict(moving, offset=_TILE, after=f"cp.async.commit_group; cp.async.wait_group 1; {_ADVANCE}")
    bodies = {
        "LDG.128": (Loop(_load("global.cg", "%8", "v4.f32"), "LDG.128", walk=where, **moving), 16),
        "LDG.128 through L1": (Loop(_load("global.ca", "%8", "v4.f32"), "LDG.128", walk=where, **moving), 16),
        "LDG.32": (Loop(_load("global.ca", "%8", "f32"), "LDG", walk=narrow, **moving), 4),
        "STG.128": (Loop("st.global.v4.b32 [%8], {%0, %1, %2, %3};", "STG.128", walk=where, **moving), 16),
        "STG.32": (Loop("st.global.b32 [%8], %0;", "STG", walk=narrow, **moving), 4),
        "LDGSTS.128": (Loop("cp.async.cg.shared.global [%5], [%8], 16;", "LDGSTS", walk=where, **copies), 16),
    }
    for name, (loop, width) in bodies.items():
        for table, blocks in (("bandwidth_alone", 1), ("bandwidth", ALL)):
            yield Probe(
                f"{table}.{name}",
                replace(loop, blocks=blocks),
                "through L2" if "ST" in name[:2] else "from L2",
                1024 * width,
                BYTES,
            )
    add = dict(moving, walk=narrow, blocks=ALL)
    yield Probe(
        "atomics.REDG.F32",
        Loop("red.global.add.f32 [%8], %1;", "REDG", **add),
        "additions to L2, neighbours per lane, of each multiprocessor",
        1024,
        OPERATIONS,
    )
    same = dict(add, walk=walk(), offset=0)
    yield Probe(
        "atomics.REDG.F32 one address",
        Loop("red.global.add.f32 [%8], %1;", "REDG", **same),
        "additions to one word of L2, of each multiprocessor",
        1024,
        OPERATIONS,
    )
    yield Probe(
        "latency.ATOMG",
        Loop("atom.global.add.u32 %0, [%4], %0;", "ATOMG", walk=walk(lane_bytes=4)),
        "an addition to L2 on the result of another",
    )
    copy = Loop(
        f"cp.async.cg.shared.global [%5], [%4], 16; {_WAIT_ALL}",
        "LDGSTS",
        walk=walk(lane_bytes=16, shared_lane_bytes=16, shared_bytes=SHARED_BYTES),
    )
    yield Probe("latency.LDGSTS L2", copy, "a copy from L2 to shared memory until it is waited for")


# ---- the TMA unit: `chains` copies are under way, each with its barrier and its buffer

_WAIT = "{ .reg .pred done; WAIT: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %2; @!done bra WAIT; }"


def _tma() -> Iterator[Probe]:
    declare = ".reg .b32 row;"

    def ring(copy: str, opcode: str, size: int, chains: int, region: int, after: str = "", **more) -> Loop:
        start = f"mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], {size}; {copy}"
        setup = f"mov.u32 row, %6; mov.b32 %0, %5; add.u32 %1, %5, 1024; mov.b32 %2, 0; mbarrier.init.shared::cta.b64 [%0], 1; fence.proxy.async.shared::cta; {start}"
        step = f"add.u32 row, row, {size // LINE}; and.b32 row, row, {region // LINE - 1};"
        body = f"{_WAIT} xor.b32 %2, %2, 1; {start} {step}"
        return Loop(body, opcode, chains, 8, size + 1024, declare, setup, after, _WAIT, threads=1,
                    walk=walk(shared_bytes=SHARED_BYTES, step=8 * size, mask=region - 1, block_bytes=1 << 14), **more)  # fmt: skip

    tensor = (
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%1], [%12, {0, row}], [%0];"
    )
    for rows, level, region in (
        (8, "L2", _L2_BYTES),
        (64, "L2", _L2_BYTES),
        (128, "L2", _L2_BYTES),
        (256, "L2", _L2_BYTES),
        (64, "DRAM", 1 << 30),
        (128, "DRAM", 1 << 30),
    ):
        box = dict(data=BOXES, data_bytes=region, box_rows=rows)
        yield Probe(
            f"latency.UTMALDG {rows}x64 {level}",
            ring(tensor, "UTMALDG", rows * LINE, 1, region),
            "a box of 16-bit elements until its barrier completes, and the next copy's start",
            **box,
        )
    for table, rows, chains, blocks in (
        ("bandwidth_alone", 128, 4, 1),
        ("bandwidth_alone", 64, 8, 1),
        ("bandwidth", 128, 4, ALL),
    ):
        loop = ring(tensor, "UTMALDG", rows * LINE, chains, _L2_BYTES, blocks=blocks)
        yield Probe(
            f"{table}.UTMALDG {rows}x64",
            loop,
            f"from L2, {chains} boxes under way",
            rows * LINE,
            BYTES,
            BOXES,
            _L2_BYTES,
            rows,
        )
    yield Probe(
        "interval.UTMALDG",
        ring(tensor, "UTMALDG", 8 * LINE, 8, _L2_BYTES),
        "boxes of 8 x 64, 8 under way",
        data=BOXES,
        box_rows=8,
    )
    bulk = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%1], [%4], {}, [%0];"
    yield Probe(
        "latency.UBLKCP 8 KiB L2",
        ring(bulk.format(1 << 13), "UBLKCP", 1 << 13, 1, _L2_BYTES, _ADVANCE),
        "a bulk copy until its barrier completes",
    )
    yield Probe(
        "bandwidth_alone.UBLKCP 16 KiB",
        ring(bulk.format(1 << 14), "UBLKCP", 1 << 14, 4, _L2_BYTES, _ADVANCE),
        "from L2, 4 copies under way",
        1 << 14,
        BYTES,
    )
    store = (
        "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%12, {0, row}], [%5]; cp.async.bulk.commit_group;"
    )
    for name, wait, amount, unit in (
        ("latency.UTMASTG 64x64", "cp.async.bulk.wait_group 0;", 1, CLOCKS),
        ("latency.UTMASTG 64x64 read", "cp.async.bulk.wait_group.read 0;", 1, CLOCKS),
        ("bandwidth_alone.UTMASTG 64x64", "cp.async.bulk.wait_group.read 3;", 1 << 13, BYTES),
    ):
        body = f"{store} {wait} add.u32 row, row, 64; and.b32 row, row, {_L2_BYTES // LINE - 1};"
        loop = Loop(
            body,
            "UTMASTG",
            unroll=8,
            declare=declare,
            setup="mov.u32 row, %6;",
            finish="cp.async.bulk.wait_group 0;",
            threads=1,
            walk=walk(shared_bytes=SHARED_BYTES),
        )
        yield Probe(
            name,
            loop,
            "a box stored to L2: until its write, or its reading, is waited for",
            amount,
            unit,
            BOXES,
            _L2_BYTES,
            64,
        )


# ---- tensor cores

_ACCUMULATORS = "{%0, %1, %2, %3}"
_MMA = {
    "HMMA.16816.F32": ("m16n8k16", "f16", 4, 2),
    "HMMA.16816.F32.BF16": ("m16n8k16", "bf16", 4, 2),
    "HMMA.1688.F32.TF32": ("m16n8k8", "tf32", 4, 2),
}
_WGMMA = {
    "bf16": ("k16", ", 0, 0", ", 0"),
    "tf32": ("k8", "", ""),
    "e4m3": ("k32", "", ""),
}  # k, and layouts of A and B, of B


def _tensor_cores() -> Iterator[Probe]:
    for opcode, (shape, kind, a, b) in _MMA.items():
        operands = ", ".join(
            (_ACCUMULATORS, "{" + ", ".join(["%6"] * a) + "}", "{" + ", ".join(["%7"] * b) + "}", _ACCUMULATORS)
        )
        ptx = f"mma.sync.aligned.{shape}.row.col.f32.{kind}.{kind}.f32 {operands};"
        yield Probe(f"latency.{opcode}", Loop(ptx, opcode, walk=_SMALL), "on the sums of another")
        for warps in (4, 16):
            loop = Loop(ptx, opcode, 8, threads=32 * warps, walk=_SMALL)
            yield Probe(
                f"interval.{opcode} {warps} warps", loop, f"8 chains in each of {warps} warps", amount=warps / 4
            )
    for kind in _WGMMA:
        for n in (8, 16, 32, 64, 96, 128, 192, 256) if kind == "bf16" else (32, 64, 128, 256):
            for source in ("shared", "registers"):
                for groups in (1, 2):
                    loop = _wgmma(kind, n, source, groups, 32 if n < 64 else 16, 1)
                    yield Probe(
                        f"wgmma.{kind} n{n} {source} {groups}",
                        loop,
                        f"A from {source}, {groups} warpgroups",
                        amount=groups,
                    )
            if n in (8, 64, 128, 256):
                yield Probe(
                    f"wgmma_latency.{kind} n{n}",
                    _wgmma(kind, n, "shared", 1, 1, 0),
                    "one instruction, from its fence to the end of its wait",
                )


def _wgmma(kind: str, n: int, source: str, groups: int, unroll: int, pending: int) -> Loop:
    """Instructions on the same operands in a group for each trip, `pending` groups of which may be under way."""
    k, of_both, of_b = _WGMMA[kind]
    sums = [f"d{i}" for i in range(n // 2)]
    a, layouts = ("da", of_both) if source == "shared" else (_ACCUMULATORS, of_b)
    body = (
        f"wgmma.mma_async.sync.aligned.m64n{n}{k}.f32.{kind}.{kind} {{{', '.join(sums)}}}, {a}, db, 1, 1, 1{layouts};"
    )
    # An address in units of 16 bytes, 1024 bytes from 8 rows to the next, and the 128-byte swizzle
    setup = (
        "{ .reg .b32 t; shr.u32 t, %13, 4; cvt.u64.u32 da, t; } or.b64 da, da, 0x4000004000010000; add.u64 db, da, 512;"
    )
    setup += " ".join(f"mov.f32 {name}, 0f00000000;" for name in sums) + " wgmma.fence.sync.aligned;"
    after = f"wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned {pending}; wgmma.fence.sync.aligned;"
    finish = (
        "wgmma.wait_group.sync.aligned 0;"
        + " ".join(f"add.f32 d0, d0, {name};" for name in sums[1:])
        + " mov.b32 %0, d0;"
    )
    declare = f".reg .f32 d<{n // 2}>; .reg .b64 da, db;"
    opcode = "QGMMA" if kind == "e4m3" else "HGMMA"
    return Loop(
        body, opcode, 1, unroll, 0, declare, setup, after, finish, 128 * groups, walk=walk(shared_bytes=SHARED_BYTES)
    )


# ---- synchronisation


def _synchronisation() -> Iterator[Probe]:
    for warps in (1, 2, 4, 8, 16, 32):
        yield Probe(
            f"barrier.{warps}", Loop("bar.sync 0;", "BAR", threads=32 * warps), f"__syncthreads of {warps} warps"
        )
    yield Probe(
        "latency.WARPSYNC",
        Loop("bar.warp.sync 0xffffffff;", "NOP"),
        "__syncwarp, which is a NOP where a warp is converged",
    )
    yield Probe("latency.FENCE.VIEW.ASYNC", Loop("fence.proxy.async.shared::cta;", "FENCE"), "fence.proxy.async")
    yield Probe("latency.MEMBAR.GPU", Loop("fence.acq_rel.gpu;", "MEMBAR"), "fence.acq_rel.gpu, with nothing under way")
    declare = ".reg .b32 mine, other, phase; .reg .pred first;"
    setup = "mov.b32 phase, 0; mov.u32 mine, %%tid.x; and.b32 other, mine, 31; setp.eq.u32 first, other, 0; shr.u32 mine, mine, 5; "
    setup += "shl.b32 mine, mine, 3; add.u32 mine, mine, %5; xor.b32 other, mine, {}; @first mbarrier.init.shared::cta.b64 [mine], 1;"
    wait = _WAIT.replace("%0", "mine").replace("%2", "phase")
    body = f"@first mbarrier.arrive.shared::cta.b64 _, [other]; {wait} xor.b32 phase, phase, 1;"
    for name, distance, warps in (("own", 0, 1), ("other", 8, 2)):
        loop = Loop(
            body,
            "SYNCS.ARRIVE",
            declare=declare,
            setup=setup.format(distance),
            threads=32 * warps,
            walk=walk(shared_bytes=1024),
        )
        yield Probe(f"mbarrier.{name}", loop, f"from an arrival until a waiting warp goes on: its {name}")


_PARTS = (_pipes, _shared, _global, _tensor_cores, _synchronisation, _releases, _tma)
PROBES = {probe.name: probe for part in _PARTS for probe in part()}
