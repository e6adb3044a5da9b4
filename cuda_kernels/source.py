"""From a rung's .cu and its registry entry to what the two machines run, a shared library or PTX, and to its cubin."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Iterable
from pathlib import Path

from gemm_ref.build import CACHE, build_library, digest, keep, version_of
from gemm_ref.problem import B_LAYOUTS, MATHS
from gemm_ref.registry import Implementation
from gemm_ref.stage import LAYOUTS
from gemm_ref.toolchain import REFERENCE_CAPABILITY, architecture, assemble, find_toolkit, run_nvcc

FOLDER = Path(__file__).resolve().parent
INCLUDE = FOLDER / "include"
# -lineinfo: faults and profilers name the .cu's own lines. No --use_fast_math: the arithmetic stays IEEE.
FLAGS = ("-O3", "-std=c++17", "-lineinfo", f"-I{INCLUDE}")


def compose(implementation: Implementation) -> str:
    """The CUDA text of one implementation: its compile-time shape from the registry, then the rung's file.

    The shape becomes `config::BLOCK_M` and so on; a rung of several math modes is told `config::MATH`, and how B lies,
    `config::B_LAYOUT`. A #line directive keeps the file's own line numbers.
    """
    path = FOLDER / f"{implementation.stage.id}.cu"
    constants = [_constant(name, value) for name, value in implementation.config.constants().items()]
    if implementation.stage.maths != ("fp32",):
        constants += [_choice("Math", MATHS, "MATH", implementation.math)]
        constants += [_choice("Layout", B_LAYOUTS, "B_LAYOUT", implementation.b_layout)]
    shape = f"namespace config {{ {' '.join(constants)} }}"
    return f'{shape}\n#line 1 "{path.name}"\n{path.read_text(encoding="utf-8")}'


def _constant(name: str, value: int | str) -> str:
    if isinstance(value, int):
        return f"constexpr int {name} = {value};"
    return _choice("Layout", LAYOUTS, name, value)  # LAYOUT is the one constant that is a name


def _choice(kind: str, names: Iterable[str], name: str, value: str) -> str:
    return f"enum class {kind} {{ {', '.join(names)} }}; constexpr {kind} {name} = {kind}::{value};"


def _key(implementation: Implementation, *more: object) -> str:
    includes = [path.read_text(encoding="utf-8") for path in sorted(INCLUDE.glob("*.cuh"))]
    return digest(compose(implementation), *includes, *FLAGS, *more)


def _stem(implementation: Implementation) -> str:
    return f"{implementation.stage.id}-{implementation.variant}-{implementation.math}-{implementation.b_layout}"


@functools.cache
def library(implementation: Implementation, capability: tuple[int, int]) -> Path:
    """The shared library of one implementation for one GPU architecture, built once.

    Raises BuildError when there is no compiler, or with the compiler's output.
    """
    arch = architecture(capability)
    return build_library(
        f"{_stem(implementation)}-sm_{arch}".replace("-", "_"),
        cuda=f"// {_key(implementation)}: covers the headers too\n{compose(implementation)}",
        # all of nvcc's flags are here, so that load_inline adds no architecture of its own
        cuda_cflags=(*FLAGS, f"-gencode=arch=compute_{arch},code=sm_{arch}"),
        cuda_home=find_toolkit(),
    )


@functools.cache
def ptx(implementation: Implementation, capability: tuple[int, int] = REFERENCE_CAPABILITY) -> str:
    """The PTX of one implementation, as nvcc -O3 writes it for one GPU architecture.

    Raises BuildError when there is no compiler, or with the compiler's output.
    """
    arch = architecture(capability)
    cached = _cached(implementation, arch, "ptx")
    if not cached.exists():
        with tempfile.TemporaryDirectory() as folder:
            source, target = Path(folder) / f"{implementation.stage.id}.cu", Path(folder) / "out.ptx"
            source.write_text(compose(implementation), encoding="utf-8")
            run_nvcc([*FLAGS, "-ptx", f"-arch=compute_{arch}", str(source), "-o", str(target)])
            keep(cached, target.read_text(encoding="utf-8"))
    return cached.read_text(encoding="utf-8")


@functools.cache
def cubin(implementation: Implementation, capability: tuple[int, int]) -> Path:
    """The machine code of one implementation for one GPU architecture, made of its PTX; it takes no GPU.

    Byte for byte what nvcc makes of the source in one go, and what `library` holds.
    Raises BuildError when there is no compiler, or with the compiler's output.
    """
    cached = _cached(implementation, architecture(capability), "cubin")
    if not cached.exists():
        keep(cached, assemble(ptx(implementation, capability), capability))
    return cached


def _cached(implementation: Implementation, arch: str, kind: str) -> Path:
    key = _key(implementation, arch, version_of(str(find_toolkit() / "bin" / "nvcc")))
    return CACHE / f"{_stem(implementation)}-sm_{arch}-{key}.{kind}"
