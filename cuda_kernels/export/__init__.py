"""One rung as one file that needs nothing of the project: for a colleague, or Compiler Explorer.

The file holds the registry's values, the include files in place, the rung, what splits its operands where it multiplies
parts, and `main.cu` beside this one, which checks and times it. A launch is numbers that `gemm_ref.config` computes for
one size, so the file is for that size: for another one, export again.
"""

from __future__ import annotations

import re
from pathlib import Path

from cuda_kernels import source, tensor_map
from gemm_ref.call import Plan
from gemm_ref.call.choose import select_tile
from gemm_ref.compute import MATHS
from gemm_ref.correct import underflow
from gemm_ref.inputs import meta_operands
from gemm_ref.launch import Launch
from gemm_ref.operands import padded_to_lines, row_elements
from gemm_ref.operands.split import Split, launch_of, source_of, split_operands
from gemm_ref.problem import Problem
from gemm_ref.registry import Implementation

_MAIN = Path(__file__).with_name("main.cu")
_INCLUDE = re.compile(r'^#include "(\w+\.cuh)"\n', re.M)


def export(implementation: Implementation, problem: Problem) -> str:
    """The text of a .cu that computes `problem` (its math mode and layout of B are the implementation's).

    Raises ValueError for a size of 0, of which there is nothing to launch, and where a grid would pass a GPU's limits.
    """
    if 0 in (problem.m, problem.n, problem.k):
        raise ValueError(f"{problem} has nothing to multiply: export a size without a 0")
    a, b, _ = meta_operands(problem, implementation.stage.tma is not None)
    plan = select_tile(Plan(implementation, problem), a, b)
    asked, implementation = implementation, plan.implementation
    rung = (source.FOLDER / f"{implementation.stage.id}.cu").read_text(encoding="utf-8")
    parts = (_header(plan, asked), _inlined(rung, implementation, set()), _splitting(problem.math), _values(plan))
    return "\n".join((*parts, _MAIN.read_text(encoding="utf-8")))


def _header(plan: Plan, asked: Implementation) -> str:
    implementation, problem = plan.implementation, plan.problem
    name, stage, math = implementation.stage.id.split("_")[0], implementation.stage, implementation.math
    alone = stage.only_capability is not None
    arch = "-gencode arch=compute_90a,code=sm_90a" if alone else "-arch=native"
    timed = "// Its time has the split of both operands in it.\n" if MATHS[math].parts > 1 else ""
    options = f"--variant {asked.variant} --math {math} --b-layout {implementation.b_layout}"
    return f"""\
// {stage.title}: C[M, N] = A[M, K] @ B[K, N], {problem}, as GEMM Ladder has it in {implementation}.
//
//     nvcc -O3 -std=c++17 {arch} {name}.cu -o {name} && ./{name}
//
{timed}// exits with 0 if C is right, 1 if it is wrong, and 2 where the GPU cannot run it. The launch is for this
// size, and for a GPU of {plan.sms} multiprocessors. Another size:
//
//     python -m cuda_kernels export {name} {options} --size 1024x2048x512 > {name}.cu
"""


def _inlined(text: str, implementation: Implementation, seen: set[str]) -> str:
    """The text with each of our include files in its place, once, and the registry's values in place of theirs."""

    def put(match: re.Match) -> str:
        name = match[1]
        if name in seen:
            return ""
        seen.add(name)
        path = source.INCLUDE / name
        if path == source.REGISTRY_HEADER:
            return source.values(implementation)
        inner = _inlined(path.read_text(encoding="utf-8"), implementation, seen)
        return f"// --- include/{name} ---\n{inner}\n"

    return _INCLUDE.sub(put, text).replace("#pragma once\n", "")


def _splitting(math: str) -> str:
    """The kernel that splits an operand, in a namespace, for the rung has a `launch` too; it has the includes."""
    if MATHS[math].parts == 1:
        return ""
    text = re.sub(r"^#(include|line) .*\n", "", source_of(math), flags=re.M).replace('extern "C" ', "")
    return f"// --- gemm_ref/operands/split.cu ---\nnamespace splitting {{\n{text}}}  // namespace splitting\n"


def _values(plan: Plan) -> str:
    """What `main.cu` is told: types and sizes, how the matrices are stored, the launch, and what an error may be."""
    implementation, problem = plan.implementation, plan.problem
    math = MATHS[problem.math]
    a, b, c = meta_operands(problem, implementation.stage.tma is not None)
    b = padded_to_lines(b) if implementation.config.ALIGN_B else b
    stored_a, stored_b = a, b if problem.b_layout == "kn" else b.t()
    splits: tuple[Split, ...] = ()
    if math.parts > 1:
        a, b = splits = split_operands(a, b, problem.b_layout, problem.math)
        stored_a, stored_b = a.matrix, b.matrix
    boxed: tuple[tensor_map.Boxed, ...] = ()
    rows, columns = problem.m, problem.n
    if implementation.stage.tma:
        boxed, rows, columns = tensor_map.operands(plan, a, b, c)
    names = "BAC" if implementation.transpose_c else "ABC"
    views = [(name, x, view) for name, x in zip(names, boxed, strict=False) for view in tensor_map.View.all_of(x)]
    maps = ", ".join(_map(*each) for each in views) or "{}"
    launch = plan.launch
    split_launches = [launch_of(x.matrix.shape, x.by_rows, plan.sms) for x in splits]
    return f"""\
// --- The launch and the problem, computed for {problem} ---
namespace exported {{
using Operand = {math.element.cpp};
using Output = {math.out_element.cpp};
constexpr const char* NAME = "{implementation} at {problem}";
constexpr int M = {problem.m}, N = {problem.n}, K = {problem.k};
constexpr int ROWS = {rows}, COLUMNS = {columns};  // of what the kernel computes: C, or C^T
constexpr bool B_BY_ROWS = {str(problem.b_layout == "kn").lower()};  // B is stored as (K, N), else as (N, K)
constexpr size_t A_PITCH = {row_elements(stored_a)}, B_PITCH = {row_elements(stored_b)}, C_PITCH = {row_elements(c)};
constexpr LaunchShape LAUNCH = {_launch_shape(launch)};
constexpr LaunchShape THEN = {_launch_shape(launch.then) if launch.then else "{}"};
constexpr size_t PARTIALS = {launch.partials};  // floats: room for sums of a part of K
constexpr size_t FLAGS = {launch.flags};  // ints that are 0 before and after

struct Map {{  // of what the TMA unit copies at once, as cuTensorMapEncodeTiled takes it
    char matrix;
    int element_type;  // CUtensorMapDataType
    unsigned long long rows, columns, row_bytes;
    unsigned box_rows, box_columns, swizzle;
}};
constexpr Map MAPS[] = {{{maps}}};

// Where the kernel multiplies parts of the operands: how many, and what splits A, and B, first.
using Part = {math.part_element.cpp};
constexpr int PARTS = {math.parts};
using Split = cudaError_t (*)(const Operand*, Part*, int*, int, int, int, int, int, int, cudaStream_t);
constexpr Split SPLIT = {"splitting::launch" if splits else "nullptr"};
constexpr int SPLIT_PITCHES[] = {{{", ".join(str(x.step) for x in splits) or 0}}};
constexpr int SPLIT_BLOCKS[] = {{{", ".join(str(x.grid[0]) for x in split_launches) or 0}}};
constexpr int SPLIT_CLUSTERS[] = {{{", ".join(str(x.cluster[0]) for x in split_launches) or 0}}};

// An element of C may be off by (2 * OPERAND_EPS + K * SUM_EPS) * (|A| @ |B|) + RESULT_EPS * |C| + TINY.
constexpr double OPERAND_EPS = {math.operand_eps!r}, SUM_EPS = {math.sum_eps!r};
constexpr double RESULT_EPS = {math.result_eps!r}, TINY = {underflow(problem.k, math.out_dtype)!r};
}}  // namespace exported
"""


def _map(matrix: str, boxed: tensor_map.Boxed, of: tensor_map.View) -> str:
    numbers = (boxed.element_type, of.rows, of.columns, of.row_bytes, of.box.rows, of.box.columns, boxed.swizzle)
    return f"{{'{matrix}', {', '.join(map(str, numbers))}}}"


def _launch_shape(launch: Launch) -> str:
    grid, block = (", ".join(map(str, axes)) for axes in (launch.grid, launch.block))
    shared = f", .shared_tiles = {launch.shared_tiles}" if launch.shared_tiles else ""
    cluster = f", .cluster = {launch.cluster[0]}" if launch.cluster[0] > 1 else ""
    return f"{{.grid = {{{grid}}}, .block = {{{block}}}, .shared_bytes = {launch.shared_bytes}{shared}{cluster}}}"
