"""Random statements of CUDA C++, bit for bit: what the reference GPU makes of nvcc's PTX, and the CPU of g++'s code.

    python -m tests.ptx.fuzz.statements --count 10000 --seed 1

Both compilers get the same text, with and without contraction: where nvcc may contract (`-fmad=true`), the statements
for g++ say `fma` for a sum with a product, or do not, since nvcc leaves some to ptxas. No statement is undefined in
C++: sums of integers are unsigned, amounts of shifts are cut, divisors are not zero, and a float becomes an integer
where it is small. A NaN is any NaN.
"""

from __future__ import annotations

import argparse
import ctypes
import random
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

from cuda_kernels import source
from gemm_ref import ptx
from gemm_ref.build import find_cxx
from gemm_ref.launch import Launch

UNSIGNED, SIGNED, FLOATS = ("u8", "u16", "u32", "u64"), ("s8", "s16", "s32", "s64"), ("f16", "f32", "f64")
INTEGERS = UNSIGNED + SIGNED
LANES, VARIABLES, AT_ONCE, KERNELS = 64, 3, 25, 40  # statements of a kernel, and kernels of a file
_NUMPY = {name: np.dtype({"u": "uint", "s": "int", "f": "float"}[name[0]] + name[1:]) for name in INTEGERS + FLOATS}

PRELUDE = """
#ifdef __CUDACC__
#include <cuda_fp16.h>
typedef __half f16;
#define WHERE __device__ inline
#else
#include <cmath>
typedef _Float16 f16;
#define WHERE static inline
#endif
typedef unsigned char u8; typedef unsigned short u16; typedef unsigned u32; typedef unsigned long long u64;
typedef signed char s8; typedef short s16; typedef int s32; typedef long long s64;
typedef float f32; typedef double f64;
WHERE f16 half_of(float x) { return (f16)x; }
template <typename T> WHERE T quotient(T a, T b) { return b == (T)0 || b == (T)-1 ? a : (T)(a / b); }
template <typename T> WHERE T remainder_of(T a, T b) { return b == (T)0 || b == (T)-1 ? a : (T)(a % b); }
template <typename T> WHERE s32 whole(T x) { return x > (T)-1e4f && x < (T)1e4f ? (s32)(float)x : 7; }
"""


class Writer:
    """Expressions as text for both compilers: (nvcc's, g++'s with contraction)."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)

    def expression(self, kind: str, depth: int) -> tuple[str, str]:
        """A value of a type such as `u32`, of operations `depth` levels deep."""
        chance = self._chance
        if depth == 0 or chance.random() < 0.1:
            return self._leaf(kind)
        if chance.random() < 0.12:  # a choice by a comparison
            of = chance.choice(INTEGERS + FLOATS[1:])
            parts = [self.expression(each, depth - 1) for each in (of, of, kind, kind)]
            sign = chance.choice(("<", "<=", "==", "!=", ">", ">="))
            return self._joined(f"({{}} {sign} {{}} ? {{}} : {{}})", parts)
        return self._of_float(kind, depth) if kind in FLOATS else self._of_integer(kind, depth)

    def _leaf(self, kind: str) -> tuple[str, str]:
        number = self._chance.randrange(VARIABLES + 1)
        if number < VARIABLES:
            text = f"{kind}_{number}"
        elif kind == "f16":
            text = f"half_of({self._chance.choice((0.5, 2.0, -3.0, 100.0))}f)"
        elif kind in FLOATS:
            text = f"({kind}){self._chance.choice((0.1, 2, -3, 1e-3, 1e5))}"
        else:
            text = f"({kind}){self._chance.choice((0, 1, 3, 77, 200))}"
        return text, text

    @staticmethod
    def _joined(form: str, parts: list[tuple[str, str]], contracted: str = "") -> tuple[str, str]:
        device, host = zip(*parts, strict=True)
        return form.format(*device), (contracted or form).format(*host)

    def _of_integer(self, kind: str, depth: int) -> tuple[str, str]:
        chance, bits = self._chance, int(kind[1:])
        what = chance.choice(("sum", "sum", "logic", "shift", "divide", "cast", "cast", "float"))
        if what == "cast":
            return self._joined(f"({kind}){{}}", [self.expression(chance.choice(INTEGERS), depth - 1)])
        if what == "float":
            return self._joined(f"({kind})whole({{}})", [self.expression(chance.choice(FLOATS), depth - 1)])
        a, b = self.expression(kind, depth - 1), self.expression(kind, depth - 1)
        if what == "sum":  # in a type that does not overflow
            wide = "u64" if bits == 64 else "u32"
            return self._joined(f"({kind})(({wide}){{}} {chance.choice('+-*')} ({wide}){{}})", [a, b])
        if what == "logic":
            return self._joined(f"({kind})({{}} {chance.choice('&|^')} {chance.choice(('', '~'))}{{}})", [a, b])
        if what == "shift":
            left = f"({kind})(({'u64' if bits == 64 else 'u32'}){{}} << ((u32){{}} & {bits - 1}))"
            return self._joined(chance.choice((left, f"({kind})({{}} >> ((u32){{}} & {bits - 1}))")), [a, b])
        return self._joined(f"{chance.choice(('quotient', 'remainder_of'))}<{kind}>({{}}, {{}})", [a, b])

    def _of_float(self, kind: str, depth: int) -> tuple[str, str]:
        chance, suffix = self._chance, {"f16": "", "f32": "f", "f64": ""}[kind]
        what = chance.choice(("sum", "product", "multiply-add", "divide", "cast", "function"))
        if what == "cast":
            other = chance.choice([each for each in INTEGERS[2:4] + INTEGERS[6:] + FLOATS if each != kind])
            if kind == "f16":  # by way of fp32, as there is no other in both
                return self._joined("half_of((f32){})", [self.expression(chance.choice(("f32", "u32")), depth - 1)])
            if other == "f16" and kind == "f64":
                return self._joined("(f64)(f32){}", [self.expression(other, depth - 1)])
            return self._joined(f"({kind}){{}}", [self.expression(other, depth - 1)])
        if what == "function" and kind != "f16":
            name = chance.choice(("sqrt", "fabs", "floor", "trunc", "rint", "-"))
            form = "(-{})" if name == "-" else f"{name}{suffix}({{}})"
            return self._joined(form, [self.expression(kind, depth - 1)])
        a, b = self._make_uncontracted(kind, depth), self._make_uncontracted(kind, depth)
        if what == "multiply-add" and kind != "f16":
            c = self._make_uncontracted(kind, depth)
            return self._joined("({} * {} + {})", [a, b, c], f"fma{suffix}({{}}, {{}}, {{}})")
        if what == "divide" and kind != "f16":
            return self._joined("({} / {})", [a, b])
        return self._joined("({} * {})" if what == "product" else "({} " + chance.choice("+-") + " {})", [a, b])

    def _make_uncontracted(self, kind: str, depth: int) -> tuple[str, str]:
        """An operand that no compiler contracts, or turns a sum into a difference by: no product, nothing negated."""
        found = self.expression(kind, depth - 1)
        while "*" in found[0] or found[0].startswith("(-"):
            found = self._leaf(kind) if self._chance.random() < 0.5 else self.expression(kind, max(depth - 2, 0))
        return found


def inputs(seed: int) -> dict[str, np.ndarray]:
    """The values of each variable, by lane: bits at random, and where things go wrong."""
    chance, found = np.random.default_rng(seed), {}
    for kind, dtype in _NUMPY.items():
        for number in range(VARIABLES):
            bits = chance.integers(0, 256, LANES * dtype.itemsize, dtype=np.uint8).view(dtype).copy()
            if kind in FLOATS:
                some = chance.uniform(-4, 4, LANES).astype(dtype)
                bits = np.where(chance.random(LANES) < 0.7, some, bits)
                bits[:8] = np.array([0, -0.0, 1, -1, np.inf, -np.inf, np.nan, np.finfo(dtype).tiny / 4], dtype)
            else:
                limits = np.iinfo(dtype)
                bits[:6] = np.array([0, 1, limits.max, limits.min, limits.max - 1, 2], dtype)
            chance.shuffle(bits)
            found[f"{kind}_{number}"] = bits
    return found


def _texts(statements: list[tuple[str, str, str]]) -> tuple[str, str]:
    """The same functions for nvcc, and for g++; a statement is its type, its text, and its text contracted."""
    names = [f"{kind}_{number}" for kind in _NUMPY for number in range(VARIABLES)]
    parameters = ", ".join(f"const {name.partition('_')[0]} *p_{name}" for name in names)
    reads = "".join(f"  const {name.partition('_')[0]} {name} = p_{name}[i];\n" for name in names)
    device, host = [PRELUDE], [PRELUDE]
    for first in range(0, len(statements), AT_ONCE):
        some = statements[first : first + AT_ONCE]
        stores = [f"  (({kind} *)out)[({n * LANES} + i) * 8 / sizeof({kind})]" for n, (kind, *_) in enumerate(some)]
        loop = f"  for (int i = 0; i < {LANES}; ++i) {{\n"
        for texts, opening, body, which, end in (
            (device, f'extern "C" __global__ void k{first}', "  const int i = threadIdx.x;\n", 1, "}\n"),
            (host, f'extern "C" void k{first}', loop, 1, "}}\n"),
            (host, f'extern "C" void contracted{first}', loop, 2, "}}\n"),
        ):
            lines = [f"{store} = {each[which]};\n" for store, each in zip(stores, some, strict=True)]
            texts.append(f"{opening}(void *out, {parameters}) {{\n" + body + reads + "".join(lines) + end)
    return "".join(device), "".join(host)


def differences(count: int, seed: int, fmad: bool, depth: int = 4) -> Iterator[str]:
    """What the two say differently of `count` statements, a line each."""
    writer, kinds = Writer(seed), random.Random(seed)
    values = inputs(seed)
    for _ in range(0, count, AT_ONCE * KERNELS):
        many = min(count, AT_ONCE * KERNELS)
        chosen = [kinds.choice(tuple(_NUMPY)) for _ in range(many)]
        statements = [(kind, *writer.expression(kind, depth)) for kind in chosen]
        device, host = _texts(statements)
        text = source.compile_ptx(device, "statements.cu", flags=(*source.FLAGS, f"-fmad={str(fmad).lower()}"))[0]
        with tempfile.TemporaryDirectory() as folder:
            library = _compiled(Path(folder), host)
            for first in range(0, many, AT_ONCE):
                found = torch.zeros(AT_ONCE * LANES, dtype=torch.int64)
                tensors = [torch.from_numpy(values[name].view(_PLAIN[values[name].itemsize])) for name in values]
                kernel = ptx.load(text, f"k{first}")
                ptx.run(kernel, Launch((1, 1, 1), (LANES, 1, 1)), [found, *tensors])
                wants = []
                for name in (f"k{first}", f"contracted{first}"):
                    wants.append(np.zeros(AT_ONCE * LANES, np.int64))
                    library[name](*(ctypes.c_void_p(array.ctypes.data) for array in (wants[-1], *values.values())))
                some = statements[first : first + AT_ONCE]
                yield from _compared(some, found.numpy(), wants if fmad else wants[:1], values)


_PLAIN = {1: np.int8, 2: np.int16, 4: np.int32, 8: np.int64}


def _compiled(folder: Path, text: str) -> ctypes.CDLL:
    path = folder / "statements.cpp"
    path.write_text(text, encoding="utf-8")
    # without -frounding-math, g++ 12 makes -x of 0.0f - x where x was unsigned, which is -0 for 0
    floats = ["-ffp-contract=off", "-fexcess-precision=16", "-frounding-math"]
    flags = ["-std=c++17", "-O1", "-fwrapv", *floats, "-w", "-shared", "-fPIC"]
    subprocess.run([find_cxx(), *flags, "-o", str(folder / "statements.so"), str(path)], check=True)
    return ctypes.CDLL(str(folder / "statements.so"))


def _compared(
    statements: list[tuple[str, str, str]], found: np.ndarray, wants: list[np.ndarray], values: dict[str, np.ndarray]
) -> Iterator[str]:
    for number, (kind, text, _) in enumerate(statements):
        dtype, rows = _NUMPY[kind], slice(number * LANES, (number + 1) * LANES)
        got, *wanted = (np.ascontiguousarray(a[rows]).view(dtype)[:: 8 // dtype.itemsize] for a in (found, *wants))
        bits = _PLAIN[dtype.itemsize]
        same = np.any([got.view(bits) == want.view(bits) for want in wanted], axis=0)
        if kind in FLOATS:
            same |= np.isnan(got) & np.isnan(wanted[0])
        if not same.all():
            lane = int(np.argmin(same))
            used = {name: array[lane] for name, array in values.items() if name in text}
            yield f"{kind} {text}\n  is {got[lane]!r}, and {wanted[-1][lane]!r} on the CPU, of {used}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    wrong = 0
    for fmad in (False, True):
        for line in differences(options.count, options.seed, fmad):
            wrong += 1
            print(f"fmad {fmad}: {line}")
        print(f"{options.count} statements with fmad {fmad}: {wrong} differ so far", flush=True)
    return int(wrong > 0)


if __name__ == "__main__":
    raise SystemExit(main())
