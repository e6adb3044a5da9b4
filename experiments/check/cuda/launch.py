"""How a brought kernel is launched: the user's expressions, or a guess where the source leaves no doubt."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import gemm_ref
from experiments.check.cuda.expressions import definitions, evaluate, split
from experiments.check.cuda.signature import Signature
from experiments.records.request import UsageError
from gemm_ref.rung import MAX_GRID

MOST_THREADS = 1024  # of a block: the CUDA programming guide, 'Technical Specifications per Compute Capability'
DYNAMIC_BYTES = 48 << 10  # of shared memory, which a kernel is given where nothing says how many it takes
BLOCK = 16  # threads along x and along y, where the kernel reads blockDim and so takes any

_AXES = "xyz"
_SEARCHED = 1024  # the largest tile of C that `tile` finds


@dataclass(frozen=True)
class Shape:
    """Expressions in M, N, K and `names`, for x, y and z."""

    grid: tuple[str, ...]
    block: tuple[str, ...]
    shared: str = "0"  # bytes of dynamic shared memory
    names: tuple[tuple[str, int], ...] = ()

    def at(self, problem: gemm_ref.Problem) -> gemm_ref.Launch:
        """The launch at these sizes. Raises UsageError where a GPU would refuse it."""
        names = dict(self.names) | {"M": problem.m, "N": problem.n, "K": problem.k}
        grid, block = (_three([evaluate(text, names) for text in texts]) for texts in (self.grid, self.block))
        launch = gemm_ref.Launch(grid, block, evaluate(self.shared, names))
        if min(block) < 1 or launch.threads > MOST_THREADS:
            raise UsageError(f"--block {','.join(self.block)} is {block}: a block has 1 to {MOST_THREADS} threads")
        if any(not 0 <= size <= limit for size, limit in zip(grid, MAX_GRID, strict=True)):
            raise UsageError(f"--grid {','.join(self.grid)} is {grid} at {problem}: a grid has 1 to {MAX_GRID} blocks")
        if launch.shared_bytes < 0:
            raise UsageError(f"--shared {self.shared} is {launch.shared_bytes} bytes at {problem}")
        return launch

    def expressed(self) -> Shape | None:
        """The same by expressions alone; None where they do not tell it."""
        return self

    def swapped(self) -> Shape:
        """The same with x and y of the grid exchanged."""
        first, second, *rest = (*self.grid, "1", "1")[: max(2, len(self.grid))]
        return Shape((second, first, *rest), self.block, self.shared, self.names)

    def grids(self, tile: tuple[int, int], axes: str = "MNK") -> list[Shape]:
        """The same with grids that have a block for each of these tiles of C, the most common first.

        axes: the sizes that the kernel calls M, N and K.
        """
        down, across = (f"cdiv({'MNK'[axes.index(axis)]}, {side})" for axis, side in zip("MN", tile, strict=True))
        return [replace(self, grid=grid) for grid in ((across, down), (down, across), (f"{down} * {across}",))]

    def tile(self) -> tuple[int, int]:
        """Rows and columns of C that one more block is for, as far as the grid tells; 1 where it does not."""
        return self._step("m"), self._step("n")

    def _step(self, axis: str) -> int:
        """By how much a size grows from one more block to the next."""
        seen: dict[int, int] = {}
        for size in range(1, _SEARCHED + 2):
            x, y, z = self.at(gemm_ref.Problem(1024, 1024, 1024).resized(**{axis: size})).grid
            seen.setdefault(x * y * z, size)
        firsts = sorted(seen.values())
        return firsts[2] - firsts[1] if len(firsts) > 2 else firsts[-1] - 1 or 1

    def __str__(self) -> str:
        shared = f", {self.shared} bytes of dynamic shared memory" if self.shared != "0" else ""
        return f"grid ({', '.join(self.grid)}), block ({', '.join(self.block)}){shared}"


def parse(text: str, option: str) -> tuple[str, ...]:
    """One to three expressions. Raises UsageError."""
    parts = tuple(split(text))
    if not 1 <= len(parts) <= 3:
        raise UsageError(f"{option} {text!r}: write x, or x,y, or x,y,z")
    return parts


def guess(
    signature: Signature, roles: Sequence[str], names: Mapping[str, int], block: tuple[str, ...]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(grid, block) of a kernel in which each thread computes the element of C that its indices name.

    That is so where one variable is `blockIdx.y * blockDim.y + threadIdx.y` (or a constant in place of blockDim) and is
    compared with M or N, and another of x with the other. Raises UsageError where the source does not say it.
    """
    sizes = {p.name: role for p, role in zip(signature.parameters, roles, strict=True)} | {"M": "M", "N": "N"}
    found: dict[str, tuple[str, str]] = {}
    for name, axis, step in _indices(signature.body):
        limit = re.search(rf"\b{name}\s*(?:<|>=)\s*(\w+)", signature.body)
        role = sizes.get(limit[1]) if limit else None
        if role in ("M", "N") and re.fullmatch(r"[A-Za-z_]\w*", step) and step != "blockDim" and step not in names:
            raise UsageError(f"{step} has no value in the file: pass -D {step}=32, with the value that is meant")
        if role in ("M", "N") and (step == "blockDim" or step.isdigit() or step in names):
            found[axis] = (role, step)
    told = sorted(role for role, _ in found.values()) in (["M", "N"], ["N", "N"]) and set(found) == {"x", "y"}
    sides = block or sides_of_arrays(signature.body)  # arrays that the block must fit
    if not told or not sides and "__shared__" in signature.body and "blockDim" in dict(found.values()).values():
        raise UsageError(_ask(signature, block))
    block = sides or tuple(str(BLOCK) if step == "blockDim" else step for _, step in (found["x"], found["y"]))
    shape = (*block, "1", "1")
    grid = tuple(
        f"cdiv({role}, {shape[_AXES.index(axis)] if step == 'blockDim' else step})"
        for axis, (role, step) in sorted(found.items())
    )
    return grid, block


def sides_of_arrays(body: str) -> tuple[str, ...]:
    """The one length of all arrays in shared memory, which a block of that many threads on each side fills."""
    sides = set(re.findall(r"\[\s*(\w+)\s*\]", " ".join(re.findall(r"__shared__([^;]*);", body))))
    return (*sides, *sides) if len(sides) == 1 else ()


def _ask(signature: Signature, block: tuple[str, ...]) -> str:
    missing = "--grid" if block else "--grid and --block"
    return (
        f"how is {signature.name} launched? Its source does not tell which tile of C a block owns: pass {missing}, in "
        "M, N and K, such as --block 16,16 --grid 'cdiv(N,128),cdiv(M,128)' for tiles of 128 x 128"
    )


def _indices(body: str) -> list[tuple[str, str, str]]:
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
            if (match := re.fullmatch(r"threadIdx\.([xyz])", offset)) and len(factors) == 2:
                axis, own = match[1], f"blockIdx.{match[1]}"
                if own in factors:
                    step = factors[1 - factors.index(own)]
                    found.append((name, axis, "blockDim" if step == f"blockDim.{axis}" else step))
    return found


def _three(values: Sequence[int]) -> tuple[int, int, int]:
    x, y, z = (*values, 1, 1)[:3]
    return x, y, z
