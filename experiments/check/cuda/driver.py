"""C++ that calls a host function which launches a kernel, with A, B, C and sizes that are known to it."""

from __future__ import annotations

import re
from collections.abc import Sequence

from experiments.check.cuda.host import Function
from experiments.check.cuda.roles import MATRICES, PLACES, SIZES, named
from experiments.check.cuda.signature import Parameter

NUMBERS = ("M", "N", "K", "ALPHA", "BETA")  # as `checked_number` counts them
_LEADING = {"LDA": "K", "LDB": "N", "LDC": "N"}
_TENSOR = {"A": (0, 2), "B": (2, 1), "C": (0, 1)}  # a matrix's sizes, as places in NUMBERS
_TORCH_TYPES = {"float": "Float", "half": "Half", "__half": "Half", "__nv_bfloat16": "BFloat16", "double": "Double"}

_HEAD = """
double checked_number(int which);
template <class T> T* checked_pointer(int which) {
    return reinterpret_cast<T*>(static_cast<unsigned long long>(which) << 40);
}
template <class T> T* checked_scalar(int which) {
    static T values[5];
    values[which] = static_cast<T>(static_cast<float>(checked_number(which)));
    return &values[which];
}
"""


def text(calls: Sequence[str]) -> str:
    """What stands behind the user's file: `checked_start`, which makes one of these calls."""
    cases = "".join(f"case {index}: {call}; break;\n" for index, call in enumerate(calls))
    return f"{_HEAD}void checked_start(int which) {{\nswitch (which) {{\n{cases}}}\n}}\n"


def call(function: Function, element: str) -> str:
    """The call of a host function, empty where it is not known what one of its parameters is.

    element: the type of the matrices, for a template of it.
    """
    types = {parameter.name: element for parameter in function.template if parameter.type in ("typename", "class")}
    given = []
    if function.name == "main":
        both = zip(function.parameters, ("1", "words"), strict=False)
        words = ", ".join(f"({parameter.type}){word}" for parameter, word in both)
        return f'{{ static char name[] = "checked"; static char* words[] = {{name, nullptr}}; checked_main({words}); }}'
    for parameter, role in zip(function.parameters, named(function.parameters), strict=True):
        if parameter.default:
            break
        argument = _argument(parameter, role, types, element)
        if not argument:
            return ""
        given.append(argument)
    if not any("checked_pointer" in argument for argument in given):
        return ""
    explicit = ""
    if function.template:
        chosen = [types.get(parameter.name, "") for parameter in function.template if not parameter.default]
        if not all(chosen):
            return ""
        explicit = f"<{', '.join(chosen)}>" if chosen else ""
    return f"{function.name}{explicit}({', '.join(given)})"


def _argument(parameter: Parameter, role: str, types: dict[str, str], element: str) -> str:
    plain = re.sub(r"\b(?:const|volatile|struct)\b|[&\s]", " ", parameter.type)
    plain = re.sub(r"\b\w+\b", lambda word: types.get(word[0], word[0]), " ".join(plain.split()))
    if "Tensor" in plain and role in MATRICES:
        rows, columns = _TENSOR[role]
        return (
            f"at::Tensor(checked_pointer<void>({MATRICES.index(role) + 1}), {{(int64_t)checked_number({rows}), "
            f"(int64_t)checked_number({columns})}}, at::ScalarType::{_TORCH_TYPES.get(element, 'Float')})"
        )
    if plain.endswith("*"):
        target = plain.removesuffix("*").strip()
        if role in PLACES and "*" not in target:
            return f"checked_pointer<{target}>({PLACES.index(role) + 1})"
        return f"checked_scalar<{target}>({NUMBERS.index(role)})" if role in NUMBERS else ""
    role = _LEADING.get(role, role)
    if role in NUMBERS:
        number = f"checked_number({NUMBERS.index(role)})"
        return f"static_cast<{plain}>({number if role in SIZES else f'static_cast<float>({number})'})"
    if re.search(r"(?:Handle_t|Stream_t|stream_t|CUstream)$", plain):
        return f"{plain}{{}}"
    return ""
