"""The constants that `latencies` measures, each by a loop of PTX, and what the clocks of a body are divided by.

Names are `table.entry`, as in gemm_ref/clock/gpus.toml:
- latency: clocks from an instruction to one that reads its result; of a copy, until it is waited for
- interval, pair: clocks of a scheduler from one instruction, or pair of two, to the next, with eight warps each
- request: clocks of a multiprocessor for one instruction of a warp, with 16 warps; alone: with one warp
- release: clocks until the operands of an instruction have been read
- bandwidth: bytes a clock of each multiprocessor where all are busy, with other lines each or (`same`) all with the
  same at a time; bandwidth_alone: of one, where no other is busy
- wgmma: clocks of a multiprocessor for one instruction; barrier: of a block with so many warps
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from cuda_kernels.ceilings import pieces
from cuda_kernels.ceilings.loops import WARP, Loop
from cuda_kernels.ceilings.pieces import ADVANCE, KINDS, LINE, PIPES, PREDICATE, WORDS

CLOCKS, BYTES, OPERATIONS = "clocks", "bytes per clock", "operations per clock"
ALL = 0  # as many blocks as multiprocessors
RANDOM, BOXES = "random", "boxes"  # what `data` holds: addresses of lines at random, or a matrix for the TMA unit
SHARED = 200 * 1024  # bytes; so the block is alone on its multiprocessor
L2_BYTES = 1 << 23  # that each half of L2 can hold, with the blocks' first parts before it
APART = 1 << 16  # bytes from a block's first part to the next one's
_TILE = 1024 * 16  # bytes of an instruction of 1024 threads
_NUMBERS: dict[str, Any] = {"a": 0x3F800001, "b": 0x3F800003, "spread": 3}
_OWN: dict[str, Any] = {"shared_bytes": 1 << 14, "filled_bytes": 1 << 14, "filled_mask": 0xFFFFFFFF}
_AGAIN: dict[str, Any] = {"chains": 4, "shared_bytes": SHARED}


@dataclass(frozen=True)
class Probe:
    """One constant."""

    name: str
    loop: Loop
    description: str
    amount: float = 1.0  # what a body of a block is of the unit: instructions, bytes, operations
    unit: str = CLOCKS
    data: str = ""  # RANDOM or BOXES; otherwise zeros
    data_bytes: int = L2_BYTES
    box_rows: int = 0
    build = None  # `latencies` compiles its loops itself

    def value(self, clocks: float) -> float:
        """The constant, from the clocks of a body."""
        return clocks / self.amount if self.unit == CLOCKS else self.amount / clocks

    def __str__(self) -> str:
        return self.name


def _pipes() -> Iterator[Probe]:
    for name, (opcode, ptx) in PIPES.items():
        own = {"unroll": 256, **_NUMBERS, **PREDICATE}
        yield Probe(f"latency.{name}", Loop(ptx, opcode, **own), "on the result of another")
        loop = Loop(ptx, opcode, 1 if " q" in ptx else 8, threads=1024, **own)
        yield Probe(f"interval.{name}", loop, "independent ones", 8)
    pairs = (
        "FFMA IMAD",
        "FFMA IADD3",
        "FFMA FADD",
        "FFMA HFMA2",
        "FFMA LOP3",
        "IMAD IADD3",
        "IMAD HFMA2",
        "IADD3 LOP3",
    )
    for pair in (*pairs, "LOP3 PRMT", "LOP3 SEL", "LOP3 F2FP.BF16.F32", "MUFU F2I", "MUFU FFMA", "IMAD.WIDE FFMA"):
        (one, first), (other, second) = (PIPES[name] for name in pair.split())
        ptx = f"{first} {second.replace('%1', '%3').replace('%0', '%2')}"
        loop = Loop(ptx, f"{one} {other}", 8, 128, threads=1024, **_NUMBERS, **PREDICATE)
        yield Probe(f"pair.{pair.replace(' ', '+')}", loop, "one of each, in turn", 8)
    loop = Loop("add.u32 %0, %0, %6;", "BRA", unroll=1)
    yield Probe("latency.UIADD3+ISETP+BRA", loop, "a trip of a loop with one addition")


def _shared() -> Iterator[Probe]:
    for bits, kind in KINDS.items():
        suffix, lane = "" if bits == 32 else f".{bits}", bits // 8
        ptx = f"ld.volatile.shared.{kind} {WORDS[bits]}, [%0];"
        chase = Loop(ptx, f"LDS{suffix}", setup="mov.b32 %0, %5;", shared_lane_bytes=lane, **_OWN)
        yield Probe(f"latency.LDS.{bits}", chase, "from an address that is the result of another")
        for warps, table in ((16, "request"), (1, "alone")):
            own = {"offset": WARP * lane, "threads": WARP * warps, "shared_lane_bytes": lane, **_AGAIN}
            loop = Loop(pieces.load("shared", "%5", bits), f"LDS{suffix}", **own)
            yield Probe(f"{table}.LDS.{bits}", loop, "no bank conflicts", warps)
            loop = Loop(f"st.shared.{kind} [%5], {WORDS[bits]};", f"STS{suffix}", **own)
            yield Probe(f"{table}.STS.{bits}", loop, "no bank conflicts", warps)
    for ways in (2, 32):
        loop = Loop(
            pieces.load("shared", "%5", 32), "LDS", offset=LINE, threads=512, shared_lane_bytes=4 * ways, **_AGAIN
        )
        yield Probe(f"request.LDS.32 {ways} per bank", loop, f"{ways} lanes of a bank each", 16)
    for count in (1, 2, 4):
        opcode = "LDSM" if count == 1 else f"LDSM.{count}"
        ptx = pieces.load_matrices(count, ["%0", "%1", "%2", "%3"][:count], "%0")
        chase = Loop(ptx, opcode, setup="mov.b32 %0, %5;", **_OWN | {"filled_mask": 0})
        yield Probe(f"latency.LDSM.{count}", chase, "from an address that is the result of another")
        names = [f"t{i}" for i in range(count)]
        adds = " ".join(f"xor.b32 %{i}, %{i}, {name};" for i, name in enumerate(names))
        ptx = f"{{ .reg .b32 {', '.join(names)}; {pieces.load_matrices(count, names, '%5')} {adds} }}"
        for warps, table in ((16, "request"), (1, "alone")):
            loop = Loop(ptx, opcode, offset=512, threads=WARP * warps, shared_lane_bytes=16, **_AGAIN)
            yield Probe(f"{table}.LDSM.{count}", loop, "no bank conflicts", warps)
    ptx = f"stmatrix.sync.aligned.m8n8.x4.shared.b16 [%5], {WORDS[128]};"
    loop = Loop(ptx, "STSM", offset=512, threads=512, shared_lane_bytes=16, **_AGAIN)
    yield Probe("request.STSM.4", loop, "no bank conflicts", 16)
    ptx = "st.volatile.shared.b32 [%5], %0; ld.volatile.shared.b32 %0, [%5];"
    loop = Loop(ptx, "STS LDS", shared_lane_bytes=4, shared_bytes=SHARED)
    yield Probe("latency.STS+LDS", loop, "a word that is stored, loaded and stored again")
    loop = Loop("atom.shared.add.u32 %0, [%5], %0;", "ATOMS", shared_lane_bytes=4, shared_bytes=SHARED)
    yield Probe("latency.ATOMS", loop, "an addition to shared memory on the result of another")


def _releases() -> Iterator[Probe]:
    for bits in (32, 128):
        suffix, kind, words = "" if bits == 32 else f".{bits}", KINDS[bits], WORDS[bits]
        bodies = {
            f"LDS{suffix}": pieces.load("shared", "%5", bits),
            f"STS{suffix}": f"st.shared.{kind} [%5], {words};",
            f"LDG{suffix}": pieces.load("global.ca", "%8", bits),
            f"STG{suffix}": f"st.global.{kind} [%8], {words};",
            f"REDG{suffix}": "red.global.add.f32 [%8], %0;",
        }
        for opcode, ptx in list(bodies.items())[: 5 if bits == 32 else 4]:
            own = {"unroll": 16, "offset": 512, "after": ADVANCE, "lane_bytes": 16, "shared_lane_bytes": 16, **_AGAIN}
            loop = Loop(ptx, opcode, waits_for_operands=True, **own)
            yield Probe(
                f"release.{opcode if suffix else f'{opcode}.32'}", loop, "each after the one before has read its own"
            )


def _global() -> Iterator[Probe]:
    places = {"L1": ("ca", 1 << 10), "L2": ("cg", L2_BYTES), "DRAM": ("cg", 1 << 28), "DRAM far": ("cg", 1 << 32)}
    for place, (kind, size) in places.items():
        blocks = ALL if place == "L2" else 1
        chase = Loop(f"ld.global.{kind}.b64 %4, [%4];", "LDG", blocks=blocks, block_bytes=61 * LINE)
        about = f"from an address that is the result of another, of {size >> 10} KiB"
        yield Probe(f"latency.LDG {place}", chase, about, data=RANDOM, data_bytes=size)
    patterns = {"32": 4, "64": 8, "128": 16, "32 broadcast": 0, "32 in 8 lines": 32, "32 in 32 lines": LINE}
    for name, lane in {**patterns, "128 in 32 lines": LINE}.items():
        bits = int(name.split()[0])
        unroll, offset = (8, 16) if lane == LINE else (32, max(WARP * lane, 4))
        own = {"unroll": unroll, "offset": offset, "after": ADVANCE, "lane_bytes": lane, "chains": 4}
        loop = Loop(pieces.load("global.ca", "%8", bits), "LDG", threads=512, **own)
        yield Probe(f"request.LDG.{name}", loop, "hits in L1", 16)
    moving = {"chains": 4, "unroll": 4, "offset": _TILE, "threads": 1024, "step": 61 * APART, "mask": L2_BYTES - 1}
    wide = {**moving, "lane_bytes": 16, "warp_bytes": 512, "after": ADVANCE}
    narrow = {**moving, "lane_bytes": 4, "warp_bytes": LINE, "after": ADVANCE}
    shared = {"shared_lane_bytes": 16, "shared_warp_bytes": 512, "shared_bytes": SHARED}
    turns = f"cp.async.commit_group; cp.async.wait_group 1; xor.b32 %0, %0, {APART}; {ADVANCE}"  # of two buffers
    copies = {**wide, **shared, "chains": 1, "setup": "mov.b32 %0, 0;", "after": turns}
    copy = "{ .reg .b32 t; add.u32 t, %5, %0; cp.async.cg.shared.global [t], [%8], 16; }"
    bodies = {
        "LDG.128": (Loop(pieces.load("global.cg", "%8", 128), "LDG.128", **wide), 16),
        "LDG.128 L1": (Loop(pieces.load("global.ca", "%8", 128), "LDG.128", **wide), 16),
        "LDG.32 L1": (Loop(pieces.load("global.ca", "%8", 32), "LDG", **narrow), 4),
        "LDGSTS.128": (Loop(copy, "LDGSTS", **copies), 16),
        "STG.128": (Loop(f"st.global.v4.b32 [%8], {WORDS[128]};", "STG.128", **wide), 16),
        "STG.32": (Loop("st.global.b32 [%8], %0;", "STG", **narrow), 4),
        "REDG.32": (Loop("red.global.add.f32 [%8], %1;", "REDG", **narrow), 4),
        "UTMALDG 128x64": (_boxes(128, 4), 16),
    }
    for name, (loop, width) in bodies.items():
        boxes = {"data": BOXES, "box_rows": 128} if "UTMA" in name else {}
        amount, about = 1024 * width, "to L2" if name[:3] in ("STG", "RED") else "from L2"
        yield Probe(f"bandwidth_alone.{name}", loop, about, amount, BYTES, **boxes)
        everywhere = replace(loop, blocks=ALL, block_bytes=APART)
        yield Probe(f"bandwidth.{name}", everywhere, about, amount, BYTES, **boxes)
        same = replace(_boxes(128, 4, apart=0) if boxes else loop, blocks=ALL)
        yield Probe(
            f"bandwidth.{name} same", same, f"{about}, the same lines for all at a time", amount, BYTES, **boxes
        )
    loop = Loop("red.global.add.f32 [%4], %1;", "REDG", threads=1024, blocks=ALL)
    yield Probe(
        "atomics.REDG.F32 one address", loop, "additions to one word of L2, for each multiprocessor", 1024, OPERATIONS
    )
    loop = Loop("atom.global.add.u32 %0, [%4], %0;", "ATOMG", lane_bytes=4)
    yield Probe("latency.ATOMG", loop, "an addition to L2 on the result of another")
    loop = Loop("cp.async.cg.shared.global [%5], [%4], 16; cp.async.wait_all;", "LDGSTS", lane_bytes=16,
                shared_lane_bytes=16, shared_bytes=SHARED)  # fmt: skip
    yield Probe("latency.LDGSTS", loop, "from L2 to shared memory until it is waited for")


def _boxes(rows: int, chains: int, region: int = L2_BYTES, apart: int = APART) -> Loop:
    """Boxes of 64 elements of 16 bits a row, so many under way."""
    own = pieces.ring(pieces.BOX, rows * LINE, region, apart // LINE)
    return Loop(opcode="UTMALDG", chains=chains, unroll=8, threads=1, shared_bytes=SHARED, **own)


def _tma() -> Iterator[Probe]:
    for rows, place, region in ((8, "L2", L2_BYTES), (64, "L2", L2_BYTES), (128, "L2", L2_BYTES), (256, "L2", L2_BYTES),
                                (64, "DRAM", 1 << 30), (128, "DRAM", 1 << 30)):  # fmt: skip
        boxes = {"data": BOXES, "data_bytes": region, "box_rows": rows}
        about = "a box until its barrier completes, with the next one's start"
        yield Probe(f"latency.UTMALDG {rows}x64 {place}", _boxes(rows, 1, region), about, **boxes)
    boxes = {"data": BOXES, "box_rows": 8}
    yield Probe("interval.SYNCS+UTMALDG", _boxes(8, 8), "a thread's wait, its arrival and a box of 8x64", **boxes)
    loop = Loop(opcode="UTMALDG", shared_bytes=SHARED, **pieces.burst(8 * LINE, 64))
    yield Probe("interval.UTMALDG", loop, "boxes of 8x64 from the same place, one after the other", **boxes)
    for table, size, chains, unit in (("latency", 1 << 13, 1, CLOCKS), ("bandwidth_alone", 1 << 14, 4, BYTES)):
        own = pieces.ring(pieces.BULK, size, L2_BYTES, 0)
        loop = Loop(opcode="UBLKCP", chains=chains, unroll=8, threads=1, shared_bytes=SHARED, **own)
        about = "a bulk copy from L2 until its barrier completes" if chains == 1 else "bulk copies from L2"
        yield Probe(f"{table}.UBLKCP {size >> 10} KiB", loop, about, size if unit == BYTES else 1, unit)
    boxes = {"data": BOXES, "box_rows": 64}
    for name, pending, about in (
        ("latency.UTMASTG 64x64", "0", "written"),
        ("latency.UTMASTG 64x64 read", ".read 0", "read"),
    ):
        wait = f"cp.async.bulk.wait_group{pending.replace('0', '')} 0;"
        ptx = f"{pieces.STORE} {wait} {pieces.next_row(64, L2_BYTES)}"
        own = {name: text.format(apart=0) for name, text in pieces.ROW.items()} | {
            "finish": "cp.async.bulk.wait_group 0;"
        }
        loop = Loop(ptx, "UTMASTG", unroll=8, threads=1, shared_bytes=SHARED, **own)
        yield Probe(name, loop, f"a box from shared memory to L2 until it is {about}", **boxes)


def _tensor_cores() -> Iterator[Probe]:
    shapes = {"HMMA.16816.F32": "f16", "HMMA.16816.F32.BF16": "bf16", "HMMA.1688.F32.TF32": "tf32"}
    for opcode, kind in shapes.items():
        shape = "m16n8k8" if kind == "tf32" else "m16n8k16"
        yield Probe(f"latency.{opcode}", Loop(pieces.mma(shape, kind), opcode, **_NUMBERS), "on the sums of another")
        loop = Loop(pieces.mma(shape, kind, WORDS[128], "{%6, %6, %6, %6}"), opcode, **_NUMBERS)
        yield Probe(f"latency.{opcode} A", loop, "whose A is the result of another")
        for warps in (4, 16):
            loop = Loop(pieces.mma(shape, kind), opcode, 8, threads=WARP * warps, **_NUMBERS)
            yield Probe(f"interval.{opcode} {warps} warps", loop, f"8 chains in each of {warps} warps", warps / 4)
    every = [("bf16", n, source, 1) for n in (8, 16, 32, 64, 96, 128, 192, 256) for source in ("shared", "registers")]
    other = [(kind, n, "shared", 1) for kind in ("tf32", "e4m3") for n in (32, 128, 256)]
    for kind, n, source, groups in (*every, *other, ("bf16", 32, "shared", 2), ("bf16", 256, "shared", 2)):
        own = {"threads": 128 * groups, "shared_bytes": SHARED, **pieces.wgmma(kind, n, source, 1)}
        about = f"A from {source}, {groups} warpgroup{'s' * (groups > 1)}"
        more = f" {groups} warpgroups" * (groups > 1)
        yield Probe(f"wgmma.{kind} n{n} {source}{more}", Loop(unroll=32 if n < 64 else 16, **own), about, groups)
    for n in (8, 64, 128, 256):
        own = {"threads": 128, "shared_bytes": SHARED, **pieces.wgmma("bf16", n, "shared", 0)}
        yield Probe(
            f"latency.HGMMA n{n}", Loop(unroll=1, **own), "one instruction, from its fence to the end of its wait"
        )


def _synchronisation() -> Iterator[Probe]:
    for warps in (1, 2, 4, 8, 16, 32):
        yield Probe(f"barrier.{warps}", Loop("bar.sync 0;", "BAR", threads=WARP * warps), "__syncthreads")
    yield Probe("latency.NOP", Loop("bar.warp.sync 0xffffffff;", "NOP"), "__syncwarp where a warp is converged")
    yield Probe("latency.MEMBAR.CTA+FENCE", Loop("fence.proxy.async.shared::cta;", "FENCE"), "fence.proxy.async")
    yield Probe("latency.MEMBAR.GPU", Loop("fence.acq_rel.gpu;", "MEMBAR"), "fence.acq_rel.gpu, nothing under way")
    for name, other, warps in (("own", 0, 1), ("other", 8, 2)):
        loop = Loop(opcode="SYNCS.ARRIVE", threads=WARP * warps, shared_bytes=1024, **pieces.exchange(other))
        yield Probe(f"latency.SYNCS {name}", loop, f"from an arrival until a warp that waits goes on: its {name}")


_PARTS = (_pipes, _shared, _global, _tensor_cores, _synchronisation, _tma, _releases)
PROBES = {probe.name: probe for part in _PARTS for probe in part()}
