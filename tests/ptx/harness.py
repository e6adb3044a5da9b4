"""Runs PTX snippets over vectors of lanes.

Values are bit patterns (plain ints) on both sides, so nothing is compared through a rounding.
"""

from __future__ import annotations

import functools
import itertools
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from cuda_kernels import source
from gemm_ref import build, ptx
from gemm_ref.launch import Launch, cdiv
from gemm_ref.toolchain import find_toolkit
from tests.ptx.ieee import FORMATS, decode, encode, number, width

HEADER = '.version 8.0\n.target sm_90\n.address_size 64\n.file 1 "/src/probe.cu"\n'


@functools.cache
def compiled(path: Path) -> str:
    """Returns the PTX of a CUDA file, which is compiled once for all processes and later runs."""
    text = path.read_text(encoding="utf-8")
    includes = [header.read_text(encoding="utf-8") for header in sorted(source.INCLUDE.glob("*.cuh"))]
    key = build.digest(text, *includes, *source.FLAGS, build.version_of(str(find_toolkit() / "bin" / "nvcc")))
    kept = build.cached(build.CACHE / f"{path.stem}-{key}.ptx", lambda: source.compile_ptx(text, path.name)[0])
    return kept.read_text(encoding="utf-8")


# --- running -------------------------------------------------------------------------------------------------


def kernel_text(body: str, parameters: str = "", outside: str = "") -> str:
    """A module with one kernel `probe`; each line of the body has its own source line, from 1."""
    lines = [f".loc 1 {number} 0\n{line}" for number, line in enumerate(body.strip().splitlines(), 1)]
    return f"{HEADER}{outside}\n.visible .entry probe({parameters})\n{{\n" + "\n".join(lines) + "\nret;\n}\n"


def run_kernel(
    body: str, args: Sequence = (), grid=(1, 1, 1), block=(32, 1, 1), shared=0, observers=(), outside="",
    cluster=(1, 1, 1),
):  # fmt: skip
    """Run a body whose parameters p0, p1, ... are `args`: tensors become pointers, ints u32, floats f32."""
    parameters = ", ".join(f".param {_declared(a).format(name=f'p{i}')}" for i, a in enumerate(args))
    kernel = ptx.load(kernel_text(body, parameters, outside))
    names = [f"P{i}" for i in range(len(args))]
    launch = Launch(grid, block, shared, cluster=cluster)
    return ptx.run(kernel, launch, list(args), observers=observers, names=names)


LANES = """.reg .b64 %rd<20>; .reg .b32 %r<40>; .reg .b16 %h<9>; .reg .f32 %f<9>; .reg .pred %p<9>; mov.u32 %r0, %tid.x;
ld.param.u64 %rd0, [p0]; mul.wide.u32 %rd1, %r0, 4; add.s64 %rd1, %rd1, %rd0; setp.eq.u32 %p1, %r0, 0;
"""


def run_lanes(code: str, lanes: int = 32, count: int = 0, filled: int = 0, **options) -> list[int]:
    """Run code in which %r0 is the thread, %p1 whether it is thread 0, %rd0 the output, and %rd1 its word of that.

    Returns the output: `count` words, or one per thread, that are `filled` before.
    """
    out = words([filled] * (count or lanes))
    run_kernel(LANES + code, [out], block=(lanes, 1, 1), **options)
    return bits_of(out)


def _declared(value) -> str:
    """How a parameter that takes this argument is declared."""
    if isinstance(value, ptx.TensorMap):
        return ".align 64 .b8 {name}[128]"
    kind = "u64" if isinstance(value, torch.Tensor) else "f32" if isinstance(value, float) else "u32"
    return f".{kind} {{name}}"


def words(values: Sequence[int], bits: int = 32) -> torch.Tensor:
    """Bit patterns as a tensor in memory."""
    array = np.array([v & (1 << bits) - 1 for v in values], dtype=f"u{bits // 8}")
    return torch.from_numpy(array.view(f"i{bits // 8}") if bits > 8 else array)


def bits_of(tensor: torch.Tensor) -> list[int]:
    array = tensor.numpy().reshape(-1)
    return [int(v) for v in array.view(f"u{array.itemsize}")]


def evaluate(code: str, inputs: dict[str, tuple[str, Sequence[int]]], outputs: dict[str, str]) -> dict[str, list[int]]:
    """Run `code` once per lane, with registers %name loaded from the inputs; returns what it leaves in the outputs.

    inputs: by name the type of a register and its value in each lane; outputs: the types of registers.
    """
    count = len(next(iter(inputs.values()))[1])
    block = min(count, 128)
    lanes = cdiv(count, block) * block
    given = np.array([[*values, *[values[-1]] * (lanes - count)] for _, values in inputs.values()], np.uint64)
    found = torch.zeros(len(outputs), lanes, dtype=torch.int64)
    body = [
        ".reg .b64 %in, %out, %at; .reg .b32 %lane, %word; mov.u32 %lane, %ctaid.x; mov.u32 %word, %tid.x;",
        f"mad.lo.u32 %lane, %lane, {block}, %word; mul.wide.u32 %at, %lane, 8; ld.param.u64 %in, [p0];",
        "ld.param.u64 %out, [p1]; add.u64 %in, %in, %at; add.u64 %out, %out, %at;",
    ]
    for at, (name, (kind, _)) in enumerate(inputs.items()):
        register = "%word" if kind == "pred" else f"%{name}"
        body.append(_declaration(name, kind) + f"ld.global.b{width(kind)} {register}, [%in+{8 * lanes * at}];")
        body.append(f"setp.ne.u32 %{name}, %word, 0;" if kind == "pred" else "")
    body += [*(_declaration(*item) for item in outputs.items()), code]
    for at, (name, kind) in enumerate(outputs.items()):
        register = "%word" if kind == "pred" else f"%{name}"
        body.append(f"selp.u32 %word, 1, 0, %{name};" if kind == "pred" else "")
        body.append(f"st.global.b{width(kind)} [%out+{8 * lanes * at}], {register};")
    run_kernel("\n".join(body), [torch.from_numpy(given.view(np.int64)), found], (lanes // block, 1, 1), (block, 1, 1))
    return {name: bits_of(row)[:count] for name, row in zip(outputs, found, strict=True)}


def _declaration(name: str, kind: str) -> str:
    return f".reg .{'pred' if kind == 'pred' else f'b{max(16, width(kind))}'} %{name};"


# --- instructions as a table ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class OpCase:
    """`instruction d, a, b, ...` and its definition in the manual, from codes to codes."""

    instruction: str
    sources: tuple[str, ...]
    result: str
    reference: Callable[..., int | None]  # None where the manual leaves the result open
    ulps: int = 0  # allowed error of an approximate instruction
    suffix: str = ""  # operands after the sources, such as lop3's table
    values: dict[int, tuple[int, ...]] | None = None  # replace the edge values of a source

    @property
    def opcode(self) -> str:
        return self.instruction.split(".")[0]

    def edges(self) -> list[tuple[int, ...]]:
        return [(self.values or {}).get(i) or edge_values(kind) for i, kind in enumerate(self.sources)]


def on_numbers(
    instruction: str, sources: tuple[str, ...], result: str, function: Callable[..., int | None], **more
) -> OpCase:
    """Returns an instruction that is defined on the numbers of its sources' types or formats, and not on their codes.

    The function returns an integer, which is cut to the result's type, or the code of a float.
    """

    def reference(*codes: int) -> int | None:
        pairs = zip(codes, sources, strict=True)
        found = function(*(decode(code, kind) if kind in FORMATS else number(code, kind) for code, kind in pairs))
        return None if found is None else found & (1 << width(result)) - 1

    return OpCase(instruction, sources, result, reference, **more)


def rows_of(case: OpCase) -> list[tuple[int, ...]]:
    """Returns the combinations of the sources' edge values, or 700 of them, and 100 seeded random ones."""
    rng, edges = random.Random(f"{case.sources}{case.values}"), case.edges()
    rows = list(itertools.product(*edges))
    rows = rng.sample(rows, 700) if len(rows) > 700 else rows
    for _ in range(100):
        rows.append(tuple(_random(rng, e, k) for e, k in zip(edges, case.sources, strict=True)))
    return rows


def _random(rng: random.Random, edges: Sequence[int], kind: str) -> int:
    return rng.choice(edges) if kind == "pred" or rng.random() < 0.2 else rng.getrandbits(width(kind))


def edge_values(kind: str) -> tuple[int, ...]:
    """Returns 0, 1, -1, extremes and powers of two; of floats also NaN, Inf, -0 and subnormal numbers."""
    if kind == "pred":
        return (0, 1)
    bits = width(kind)
    if kind.endswith("x2"):
        halves = edge_values(kind[:-2])
        return tuple(low | high << bits // 2 for low, high in zip(halves, halves[5:] + halves[:5], strict=True))
    if kind in FORMATS:
        return tuple(encode(v, kind) for v in _float_edges(kind)) + (1, (1 << bits - 1) | 3)
    ones, top = (1 << bits) - 1, (1 << bits - 1) - 1
    return 0, 1, 2, 3, 7, ones, ones - 1, top, top + 1, top + 2, 0xA5 << bits - 8, 1 << bits // 2


def _float_edges(kind: str) -> tuple[float, ...]:
    form = FORMATS[kind]
    smallest, largest = 2.0**form.lowest, decode(form.largest, kind)
    ordinary = (0.0, -0.0, 1.0, -1.0, 1.5, -2.5, 3.0, 1 / 3, 1 + 2.0**-form.fraction_bits)
    return (*ordinary, smallest, -smallest, largest, -largest, math.inf, -math.inf, math.nan)


def check(cases: Sequence[OpCase]) -> None:
    """Compare instructions with their definitions: on a row per lane, and on a row that is the same in all lanes.

    The machine holds the latter as single numbers. Instructions that read the same rows are executed by one kernel.
    """
    groups: dict[str, list[OpCase]] = {}
    for case in cases:
        groups.setdefault(f"{case.sources}{case.values}", []).append(case)
    for group in groups.values():
        rows, sources = rows_of(group[0]), group[0].sources
        columns = {f"a{i}": (kind, [row[i] for row in rows]) for i, kind in enumerate(sources)}
        operands = ", ".join(f"%{name}" for name in columns)
        code = "\n".join(f"{case.instruction} %d{i}, {operands}{case.suffix};" for i, case in enumerate(group))
        outputs = {f"d{i}": case.result for i, case in enumerate(group)}
        alike = rows[len(rows) // 3]
        constants = "\n".join(_constant(f"a{i}", kind, alike[i]) for i, kind in enumerate(sources))
        for some, results in (
            (rows, evaluate(code, columns, outputs)),
            ([alike], evaluate(f"{constants}\n{code}", {"lane_number": ("b32", [0])}, outputs)),
        ):
            for case, column in zip(group, results.values(), strict=True):
                _compare(case, some, column)


def _constant(name: str, kind: str, value: int) -> str:
    setting = "setp.ne.u32 %{}, {}, 0;" if kind == "pred" else f"mov.b{max(16, width(kind))} %{{}}, {{:#x}};"
    return _declaration(name, kind) + setting.format(name, value)


def _compare(case: OpCase, rows: Sequence[tuple[int, ...]], results: Sequence[int]) -> None:
    for row, got in zip(rows, results, strict=True):
        want = case.reference(*row)
        assert want is None or same(got, want, case.result, case.ulps), (
            f"{case.instruction}{case.suffix} of {[hex(v) for v in row]} is {got:#x}, the manual says {want:#x}"
        )


def same(got: int, want: int, kind: str, ulps: int = 0) -> bool:
    """Return whether two results are equal: any NaN of f16, f32 and f64 is as good as another."""
    if kind == "f16x2":
        return same(got & 0xFFFF, want & 0xFFFF, "f16") and same(got >> 16, want >> 16, "f16")
    if kind not in ("f16", "f32", "f64"):
        return got == want
    if math.isnan(value := decode(want, kind)):
        return math.isnan(decode(got, kind))
    return got == want or (math.isfinite(value) and abs(got - want) <= ulps)
