"""`wmma.load`, `wmma.mma` and `wmma.store`: products in every layout, and the accesses that ptxas makes of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
import torch

from gemm_ref import ptx
from gemm_ref.launch import cdiv
from gemm_ref.ptx.units.tensor_core import multiply_add
from gemm_ref.sass import tools
from gemm_ref.sass.listing import parse
from gemm_ref.toolchain import run_nvcc
from tests.ptx.harness import HEADER, kernel_text, run_kernel

SHAPES = {"m16n16k16": (16, 16, 16), "m32n8k16": (32, 8, 16), "m8n32k16": (8, 32, 16), "m16n16k8": (16, 16, 8)}
SHAPES |= {"m8n8k4": (8, 8, 4)}
DTYPES = {"f16": torch.float16, "bf16": torch.bfloat16, "tf32": torch.float32, "f32": torch.float32}
DTYPES |= {"s8": torch.int8, "u8": torch.uint8, "s32": torch.int32, "f64": torch.float64}
KINDS = [*((shape, kind) for shape in list(SHAPES)[:3] for kind in ("f16", "bf16")), ("m16n16k8", "tf32")]
OTHERS = [("m16n16k16", "s8"), ("m32n8k16", "u8"), ("m8n32k16", "s8"), ("m8n8k4", "f64")]
# Layouts of A, B, and C and D: each pair of two of them.
LAYOUTS = [("row", "row", "row"), ("row", "col", "col"), ("col", "row", "col"), ("col", "col", "row")]
ROOM = 4096  # bytes of shared memory for each of A, B, C and D
UNUSED = 99  # between the rows of a matrix


def sums_of(kind: str) -> tuple[str, ...]:
    """Returns the types of C and D."""
    return {"f16": ("f32", "f16"), "s8": ("s32",), "u8": ("s32",), "f64": ("f64",)}.get(kind, ("f32",))


def count_of(which: str, shape: str, kind: str) -> int:
    """Returns the number of registers of a fragment: PTX ISA, 'Matrix Fragments for WMMA'."""
    m, n, k = SHAPES[shape]
    if which in "cd":
        return {"f32": 8, "s32": 8, "f16": 4, "f64": 2}[kind]
    elements = (m if which == "a" else n) * k
    return 8 if kind == "f16" else elements // 32 // max(4 // DTYPES[kind].itemsize, 1)


def registers(prefix: str, count: int) -> str:
    return "{" + ", ".join(f"%{prefix}{i}" for i in range(count)) + "}"


def text_of(space: str) -> str:
    """In the name; generic addresses have none."""
    return "" if space == "generic" else f".{space}"


def exact_numbers(rng: np.random.Generator, kind: str, *shape: int) -> np.ndarray:
    """Returns integers, or floats whose sums are exact in fp32."""
    if kind[0] in "su":
        return rng.integers(-128 * (kind[0] == "s"), 128, shape)
    return rng.integers(-64, 65, shape) / 8


def matrix(
    numbers: Callable[..., np.ndarray], rng: np.random.Generator, rows: int, columns: int, layout: str, kind: str
) -> tuple[torch.Tensor, int]:
    """Returns numbers in memory in this layout, with UNUSED between the rows, and the stride."""
    outer, inner = (rows, columns) if layout == "row" else (columns, rows)
    pad = 16 // DTYPES[kind].itemsize
    stride = cdiv(inner, pad) * pad + pad
    memory = torch.full((outer, stride), UNUSED, dtype=DTYPES[kind])
    memory[:, :inner] = torch.from_numpy(numbers(rng, kind, outer, inner))
    return memory, stride


def plain(memory: torch.Tensor, rows: int, columns: int, layout: str) -> torch.Tensor:
    return memory.double()[:rows, :columns] if layout == "row" else memory.double().T[:rows, :columns]


HEAD = f""".reg .b64 %rd<9>; .reg .b32 %r<9>; .reg .BITS %a<9>, %b<9>, %c<9>, %d<9>; .reg .pred %p<2>;
.shared .align 32 .b8 room[{4 * ROOM}]; mov.u32 %r0, %tid.x;"""


def copied(start: str, place: int, count: int, move: str) -> list[str]:
    """`move` for each word of `count` bytes: %rd6 is its place from `start` on, %r2 that in shared memory."""
    assert count <= ROOM
    return [
        f"mul.wide.u32 %rd5, %r0, 4; add.u64 %rd5, %rd5, {at}; add.u64 %rd6, %rd5, {start}; cvt.u32.u64 %r2, %rd5; "
        f"mov.u32 %r3, room; add.u32 %r2, %r2, %r3; add.u32 %r2, %r2, {place}; "
        f"setp.lt.u64 %p1, %rd5, {count}; @%p1 {move};"
        for at in range(0, count, 128)
    ]


def exactly(kinds: tuple[str, str], a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
    return (a @ b + c).to(DTYPES[kinds[1]]).double()


def as_a_tensor_core(kinds: tuple[str, str], *matrices: torch.Tensor) -> torch.Tensor:
    """By `mma`, whose sums tests/ptx/units/test_tensor_core.py compares with an H200's; of tf32 in steps of four."""
    a, b = (matrix.numpy().astype(np.float32)[None] for matrix in matrices[:2])
    c = matrices[2].numpy().astype(np.float16 if kinds[1] == "f16" else np.float32)[None]
    depth = 4 if kinds[0] == "tf32" else a.shape[2]
    for k in range(0, a.shape[2], depth):
        x, y = a[..., k : k + depth], b[:, k : k + depth].transpose(0, 2, 1)
        c = multiply_add("mma", x, y, (kinds[0], kinds[0]), c)
    return torch.from_numpy(c[0]).double()


def product(
    shape: str, kind: str, to: str, layouts: tuple[str, str, str], space: str, numbers=exact_numbers, want=exactly
) -> tuple:
    """A @ B + C by one warp, through memory of the space; and what it should be, and D's memory around it."""
    m, n, k = SHAPES[shape]
    rng = np.random.default_rng(7)
    layout_a, layout_b, layout_c = layouts
    (a, lda), (b, ldb), (c, ldc) = (
        matrix(numbers, rng, m, k, layout_a, kind),
        matrix(numbers, rng, k, n, layout_b, kind),
        matrix(numbers, rng, m, n, layout_c, to),
    )
    out = torch.full_like(c, UNUSED)
    body = [
        HEAD.replace("BITS", "b64" if kind == "f64" else "b32"),
        *(f"ld.param.u64 %rd{i}, [p{i}];" for i in range(4)),
    ]
    if space != "global":
        for i, memory in enumerate((a, b, c, out)):
            body += copied(
                f"%rd{i}", i * ROOM, memory.nbytes, "ld.global.u32 %r1, [%rd6]; @%p1 st.shared.u32 [%r2], %r1"
            )
            body.append(f"mov.u64 %rd{i}, room; add.u64 %rd{i}, %rd{i}, {i * ROOM};")
            body.append(f"cvta.shared.u64 %rd{i}, %rd{i};" if space == "generic" else "")
        body.append("bar.warp.sync -1;")
    where, types = text_of(space), f"{to}.{to}" if kind == "f16" else f"{to}.{kind}.{kind}.{to}"
    ra, rb, rc, rd = (registers(w, count_of(w, shape, to if w in "cd" else kind)) for w in "abcd")
    body += [
        f"wmma.load.a.sync.aligned.{layout_a}.{shape}{where}.{kind} {ra}, [%rd0], {lda};",
        f"wmma.load.b.sync.aligned.{layout_b}.{shape}{where}.{kind} {rb}, [%rd1], {ldb};",
        f"wmma.load.c.sync.aligned.{layout_c}.{shape}{where}.{to} {rc}, [%rd2], {ldc};",
        f"wmma.mma.sync.aligned.{layout_a}.{layout_b}.{shape}.{types} {rd}, {ra}, {rb}, {rc};",
        f"wmma.store.d.sync.aligned.{layout_c}.{shape}{where}.{to} [%rd3], {rd}, {ldc};",
    ]
    if space != "global":
        body.append("bar.warp.sync -1; ld.param.u64 %rd3, [p3];")
        body += copied("%rd3", 3 * ROOM, out.nbytes, "ld.shared.u32 %r1, [%r2]; @%p1 st.global.u32 [%rd6], %r1")
    run_kernel("\n".join(body), [a, b, c, out], observers=[detectors := ptx.Detectors()])
    # what lies between D's rows is never written, and that is right
    assert {finding.kind for finding in detectors.findings} <= {"never written"}
    wanted = want((kind, to), plain(a, m, k, layout_a), plain(b, k, n, layout_b), plain(c, m, n, layout_c))
    return plain(out, m, n, layout_c), wanted, out, (m, n) if layout_c == "row" else (n, m)


@pytest.mark.parametrize("space", ["global", "shared", "generic"])
@pytest.mark.parametrize("shape, kind", KINDS + OTHERS)
def test_a_product_in_every_layout(shape, kind, space):
    """Small multiples of a power of two: their sums are exact in fp32, and rounded once to fp16."""
    for layouts in LAYOUTS if space == "shared" else LAYOUTS[2:3]:
        for to in sums_of(kind):
            got, want, out, (outer, inner) = product(shape, kind, to, layouts, space)
            assert torch.equal(got, want), (layouts, to)
            assert (out[:, inner:] == UNUSED).all() and len(out) == outer, "something between the rows was written"


@pytest.mark.parametrize("shape, kind, to", [
    ("m16n16k16", "f16", "f16"), ("m32n8k16", "f16", "f32"), ("m8n32k16", "bf16", "f32"), ("m16n16k8", "tf32", "f32"),
])  # fmt: skip
def test_sums_are_a_tensor_cores(shape, kind, to):
    """Of tf32 in two steps of four."""

    def numbers(rng: np.random.Generator, kind: str, *sizes: int) -> np.ndarray:
        cut = (rng.standard_normal(sizes) * 2.0 ** rng.integers(-8, 8, sizes)).astype(np.float32).view(np.uint32)
        return (cut & np.uint32(0xFFFFE000)).view(np.float32)  # numbers of tf32; memory holds them as its type has them

    got, want, *_ = product(shape, kind, to, LAYOUTS[0], "global", numbers, as_a_tensor_core)
    assert torch.equal(got, want)


# --- what ptxas makes of them --------------------------------------------------------------------------------

FORMS = [
    (which, shape, kind, layout, space)
    for shape, element in KINDS
    for which, kind in (*((w, element) for w in "ab"), *((w, to) for w in "cd" for to in sums_of(element)))
    for layout in ("row", "col")
    for space in ("shared", "global", "generic")
    if space != "generic" or shape == "m16n16k16"
]


def form_body(which: str, shape: str, kind: str, layout: str, space: str) -> str:
    """A kernel that loads a fragment and keeps it, or stores one."""
    count = count_of(which, shape, kind)
    operation = "store.d" if which == "d" else f"load.{which}"
    name, names = f"wmma.{operation}.sync.aligned.{layout}.{shape}{text_of(space)}.{kind}", registers("r", count)
    start = "ld.param.u64 %rd0, [p0]; ld.param.u64 %rd1, [p1];"
    start += " mov.u64 %rd0, room;" if space == "shared" else ""
    start += " mov.u64 %rd2, room; cvta.shared.u64 %rd2, %rd2; mov.u32 %s0, %ntid.y; setp.gt.u32 %p0, %s0, 1;"
    start += " selp.b64 %rd0, %rd0, %rd2, %p0;" if space == "generic" else ""
    # atomics keep and give the registers: they are no loads and stores in the machine code either
    keep = " ".join(f"red.global.or.b32 [%rd1+{4 * i}], %r{i};" for i in range(count))
    take = " ".join(f"atom.global.or.b32 %r{i}, [%rd1+{4 * i}], 0;" for i in range(count))
    declared = ".shared .align 32 .b8 room[8192]; .reg .pred %p<2>;"
    head = f"{declared} .reg .b64 %rd<4>; .reg .b32 %r<9>, %s<2>; {start}"
    if which == "d":
        return f"{head} {take} {name} [%rd0], {names}, 40;"
    return f"{head} {name} {names}, [%rd0], 40; {keep}"


class Accesses(ptx.Observer):
    """Bytes a lane, and lanes, of every access to shared and global memory."""

    def __init__(self) -> None:
        self.seen: Counter[tuple[int, int]] = Counter()

    def on_access(self, access: ptx.Access) -> None:
        if access.kind != "atomic":
            lanes = 32 if access.lanes is None else int(access.lanes.sum())
            self.seen[access.size, lanes] += 1


def machine_code(folder) -> dict[int, Counter[tuple[int, int]]]:
    """The same of ptxas's code for each of FORMS."""
    entries = [
        f".visible .entry form{i}(.param .u64 p0, .param .u64 p1)\n{{\n{form_body(*form)}\nret;\n}}\n"
        for i, form in enumerate(FORMS)
    ]
    source, cubin = folder / "forms.ptx", folder / "forms.cubin"
    source.write_text(HEADER.replace('.file 1 "/src/probe.cu"\n', "") + "".join(entries))
    run_nvcc(["-cubin", "-arch=sm_90", str(source), "-o", str(cubin)])
    found: dict[int, Counter[tuple[int, int]]] = {}
    for kernel in parse(tools.disassemble(cubin.read_bytes())):
        seen = found[int(kernel.name.removeprefix("form"))] = Counter()
        for instruction in kernel.code:
            parts = instruction.opcode.split(".")[1:]
            if instruction.name == "LDSM":
                seen[16, 8 * int(parts[-1])] += 1
            elif instruction.name in ("LDS", "STS", "LDG", "STG", "LD", "ST"):
                seen[8 if "64" in parts else 4, 32] += 1
    return found


def test_observers_see_the_accesses_that_ptxas_makes(tmp_path):
    made = machine_code(tmp_path)
    assert len(made) == len(FORMS)
    for i, form in enumerate(FORMS):
        kernel, seen = kernel_text(form_body(*form), ".param .u64 p0, .param .u64 p1"), Accesses()
        room = torch.zeros(8192, dtype=torch.uint8)
        ptx.run(ptx.load(kernel), ptx.program.Launch((1, 1, 1), (32, 1, 1)), [room, room], observers=[seen])
        assert seen.seen == made[i], form


# --- what is refused -----------------------------------------------------------------------------------------

# A fragment, after a change that makes it one that cannot be loaded: test_messages.py.
LOAD = """.shared .align 32 .b8 room[4096]; .reg .b64 %rd<4>; .reg .b32 %r<9>, %s<9>; .reg .pred %p<2>;
mov.u32 %s0, %tid.x; mov.u32 %s1, room; mov.u32 %s2, 16; CHANGE
wmma.load.a.sync.aligned.row.m16n16k16.shared.f16 {%r0,%r1,%r2,%r3,%r4,%r5,%r6,%r7}, [%s1], %s2; END:"""
