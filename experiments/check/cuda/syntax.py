"""CUDA C++ as text: the kernels that a source declares, its functions, and which of them call which."""

from __future__ import annotations

import difflib
import functools
import re
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

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

_OPENS = re.compile(r"[{};]")
_NAME = re.compile(r"([\w:~]+)\s*$")
_SCOPE = re.compile(r'\b(?:namespace\b\s*([\w:]*)\s*|extern\s+"[ ]*")\s*$')
_CLASS = re.compile(r"(?<!enum )\b(?:struct|class)\s+(?:\w+\s*\([^()]*\)\s*)?(\w+)(?:\s+final)?\s*(?::[^;{}]*)?$")
_ACCESS = re.compile(r"^\s*(?:(?:public|private|protected)\s*:\s*)*")
_MACRO = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)\(((?:[^\n\\]|\\.|\\\n)*)", re.M)
_DEVICE = re.compile(r"\b(?:__global__|__device__)\b")


@dataclass(frozen=True)
class Parameter:
    type: str  # without __restrict__, as in `const float*`
    name: str
    default: str = ""


@dataclass(frozen=True)
class Signature:
    """A `__global__` function as declared."""

    name: str
    parameters: tuple[Parameter, ...]
    template: tuple[Parameter, ...]  # empty for an ordinary function
    first_line: int  # of the body
    body: str  # without comments; empty where it is only declared

    def may_multiply(self, functions: Container[str] = ()) -> bool:
        """Whether it takes three matrices, as pointers or in structs, and may sum, itself or in one of `functions`."""
        types = [parameter.type for parameter in self.parameters]
        held = any("*" not in type_ and not _NUMBER.fullmatch(type_) for type_ in types)
        sums = not self.body or _SUMS.search(self.body) or any(w in functions for w in re.findall(r"\w+", self.body))
        return bool(sums) and (held or sum("*" in type_ for type_ in types) >= 3)


def kernels(source: str) -> list[Signature]:
    """Returns the kernels that a source declares, in its order; one that is declared and defined is listed once."""
    text = without_comments(source)
    found: dict[str, Signature] = {}
    for match in re.finditer(r"\b__global__\b", text):
        if signature := _signature(text, match.end(), template_before(text, match.start())):
            if signature.body or signature.name not in found:
                found[signature.name] = signature
    return list(found.values())


def choose_kernel(signatures: Sequence[Signature], name: str, where: str, functions: Container[str] = ()) -> Signature:
    """Returns the kernel called `name`, or the only one that may multiply, by `functions` too. Raises UsageError."""
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
    """Returns the signature with aliases of number and pointer types in `source` resolved."""
    found = (filter(None, match) for match in _ALIAS.findall(without_comments(source)))
    pairs = ((name, text) if re.fullmatch(r"\w+", name) else (text, name) for name, text in found)
    meant = {name: text.strip() for name, text in pairs if _POINTER.fullmatch(text)}
    written = (re.sub(r"\w+", lambda word: meant.get(word[0], word[0]), each.type) for each in signature.parameters)
    parameters = (replace(each, type=type_) for each, type_ in zip(signature.parameters, written, strict=True))
    return replace(signature, parameters=tuple(parameters))


def without_comments(source: str) -> str:
    """Returns the source with spaces for comments and strings, with the same line numbers."""

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
    opening = re.compile(r"\s*\{").match(text, end)
    first = opening.end() if opening else end
    body = text[first : closing(text, first - 1) - 1] if opening else ""
    return Signature(
        name, read_parameters(text[position + 1 : end - 1]), template, text.count("\n", 0, first) + 1, body
    )


def template_before(text: str, start: int) -> tuple[Parameter, ...]:
    """Returns the parameters of the `template <...>` before `start`, with only attributes, `static` etc. between."""
    opening = text.rfind("template", 0, start)
    inside = text[opening + len("template") : start].strip()
    if opening < 0 or not inside.startswith("<") or re.search(r"[;{}]", inside):
        return ()
    end = closing(inside, 0)
    return read_parameters(inside[1 : end - 1]) if _BEFORE.fullmatch(inside[end:]) else ()


def read_parameters(text: str) -> tuple[Parameter, ...]:
    """Returns the parameters between the brackets of a function or of a template."""
    return tuple(_parameter(part) for part in split(text, angles=True) if part != "void")


def _parameter(text: str) -> Parameter:
    declared, _, default = (part.strip() for part in text.partition("="))
    declared = re.sub(r"\b(?:__restrict__|__restrict|restrict|__grid_constant__)\b", " ", declared)
    match = re.fullmatch(r"(.*?)(\w+)\s*((?:\[\w*\])*)", declared.strip(), re.S)
    if not match or not match[1].strip():
        return Parameter(declared.strip(), "", default)
    return Parameter(" ".join(match[1].split()) + ("*" if match[3] else ""), match[2], default)


def closing(text: str, opening: int) -> int:
    """Returns the position behind the bracket that closes the one at `opening`."""
    pair = {"(": ")", "{": "}", "<": ">"}[text[opening]]
    depth = 0
    for position in range(opening, len(text)):
        depth += (text[position] == text[opening]) - (text[position] == pair)
        if depth == 0:
            return position + 1
    return len(text)


def split(text: str, angles: bool = False) -> list[str]:
    """Splits `text` at the commas outside brackets; `angles` are brackets in C++'s templates."""
    opening, closing = ("([{<", ")]}>") if angles else ("([{", ")]}")
    parts, depth = [""], 0
    for character in text:
        depth += (character in opening) - (character in closing)
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts if part.strip()]


@dataclass(frozen=True)
class Function:
    """A function that the source defines; methods only of host code."""

    name: str
    parameters: tuple[Parameter, ...]
    template: tuple[Parameter, ...]
    start: int  # of its declaration in the text
    end: int  # behind its closing brace
    body: str
    raw: str  # the body with its comments and strings
    on_device: bool  # a kernel, or what kernels call
    on_host: bool = True  # what host code may call
    is_kernel: bool = False
    scope: str = ""  # of namespaces: `outer::inner::`
    qualifier: str = ""  # what its name is written with, of namespaces or classes: `Matrix::`
    owner: str = ""  # the class that it is in
    owner_template: tuple[Parameter, ...] = ()
    is_static: bool = False
    is_void: bool = False

    @property
    def launches(self) -> bool:
        return re.search(r"<\s*<\s*<|cudaLaunchKernel", self.body) is not None

    def mentions(self, name: str) -> bool:
        return re.search(rf"\b{name}\b\s*(?:<|\(|,|\)|;|\}})", self.body) is not None


@functools.lru_cache(maxsize=256)  # a file's text is read for many questions
def functions(source: str) -> tuple[Function, ...]:
    found = _functions(_without_directives(without_comments(source)))
    return tuple(replace(each, raw=source[each.end - 1 - len(each.body) : each.end - 1]) for each in found)


def callers(among: Sequence[Function], kernel: str, source: str) -> list[Function]:
    """Returns the host functions that lead to `kernel`, by macros of the source as well: first those that launch it."""
    found: list[Function] = []
    names = [kernel]
    macros = dict(_MACRO.findall(source))
    for name in names:
        names += [each for each, text in macros.items() if each not in names and re.search(rf"\b{name}\b", text)]
        for function in among:
            if not function.on_device and function not in found and function.mentions(name):
                found.append(function)
                names.append(function.name)
    return found


def blanked(source: str, gone: Iterable[Function], complete: bool = False) -> str:
    """Returns the source with blanks for the bodies of these functions, and for the whole of empty ones, or of all."""
    for function in gone:
        first, last = function.end - 1 - len(function.body), function.end - 1
        if complete or not function.body.strip():
            first, last = function.start, function.end
        source = source[:first] + re.sub(r"[^\n]", " ", source[first:last]) + source[last:]
    return source


def lines(text: str, function: Function) -> range:
    return range(text.count("\n", 0, function.start) + 1, text.count("\n", 0, function.end) + 2)


def without_statement(text: str, line: int, function: Function) -> str:
    """Returns the text without the statement of a function at `line`; the same text where it is not a simple one."""
    plain = _without_directives(without_comments(text))
    start = sum(len(each) + 1 for each in text.split("\n")[: line - 1])
    at = start + len(plain[start:]) - len(plain[start:].lstrip())
    first = max(plain.rfind(mark, 0, at) for mark in ";{}") + 1
    last = min((found for mark in ";{}" if (found := plain.find(mark, at)) >= 0), default=-1)
    if first <= function.start or not function.start < last < function.end - 1 or plain[last] != ";":
        return text
    return text[:first] + re.sub(r"[^\n]", " ", text[first:last]) + text[last:]


def _functions(text: str) -> Iterator[Function]:
    start = position = 0
    scopes: list[tuple[str, tuple[Parameter, ...] | None]] = []  # the second of a class
    while match := _OPENS.search(text, position):
        position = match.end()
        if match[0] == "{":
            before = text[start : match.start()]
            if scope := _SCOPE.search(before):
                scopes.append((f"{scope[1]}::" if scope[1] else "", None))
                start = position
                continue
            if (named := _CLASS.search(before)) and not (scopes and scopes[-1][1] is not None):
                scopes.append((named[1], template_before(text, start + named.start())))
                start = position
                continue
            end = closing(text, match.start())
            if function := _function(text, start, match.start(), end):
                name, template = scopes[-1] if scopes else ("", None)
                if template is None:
                    yield replace(function, scope="".join(name for name, _ in scopes))
                elif not function.on_device and function.name.strip("~") != name:
                    outer = "".join(name for name, _ in scopes[:-1])
                    yield replace(function, scope=outer, owner=name, owner_template=template)
                start = end
            position = end
            if function is None and not re.search(r"\boperator\b", before):
                continue  # a class, or a value: what belongs to it goes on to the semicolon
        elif match[0] == "}" and scopes:
            scopes.pop()
        start = position


def _function(text: str, start: int, opening: int, end: int) -> Function | None:
    head = text[start:opening]
    if re.search(r"=\s*$|\boperator\b", head):
        return None
    bracket = 0
    while (bracket := head.find("(", bracket)) >= 0:
        after = closing(head, bracket)
        named = _NAME.search(head[:bracket])
        if named and named[1] not in ("__launch_bounds__", "__attribute__", "__align__", "alignas", "__cluster_dims__"):
            behind = head[after:].strip()
            if re.fullmatch(r"(?:const|noexcept|->[\w\s:<>,*&]+|:.*|\s)*", behind, re.S):
                begin = start + len(head) - len(_ACCESS.sub("", head))
                words = re.split(r"\btemplate\b", head)[-1]
                return Function(
                    named[1].split("::")[-1],
                    read_parameters(head[bracket + 1 : after - 1]),
                    template_before(text, _behind_template(text, begin)),
                    begin,
                    end,
                    text[opening + 1 : end - 1],
                    "",
                    bool(_DEVICE.search(words)),
                    not _DEVICE.search(words) or "__host__" in words,
                    "__global__" in words,
                    qualifier=named[1].removesuffix(named[1].split("::")[-1]),
                    is_static=re.search(r"\bstatic\b", words) is not None,
                    is_void=re.search(r"\bvoid\s+[\w:]+\s*\(", words) is not None,
                )
        bracket = after
    return None


def _behind_template(text: str, begin: int) -> int:
    """The place behind the `template <...>` at `begin`; `begin` itself where there is none."""
    match = re.compile(r"template\s*<").match(text, begin)
    return closing(text, match.end() - 1) if match else begin


def _without_directives(text: str) -> str:
    """The text with spaces for what the preprocessor reads, continued lines too."""
    return re.sub(r"^[ \t]*#(?:[^\n\\]|\\.|\\\n)*", lambda m: re.sub(r"[^\n]", " ", m[0]), text, flags=re.M)
