"""How a kernel is launched at any size: expressions in M, N and K, or a recording of the file's own host code."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import gemm_ref
from experiments.check.cuda.expressions import definitions, evaluate, split
from experiments.check.cuda.syntax import Signature
from experiments.records.request import UsageError
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

    def at(self, problem: gemm_ref.Problem) -> gemm_ref.Launch:
        """The launch at these sizes. Raises UsageError where a GPU would refuse it."""
        if self.recorded:
            return self.recorded(problem)
        names = dict(self.names) | {"M": problem.m, "N": problem.n, "K": problem.k}
        grid, block = (as_axes(evaluate(text, names) for text in texts) for texts in (self.grid, self.block))
        launch = gemm_ref.Launch(grid, block, evaluate(self.shared, names))
        if min(block) < 1 or launch.threads > MAX_THREADS:
            raise UsageError(f"--block {','.join(self.block)} is {block}: a block has 1 to {MAX_THREADS} threads")
        if any(not 0 <= size <= limit for size, limit in zip(grid, MAX_GRID, strict=True)):
            raise UsageError(f"--grid {','.join(self.grid)} is {grid} at {problem}: a grid has 1 to {MAX_GRID} blocks")
        if launch.shared_bytes < 0:
            raise UsageError(f"--shared {self.shared} is {launch.shared_bytes} bytes at {problem}")
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
        """Returns rules whose grids have a block for each such tile of C, the most common grid first.

        axes: the sizes that the kernel calls M, N and K.
        """
        down, across = (f"cdiv({'MNK'[axes.index(axis)]}, {side})" for axis, side in zip("MN", tile, strict=True))
        return [replace(self, grid=grid) for grid in ((across, down), (down, across), (f"{down} * {across}",))]

    def tile(self) -> tuple[int, int]:
        """Rows and columns of C for each block, as far as the grid determines them; 1 where it does not."""
        if self.recorded and (not self.has_expressions or set("MNK") & set("".join(self.block))):
            return UNKNOWN_TILE
        rule = self.as_expressions()
        return rule._step("m"), rule._step("n")

    def _step(self, axis: str) -> int:
        """By how much a size grows from one more block to the next."""
        first_sizes: dict[int, int] = {}
        for size in range(1, _MAX_TILE + 2):
            x, y, z = self.at(gemm_ref.Problem(1024, 1024, 1024).resized(**{axis: size})).grid
            first_sizes.setdefault(x * y * z, size)
        firsts = sorted(first_sizes.values())
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
    sides = block or shared_array_sides(signature.body)  # arrays that the block must fit
    if not complete or not sides and "__shared__" in signature.body and "blockDim" in dict(found.values()).values():
        missing = "--grid" if block else "--grid and --block"
        raise UsageError(
            f"how is {signature.name} launched? Its source does not show which tile of C a block owns: pass {missing}, "
            "in M, N and K, such as --block 16,16 --grid 'cdiv(N,128),cdiv(M,128)' for tiles of 128 x 128"
        )
    block = sides or tuple(str(BLOCK_SIDE) if step == "blockDim" else step for _, step in (found["x"], found["y"]))
    lengths = dict(zip("xyz", (*block, "1", "1"), strict=False))
    grid = tuple(
        f"cdiv({role}, {lengths[axis] if step == 'blockDim' else step})" for axis, (role, step) in sorted(found.items())
    )
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
