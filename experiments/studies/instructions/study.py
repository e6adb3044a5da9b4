"""What machine code does each rung become, and what did Triton's compiler do that the CUDA source did not?

Expectation: the main loop of a good rung is mostly multiply-adds. The dialects differ in the width of their reads from
shared memory, in the cost of addresses, and in registers, which decide how many blocks a multiprocessor holds.

Method: every kernel is compiled to a cubin, without a GPU: CUDA by nvcc, Triton and Gluon by Triton and the ptxas in
its wheel, for a call with aligned matrices of 4096 x 4096 (or the --size asked for): Triton compiles separate kernels
for sizes that 16 divides and for other sizes, while CUDA has one for all. Registers, stack and static shared memory are
what cuobjdump reads in the cubin; shared memory adds what the launch asks for. How many blocks fit follows from that
and the architecture's limits (`gemm_ref.sass.occupancy`), for any grid. Counts are taken from nvdisasm's text of one
trip through the main loop (`gemm_ref.sass.loop` says which): what one thread executes for a whole slice, instructions
under a guard included. They are counts, never times. Trips differ in length (`k_per_trip` says how much a trip does),
so compare shares. Where a loop over slices holds a loop over k that is not fully unrolled (s03 in CUDA), a trip is one
of the inner loop. A rung with two kernels is counted in the one with the main loop. Spilled bytes are of the whole
kernel.

What a trip takes in fp32 on sm_90a is worked out from the machine code too: the least that reading registers allows
(`gemm_ref.sass.ports`), and the clocks of a multiprocessor full of warps that go round the loop, with what its
schedulers then wait for (`gemm_ref.clock.loop`). That needs the wavefronts of shared memory, which the reference GPU
counts. The picture has these clocks beside the measured ones.

Run: `python -m experiments run instructions [--stage S] [--backend cuda|triton|gluon] [--size MxNxK]`
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import gemm_ref
from experiments.bench import parallel
from experiments.bench.machine_code import compile_to_cubin, launch_of
from experiments.bench.verify import describe
from experiments.progress import Bars
from experiments.records import workloads
from experiments.records.compiled import MAIN_ARCHITECTURE
from experiments.records.contenders import Contender, gemm_of
from experiments.records.request import FULL, Request
from experiments.records.rows import ERROR, PASS, SKIPPED
from experiments.studies.instructions.row import InstructionRow
from experiments.studies.shared.reference_runs import count_accesses, left_to_full_preset, missing_disassembler
from gemm_ref.clock.loop import simulate
from gemm_ref.launch import cdiv
from gemm_ref.ptx.count.counts import COMPILED
from gemm_ref.sass import mix, ports, tools
from gemm_ref.sass.listing import Instruction, SassKernel, controlled, parse
from gemm_ref.sass.loop import main_trip
from gemm_ref.sass.occupancy import ARCHITECTURES, WARP, Multiprocessor, occupancy, requested_bytes

NAME = "instructions"


class _Uncounted(ValueError):
    """Operations of the kernel, or its requests, cannot be counted."""


_TCGEN05 = re.compile(r"UTC\w*MMA")  # tensor cores from compute capability 10.0 on: the shape is in a descriptor


def unsuited(contender: Contender, request: Request) -> str:
    """Why the contender is no part of this experiment; empty if it is."""
    if contender.is_baseline:
        return "baselines are not part of it: their machine code is not compiled here"
    return left_to_full_preset(contender, request)


def measure(request: Request, contenders: Sequence[Contender], bars: Bars) -> Iterator[InstructionRow]:
    """A row for each contender, problem and architecture: sm_90a, and with the full preset all of them."""
    archs = ARCHITECTURES if request.preset == FULL else (MAIN_ARCHITECTURE,)
    problems = request.problems or (gemm_ref.Problem(*workloads.cube(workloads.ALIGNED)),)
    parts = [(problem, arch) for problem in problems for arch in archs]
    bars.begin("compiling", len(contenders) * len(parts))
    jobs = [(contender, parts) for contender in contenders]
    for rows in parallel.measure_parts(jobs, _work, bars, request.row_cache):
        yield from rows


def _work(contender: Contender, parts: Sequence[tuple[gemm_ref.Problem, str]]) -> Iterator[list[InstructionRow]]:
    return ([_row(contender, *part)] for part in parts)


def _row(contender: Contender, problem: gemm_ref.Problem, arch: str) -> InstructionRow:
    sm = ARCHITECTURES[arch]
    if reason := contender.refusal(sm.capability):
        return InstructionRow.about(NAME, contender, problem, arch=arch, status=SKIPPED, detail=reason)
    try:
        code = compile_to_cubin(contender, problem, sm.capability)
        in_fp32 = contender.math == "fp32" and sm.capability == ports.MEASURED
        wavefronts = functools.partial(_wavefronts, contender, problem) if in_fp32 else None
        values = examine(code.cubin, sm, code.threads, code.dynamic_bytes, wavefronts)
    except _Uncounted as reason:
        return InstructionRow.about(NAME, contender, problem, arch=arch, status=SKIPPED, detail=str(reason))
    except Exception as error:  # a rung that does not compile is a row, and the others go on
        return InstructionRow.about(NAME, contender, problem, arch=arch, status=ERROR, detail=describe(error))
    config = gemm_ref.get_stage(contender.stage).config(contender.variant, contender.dialect)
    launch = launch_of(contender, problem)
    loaders = launch.loaders if code.threads == launch.threads else 0  # a twin with other warps has none
    products = values["flop_per_trip"] / 2 * (code.threads - loaders)
    values["k_per_trip"] = products / (config.BLOCK_M * config.BLOCK_N)
    return InstructionRow.about(NAME, contender, problem, arch=arch, **values)


def _wavefronts(contender: Contender, problem: gemm_ref.Problem) -> dict[str, float]:
    """What a request of shared memory takes, by opcode, counted on the reference GPU in one tile of eight slices.

    Sizes that 16 does not divide are as far from it as those of `problem`: Triton compiles the same kernel for them.

    Raises ValueError where that does not give the right result.
    """
    config = gemm_ref.get_stage(contender.stage).config(contender.variant, contender.dialect)
    tile = (config.BLOCK_M, config.BLOCK_N, 8 * (config.BLOCK_K or WARP))
    m, n, k = (size + rest % 16 for size, rest in zip(tile, (problem.m, problem.n, problem.k), strict=True))
    if contender.kernel:
        contender = replace(contender, load=functools.partial(gemm_of, contender.kernel.first_tile))
    if why_not := missing_disassembler():
        raise _Uncounted(why_not)
    result, counts = count_accesses(contender, gemm_ref.Problem(m, n, k))
    if result.status == SKIPPED:
        raise _Uncounted(result.detail)
    if result.status != PASS:
        raise ValueError(f"its requests of shared memory could not be counted: {result.detail}")
    requests = [each for each in counts if each.view == COMPILED and each.space == "shared" and each.requests]
    sums = {each.op: [0, 0] for each in requests}
    for each in requests:
        sums[each.op][0] += each.wavefronts
        sums[each.op][1] += each.requests
    return {op: wavefronts / requests for op, (wavefronts, requests) in sums.items()}


def examine(
    cubin: bytes,
    sm: Multiprocessor,
    threads: int,
    dynamic_bytes: int,
    wavefronts: Callable[[], Mapping[str, float]] | None = None,
) -> dict[str, Any]:
    """What a `InstructionRow` row says of the kernel in `cubin` that has the main loop.

    threads, dynamic_bytes: threads and dynamic shared memory of a block; wavefronts: gives what `simulate`
    has, and None leaves out what the loop waits for. Raises ValueError where no kernel has a loop that computes,
    BuildError where the tools are missing or cannot read the file.
    """
    kernel, trip = _main(parse(tools.disassemble(cubin)))
    use = tools.usage(cubin)[kernel.name]
    shared = requested_bytes(sm, use.shared_bytes, dynamic_bytes)
    held = occupancy(sm, threads, use.registers, shared)
    warps = cdiv(threads, WARP)
    flop, read_bytes = sum(map(mix.flop_of, trip)), mix.shared_read_bytes(trip)
    counts = mix.count(trip)
    return {
        **asdict(use),
        "spill_bytes": mix.spilled_bytes(kernel.code),
        "shared_bytes": shared,
        "threads": threads,
        "blocks_per_sm": held.blocks,
        "occupancy": held.share,
        "limited_by": held.limited_by,
        "instructions": len(trip),
        **counts,
        "flop_per_trip": flop,
        "ffma_share": sum(counts[kind] for kind in mix.GROUPS["multiply-add"]) / len(trip),
        "integer_share": counts["integer"] / len(trip),
        "ffma_per_lds_byte": flop / 2 / read_bytes if read_bytes else None,
        **(_register_reads(trip) if counts["ffma"] and sm.capability == ports.MEASURED else {}),
        **(_waits(controlled(kernel, cubin), warps, held.blocks, wavefronts()) if wavefronts else {}),
    }


def _register_reads(trip: Sequence[Instruction]) -> dict[str, int]:
    found = ports.clocks(trip)
    return {"even_reads": found.even, "odd_reads": found.odd, "port_clocks": found.clocks}


def _waits(kernel: SassKernel, warps: int, blocks: int, wavefronts: Mapping[str, float]) -> dict[str, float]:
    found = simulate(main_trip(kernel), warps, blocks, wavefronts)
    return {"clocks": found.clocks, **{f"wait_{reason}": clocks for reason, clocks in found.waiting.items()}}


def _main(kernels: Sequence[SassKernel]) -> tuple[SassKernel, tuple[Instruction, ...]]:
    """Of several kernels the one whose main loop computes most in a trip, and that trip."""
    trips = [(kernel, trip) for kernel in kernels if (trip := main_trip(kernel))]
    if not trips:
        apart = {
            instruction.name for kernel in kernels for instruction in kernel.code if _TCGEN05.match(instruction.name)
        }
        if apart:
            raise _Uncounted(f"{', '.join(sorted(apart))}: what tcgen05 multiplies is not in the instruction's name")
        names = ", ".join(kernel.name for kernel in kernels) or "none"
        raise ValueError(f"no loop with a multiply-add or an MMA in any kernel (found: {names})")
    return max(trips, key=lambda each: sum(map(mix.flop_of, each[1])))
