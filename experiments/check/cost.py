"""The memory traffic of a kernel, line by line, and its resources: counted in one run at whole tiles."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace

from experiments.check.faults import Quote
from experiments.check.messages import Advice, Message, message
from experiments.check.report import LineTraffic, MachineCode, Traffic, WarpRequest
from experiments.check.subject import Launches, Subject, attempt
from gemm_ref import Launch, Problem, ptx
from gemm_ref.build import BuildError
from gemm_ref.ptx.count.counts import COMPILED, WRITTEN
from gemm_ref.ptx.count.sectors import SECTOR
from gemm_ref.sass import mix, ports, tools
from gemm_ref.sass.listing import SassKernel, parse
from gemm_ref.sass.loop import main_trip
from gemm_ref.sass.occupancy import ARCHITECTURES, occupancy, requested_bytes

ARCHITECTURE = "sm_90a"  # what is compiled for, as for the reference GPU


def count(subject: Subject, problem: Problem, quote: Quote) -> tuple[list[LineTraffic], list[MachineCode], str]:
    """Returns (lines, machine code, why the machine code was not disassembled) of one run at whole tiles."""
    why_not = ""
    try:
        tools.find("nvdisasm"), tools.find("cuobjdump")
    except BuildError as error:
        why_not = str(error)
    counter, launches = ptx.Counter(None if why_not else tools.disassemble), Launches()
    attempt(subject, problem, observers=(counter, launches))
    kernels = {} if why_not else {kernel.name: (kernel.cubin, launch) for kernel, launch in launches.seen}
    codes = [_code(name, cubin(), launch) for name, (cubin, launch) in kernels.items() if cubin is not None]
    codes = [replace(code, kernel=subject.describe_entry(code.kernel)) for code in codes]
    return _lines(counter.counts(), quote), codes, why_not


@dataclass
class _Sum:
    """Over the accesses of one line: requests of warps, the sectors or wavefronts that they take, and the least."""

    requests: int = 0
    bytes: int = 0  # of a lane, over all requests
    taken: int = 0
    ideal: float = 0.0
    worst: ptx.Count | None = None  # the access with the most beyond the ideal

    def traffic(self) -> Traffic:
        return Traffic(self.requests, self.bytes / self.requests, self.taken / self.requests)


def _lines(counts: list[ptx.Count], quote: Quote) -> list[LineTraffic]:
    sums: dict[tuple, dict[str, _Sum]] = defaultdict(lambda: defaultdict(_Sum))
    for one in counts:
        if one.space in ("global", "shared") and one.requests:
            total = sums[one.file, one.line, one.space, one.kind, one.array][one.view]
            total.requests += one.requests
            total.bytes += one.size * one.requests
            total.taken += _taken(one)
            total.ideal += _ideal(one)
            total.worst = max(filter(None, (total.worst, one)), key=lambda each: _taken(each) - _ideal(each))
    found = []
    for (file, line, space, kind, array), views in sums.items():
        if WRITTEN not in views:
            continue
        written, compiled = views[WRITTEN], views.get(COMPILED)
        # ptxas may leave a line without an access, which it joins with a neighbour's.
        # Lanes that access one element may take less than neighbouring elements do.
        executed = compiled or written
        best = min(executed.ideal, executed.taken) / executed.requests
        traffic = written.traffic(), compiled.traffic() if compiled else None
        worst = executed.worst
        request = WarpRequest(worst.op, worst.size, worst.offsets) if worst and worst.offsets else None
        found.append(LineTraffic(file, line, quote(file, line), space, kind, array, *traffic, best, request))
    return sorted(found, key=lambda each: (each.file, each.line, each.space, each.kind, each.array))


def _taken(count: ptx.Count) -> int:
    return count.wavefronts if count.space == "shared" else count.sectors


def _ideal(count: ptx.Count) -> float:
    return count.ideal if count.space == "shared" else count.size * count.lanes / SECTOR


_ADVICE = {"global": Advice.NOT_COALESCED, "shared": Advice.BANK_CONFLICTS}
_MIN_GAIN = 1.05  # times the clocks of its instructions: a loop that waits for registers less is not mentioned


def advice(lines: list[LineTraffic], codes: list[MachineCode]) -> list[Message]:
    """Returns what to do about lines that waste accesses, and about main loops that wait for registers."""
    found = []
    for space, code in _ADVICE.items():
        places: dict[str, list[str]] = defaultdict(list)
        for line in lines:
            if line.is_wasteful and line.space == space:
                taken = f"({line.executed.taken:.3g} {line.unit} per request where {line.ideal:.3g} would do)"
                places[f"{line.name} {taken}"].append(f"{line.file}:{line.line}")
        if places:
            texts = (f"{what} in {_places(where)}" for what, where in places.items())
            found.append(message(code, places="; ".join(texts)))
    waiting = [
        f"those of {code.kernel}'s main loop take {code.ports.clocks / code.ports.ffma:.2f} clocks each where its "
        f"instructions would take {code.ports.instructions / code.ports.ffma:.2f}"
        for code in codes
        if code.ports and 2 * code.ports.ffma > code.ports.instructions < code.ports.clocks / _MIN_GAIN
    ]
    return found + ([message(Advice.REGISTER_BANKS, places="; ".join(waiting))] if waiting else [])


def _places(where: list[str]) -> str:
    """`a.cu:64, 65, 66`"""
    file = where[0].rpartition(":")[0]
    return ", ".join([where[0], *(each.removeprefix(f"{file}:") for each in where[1:])])


def _code(name: str, cubin: bytes, launch: Launch) -> MachineCode:
    sm = ARCHITECTURES[ARCHITECTURE]
    use = tools.usage(cubin)[name]
    machine = next(each for each in parse(tools.disassemble(cubin)) if each.name == name)
    shared = requested_bytes(sm, use.shared_bytes, launch.shared_bytes)
    resident = occupancy(sm, launch.threads, use.registers, shared)
    return MachineCode(
        name,
        ARCHITECTURE,
        use.registers,
        mix.spilled_bytes(machine.code),
        shared,
        launch.threads,
        resident.blocks,
        resident.share,
        resident.limited_by,
        _ports(machine),
    )


def _ports(kernel: SassKernel) -> ports.Ports | None:
    try:
        trip = main_trip(kernel)
    except ValueError:  # it jumps to a place that the text does not name, and its loops are not known
        return None
    return ports.clocks(trip) if any(instruction.name == "FFMA" for instruction in trip) else None
