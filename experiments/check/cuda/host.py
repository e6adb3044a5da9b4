"""The functions of a CUDA source, host code among them: where each begins and ends, and who calls whom."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from experiments.check.cuda.signature import (
    Parameter,
    closing,
    read_parameters,
    template_before,
    without_comments,
)

_OPENS = re.compile(r"[{};]")
_NAME = re.compile(r"([\w:~]+)\s*$")
_SCOPE = re.compile(r'\b(?:namespace\b\s*([\w:]*)\s*|extern\s+"[ ]*")\s*$')
_CLASS = re.compile(r"(?<!enum )\b(?:struct|class)\s+(?:\w+\s*\([^()]*\)\s*)?(\w+)(?:\s+final)?\s*(?::[^;{}]*)?$")
_ACCESS = re.compile(r"^\s*(?:(?:public|private|protected)\s*:\s*)*")
_MACRO = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)\(((?:[^\n\\]|\\.|\\\n)*)", re.M)
_DEVICE = re.compile(r"\b(?:__global__|__device__)\b")


@dataclass(frozen=True)
class Function:
    """A function that the source defines, in a class only if it is one for host code."""

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
        """Whether it launches a kernel itself."""
        return re.search(r"<\s*<\s*<|cudaLaunchKernel", self.body) is not None

    def mentions(self, name: str) -> bool:
        """Whether its body calls or launches what is called `name`."""
        return re.search(rf"\b{name}\b\s*(?:<|\(|,|\)|;|\}})", self.body) is not None


def functions(source: str) -> list[Function]:
    """The functions in the order of the source."""
    found = _functions(_without_directives(without_comments(source)))
    return [replace(each, raw=source[each.end - 1 - len(each.body) : each.end - 1]) for each in found]


def callers(among: Sequence[Function], kernel: str, source: str) -> list[Function]:
    """The host functions that lead to `kernel`, those that launch it first, then what calls these.

    source: where macros are defined, which may launch it.
    """
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


def blanked(source: str, gone: Iterable[Function], whole: bool = False) -> str:
    """The source with the bodies of these functions empty, each line where it was; without those that are empty.

    whole: without any of them.
    """
    for function in gone:
        first, last = function.end - 1 - len(function.body), function.end - 1
        if whole or not function.body.strip():
            first, last = function.start, function.end
        source = source[:first] + re.sub(r"[^\n]", " ", source[first:last]) + source[last:]
    return source


def host_line(text: str, line: int) -> bool:
    """Whether a line is part of a host function."""
    return any(line in lines(text, function) for function in functions(text) if not function.on_device)


def lines(text: str, function: Function) -> range:
    """The lines of a text that a function of it has."""
    return range(text.count("\n", 0, function.start) + 1, text.count("\n", 0, function.end) + 2)


def without_statement(text: str, line: int, function: Function) -> str:
    """The text without the statement of a function that `line` is part of; the same text where it is no simple one."""
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
