"""Random statements of CUDA C++, bit for bit: what the reference GPU computes by nvcc's PTX, and the CPU by g++'s code.

    python -m tests.ptx.fuzz.statements --count 10000 --seed 1

Both compilers get the same text, and neither contracts a product and a sum. No statement is undefined in C++: sums of
integers are unsigned, amounts of shifts are masked, divisors are not zero, and a float becomes an integer only where it
is small. Any NaN equals any other.
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

INTEGERS = ("u8", "u16", "u32", "u64", "s8", "s16", "s32", "s64")
FLOATS = ("f16", "f32", "f64")
LANES, VARIABLES, AT_ONCE, KERNELS = 64, 3, 25, 40  # statements of a kernel, and kernels of a file
_NUMPY = {name: np.dtype({"u": "uint", "s": "int", "f": "float"}[name[0]] + name[1:]) for name in INTEGERS + FLOATS}
_BITS = {size: np.dtype(f"i{size}") for size in (1, 2, 4, 8)}

PRELUDE = """
#ifdef __CUDACC__
#include <cuda_fp16.h>
typedef __half f16;
#define WHERE __device__ inline
WHERE f16 product_of(f16 a, f16 b) { return __hmul_rn(a, b); }  // its name forbids to join it with a sum
#else
#include <cmath>
typedef _Float16 f16;
#define WHERE static inline
WHERE f16 product_of(f16 a, f16 b) { return a * b; }
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
    """Writes random expressions."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)

    def expression(self, kind: str, depth: int) -> str:
        """Returns a value of a type such as `u32`, of operations `depth` levels deep."""
        chance = self._chance
        if depth == 0 or chance.random() < 0.1:
            return self._leaf(kind)
        if chance.random() < 0.12:
            of = chance.choice(INTEGERS + FLOATS[1:])
            a, b, c, d = (self.expression(each, depth - 1) for each in (of, of, kind, kind))
            return f"({a} {chance.choice(('<', '<=', '==', '!=', '>', '>='))} {b} ? {c} : {d})"
        return self._of_float(kind, depth - 1) if kind in FLOATS else self._of_integer(kind, depth - 1)

    def _leaf(self, kind: str) -> str:
        number = self._chance.randrange(VARIABLES + 1)
        if number < VARIABLES:
            return f"{kind}_{number}"
        if kind == "f16":
            return f"half_of({self._chance.choice((0.5, 2.0, -3.0, 100.0))}f)"
        return f"({kind}){self._chance.choice((0.1, 2, -3, 1e-3, 1e5) if kind in FLOATS else (0, 1, 3, 77, 200))}"

    def _of_integer(self, kind: str, depth: int) -> str:
        chance, bits = self._chance, int(kind[1:])
        form = chance.choice(("sum", "sum", "logic", "shift", "divide", "cast", "cast", "float"))
        if form == "cast":
            return f"({kind}){self.expression(chance.choice(INTEGERS), depth)}"
        if form == "float":
            return f"({kind})whole({self.expression(chance.choice(FLOATS), depth)})"
        a, b = self.expression(kind, depth), self.expression(kind, depth)
        wide = "u64" if bits == 64 else "u32"  # in which sums and left shifts do not overflow
        if form == "sum":
            return f"({kind})(({wide}){a} {chance.choice('+-*')} ({wide}){b})"
        if form == "logic":
            return f"({kind})({a} {chance.choice('&|^')} {chance.choice(('', '~'))}{b})"
        if form == "shift":
            shift = f"({wide}){a} <<" if chance.random() < 0.5 else f"{a} >>"
            return f"({kind})({shift} ((u32){b} & {bits - 1}))"
        return f"{chance.choice(('quotient', 'remainder_of'))}<{kind}>({a}, {b})"

    def _of_float(self, kind: str, depth: int) -> str:
        chance, suffix = self._chance, "f" if kind == "f32" else ""
        form = chance.choice(("sum", "product", "divide", "cast", "function"))
        if form == "cast":
            other = chance.choice([each for each in INTEGERS[2:4] + INTEGERS[6:] + FLOATS if each != kind])
            if kind == "f16":  # by way of fp32, as there is no other in both
                return f"half_of((f32){self.expression(chance.choice(('f32', 'u32')), depth)})"
            through = "(f32)" if other == "f16" else ""
            return f"({kind}){through}{self.expression(other, depth)}"
        if form == "function" and kind != "f16":
            name = chance.choice(("sqrt", "fabs", "floor", "trunc", "rint", "-"))
            return f"({name}{'' if name == '-' else suffix}({self.expression(kind, depth)}))"
        a, b = self.expression(kind, depth), self.expression(kind, depth)
        sign = "/" if form == "divide" and kind != "f16" else "*" if form == "product" else chance.choice("+-")
        return f"product_of({a}, {b})" if kind == "f16" and sign == "*" else f"({a} {sign} {b})"


def inputs(seed: int) -> dict[str, np.ndarray]:
    """Returns the values of each variable by lane: random bits, numbers of middling size, and special values."""
    chance, found = np.random.default_rng(seed), {}
    for kind, dtype in _NUMPY.items():
        for number in range(VARIABLES):
            bits = chance.integers(0, 256, LANES * dtype.itemsize, dtype=np.uint8).view(dtype).copy()
            if kind in FLOATS:
                bits = np.where(chance.random(LANES) < 0.7, chance.uniform(-4, 4, LANES).astype(dtype), bits)
                bits[:8] = np.array([0, -0.0, 1, -1, np.inf, -np.inf, np.nan, np.finfo(dtype).tiny / 4], dtype)
            else:
                limits = np.iinfo(dtype)
                bits[:6] = np.array([0, 1, limits.max, limits.min, limits.max - 1, 2], dtype)
            chance.shuffle(bits)
            found[f"{kind}_{number}"] = bits
    return found


def _texts(statements: list[tuple[str, str]]) -> tuple[str, str]:
    """Returns the same functions for nvcc and for g++; a statement is its type and its text."""
    names = [f"{kind}_{number}" for kind in _NUMPY for number in range(VARIABLES)]
    parameters = ", ".join(f"const {name.partition('_')[0]} *p_{name}" for name in names)
    reads = "".join(f"  const {name.partition('_')[0]} {name} = p_{name}[i];\n" for name in names)
    device, host = [PRELUDE], [PRELUDE]
    for first in range(0, len(statements), AT_ONCE):
        body = reads + "".join(
            f"  (({kind} *)out)[({n * LANES} + i) * 8 / sizeof({kind})] = {text};\n"
            for n, (kind, text) in enumerate(statements[first : first + AT_ONCE])
        )
        name, loop = f"k{first}(void *out, {parameters}) {{\n", f"  for (int i = 0; i < {LANES}; ++i) {{\n"
        device.append(f'extern "C" __global__ void {name}  const int i = threadIdx.x;\n{body}}}\n')
        host.append(f'extern "C" void {name}{loop}{body}}}}}\n')
    return "".join(device), "".join(host)


def differences(count: int, seed: int, depth: int = 4) -> Iterator[str]:
    """Yields a line for each of `count` statements whose results differ."""
    writer, kinds, values = Writer(seed), random.Random(seed), inputs(seed)
    tensors = [torch.from_numpy(array.view(_BITS[array.itemsize])) for array in values.values()]
    for _ in range(0, count, AT_ONCE * KERNELS):
        chosen = [kinds.choice(tuple(_NUMPY)) for _ in range(min(count, AT_ONCE * KERNELS))]
        statements = [(kind, writer.expression(kind, depth)) for kind in chosen]
        device, host = _texts(statements)
        text = source.compile_ptx(device, "statements.cu", flags=(*source.FLAGS, "-fmad=false"))[0]
        with tempfile.TemporaryDirectory() as folder:
            library = _compile(Path(folder), host)
            for first in range(0, len(statements), AT_ONCE):
                found, want = torch.zeros(AT_ONCE * LANES, dtype=torch.int64), np.zeros(AT_ONCE * LANES, np.int64)
                ptx.run(ptx.load(text, f"k{first}"), Launch((1, 1, 1), (LANES, 1, 1)), [found, *tensors])
                library[f"k{first}"](*(ctypes.c_void_p(array.ctypes.data) for array in (want, *values.values())))
                yield from _compare(statements[first : first + AT_ONCE], found.numpy(), want, values)


def _compile(folder: Path, text: str) -> ctypes.CDLL:
    path, library = folder / "statements.cpp", folder / "statements.so"
    path.write_text(text, encoding="utf-8")
    # without -frounding-math, g++ 12 makes -x of 0.0f - x where x was unsigned, which is -0 for 0
    floats = ["-ffp-contract=off", "-fexcess-precision=16", "-frounding-math"]
    flags = ["-std=c++17", "-O1", "-fwrapv", *floats, "-w", "-shared", "-fPIC"]
    subprocess.run([find_cxx(), *flags, "-o", str(library), str(path)], check=True)
    return ctypes.CDLL(str(library))


def _compare(
    statements: list[tuple[str, str]], found: np.ndarray, want: np.ndarray, values: dict[str, np.ndarray]
) -> Iterator[str]:
    for number, (kind, text) in enumerate(statements):
        dtype, rows = _NUMPY[kind], slice(number * LANES, (number + 1) * LANES)
        got, wanted = (np.ascontiguousarray(a[rows]).view(dtype)[:: 8 // dtype.itemsize] for a in (found, want))
        same = got.view(_BITS[dtype.itemsize]) == wanted.view(_BITS[dtype.itemsize])
        if kind in FLOATS:
            same |= np.isnan(got) & np.isnan(wanted)
        if not same.all():
            lane = int(np.argmin(same))
            used = {name: array[lane] for name, array in values.items() if name in text}
            yield f"{kind} {text}\n  is {got[lane]!r}, and {wanted[lane]!r} on the CPU, of {used}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    wrong = 0
    for line in differences(options.count, options.seed):
        wrong += 1
        print(line, flush=True)
    print(f"{options.count} statements: {wrong} differ")
    return int(wrong > 0)


if __name__ == "__main__":
    raise SystemExit(main())
