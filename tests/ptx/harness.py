"""Runs PTX snippets over vectors of lanes.

Values are bit patterns (plain ints) on both sides, so nothing is compared through a rounding.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from gemm_ref import ptx
from gemm_ref.launch import Launch, cdiv
from tests.ptx.ieee import FORMATS, from_bits, to_bits, width

COVERED: dict[str, list[str]] = {}  # opcode -> tests that define it, filled by `covers`
HEADER = '.version 8.0\n.target sm_90\n.address_size 64\n.file 1 "/src/probe.cu"\n'


def covers(*opcodes: str) -> Callable:
    """Marks a test as the one that checks these opcodes against the manual."""

    def mark(test: Callable) -> Callable:
        for opcode in opcodes:
            COVERED.setdefault(opcode, []).append(test.__name__)
        return test

    return mark


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


LANE = """.reg .b64 %at<20>; .reg .b32 %id<6>; .reg .pred %flag<9>;
mov.u32 %id0, %ctaid.x; mov.u32 %id1, %ntid.x; mov.u32 %id2, %tid.x; mad.lo.s32 %id3, %id0, %id1, %id2;"""


def evaluate(code: str, inputs: dict[str, tuple[str, Sequence[int]]], outputs: dict[str, str]) -> dict[str, list[int]]:
    """Run `code` once a lane, with registers %name loaded from the inputs, and return what it leaves in the outputs.

    The lanes differ, so every register is a vector; `evaluate_uniform` is the other way a machine may hold them.
    """
    count = len(next(iter(inputs.values()))[1])
    block = 128 if count > 128 else count
    padded = cdiv(count, block) * block
    body, args = [LANE], []
    for name, (kind, values) in inputs.items():
        bits, at = width(kind), len(args)
        args.append(words([*values, *[values[-1]] * (padded - count)], bits))
        body.append(
            f"ld.param.u64 %at{at}, [p{at}]; mul.wide.u32 %at19, %id3, {bits // 8}; add.s64 %at{at}, %at{at}, %at19;"
        )
        body.append(_load(name, kind, f"[%at{at}]"))
    body += [
        f".reg .{'pred' if kind == 'pred' else f'b{max(16, width(kind))}'} %{name};" for name, kind in outputs.items()
    ]
    body.append(code)
    for name, kind in outputs.items():
        bits, at = width(kind), len(args)
        args.append(words([0x5A] * padded, bits))
        body.append(
            f"ld.param.u64 %at{at}, [p{at}]; mul.wide.u32 %at19, %id3, {bits // 8}; add.s64 %at{at}, %at{at}, %at19;"
        )
        source = f"%{name}"
        if kind == "pred":
            body.append(f"selp.u32 %id5, 1, 0, %{name};")
            source = "%id5"
        body.append(f"st.global.b{bits} [%at{at}], {source};")
    run_kernel("\n".join(body), args, grid=(padded // block, 1, 1), block=(block, 1, 1))
    results = args[len(inputs) :]
    return {name: bits_of(tensor)[:count] for name, tensor in zip(outputs, results, strict=True)}


def _load(name: str, kind: str, address: str) -> str:
    if kind == "pred":
        return f".reg .pred %{name}; ld.global.u32 %id4, {address}; setp.ne.s32 %{name}, %id4, 0;"
    return f".reg .b{max(16, width(kind))} %{name}; ld.global.b{width(kind)} %{name}, {address};"


# --- instructions as a table ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class OpCase:
    """`instruction d, a, b, ...` and what the manual says of it, from bit patterns to bit patterns."""

    instruction: str
    sources: tuple[str, ...]
    result: str
    reference: Callable[..., int | None]  # None: the manual leaves it open
    ulps: int = 0  # how far an approximate instruction may be off
    suffix: str = ""  # operands after the sources, such as lop3's table
    values: dict[int, tuple[int, ...]] | None = None  # instead of a source's edge values

    def __str__(self) -> str:
        return self.instruction + self.suffix.replace(", ", "-")

    @property
    def opcode(self) -> str:
        return self.instruction.split(".")[0]

    def inputs(self) -> list[tuple[int, ...]]:
        """Every combination of edge values (as many as 1500 of them), and seeded random ones."""
        rng = random.Random(str(self))
        edges = [(self.values or {}).get(i) or edge_values(kind) for i, kind in enumerate(self.sources)]
        rows = list(itertools.product(*edges))
        if len(rows) > 1500:
            rows = rng.sample(rows, 1500)
        for _ in range(200):
            rows.append(tuple(_random(rng, e, k) for e, k in zip(edges, self.sources, strict=True)))
        return rows

    def run(self, rows: list[tuple[int, ...]]) -> list[int]:
        names = [f"a{i}" for i in range(len(self.sources))]
        columns = {n: (k, [row[i] for row in rows]) for i, (n, k) in enumerate(zip(names, self.sources, strict=True))}
        operands = ", ".join(f"%{name}" for name in names)
        return evaluate(f"{self.instruction} %d, {operands}{self.suffix};", columns, {"d": self.result})["d"]


def _random(rng: random.Random, edges: Sequence[int], kind: str) -> int:
    return rng.choice(edges) if kind == "pred" or rng.random() < 0.2 else rng.getrandbits(width(kind))


def edge_values(kind: str) -> tuple[int, ...]:
    """Where things go wrong: 0, 1, -1, extremes, powers of two; for floats NaN, Inf, -0, subnormals."""
    if kind == "pred":
        return (0, 1)
    bits = width(kind)
    if kind[0] == "f":
        return tuple(to_bits(v, kind) for v in _float_edges(kind)) + (1, (1 << bits - 1) | 3)
    ones, top = (1 << bits) - 1, (1 << bits - 1) - 1
    return 0, 1, 2, 3, 7, ones, ones - 1, top, top + 1, top + 2, 0xA5 << bits - 8, 1 << bits // 2


def _float_edges(kind: str) -> tuple[float, ...]:
    _, lowest, highest = FORMATS[kind][1:]
    precision = FORMATS[kind][1]
    smallest, largest = 2.0**lowest, (2 - 2.0 ** (1 - precision)) * 2.0**highest
    ordinary = (0.0, -0.0, 1.0, -1.0, 1.5, -2.5, 3.0, 1 / 3, 1 + 2.0 ** (1 - precision))
    return (*ordinary, smallest, -smallest, largest, -largest, math.inf, -math.inf, math.nan)


def check(case: OpCase) -> None:
    rows = case.inputs()
    found = case.run(rows)
    for row, got in zip(rows, found, strict=True):
        want = case.reference(*row)
        assert want is None or same(got, want, case.result, case.ulps), (
            f"{case.instruction}{case.suffix} of {[hex(v) for v in row]} is {got:#x}, the manual says {want:#x}"
        )


def same(got: int, want: int, kind: str, ulps: int = 0) -> bool:
    if kind[0] != "f":
        return got == want
    if math.isnan(value := from_bits(want, kind)):
        return math.isnan(from_bits(got, kind))
    return got == want or (ulps > 0 and math.isfinite(value) and abs(got - want) <= ulps)
