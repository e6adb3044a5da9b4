"""Which function of a Python file launches its kernel, and what its parameters stand for."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl
from triton.runtime.jit import KernelInterface

from experiments.check.python import direct
from experiments.check.python.module import Module
from experiments.check.python.untuned import UNKNOWN, common, constants
from experiments.records.request import UsageError

SIZES = ("M", "N", "K")
MATRICES = ("A", "B", "C")
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
_NO_OPERAND = re.compile(r"^(d?l?test|bench|profile|plot|main|run_|check|validate|verify|compare|demo)", re.I)


@dataclass(frozen=True)
class Argument:
    """What a parameter is given: a matrix, a size or what `role` says otherwise, or `value` where there is no role."""

    name: str
    role: str = ""
    value: object = None
    in_order: bool = False  # it is passed by its place, and not by its name

    @property
    def listed(self) -> bool:
        """Whether it takes a list of matrices, of which it is given one."""
        return self.role in MATRICES and self.name.lower().startswith("group_")

    def __str__(self) -> str:
        if not self.role:
            return f"{self.name}={getattr(self.value, '__name__', repr(self.value))}"
        text = f"[{self.role}]" if self.listed else self.role
        return self.name if self.name.upper() == self.role else f"{self.name}={text}"


@dataclass(frozen=True)
class Launcher:
    """A function that launches, with what it is called with."""

    name: str
    function: Callable
    arguments: tuple[Argument, ...]
    by_itself: bool = False  # it is a kernel, which no function of the file launches on matrices that it is given

    @property
    def scalars(self) -> tuple[str, ...]:
        """Which of alpha, beta and a bias it is given."""
        return tuple(role for role in (*SCALARS, BIAS) if any(argument.role == role for argument in self.arguments))

    @property
    def fills_c(self) -> bool:
        """Whether it is given C, and does not make one."""
        return any(argument.role == "C" for argument in self.arguments)

    def __str__(self) -> str:
        return f"{self.name}({', '.join(map(str, self.arguments))})"

    def __call__(self, values: Mapping[str, object]) -> object:
        """values: what each role is at these sizes."""
        in_order, named = [], {}
        for argument in self.arguments:
            value = values[argument.role] if argument.role else argument.value
            value = [value] if argument.listed else value
            if argument.in_order:
                in_order.append(value)
            else:
                named[argument.name] = value
        return self.function(*in_order, **named)


def choose(module: Module, name: str, given: Mapping[str, object]) -> Launcher:
    """The function called `name`, or that which launches the kernel of that name; without a name the only one.

    given: the values of parameters. Raises UsageError with the question that is left.
    """
    launching = _launching(module)
    if name not in launching and inspect.isfunction(named := _plain(module.names.get(name))):
        launching[name] = named, set()  # what it calls may launch
    where, reasons = module.path.name, dict[str, str]()
    found = {}
    for key, (function, kernels) in launching.items():
        if name and name != key and name not in kernels:
            continue
        try:
            found[key] = Launcher(key, function, tuple(_arguments(key, function, module, given)))
        except UsageError as error:
            reasons[key] = str(error)
    if not found:
        found = _by_themselves(module, name, given, reasons)
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
    if len(reasons) == 1:
        raise UsageError(next(iter(reasons.values())))
    missing = module.why_missing(name) if name else next((f"line {e.line}: {e.why}" for e in module.left_out), "")
    also = f" (left out: {missing})" if missing else ""
    if name:
        there = ", ".join(launching) or "none"
        raise UsageError(f"{where} has no function {name} that launches a kernel: there is {there}{also}")
    there = f"there is {', '.join(reasons)}" if reasons else "there is none"
    raise UsageError(f"{where} needs a function that launches its kernel, gemm(a, b, c) or gemm(a, b): {there}{also}")


def _by_themselves(
    module: Module, name: str, given: Mapping[str, object], reasons: dict[str, str]
) -> dict[str, Launcher]:
    """The kernels of the file, or that of this name, that take matrices by names, each with a launch of its own."""
    found = {}
    for key, value in module.names.items():
        if not isinstance(value, KernelInterface) or name not in ("", key):
            continue
        names = list(inspect.signature(direct.plain(value)).parameters)
        if set(MATRICES) <= set((roles := _roles(names)).values()):
            function = direct.launch_of(key, module, roles)
            try:
                found[key] = Launcher(key, function, tuple(_arguments(key, function, module, given, names)), True)
            except UsageError as error:
                reasons[key] = str(error)
    return found


def _launching(module: Module) -> dict[str, tuple[Callable, set[str]]]:
    """Each function of the file that launches, and the kernels that it does; those that call these, where none does."""
    kernels = {name for name, value in module.names.items() if isinstance(value, KernelInterface)}
    bodies = {node.name: node for node in _defined(module.tree.body)}
    direct = {name: set(_launched(body)) for name, body in bodies.items() if name not in kernels}
    found: dict[str, tuple[Callable, set[str]]] = {}
    for key, value in module.names.items():
        if inspect.isclass(value) and issubclass(value, torch.autograd.Function):
            value = getattr(value, "apply")  # noqa: B009 (mypy takes the class for any)
        owner = _owner(value)
        body = owner.__name__ if owner else key
        if callable(value) and not inspect.isclass(value) and direct.get(body):
            found[key] = _plain(value), direct[body] & kernels
    applied = {owner.__name__ for key, (each, _) in found.items() if (owner := _owner(each)) and key != owner.__name__}
    if found:
        return {key: each for key, each in found.items() if key not in applied}
    functions = {key: _plain(module.names.get(key)) for key in bodies if key not in kernels}
    return {key: (value, set()) for key, value in functions.items() if inspect.isfunction(value)}


def _defined(statements: Iterable[ast.AST]) -> Iterator[ast.FunctionDef | ast.ClassDef]:
    """The functions and classes that statements define, under an `if` or a `try` as well."""
    for node in statements:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node
        elif isinstance(node, ast.If | ast.Try | ast.With | ast.ExceptHandler):
            yield from _defined(ast.iter_child_nodes(node))


def _plain(function: Any) -> Any:
    """What somebody wrote, of an operator that torch's dispatcher was told of."""
    function = getattr(function, "_init_fn", function)
    wrapped = getattr(function, "__module__", "") == "torch._library.triton"
    return inspect.getclosurevars(function).nonlocals["fn"] if wrapped else function


def _owner(function: object) -> type[torch.autograd.Function] | None:
    """The class whose `apply` a function is, as in `matmul = _Matmul.apply`."""
    owner = getattr(function, "__self__", None)
    return owner if inspect.isclass(owner) and issubclass(owner, torch.autograd.Function) else None


def _launched(body: ast.AST) -> Iterator[str]:
    """The names of what is launched in it: `name[grid](...)`, or `name` in `name.run(...)`."""
    for node in ast.walk(body):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Subscript):
            target = node.func.value
            if isinstance(target, ast.Call) and target.args:  # wrap_triton(name)[grid](...)
                target = target.args[0]
            yield target.id if isinstance(target, ast.Name) else getattr(target, "attr", "")


def _arguments(
    name: str, function: Callable, module: Module, given: Mapping[str, object], listed: Sequence[str] = ()
) -> Iterator[Argument]:
    """What each parameter that must be given is given. Raises UsageError where that cannot be known.

    listed: what calls in the file pass in order, if that is not what the function takes.
    """
    parameters = _parameters(function)
    required = [each for each in parameters if each.default is inspect.Parameter.empty and each.name not in given]
    examples = {
        **_parametrized(name, module),
        **_called_with(name, listed or [each.name for each in parameters], module),
    }
    scalars = [each.name for each in parameters if each not in required and _role(each.name) in SCALARS]
    roles = _roles([each.name for each in required] + [name for name in scalars if name not in given])
    if not {"C", ADDEND} & set(roles.values()):  # beta is of a matrix that it is not given
        roles = {key: role for key, role in roles.items() if role != "BETA" or key not in scalars}
    shown = ", ".join(each.name for each in parameters)
    if more := _MORE.search(name):
        raise UsageError(f"{name}({shown}) computes more than a product, by its name ({more[0]}): {PLAIN}")
    if not {"A", "B"} <= set(roles.values()):
        raise UsageError(f"{name}({shown}) has no two matrices among its parameters, by their names: {PLAIN}")
    in_order = _owner(function) is not None  # autograd's `apply` takes no names
    told = roles.keys() | given.keys()
    last = max(index for index, each in enumerate(parameters) if each in required or each.name in told)
    for each in parameters[: last + 1]:
        if each.name in given:
            value = given[each.name]
        elif each.name in roles:
            yield Argument(each.name, roles[each.name], in_order=in_order)
            continue
        elif each in required:
            value = examples[each.name] if each.name in examples else _common(each, module)
        elif in_order:
            value = each.default
        else:
            continue
        if value is inspect.Parameter.empty:
            unknown = f"{name}({shown}) takes {each.name}, whose value the file does not tell"
            raise UsageError(f"{unknown}: pass -D {each.name}=...")
        yield Argument(each.name, value=value, in_order=in_order)


def _parameters(function: Callable) -> list[inspect.Parameter]:
    owner = _owner(function)
    if owner:
        return list(inspect.signature(owner.forward).parameters.values())[1:]  # without ctx
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return []
    return [each for each in parameters if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)]


def _roles(names: list[str]) -> dict[str, str]:
    """The role of each parameter that has one by its name; the first two tensors that have none are A and B, then C."""
    found: dict[str, str] = {}
    taken: set[str] = set()
    known = {name.lower() for name in names}
    first_of_two = (
        next((name.lower() for name in names if name.lower() in ("c", "d")), "") if {"c", "d"} <= known else ""
    )
    unsaid = [name for name in names if _role(name) == FACTOR]
    for name in names:
        role = _role(name)
        if {"mat1", "mat2"} <= known and role == "A" and name.lower() != "mat1":
            role = ADDEND  # torch's addmm(input, mat1, mat2)
        elif name.lower() == "b" and taken & {"A"} and known & {"w", "weight"}:
            role = BIAS
        elif role in MATRICES and role in taken:
            role = "C" if {"A", "B"} <= taken and "C" not in taken else ""
        if role == "C" and name.lower() == first_of_two or role == BIAS and "beta" in known:
            role = ADDEND  # D = A @ B + C
        if role == FACTOR and len(unsaid) > 1:
            role = FACTORS[name != unsaid[0]]
        if role:
            found[name] = role
            taken.add(role)
    if not taken and len(names) in (2, 3):  # gemm(p, q) and gemm(p, q, r)
        return dict(zip(names, MATRICES, strict=False))
    return found


def _role(name: str) -> str:
    """What a name stands for by itself; empty where it does not say."""
    plain = re.sub(r"^(d|ptr|mat)_|_(ptr|tensor|mat|matrix|desc)$", "", name.lower())
    if name.upper() in SIZES:
        return name.upper()
    if re.search(r"scale|^[ab]_s$|^[AB]s$|^(alpha|factor)_(row|col)|^state_[xw]$", name):
        of_a, of_b = (re.search(rf"(^|_)({sides})(_|s?cale|s$|$)", plain) for sides in ("[ax]|rows?", "[bwy]|cols?"))
        return FACTORS_A if of_a else FACTORS_B if of_b or re.search("weight", plain) else FACTOR
    if plain in ("bias", "residual"):
        return BIAS if plain == "bias" else ADDEND
    if re.search(r"^(out(put)?_|c_)?d?type(_(out|c|dst))?$", plain):
        return TYPE
    return _ROLES.get(plain, "")


def _common(parameter: inspect.Parameter, module: Module) -> object:
    """A value that does for a parameter, by its name or the type that it is said to have; else `empty`."""
    kernels = [value for value in module.names.values() if isinstance(value, KernelInterface)]
    if kernels and re.search(r"kernel|^fn$", parameter.name):
        return kernels[0]
    if kernels and re.search(r"^(config|cfg)$", parameter.name):
        return triton.Config(constants(kernels[0]))
    listed = re.match(r"(typing\.)?[Ll]ist|(typing\.)?Sequence", str(parameter.annotation))
    if (value := common(parameter.name)) is not UNKNOWN:
        return (value, value) if listed else value
    said = (
        parameter.annotation if isinstance(parameter.annotation, str) else getattr(parameter.annotation, "__name__", "")
    )
    if said == "bool":
        return False
    return None if re.search(r"Optional|None", str(parameter.annotation)) else inspect.Parameter.empty


def _parametrized(function: str, module: Module) -> dict[str, object]:
    """The first value that the file's own tests give each name (`pytest.mark.parametrize`), this function's first."""
    found: dict[str, object] = {}
    tests = [each for each in ast.walk(module.tree) if isinstance(each, ast.FunctionDef) and each.decorator_list]
    tests.sort(key=lambda each: not any(isinstance(node, ast.Name) and node.id == function for node in ast.walk(each)))
    for node in (decorator for test in tests for decorator in test.decorator_list):
        if not (isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "parametrize" and len(node.args) > 1):
            continue
        said, values = (_value(argument, module) for argument in node.args[:2])
        names = re.findall(r"\w+", said) if isinstance(said, str) else said
        first = next(iter(values), None) if isinstance(values, list | tuple) else None
        if not isinstance(names, list | tuple):
            continue
        first = getattr(first, "values", first) if len(names) > 1 else (first,)  # a pytest.param has values
        if isinstance(first, list | tuple) and len(first) == len(names):
            found = dict(zip(names, first, strict=True)) | found
    return found


def _called_with(name: str, parameters: Sequence[str], module: Module) -> dict[str, object]:
    """The first constant that the file itself passes for each parameter of a function."""
    found: dict[str, object] = {}
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Call) and re.fullmatch(
            rf"(\w+\.)*{re.escape(name)}(\.apply|\[.*\])?", ast.unparse(node.func)
        ):
            given = list(zip(parameters, node.args, strict=False))
            given += [(keyword.arg, keyword.value) for keyword in node.keywords if keyword.arg]
            for parameter, argument in given:
                value = _value(argument, module)
                value = module.constants.get(ast.unparse(argument)) if value is None else value
                if isinstance(value, bool | int | float | str | torch.dtype | tl.dtype):
                    found.setdefault(parameter, value)
    return found


def _value(node: ast.expr, module: Module) -> object:
    """What an expression of constants and the file's own names is; None for any other."""
    if any(isinstance(each, ast.Call | ast.Lambda | ast.Await) for each in ast.walk(node)):
        return None
    try:
        return eval(compile(ast.Expression(node), "value", "eval"), dict(module.names))
    except Exception:  # it names what exists only inside a function
        return None
