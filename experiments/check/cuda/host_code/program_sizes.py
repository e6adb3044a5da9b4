"""Sizes that a program sets itself, `int m = 4096;` or `#define N 4096`, are replaced by ours where there are any.

A main that exits early, because a file with its matrices is missing, can be made to continue, with our sizes as well.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping

from experiments.check.cuda import syntax
from experiments.check.cuda.parameters import SIZES, is_square_size, role_of, roles_of

_IGNORE_EXIT = 5  # its index in `checked_number`
DECLARATIONS = """double checked_number(int which);
static inline double checked_size(int which, double own) { return checked_number(which) ? checked_number(which) : own; }
"""
_MACRO = re.compile(r"^([ \t]*#[ \t]*define[ \t]+(\w+)[ \t]+)([^\n]+?)([ \t]*(?://[^\n]*)?)$", re.M)
_INTEGER = r"(?:unsigned\s+|long\s+|static\s+|const\s+)*(?:int|long|size_t|unsigned|uint|u?int(?:32|64)_t|auto)"
_CONSTANT = re.compile(rf"^(?:static\s+)?const\s+{_INTEGER}\s+([^;(){{}}]+);", re.M)
_DECLARED = re.compile(rf"\b{_INTEGER}\s+([^;(){{}}]+);")
_SET = re.compile(r"\b(\w+)(\s*=\s*)(\d[\d\s*<u]*)(?=\s*(?:,|$))")
_UNSET = re.compile(r"(^|,)(\s*)(\w+)(?=\s*(?:,|$))")  # in a declaration, a variable without a value
_ENDS = re.compile(r"\b(?:return\s+(?:-?[1-9]\d*|EXIT_FAILURE)|exit\s*\(\s*(?:-?[1-9]\d*|EXIT_FAILURE)\s*\))\s*;")
_LOOP = re.compile(r"\bfor\s*\(")
_LARGE = 256  # a fixed size above this is reduced
_REDUCED = {"M": 256, "N": 128, "K": 192}  # replaces a larger one
MIN_SIZE = 64  # of the matrices, as a constant of the file; smaller constants are sizes of tiles


def rewrite(texts: Collection[str], leading: Collection[str], constants: Mapping[str, int]) -> Callable[[str], str]:
    """Returns what puts our sizes into the text of a file: into the functions `leading` to the launch, and into those
    constants that device code does not use."""
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
            if function.name in leading:
                first, last = function.end - 1 - len(function.body), function.end - 1
                body = _locals(text[first:last])
                if function.name == "main":
                    body = _ENDS.sub(lambda end: f"{{ if (!checked_number({_IGNORE_EXIT})) {end[0]} }}", body)
                text = text[:first] + body + text[last:]
            elif len(_LOOP.findall(function.body)) >= len(SIZES) and not function.on_device and function.is_void:
                text = syntax.blanked(text, [function])  # the product on the host, which takes seconds
        text = _MACRO.sub(lambda m: m[1] + (_number(shared[m[2]], m[3]) if m[2] in shared else m[3]) + m[4], text)
        return _CONSTANT.sub(lambda m: _with_sizes(m, shared), text)

    return with_our_sizes


def size_constants(axes: Collection[str], constants: Mapping[str, int]) -> dict[str, str]:
    """Returns the constant of each size, the largest of its name: `M_GLOBAL` where `M` is a tile's."""
    found: dict[str, str] = {}
    for name in constants:
        axis = role_of(name) if name not in ("m", "n", "k") else ""
        if axis in axes and constants[name] > constants.get(found.get(axis, ""), 0):
            found[axis] = name
    return found


def reduced_constants(axes: Collection[str], constants: Mapping[str, int], source: str) -> dict[str, int]:
    """Returns values for constants that reduce sizes which would take minutes: of the size itself, or of a factor."""
    found, named = {}, size_constants(axes, constants)
    for axis, name in named.items():
        axis = axis if len(named) > 1 else "M"  # a single one may be all three
        defined = re.search(rf"(?:\bdefine\s+{name}\b|\b{name}\s*=)([^;,\n]+)", source)
        factors = [word for word in re.findall(r"[A-Za-z_]\w*", defined[1] if defined else "") if word in constants]
        if constants[name] <= _LARGE:
            continue
        if factors:  # a number of tiles, of which a power of two is usual
            most = max(factors, key=lambda factor: constants[factor])
            wanted = 1 << (_REDUCED[axis] - 1).bit_length()
            found[most] = max(1, constants[most] * wanted // constants[name])
        else:
            found[name] = _REDUCED[axis]
    return found


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


def may_be_caused_by_rewrite(message: str) -> bool:
    """Whether a compiler's message may be due to sizes that are no longer constants."""
    return re.search(r"checked_(?:number|size)|constant|initializ|template argument", message) is not None
