"""What does each step cost to write, to compile and to hold: code, compile time, registers, shared memory, bytes?

Expectation: CUDA's own code grows with nearly every rung and Triton's hardly at all, since its compiler does what the
hand does in CUDA; Gluon's is between them. On tensor cores much of CUDA's code is in files that rungs share. A kernel
compiles in about a second; longer where loops are unrolled into much machine code.

Method: lines and tokens are counted in the source files (`experiments.records.source_lines` says how, and what is a
kernel's own); they are of the rung, and the same for all of its variants. Then each variant is compiled from source to
cubin, with nothing read that was compiled before, in the rung's first math mode. The matrices are aligned, 4096 x 4096
(or of the --size asked for), which only Triton's dialects depend on. CUDA: nvcc to PTX, and PTX to machine code. Triton
and Gluon: Triton to PTX, and the ptxas of its wheel. A time is the CPU seconds of the compiler and all processes that
it starts: a kernel that compiles alone takes about that long, and several can be measured at a time. Each process
compiles a small kernel first, so that loading the compiler is not counted; `import triton` is not counted either. A
time is the median of 5 compiles, and of one with the default preset. What was compiled stays in the build cache and in
Triton's for the other experiments, which is why this one runs first. Times are of the machine in the row's environment.
Registers, shared memory as a launch asks for it, and the bytes of machine code are of the kernel with the most of it,
where a rung has two. `host` measures what a call costs the host.

Run: `python -m experiments run cost [--stage S] [--backend cuda|triton|gluon] [--size MxNxK] [--preset full]`
"""

from __future__ import annotations

import functools
import resource
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from statistics import median

import gemm_ref
from experiments.bench import parallel
from experiments.bench.machine_code import MachineCode, compile_to_cubin
from experiments.bench.verify import describe
from experiments.progress import Bars
from experiments.records import workloads
from experiments.records.compiled import MAIN_ARCHITECTURE
from experiments.records.contenders import Contender, contenders
from experiments.records.request import DEFAULT, FULL, Request
from experiments.records.rows import ERROR
from experiments.records.source_lines import lines_of
from experiments.studies.cost.row import CostRow
from gemm_ref.sass import tools
from gemm_ref.sass.occupancy import ARCHITECTURES, requested_bytes
from gemm_ref.sass.sections import code_bytes

NAME = "cost"
COMPILES = {DEFAULT: 1, FULL: 5}
_SM = ARCHITECTURES[MAIN_ARCHITECTURE]


def unsuited(contender: Contender, request: Request) -> str:
    """Why the contender is no part of this experiment; empty if it is."""
    if contender.is_baseline:
        return "baselines are not part of it: nobody here wrote them"
    math = request.math or gemm_ref.get_stage(contender.stage).maths[0]
    return "" if contender.math == math else f"{contender.math} takes part where --math asks for it"


def measure(request: Request, chosen: Sequence[Contender], bars: Bars) -> Iterator[CostRow]:
    """A row for each rung, variant and dialect, and each size that was asked for."""
    problems = request.problems or (gemm_ref.Problem(*workloads.cube(workloads.ALIGNED)),)
    parts = [(problem, COMPILES[request.preset]) for problem in problems]
    bars.begin("compiling anew", len(chosen) * len(parts))
    for rows in parallel.measure_parts([(contender, parts) for contender in chosen], _work, bars, request.row_cache):
        yield from rows


def _work(contender: Contender, parts: Sequence[tuple[gemm_ref.Problem, int]]) -> Iterator[list[CostRow]]:
    return ([_row(contender, *part)] for part in parts)


def _row(contender: Contender, problem: gemm_ref.Problem, compiles: int) -> CostRow:
    row = functools.partial(CostRow.about, NAME, contender, problem, arch=MAIN_ARCHITECTURE)
    written = asdict(lines_of(contender.stage, contender.dialect))
    try:
        _load_compiler(contender.backend)
        seconds = []
        for _ in range(compiles):
            before = _cpu_seconds()
            code = compile_to_cubin(contender, problem, _SM.capability, anew=True)
            seconds.append(_cpu_seconds() - before)
        low, high = min(seconds), max(seconds)
        times = {"compile_s": median(seconds), "compile_s_low": low, "compile_s_high": high, "compiles": compiles}
        return row(**written, **times, **examine(code))
    except Exception as error:  # a rung that does not compile is a row, and the others go on
        return row(**written, status=ERROR, detail=describe(error))


@functools.cache
def _load_compiler(backend: str) -> None:
    """Compile the backend's first kernel: what that takes more than the next is no part of any kernel's time."""
    first = next(each for each in contenders() if each.backend == backend)
    compile_to_cubin(first, gemm_ref.Problem(16, 16, 16), _SM.capability, anew=True)


def _cpu_seconds() -> float:
    """Of this process, and of those that it started and that have ended, so far."""
    usages = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def examine(code: MachineCode) -> dict[str, int]:
    """What a `CostRow` row says of machine code. Raises BuildError and ValueError where it cannot be read."""
    sizes = code_bytes(code.cubin)
    main = max(sizes, key=lambda name: sizes[name])
    use = tools.usage(code.cubin)[main]
    shared = requested_bytes(_SM, use.shared_bytes, code.dynamic_bytes)
    return {"registers": use.registers, "shared_bytes": shared, "code_bytes": sizes[main]}
