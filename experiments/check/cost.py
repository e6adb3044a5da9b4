"""What a kernel asks of memory, line by line, and of a multiprocessor: counted in one run at whole tiles."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace

import gemm_ref
from experiments.check.faults import Quote
from experiments.check.report import Asked, Code, Line, Request
from experiments.check.subject import Subject
from experiments.check.trial import Launches, attempt
from gemm_ref import ptx
from gemm_ref.build import BuildError
from gemm_ref.ptx.count.records import COMPILED, WRITTEN
from gemm_ref.ptx.count.sectors import SECTOR
from gemm_ref.sass import mix, ports, tools
from gemm_ref.sass.listing import Kernel, parse
from gemm_ref.sass.loop import main_trip
from gemm_ref.sass.occupancy import ARCHITECTURES, asked_bytes, occupancy

ARCHITECTURE = "sm_90a"  # what is compiled for, as for the reference GPU


def count(subject: Subject, problem: gemm_ref.Problem, quote: Quote) -> tuple[list[Line], list[Code], str]:
    """(lines, machine code, why the machine code was not looked at) of one run at whole tiles."""
    why_not = ""
    try:
        tools.find("nvdisasm"), tools.find("cuobjdump")
    except BuildError as error:
        why_not = str(error)
    counter, launches = ptx.Counter(None if why_not else tools.disassemble), Launches()
    attempt(subject, problem, observers=(counter, launches))
    kernels = {} if why_not else {kernel.name: (kernel.cubin, launch) for kernel, launch in launches.seen}
    codes = [_code(name, cubin(), launch) for name, (cubin, launch) in kernels.items() if cubin is not None]
    codes = [replace(code, kernel=subject.called(code.kernel)) for code in codes]
    return _lines(counter.counts(), quote), codes, why_not


@dataclass
class _Sum:
    """Over the accesses of one line: requests of warps, the sectors or wavefronts that they take, and the least."""

    requests: int = 0
    bytes: int = 0  # of a lane, over all requests
    done: int = 0
    ideal: float = 0.0
    worst: ptx.Count | None = None  # the access with the most beyond the ideal

    def asked(self) -> Asked:
        return Asked(self.requests, self.bytes / self.requests, self.done / self.requests)


def _lines(counts: list[ptx.Count], quote: Quote) -> list[Line]:
    sums: dict[tuple, dict[str, _Sum]] = defaultdict(lambda: defaultdict(_Sum))
    for one in counts:
        if one.space in ("global", "shared") and one.requests:
            total = sums[one.file, one.line, one.space, one.kind, one.array][one.view]
            total.requests += one.requests
            total.bytes += one.size * one.requests
            total.done += _taken(one)
            total.ideal += _ideal(one)
            total.worst = max(filter(None, (total.worst, one)), key=lambda each: _taken(each) - _ideal(each))
    found = []
    for (file, line, space, kind, array), views in sums.items():
        if WRITTEN not in views:
            continue
        written, compiled = views[WRITTEN], views.get(COMPILED)
        # As compiled a line may have no access left: ptxas gave it to a neighbour. Per request of those that it has.
        # Lanes that ask for the same may take less than neighbours do.
        done = compiled or written
        best = min(done.ideal, done.done) / done.requests
        asked = written.asked(), compiled.asked() if compiled else None
        worst = done.worst
        request = Request(worst.op, worst.size, worst.offsets) if worst and worst.offsets else None
        found.append(Line(file, line, quote(file, line), space, kind, array, *asked, best, request))
    return sorted(found, key=lambda each: (each.file, each.line, each.space, each.kind, each.array))


def _taken(count: ptx.Count) -> int:
    return count.wavefronts if count.space == "shared" else count.sectors


def _ideal(count: ptx.Count) -> float:
    return count.ideal if count.space == "shared" else count.size * count.lanes / SECTOR


_CURES = {
    "global": "not coalesced: let neighbouring threads (threadIdx.x) touch neighbouring elements of a row",
    "shared": "bank conflicts, lanes of a warp asking one bank for different words: pad the rows of the array, store "
    "it transposed, or let lanes read neighbouring words",
}

_WORTH = 1.05  # times the clocks of its instructions: a loop that waits for registers less is not spoken of
_OF_REGISTERS = (
    "multiply-adds wait for registers, of which one with an even and one with an odd number is read per clock "
    "(docs/compilers.md): let neighbouring products share an operand, back and forth along the rows of a thread's tile"
)


def advice(lines: list[Line], codes: list[Code]) -> list[str]:
    """What to do about lines that make the hardware do more work than their bytes need, and about main loops that are
    mostly multiply-adds and wait for registers; one sentence a cure."""
    said = []
    for space, cure in _CURES.items():
        places: dict[str, list[str]] = defaultdict(list)
        for line in lines:
            if line.wasteful and line.space == space:
                taken = f"({line.done.taken:.3g} {line.unit} per request where {line.ideal:.3g} would do)"
                places[f"{line.kind} of {line.array or space} {taken}"].append(f"{line.file}:{line.line}")
        if places:
            said.append(f"{cure}: {'; '.join(f'{what} in {_places(where)}' for what, where in places.items())}")
    waiting = [
        f"those of {code.kernel}'s main loop take {code.ports.clocks / code.ports.ffma:.2f} clocks each where its "
        f"instructions would take {code.ports.instructions / code.ports.ffma:.2f}"
        for code in codes
        if code.ports and 2 * code.ports.ffma > code.ports.instructions < code.ports.clocks / _WORTH
    ]
    return said + ([f"{_OF_REGISTERS}: {'; '.join(waiting)}"] if waiting else [])


def _places(where: list[str]) -> str:
    """`a.cu:64, 65, 66`"""
    file = where[0].rpartition(":")[0]
    return ", ".join([where[0], *(each.removeprefix(f"{file}:") for each in where[1:])])


def _code(name: str, cubin: bytes, launch: gemm_ref.Launch) -> Code:
    sm = ARCHITECTURES[ARCHITECTURE]
    use = tools.usage(cubin)[name]
    machine = next(each for each in parse(tools.disassemble(cubin)) if each.name == name)
    shared = asked_bytes(sm, use.shared_bytes, launch.shared_bytes)
    held = occupancy(sm, launch.threads, use.registers, shared)
    return Code(
        name,
        ARCHITECTURE,
        use.registers,
        mix.spilled_bytes(machine.code),
        shared,
        launch.threads,
        held.blocks,
        held.share,
        held.limited_by,
        _ports(machine),
    )


def _ports(kernel: Kernel) -> ports.Ports | None:
    try:
        trip = main_trip(kernel)
    except ValueError:  # it jumps to a place that the text does not name, and its loops are not known
        return None
    return ports.clocks(trip) if any(instruction.name == "FFMA" for instruction in trip) else None
