"""How often a warp executes each instruction of the machine code, and in which order, from the counts of PTX lines.

The reference GPU executes PTX, and a GPU executes what ptxas makes of it: unrolled, reordered, partly removed. The line
table of a cubin names for each instruction the line of PTX that it was made from. So the number of times that a warp
passes each basic block of the machine code is what explains the executions of most lines, while as many warps leave a
block as enter it: an integer program of least absolute deviations, which lines that were hoisted out of a loop or
merged hardly disturb. A path through the blocks with these counts is the warp's sequence of instructions.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass

import numpy as np

from gemm_ref.ptx.text.operands import Symbol
from gemm_ref.ptx.text.parser import Entry
from gemm_ref.ptx.text.parser import Instruction as PtxInstruction
from gemm_ref.sass.listing import Block, Instruction, SassKernel, blocks
from gemm_ref.sass.loop import Loop, natural_loops

OUT = -1  # in place of a block: behind the kernel's end
# Instructions that compilers neither merge nor move out of loops: their lines tell how often a block is passed.
_ANCHORS = ("FFMA", "HMMA", "HGMMA", "LDS", "LDSM", "STS", "LDG", "LDGSTS", "STG", "BAR", "SYNCS", "UTMALDG")
_CONTROL_WEIGHT = 0.3  # of a line that is passed as often as no line of an anchor; an anchor's line has 1
_OTHER_WEIGHT = 0.003  # of other lines
_FEWEST = 0.15  # weight of all instructions executed: of about equally good flows the one with the fewest is taken
_FEWEST_TRIPS = 4  # of a main loop


@dataclass(frozen=True)
class Passes:
    """How often a warp passes the lines of a kernel's PTX."""

    number: Mapping[int, float]  # by line
    rounds: Mapping[int, float]  # of the innermost loop around a line, for each time that it is entered; by line
    expanded: Set[int]  # lines of which ptxas makes several instructions of a kind: those of wmma


def passes(entry: Entry, executed: Mapping[int, float]) -> Passes:
    """What a warp passes that has executed the lines of PTX so often, each under a guard that held.

    A line is passed as often as its basic block, whose unguarded instructions are all executed.
    """
    number: dict[int, float] = {}
    for lines in _basic_blocks(entry):
        count = max(executed.get(line, 0.0) for line in lines)
        number.update((line, count) for line in lines)
    code, rounds = entry.instructions, dict.fromkeys(number, 1.0)
    loops: dict[
        int, tuple[int, float]
    ] = {}  # head -> the last of the branches back to it, and how often all were taken
    for place, instruction in enumerate(code):
        target = instruction.operands[0] if instruction.parts[0] == "bra" else None
        head = entry.labels.get(target.name) if isinstance(target, Symbol) else None
        if head is not None and head <= place:
            loops[head] = place, loops.get(head, (0, 0.0))[1] + executed.get(instruction.ptx_line, 0.0)
    for head, (last, back) in sorted(loops.items(), key=lambda loop: loop[0] - loop[1][0]):  # the longest first
        passed = number[code[head].ptx_line]
        for place in range(head, last + 1):
            rounds[code[place].ptx_line] = passed / max(1.0, passed - back)
    return Passes(number, rounds, {each.ptx_line for each in code if each.parts[0] == "wmma"})


def _basic_blocks(entry: Entry) -> list[list[int]]:
    """The basic blocks of a kernel's PTX, each as the lines of its instructions."""
    found: list[list[int]] = [[]]
    leaders = set(entry.labels.values())
    for index, instruction in enumerate(entry.instructions):
        if index in leaders:
            found.append([])
        found[-1].append(instruction.ptx_line)
        if _ends_block(instruction):
            found.append([])
    return [lines for lines in found if lines]


def _ends_block(instruction: PtxInstruction) -> bool:
    return instruction.parts[0] in ("bra", "brx", "ret", "exit")


@dataclass(frozen=True)
class Flow:
    """The passes of one warp through the blocks of the machine code."""

    blocks: Sequence[Block]
    edges: Mapping[tuple[int, int], float]  # (block, successor or OUT) -> how often a warp goes that way
    unexplained: float  # share of the executions of PTX lines that the flow leaves unexplained

    def passes(self, block: int) -> float:
        """How often a warp passes a block."""
        return sum(count for (_, after), count in self.edges.items() if after == block) + (block == 0)

    def ways(self, block: int) -> list[tuple[int, float]]:
        """The successors of a block, OUT among them, with how often a warp goes there."""
        return [(after, count) for (source, after), count in self.edges.items() if source == block]

    def entries(self, loop: Loop) -> float:
        """How often a warp enters a loop from outside."""
        outside = (edge for edge in self.edges if edge[1] == loop.head and edge[0] not in loop.body)
        return sum(self.edges[edge] for edge in outside)


class _Program:
    """The integer program: its unknowns, what they cost, and the rows that constrain them."""

    def __init__(self, unknowns: int) -> None:
        self.cost = np.zeros(unknowns)
        self._entries: list[tuple[int, int, float]] = []  # row, column, value
        self._bounds: list[tuple[float, float]] = []

    def constrain(self, row: Iterable[tuple[int, float]], lowest: float, highest: float) -> None:
        """Bound the sum of columns times values."""
        self._entries += [(len(self._bounds), column, value) for column, value in row]
        self._bounds.append((lowest, highest))

    def solve(self, whole: int) -> np.ndarray | None:
        """The unknowns, of which the first so many are whole numbers; None where none fit."""
        from scipy.optimize import LinearConstraint, milp  # takes 0.3 s, which a refused call need not wait for
        from scipy.sparse import coo_matrix

        rows, columns, values = zip(*self._entries, strict=True)
        matrix = coo_matrix((values, (rows, columns)), shape=(len(self._bounds), len(self.cost))).tocsc()
        lowest, highest = zip(*self._bounds, strict=True)
        are_whole = np.arange(len(self.cost)) < whole
        return milp(self.cost, constraints=LinearConstraint(matrix, lowest, highest), integrality=are_whole).x


def solve(kernel: SassKernel, warp: Passes) -> Flow:
    """The flow of a warp through the machine code of a kernel.

    Raises ValueError where the machine code jumps to places that cannot be followed.
    """
    code = blocks(kernel)
    reached = _reached(code)
    ways = [(block, after) for block in reached for after in code[block].successors]
    ways += [(block, OUT) for block in reached if not code[block].successors or _exit(code[block]) is not None]
    copies, weights, executed = _copies(kernel, [(block, code[block]) for block in reached], warp)
    groups: dict[tuple[tuple[tuple[int, int], ...], float], float] = defaultdict(float)  # lines that are as good as one
    for line, counted in copies.items():
        groups[tuple(sorted(counted.items())), warp.number[line]] += weights[line]
    program = _Program(len(ways) + 2 * len(groups))  # and for each group by how much it is exceeded and missed
    anchored = [line for line in copies if weights[line] == 1 and warp.number[line]]
    cost = _FEWEST * len(anchored) / max(1.0, executed)
    entering: dict[int, list[int]] = defaultdict(list)
    for column, (_, after) in enumerate(ways):
        entering[after].append(column)
        program.cost[column] = cost * len(code[after].code) if after != OUT else 0.0
    for block in reached:
        leaving = [column for column, (source, _) in enumerate(ways) if source == block]
        change = Counter(entering[block])
        change.subtract(leaving)
        begun = -1.0 if block == 0 else 0.0
        program.constrain([(column, float(value)) for column, value in change.items()], begun, begun)
    for slack, ((where, count), weight) in zip(range(len(ways), len(program.cost), 2), groups.items(), strict=True):
        passed = [(column, float(times)) for block, times in where for column in entering[block]]
        rest = count - sum(times for block, times in where if block == 0)
        program.constrain([*passed, (slack, -1.0), (slack + 1, 1.0)], rest, rest)
        program.cost[slack : slack + 2] = weight / max(1.0, count)
    for loop in natural_loops(code):  # no warp goes round a loop that it does not enter, nor more often than in the PTX
        most = _most_rounds(code, loop, set(copies) - warp.expanded, warp) or max(count for _, count in groups)
        row = [(column, -1.0 if ways[column][0] in loop.body else most) for column in entering[loop.head]]
        program.constrain(row, -most if loop.head == 0 else 0.0, math.inf)
    found = program.solve(len(ways))
    if found is None:
        raise ValueError(f"{kernel.name}: no flow through its machine code explains what was executed")
    missed = found[len(ways) :].reshape(-1, 2).sum(axis=1) @ np.fromiter(groups.values(), float)
    expected = sum(count * weight for (_, count), weight in groups.items())
    edges = {way: float(round(x)) for way, x in zip(ways, found, strict=False) if round(x)}
    return Flow(code, edges, float(missed / max(1.0, expected)))


def _copies(
    kernel: SassKernel, code: Sequence[tuple[int, Block]], warp: Passes
) -> tuple[dict[int, Counter[int]], dict[int, float], float]:
    """By line of PTX: how many instructions of each block are made from it, its weight; and about all executions."""
    anchored = {each.ptx_line for each in kernel.code if _is_anchor(each)}
    told = {warp.number[line] for line in anchored if line in warp.number}
    copies: dict[int, Counter[int]] = defaultdict(Counter)
    for block, its in code:
        for each in its.code:
            if each.ptx_line in warp.number and (_is_anchor(each) or each.ptx_line not in anchored):
                copies[each.ptx_line][block] += 1
    executed = sum(warp.number[line] * max(where.values()) for line, where in copies.items())
    for line in warp.expanded & copies.keys():
        fewest = min(copies[line].values())
        copies[line] = Counter({block: times // fewest for block, times in copies[line].items()})
    weights = {line: _OTHER_WEIGHT if warp.number[line] in told else _CONTROL_WEIGHT for line in copies}
    return copies, weights | dict.fromkeys(anchored & copies.keys(), 1.0), executed


def _most_rounds(code: Sequence[Block], loop: Loop, lines: Set[int], warp: Passes) -> float:
    """How often a warp may go back to a loop's head for each entry; 0 where no anchor tells."""
    inner = {block for other in natural_loops(code) if other.body < loop.body for block in other.body}
    anchors = [each for block in loop.body - inner for each in code[block].code if _is_anchor(each)]
    times = Counter(each.ptx_line for each in anchors if each.ptx_line in lines)
    rounds = max((warp.rounds[line] / copies for line, copies in times.items()), default=1.0)
    return math.ceil(rounds) - 1


def _is_anchor(instruction: Instruction) -> bool:
    return instruction.name in _ANCHORS and not instruction.never


def _reached(code: Sequence[Block]) -> list[int]:
    """The blocks that can be reached at all, in order; behind the others' code there is filling."""
    found, waiting = {0}, [0]
    while waiting:
        new = set(code[waiting.pop()].successors) - found
        found |= new
        waiting += new
    return sorted(found)


def _exit(block: Block) -> int | None:
    """Where in a block a warp may leave the kernel."""
    return next((place for place, each in enumerate(block.code) if each.name in ("EXIT", "RET")), None)


@dataclass(frozen=True)
class Path:
    """A warp's instructions, with its main loop shortened."""

    places: Sequence[int]  # indices into the kernel's code
    trips: float  # of the main loop that the flow has; 0 without such a loop
    heads: Sequence[int]  # where in `places` each trip begins


def trips_of(flow: Flow) -> tuple[float, float]:
    """The trips of a warp round its main loop, 0 where it has none, and the instructions of one."""
    main = _main_loop(flow, natural_loops(flow.blocks))
    trips = flow.passes(main.head) if main else 0.0
    return trips, _executed(flow, main) / trips if main else 0.0


def walk(flow: Flow, most_trips: float = math.inf) -> Path:
    """A path with the flow's shares at each branch, of at most so many trips round its main loop.

    The main loop is, of those that are entered once and have several trips, the one in which most is executed. At a
    branch each way is taken as often as its share of the passes asks for; a loop is left when the trips of one entry
    are done.
    """
    code = flow.blocks
    loops = natural_loops(code)
    main = _main_loop(flow, loops)
    trips = flow.passes(main.head) if main else 0.0
    simulated = min(trips, most_trips)
    starts = np.cumsum([0, *(len(block.code) for block in code)])
    taken: Counter[tuple[int, int]] = Counter()
    visits: Counter[int] = Counter()
    places: list[int] = []
    heads: list[int] = []
    block = 0
    while True:
        if main and block == main.head:
            heads.append(len(places))
        begin = len(places)
        places += range(starts[block], starts[block + 1])
        visits[block] += 1
        shares: dict[int, float] = {}
        for after, count in flow.ways(block):
            is_end = main is not None and block in main.body and after not in main.body
            shares[after] = count * (trips - 1) / (simulated - 1) if is_end else count
        own = min((each for each in loops if block in each.body), key=lambda loop: len(loop.body), default=None)
        after = _next(block, shares, own, visits[block], taken)
        if after == OUT:
            last = _exit(code[block])
            del places[len(places) if last is None else begin + last + 1 :]
            return Path(places, trips, heads)
        block = after


def _next(block: int, shares: Mapping[int, float], own: Loop | None, visits: int, taken: Counter) -> int:
    """The successor that a path goes on with from a block of the loop `own`; OUT where there is none."""

    def owed(after: int) -> float:
        """By how many times it was taken too seldom; a way out of a loop waits for a whole one."""
        credit = visits * shares[after] / sum(shares.values()) - taken[block, after]
        if own is None or after in own.body or len(shares) == 1:
            return credit
        return math.inf if credit > 0.999 else -math.inf

    after = max(shares, key=owed, default=OUT)
    taken[block, after] += 1
    return after


def _executed(flow: Flow, loop: Loop) -> float:
    """How many instructions a warp executes in a loop."""
    return sum(flow.passes(block) * len(flow.blocks[block].code) for block in loop.body)


def _main_loop(flow: Flow, loops: Sequence[Loop]) -> Loop | None:
    once = [loop for loop in loops if flow.entries(loop) == 1 and flow.passes(loop.head) >= _FEWEST_TRIPS]
    return max(once, key=lambda loop: (_executed(flow, loop), len(loop.body)), default=None)
