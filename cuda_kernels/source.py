"""From a rung's .cu and its registry entry to what the two machines run, a shared library or PTX, and to its cubin."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Sequence
from pathlib import Path

from cuda_kernels.compiler import compile_to_ptx
from cuda_kernels.rewritten import rewrite
from gemm_ref.build import CACHE, build_library, cached, digest, keep, version_of
from gemm_ref.compute import B_LAYOUTS, MATHS, WIDE
from gemm_ref.config.cuda_cores import SLICE_LAYOUTS
from gemm_ref.epilogue import ACTIVATIONS, BIASES
from gemm_ref.registry import STAGES, Implementation
from gemm_ref.rung import DEFAULT_VARIANT, Rung
from gemm_ref.toolchain import REFERENCE_CAPABILITY, architecture, assemble, find_toolkit, run_nvcc

FOLDER = Path(__file__).resolve().parent
INCLUDE = FOLDER / "include"
REGISTRY_HEADER = INCLUDE / "registry.cuh"
# -lineinfo: faults and profilers name the .cu's own lines. No --use_fast_math: the arithmetic stays IEEE.
FLAGS = ("-O3", "-std=c++17", "-lineinfo", f"-I{INCLUDE}")


def compose(implementation: Implementation, rules: Sequence[str] = ()) -> str:
    """The CUDA text of one implementation: its compile-time values from the registry, then the rung's file.

    rules: of `rewritten.RULES`, which change the file's text; so in all functions below.

    The values stand in place of those of include/registry.cuh, with which a file compiles that is given to nvcc as it
    is stored. A #line directive keeps the file's own line numbers.
    """
    path = FOLDER / f"{implementation.stage.id}.cu"
    text = rewrite(path.read_text(encoding="utf-8"), rules)
    return f'#define {_GUARD}\n{values(implementation)}#line 1 "{path.name}"\n{text}'


def values(implementation: Implementation) -> str:
    """The registry's values of one implementation in C++, as include/registry.cuh has those of the defaults."""
    return _ENUMS + _namespace(implementation)


def registry_header() -> str:
    """What include/registry.cuh must say: each rung's values in its default variant and first math mode."""
    defaults = "\n".join(_namespace(choose(stage)) for stage in STAGES.values())
    return _HEADER.format(guard=_GUARD, enums=_ENUMS, defaults=defaults)


def choose(
    stage: Rung, variant: str = DEFAULT_VARIANT, math: str | None = None, b_layout: str | None = None
) -> Implementation:
    """A rung's CUDA kernel; of math modes, and of layouts in which it reads B, the first where none is given.

    Raises ValueError for what the rung has not.
    """
    math = math or stage.maths[0]
    if math not in stage.maths:
        raise ValueError(f"{stage.id} does not compute in {math}: it has {', '.join(stage.maths)}")
    layouts = stage.reads_b(math, "cuda")
    if b_layout not in (None, *layouts):
        raise ValueError(f"{stage.id} does not read B as {b_layout!r} in {math}: it reads {', '.join(layouts)}")
    return Implementation(stage, stage.find_variant(variant, "cuda"), "cuda", math, b_layout or layouts[0])


# Which values a .cu is compiled with: those that stand before it, or else the defaults.
_GUARD = "GEMM_LADDER_REGISTRY"
_ENUMS = "".join(
    f"enum class {kind} {{ {', '.join(names)} }};\n"
    for kind, names in (
        ("Math", MATHS),
        ("BLayout", B_LAYOUTS),
        ("SliceLayout", SLICE_LAYOUTS),
        ("Activation", ("none", *ACTIVATIONS)),
        ("Bias", ("none", *BIASES)),
    )
)
_KINDS = {"LAYOUT": "SliceLayout", "ACTIVATION": "Activation", "BIAS": "Bias"}  # of the constants that are names
_HEADER = """\
// The compile-time values of each rung, from gemm_ref/registry.py: those of its default variant in its first math mode.
// A rung calls its own `config`. `python -m cuda_kernels registry` writes this file. For another variant or math mode,
// put its values before the rung's file and define {guard}.
#ifndef {guard}
#define {guard}
// clang-format off

{enums}
{defaults}
#endif
"""


def _namespace(implementation: Implementation) -> str:
    tma = implementation.stage.tma
    constants = [_constant(name, value) for name, value in implementation.config.constants().items()]
    if implementation.stage.maths != ("fp32",):
        constants += [f"inline constexpr Math MATH = Math::{implementation.math};"]
        constants += [f"inline constexpr BLayout B_LAYOUT = BLayout::{implementation.b_layout};"]
    if (mode := MATHS[implementation.math]).parts > 1:
        parts = {"PARTS": mode.parts, "PART_SHIFT": mode.part_shift, "WIDE": WIDE}
        constants += [_constant(name, value) for name, value in parts.items()]
    if tma and "cuda" in tma.c_by_threads:
        constants += [_constant("C_BY_THREADS", int(implementation.threads_store_c))]
    if implementation.config.ADDS_TOGETHER:
        constants += [_constant("ADDS_TOGETHER", int(implementation.adds_together))]
    if tma and "cuda" in tma.a_in_phases:
        constants += [_constant("A_PHASES", implementation.a_phases)]
    if "cuda" in implementation.stage.epilogues:
        constants += [_constant(name, value) for name, value in implementation.epilogue.constants().items()]
    return "\n".join((f"namespace registry::{implementation.stage.id} {{", *constants, "}\n"))


def _constant(name: str, value: int | str) -> str:
    if isinstance(value, int):
        return f"inline constexpr int {name} = {value};"
    return f"inline constexpr {_KINDS[name]} {name} = {_KINDS[name]}::{value};"


def _key(implementation: Implementation, rules: Sequence[str], *more: object) -> str:
    includes = [path.read_text(encoding="utf-8") for path in sorted(INCLUDE.glob("*.cuh")) if path != REGISTRY_HEADER]
    return digest(compose(implementation, rules), *includes, *FLAGS, *more)


def _stem(implementation: Implementation, rules: Sequence[str]) -> str:
    return "-".join((str(implementation).replace(":", "-"), *rules))


@functools.cache
def library(implementation: Implementation, capability: tuple[int, int], rules: tuple[str, ...] = ()) -> Path:
    """The shared library of one implementation for one GPU architecture, built once.

    Raises BuildError when there is no compiler, or with the compiler's output.
    """
    arch = architecture(capability)
    return build_library(
        f"{_stem(implementation, rules)}-sm_{arch}".replace("-", "_"),
        cuda=f"// {_key(implementation, rules)}: covers the headers too\n{compose(implementation, rules)}",
        # all of nvcc's flags are here, so that load_inline adds no architecture of its own
        cuda_cflags=(*FLAGS, f"-gencode=arch=compute_{arch},code=sm_{arch}"),
        cuda_home=find_toolkit(),
    )


@functools.cache
def ptx(
    implementation: Implementation,
    capability: tuple[int, int] = REFERENCE_CAPABILITY,
    rules: tuple[str, ...] = (),
) -> str:
    """The PTX of one implementation, as nvcc -O3 writes it for one GPU architecture.

    Raises BuildError when there is no compiler, or with the compiler's output.
    """

    def compiled() -> str:
        return compile_ptx(compose(implementation, rules), f"{implementation.stage.id}.cu", capability)[0]

    path = _path(implementation, architecture(capability), "ptx", rules)
    return cached(path, compiled).read_text(encoding="utf-8")


def compile_ptx(
    text: str,
    name: str,
    capability: tuple[int, int] = REFERENCE_CAPABILITY,
    flags: Sequence[str] = FLAGS,
    *,
    by_nvcc: bool = False,
) -> tuple[str, str]:
    """The PTX that nvcc makes of a CUDA text in a file called `name`, and its warnings.

    by_nvcc: by nvcc itself, and not by `compile_to_ptx`; for its time, say.
    Raises BuildError when there is no compiler, or with the compiler's output.
    """
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / name, Path(folder) / "out.ptx"
        source.write_text(text, encoding="utf-8")
        flags = [*flags, f"-arch=compute_{architecture(capability)}"]
        if not by_nvcc and (compiled := compile_to_ptx(source, flags)):
            return compiled
        output = run_nvcc([*flags, "-ptx", str(source), "-o", str(target)])
        return target.read_text(encoding="utf-8"), output


@functools.cache
def cubin(implementation: Implementation, capability: tuple[int, int], rules: tuple[str, ...] = ()) -> Path:
    """The machine code of one implementation for one GPU architecture, made of its PTX; it takes no GPU.

    Byte for byte what nvcc makes of the source in one go, and what `library` holds.
    Raises BuildError when there is no compiler, or with the compiler's output.
    """
    path = _path(implementation, architecture(capability), "cubin", rules)
    return cached(path, lambda: assemble(ptx(implementation, capability, rules), capability))


def cubin_anew(implementation: Implementation, capability: tuple[int, int]) -> Path:
    """As `cubin`, by nvcc from the source, whatever was compiled before; `ptx` and `cubin` find it from then on."""
    path = _path(implementation, architecture(capability), "cubin")
    text, _ = compile_ptx(compose(implementation), f"{implementation.stage.id}.cu", capability, by_nvcc=True)
    keep(path.with_suffix(".ptx"), text)
    keep(path, assemble(text, capability))
    return path


def _path(implementation: Implementation, arch: str, kind: str, rules: Sequence[str] = ()) -> Path:
    key = _key(implementation, rules, arch, version_of(str(find_toolkit() / "bin" / "nvcc")))
    return CACHE / f"{_stem(implementation, rules)}-sm_{arch}-{key}.{kind}"
