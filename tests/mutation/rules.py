"""The rules that make mutants from the text of Triton and Gluon kernels, and of PTX (CUDA's: `cuda_kernels.mutants`).

Triton's and Gluon's read the source as a syntax tree. Those two leave barriers to the compiler, so barriers are removed
from its PTX.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from cuda_kernels.mutants import BARRIER, BOUND, FENCE, INDEX, WAIT, Mutant

# --- PTX -----------------------------------------------------------------------------------------------------

_COMPILED = (
    (BARRIER, r"\bbar(rier)?\.(cta\.)?(sync|warp)[^;]*;", ";"),
    (WAIT, r"\b(cp\.async\.(bulk\.)?|wgmma\.)wait_[^;]*;", ";"),
    (WAIT, r"\bmbarrier\.try_wait\S* (?P<done>\w+),[^;]*;", "setp.eq.u32 {done}, 0, 0;"),  # at once
    (FENCE, r"\bfence\.(proxy\.async|mbarrier_init)[^;]*;", ";"),
    (FENCE, r"\batom(?P<where>\S*)\.(acquire|release|acq_rel)(?P<what>\S*)", "atom{where}.relaxed{what}"),
)


def ptx_mutants(file: str, source: str) -> list[Mutant]:
    """The barriers, waits and fences that Triton sets by itself, which stand in no source of ours."""
    found = [
        Mutant(file, kind, source, match.start(), match.end(), put.format(**match.groupdict()))
        for kind, pattern, put in _COMPILED
        for match in re.finditer(pattern, source)
    ]
    return sorted(found, key=lambda mutant: mutant.start)


# --- Triton and Gluon ----------------------------------------------------------------------------------------

# Names in a kernel that hold no index.
_VALUES = set("a b acc a_next b_next a_smem b_smem c_smem empty full in_k parts piece total _".split())
_VALUES |= set("a_ptrs b_ptrs mask sums freed inside b_inside a0 a1 a2 b0 b1 b2 first small x pieces wide".split())
_REMOVED = {  # calls that stand by themselves
    "async_copy.wait_group": WAIT,
    "async_copy.commit_group": WAIT,
    "mbarrier.wait": WAIT,
    "mbarrier.arrive": BARRIER,
    "tma.store_wait": WAIT,
    "fence_async_shared": FENCE,
}
_PLACES = ("load", "store", "tma_load", "tma_store")  # which take a list of coordinates
_HINTS = ("static_assert", "assume")  # about what is so anyway


def triton_mutants(file: str, source: str, used: frozenset[str] | None = None) -> list[Mutant]:
    """Every mutant of a Triton or Gluon file's kernels, or of those `used`, in the order of its text."""
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line.encode()))

    def place(line: int, column: int) -> int:
        return len(source.encode()[: starts[line - 1] + column].decode())

    found = []
    for kernel in ast.parse(source).body:
        if isinstance(kernel, ast.FunctionDef) and is_kernel(kernel) and (used is None or kernel.name in used):
            for node, kind, put in _triton_changes(kernel):
                start, end = place(node.lineno, node.col_offset), place(node.end_lineno, node.end_col_offset)
                found.append(Mutant(file, kind, source, start, end, put.format(source[start:end])))
    return sorted(found, key=lambda mutant: (mutant.start, mutant.end))


def is_kernel(function: ast.FunctionDef) -> bool:
    """Whether the GPU runs it: a decorator says so."""
    return any("jit" in ast.unparse(decorator) for decorator in function.decorator_list)


def _run_time(node: ast.AST) -> Iterator[ast.AST]:
    """What is in a function, without what only tells the compiler of something."""
    for child in ast.iter_child_nodes(node):
        if not (isinstance(child, ast.Call) and ast.unparse(child.func).endswith(_HINTS)):
            yield child
            yield from _run_time(child)


def _triton_changes(kernel: ast.FunctionDef) -> Iterator[tuple[ast.AST, str, str]]:
    for node in _run_time(kernel):
        if isinstance(node, ast.Compare) and not _is_of_constants(node):
            side = ast.unparse(node.left)
            yield node, BOUND, f"({side} == {side})"
        elif isinstance(node, ast.Assign | ast.AugAssign):
            target = node.target if isinstance(node, ast.AugAssign) else node.targets[0]
            if isinstance(target, ast.Name) and target.id not in _VALUES:
                yield node.value, INDEX, "({}) + 1"
        elif isinstance(node, ast.Return) and isinstance(node.value, ast.Tuple):
            yield from ((element, INDEX, "({}) + 1") for element in node.value.elts)
        elif isinstance(node, ast.For) and not isinstance(node.iter.args[0], ast.Constant) and len(node.iter.args) > 1:
            yield node.iter.args[0], INDEX, "({}) + 1"
        elif isinstance(node, ast.Subscript) and ast.unparse(node.value).endswith("_smem"):
            yield node.slice, INDEX, "({} + 1) % NUM_STAGES"
        elif isinstance(node, ast.Call):
            yield from _call_changes(node)
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            if (kind := _REMOVED.get(ast.unparse(node.value.func))) is not None:
                yield node, kind, "pass"


def _is_of_constants(node: ast.Compare) -> bool:
    """Whether it is about what is known when the kernel is compiled: a constant's name, or None."""
    sides = (ast.unparse(side) for side in (node.left, *node.comparators))
    return any(re.fullmatch("[A-Z_]{2,}", side) for side in sides) or isinstance(node.ops[0], ast.Is | ast.IsNot)


def _call_changes(call: ast.Call) -> Iterator[tuple[ast.AST, str, str]]:
    name = ast.unparse(call.func)
    if name.endswith(("_smem.index", "full.index", "empty.index")):
        yield call.args[0], INDEX, "({} + 1) % NUM_STAGES"
    elif name == "tile_place":
        yield call.args[0], INDEX, "({}) + 1"
    elif name == "mbarrier.wait":
        yield call.args[1], INDEX, "({}) ^ 1"
    elif name == "mbarrier.init":
        yield from ((keyword.value, BARRIER, "({}) + 1") for keyword in call.keywords if keyword.arg == "count")
    elif name == "mbarrier.expect":
        yield call.args[1], WAIT, "({}) // 2"
    elif name == "warpgroup_mma_wait":
        yield call.args[0], WAIT, "({}) + 1"
    elif name.rsplit(".")[-1] in _PLACES and call.args:
        for places in (argument for argument in call.args if isinstance(argument, ast.List)):
            yield from ((element, INDEX, "({}) + 1") for element in places.elts)
