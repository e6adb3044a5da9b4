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

Fields = dict[str, Any]  # of Loop
CLOCKS, BYTES, OPERATIONS = "clocks", "bytes per clock", "operations per clock"
ALL = 0  # as many blocks as multiprocessors
RANDOM, BOXES = "random", "boxes"  # what `data` holds: addresses of lines at random, or a matrix for the TMA unit
SHARED = 200 * 1024  # bytes; so the block is alone on its multiprocessor
L2_BYTES = 1 << 23  # that each half of L2 can hold, with the blocks' first parts before it
APART = 1 << 16  # bytes from a block's first part to the next one's
_TILE = 1024 * 16  # bytes of an instruction of 1024 threads
_PAIRS = (
    "FFMA IMAD,FFMA IADD3,FFMA FADD,FFMA HFMA2,FFMA LOP3,IMAD IADD3,IMAD HFMA2,IADD3 LOP3,LOP3 PRMT,LOP3 SEL,"
    "LOP3 F2FP.BF16.F32,MUFU F2I,MUFU FFMA,IMAD.WIDE FFMA"
)
_CHASED = "from an address that is the result of another"
_NUMBERS: Fields = {"a": 0x3F800001, "b": 0x3F800003, "spread": 3}
_OWN: Fields = {"shared_bytes": 1 << 14, "filled_bytes": 1 << 14, "filled_mask": 0xFFFFFFFF}
_AGAIN: Fields = {"chains": 4, "shared_bytes": SHARED}
_THREAD: Fields = {"threads": 1, "unroll": 8, "shared_bytes": SHARED}


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


def _probe(name: str, about: str, amount: float = 1.0, unit: str = CLOCKS, *, boxes: int = 0, **loop: Any) -> Probe:
    """A probe of a loop with these fields; `boxes`: rows of the boxes of a matrix that the TMA unit copies."""
    return Probe(name, Loop(**loop), about, amount, unit, BOXES * bool(boxes), box_rows=boxes)


def _pipes() -> Iterator[Probe]:
    for name, (opcode, ptx) in PIPES.items():
        fields: Fields = {"body": ptx, "opcode": opcode, "unroll": 256, **_NUMBERS, **PREDICATE}
        yield _probe(f"latency.{name}", "on the result of another", **fields)
        chains = 1 if " q" in ptx else 8
        yield _probe(f"interval.{name}", "independent ones", 8, chains=chains, threads=1024, **fields)
    for pair in _PAIRS.split(","):
        (one, first), (other, second) = (PIPES[name] for name in pair.split())
        ptx = f"{first} {second.replace('%1', '%3').replace('%0', '%2')}"
        fields = {"body": ptx, "opcode": f"{one} {other}", "chains": 8, "unroll": 128, **_NUMBERS, **PREDICATE}
        yield _probe(f"pair.{pair.replace(' ', '+')}", "one of each, in turn", 8, threads=1024, **fields)
    fields = {"body": "add.u32 %0, %0, %6;", "opcode": "BRA", "unroll": 1}
    yield _probe("latency.UIADD3+ISETP+BRA", "a trip of a loop with one addition", **fields)


def _shared() -> Iterator[Probe]:
    bodies: list[tuple[str, str, str, int]] = []
    for bits, kind in KINDS.items():
        suffix, lane = "" if bits == 32 else f".{bits}", bits // 8
        ptx = f"ld.volatile.shared.{kind} {WORDS[bits]}, [%0];"
        fields: Fields = {
            "body": ptx,
            "opcode": f"LDS{suffix}",
            "setup": "mov.b32 %0, %5;",
            "shared_lane_bytes": lane,
            **_OWN,
        }
        yield _probe(f"latency.LDS.{bits}", _CHASED, **fields)
        bodies.append((f"LDS.{bits}", f"LDS{suffix}", pieces.load("shared", "%5", bits), lane))
        bodies.append((f"STS.{bits}", f"STS{suffix}", f"st.shared.{kind} [%5], {WORDS[bits]};", lane))
    for count in (1, 2, 4):
        opcode = "LDSM" if count == 1 else f"LDSM.{count}"
        ptx = pieces.load_matrices(count, "%0", summed=False)
        fields = {"body": ptx, "opcode": opcode, "setup": "mov.b32 %0, %5;", **_OWN, "filled_mask": 0}
        yield _probe(f"latency.LDSM.{count}", _CHASED, **fields)
        bodies.append((f"LDSM.{count}", opcode, pieces.load_matrices(count, "%5", summed=True), 16))
    bodies.append(("STSM.4", "STSM", f"stmatrix.sync.aligned.m8n8.x4.shared.b16 [%5], {WORDS[128]};", 16))
    for name, opcode, ptx, lane in bodies:
        fields = {"body": ptx, "opcode": opcode, "offset": WARP * lane, "shared_lane_bytes": lane, **_AGAIN}
        for warps, table in ((16, "request"), (1, "alone"))[: 1 if name == "STSM.4" else 2]:
            yield _probe(f"{table}.{name}", "no bank conflicts", warps, threads=WARP * warps, **fields)
    for ways in (2, 32):
        fields = {"body": pieces.load("shared", "%5", 32), "opcode": "LDS", "shared_lane_bytes": 4 * ways, **_AGAIN}
        yield _probe(f"request.LDS.32 {ways} per bank", "bank conflicts", 16, offset=LINE, threads=512, **fields)
    word: Fields = {"shared_lane_bytes": 4, "shared_bytes": SHARED}
    ptx = "st.volatile.shared.b32 [%5], %0; ld.volatile.shared.b32 %0, [%5];"
    yield _probe("latency.STS+LDS", "a word that is stored, then loaded", body=ptx, opcode="STS LDS", **word)
    ptx = "atom.shared.add.u32 %0, [%5], %0;"
    yield _probe("latency.ATOMS", "an addition to shared memory", body=ptx, opcode="ATOMS", **word)


def _releases() -> Iterator[Probe]:
    fields: Fields = {
        "unroll": 16,
        "offset": 512,
        "after": ADVANCE,
        "lane_bytes": 16,
        "shared_lane_bytes": 16,
        **_AGAIN,
    }
    for bits in (32, 128):
        kind, words = KINDS[bits], WORDS[bits]
        bodies = {
            "LDS": pieces.load("shared", "%5", bits),
            "STS": f"st.shared.{kind} [%5], {words};",
            "LDG": pieces.load("global.ca", "%8", bits),
            "STG": f"st.global.{kind} [%8], {words};",
        } | ({"REDG": "red.global.add.f32 [%8], %0;"} if bits == 32 else {})
        for opcode, ptx in bodies.items():
            full = opcode if bits == 32 else f"{opcode}.{bits}"
            about = "each waits until the operands of the one before have been read"
            yield _probe(f"release.{opcode}.{bits}", about, body=ptx, opcode=full, waits_for_operands=True, **fields)


def _global() -> Iterator[Probe]:
    places = {"L1": ("ca", 1 << 10), "L2": ("cg", L2_BYTES), "DRAM": ("cg", 1 << 28), "DRAM far": ("cg", 1 << 32)}
    for place, (kind, size) in places.items():
        ptx, blocks = f"ld.global.{kind}.b64 %4, [%4];", ALL if place == "L2" else 1
        probe = _probe(f"latency.LDG {place}", _CHASED, body=ptx, opcode="LDG", blocks=blocks, block_bytes=61 * LINE)
        yield replace(probe, description=f"{_CHASED}, in {size >> 10} KiB", data=RANDOM, data_bytes=size)
    patterns = {"32": 4, "64": 8, "128": 16, "32 broadcast": 0, "32 in 8 lines": 32, "32 in 32 lines": LINE}
    for name, lane in {**patterns, "128 in 32 lines": LINE}.items():
        unroll, offset = (8, 16) if lane == LINE else (32, max(WARP * lane, 4))
        ptx = pieces.load("global.ca", "%8", int(name.split()[0]))
        fields: Fields = {
            "body": ptx,
            "opcode": "LDG",
            "chains": 4,
            "unroll": unroll,
            "offset": offset,
            "lane_bytes": lane,
        }
        yield _probe(f"request.LDG.{name}", "hits in L1", 16, after=ADVANCE, threads=512, **fields)
    word: Fields = {"body": "red.global.add.f32 [%4], %1;", "opcode": "REDG", "threads": 1024, "blocks": ALL}
    yield _probe("atomics.REDG.F32 one address", "additions to one word of L2", 1024, OPERATIONS, **word)
    word = {"body": "atom.global.add.u32 %0, [%4], %0;", "opcode": "ATOMG", "lane_bytes": 4}
    yield _probe("latency.ATOMG", "an addition to L2 on the result of another", **word)
    word = {"body": "cp.async.cg.shared.global [%5], [%4], 16; cp.async.wait_all;", "opcode": "LDGSTS"}
    own: Fields = {"lane_bytes": 16, "shared_lane_bytes": 16, "shared_bytes": SHARED}
    yield _probe("latency.LDGSTS", "from L2 to shared memory until it is waited for", **word, **own)
    for bits, kind, ways in (
        (32, "ca", 1),
        (32, "ca", 8),
        (32, "ca", 32),
        (128, "ca", 1),
        (128, "ca", 8),
        (128, "cg", 8),
    ):
        size = bits // 8
        copies = _copies_in_turns(f"cp.async.{kind}.shared.global [t], [%4], {size};")
        banks: Fields = {"lane_bytes": size, "shared_lane_bytes": size * ways, "shared_warp_bytes": 32 * LINE}
        fields = {**copies, **banks, "unroll": 8, "threads": 512, "offset": WARP * size if ways == 1 else size}
        name = f"request.LDGSTS.{bits}" + " L2" * (kind == "cg") + f" {ways} per bank" * (ways > 1)
        yield _probe(name, "a line that L1 has" if kind == "ca" else "a line that L2 has", 16, **fields)


def _copies_in_turns(copy: str, after: str = "") -> Fields:
    """Copies to [t]. Two buffers take turns: one to where another under way goes is merged with it, at no cost."""
    turns = f"cp.async.commit_group; cp.async.wait_group 1; xor.b32 %0, %0, {APART}; {after}"
    body = f"{{ .reg .b32 t; add.u32 t, %5, %0; {copy} }}"
    moved: Fields = {"body": body, "setup": "mov.b32 %0, 0;", "after": turns, "shared_bytes": SHARED}
    return {"opcode": "LDGSTS", "chains": 1, **moved}


def _bandwidths() -> Iterator[Probe]:
    moving: Fields = {"unroll": 4, "offset": _TILE, "threads": 1024, "step": 61 * APART, "mask": L2_BYTES - 1}
    wide: Fields = {**moving, "chains": 4, "lane_bytes": 16, "warp_bytes": 512, "after": ADVANCE}
    narrow: Fields = {**wide, "lane_bytes": 4, "warp_bytes": LINE}
    copies = wide | _copies_in_turns("cp.async.cg.shared.global [t], [%8], 16;", ADVANCE)
    copies |= {"shared_lane_bytes": 16, "shared_warp_bytes": 512}
    bodies: dict[str, Fields] = {
        "LDG.128": {"body": pieces.load("global.cg", "%8", 128), "opcode": "LDG.128", **wide},
        "LDG.128 L1": {"body": pieces.load("global.ca", "%8", 128), "opcode": "LDG.128", **wide},
        "LDG.32 L1": {"body": pieces.load("global.ca", "%8", 32), "opcode": "LDG", **narrow},
        "LDGSTS.128": copies,
        "STG.128": {"body": f"st.global.v4.b32 [%8], {WORDS[128]};", "opcode": "STG.128", **wide},
        "STG.32": {"body": "st.global.b32 [%8], %0;", "opcode": "STG", **narrow},
        "REDG.32": {"body": "red.global.add.f32 [%8], %1;", "opcode": "REDG", **narrow},
        "UTMALDG 128x64": _boxes(128, 4),
    }
    everywhere: Fields = {"blocks": ALL, "block_bytes": APART}
    for name, fields in bodies.items():
        boxes = 128 if "UTMA" in name else 0
        about, amount = "to or from L2", 128 * LINE if boxes else 1024 * fields["lane_bytes"]
        same = (_boxes(128, 4, apart=0) if boxes else fields) | {"blocks": ALL}
        yield _probe(f"bandwidth_alone.{name}", about, amount, BYTES, boxes=boxes, **fields)
        yield _probe(f"bandwidth.{name}", about, amount, BYTES, boxes=boxes, **fields | everywhere)
        yield _probe(f"bandwidth.{name} same", f"{about}, the same lines", amount, BYTES, boxes=boxes, **same)
    ring = {"opcode": "UBLKCP", "chains": 4, **_THREAD, **pieces.ring(pieces.BULK, 1 << 14, L2_BYTES, 0)}
    yield _probe("bandwidth_alone.UBLKCP 16 KiB", "from L2, 4 copies under way", 1 << 14, BYTES, **ring)


def _boxes(rows: int, chains: int, region: int = L2_BYTES, apart: int = APART) -> Fields:
    """Boxes of 64 elements of 16 bits a row, so many under way."""
    ring = pieces.ring(pieces.BOX, rows * LINE, region, apart // LINE)
    return {"opcode": "UTMALDG", "chains": chains, **_THREAD, **ring}


def _tma() -> Iterator[Probe]:
    about = "a box until its barrier completes, with the next one's start"
    for rows, place in ((8, "L2"), (64, "L2"), (128, "L2"), (256, "L2"), (64, "DRAM"), (128, "DRAM")):
        region = L2_BYTES if place == "L2" else 1 << 30
        probe = _probe(f"latency.UTMALDG {rows}x64 {place}", about, boxes=rows, **_boxes(rows, 1, region))
        yield replace(probe, data_bytes=region)
    yield _probe("interval.SYNCS+UTMALDG", "a thread's wait, arrival and box of 8x64", boxes=8, **_boxes(8, 8))
    burst: Fields = {"opcode": "UTMALDG", "shared_bytes": SHARED, **pieces.burst(8 * LINE, 64)}
    yield _probe("interval.UTMALDG", "boxes of 8x64 from one place, one after the other", boxes=8, **burst)
    ring: Fields = {"opcode": "UBLKCP", **_THREAD, **pieces.ring(pieces.BULK, 1 << 13, L2_BYTES, 0)}
    yield _probe("latency.UBLKCP 8 KiB", "a bulk copy from L2 until its barrier completes", **ring)
    for end, about in (("", "written"), (" read", "read")):
        store: Fields = {"opcode": "UTMASTG", **_THREAD, **pieces.store(64, L2_BYTES, end.replace(" ", "."))}
        yield _probe(f"latency.UTMASTG 64x64{end}", f"a box to L2 until it is {about}", boxes=64, **store)


def _tensor_cores() -> Iterator[Probe]:
    shapes = {"HMMA.16816.F32": "f16", "HMMA.16816.F32.BF16": "bf16", "HMMA.1688.F32.TF32": "tf32"}
    for opcode, kind in shapes.items():
        shape = "m16n8k8" if kind == "tf32" else "m16n8k16"
        sums: Fields = {"body": pieces.mma(shape, kind), "opcode": opcode, **_NUMBERS}
        yield _probe(f"latency.{opcode}", "on the sums of another", **sums)
        ptx = pieces.mma(shape, kind, WORDS[128], "{%6, %6, %6, %6}")
        yield _probe(f"latency.{opcode} A", "whose A is the result of another", **sums | {"body": ptx})
        for warps in (4, 16):
            more: Fields = {"chains": 8, "threads": WARP * warps}
            yield _probe(f"interval.{opcode} {warps} warps", "8 chains in each warp", warps / 4, **sums, **more)
    every = [("bf16", n, source, 1) for n in (8, 16, 32, 64, 96, 128, 192, 256) for source in ("shared", "registers")]
    other = [(kind, n, "shared", 1) for kind in ("tf32", "e4m3") for n in (32, 128, 256)]
    for kind, n, source, groups in (*every, *other, ("bf16", 32, "shared", 2), ("bf16", 256, "shared", 2)):
        product: Fields = {"threads": 128 * groups, "shared_bytes": SHARED, **pieces.wgmma(kind, n, source, 1)}
        name = f"wgmma.{kind} n{n} {source}" + f" {groups} warpgroups" * (groups > 1)
        yield _probe(name, f"by where A is, {groups} at a time", groups, unroll=32 if n < 64 else 16, **product)
    for n in (8, 64, 128, 256):
        product = {"threads": 128, "shared_bytes": SHARED, **pieces.wgmma("bf16", n, "shared", 0)}
        yield _probe(f"latency.HGMMA n{n}", "one, from its fence to the end of its wait", unroll=1, **product)


def _synchronisation() -> Iterator[Probe]:
    for warps in (1, 2, 4, 8, 16, 32):
        yield _probe(f"barrier.{warps}", "__syncthreads", body="bar.sync 0;", opcode="BAR", threads=WARP * warps)
    fences = {
        "NOP": ("bar.warp.sync 0xffffffff;", "NOP", "__syncwarp where a warp is converged"),
        "MEMBAR.CTA+FENCE": ("fence.proxy.async.shared::cta;", "FENCE", "fence.proxy.async"),
        "MEMBAR.GPU": ("fence.acq_rel.gpu;", "MEMBAR", "fence.acq_rel.gpu, nothing under way"),
    }
    for name, (ptx, opcode, about) in fences.items():
        yield _probe(f"latency.{name}", about, body=ptx, opcode=opcode)
    for name, other, warps in (("own", 0, 1), ("other", 8, 2)):
        fields: Fields = {
            "opcode": "SYNCS.ARRIVE",
            "threads": WARP * warps,
            "shared_bytes": 1024,
            **pieces.exchange(other),
        }
        yield _probe(f"latency.SYNCS {name}", f"from an arrival until a warp that waits goes on: its {name}", **fields)


_PARTS = (_pipes, _shared, _global, _bandwidths, _tensor_cores, _synchronisation, _tma, _releases)
PROBES = {probe.name: probe for part in _PARTS for probe in part()}
