"""C++ that calls a host function which launches a kernel, with A, B, C and sizes that we know."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from experiments.check.cuda import launch
from experiments.check.cuda.expressions import constants
from experiments.check.cuda.parameters import (
    MATRICES,
    PLACES,
    SIZES,
    is_pointer,
    is_square_size,
    role_of,
    roles_by_name,
    roles_of,
)
from experiments.check.cuda.syntax import Function, Parameter, read_parameters, without_comments

NUMBERS = ("M", "N", "K", "ALPHA", "BETA")  # by their index in `checked_number`
_LEADING = {"LDA": "K", "LDB": "N", "LDC": "N", "LDD": "N"}
_SIDES = {"A": ("M", "K"), "B": ("K", "N"), "C": ("M", "N")}  # rows and columns of each matrix
_TORCH_TYPES = {"float": "Float", "half": "Half", "__half": "Half", "__nv_bfloat16": "BFloat16", "double": "Double"}
_CHANNELS = {"T": "M", "C": "K", "IC": "K", "OC": "N"}  # of a layer: time, input and output channels
_INTEGER = re.compile(r"(?:(?:unsigned|signed|int|long|short|size_t|ptrdiff_t|uint|u?int\d+_t|std::size_t)\s*)+$")
_STRUCT = re.compile(r"\bstruct\s*(\w*)\s*\{([^{}]*)\}\s*(\w*)\s*;")
# The fields of a struct that is one matrix, each with the side that it is: 0 for rows, 1 for columns.
_FIELDS = (
    (re.compile(r"^(?:n?_?cols?|n?_?columns?|width|w|num_?col\w*)$", re.I), 1),
    (re.compile(r"^(?:n?_?rows?|height|h|num_?row\w*)$", re.I), 0),
    (re.compile(r"^(?:pitch|stride|ld|ldim|leading_?dim\w*)$", re.I), 1),
)
_PITCH = re.compile(r"^(?:row_?)?pitch_?([abc])$|^([abc])_?pitch$", re.I)
_GENERIC = re.compile(r"\b(?:typename|class)\s+(\w+)\s*[,>=]")
_MAX_TEMPLATES = 4  # ways to instantiate a function
_OPTION = re.compile(r'\bgetCmdLineArgumentInt\s*\([^;"]*"(\w+)"')  # of NVIDIA's samples
_MAX_CHOICES = 3  # numbers, from 0 on, that an option is tried with
_ARGV = r"(?:std::)?(?:ato[il]|sto[uil]+|strto\w+)?\s*\(*\s*(?:std::string\s*\(\s*)?\bargv\s*\[\s*(\d)\s*\]"
# The common value of an integer by its name.
_COMMON = (("stage", "2"), ("block|tile|thread", "16"), ("stride", "2048"), ("gpu|device|seed", "0"), ("", "1"))
_HEAD = """
double checked_number(int which);
extern "C" void* checked_allocate(size_t bytes);
extern "C" char** checked_words(const char* words, const char* input);
template <class Checked> Checked* checked_pointer(int which) {
    return reinterpret_cast<Checked*>((64ull + which) << 40);
}
template <class Checked> Checked* checked_scalar(int which) {
    static Checked values[5];
    values[which] = static_cast<Checked>(static_cast<float>(checked_number(which)));
    return &values[which];
}
template <class Checked> Checked& checked_zeros() {
    alignas(64) static char zeros[sizeof(Checked) + 64];
    return reinterpret_cast<Checked&>(zeros);
}
void checked_start(int which) {
switch (which) {
"""


@dataclass(frozen=True)
class HostCall:
    """One way to call a host function."""

    function: Function
    text: str  # in C++
    assumed: tuple[str, ...] = ()  # `stages = 2`: values that nothing determines
    transposes_b: bool = False  # B is a tensor of N x K

    @property
    def rank(self) -> tuple[int, bool]:
        """The order in which calls are tried: those with the fewest assumptions, and the most usual, first."""
        sizes = sum(f"checked_number({index})" in self.text for index in range(len(SIZES)))
        known = self.passes_matrices and sizes == len(SIZES)
        return 2 if self.function.name == "main" else 0 if not self.assumed else 1 if known else 3, self.transposes_b

    @property
    def passes_matrices(self) -> bool:
        """Whether A, B and C are ours; else the function allocates its own."""
        return "checked_pointer" in self.text


def dispatcher(calls: Sequence[str]) -> str:
    """Returns the text behind the user's file: `checked_start`, which makes one of these calls, each in a line."""
    cases = "".join(f"case {index}: {call}; break;\n" for index, call in enumerate(calls))
    return f"{_HEAD}{cases}}}\n}}\n"


def rejected(message: str) -> set[int]:
    """Returns which of the calls a compiler did not understand: errors in the dispatcher, which is called `checked`."""
    lines = re.findall(r"^checked(?:\((\d+)\): error|:(\d+):\d+: error)", message, re.M)
    return {int(line or other) - _HEAD.count("\n") - 1 for line, other in lines}


def host_calls(
    functions: Sequence[Function], kernel: str, element: str, source: str, texts: Sequence[str]
) -> list[HostCall]:
    """Returns the ways to call these functions, by `HostCall.rank`.

    kernel: what they lead to. element: the type of the matrices, for a template of it. source: where structs are
    defined. texts: of the project, which may instantiate a template.
    """
    project = _Project(structs(source), constants(source, {}), (source, *texts), element)
    found = [call for function in functions for call in _calls_of(function, kernel, project)]
    return sorted(found, key=lambda call: call.rank)


@dataclass(frozen=True)
class _Project:
    structs: Mapping[str, tuple[Parameter, ...]]
    numbers: Mapping[str, int]
    texts: Sequence[str]
    element: str

    def template_arguments(
        self, name: str, parameters: Sequence[Parameter]
    ) -> Iterator[tuple[dict[str, str], list[str]]]:
        """Yields arguments of a template, as the project has them or common ones, and what is assumed of them."""
        needed = [parameter for parameter in parameters if not parameter.default]
        if not needed:
            yield {}, []
            return
        generic = {word for text in self.texts for word in _GENERIC.findall(text)}
        found = dict.fromkeys(launch.template_instances(name, needed, self.numbers, self.texts))
        concrete = sorted((x for x in found if generic.isdisjoint(x)), key=lambda values: self.element not in values)
        for values in concrete or launch.common_templates(needed, self.numbers, self.element):
            pairs = list(zip(needed, values, strict=True))
            assumed = [f"{p.name} = {value}" for p, value in pairs if not concrete and not launch.is_type_parameter(p)]
            yield {parameter.name: value for parameter, value in pairs}, assumed


def structs(source: str) -> dict[str, tuple[Parameter, ...]]:
    """Returns the fields of each struct that has only fields."""
    found = {}
    for name, body, alias in _STRUCT.findall(without_comments(source)):
        fields: list[Parameter] = []
        for line in filter(None, (line.strip() for line in body.split(";"))):
            first, *others = read_parameters(line)
            kind = first.type.removesuffix("*").strip()
            fields += [first, *(Parameter(kind + "*" * ("*" in x.type), x.name or x.type) for x in others)]
        if fields and all(each.name for each in fields):
            found[alias or name] = tuple(fields)
    return found


def _calls_of(function: Function, kernel: str, project: _Project) -> Iterator[HostCall]:
    if function.name == "main":
        yield from _main_calls(function, kernel, project.texts[0])
    elif objects := _matrix_objects(function.qualifier.split("::")[-2:-1], project.texts[0]):
        arguments = objects[1 : 1 + len(function.parameters)]  # of a method of A: B, and C if it does not return it
        if len(arguments) == len(function.parameters) > 0:
            yield HostCall(function, f"{objects[0]}.{function.name}({', '.join(arguments)})")
    else:
        levels = ((function.owner, function.owner_template), (function.name, function.template))
        ways = itertools.product(*(project.template_arguments(*level) for level in levels))
        for (owner_types, owner_assumed), (types, assumed) in itertools.islice(ways, _MAX_TEMPLATES):
            owner = function.owner + _template_text(function.owner_template, owner_types)
            inside = f"{owner}{'::' if function.is_static else '{}.'}" if function.owner else ""
            name = f"{function.scope}{inside}{function.name}{_template_text(function.template, types)}"
            yield from _argument_calls(function, name, owner_types | types, owner_assumed + assumed, kernel, project)


def _matrix_objects(names: Sequence[str], source: str) -> tuple[str, ...]:
    """C++ for A, B and C as objects of a class whose constructor takes its sides alone; empty where none does."""
    for name in names:
        if not re.search(rf"\b(?:class|struct)\s+{name}\b", source):
            continue
        constructor = rf"(?<![~\w]){name}\s*\(([^()]*)\)\s*(?:noexcept|[:;{{])"
        for inside in re.findall(constructor, without_comments(source)):
            made = [_construct(name, read_parameters(inside), role) for role in MATRICES]
            if all(made):
                return tuple(made)
    return ()


def _construct(name: str, parameters: Sequence[Parameter], role: str) -> str:
    """A new object of the class `name` that is this matrix; empty where a parameter is no side of it."""
    sides = [_side_of(p.name, role) or "N" * is_square_size(p.name) for p in parameters]
    if not all(sides) or not sides or not all(_INTEGER.match(_plain_type(p, {})) for p in parameters):
        return ""
    return f"(*new {name}({', '.join(_number('int', side) for side in sides)}))"


def _side_of(field: str, role: str) -> str:
    """The size that a field of the matrix `role` is, by its name; empty where it is none."""
    return next((_SIDES[role][side] for pattern, side in _FIELDS if pattern.match(field)), "")


def _number(kind: str, role: str) -> str:
    return f"({kind})checked_number({NUMBERS.index(role)})"


def _template_text(parameters: Sequence[Parameter], values: Mapping[str, str]) -> str:
    """The arguments of a template, as in `<128, 16, float>`, up to the last that has no default."""
    last = max((index for index, parameter in enumerate(parameters, 1) if parameter.name in values), default=0)
    texts = launch.fill_template(parameters[:last], [values.get(parameter.name, "") for parameter in parameters[:last]])
    return f"<{', '.join(texts)}>" if texts else ""


def _argument_calls(
    function: Function, name: str, types: Mapping[str, str], assumed: list[str], kernel: str, project: _Project
) -> Iterator[HostCall]:
    parameters = [parameter for parameter in function.parameters if not parameter.default]
    kinds = [_plain_type(parameter, types) for parameter in parameters]
    roles = _roles(parameters, kinds, project.structs)
    known = [_argument(kind, role, project.element, project.structs) for kind, role in zip(kinds, roles, strict=True)]
    if not any("checked_pointer" in argument for argument in known) and sum(role in SIZES for role in roles) < 2:
        return
    # What nothing determines gets the most common value, and flags both.
    for flag in ("false", "true") if "bool" in kinds else ("",):
        arguments, all_assumed = list(known), list(assumed)
        for index, (parameter, kind) in enumerate(zip(parameters, kinds, strict=True)):
            if not arguments[index] and "CUtensorMap" not in kind:
                choice = _required_number(function.body, kernel, parameter.name)
                arguments[index], value = (f"({kind}){choice}", choice) if choice else _common(parameter, kind, flag)
                all_assumed += [f"{parameter.name} = {value}"] if value else []
        if not all(arguments):
            continue
        yield HostCall(function, f"{name}({', '.join(arguments)})", tuple(all_assumed))
        for index, role in enumerate(roles):
            if role == "B" and _tensor_shape("K", "N") in known[index]:  # torch's `linear` has a weight of N x K
                arguments[index] = known[index].replace(_tensor_shape("K", "N"), _tensor_shape("N", "K"))
                text = f"{name}({', '.join(arguments)})"
                yield HostCall(function, text, tuple(all_assumed), transposes_b=True)


def _main_calls(function: Function, kernel: str, source: str) -> Iterator[HostCall]:
    """Calls with the words that its text reads, and with none; what it does not read, a function of `source` may."""
    words, typed = _command_line(function.raw, kernel), _standard_input(function.raw) or _standard_input(source)
    options = [name for name in _OPTION.findall(function.raw) if role_of(name) not in SIZES]
    choices = ((f"-{name}={number}",) for name in options for number in range(_MAX_CHOICES))
    plain = (words, ()) if words or not function.parameters else (words,)
    for chosen in dict.fromkeys((*plain, *choices)):
        pair = zip(function.parameters, (str(len(chosen) + 1), "words"), strict=False)
        arguments, text = ", ".join(f"({p.type}){value}" for p, value in pair), " ".join(("checked", *chosen))
        made = f'char** words = checked_words("{text}", "{typed}"); (void)words;'
        yield HostCall(function, f"{{ {made} checked_main({arguments}); }}")


def _command_line(body: str, kernel: str) -> tuple[str, ...]:
    """argv[1] and so on: a size where a variable of its name is set, and an option that is compared."""
    found: dict[int, str] = {}
    read = re.findall(rf"(\w+\s*=\s*)?\b(\w+)\s*=[^=;,]*?{_ARGV}", body)
    read = [x[1:] for x in sorted(read, key=lambda x: bool(x[0]))]  # `m = n = k = argv[1]` is for a single argument
    for (name, index), role in zip(read, roles_of([name for name, _ in read]), strict=True):
        required = re.findall(r"^\d+$|$", _required_number(body, kernel, name))[0]
        other = "N" if is_square_size(name) else required or _common_number(name)
        found.setdefault(int(index), role if role in SIZES else other)
    for index, option in re.findall(r'\bargv\s*\[\s*(\d)\s*\][^;]{0,20}?"(-+[\w-]+)"', body):
        found[int(index)] = option
    wanted = re.search(r"\bargc\s*(?:!=|<)\s*(\d)", body)
    last = max((*found, int(wanted[1]) - 1 if wanted else 0))
    in_order = dict(enumerate(SIZES, 1)) if not found and last >= len(SIZES) else {}
    return tuple(found.get(index, in_order.get(index, "1")) for index in range(1, last + 1))


def _standard_input(body: str) -> str:
    """What is read from the standard input: sizes in the order of their names, or in the usual order."""
    read = re.findall(r"\bscanf\s*\(\s*[^,]*,([^;()]*)\)|\bcin\s*>>([^;]*);", body)
    names = re.findall(r"\w+", " ".join(first or second for first, second in read if "[" not in first + second))
    roles = [role_of(name) for name in names]
    if {*roles} == {"N", ""}:  # one size, and other numbers
        return " ".join(role or "1" for role in roles)
    usual = {0: [], 1: ["N"], 2: ["M", "N"], 3: [*SIZES], 4: ["M", "K", "K", "N"]}
    return " ".join(roles if all(role in SIZES for role in roles) else usual.get(len(names), [*SIZES]))


def _plain_type(parameter: Parameter, types: Mapping[str, str]) -> str:
    text = re.sub(r"\b(?:const|volatile|struct)\b|[&\s]", " ", parameter.type)
    return re.sub(r"\b\w+\b", lambda word: types.get(word[0], word[0]), " ".join(text.split()))


def _roles(
    parameters: Sequence[Parameter], kinds: Sequence[str], structs: Mapping[str, tuple[Parameter, ...]]
) -> list[str]:
    """Roles by name, also of structs that are a matrix each: A, B and C in order if their names are no roles."""
    roles = [
        role or (_layer_role(parameter.name) if _INTEGER.match(kind) else "")
        for role, parameter, kind in zip(roles_by_name(parameters), parameters, kinds, strict=True)
    ]
    tensors = [index for index, kind in enumerate(kinds) if "Tensor" in kind]
    if len(tensors) == 2 and not any(roles[index] for index in tensors):  # it returns C
        roles[tensors[0]], roles[tensors[1]] = "A", "B"
    matrices = [index for index, kind in enumerate(kinds) if any(map(is_pointer, structs.get(kind, ())))]
    if len(matrices) == len(MATRICES):
        named = [role_of(parameters[index].name) for index in matrices]
        for index, role in zip(matrices, named if set(named) == set(MATRICES) else MATRICES, strict=True):
            roles[index] = role
    return roles


def _layer_role(name: str) -> str:
    """The role of a layer's channels, and `PITCH_A`, the bytes of a row of A."""
    pitch = _PITCH.match(name)
    return f"PITCH_{(pitch[1] or pitch[2]).upper()}" if pitch else _CHANNELS.get(name, "")


def _tensor_shape(rows: str, columns: str) -> str:
    return f"{{{_number('int64_t', rows)}, {_number('int64_t', columns)}}}"


def _argument(kind: str, role: str, element: str, structs: Mapping[str, tuple[Parameter, ...]]) -> str:
    """The argument in C++; empty where nothing determines it."""
    if "CUtensorMap" in kind:  # which a caller makes
        return ""
    if kind in structs:
        return _struct(kind, role, element, structs)
    if kind == "dim3" and role in MATRICES:  # as NVIDIA's samples have it: the width comes first
        rows, columns = (_number("unsigned", side) for side in _SIDES[role])
        return f"dim3({columns}, {rows}, 1)"
    if "Tensor" in kind and role in MATRICES:
        scalar, place = _TORCH_TYPES.get(element, "Float"), PLACES.index(role) + 1
        return f"at::Tensor(checked_pointer<void>({place}), {_tensor_shape(*_SIDES[role])}, at::ScalarType::{scalar})"
    if kind.endswith("*"):
        target = kind.removesuffix("*").strip()
        if role in PLACES and "*" not in target:
            return f"checked_pointer<{target}>({PLACES.index(role) + 1})"
        return f"checked_scalar<{target}>({NUMBERS.index(role)})" if role in NUMBERS else ""
    if role.startswith("PITCH"):
        return f"static_cast<{kind}>(checked_number({NUMBERS.index(_SIDES[role[-1]][1])}) * sizeof({element}))"
    role = _LEADING.get(role, role)
    if role in NUMBERS:
        number = f"checked_number({NUMBERS.index(role)})"
        return f"static_cast<{kind}>({number if role in SIZES else f'static_cast<float>({number})'})"
    return f"{kind}{{}}" if re.search(r"(?:Handle_t|Stream_t|stream_t|CUstream)$", kind) else ""


def _struct(kind: str, role: str, element: str, structs: Mapping[str, tuple[Parameter, ...]]) -> str:
    """A value of a struct whose fields have roles, or which is the matrix `role`; empty where it is neither."""
    fields = structs[kind]
    roles = roles_by_name(fields)
    if role in MATRICES:
        roles = [role if is_pointer(each) else _side_of(each.name, role) for each in fields]
    if not set(roles) & set(MATRICES):
        return ""
    pairs = zip(fields, roles, strict=True)
    values = ((each.name, _argument(_plain_type(each, {}), own, element, {})) for each, own in pairs)
    filled = " ".join(f"made.{name} = {value};" for name, value in values if value)
    return f"[] {{ {kind} made{{}}; {filled} return made; }}()"


def _required_number(body: str, kernel: str, name: str) -> str:
    """The number that a parameter must be for `kernel` to be launched: of the last `case` or comparison before that."""
    before = body[: found.start()] if (found := re.search(rf"\b{kernel}\b", body)) else ""
    number = r"\b\w+\b"
    chosen = re.findall(rf"\b{name}\s*==\s*({number})", before)
    if re.search(rf"\bswitch\s*\(\s*{name}\s*\)", before):
        chosen = re.findall(rf"\bcase\s+({number})\s*:", before)
    return chosen[-1] if chosen else ""


def _common(parameter: Parameter, kind: str, flag: str) -> tuple[str, str]:
    """Returns (argument, value to report) for a parameter that nothing determines."""
    name = parameter.name
    if kind == "bool":
        return flag, flag
    if kind.endswith("*"):
        is_buffer = "const" not in parameter.type or role_of(name) == "BIAS"  # may be written, or is zeros
        return (f"({kind})checked_allocate(1 << 24)", "") if is_buffer else (f"({kind})nullptr", "nullptr")
    if _INTEGER.match(kind):
        value = "" if re.search(r"pitch", name, re.I) else _common_number(name)  # a row's bytes depend on its size
        return value, value
    if kind in ("float", "double"):
        return "1", "1"
    return "" if kind == "dim3" or "(" in kind else f"checked_zeros<{kind}>()", ""


def _common_number(name: str) -> str:
    return next(value for pattern, value in _COMMON if re.search(pattern, name, re.I))
