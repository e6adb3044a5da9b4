"""Puts our sizes into the text of host code, for those that it sets itself: `int m = 4096;` or `#define N 4096`."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping

from experiments.check.cuda import syntax
from experiments.check.cuda.parameters import MIN_SIZE, SIZES, is_square_size, roles_of

_IGNORE_EXIT = 5  # its index in `checked_number`
_MACRO = re.compile(r"^([ \t]*#[ \t]*define[ \t]+(\w+)[ \t]+)([^\n]+?)([ \t]*(?://[^\n]*)?)$", re.M)
_INTEGER = r"(?:unsigned\s+|long\s+|static\s+|const\s+)*(?:int|long|size_t|unsigned|uint|u?int(?:32|64)_t|auto)"
_CONSTANT = re.compile(rf"^(?:static\s+)?const\s+{_INTEGER}\s+([^;(){{}}]+);", re.M)
_DECLARED = re.compile(rf"\b{_INTEGER}\s+([^;(){{}}]+);")
_SET = re.compile(r"\b(\w+)(\s*=\s*)(\d[\d\s*<u]*)(?=\s*(?:,|$))")
_UNSET = re.compile(r"(^|,)(\s*)(\w+)(?=\s*(?:,|$))")  # in a declaration, a variable without a value
_ENDS = re.compile(r"\b(?:return\s+(?:-?[1-9]\d*|EXIT_FAILURE)|exit\s*\(\s*(?:-?[1-9]\d*|EXIT_FAILURE)\s*\))\s*;")
_LOOP = re.compile(r"\bfor\s*\(")
_HOST_PRODUCT = re.compile(r"\+=[^;]*\*")


def put_sizes(texts: Collection[str], leading: Collection[str], constants: Mapping[str, int]) -> Callable[[str], str]:
    """Returns what puts our sizes into the functions `leading` to the launch and into constants of host code alone."""
    used = {
        word
        for text in texts
        for function in syntax.functions(text)
        if function.on_device
        for word in {*re.findall(r"\w+", function.body)}.difference(p.name for p in function.parameters)
    }
    unused = [name for name in constants if name not in used]
    free = {name: axis for name, axis in zip(unused, roles_of(unused), strict=True) if axis in SIZES}
    free = {name: axis for name, axis in free.items() if constants[name] >= MIN_SIZE}
    square = set() if free else {name for name in constants if is_square_size(name) and name not in used}
    shared = free | {name: "N" for name in square if constants[name] >= MIN_SIZE}

    def with_our_sizes(text: str) -> str:
        for function in reversed(syntax.functions(text)):
            first, last = function.end - 1 - len(function.body), function.end - 1
            if function.name in leading:
                body = _locals(text[first:last])
                if function.name == "main":
                    body = _ENDS.sub(lambda end: f"{{ if (!checked_number({_IGNORE_EXIT})) {end[0]} }}", body)
                text = text[:first] + body + text[last:]
            elif len(_LOOP.findall(function.body)) >= len(SIZES) and not function.on_device:  # it may take seconds
                if function.is_void:
                    text = syntax.blanked(text, [function])
                elif _HOST_PRODUCT.search(function.body):  # it returns the product of zeros
                    text = text[:first] + _LOOP.sub("while (false) for (", text[first:last]) + text[last:]
        text = _MACRO.sub(lambda m: m[1] + (_number(shared[m[2]], m[3]) if m[2] in shared else m[3]) + m[4], text)
        return _CONSTANT.sub(lambda m: _with_sizes(m, shared), text)

    return with_our_sizes


def _locals(body: str) -> str:
    declared = _DECLARED.findall(body)
    names = [found[at] for each in declared for form, at in ((_SET, 1), (_UNSET, 3)) for found in form.finditer(each)]
    axes = {name: axis for name, axis in zip(names, roles_of(names), strict=True) if axis in SIZES}
    axes = axes or {name: "N" for name in names if is_square_size(name)}
    return _DECLARED.sub(lambda m: _with_sizes(m, axes), body)


def _with_sizes(declared: re.Match, axes: Mapping[str, str]) -> str:
    inside = _SET.sub(lambda m: m[1] + m[2] + (_number(axes[m[1]], m[3]) if m[1] in axes else m[3]), declared[1])
    inside = _UNSET.sub(lambda m: m[0] + (f" = {_number(axes[m[3]], '0')}" if m[3] in axes else ""), inside)
    return declared[0].replace(declared[1], inside, 1)


def _number(axis: str, default: str) -> str:
    return f"((int)checked_size({SIZES.index(axis)}, {default}))"
