"""The parameters of a kernel by their names and types: which matrix, which size, how matrices are stored."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch

import gemm_ref
from experiments.check.cuda.expressions import evaluate
from experiments.check.cuda.syntax import Parameter, Signature, split, without_comments
from experiments.records.request import UsageError

MATRICES, SIZES, LEADING, SCALARS = ("A", "B", "C"), ("M", "N", "K"), ("LDA", "LDB", "LDC", "LDD"), ("ALPHA", "BETA")
# D = alpha A B + beta C, in kernels that have all four
PLACES = (*MATRICES, "D")  # in the order of their addresses, when host code is recorded
POINTERS = (*MATRICES, "D", "BIAS", "NULL")
_BLOCK = "16"  # the side of a block that is passed to a kernel without host code
HOST = "HOST"  # the bytes that the host code passes
ROLES = (*POINTERS, *SIZES, *LEADING, *SCALARS)

_OTHER_NAMES = {
    "MAT_A": "A", "MAT_B": "B", "MAT_C": "C", "LHS": "A", "RHS": "B",
    "OUT": "C", "OUTPUT": "C", "RESULT": "C", "RES": "C", "DST": "C",
    "INP": "A", "INPUT": "A", "WEIGHT": "B", "WEIGHTS": "B", "BIASES": "BIAS",
    "STRIDE_A": "LDA", "STRIDE_B": "LDB", "STRIDE_C": "LDC",
    "M_LD": "M", "N_LD": "N", "K_LD": "K", "WA": "K", "HB": "K", "WB": "N", "WC": "N", "HA": "M", "HC": "M",
}  # fmt: skip
# Affixes: where the data is (d_A, dev_a, gA, A_ptr) or that it is a matrix (matA, mat_a).
_DECORATION = re.compile(
    r"^(?:d|dev|device|g|gmem|global|gpu|h|host|p|ptr|in|out|mat|matrix|tensor)_?(?=[abcd]$)"
    r"|_?(?:ptr|d|h|dev|device|gmem|mat|gpu|in|global|matrix)$|^(?:d|h|dev|device)_(?=\w{3})",
    re.I,
)
# `numARows`, `A_n_cols`, `num_cols_B`, `b_ncolumns`: the rows or columns of a matrix.
_OF_A_MATRIX = (
    re.compile(r"^_*(?:n|num)?_?([abc])_?(?:n|num)?_?(row|col|line|height|width)\w*$", re.I),
    re.compile(r"^_*(?:n|num)?_?(?:of_)?(row|col|line|height|width)(?:s|umn|umns)?_?(?:of_|in_|dim_?)?([abc])$", re.I),
)
_SIZE_OF = {"A0": "M", "A1": "K", "B0": "K", "B1": "N", "C0": "M", "C1": "N"}
# `MM`, `size_m`, `M_GLOBAL`, `kTotal`: a size of the matrices, not of a tile.
_AXIS = re.compile(
    r"^(?:(?:matrix|global|total|size|dim|num)_?)?([mnk])\1?_?(?:global|total|size|dim|len|length)?_*$", re.I
)
_SQUARE_SIZE = re.compile(r"^(?:n|(?:mat|matrix|n)?_?(?:size|dim|width|side|length|len|order))$", re.I)

# Of a product with a vector: A x = y, with A of rows x columns, which may be called M x N.
_VECTOR_NAME = re.compile(r"^(?:d|dev|h)?_?(?:x|v|vec|vector)(?:_?in)?$", re.I)
_LARGE = 256  # a fixed size above this is reduced
_REDUCED = {"M": 256, "N": 128, "K": 192}  # replaces a larger one, if both are multiples of the usual tiles
_TILES = (2, 4, 8, 16, 32, 64)
_MAX_TILE = 128  # of the numbers in a source that may be sides of tiles
MIN_SIZE = 64  # of the matrices, as a constant of the file; smaller constants are sizes of tiles
_ROW = re.compile(r"^(?:row_?)?(?:stride|pitch|ld|leading_?dim\w*)$", re.I)


def role_of(name: str) -> str:
    """Returns the role of a name, in any case; empty where it has none."""
    for plain in (name, name.strip("_"), _DECORATION.sub("", name), _DECORATION.sub("", _DECORATION.sub("", name))):
        upper = plain.upper()
        role = _OTHER_NAMES.get(upper, upper)
        if role in ROLES:
            return role
    for pattern, (matrix, what) in zip(_OF_A_MATRIX, ((1, 2), (2, 1)), strict=True):
        if match := pattern.match(name):
            return _SIZE_OF[match[matrix].upper() + ("1" if match[what][0] in "cCwW" else "0")]
    axis = _AXIS.match(name)
    return axis[1].upper() if axis else ""


def roles_of(names: Sequence[str]) -> list[str]:
    """Returns the role of each name. With p beside m and n they are M, K and N in this order: m x n times n x p."""
    found = [role_of(name) for name in names]
    letters = [name.strip("_").upper() for name in names]
    order = dict.fromkeys(letter for letter in letters if letter in ("M", "N", "P"))  # of which some may come twice
    if len(order) == len(SIZES) and "K" not in found:
        sizes = dict(zip(order, ("M", "K", "N"), strict=True))
        found = [sizes.get(letter, role) for letter, role in zip(letters, found, strict=True)]
    return found


def roles_by_name(parameters: Sequence[Parameter]) -> list[str]:
    """Returns roles by name and type; of three pointers without any, C is the one that is not const. Empty: no role."""
    found = roles_of([parameter.name for parameter in parameters])
    for index, (parameter, role) in enumerate(zip(parameters, found, strict=True)):
        if is_pointer(parameter) != (role in POINTERS) and role not in SCALARS:
            found[index] = ""
    pointers = [index for index, parameter in enumerate(parameters) if is_pointer(parameter)]
    complete = {found[index] for index in pointers} >= set(MATRICES)
    if not complete and len(pointers) == len(MATRICES):
        written = [index for index in pointers if "const" not in parameters[index].type]
        last = written[0] if len(written) == 1 else next((i for i in pointers if found[i] == "C"), pointers[-1])
        rest = [index for index in pointers if index != last]
        if not {found[index] for index in rest} == {"A", "B"}:
            found[rest[0]], found[rest[1]] = "A", "B"
        found[last] = "C"
    numbers = [index for index, parameter in enumerate(parameters) if _is_integer(parameter)]
    if len(numbers) == 1 and (not found[numbers[0]] or found[numbers[0]] in SIZES):
        found[numbers[0]] = found[numbers[0]] or "N" * is_square_size(parameters[numbers[0]].name)
    if len(numbers) == 2 and is_square_size(parameters[numbers[0]].name) and _ROW.match(parameters[numbers[1]].name):
        found[numbers[0]] = found[numbers[1]] = "N"  # the side of square matrices, and the length of their rows
    if takes_vector(parameters, found):
        for index in numbers:
            side = re.match(r"(?:n|num)?_?(?:(rows?|height)|cols?|columns?|width)_?$", parameters[index].name, re.I)
            role = "M" if side and side[1] else "K"
            found[index] = role if role not in found and (side or found[index] == "N") else found[index]
    left = [index for index in numbers if not found[index]]
    sizes = [size for size in SIZES if size not in found]
    if len(numbers) == len(SIZES) and len(left) == len(sizes) != 2:  # one follows from the others
        for index, size in zip(left, sizes, strict=True):  # the usual order; others are tried
            found[index] = size
    return found


def takes_vector(parameters: Sequence[Parameter], roles: Sequence[str]) -> bool:
    """Whether B is a vector by its name, so that the columns of A, N or not, are what is summed over."""
    return any(role == "B" and _VECTOR_NAME.match(p.name) for p, role in zip(parameters, roles, strict=True))


def size_constants(axes: Collection[str], constants: Mapping[str, int]) -> dict[str, str]:
    """Returns the constant of each size, the largest of its name: `M_GLOBAL` where `M` is a tile's."""
    found: dict[str, str] = {}
    for name in constants:
        axis = role_of(name) if name not in ("m", "n", "k") else ""
        if axis in axes and constants[name] > constants.get(found.get(axis, ""), 0):
            found[axis] = name
    return found


def reduced_constants(signature: Signature, constants: Mapping[str, int], source: str) -> dict[str, int]:
    """Returns smaller values for constants that are sizes, or factors of these, and would take minutes."""
    passed = {*roles_by_name(signature.parameters), *(parameter.name for parameter in signature.template)}
    source = without_comments(source)
    found, named = {}, size_constants([axis for axis in SIZES if axis not in passed], constants)
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
            found[name] = _reduced(constants[name], _REDUCED[axis], source)
    return found


def _reduced(size: int, base: int, source: str) -> int:
    """Returns a smaller size that is a multiple of the same tiles, the usual ones and all numbers of the source."""
    if all(size % tile == 0 for tile in _TILES):
        return base
    numbers = {int(number) for number in re.findall(r"\b\d{1,3}\b", source)}
    tiles = {*_TILES, *(number for number in numbers if 1 < number <= _MAX_TILE)}
    alike = (each for each in range(_REDUCED["N"], size) if all((each % t == 0) == (size % t == 0) for t in tiles))
    return next((each for each in alike if each >= base // 2), size)


def is_square_size(name: str) -> bool:
    """Whether a number of this name is the one size of square matrices."""
    return _SQUARE_SIZE.match(name) is not None


def is_pointer(parameter: Parameter) -> bool:
    """Whether it is an address: a pointer, or a tensor of PyTorch in host code."""
    return "*" in parameter.type or "Tensor" in parameter.type


def assign_roles(
    signature: Signature, option: str, recorded: Sequence[str] = (), recorded_by_size: bool = False
) -> tuple[str, ...]:
    """Returns the role of each parameter: one of ROLES, an expression of sizes, or HOST.

    option: --args; without it roles are `recorded` from a launch, or by name; what is left is HOST if the host code
    was recorded at each size. Raises UsageError with what is unknown, and how --args sets it.
    """
    names = [parameter.name for parameter in signature.parameters]
    if option:
        meant = tuple(_role_of_option(part) for part in split(option))
        if len(meant) != len(names):
            raise UsageError(
                f"--args names {len(meant)} arguments and {signature.name} takes {len(names)}: {', '.join(names)}"
            )
    else:
        meant = tuple(roles_by_name(signature.parameters))
        if recorded:
            both = tuple(value or name for value, name in zip(recorded, meant, strict=True))
            meant = both if all(both.count(role) <= 1 for role in POINTERS) else meant
        rest = [HOST if recorded_by_size else _common_value(parameter) for parameter in signature.parameters]
        meant = tuple(role or other for role, other in zip(meant, rest, strict=True))
        unknown = [name for name, role in zip(names, meant, strict=True) if not role]
        maps = [p.name for p in signature.parameters if p.name in unknown and "CUtensorMap" in p.type]
        if maps:
            raise UsageError(
                f"{' and '.join(maps)} of {signature.name} are tensor maps, and no file of the project that can be run "
                "here makes them and launches it, so nothing says what they describe"
            )
        structs = [f"{p.name} ({p.type})" for p in signature.parameters if p.name in unknown and not _is_plain(p)]
        if structs:
            raise UsageError(
                f"{' and '.join(structs)} of {signature.name} are passed by value, and no host code that can be run "
                f"here fills them and launches it: pass a .cu that includes it and has a function of A, B, C, M, N and "
                f"K that does, with --kernel {signature.name}"
            )
        if unknown:
            known = ",".join(role or "?" for role in meant)
            raise UsageError(
                f"what is {' and what is '.join(unknown)} of {signature.name}? Say what each parameter is, in order: "
                f"--args {known}, with a number or one of {', '.join(ROLES)} for each ?"
            )
    wanted = ("A", "B", "D" if "D" in meant and "C" not in meant else "C") if HOST not in meant else ()
    for role in wanted:
        if meant.count(role) != 1:
            there = "no" if role not in meant else "more than one"
            raise UsageError(f"{signature.name} has {there} {role}: pass --args, such as --args A,B,C,M,N,K")
    for parameter, role in zip(signature.parameters, meant, strict=True):
        if role != HOST and is_pointer(parameter) != (role in POINTERS):
            raise UsageError(
                f"{parameter.type} {parameter.name} of {signature.name} cannot be {role}: pointers are "
                f"{', '.join(POINTERS)}, and the rest are numbers; pass --args to say which is which"
            )
    return meant


def _is_plain(parameter: Parameter) -> bool:
    """Whether it is a pointer, a number or a flag, and no struct."""
    number = re.search(r"\b(?:bool|float|double|half|__half|T)\b", parameter.type)
    return is_pointer(parameter) or _is_integer(parameter) or number is not None


def _is_integer(parameter: Parameter) -> bool:
    integer = r"\b(?:int|unsigned|size_t|long|uint|u?int\d+_t)\b"
    return not is_pointer(parameter) and re.search(integer, parameter.type) is not None


def _common_value(parameter: Parameter) -> str:
    """The common value of a flag, an offset or a block's side; empty for others."""
    if parameter.type == "bool" or re.match(r"offset|trans", parameter.name, re.I):
        return "0"
    is_side = re.match(r"(?:block|tile)_?(?:size|dim|width)$", parameter.name, re.I)
    return _BLOCK if is_side and _is_integer(parameter) else ""


def _role_of_option(text: str) -> str:
    role = "NULL" if text == "nullptr" else role_of(text) or text
    if role not in ROLES and not re.fullmatch(r"-?\d+(\.\d*)?", role):
        try:
            evaluate(role, dict.fromkeys((*SIZES, *LEADING), 1))
        except UsageError as error:
            problem = f"--args: {text!r} is none of {', '.join(ROLES)}, and no expression"
            raise UsageError(f"{problem}: {error}") from error
    return role


TYPES: Mapping[str, torch.dtype] = {
    "float": torch.float32, "double": torch.float64, "half": torch.float16, "__half": torch.float16,
    "__nv_bfloat16": torch.bfloat16, "nv_bfloat16": torch.bfloat16, "int": torch.int32, "int32_t": torch.int32,
    "int8_t": torch.int8, "char": torch.int8, "signed char": torch.int8,
    "uint8_t": torch.uint8, "unsigned char": torch.uint8,
    "uint32_t": torch.int32, "unsigned": torch.int32, "unsigned int": torch.int32, "uint": torch.int32,
    "at::Half": torch.float16, "c10::Half": torch.float16,
    "at::BFloat16": torch.bfloat16, "c10::BFloat16": torch.bfloat16,
}  # fmt: skip
UNSIGNED = {"uint8_t", "unsigned char", "uint32_t", "unsigned", "unsigned int", "uint"}  # the same bits, no signs
# By the element type of A; others are compared in fp32: a wider type, and integers, which fp32 holds exactly.
_MATHS = {torch.float16: "fp16", torch.bfloat16: "bf16"}
_VECTOR = re.compile(r"(float|half|double|__nv_bfloat16|nv_bfloat16|__half)[248]$")
_BY_COLUMNS = {"A": "KxM", "B": "NxK", "C": "NxM"}
_BY_ROWS = {"A": "MxK", "B": "KxN", "C": "MxN"}


def element_type(type_: str, aliases: Mapping[str, str]) -> str:
    """Returns the element type of a pointer's, with typedefs and template parameters (`aliases`) resolved."""
    text = " ".join(re.sub(r"\b(?:const|volatile|struct)\b|[*&]", " ", type_).split())
    for _ in range(4):
        if text not in aliases:
            break
        text = " ".join(re.sub(r"\bconst\b", " ", aliases[text]).split())
    return _VECTOR.sub(r"\1", text.removeprefix("::"))


def type_aliases(source: str) -> dict[str, str]:
    """Returns the names of types that a source defines by `typedef`, `using` and `#define`."""
    found = dict((new, old.strip()) for old, new in re.findall(r"\btypedef\s+([\w:\s]+?)\s+(\w+)\s*;", source))
    found |= dict(re.findall(r"\busing\s+(\w+)\s*=\s*([\w:]+(?:\s+\w+)?)\s*;", source))
    macros = re.findall(r"^[ \t]*#[ \t]*define[ \t]+(\w+)[ \t]+([A-Za-z_][\w:]*(?:[ \t]+[a-z]+)?)[ \t]*$", source, re.M)
    return found | {name: old.strip() for name, old in macros}


def math_of(types: Mapping[str, torch.dtype]) -> str:
    """Returns the math mode for A, B and C of these types. Raises UsageError where A and B differ."""
    if types["A"] != types["B"]:
        raise UsageError(f"A is of {types['A']} and B of {types['B']}: they must be of one type")
    return _MATHS.get(types["A"], "fp32")


@dataclass(frozen=True)
class StorageOrder:
    """Which matrices are stored column-major, and the sizes that the kernel calls M, N and K."""

    by_columns: frozenset[str] = frozenset()
    axes: str = "MNK"
    padded: tuple[tuple[str, int, int], ...] = ()  # matrices that lie in larger ones: (name, rows, columns) of these

    def store(self, name: str, matrix: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """Returns the matrix as the kernel takes it; the same tensor where nothing differs."""
        if name in self.by_columns:
            matrix = matrix.T
        for rows, columns in (sides for padded, *sides in self.padded if padded == name):
            room = (0, columns - matrix.shape[1], 0, rows - matrix.shape[0])
            matrix = torch.nn.functional.pad(matrix, room, value=torch.nan if name == "C" else 0.0)
        if matrix.dtype != dtype and not dtype.is_floating_point:
            matrix = matrix.double().nan_to_num(nan=-1.0e6)  # the poison of C, which no sum of the inputs reaches
            limits = torch.iinfo(dtype)
            matrix = matrix.clamp(limits.min, limits.max)
        return matrix.to(dtype).contiguous()

    def load(self, stored: torch.Tensor, c: torch.Tensor) -> None:
        """Copies what the kernel wrote into C."""
        if stored.data_ptr() != c.data_ptr():
            rows, columns = reversed(c.shape) if "C" in self.by_columns else c.shape
            stored = stored[:rows, :columns]
            c.copy_(stored.T if "C" in self.by_columns else stored)

    def rename_sizes(self, problem: gemm_ref.Problem) -> gemm_ref.Problem:
        """Returns the sizes as the kernel calls them."""
        sizes = {"M": problem.m, "N": problem.n, "K": problem.k}
        m, n, k = (sizes[axis] for axis in self.axes)
        return problem.resized(m, n, k)

    def row_lengths(self, problem: gemm_ref.Problem) -> dict[str, int]:
        """Returns the length of a row of each matrix as it is stored, by LDA and so on."""
        long = {"A": problem.k, "B": problem.n, "C": problem.n}
        wide = {"A": problem.m, "B": problem.k, "C": problem.m}
        found = {f"LD{name}": (wide if name in self.by_columns else long)[name] for name in long}
        return found | {"LDD": found["LDC"]}

    def __str__(self) -> str:
        parts = [f"{name} stored as {_BY_COLUMNS[name].replace('x', ' x ')}" for name in sorted(self.by_columns)]
        parts += [f"{name} padded with zeros to {rows} x {columns}" for name, rows, columns in self.padded]
        parts += [f"its (M, N, K) being ({', '.join(self.axes)})"] if self.axes != "MNK" else []
        return " and ".join(parts)

    @property
    def option(self) -> str:
        return ",".join(f"{name}={_BY_COLUMNS[name]}" for name in sorted(self.by_columns))

    def others(self, axes: bool) -> Iterator[StorageOrder]:
        """Yields other orders to try, the most common first; other orders of the sizes too if `axes`."""
        for names in ("B", "A", "ABC", "AB", "C", "BC", "AC"):
            if frozenset(names) != self.by_columns:
                yield StorageOrder(frozenset(names))
        for order in ("MKN", "NMK", "KNM", "NKM", "KMN") if axes else ():
            yield StorageOrder(self.by_columns, order)


def padded_sides(elements: int, rows: int, columns: int, numbers: Iterable[int]) -> tuple[int, int] | None:
    """Returns rows and columns of the matrix of so many elements, both of `numbers`, that this one lies in."""
    known = {*numbers, rows, columns}
    sides = ((side, elements // side) for side in sorted(known) if side >= rows and elements % side == 0)
    return next((pair for pair in sides if pair[1] in known and pair[1] >= columns and pair != (rows, columns)), None)


def parse_layout(text: str) -> StorageOrder:
    """Parses `B=NxK` or `A=KxM,B=NxK,C=NxM`. Raises UsageError."""
    by_columns = set()
    for part in text.split(",") if text else ():
        name, _, stored = part.replace(" ", "").partition("=")
        if stored not in (_BY_COLUMNS.get(name), _BY_ROWS.get(name)):
            raise UsageError(f"--layout {text!r}: write B=NxK, or A=KxM,B=NxK,C=NxM where all are stored by columns")
        if stored == _BY_COLUMNS[name]:
            by_columns.add(name)
    return StorageOrder(frozenset(by_columns))
