"""What a mutant is, and the rules that make them from the text of a CUDA kernel: one small mistake each.

    barrier  a barrier or an arrival at one removed, or one arrival fewer expected
    wait     a wait for asynchronous work or another block removed or for one group less, or the end of its group; fewer
             bytes expected; a flag that is not set back
    fence    an order of accesses removed: of the asynchronous units' and a thread's, of a new mbarrier's, of blocks
    bound    a test or clamp against an edge, or of which threads act, made to let everything through
    index    an index of a tile, of a slice or of an element in it, one too large

Loops' own conditions are left alone (they decide whether the kernel ends), and so are registers (an index past an array
in registers means nothing to a compiler) and the sizes of things. The demo plants two of these mistakes; the tests
plant all of them, in Triton and Gluon too.
"""

from __future__ import annotations

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
        twins = [line.strip() for line in self.source[:first].splitlines()].count(before.strip())
        number = f" (number {twins + 1})" if twins else ""
        comment = "#" if self.file.endswith(".py") else "//"
        code, changed = (re.sub(rf"\s+{comment} .*", "", line).strip() for line in (before, after))
        return f"{code}  =>  {changed}{number}"

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.kind}: {self.change}"


_SIZES = "M|N|K|k_end|elements"
_INDICES = "row|col|k_a|k_b|i|m|n|k|thread|warp|lane|thread_m|thread_n|lane_m|lane_n|warp_m|warp_n|c_row|c_col"
_INDICES += "|k_next|k_begin|k_end|slices|slices_each|stage|free_stage|buffer"
_INDICES += r"|a_m|a_k|b_n|a_chunk|b_chunk|a_row|b_row|b_col|a_first\[step\]|b_first\[read\]|a_from|b_from|chunk|read"
_INDICES += (
    "|tiles_m|tiles_n|rank(?= = cluster)|warpgroup|steps|round|before|parity|box|column|left|right|group|in_group"
)
_POINTERS = "to|from|panel|upper|lower|my_left"
_ARRAYS = "A|B|C|partials|sums|flags|a_smem|b_smem|c_smem|full|empty|slices|pieces"
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
    (INDEX, r"\bconst int (?:tile|first|count) = is_unshared \? [^;]*", r"\g<0> + 1"),
    (FENCE, r"\b__threadfence\(\);", ";"),
    (FENCE, r"\b(st|ld)\.(?:release|acquire)\.gpu\b", r"\1.relaxed.gpu"),
    (WAIT, r"\bwait_for_flag\([^;]*\);", ";"),
    (WAIT, r"\*flag = 0;", ";"),
)
_TENSOR_CORES = (  # the same for chunks of 16 bytes, mbarriers, TMA and wgmma
    (BARRIER, r"__syncwarp\(\);|\bcluster_(?:sync_relaxed|arrive_relaxed|wait)\(\);", ";"),
    (
        BARRIER,
        r"\b(?:bar_sync|bar_arrive|mbarrier_arrive(?:_cluster_release|_cluster|_expect_tx)?|free_slice)\([^;{]*\);",
        ";",
    ),
    (BARRIER, r"(mbarrier_init\(\w+\[\w+\], [^()]+)\)", r"\1 - 1)"),
    (BARRIER, r"\b1 \+ warpgroup\b", "1"),
    (WAIT, r"\bmbarrier_wait(?:_cluster_acquire|_cluster)?\([^;{]*\);", ";"),
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
    (BOUND, r"\bwarp(?: % 4)? < ARRIVING_WARPS\b|\blane < CLUSTER_M\b|\bthreadIdx\.x(?: % WARPGROUP)? == 0\b", "true"),
    (BOUND, r"\bthreadIdx\.x == MULTIPLIERS\b|(?<!bool )\belect_one\(\)", "true"),
    (INDEX, r"(mbarrier_wait(?:_cluster)?\(\w+\[\w+\], )([^;]*)\);", r"\1(\2) ^ 1);"),
    (INDEX, r"\+\+stage == NUM_STAGES", r"\g<0> + 1"),
    (INDEX, r"\bparity \^= 1", "parity ^= 0"),
    (INDEX, r"\b(?:a_from|b_from) \+= [^;]*", r"\g<0> + 1"),
    (INDEX, r"\bstage \* ([AB]_(?:BYTES|SLICE))", r"(stage + 1) * \1"),
    (INDEX, r"\bin_group [%/] rows", r"\g<0> + 1"),
    (INDEX, r"\bwarpgroup \* (PIECES|WGMMA_M)", r"(warpgroup + 1) * \1"),
    (INDEX, r"\breturn (?![A-Z][a-z])([^;{}]*\b(?:row|threadIdx)\b[^;{}]*)", r"return (\1) + 1"),  # a number
    (INDEX, r"\bstep \* DEPTH", "(step + 1) * DEPTH"),
    (INDEX, r"(load_operand<[^>]*>\([^,]*, \w+, )(row|col)", r"\1\2 + 1"),
    (INDEX, r"(tma_store\(C, [^,;]*, [^,;]*)", r"\1 + 1"),
    (INDEX, r"(tma_store\(C, [^;]*)\);", r"\1 + 1);"),
    (INDEX, r"\b(upper|lower|left|right) \+ i \*", r"\1 + (i + 1) *"),
    (INDEX, r"(multiply_stage\([^;]*\bstage)\b", r"\1 + 1"),
    (INDEX, r"(Descriptors descriptors\([^;]*\bwarpgroup)\b", r"\1 + 1"),
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
    while depth or code[place - 1] not in "(,=?:&|;{}":
        depth += (code[place - 1] in ")]") - (code[place - 1] in "([")
        place -= 1
    begun = code[place:].lstrip().removeprefix("return ")
    return len(code) - len(begun)
