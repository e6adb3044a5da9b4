"""The kernels of a CUDA source as its text declares them: name, parameters, template and body."""

from __future__ import annotations

import difflib
import re
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, replace

from experiments.check.cuda.expressions import split
from experiments.records.request import UsageError

_NESTED = r"\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)"  # brackets in brackets, three deep
_ATTRIBUTE = rf"__\w+__\s*{_NESTED}"  # `__launch_bounds__(128)`, `__cluster_dims__(2, 1, 1)`
_BEFORE = re.compile(
    rf"(?:\s|\b(?:static|inline|extern|void)\b|{_ATTRIBUTE})*"
)  # between a template's and `__global__`
_NUMBER = re.compile(
    r"(?:\b(?:const|unsigned|signed|bool|char|short|int|long|u?int\d+_t|uint|(?:std::)?size_t|float|double|half|__half)\b"
    r"|\s|&)+"
)

_ALIAS = re.compile(
    r"\busing\s+(\w+)\s*=([^;={}]+);|\btypedef\b([^;{}()]+?)\b(\w+)\s*;|#[ \t]*define[ \t]+(\w+)[ \t]+([^\n]+)"
)
_SUMS = re.compile(
    r"\b(?:for|while|goto)\b|mma|[.>]\s*\w+\s*\(|::|\w\s*<[^<>;()]*>\s*\(", re.I
)  # a loop, or what may have one
_POINTER = re.compile(rf"(?:{_NUMBER.pattern}|__nv_bfloat16|\*)+")


@dataclass(frozen=True)
class Parameter:
    """One parameter of a kernel or of its template."""

    type: str  # without __restrict__, as in `const float*`
    name: str
    default: str = ""


@dataclass(frozen=True)
class Signature:
    """A `__global__` function as declared."""

    name: str
    parameters: tuple[Parameter, ...]
    template: tuple[Parameter, ...]  # empty for an ordinary function
    line: int
    last_line: int
    first_line: int  # of the body
    body: str  # without comments; empty where it is only declared

    def row_steps(self) -> Iterator[tuple[int, str, str]]:
        """(line, array, name) of each `array[row * name + ...]`."""
        for line, text in enumerate(self.body.split("\n"), self.first_line):
            for array, inside in re.findall(r"\b(\w+)\s*\[([^\[\]]*)\]", text):
                for name in re.findall(r"\*\s*(\w+)\s*\+", inside):
                    yield line, array, name

    def may_multiply(self, functions: Container[str] = ()) -> bool:
        """Whether it takes three matrices, as pointers or in structs, and may sum, itself or in one of `functions`."""
        types = [parameter.type for parameter in self.parameters]
        held = any("*" not in type_ and not _NUMBER.fullmatch(type_) for type_ in types)
        sums = not self.body or _SUMS.search(self.body) or any(w in functions for w in re.findall(r"\w+", self.body))
        return bool(sums) and (held or sum("*" in type_ for type_ in types) >= 3)


def read(source: str) -> list[Signature]:
    """The kernels that a source declares, in its order; one that is declared and defined is there once."""
    text = without_comments(source)
    found: dict[str, Signature] = {}
    for match in re.finditer(r"\b__global__\b", text):
        if signature := _signature(text, match.end(), template_before(text, match.start())):
            if signature.body or signature.name not in found:
                found[signature.name] = signature
    return list(found.values())


def choose(signatures: Sequence[Signature], name: str, where: str, functions: Container[str] = ()) -> Signature:
    """The kernel called `name`; without a name the only one that may multiply. Raises UsageError with the names.

    functions: those that kernels may call, which may have a loop.
    """
    names = [signature.name for signature in signatures]
    if not names:
        raise UsageError(f"{where} has no __global__ function: it must hold the kernel itself, not only include it")
    multiply = [signature.name for signature in signatures if signature.may_multiply(functions)]
    if name in names and name not in multiply or not name and not multiply:
        raise UsageError(
            f"{where} has no kernel of a product of matrices: it would take A, B and C, and sum in a loop or on tensor "
            f"cores, and {name or ', '.join(names)} does not"
        )
    names = names if name else multiply
    if not name and len(names) > 1:
        raise UsageError(f"{where} has several kernels: choose one with --kernel, of {', '.join(names)}")
    if name and name not in names:
        close = difflib.get_close_matches(name, names, n=3, cutoff=0.4)
        hint = f"; did you mean {' or '.join(close)}?" if close else ""
        raise UsageError(f"{where} has no kernel {name!r}: there are {', '.join(names)}{hint}")
    return next(signature for signature in signatures if signature.name == (name or names[0]))


def require_values(signature: Signature) -> None:
    """Raises UsageError where the kernel takes what the reference GPU must be given by value."""
    if behind := [p.name for p in signature.parameters if re.search(r"\bCUtensorMap\b.*\*", p.type)]:
        raise UsageError(
            f"{signature.name} takes tensor maps behind pointers ({', '.join(behind)}), where the reference GPU does "
            "not look for them: pass each by value, as `const __grid_constant__ CUtensorMap`"
        )


def written_out(signature: Signature, source: str) -> Signature:
    """With what `source` calls numbers and pointers to them in place of its names for them."""
    found = (filter(None, match) for match in _ALIAS.findall(without_comments(source)))
    pairs = ((name, text) if re.fullmatch(r"\w+", name) else (text, name) for name, text in found)
    meant = {name: text.strip() for name, text in pairs if _POINTER.fullmatch(text)}
    written = (re.sub(r"\w+", lambda word: meant.get(word[0], word[0]), each.type) for each in signature.parameters)
    parameters = (replace(each, type=type_) for each, type_ in zip(signature.parameters, written, strict=True))
    return replace(signature, parameters=tuple(parameters))


def without_comments(source: str) -> str:
    """The source with spaces for comments and for what strings hold, each line where it was."""

    def blank(match: re.Match) -> str:
        return re.sub(r"[^\n]", " ", match[0])

    return re.sub(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"', blank, source, flags=re.S)


def _signature(text: str, start: int, template: tuple[Parameter, ...]) -> Signature | None:
    """The function after a `__global__`: attributes and a return type stand before its name."""
    head = re.compile(rf"\s*(?:{_ATTRIBUTE}|[\w:]+(?:\s*\*)?)\s*")
    position, name = start, ""
    while match := head.match(text, position):
        name, position = match[0].strip(), match.end()
        if text[position : position + 1] == "(":
            break
    if text[position : position + 1] != "(":
        return None
    end = closing(text, position)
    body, first, last = "", end, end
    if opening := re.compile(r"\s*\{").match(text, end):
        first, last = opening.end(), closing(text, opening.end() - 1)
        body = text[first : last - 1]
    parameters = read_parameters(text[position + 1 : end - 1])
    line, last_line, first_line = (text.count("\n", 0, at) + 1 for at in (start, last, first))
    return Signature(name, parameters, template, line, last_line, first_line, body)


def template_before(text: str, start: int) -> tuple[Parameter, ...]:
    """The parameters of the `template <...>` that ends before `start`, but for attributes, `static` and the like."""
    opening = text.rfind("template", 0, start)
    inside = text[opening + len("template") : start].strip()
    if opening < 0 or not inside.startswith("<") or re.search(r"[;{}]", inside):
        return ()
    end = closing(inside, 0)
    return read_parameters(inside[1 : end - 1]) if _BEFORE.fullmatch(inside[end:]) else ()


def read_parameters(text: str) -> tuple[Parameter, ...]:
    """What stands between the brackets of a function or of a template."""
    return tuple(_parameter(part) for part in split(text, angles=True) if part != "void")


def _parameter(text: str) -> Parameter:
    declared, _, default = (part.strip() for part in text.partition("="))
    declared = re.sub(r"\b(?:__restrict__|__restrict|restrict|__grid_constant__)\b", " ", declared)
    match = re.fullmatch(r"(.*?)(\w+)\s*((?:\[\w*\])*)", declared.strip(), re.S)
    if not match or not match[1].strip():
        return Parameter(declared.strip(), "", default)
    return Parameter(" ".join(match[1].split()) + ("*" if match[3] else ""), match[2], default)


def closing(text: str, opening: int) -> int:
    """The place behind the bracket that closes the one at `opening`."""
    pair = {"(": ")", "{": "}", "<": ">"}[text[opening]]
    depth = 0
    for position in range(opening, len(text)):
        depth += (text[position] == text[opening]) - (text[position] == pair)
        if depth == 0:
            return position + 1
    return len(text)
