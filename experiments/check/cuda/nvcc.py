"""What nvcc makes of a user's file for the reference GPU, and what it says of it."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeVar

from cuda_kernels import source
from experiments.check.cuda.signature import closing
from experiments.check.cuda.unit import Unit
from experiments.records.request import UsageError
from gemm_ref.build import BuildError

WARNING = re.compile(r"^(?:.*/)?([^/\n]+)\((\d+)\): warning #(\d+)-D: (.*)$", re.M)  # file, line, number, text
UNUSED = "177"  # declared but never referenced
UNDEFINED = "549"  # used before its value is set

_TRIES = 12  # each finds one missing header, or functions that do not compile
_MARK = "checked_instance"  # a variable of ours: what it is set to is the kernel's name in PTX

T = TypeVar("T")


def compile_ptx(unit: Unit, instance: str = "") -> tuple[str, str, str]:
    """(PTX, warnings, entry) of a user's file; the entry is the name in PTX of `instance`, as in `kernel<float, 32>`.

    Raises UsageError with nvcc's errors, and what to do about some.
    """
    after = f'extern "C" __device__ const void* const {_MARK} = (const void*)&{instance};\n' if instance else ""
    text, said = mended(
        unit, lambda: source.compile_ptx(unit.compose(after=after), "checked.cu", flags=unit.arguments())
    )
    marked = re.search(rf"^.*\b{_MARK} = (\w+);\n", text, re.M)
    return (text.replace(marked[0], ""), said, marked[1]) if marked else (text, said, "")


def mended(unit: Unit, compile_: Callable[[], T], mend: Callable[[str], bool] | None = None) -> T:
    """What `compile_` makes of the unit, once all is done that helps. Raises UsageError with nvcc's errors."""
    for _ in range(_TRIES):
        try:
            return compile_()
        except BuildError as error:
            if not (mend or unit.mend)(str(error)):
                raise UsageError(_explain(str(error), unit)) from error
    raise UsageError(f"{unit.path.name} does not compile: it lacks more than {_TRIES} headers")


def without_others(text: str, wanted: Callable[[str], bool]) -> str:
    """PTX without the kernels whose names are not `wanted`: a file may have some that cannot be run, or take long."""

    kept, position = [], 0
    for match in re.finditer(r"^[ \t.\w]*\.entry\s+(\w+)\s*\([^{]*(?=\{)", text, re.M):
        if not wanted(match[1]):
            kept.append(text[position : match.start()])
            position = closing(text, match.end())
    return "".join([*kept, text[position:]])


def _explain(message: str, unit: Unit) -> str:
    """nvcc's errors, and -D for a name that the file expects from elsewhere."""
    undefined = dict.fromkeys(re.findall(r'identifier "(\w+)" is undefined', message))
    constants = [name for name in undefined if name.isupper()]
    hint = ""
    if unit.stood_in:
        hint += f"\n{', '.join(unit.stood_in)} was not found: pass the folder that has it with -I"
    if constants:
        hint += (
            f"\nis it a constant that the file does not define? Pass {' '.join(f'-D {name}=32' for name in constants)}"
            ", with the value that is meant"
        )
    return f"{unit.path.name} does not compile: {message}{hint}"
