"""The exercises: each is a folder of data; its start file and its solution are derived from the rungs.

`exercises/NN_name/` holds the text and `exercise.toml`. A start file is a rung's own source in the form in which a
learner edits it, `learner_form`, with a few edits that take the idea out or put a mistake in.
"""

from __future__ import annotations

import difflib
import functools
import random
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import cuda_kernels.source
from experiments.check.cuda.launch import without_ones
from experiments.records.request import UsageError
from gemm_ref import DIALECTS, MATHS, Problem, get_stage
from gemm_ref.launch import cdiv
from gemm_ref.registry import Implementation
from gemm_ref.rung import DEFAULT_VARIANT

FOLDER = Path(__file__).resolve().parent / "exercises"
SUFFIXES = {"cuda": ".cu", "triton": ".py"}
AXES = ("m", "n", "k")
_PROBLEMS = (Problem(1000, 3000, 500), Problem(333, 77, 129), Problem(4096, 128, 64))  # at which grids are compared
# How many blocks there are along an axis of the grid, in C++ and in Python.
_BLOCKS = {
    "cuda": ("(N + BLOCK_N - 1) / BLOCK_N", "(M + BLOCK_M - 1) / BLOCK_M"),
    "triton": ("triton.cdiv(N, {BLOCK_N})", "triton.cdiv(M, {BLOCK_M})"),
}
_LAUNCHER = re.compile(
    r'(?:\nnamespace config = [^\n]*)?\nextern "C" cudaError_t launch\((.*?),\s+const LaunchShape.*', re.S
)
KERNEL = "gemm_kernel"  # the name of the kernel in all files, so that a solution's diff has its idea alone
_MAX_STATIC_BYTES = 48 << 10  # of shared memory, for which a kernel need not ask


@dataclass(frozen=True)
class Hint:
    text: str
    line: str  # text of the one line of the start file that the hint is about; empty where it is about none


@dataclass(frozen=True)
class Exercise:
    """One exercise in one dialect."""

    id: str  # 02_coalescing
    dialect: str
    title: str
    text: str
    math: str
    limits: Mapping[str, float]  # the most that is wanted of each of `grading.MEASURES`
    uses: tuple[str, ...]  # instructions that must be executed, as their names in PTX begin
    speed: float  # the least predicted share of cuBLAS; 0 where none is wanted
    sizes: Sequence[Mapping[str, Sequence[int]]]  # ranges of M, N and K as [lowest, highest, multiple of]
    hints: tuple[Hint, ...]
    fails: tuple[str, ...]  # the goals that the start file does not reach
    start: str
    solution: str
    rung: str  # that the solution is, and behind a colon its variant, if it is not the default one

    @property
    def number(self) -> int:
        return int(self.id.partition("_")[0])

    @property
    def file_name(self) -> str:
        return self.id + SUFFIXES[self.dialect]

    @property
    def solution_diff(self) -> str:
        """The solution as a unified diff from the start file."""
        texts = (self.start.splitlines(), self.solution.splitlines())
        return "\n".join(difflib.unified_diff(*texts, self.file_name, "solution", lineterm="", n=2))

    def line_with(self, text: str) -> str:
        """Returns the line of the start file that a hint is about."""
        return next(line for line in self.start.split("\n") if text in line).strip()

    def draw_problems(self, generator: random.Random) -> tuple[Problem, ...]:
        """Returns a problem for each entry of `sizes`; each has three sizes that differ."""
        return tuple(_draw(ranges, generator) for ranges in self.sizes)


def _draw(ranges: Mapping[str, Sequence[int]], generator: random.Random) -> Problem:
    while True:
        m, n, k = (generator.randrange(low, high + 1, step) for low, high, step in map(ranges.__getitem__, AXES))
        if len({m, n, k}) == len(AXES):
            return Problem(m, n, k)


def ids() -> list[str]:
    """Returns the exercises in the order of the course."""
    return sorted(path.parent.name for path in FOLDER.glob("*/exercise.toml"))


def dialects_of(exercise_id: str) -> list[str]:
    return [dialect for dialect in SUFFIXES if dialect in _about(exercise_id)]


def command_of(exercise_id: str, dialect: str) -> str:
    """Returns the command that selects an exercise, such as `learn 12 --dialect triton`."""
    is_default = dialect == dialects_of(exercise_id)[0]
    return f"learn {int(exercise_id[:2])}" + ("" if is_default else f" --dialect {dialect}")


def find(name: str | int, dialect: str = "") -> Exercise:
    """Returns the exercise of a number or a name, such as 2 or `02_coalescing`. Raises UsageError for others.

    dialect: by default CUDA where the exercise has it.
    """
    text = str(name)
    found = next((each for each in ids() if text == each or text.isdigit() and int(text) == int(each[:2])), None)
    if found is None:
        close = difflib.get_close_matches(text, ids(), n=1, cutoff=0.3)
        meant = f"did you mean {close[0]}?" if close else f"they are 1 to {len(ids())}"
        raise UsageError(f"there is no exercise {text}: {meant}")
    dialect = dialect or dialects_of(found)[0]
    if dialect not in dialects_of(found):
        raise UsageError(f"{found} has no {dialect} form: pass --dialect {' or '.join(dialects_of(found))}")
    return _load(found, dialect)


@functools.cache
def _about(exercise_id: str) -> dict:
    return tomllib.loads((FOLDER / exercise_id / "exercise.toml").read_text(encoding="utf-8"))


@functools.cache
def _load(exercise_id: str, dialect: str) -> Exercise:
    about, text = _about(exercise_id), (FOLDER / exercise_id / "text.md").read_text(encoding="utf-8")
    own = about[dialect]
    goals = about["goals"] | own.get("goals", {})
    math = own.get("math", "fp32")
    launch = own.get("launch", "")
    header = f"Exercise {exercise_id}: `python -m experiments {command_of(exercise_id, dialect)}` grades this file."
    solution = learner_form(own["solution"], dialect, math, header, launch)
    start = learner_form(own["start"], dialect, math, header, launch) if "start" in own else solution
    for edit in own.get("edits", ()):
        if start.count(edit["old"]) != 1:
            raise ValueError(f"{exercise_id}, {dialect}: {edit['old']!r} occurs {start.count(edit['old'])} times")
        start = start.replace(edit["old"], edit["new"])
    return Exercise(
        exercise_id,
        dialect,
        text.partition("\n")[0].removeprefix("# "),
        text.partition("\n")[2].strip(),
        math,
        {name: value for name, value in goals.items() if name not in ("sizes", "uses", "speed")},
        tuple(goals.get("uses", ())),
        goals.get("speed", 0.0),
        goals["sizes"],
        tuple(Hint(hint["text"], hint.get(dialect, "")) for hint in own.get("hints", about.get("hints", ()))),
        tuple(own["fails"]),
        start,
        solution,
        own["solution"],
    )


# --- the form of a rung that a learner edits --------------------------------------------------------------------------


def learner_form(name: str, dialect: str, math: str, header: str, launch: str = "") -> str:
    """Returns a rung's source with a launch of its own in place of the one that the registry computes.

    name: `s05_bank_conflict`, or with a variant `s05_bank_conflict:padded`. header: the first line. launch: the host
    function, where the one that is derived does not fit.
    """
    stage, _, variant = name.partition(":")
    rung = get_stage(stage)
    chosen = rung.find_variant(variant or DEFAULT_VARIANT, dialect)
    implementation = Implementation(rung, chosen, dialect, math).first_tile
    return (_cuda_form if dialect == "cuda" else _triton_form)(implementation, header, launch)


def _source(stage: str, dialect: str) -> str:
    return (cuda_kernels.source.FOLDER.parent / DIALECTS[dialect].file_of(stage)).read_text(encoding="utf-8")


def _cuda_form(implementation: Implementation, header: str, launch: str) -> str:
    text = _source(implementation.stage.id, "cuda")
    text = f"// {header}\n" + text[text.index("#include") :]
    launcher = _LAUNCHER.search(text)
    assert launcher, f"{implementation.stage.id}.cu has no launcher"
    text = text[: launcher.start()] + "\n" + (launch.strip("\n") or _cuda_launch(implementation, launcher)) + "\n"
    text = re.sub(r"\bElement\b", MATHS[implementation.math].element.cpp, text)  # the learner's file names its type
    return re.sub(rf"(?<!registry::)\b{implementation.stage.id}\b", KERNEL, text)


def _cuda_launch(implementation: Implementation, launcher: re.Match[str]) -> str:
    found = re.search(r"const auto kernel =\s*(.*?);", launcher[0], re.S)
    kernel = re.sub(r"\s+", " ", found[1]) if found else implementation.stage.id
    values = re.findall(r"inline (constexpr (\w+) (\w+) = \S+);", cuda_kernels.source.values(implementation))
    grid = _grid(implementation)
    used = [line for line, _, name in values if re.search(rf"\b{name}\b", kernel + " ".join(grid))]
    shape = implementation.config.launch(*_sides(_PROBLEMS[0]), 1)
    block = ", ".join(without_ones([str(size) for size in shape.block]))
    dynamic = f", {shape.shared_bytes}" if shape.shared_bytes else ""
    raised = (
        f"    cudaFuncSetAttribute({kernel}, cudaFuncAttributeMaxDynamicSharedMemorySize, {shape.shared_bytes});\n"
        if shape.shared_bytes > _MAX_STATIC_BYTES
        else ""
    )
    return (
        "// The launch, on the host.\n"
        + "".join(f"{line};\n" for line in used)
        + f"void launch({' '.join(launcher[1].split())}) {{\n"
        + f"    const dim3 grid({', '.join(grid)}), block({block});\n"
        + raised
        + f"    {kernel}<<<grid, block{dynamic}>>>(A, B, C, M, N, K);\n}}"
    )


def _triton_form(implementation: Implementation, header: str, launch: str) -> str:
    text = _source(implementation.stage.id, "triton")
    while other := re.search(r"^from triton_kernels\.(s\d\d_\w+) import", text, re.M):  # the kernel is another rung's
        text = _source(other[1], "triton")
    body = re.split(r"\n(?:prepare = |def prepare\()", text.split('"""', 2)[2])[0].rstrip()
    body = re.sub(r"\n+from (?:gemm_ref\.\S+|triton_kernels) import [^\n]+", "", body)
    body = re.sub(r"\n(?:import torch\n)?import triton\n", "\nimport torch\nimport triton\n", body, count=1)
    return f'"""{header}"""{body}\n\n\n{launch.strip(chr(10)) or _triton_launch(implementation, text)}\n'


def _triton_launch(implementation: Implementation, text: str) -> str:
    values = implementation.config.constants()
    constants = {name: values[name] for name in re.findall(r"(\w+): tl\.constexpr", text) if name in values}
    grid = [blocks.format(**values) for blocks in _grid(implementation)]
    shape = implementation.config.launch(*_sides(_PROBLEMS[0]), 1)
    given = ", ".join(
        f"{name}={value}" for name, value in (constants | {"num_warps": shape.num_warps, "num_stages": 1}).items()
    )
    return f'''def gemm(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> None:
    """Computes C[M, N] = A[M, K] @ B[K, N] into c."""
    (M, K), N = a.shape, b.shape[1]
    grid = ({", ".join(grid)})
    _gemm_kernel[grid](a, b, c, M, N, K, {given})'''


def _grid(implementation: Implementation) -> list[str]:
    """Returns the blocks along x and y as expressions of M and N. Raises ValueError where they are others."""
    config = implementation.config
    names = _BLOCKS[implementation.dialect]
    counts = {tuple(cdiv(p.n, config.BLOCK_N) for p in _PROBLEMS): names[0]}
    counts[tuple(cdiv(p.m, config.BLOCK_M) for p in _PROBLEMS)] = names[1]
    grids = [config.launch(*_sides(problem), 1).grid for problem in _PROBLEMS]
    try:
        return [counts[tuple(grid[axis] for grid in grids)] for axis in range(2)]
    except KeyError as error:
        raise ValueError(f"{implementation}: no expression has its grid; write `launch` in exercise.toml") from error


def _sides(problem: Problem) -> tuple[int, int, int]:
    return problem.m, problem.n, problem.k
