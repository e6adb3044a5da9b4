"""C++ that calls a host function which launches a kernel, with A, B, C and sizes that are known to it."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from experiments.check.cuda import guess
from experiments.check.cuda.expressions import constants
from experiments.check.cuda.host import Function
from experiments.check.cuda.roles import MATRICES, PLACES, SIZES, is_alone, is_pointer, named, role_of, roles_of
from experiments.check.cuda.signature import Parameter, read_parameters, without_comments

NUMBERS = ("M", "N", "K", "ALPHA", "BETA")  # as `checked_number` counts them
_LEADING = {"LDA": "K", "LDB": "N", "LDC": "N", "LDD": "N"}
_SIDES = {"A": ("M", "K"), "B": ("K", "N"), "C": ("M", "N")}  # of each matrix, its rows and columns
_TORCH_TYPES = {"float": "Float", "half": "Half", "__half": "Half", "__nv_bfloat16": "BFloat16", "double": "Double"}
_CHANNELS = {"T": "M", "C": "K", "IC": "K", "OC": "N"}  # of a layer: time, input and output channels
_WHOLE = re.compile(r"(?:(?:unsigned|signed|int|long|short|size_t|ptrdiff_t|uint|u?int\d+_t|std::size_t)\s*)+$")
_STRUCT = re.compile(r"\bstruct\s*(\w*)\s*\{([^{}]*)\}\s*(\w*)\s*;")
# The fields of a struct that is one matrix.
_FIELDS = (
    (re.compile(r"^(?:n?_?cols?|n?_?columns?|width|w|num_?col\w*)$", re.I), 1),
    (re.compile(r"^(?:n?_?rows?|height|h|num_?row\w*)$", re.I), 0),
    (re.compile(r"^(?:pitch|stride|ld|ldim|leading_?dim\w*)$", re.I), 1),
)
_K_BY_N, _N_BY_K = (
    f"{{(int64_t)checked_number({first}), (int64_t)checked_number({second})}}" for first, second in ((2, 1), (1, 2))
)  # of a tensor
_PITCH = re.compile(r"^(?:row_?)?pitch_?([abc])$|^([abc])_?pitch$", re.I)
_GENERIC = re.compile(r"\b(?:typename|class)\s+(\w+)\s*[,>=]")
_MOST_TEMPLATES = 4  # ways to instantiate a function
_OPTION = re.compile(r'\bgetCmdLineArgumentInt\s*\([^;"]*"(\w+)"')  # of NVIDIA's samples
_MOST_CHOICES = 3  # numbers, from 0 on, that an option is tried with
_ARGV = r"(?:std::)?(?:ato[il]|sto[uil]+|strto\w+)?\s*\(*\s*(?:std::string\s*\(\s*)?\bargv\s*\[\s*(\d)\s*\]"
_HEAD = """
double checked_number(int which);
extern "C" void* checked_allocate(size_t bytes);
extern "C" char** checked_words(const char* words, const char* input);
template <class Checked> Checked* checked_pointer(int which) {
    return reinterpret_cast<Checked*>(static_cast<unsigned long long>(which) << 40);
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
"""
_BEGIN = f"{_HEAD}void checked_start(int which) {{\nswitch (which) {{\n"


@dataclass(frozen=True)
class Call:
    """One way to call a host function."""

    function: Function
    text: str  # in C++
    decided: tuple[str, ...] = ()  # `stages = 2`: what nothing tells
    turned: bool = False  # B is a tensor of N x K

    @property
    def rank(self) -> tuple[int, bool]:
        """How little is understood of it, and what is less usual."""
        sizes = sum(f"checked_number({index})" in self.text for index in range(len(SIZES)))
        known = self.gives_matrices and sizes == len(SIZES)
        return 2 if self.function.name == "main" else 0 if not self.decided else 1 if known else 3, self.turned

    @property
    def gives_matrices(self) -> bool:
        """Whether A, B and C are ours; else it makes its own."""
        return "checked_pointer" in self.text


def text(calls: Sequence[str]) -> str:
    """What stands behind the user's file: `checked_start`, which makes one of these calls, each in a line."""
    cases = "".join(f"case {index}: {call}; break;\n" for index, call in enumerate(calls))
    return f"{_BEGIN}{cases}}}\n}}\n"


def refused(said: str) -> set[int]:
    """Which of the calls a compiler did not understand: errors in `text`, which is called `checked`."""
    lines = re.findall(r"^checked(?:\((\d+)\): error|:(\d+):\d+: error)", said, re.M)
    return {int(line or other) - _BEGIN.count("\n") - 1 for line, other in lines}


def calls(functions: Sequence[Function], kernel: str, element: str, source: str, texts: Sequence[str]) -> list[Call]:
    """Ways to call these functions: what is understood whole, what has matrices and sizes, a `main`, others.

    kernel: what they lead to. element: the type of the matrices, for a template of it. source: where structs are
    defined. texts: of the project, which may say what a template is instantiated with.
    """
    known = Known(structs(source), constants(source, {}), (source, *texts), element)
    found = [call for f in functions for call in _ways(f, kernel, known)]
    return sorted(found, key=lambda call: call.rank)


@dataclass(frozen=True)
class Known:
    """What is known of a project."""

    structs: Mapping[str, tuple[Parameter, ...]]
    numbers: Mapping[str, int]
    texts: Sequence[str]
    element: str

    def arguments(self, name: str, parameters: Sequence[Parameter]) -> Iterator[tuple[dict[str, str], list[str]]]:
        """What the parameters of a template may be, as the project has it or as is usual, and what is said of that."""
        needed = [parameter for parameter in parameters if not parameter.default]
        if not needed:
            yield {}, []
            return
        generic = {word for text in self.texts for word in _GENERIC.findall(text)}
        given = dict.fromkeys(guess.instances(name, needed, self.numbers, self.texts))
        told = sorted((x for x in given if generic.isdisjoint(x)), key=lambda values: self.element not in values)
        for values in told or guess.usual(needed, self.numbers, self.element):
            pairs = list(zip(needed, values, strict=True))
            said = [f"{p.name} = {value}" for p, value in pairs if not told and not guess.is_type(p)]
            yield {parameter.name: value for parameter, value in pairs}, said


def structs(source: str) -> dict[str, tuple[Parameter, ...]]:
    """The fields of each struct that has nothing else."""
    found = {}
    for name, body, alias in _STRUCT.findall(without_comments(source)):
        fields: list[Parameter] = []
        for line in filter(None, (line.strip() for line in body.split(";"))):
            first, *others = read_parameters(line)
            kind = first.type.removesuffix("*").strip()
            fields += [first, *(Parameter(kind + "*" * ("*" in x.type), x.name or x.type) for x in others)]
        if fields and all(field.name for field in fields):
            found[alias or name] = tuple(fields)
    return found


def _ways(function: Function, kernel: str, known: Known) -> Iterator[Call]:
    if function.name == "main":
        yield from _mains(function, kernel, known.texts[0])
        return
    if objects := _objects(function.qualifier.split("::")[-2:-1], known.texts[0]):
        yield from _of_objects(function, objects)
        return
    made = ((function.owner, function.owner_template), (function.name, function.template))
    for chosen in itertools.islice(itertools.product(*(known.arguments(*each) for each in made)), _MOST_TEMPLATES):
        owner, own = (_written(each[1], values) for each, (values, _) in zip(made, chosen, strict=True))
        inside = f"{function.owner}{owner}{'::' if function.is_static else '{}.'}" if function.owner else ""
        called, (types, said) = f"{function.scope}{inside}{function.name}{own}", zip(*chosen, strict=True)
        yield from _calls(function, called, types[0] | types[1], said[0] + said[1], kernel, known)


def _objects(names: Sequence[str], source: str) -> tuple[str, ...]:
    """C++ for A, B and C as objects of a class that is made with its sides alone; empty where it is not."""
    for name in names:
        if re.search(rf"\b(?:class|struct)\s+{name}\b", source):
            for inside in re.findall(
                rf"(?<![~\w]){name}\s*\(([^()]*)\)\s*(?:noexcept|[:;{{])", without_comments(source)
            ):
                made = [_made(name, read_parameters(inside), role) for role in MATRICES]
                if all(made):
                    return tuple(made)
    return ()


def _made(name: str, parameters: Sequence[Parameter], role: str) -> str:
    """A new object of the class `name` that is this matrix; empty where a parameter is no side of it."""
    sides = [
        next((_SIDES[role][side] for form, side in _FIELDS if form.match(p.name)), "N" if is_alone(p.name) else "")
        for p in parameters
    ]
    if not all(sides) or not sides or not all(_WHOLE.match(_plain(p, {})) for p in parameters):
        return ""
    return f"(*new {name}({', '.join(f'(int)checked_number({NUMBERS.index(side)})' for side in sides)}))"


def _of_objects(function: Function, objects: Sequence[str]) -> Iterator[Call]:
    """A method of A that is given B, and C if it does not return it."""
    given = objects[1 : 1 + len(function.parameters)]
    if len(given) == len(function.parameters) > 0:
        yield Call(function, f"{objects[0]}.{function.name}({', '.join(given)})")


def _written(parameters: Sequence[Parameter], values: Mapping[str, str]) -> str:
    """The arguments of a template, as in `<128, 16, float>`, up to the last that has no default."""
    last = max((index for index, parameter in enumerate(parameters, 1) if parameter.name in values), default=0)
    texts: dict[str, str] = {}
    for parameter in parameters[:last]:
        text = values.get(parameter.name) or parameter.default
        texts[parameter.name] = re.sub(r"\b[A-Za-z_]\w*\b", lambda word: texts.get(word[0], word[0]), text)
    return f"<{', '.join(texts.values())}>" if texts else ""


def _calls(
    function: Function, called: str, types: Mapping[str, str], said: list[str], kernel: str, known: Known
) -> Iterator[Call]:
    """Of the function as it is `called`, with arguments."""
    parameters = [parameter for parameter in function.parameters if not parameter.default]
    plain = [_plain(parameter, types) for parameter in parameters]
    roles = _roles(parameters, plain, known.structs)
    given = [_argument(kind, role, known.element, known.structs) for kind, role in zip(plain, roles, strict=True)]
    if not any("checked_pointer" in argument for argument in given) and sum(role in SIZES for role in roles) < 2:
        return
    # What nothing tells is tried as what is most usual, and flags both ways.
    for flag in ("false", "true") if "bool" in plain else ("",):
        tried, decided = list(given), list(said)
        for index, (parameter, kind) in enumerate(zip(parameters, plain, strict=True)):
            if not tried[index]:
                choice = _choice(function.body, kernel, parameter.name)
                tried[index], usual = _unknown(parameter, kind, flag, choice)
                decided += [f"{parameter.name} = {usual}"] if usual else []
        if not all(tried):
            continue
        yield Call(function, f"{called}({', '.join(tried)})", tuple(decided))
        if _K_BY_N in (b := next((x for x, role in zip(given, roles, strict=True) if role == "B"), "")):
            tried[given.index(b)] = b.replace(_K_BY_N, _N_BY_K)  # as torch's `linear` has its weight
            yield Call(function, f"{called}({', '.join(tried)})", tuple(decided), turned=True)


def _mains(function: Function, kernel: str, source: str) -> Iterator[Call]:
    """With words that its text asks for, and with none; what it does not read itself, a function of `source` may."""
    words, asked = _words(function.raw, kernel), _asked(function.raw) or _asked(source)
    options = [name for name in _OPTION.findall(function.raw) if role_of(name) not in SIZES]
    chosen = ((f"-{name}={number}",) for name in options for number in range(_MOST_CHOICES))
    plain = (words, ()) if words or not function.parameters else (words,)
    for given in dict.fromkeys((*plain, *chosen)):
        two = zip(function.parameters, (str(len(given) + 1), "words"), strict=False)
        first, told = ", ".join(f"({p.type}){value}" for p, value in two), " ".join(("checked", *given))
        made = f'char** words = checked_words("{told}", "{asked}"); (void)words;'
        yield Call(function, f"{{ {made} checked_main({first}); }}")


def _words(body: str, kernel: str) -> tuple[str, ...]:
    """What stands for argv[1] and so on: a size where a variable of its name is set, and an option that is compared."""
    found: dict[int, str] = {}
    read = re.findall(rf"(\w+\s*=\s*)?\b(\w+)\s*=[^=;,]*?{_ARGV}", body)
    read = [x[1:] for x in sorted(read, key=lambda x: bool(x[0]))]  # `m = n = k = argv[1]` is for those who pass one
    for (name, index), role in zip(read, roles_of([name for name, _ in read]), strict=True):
        other = "N" if is_alone(name) else re.findall(r"^\d+$|$", _choice(body, kernel, name))[0] or _usual(name)
        found.setdefault(int(index), role if role in SIZES else other)
    for index, option in re.findall(r'\bargv\s*\[\s*(\d)\s*\][^;]{0,20}?"(-+[\w-]+)"', body):
        found[int(index)] = option
    wanted = re.search(r"\bargc\s*(?:!=|<)\s*(\d)", body)
    last = max((*found, int(wanted[1]) - 1 if wanted else 0))
    usual = dict(enumerate(SIZES, 1)) if not found and last >= len(SIZES) else {}
    return tuple(found.get(index, usual.get(index, "1")) for index in range(1, last + 1))


def _asked(body: str) -> str:
    """What is read from the standard input: sizes in the order of their names, or in the usual order."""
    read = re.findall(r"\bscanf\s*\(\s*[^,]*,([^;()]*)\)|\bcin\s*>>([^;]*);", body)
    names = re.findall(r"\w+", " ".join(first or second for first, second in read if "[" not in first + second))
    roles = [role_of(name) for name in names]
    if {*roles} == {"N", ""}:  # one size, and what it has besides
        return " ".join(role or "1" for role in roles)
    usual = {0: [], 1: ["N"], 2: ["M", "N"], 3: [*SIZES], 4: ["M", "K", "K", "N"]}
    return " ".join(roles if all(role in SIZES for role in roles) else usual.get(len(names), [*SIZES]))


def _plain(parameter: Parameter, types: Mapping[str, str]) -> str:
    text = re.sub(r"\b(?:const|volatile|struct)\b|[&\s]", " ", parameter.type)
    return re.sub(r"\b\w+\b", lambda word: types.get(word[0], word[0]), " ".join(text.split()))


def _roles(
    parameters: Sequence[Parameter], plain: Sequence[str], known: Mapping[str, tuple[Parameter, ...]]
) -> list[str]:
    """Also of structs that are a matrix each, which are A, B and C in order if their names do not say it."""
    roles = [
        role or (_number_of(parameter.name) if _WHOLE.match(kind) else "")
        for role, parameter, kind in zip(named(parameters), parameters, plain, strict=True)
    ]
    tensors = [index for index, kind in enumerate(plain) if "Tensor" in kind]
    if len(tensors) == 2 and not any(roles[index] for index in tensors):  # it returns C
        roles[tensors[0]], roles[tensors[1]] = "A", "B"
    whole = [index for index, kind in enumerate(plain) if any(map(is_pointer, known.get(kind, ())))]
    if len(whole) == len(MATRICES):
        told = [role_of(parameters[index].name) for index in whole]
        for index, role in zip(whole, told if set(told) == set(MATRICES) else MATRICES, strict=True):
            roles[index] = role
    return roles


def _number_of(name: str) -> str:
    """The role of a layer's channels, and `PITCH_A`, the bytes of a row of A."""
    pitch = _PITCH.match(name)
    return f"PITCH_{(pitch[1] or pitch[2]).upper()}" if pitch else _CHANNELS.get(name, "")


def _argument(kind: str, role: str, element: str, known: Mapping[str, tuple[Parameter, ...]]) -> str:
    """In C++, empty where it is not known what it is."""
    if kind in known:
        return _struct(kind, role, element, known)
    if kind == "dim3" and role in MATRICES:  # as NVIDIA's samples have it: the width comes first
        rows, columns = (f"(unsigned)checked_number({NUMBERS.index(side)})" for side in _SIDES[role])
        return f"dim3({columns}, {rows}, 1)"
    if "Tensor" in kind and role in MATRICES:
        rows, columns = (f"(int64_t)checked_number({NUMBERS.index(side)})" for side in _SIDES[role])
        scalar = _TORCH_TYPES.get(element, "Float")
        place = PLACES.index(role) + 1
        return f"at::Tensor(checked_pointer<void>({place}), {{{rows}, {columns}}}, at::ScalarType::{scalar})"
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
    if re.search(r"(?:Handle_t|Stream_t|stream_t|CUstream)$", kind):
        return f"{kind}{{}}"
    return ""


def _struct(kind: str, role: str, element: str, known: Mapping[str, tuple[Parameter, ...]]) -> str:
    """A value of a struct, each of whose fields is a role, or which is the matrix `role`; empty where it is neither."""
    fields, values = known[kind], {}
    roles = named(fields)
    if role in MATRICES:
        roles = [
            role if is_pointer(field) else next((_SIDES[role][side] for p, side in _FIELDS if p.match(field.name)), "")
            for field in fields
        ]
    if not set(roles) & set(MATRICES):
        return ""
    for field, own in zip(fields, roles, strict=True):
        if argument := _argument(_plain(field, {}), own, element, {}):
            values[field.name] = argument
    filled = " ".join(f"made.{name} = {value};" for name, value in values.items())
    return f"[] {{ {kind} made{{}}; {filled} return made; }}()"


def _choice(body: str, kernel: str, name: str) -> str:
    """The number that a parameter must be for `kernel` to be launched: of the last `case` or comparison before that."""
    before = body[: found.start()] if (found := re.search(rf"\b{kernel}\b", body)) else ""
    number = r"\b\w+\b"
    chosen = re.findall(rf"\b{name}\s*==\s*({number})", before)
    if re.search(rf"\bswitch\s*\(\s*{name}\s*\)", before):
        chosen = re.findall(rf"\bcase\s+({number})\s*:", before)
    return chosen[-1] if chosen else ""


def _unknown(parameter: Parameter, kind: str, flag: str, choice: str) -> tuple[str, str]:
    """(argument, what is said of it) for a parameter that nothing tells but, where there is one, a `choice`."""
    name = parameter.name
    if choice:
        return f"({kind}){choice}", choice
    if kind == "bool":
        return flag, flag
    if kind.endswith("*"):
        buffer = "const" not in parameter.type or role_of(name) == "BIAS"  # what may be written, or is zeros
        return f"({kind}){'checked_allocate(1 << 24)' if buffer else 'nullptr'}", "" if buffer else "nullptr"
    if _WHOLE.match(kind):
        usual = "" if re.search(r"pitch", name, re.I) else _usual(name)  # a row's bytes, which differ with the size
        return usual, usual
    if kind in ("float", "double"):
        return "1", "1"
    if kind == "dim3" or "(" in kind:
        return "", ""
    return f"checked_zeros<{kind}>()", ""


def _usual(name: str) -> str:
    """The usual value of a number of this name."""
    if re.search(r"stage", name, re.I):
        return "2"
    if re.search(r"block|tile|thread", name, re.I):
        return "16"
    if re.search(r"stride", name, re.I):
        return "2048"
    return "0" if re.search(r"gpu|device|seed", name, re.I) else "1"
