"""The types of a kernel's matrices: what the reference GPU is given, and in which math mode the result is judged."""

from __future__ import annotations

import re
from collections.abc import Mapping

import torch

from experiments.records.request import UsageError

TYPES: Mapping[str, torch.dtype] = {
    "float": torch.float32, "double": torch.float64, "half": torch.float16, "__half": torch.float16,
    "__nv_bfloat16": torch.bfloat16, "nv_bfloat16": torch.bfloat16, "int": torch.int32, "int32_t": torch.int32,
    "int8_t": torch.int8, "char": torch.int8, "signed char": torch.int8,
    "uint8_t": torch.uint8, "unsigned char": torch.uint8,
    "uint32_t": torch.int32, "unsigned": torch.int32, "unsigned int": torch.int32, "uint": torch.int32,
    "at::Half": torch.float16, "c10::Half": torch.float16,
    "at::BFloat16": torch.bfloat16, "c10::BFloat16": torch.bfloat16,
}  # fmt: skip
UNSIGNED = {"uint8_t", "unsigned char", "uint32_t", "unsigned", "unsigned int", "uint"}  # the same bits, no signs
# By the element type of A: a wider type is judged by a narrower one, integers by the numbers that both hold exactly.
_MATHS = {torch.float16: "fp16", torch.bfloat16: "bf16"}
_VECTOR = re.compile(r"(float|half|double|__nv_bfloat16|nv_bfloat16|__half)[248]$")


def plain(type_: str, meant: Mapping[str, str]) -> str:
    """The element type of a pointer's, with typedefs and template parameters (`meant`) resolved."""
    text = re.sub(r"\b(?:const|volatile|struct)\b|[*&]", " ", type_)
    text = " ".join(text.split())
    for _ in range(4):
        if text not in meant:
            break
        text = " ".join(re.sub(r"\bconst\b", " ", meant[text]).split())
    return _VECTOR.sub(r"\1", text.removeprefix("::"))


def typedefs(source: str) -> dict[str, str]:
    """What a source calls types: by `typedef`, `using` and `#define`."""
    found = dict((new, old.strip()) for old, new in re.findall(r"\btypedef\s+([\w:\s]+?)\s+(\w+)\s*;", source))
    found |= dict(re.findall(r"\busing\s+(\w+)\s*=\s*([\w:]+(?:\s+\w+)?)\s*;", source))
    macros = re.findall(r"^[ \t]*#[ \t]*define[ \t]+(\w+)[ \t]+([A-Za-z_][\w:]*(?:[ \t]+[a-z]+)?)[ \t]*$", source, re.M)
    return found | {name: old.strip() for name, old in macros}


def math_of(types: Mapping[str, torch.dtype]) -> str:
    """The math mode for A, B and C of these types. Raises UsageError where A and B differ."""
    if types["A"] != types["B"]:
        raise UsageError(f"A is of {types['A']} and B of {types['B']}: they must be of one type")
    return _MATHS.get(types["A"], "fp32")


def dtype(kernel: str, name: str, text: str) -> torch.dtype:
    """Raises UsageError for a type that is none of TYPES."""
    if text not in TYPES:
        raise UsageError(f"{name} of {kernel} has the type {text}: there are {', '.join(TYPES)}")
    return TYPES[text]
