"""Selects the function of a Python file that launches its kernel, and infers the roles of its parameters."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import triton
from triton.runtime.jit import KernelInterface

from experiments.check.python import direct
from experiments.check.python import module as source
from experiments.check.python.module import SIZES, Module
from experiments.check.python.untuned import UNKNOWN, common, constants, plain
from experiments.records.request import UsageError

MATRICES = ("A", "B", "C")
VECTOR = "x"  # in the place of B: the function multiplies A (M, K) and x (K)
SCALARS = ("ALPHA", "BETA")  # of C = alpha * A @ B + beta * C + a bias
BIAS = "BIAS"
# Roles beside these: factors of A, B or both that change nothing, a matrix that is added, C's type.
FACTORS_A, FACTORS_B, FACTOR, ADDEND, TYPE = "ones of A", "ones of B", "1.0", "addend", "type"
FACTORS = (FACTORS_A, FACTORS_B)

_NAMES = {
    "A": "a x xq act lhs left mat1 matrix_a mat_a input inp in1 group_a",
    "B": "b w wq weight y rhs right mat2 matrix_b mat_b other in2 group_b quant_w",
    "C": "c out output o z result res dest d group_c",
    "ALPHA": "alpha",
    "BETA": "beta",
}
_ROLES = {name: role for role, names in _NAMES.items() for name in names.split()}
PLAIN = "check expects C = A @ B or alpha * A @ B + beta * C, of matrices whose elements are stored one by one"
_MORE = re.compile(r"softmax|norm|swiglu|geglu|attention|attn|conv|rope|lora", re.I)
_MATVEC = re.compile(r"(^|_)(gemv|mv|matvec|vecmat|mat_vec|vec_mat)(_|\d|$)|\b(vec|vector)\b", re.I)
_NO_OPERAND = re.compile(r"^(d?l?test|bench|profile|plot|main|run_|check|validate|verify|compare|demo)", re.I)


@dataclass(frozen=True)
class Argument:
    """The argument of a parameter: by its role a matrix, a size or another number, and else `value`."""

    name: str
    role: str = ""
    value: object = None

    @property
    def listed(self) -> bool:
        """Whether it takes a list of matrices, and is passed a list of one."""
        return self.role in MATRICES and self.name.lower().startswith("group_")

    def __str__(self) -> str:
        if not self.role:
            return f"{self.name}={getattr(self.value, '__name__', repr(self.value))}"
        text = f"[{self.role}]" if self.listed else self.role
        return self.name if self.name.upper() == self.role else f"{self.name}={text}"


@dataclass(frozen=True)
class Launcher:
    name: str
    function: Callable
    arguments: tuple[Argument, ...]
    is_kernel: bool = False  # no function of the file launches it on matrices that it is passed
    square: bool = False  # the file passes one size for M, N and K
    is_guess: bool = False  # the file does not launch that kernel at all
    by_columns: Callable | None = None  # a kernel that is launched alone, with the tiles of a row along the first axis

    @property
    def roles(self) -> set[str]:
        return {argument.role for argument in self.arguments}

    @property
    def takes_vector(self) -> bool:
        return VECTOR in self.roles

    @property
    def fills_c(self) -> bool:
        """Whether it writes into a C that is passed, and does not allocate one."""
        return "C" in self.roles

    def __str__(self) -> str:
        return f"{self.name}({', '.join(map(str, self.arguments))})"

    def __call__(self, values: Mapping[str, object]) -> object:
        """Calls the function; values: by role."""
        named: dict[str, object] = {}
        for argument in self.arguments:
            value = values[argument.role] if argument.role else argument.value
            if argument.role == TYPE and isinstance(argument.value, list):
                value = next((text for text in argument.value if _short(text) == _short(str(value))), value)
            named[argument.name] = [value] if argument.listed else value
        return self.function(**named)


def _short(dtype: str) -> str:
    """Returns one name for `torch.float16`, `fp16` and `half`."""
    return re.sub("float|fp", "f", dtype.lower().rpartition(".")[2]).replace("half", "f16")


def choose(module: Module, name: str, specified: Mapping[str, object]) -> Launcher:
    """Returns the function called `name` or launching that kernel; by default the only one. Raises UsageError."""
    launching = _launching(module)
    if name not in launching and inspect.isfunction(named := _plain(module.names.get(name))):
        launching[name] = named, set()  # what it calls may launch
    where, reasons = module.path.name, dict[str, str]()
    found = {}
    for key, (function, kernels) in launching.items():
        if name and name != key and name not in kernels:
            continue
        try:
            found[key] = Launcher(key, function, tuple(_arguments(key, function, module, specified)))
        except UsageError as error:
            reasons[key] = str(error)
    if not found:
        found = _kernels_alone(module, name, specified, reasons)
    if name in found:
        return found[name]
    if name in reasons:
        raise UsageError(reasons[name])
    if not name:
        found = {key: one for key, one in found.items() if not _NO_OPERAND.match(key.strip("_"))} or found
        for hidden in ("_+$", "_"):
            found = {key: one for key, one in found.items() if not re.match(hidden, key)} or found
    if len(found) == 1:
        return next(iter(found.values()))
    if found:
        raise UsageError(f"{where} has several functions that launch: pass --kernel with one of {', '.join(found)}")
    if reasons:
        expected = f": {PLAIN}" * any(reason.endswith(PLAIN) for reason in reasons.values())
        raise UsageError("; ".join(reason.removesuffix(f": {PLAIN}") for reason in reasons.values()) + expected)
    missing = module.why_missing(name) if name else next((f"line {e.line}: {e.why}" for e in module.left_out), "")
    also = f" (left out: {missing})" if missing else ""
    if name:
        there = ", ".join(launching) or "none"
        raise UsageError(f"{where} has no function {name} that launches a kernel: there is {there}{also}")
    needs = f"{where} needs a function that launches its kernel, gemm(a, b, c) or gemm(a, b)"
    raise UsageError(f"{needs}: there is none{also}")


def _kernels_alone(
    module: Module, name: str, specified: Mapping[str, object], reasons: dict[str, str]
) -> dict[str, Launcher]:
    """Returns the kernels of the file, or that of this name, which take matrices by name, as launchers."""
    found = {}
    for key, value in module.names.items():
        if not isinstance(value, KernelInterface) or name not in ("", key):
            continue
        names = list(inspect.signature(plain(value)).parameters)
        roles = _roles(names)
        passed = [each for _, each in source.calls(key, names, module)]
        sizes = ([ast.unparse(each[size]) for size in SIZES if size in each] for each in passed)
        square = any(each.count(each[0]) == len(SIZES) and each[0].isidentifier() for each in sizes if each)
        try:
            _require_matrices(key, roles, passed, module)
            if _vector(key, list(roles), names, roles):
                raise UsageError(f"{key} multiplies A (M, K) and a vector x (K): write a function mv(A, x) for it")
            if set(MATRICES) <= set(roles.values()):
                function, by_columns = (direct.launch_of(key, module, roles, order) for order in (False, True))
                arguments = tuple(_arguments(key, function, module, specified, names))
                found[key] = Launcher(key, function, arguments, True, square, not passed, by_columns)
        except UsageError as error:
            reasons[key] = str(error)
    return found


def _require_matrices(
    name: str, roles: Mapping[str, str], passed: Sequence[Mapping[str, ast.expr]], module: Module
) -> None:
    """Raises UsageError where the file passes a kernel one matrix, and a vector or a batch of them."""
    operands = [parameter for parameter, role in roles.items() if role in ("A", "B")]
    for arguments in passed:
        ranks = {each: source.rank(arguments[each], module) for each in operands if each in arguments}
        if len(set(filter(None, ranks.values()))) > 1:
            found = " and ".join(f"{each} of {rank} dimension{'s' * (rank != 1)}" for each, rank in ranks.items())
            raise UsageError(f"{name} is passed {found}, which is no product of two matrices: {PLAIN}")


def _launching(module: Module) -> dict[str, tuple[Callable, set[str]]]:
    """Returns the functions that launch, each with its kernels; or those that call a kernel, where none launches."""
    kernels = {name for name, value in module.names.items() if isinstance(value, KernelInterface)}
    bodies: dict[str, ast.AST] = {}
    for node in ast.walk(module.tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            bodies.setdefault(node.name, node)  # of one name the outermost
    direct = {name: set(_launched(body)) for name, body in bodies.items() if name not in kernels}
    found: dict[str, tuple[Callable, set[str]]] = {}
    aliased = set()
    for key, value in module.names.items():
        owner = value if inspect.isclass(value) else getattr(value, "__self__", None)  # of `matmul = _Matmul.apply`
        owner = owner if inspect.isclass(owner) and issubclass(owner, torch.autograd.Function) else None
        body = owner.__name__ if owner else key
        if direct.get(body) and callable(value) and (owner or not inspect.isclass(value)):
            found[key] = _applied(owner) if owner else _plain(value), direct[body] & kernels
            aliased |= {body} - {key}
    if found:
        return {key: each for key, each in found.items() if key not in aliased}
    words = {key: {*re.findall(r"\w+", ast.unparse(body))} for key, body in bodies.items() if key not in kernels}
    functions = {key: _plain(module.names.get(key)) for key, used in words.items() if used & kernels or not kernels}
    return {key: (value, set()) for key, value in functions.items() if inspect.isfunction(value)}


def _plain(function: Any) -> Any:
    """Returns the user's function of an operator that is registered with torch's dispatcher."""
    function = getattr(function, "_init_fn", function)
    wrapped = getattr(function, "__module__", "") == "torch._library.triton"
    return inspect.getclosurevars(function).nonlocals["fn"] if wrapped else function


def _applied(owner: Any) -> Callable:
    """Returns the `apply` of an autograd.Function, which takes no keywords, as a function that does."""
    forward = inspect.signature(owner.forward)
    signature = forward.replace(parameters=list(forward.parameters.values())[1:])  # without ctx

    def apply(**values: object) -> object:
        bound = signature.bind(**values)
        bound.apply_defaults()
        return owner.apply(*bound.args)

    setattr(apply, "__signature__", signature)  # noqa: B010 (mypy knows no such name of a function)
    return apply


def _launched(body: ast.AST) -> Iterator[str]:
    """Yields the names of the kernels that are launched in it: `name[grid](...)`."""
    for node in ast.walk(body):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Subscript):
            target = node.func.value
            if isinstance(target, ast.Call) and target.args:  # wrap_triton(name)[grid](...)
                target = target.args[0]
            yield target.id if isinstance(target, ast.Name) else getattr(target, "attr", "")


def _arguments(
    name: str, function: Callable, module: Module, specified: Mapping[str, object], listed: Sequence[str] = ()
) -> Iterator[Argument]:
    """Yields each required argument; `listed`: calls of the file pass these in order. Raises UsageError."""
    parameters = _parameters(function)
    required = [each for each in parameters if each.default is inspect.Parameter.empty and each.name not in specified]
    called = source.called_with(name, listed or [each.name for each in parameters], module)
    passed = source.parametrized(name, module) | called
    scalars = [each.name for each in parameters if each not in required and _role(each.name) in SCALARS]
    roles = _roles([each.name for each in required] + [name for name in scalars if name not in specified])
    if not {"C", ADDEND} & set(roles.values()):  # beta belongs to a matrix that is not passed
        roles = {key: role for key, role in roles.items() if role != "BETA" or key not in scalars}
    shown = ", ".join(each.name for each in parameters)
    if more := _MORE.search(name) or re.search(r"\b(scale|zero_?point)_c\b", shown, re.I):
        raise UsageError(f"{name}({shown}) computes more than a product, by its name ({more[0]}): {PLAIN}")
    if vector := _vector(name, list(roles), [each.name for each in required], roles):
        roles = vector
    if not ({"A", "B"} <= set(roles.values()) or VECTOR in roles.values()):
        raise UsageError(f"{name}({shown}) has no two matrices among its parameters, by their names: {PLAIN}")
    unknown = []
    for each in parameters:
        role, texts = roles.get(each.name, ""), source.texts(each.name, module)
        value: object = None
        if each.name in specified:
            value = specified[each.name]
            role = value if isinstance(value, source.Size) else ""
        elif role == TYPE and texts:
            value = [text for text in texts if hasattr(torch, text.rpartition(".")[2]) or _short(text) != text]
            role, value = (role, value) if value else ("", texts[0])
        elif role in FACTORS and _annotation(each) == "float":
            role = FACTOR  # which may be a number, or a tensor all the same
        elif not role and each in required:
            value = passed[each.name] if each.name in passed else _common(each, module)
            role = value if isinstance(value, source.Size) else ""
        elif not role:
            continue
        unknown += [each.name] * (value is inspect.Parameter.empty)
        yield Argument(each.name, role, value)
    if unknown:
        defines = " ".join(f"-D {each}=..." for each in unknown)
        other = ", each a number, M, N or K, or write a function gemm(a, b) that launches it" * bool(listed)
        what = f"{', '.join(unknown)}, whose value{'s' * (len(unknown) > 1)} the file does not tell"
        raise UsageError(f"{name}({shown}) takes {what}: pass {defines}{other}")


def _vector(name: str, known: list[str], required: list[str], roles: Mapping[str, str]) -> dict[str, str]:
    """Returns the roles of a product of a matrix and a vector, by its names; empty where it is none."""
    is_named = any(map(_MATVEC.search, (name, *required)))
    others = [each for each in required if each not in known and _role(each) == "A"]  # forward(A, x)
    if not is_named and ("B" in roles.values() or not others):
        return {}
    tensors = [each for each in required if roles.get(each, "") in ("", *MATRICES)][:3]
    if len(tensors) < 2:
        return {}
    vector = next((each for each in tensors if re.fullmatch(r"x|v|vec|vector", each, re.I)), tensors[1])
    matrix, *out = (each for each in tensors if each != vector)
    found = {key: role for key, role in roles.items() if key not in tensors} | {matrix: "A", vector: VECTOR}
    if "K" not in found.values():  # A is of M x N
        found = {key: "K" if role == "N" else role for key, role in found.items()}
    return found | dict.fromkeys(out, "C")


def _parameters(function: Callable) -> list[inspect.Parameter]:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return []
    return [each for each in parameters if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)]


def _roles(names: list[str]) -> dict[str, str]:
    """Returns the role of each parameter that has one by its name; two or three without roles are A, B and C."""
    found: dict[str, str] = {}
    taken: set[str] = set()
    known = {name.lower() for name in names}
    first_of_two = next((name for name in names if name.lower() in ("c", "d") and {"c", "d"} <= known), "")
    unsaid = [name for name in names if _role(name) == FACTOR]
    for name in names:
        role = _role(name)
        if {"mat1", "mat2"} <= known and role == "A" and name.lower() != "mat1":
            role = ADDEND  # torch's addmm(input, mat1, mat2)
        elif name.lower() == "b" and taken & {"A"} and known & {"w", "weight"}:
            role = BIAS
        elif role in MATRICES and role in taken:
            role = "C" if {"A", "B"} <= taken and "C" not in taken else ""
        if role == "C" and name == first_of_two or role == BIAS and "beta" in known:
            role = ADDEND  # D = A @ B + C
        if role == FACTOR and len(unsaid) > 1:
            role = FACTORS[name != unsaid[0]]
        if role:
            found[name] = role
            taken.add(role)
    if len(left := set(SIZES) - taken) == 1 and (third := [name for name in names if name in ("p", "l", "q", "r")]):
        found[third[0]] = left.pop()
    if not taken and len(names) in (2, 3):  # gemm(p, q) and gemm(p, q, r)
        return dict(zip(names, MATRICES, strict=False))
    return found


def _role(name: str) -> str:
    """Returns the role of a name by itself; empty where it has none."""
    bare = re.sub(r"_(ptr|tensor|mat|matrix|desc|quant|q|fp8|int8)$", "", name.lower())
    bare = re.sub(r"^(d|ptr|mat|input|output|in|out)_", "", bare)
    if name.upper() in SIZES:
        return name.upper()
    if re.search(r"scale|^[ab]_s$|^[AB]s$|^(alpha|factor)_(row|col)|^state_[xw]$", name):
        of_a, of_b = (re.search(rf"(^|_)({sides})(_|s?cale|s$|$)", bare) for sides in ("[ax]|rows?", "[bwy]|cols?"))
        return FACTORS_A if of_a else FACTORS_B if of_b or re.search("weight", bare) else FACTOR
    if bare in ("bias", "residual"):
        return BIAS if bare == "bias" else ADDEND
    if re.search(r"^(out(put)?_|c_)?d?type(_(out|c|dst))?$", bare):
        return TYPE
    return _ROLES.get(bare, "")


def _common(parameter: inspect.Parameter, module: Module) -> object:
    """Returns a common value of a parameter, by its name or its annotation; `empty` where there is none."""
    kernels = [value for value in module.names.values() if isinstance(value, KernelInterface)]
    kernels.sort(key=lambda kernel: not set(MATRICES) <= set(_roles(kernel.arg_names).values()))
    if kernels and re.search(r"kernel|^fn$", parameter.name):
        return kernels[0]
    if kernels and re.search(r"^(config|cfg)$", parameter.name):
        return triton.Config(constants(kernels[0]))
    annotation = _annotation(parameter)
    if (value := common(parameter.name)) is not UNKNOWN:
        if re.match(r"(typing\.)?([Ll]ist|Sequence)", annotation):
            return value, value
        return 0 if value is None and annotation == "int" else value
    if annotation in ("bool", "float"):
        return 1.0 if annotation == "float" else False
    if re.search(r"Optional|None", annotation):
        return None
    return next(iter(source.texts(parameter.name, module)), inspect.Parameter.empty)


def _annotation(parameter: inspect.Parameter) -> str:
    annotation = parameter.annotation
    return annotation.__name__ if inspect.isclass(annotation) else str(annotation)
