"""What a kernel asks of memory, line by line, and of a multiprocessor: counted in one run at whole tiles."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace

import gemm_ref
from experiments.check.report import Code, Line
from experiments.check.subject import Subject
from experiments.check.trial import attempt
from gemm_ref import ptx
from gemm_ref.build import BuildError
from gemm_ref.ptx.count.records import COMPILED, WRITTEN
from gemm_ref.ptx.count.sectors import SECTOR
from gemm_ref.sass import mix, tools
from gemm_ref.sass.listing import parse
from gemm_ref.sass.occupancy import ARCHITECTURES, asked_bytes, occupancy

ARCHITECTURE = "sm_90a"  # what is compiled for, as for the reference GPU

Quote = Callable[[str, int], str]  # (file, line) -> the text of the line, where it is the user's


class _Launches(ptx.Observer):
    """The kernels that are run, each with its launch."""

    def __init__(self) -> None:
        self.seen: list[tuple[ptx.Kernel, gemm_ref.Launch]] = []

    def on_launch(self, kernel, launch, memory) -> None:
        self.seen.append((kernel, launch))


def count(subject: Subject, problem: gemm_ref.Problem, quote: Quote) -> tuple[list[Line], list[Code], str]:
    """(lines, machine code, why the machine code was not looked at) of one run at whole tiles."""
    read_code, why_not = tools.disassemble, ""
    try:
        tools.find("nvdisasm"), tools.find("cuobjdump")
    except BuildError as error:
        read_code, why_not = None, str(error)
    counter, launches = ptx.Counter(read_code), _Launches()
    attempt(subject, problem, observers=(counter, launches))
    kernels = {} if why_not else {kernel.name: (kernel, launch) for kernel, launch in launches.seen}
    codes = [_code(*each) for each in kernels.values()]
    codes = [replace(code, kernel=subject.called(code.kernel)) for code in codes]
    return _lines(counter.counts(), quote), codes, why_not


def _lines(counts: list[ptx.Count], quote: Quote) -> list[Line]:
    sums: dict[tuple, dict[str, list[int]]] = defaultdict(lambda: defaultdict(lambda: [0, 0, 0.0]))
    for one in counts:
        if one.space in ("global", "shared") and one.requests:
            done, ideal = one.sectors, one.size * one.lanes / SECTOR
            if one.space == "shared":
                done, ideal = one.wavefronts, one.ideal
            total = sums[one.file, one.line, one.space, one.kind, one.array][one.view]
            total[0] += one.requests
            total[1] += done
            total[2] += ideal
    found = []
    for (file, line, space, kind, array), views in sums.items():
        if WRITTEN not in views:
            continue
        requests, done, ideal = views[WRITTEN]
        compiled = views.get(COMPILED)
        # As compiled a line may have no access left: ptxas gave it to a neighbour. Per request of those that it has.
        share = compiled[1] / compiled[0] if compiled else None
        best = compiled[2] / compiled[0] if compiled else ideal / requests
        text = quote(file, line)
        found.append(Line(file, line, text, space, kind, array, requests, done / requests, share, best))
    return sorted(found, key=lambda each: (each.file, each.line, each.space, each.kind, each.array))


_CURES = {
    "global": "not coalesced: let neighbouring threads (threadIdx.x) touch neighbouring elements of a row",
    "shared": "bank conflicts, lanes of a warp asking one bank for different words: pad the rows of the array, store "
    "it turned round, or let lanes read neighbouring words",
}


def advice(lines: list[Line]) -> list[str]:
    """What to do about the lines that make the hardware do more work than their bytes need; one sentence a cure."""
    said = []
    for space, cure in _CURES.items():
        found = [
            f"{line.file}:{line.line} {line.kind} of {line.array or space} "
            f"({_taken(line):.3g} {line.unit} per request where {line.ideal:.3g} would do)"
            for line in lines
            if line.wasteful and line.space == space
        ]
        if found:
            said.append(f"{cure}: {'; '.join(found)}")
    return said


def _taken(line: Line) -> float:
    return line.written if line.compiled is None else line.compiled


def _code(kernel: ptx.Kernel, launch: gemm_ref.Launch) -> Code:
    sm = ARCHITECTURES[ARCHITECTURE]
    cubin = kernel.cubin()
    use = tools.usage(cubin)[kernel.name]
    machine = next(each for each in parse(tools.disassemble(cubin)) if each.name == kernel.name)
    shared = asked_bytes(sm, use.shared_bytes, launch.shared_bytes)
    held = occupancy(sm, launch.threads, use.registers, shared)
    return Code(
        kernel.name,
        ARCHITECTURE,
        use.registers,
        mix.spilled_bytes(machine.code),
        shared,
        launch.threads,
        held.blocks,
        held.share,
        held.limited_by,
    )
