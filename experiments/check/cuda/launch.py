"""How a kernel is launched at any size, and candidates for its template and its block where nothing specifies them.

A launch is expressions in M, N and K, or a recording of the file's own host code.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import gemm_ref
from experiments.check.cuda.expressions import definitions, evaluate
from experiments.check.cuda.parameters import SIZES, role_of
from experiments.check.cuda.syntax import Parameter, Signature, split
from experiments.records.request import UsageError
from gemm_ref import ptx
from gemm_ref.rung import MAX_GRID

MAX_STATIC_BYTES = 48 << 10  # of shared memory, which a kernel is given where nothing says how many it takes
MAX_THREADS = 1024  # of a block: the CUDA programming guide, 'Technical Specifications per Compute Capability'
BLOCK_SIDE = 16  # threads along x and along y, where the kernel reads blockDim and so takes any
UNKNOWN_TILE = (128, 128)  # assumed where the grid is not known as expressions

_MAX_TILE = 1024  # the largest tile of C that `tile` finds


@dataclass(frozen=True)
class LaunchRule:
    """Grid, block and shared memory as expressions in M, N, K and `names`; `?` where no expression is known."""

    grid: tuple[str, ...] = ("1",)
    block: tuple[str, ...] = ("1",)
    shared: str = "0"  # bytes of dynamic shared memory
    names: tuple[tuple[str, int], ...] = ()
    recorded: Callable[[gemm_ref.Problem], gemm_ref.Launch] | None = field(default=None, repr=False)
    host_function: tuple[str, str] | None = None  # file:line and name of what launches; None for --grid and --block

    def at(self, problem: gemm_ref.Problem) -> gemm_ref.Launch:
        """The launch at these sizes.

        Raises LaunchFault where a GPU refuses the launch of the host code, UsageError where it would that of options.
        """
        if self.recorded:
            launch = self.recorded(problem)
        else:
            names = dict(self.names) | {"M": problem.m, "N": problem.n, "K": problem.k}
            grid, block = (as_axes(evaluate(text, names) for text in texts) for texts in (self.grid, self.block))
            launch = gemm_ref.Launch(grid, block, evaluate(self.shared, names))
        has_threads = min(launch.block) >= 1 and launch.threads <= MAX_THREADS
        has_blocks = all(0 <= size <= limit for size, limit in zip(launch.grid, MAX_GRID, strict=True))
        checks = (
            (has_threads, "block", self.block, f"{launch.block}: a block has 1 to {MAX_THREADS} threads"),
            (has_blocks, "grid", self.grid, f"{launch.grid} at {problem}: a grid has 1 to {MAX_GRID} blocks"),
            (launch.shared_bytes >= 0, "shared", (self.shared,), f"{launch.shared_bytes} bytes at {problem}"),
        )
        for is_possible, option, texts, why in checks:
            if not is_possible and self.host_function:
                place, function = self.host_function
                raise ptx.LaunchFault(f"{place}: a GPU refuses this launch: the {option} of {function} is {why}")
            if not is_possible:
                raise UsageError(f"--{option} {','.join(texts)} is {why}")
        return launch

    @property
    def has_expressions(self) -> bool:
        """Whether expressions alone give the launch."""
        return "?" not in self.grid

    def as_expressions(self) -> LaunchRule:
        """Returns the rule by its expressions, without asking the host code."""
        return replace(self, recorded=None)

    def transposed(self) -> LaunchRule:
        """Returns the rule with x and y of the grid exchanged; itself where the grid is not known as expressions."""
        if not self.has_expressions:
            return self
        x, y, *rest = (*self.grid, "1", "1")[: max(2, len(self.grid))]
        return replace(self.as_expressions(), grid=(y, x, *rest))

    def with_tile(self, tile: tuple[int, int], axes: str = "MNK") -> list[LaunchRule]:
        """Returns rules with a block for each such tile of C, the most common grid first, in sizes called `axes`."""
        down, across = (f"cdiv({'MNK'[axes.index(axis)]}, {side})" for axis, side in zip("MN", tile, strict=True))
        return [replace(self, grid=grid) for grid in ((across, down), (down, across), (f"{down} * {across}",))]

    def tile(self) -> tuple[int, int]:
        """Rows and columns of C for each block, as far as the grid determines them; 1 where it does not."""
        if self.recorded and (not self.has_expressions or set("MNK") & set("".join(self.block))):
            return UNKNOWN_TILE
        rule = self.as_expressions()
        try:
            return rule._step("m"), rule._step("n")
        except ptx.LaunchFault:  # which the first run reports
            return UNKNOWN_TILE

    def _step(self, axis: str) -> int:
        """By how much a size grows from one more block to the next."""

        def blocks(size: int) -> int:
            return math.prod(self.at(gemm_ref.Problem(1024, 1024, 1024).resized(**{axis: size})).grid)

        blocks(_MAX_TILE + 1)  # raises UsageError where a GPU would refuse the launch at some of these sizes
        if axis.upper() not in re.findall(r"\w+", " ".join(self.grid)):
            return 1
        first_sizes: dict[int, int] = {}  # by the number of blocks
        for size in range(1, _MAX_TILE + 2):
            first_sizes.setdefault(blocks(size), size)
            if len(first_sizes) > 2:
                break
        firsts = list(first_sizes.values())
        return firsts[2] - firsts[1] if len(firsts) > 2 else firsts[-1] - 1 or 1

    def __str__(self) -> str:
        if not self.has_expressions:
            return "grid and block as its host code has them"
        shared = f", {self.shared} bytes of dynamic shared memory" if self.shared != "0" else ""
        return f"grid ({', '.join(self.grid)}), block ({', '.join(self.block)}){shared}"


def parse(text: str, option: str) -> tuple[str, ...]:
    """Returns one to three expressions. Raises UsageError."""
    parts = tuple(split(text))
    if not 1 <= len(parts) <= 3:
        raise UsageError(f"{option} {text!r}: write x, or x,y, or x,y,z")
    return parts


def without_ones(axes: Sequence[str]) -> tuple[str, ...]:
    """Returns the axes without those of 1 at the end."""
    kept = tuple(axes)
    while len(kept) > 1 and kept[-1] == "1":
        kept = kept[:-1]
    return kept


def as_axes(sizes: Iterable[int]) -> tuple[int, int, int]:
    """Returns x, y and z of up to three sizes."""
    x, y, z = (*sizes, 1, 1)[:3]
    return x, y, z


def infer_from_indices(
    signature: Signature, roles: Sequence[str], names: Mapping[str, int], block: tuple[str, ...]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Returns (grid, block) of a kernel in which each thread computes the element of C that its indices name.

    That is so where one variable is `blockIdx.y * blockDim.y + threadIdx.y` (or a constant in place of blockDim) and is
    compared with M or N, and another of x with the other. Raises UsageError where the source does not have them.
    """
    sizes = {p.name: role for p, role in zip(signature.parameters, roles, strict=True)} | {"M": "M", "N": "N"}
    found: dict[str, tuple[str, str]] = {}
    for name, axis, step in _thread_indices(signature.body):
        limit = re.search(rf"\b{name}\s*(?:<|>=)\s*(\w+)", signature.body)
        role = sizes.get(limit[1]) if limit else None
        known = step == "blockDim" or step.isdigit() or step in names
        if role in ("M", "N") and not known and re.fullmatch(r"[A-Za-z_]\w*", step):
            raise UsageError(f"{step} has no value in the file: pass -D {step}=32, with the value that is meant")
        if role in ("M", "N") and known:
            found[axis] = (role, step)
    complete = sorted(role for role, _ in found.values()) in (["M", "N"], ["N", "N"]) and set(found) == {"x", "y"}
    if "N" not in roles and [role for role, _ in found.values()] == ["M"] and "__shared__" not in signature.body:
        ((axis, (_, step)),) = found.items()  # a row of a product with a vector
        side = block[0] if block else str(_LINE_BLOCKS[0]) if step == "blockDim" else step
        if axis == "x":
            return (f"cdiv(M, {side})",), (side,)
    sides = block or shared_array_sides(signature.body)  # arrays that the block must fit
    if not complete or not sides and "__shared__" in signature.body and "blockDim" in dict(found.values()).values():
        missing = "--grid" if block else "--grid and --block"
        raise UsageError(
            f"how is {signature.name} launched? Its source does not show which tile of C a block owns: pass {missing}, "
            "in M, N and K, such as --block 16,16 --grid 'cdiv(N,128),cdiv(M,128)' for tiles of 128 x 128"
        )
    block = sides or tuple(str(BLOCK_SIDE) if step == "blockDim" else step for _, step in (found["x"], found["y"]))
    lengths = dict(zip("xyz", (*block, "1", "1"), strict=False))
    sides_ = ((role, lengths[axis] if step == "blockDim" else step) for axis, (role, step) in sorted(found.items()))
    grid = tuple(f"cdiv({role}, {side})" for role, side in sides_)
    return grid, block


def shared_array_sides(body: str) -> tuple[str, ...]:
    """The one length of all arrays in shared memory, which a block of that many threads on each side fills."""
    sides = set(re.findall(r"\[\s*(\w+)\s*\]", " ".join(re.findall(r"__shared__([^;]*);", body))))
    return (*sides, *sides) if len(sides) == 1 else ()


def _thread_indices(body: str) -> list[tuple[str, str, str]]:
    """(name, axis, step) of each variable that is blockIdx.axis * step + threadIdx.axis, in any order."""
    declared = re.findall(r"\b(?:int|unsigned|size_t|auto|uint32_t)\s+(\w+\s*=[^;]+);", body)
    values: dict[str, str] = {}
    found = []
    for name, text in itertools.chain.from_iterable(map(definitions, declared)):
        text = re.sub(r"\b\w+\b(?!\s*\.)(?<!\.)", lambda word: values.get(word[0], word[0]), text)
        plain = re.sub(r"\s|\(int\)|static_cast<\w+>", "", text).strip("()")
        if re.fullmatch(r"(?:blockIdx|threadIdx|blockDim)\.[xyz]", plain):
            values[name] = plain
        for product, offset in (plain.split("+"), reversed(plain.split("+"))) if plain.count("+") == 1 else ():
            factors = product.split("*")
            match = re.fullmatch(r"threadIdx\.([xyz])", offset)
            if match and len(factors) == 2 and f"blockIdx.{match[1]}" in factors:
                step = factors[1 - factors.index(f"blockIdx.{match[1]}")]
                found.append((name, match[1], "blockDim" if step == f"blockDim.{match[1]}" else step))
    return found


Template: TypeAlias = tuple[tuple[Parameter, str], ...]

WARP = 32
_SQUARE_BLOCKS = ((16, 16), (32, 32), (32, 8), (8, 8))  # common ones of kernels that count threads along x and y
_LINE_BLOCKS = (256, 128, 512, 1024, 64, 32)  # and along x alone
# A number's meaning by its name: the side of a block's, of a warp's or of a thread's tile. Y counts rows, X columns.
_TILE = re.compile(
    r"^k?_?(block|tile|threadblock|cta|b|warp|w|thread|t)(?:_?(?:size|tile|dim|items|work))*_?([mnkxy])$", re.I
)
_LEVELS = {"b": "B", "block": "B", "tile": "B", "threadblock": "B", "cta": "B", "w": "W", "warp": "W"}
_COMMON = {"BM": 128, "BN": 128, "BK": 16, "WM": 64, "WN": 64, "WK": 16, "TM": 8, "TN": 8, "TK": 1}
_ONE_ELEMENT = {"BM": 32, "BN": 32, "BK": 32}  # where a thread has one element, since no parameter is its tile


def specified_template(signature: Signature, text: str) -> Template:
    """Returns each parameter with its argument: --template's, its default, or a common one. Raises UsageError."""
    texts, parameters = split(text, angles=True), signature.template
    if len(texts) > len(parameters):
        raise UsageError(f"--template has {len(texts)} arguments and {signature.name} takes {len(parameters)}")
    values = fill_template(parameters, texts, lambda parameter: _argument(parameter, {}, "false", "float"))
    if parameters and not values:
        wanted = ", ".join(f"{p.type} {p.name}" for p in parameters)
        raise UsageError(f"{signature.name} is a template of <{wanted}>: pass all of them, as in --template 'float,32'")
    return tuple(zip(parameters, values, strict=True))


def template_instances(
    name: str, parameters: Sequence[Parameter], known: Mapping[str, int], texts: Iterable[str]
) -> Iterator[tuple[str, ...]]:
    """Yields the arguments that `texts` of a project have for a template; numbers, types and flags."""
    for inside in re.findall(rf"\b{name}\s*<([^<>;{{}}]+)>", "\n".join(texts)):
        are_numbers = (not is_type_parameter(p) and "bool" not in p.type for p in parameters)
        pairs = zip(split(inside), are_numbers, strict=False)
        with contextlib.suppress(UsageError):  # an expression of unknown names
            values = [str(evaluate(text, known)) if is_number else text for text, is_number in pairs]
            if found := fill_template(parameters, values):
                yield found


def common_templates(
    parameters: Sequence[Parameter], known: Mapping[str, int], element: str
) -> Iterator[tuple[str, ...]]:
    """Yields arguments for a template: constants of the same names, or common values."""
    tiles = {p.name: found for p in parameters if (found := _tile_side(p.name))}
    if tiles and tiles.keys().isdisjoint(known) and {*tiles.values()} <= _ONE_ELEMENT.keys():
        one_element = {name: _ONE_ELEMENT[side] for name, side in tiles.items()}
        yield from common_templates(parameters, {**one_element, **known}, element)
    sides = {side: known.get(name, _COMMON[side]) for name, side in tiles.items()}
    known = dict(known)
    for parameter in parameters:  # beside sides of tiles, a size is that of the block
        if parameter.name not in known and re.search(r"thread|block_?(?:size|dim)$", parameter.name, re.I) and sides:
            known[parameter.name] = _threads(sides)
    for flag in ("true", "false") if any("bool" in parameter.type for parameter in parameters) else ("",):
        fallback = functools.partial(_argument, known=known, flag=flag, element=element)
        if values := fill_template(parameters, (), fallback):
            yield values


def fill_template(
    parameters: Sequence[Parameter], texts: Sequence[str], fallback: Callable[[Parameter], str] = lambda _: ""
) -> tuple[str, ...]:
    """Returns an argument for each parameter: of `texts`, its default, or the fallback; none where one is empty."""
    values: dict[str, str] = {}
    for parameter, text in zip(parameters, itertools.chain(texts, itertools.repeat("")), strict=False):
        text = text or parameter.default or fallback(parameter)
        values[parameter.name] = re.sub(r"\b[A-Za-z_]\w*\b", lambda word: values.get(word[0], word[0]), text)
    return tuple(values.values()) if all(values.values()) else ()


def is_type_parameter(parameter: Parameter) -> bool:
    """Whether a template's parameter is a type, of a concept or of any kind, and no number."""
    return re.search(r"\b(?:bool|auto|unsigned|int|long|size_t|u?int\d+_t)\b", parameter.type) is None


def _argument(parameter: Parameter, known: Mapping[str, int], flag: str, element: str) -> str:
    name = parameter.name
    if is_type_parameter(parameter):
        return element
    if "bool" in parameter.type:
        return flag
    if role_of(name) in SIZES:
        return role_of(name)
    if name in known:
        return str(known[name])
    if side := _tile_side(name):
        return str(_COMMON[side])
    if re.search(r"stage", name, re.I):
        return "3"
    return "16" if re.search(r"block|tile|size|dim|width", name, re.I) else ""


def _tile_side(name: str) -> str:
    """`BM` of BLOCK_SIZE_M, BM and ThreadblockM, `TN` of THREAD_SIZE_X; empty where it is no side of a tile."""
    match = _TILE.match(name)
    if not match:
        return ""
    axis = {"X": "N", "Y": "M"}.get(match[2].upper(), match[2].upper())
    return _LEVELS.get(match[1].lower(), "T") + axis


def candidate_blocks(signature: Signature, source: str, names: Mapping[str, int]) -> list[tuple[int, ...]]:
    """Returns blocks to try, those that the source suggests first. source: the file as far as the kernel needs it."""
    found: list[tuple[int, ...]] = []
    bounds = re.search(rf"__launch_bounds__\s*\(([^,()]+)[^()]*\)\s*(?:void\s+)?{signature.name}\b", source)
    for text in ([bounds[1]] if bounds else []) + [name for name in names if re.search(r"threads", name, re.I)]:
        with contextlib.suppress(UsageError):
            found.append((evaluate(text, names),))
    sides = {side: value for name, value in names.items() if (side := _tile_side(name))}
    if "threadIdx.y" in source:  # maybe in a function that the kernel calls
        columns, rows = (sides.get("B" + axis, 0) // (sides.get("T" + axis) or 1) for axis in "NM")
        arrays = [int(x) if x.isdigit() else names.get(x, 0) for x in shared_array_sides(signature.body)]
        found += [(columns, rows), *([tuple(arrays)] if arrays else []), *_SQUARE_BLOCKS]
    else:
        found += [(_threads(sides),), *((threads,) for threads in _LINE_BLOCKS)]
    return [block for block in dict.fromkeys(found) if 0 < math.prod(block) <= MAX_THREADS]


def _threads(sides: Mapping[str, int]) -> int:
    """The threads of a block whose tile is divided among warps, if these have a tile, or among threads."""
    part, each = ("W", WARP) if {"WM", "WN"} <= sides.keys() and "TM" not in sides else ("T", 1)
    return each * math.prod(sides.get("B" + axis, 0) // (sides.get(part + axis) or 1) for axis in "MN")
