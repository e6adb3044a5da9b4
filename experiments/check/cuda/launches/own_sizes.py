"""Sizes that a program sets itself, `int m = 4096;` or `#define N 4096`: in their place it is given ours, if any.

A main that ends early, because a file with its matrices is not there, can be told to go on, with sizes of ours too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping

from experiments.check.cuda import host
from experiments.check.cuda.roles import SIZES, is_alone, role_of, roles_of

GOES_ON = 5  # what `checked_number` calls it
DECLARED = """double checked_number(int which);
static inline double checked_size(int which, double own) { return checked_number(which) ? checked_number(which) : own; }
"""
_MACRO = re.compile(r"^([ \t]*#[ \t]*define[ \t]+(\w+)[ \t]+)([^\n]+?)([ \t]*(?://[^\n]*)?)$", re.M)
_INTEGER = r"(?:unsigned\s+|long\s+|static\s+|const\s+)*(?:int|long|size_t|unsigned|uint|u?int(?:32|64)_t|auto)"
_CONSTANT = re.compile(rf"^(?:static\s+)?const\s+{_INTEGER}\s+([^;(){{}}]+);", re.M)
_DECLARED = re.compile(rf"\b{_INTEGER}\s+([^;(){{}}]+);")
_SET = re.compile(r"\b(\w+)(\s*=\s*)(\d[\d\s*<u]*)(?=\s*(?:,|$))")
_UNSET = re.compile(r"(^|,)(\s*)(\w+)(?=\s*(?:,|$))")  # of a declaration, what has no value yet
_ENDS = re.compile(r"\b(?:return\s+(?:-?[1-9]\d*|EXIT_FAILURE)|exit\s*\(\s*(?:-?[1-9]\d*|EXIT_FAILURE)\s*\))\s*;")
_LOOP = re.compile(r"\bfor\s*\(")
_LARGE = 256  # a size that the source fixes
_SMALL = {"M": 256, "N": 128, "K": 192}  # what stands in its place
SMALLEST = 64  # of a constant for all the file; smaller ones are tiles


def rewrite(texts: Collection[str], leading: Collection[str], constants: Mapping[str, int]) -> Callable[[str], str]:
    """What puts our sizes into the text of a file: into the functions `leading` to the launch, and into constants.

    Not into constants that device code uses.
    """
    used = {
        word
        for text in texts
        for function in host.functions(text)
        if function.on_device
        for word in {*re.findall(r"\w+", function.body)}.difference(p.name for p in function.parameters)
    }
    unused = [name for name in constants if name not in used]
    free = {name: axis for name, axis in zip(unused, roles_of(unused), strict=True) if axis in SIZES}
    free = {name: axis for name, axis in free.items() if constants[name] >= SMALLEST}
    alone = set() if free else {name for name in constants if is_alone(name) and name not in used}
    shared = free | {name: "N" for name in alone if constants[name] >= SMALLEST}

    def ours(text: str) -> str:
        for function in reversed(host.functions(text)):
            if function.name in leading:
                first, last = function.end - 1 - len(function.body), function.end - 1
                body = _locals(text[first:last])
                if function.name == "main":
                    body = _ENDS.sub(lambda end: f"{{ if (!checked_number({GOES_ON})) {end[0]} }}", body)
                text = text[:first] + body + text[last:]
            elif len(_LOOP.findall(function.body)) >= len(SIZES) and not function.on_device and function.is_void:
                text = host.blanked(text, [function])  # a product on the host, which takes seconds
        text = _MACRO.sub(lambda m: m[1] + (_number(shared[m[2]], m[3]) if m[2] in shared else m[3]) + m[4], text)
        return _CONSTANT.sub(lambda m: _filled(m, shared), text)

    return ours


def constants_of(axes: Collection[str], constants: Mapping[str, int]) -> dict[str, str]:
    """The constant that is each size, the largest of its name: `M_GLOBAL` where `M` is a tile's."""
    found: dict[str, str] = {}
    for name in constants:
        axis = role_of(name) if name not in ("m", "n", "k") else ""
        if axis in axes and constants[name] > constants.get(found.get(axis, ""), 0):
            found[axis] = name
    return found


def smaller(axes: Collection[str], constants: Mapping[str, int], source: str) -> dict[str, int]:
    """Values for constants that make sizes which would take minutes smaller: the size itself, or a factor of it."""
    found, named = {}, constants_of(axes, constants)
    for axis, name in named.items():
        axis = axis if len(named) > 1 else "M"  # alone it may be all three
        defined = re.search(rf"(?:\bdefine\s+{name}\b|\b{name}\s*=)([^;,\n]+)", source)
        factors = [word for word in re.findall(r"[A-Za-z_]\w*", defined[1] if defined else "") if word in constants]
        if constants[name] <= _LARGE:
            continue
        if factors:  # a number of tiles, of which a power of two is usual
            most = max(factors, key=lambda factor: constants[factor])
            wanted = 1 << (_SMALL[axis] - 1).bit_length()
            found[most] = max(1, constants[most] * wanted // constants[name])
        else:
            found[name] = _SMALL[axis]
    return found


def _locals(body: str) -> str:
    declared = _DECLARED.findall(body)
    names = [found[at] for each in declared for form, at in ((_SET, 1), (_UNSET, 3)) for found in form.finditer(each)]
    axes = {name: axis for name, axis in zip(names, roles_of(names), strict=True) if axis in SIZES}
    axes = axes or {name: "N" for name in names if is_alone(name)}
    return _DECLARED.sub(lambda m: _filled(m, axes), body)


def _filled(declared: re.Match, axes: Mapping[str, str]) -> str:
    inside = _SET.sub(lambda m: m[1] + m[2] + (_number(axes[m[1]], m[3]) if m[1] in axes else m[3]), declared[1])
    inside = _UNSET.sub(lambda m: m[0] + (f" = {_number(axes[m[3]], '0')}" if m[3] in axes else ""), inside)
    return declared[0].replace(declared[1], inside, 1)


def _number(axis: str, own: str) -> str:
    return f"((int)checked_size({SIZES.index(axis)}, {own}))"


def spoils(said: str) -> bool:
    """Whether what a compiler said may come of sizes that are no constants any more."""
    return re.search(r"checked_(?:number|size)|constant|initializ|template argument", said) is not None
