"""What a mutant is, and the rules that make them from the text of a kernel: one small mistake each.

    barrier  a barrier or an arrival at one removed, or one arrival fewer expected
    wait     a wait for asynchronous work removed or for one group less, or the end of its group; fewer bytes expected
    fence    an order of accesses removed: of the asynchronous units' and a thread's, of a new mbarrier's
    bound    a test or clamp against an edge, or of which threads act, made to let everything through
    index    an index of a tile, of a slice or of an element in it, one too large

CUDA's rules read the source as text, Triton's and Gluon's as a syntax tree; those two leave barriers to the compiler,
so barriers are removed from its PTX. Left alone are loops' own conditions (they decide whether the kernel ends),
registers (an index past an array in registers means nothing to a compiler) and the sizes of things.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

BARRIER, WAIT, FENCE, BOUND, INDEX = KINDS = ("barrier", "wait", "fence", "bound", "index")


@dataclass(frozen=True)
class Mutant:
    """`file` with the characters start..end replaced."""

    file: str
    kind: str
    source: str
    start: int
    end: int
    put: str

    @property
    def text(self) -> str:
        return self.source[: self.start] + self.put + self.source[self.end :]

    @property
    def line(self) -> int:
        return self.source.count("\n", 0, self.start) + 1

    @property
    def change(self) -> str:
        """The line before and after; where several are alike, their order tells them apart."""
        first = self.source.rfind("\n", 0, self.start) + 1
        last = self.source.find("\n", self.end)
        before = self.source[first:last]
        after = self.source[first : self.start] + self.put + self.source[self.end : last]
        twins = self.source[:first].splitlines().count(before)
        number = f" (number {twins + 1})" if twins else ""
        comment = "#" if self.file.endswith(".py") else "//"
        code, changed = (re.sub(rf"\s+{comment} .*", "", line).strip() for line in (before, after))
        return f"{code}  =>  {changed}{number}"

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.kind}: {self.change}"


# --- CUDA ----------------------------------------------------------------------------------------------------

_SIZES = "M|N|K|k_end|elements"
_INDICES = "row|col|k_a|k_b|i|m|n|k|thread|warp|lane|thread_m|thread_n|lane_m|lane_n|warp_m|warp_n|c_row|c_col"
_INDICES += "|k_next|k_begin|k_end|slices|slices_each|stage|free_stage|buffer"
_INDICES += r"|a_m|a_k|b_n|a_chunk|b_chunk|a_row|b_row|b_col|a_first\[step\]|b_first\[read\]|a_from|b_from|chunk|read"
_INDICES += (
    "|tiles_m|tiles_n|rank(?= = cluster)|warpgroup|steps|round|before|parity|box|column|left|right|group|in_group"
)
_POINTERS = "to|from|panel|upper|lower|my_left"
_ARRAYS = "A|B|C|partials|a_smem|b_smem|c_smem|full|empty|slices|pieces"
_CALLS = r"load_slice|store_slice|copy_slice|read_fragments(?=\([^,]*(,))"

_REPLACED = (  # (kind, pattern, what its match becomes)
    (BARRIER, r"__syncthreads\(\);", ";"),
    (WAIT, r"\bwait_for_copies<[^>]*>\(\);", ";"),
    (WAIT, r"\bcommit_copies\(\);", ";"),
    (BOUND, r"\b(?:N - col - n|N - c_col|K - k_start - k)\b", "VECTOR"),
    (BOUND, r"min\((row \+ m), M - 1\)", r"(\1)"),
    (BOUND, r"min\((BLOCK_K), K - k_start\)", r"\1"),
    (BOUND, r"min\(K - k_begin, (slices_each \* BLOCK_K)\)", r"\1"),
    (BOUND, r"\bhas_vector_rows\([ABC], [NK]\)", "true"),
    (BOUND, r"\binside > \d|\binside(?= \?)|\bi < inside\b", "true"),
    (BOUND, r"reinterpret_cast<size_t>\(matrix\) % sizeof\(float4\) == 0|\bcolumns % VECTOR == 0", "true"),
    (BOUND, r"\bstage \+ 1 < NUM_STAGES\b", "true"),
    (INDEX, r"\bblockIdx\.[xyz]", r"(\g<0> + 1)"),
)
_TENSOR_CORES = (  # the same for chunks of 16 bytes, mbarriers, TMA and wgmma
    (BARRIER, r"__syncwarp\(\);|\bcluster_sync_relaxed\(\);", ";"),
    (BARRIER, r"\b(?:bar_sync|mbarrier_arrive(?:_cluster|_expect_tx)?|free_slice)\([^;{]*\);", ";"),
    (BARRIER, r"(mbarrier_init\(\w+\[\w+\], [^()]+)\)", r"\1 - 1)"),
    (BARRIER, r"\b1 \+ warpgroup\b", "1"),
    (WAIT, r"\bmbarrier_wait(?:_cluster)?\([^;{]*\);", ";"),
    (WAIT, r"\b(?:wgmma_wait_group|tma_store_wait_read)<[^>]*>\(\);", ";"),
    (WAIT, r"\b(wgmma_wait_group|tma_store_wait_read)<([^>]*)>\(\);", r"\1<\2 + 1>();"),
    (WAIT, r"\b(?:wgmma_commit_group|tma_store_commit)\(\);", ";"),
    (WAIT, r"(expect_tx\(\w+\[\w+\], sizeof\(Slice\))", r"\1 / 2"),
    (FENCE, r"\b(?:fence_proxy_async|fence_mbarrier_init|wgmma_fence)\(\);|\bwgmma_fence_accumulators\(\w+\);", ";"),
    (BOUND, r"\b(?:N - col - b_\w+|K - k_start - a_\w+)(?: \* CHUNK)?", "CHUNK"),
    (BOUND, r"\bhas_chunk_rows\([ABC], [NK]\)", "true"),
    (BOUND, r"reinterpret_cast<size_t>\(matrix\) % 16 == 0|\bcolumns % \(16 / sizeof\(T\)\) == 0", "true"),
    (BOUND, r"min\((NUM_STAGES|GROUP_M), [^()]*\)", r"\1"),
    (BOUND, r"\bstep - 1 \+ NUM_STAGES < steps\b|\bstep > 0\b|\baccumulate \|\| i > 0", "true"),
    (BOUND, r"\bwarp < SIGNALLERS\b|\blane < CLUSTER_M\b|\bthreadIdx\.x(?: % WARPGROUP)? == 0\b", "true"),
    (BOUND, r"\bthreadIdx\.x == CONSUMERS \* WARPGROUP\b", "true"),
    (INDEX, r"(mbarrier_wait(?:_cluster)?\(\w+\[\w+\], )([^;]*)\);", r"\1(\2) ^ 1);"),
    (INDEX, r"\+\+stage == NUM_STAGES", r"\g<0> + 1"),
    (INDEX, r"\bparity \^= 1", "parity ^= 0"),
    (INDEX, r"\b(?:a_from|b_from) \+= [^;]*", r"\g<0> + 1"),
    (INDEX, r"\bstage \* ([AB]_(?:BYTES|SLICE))", r"(stage + 1) * \1"),
    (INDEX, r"\bin_group [%/] rows", r"\g<0> + 1"),
    (INDEX, r"\bwarpgroup \* (PIECES|WGMMA_M)", r"(warpgroup + 1) * \1"),
    (INDEX, r"\breturn ([^;{}]*\b(?:row|threadIdx)\b[^;{}]*)", r"return (\1) + 1"),
    (INDEX, r"\bstep \* DEPTH", "(step + 1) * DEPTH"),
    (INDEX, r"(load_operand<[^>]*>\([^,]*, \w+, )(row|col)", r"\1\2 + 1"),
    (INDEX, r"(tma_store\(C, [^,;]*, [^,;]*)", r"\1 + 1"),
    (INDEX, r"(tma_store\(C, [^;]*)\);", r"\1 + 1);"),
    (INDEX, r"\b(upper|lower|left|right) \+ i \*", r"\1 + (i + 1) *"),
    (INDEX, r"(multiply_slice\(acc, slices\[stage\], warpgroup)", r"\1 + 1"),
    (INDEX, r"(mbarrier_arrive_cluster\(\w+\[\w+\], )lane", r"\g<1>0"),
    (INDEX, r"\(1 << SHARERS\) - 1", "1"),
)


def cuda_mutants(file: str, source: str) -> list[Mutant]:
    """Every mutant of a .cu or .cuh file, in the order of its text."""
    code = re.sub(r"//[^\n]*|#[^\n]*", lambda m: " " * len(m[0]), source)  # comments and directives stay as they are
    end = code.find('extern "C"')  # the launcher runs on the host
    code = code if end < 0 else code[:end]
    found = [Mutant(file, kind, source, start, stop, put) for kind, start, stop, put in _cuda_changes(code)]
    return sorted(found, key=lambda mutant: (mutant.start, mutant.end))


def _cuda_changes(code: str) -> Iterator[tuple[str, int, int, str]]:
    for kind, pattern, put in _REPLACED + _TENSOR_CORES:
        for match in re.finditer(pattern, code):
            yield kind, match.start(), match.end(), match.expand(put)
    for match in re.finditer(rf" (<|>=) (?:{_SIZES})\b(?! -)", code):
        if not _in_loop_head(code, match.start()):
            start = _back_to(code, match.start())
            yield BOUND, start, match.end(), "true" if match[1] == "<" else "false"
    for match in re.finditer(rf"\b(?:{_INDICES}) = |[*] (?:const )?(?:{_POINTERS}) = ", code):
        if not _in_loop_head(code, match.start()):
            stop = _on_to(code, match.end(), ",;")
            yield INDEX, match.end(), stop, f"({code[match.end() : stop]}) + 1"
    for match in re.finditer(rf"\b(?:{_ARRAYS})(?=\[)", code):
        if "__shared__" not in code[code.rfind("\n", 0, match.start()) : match.start()]:
            stop = match.end()
            while code[stop] == "[":
                start, stop = stop + 1, _on_to(code, stop + 1, "]") + 1
                yield INDEX, start, stop - 1, f"{code[start : stop - 1]} + 1"
    for match in re.finditer(rf"\b(?:{_CALLS})\(", code):
        stop = match.end() - 1 if match[1] is None else match.start(1)  # the first argument may name registers
        while code[stop] != ")":
            start, stop = stop + 1, _on_to(code, stop + 1, ",)")
            if not re.fullmatch(r"\s*(load|copy)(_\w+)?", code[start:stop]):  # the function that does it
                yield INDEX, start, stop, f"{code[start:stop]} + 1"


def _in_loop_head(code: str, place: int) -> bool:
    """Whether a place is between the parentheses of a `for` of its line, which are its first."""
    line = code[code.rfind("\n", 0, place) + 1 : place]
    return "for (" in line and line.count("(") > line.count(")")


def _on_to(code: str, place: int, ends: str) -> int:
    """The next of these characters that is in no inner bracket."""
    depth = 0
    while depth or code[place] not in ends:
        depth += (code[place] in "([{") - (code[place] in ")]}")
        place += 1
    return place


def _back_to(code: str, place: int) -> int:
    """Where the comparison that has its operator here begins."""
    depth = 0
    while depth or code[place - 1] not in "(,=?:&|;":
        depth += (code[place - 1] in ")]") - (code[place - 1] in "([")
        place -= 1
    return place + len(code[place:]) - len(code[place:].lstrip())


# --- PTX -----------------------------------------------------------------------------------------------------

_COMPILED = (
    (BARRIER, r"\bbar(rier)?\.(cta\.)?(sync|warp)[^;]*;", ";"),
    (WAIT, r"\b(cp\.async\.(bulk\.)?|wgmma\.)wait_[^;]*;", ";"),
    (WAIT, r"\bmbarrier\.try_wait\S* (?P<done>\w+),[^;]*;", "setp.eq.u32 {done}, 0, 0;"),  # at once
    (FENCE, r"\bfence\.(proxy\.async|mbarrier_init)[^;]*;", ";"),
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
