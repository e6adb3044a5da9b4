"""Traces of the registry's kernels, held against runs that other observers watch, in other ways."""

import functools
import importlib.metadata

import numpy as np
import pytest
import torch

import gemm_ref
from experiments.explore.traces import gather_traces, kernel
from experiments.explore.traces.origin import Ids
from experiments.explore.traces.record import NOWHERE, from_json, to_json
from experiments.records.contenders import gemm_of
from gemm_ref import Problem, ptx
from gemm_ref.compute import EMULATED, MATHS
from gemm_ref.inputs import aligned, make_inputs
from gemm_ref.operands.split import Split, split_operands
from gemm_ref.ptx.text.dtypes import per_lane
from tests.conftest import is_first

MOST_BYTES = 60_000
TRITON = tuple(int(part) for part in importlib.metadata.version("triton").split(".")[:2])
MAGIC, HUGE = 2.0**70, 2.0**35  # no sum of the inputs comes near these, and s20 divides MAGIC by powers of 2
UNITS = ("mma", "wmma", "wgmma")
SUMMING = ("fma", *UNITS)


@functools.lru_cache(maxsize=4)
def traced(implementation):
    """As the explorer's page has it: what was traced for one of the two is read by the other."""
    (trace,) = gather_traces([implementation]).traces
    return trace


def is_traced(implementation) -> bool:
    """Whether a test traces the kernel: those of twins on CUDA cores would be compiled for it alone."""
    return is_first(implementation) and (implementation.dialect == "cuda" or implementation.math != "fp32")


of_each_rung = pytest.mark.kernels("each_rung", where=is_traced)


def run(implementation, *observers):
    """A, B and C of ordinary inputs, laid out as those of the trace."""
    problem = kernel.problem_of(implementation)
    a, b = make_inputs(problem)
    a, b = aligned(a), aligned(b) if problem.b_layout == "kn" else aligned(b.t().contiguous()).t()
    a, b = split_operands(a, b, problem.b_layout, problem.math) if problem.math in EMULATED else (a, b)
    with ptx.watched(*observers):
        c = gemm_of(implementation.first_tile)(a, b)
    return *(x.parts.flatten(0, 1) if isinstance(x, Split) else x for x in (a, b)), c


@of_each_rung
def test_every_rung_has_a_trace(implementation):
    trace = traced(implementation)
    text = to_json(trace)
    assert len(text) <= MOST_BYTES
    assert to_json(from_json(text)) == text
    assert (trace.m // trace.owners.shape[0], trace.n // trace.owners.shape[1]) == (2, 2)
    threads = np.prod(trace.launches[0].block)
    held = np.bincount(trace.owners.ravel(), minlength=threads + 1)
    assert held[threads] == 0, "a thread is known for each element of the tile"
    assert len(set(held[held > 0].tolist())) == 1, "each thread that has elements has as many"
    covered = np.zeros((trace.m, trace.n), int)
    for tile in {(tile.row, tile.column, tile.rows, tile.columns) for tile in trace.tiles}:
        covered[tile[0] : tile[0] + tile[2], tile[1] : tile[1] + tile[3]] += 1
    assert (covered == 1).all()
    steps = trace.steps
    kinds = np.array([operation.kind for operation in trace.operations])[steps.operation]
    spaces = np.array([operation.space for operation in trace.operations])[steps.operation]
    writes = np.isin(kinds, ("store", "async store", "bulk load")) & (spaces == "shared")
    assert ((steps.origin != NOWHERE) == writes).all()
    for pattern, origin in zip(steps.pattern[writes], steps.origin[writes], strict=True):
        idle = trace.patterns[pattern] == NOWHERE
        assert (trace.origins[origin][idle] == NOWHERE).all()
    assert 1 <= trace.ring <= implementation.config.NUM_STAGES or not (writes & (steps.slice != NOWHERE)).any()
    later = steps.done != NOWHERE
    assert (steps.done[later] > np.flatnonzero(later)).all()
    placed = all(operation.line for operation in trace.operations)
    says_where = implementation.backend == "cuda" or TRITON >= (3, 9)  # a helper was called from: Triton 3.6 does not
    assert placed or not says_where, "every operation has a line in the rung's own file"
    assert placed != any("which line of the rung" in sentence for sentence in trace.missing)
    slices = trace.k // trace.depth // (2 if implementation.stage.second_kernel else 1)
    assert set(steps.slice[(kinds == "load") | (kinds == "async load") | (kinds == "bulk load")]) >= set(range(slices))


class Loads(ptx.Observer):
    """What the threads of a block load, or have a wgmma read, from shared memory, and the bytes that are there."""

    def __init__(self, block):
        self.block, self.found, self.launches = block, [], 0

    def on_launch(self, *about):
        self.launches += 1

    def on_access(self, access):
        own = access.machine.block_of_lane == self.block
        lanes = own if access.lanes is None else own & access.lanes
        if self.launches == 1 and access.kind == "load" and access.space == "shared" and lanes.any():
            addresses = np.where(lanes, per_lane(access.addresses, access.machine.lanes), NOWHERE)[own]
            self.found.append(
                (addresses, self.bytes_at(access.machine, access.machine.block_index[own][0], addresses, access.size))
            )

    def on_bulk(self, access):
        machine = access.machine
        here = machine.block_of_lane[machine.block_index == access.block][0] == self.block
        if here and access.started and access.instruction.parts[0] == "wgmma":
            self.found.append((access.addresses, self.bytes_at(machine, access.block, access.addresses, access.size)))

    @staticmethod
    def bytes_at(machine, index, addresses, size):
        rows = machine.shared.data.reshape(-1, machine.shared.stride)[index]
        return np.stack([rows[np.maximum(addresses, 0) + byte] for byte in range(size)], axis=1)


def replayed(trace):
    """Of each step that reads shared memory: its addresses, and the ids at their bytes, from the stores before it."""
    held = np.full(trace.launches[0].shared_bytes + 16, NOWHERE)
    steps, waiting = trace.steps, []
    for number, operation in enumerate(trace.operations[i] for i in steps.operation):
        for write in [write for write in waiting if steps.done[write] < number]:
            store(trace, write, held)
            waiting.remove(write)
        if steps.origin[number] != NOWHERE:
            if steps.done[number] == NOWHERE:
                store(trace, number, held)
            else:
                waiting.append(number)
        elif operation.kind in ("load", "operand") and operation.space == "shared":
            places = addresses_of(trace, number)
            yield places, held[np.maximum(places, 0)[:, None] + np.arange(operation.bytes)]


def store(trace, number, held):
    origin = trace.origins[trace.steps.origin[number]]
    size = trace.operations[trace.steps.operation[number]].bytes
    places = addresses_of(trace, number)
    ids = np.where(origin == NOWHERE, NOWHERE, trace.steps.first_id[number] + origin.astype(np.int64))
    ids = np.repeat(ids, size // origin.shape[1], axis=1)
    held[(places[:, None] + np.arange(size))[places != NOWHERE]] = ids[places != NOWHERE]


def addresses_of(trace, number):
    pattern = trace.patterns[trace.steps.pattern[number]].astype(np.int64)
    return np.where(pattern == NOWHERE, NOWHERE, trace.steps.base[number] + pattern)


@of_each_rung
def test_another_run_reads_counts_and_stores_what_the_trace_says(implementation):
    trace = traced(implementation)
    loads, counter, poison = Loads(trace.block), ptx.Counter(), poison_of(trace)
    a, b, c = run(implementation, loads, counter, poison)
    assert_is_read(trace, loads, a, b)
    assert_is_counted(trace, counter)
    assert_is_owned(trace, poison, c)


def assert_is_read(trace, loads, a, b):
    """Each shared load of the block has the trace's addresses, and finds the elements of A and B that it says."""
    flat = np.concatenate([x.contiguous().view(torch.uint8).numpy().reshape(-1, x.itemsize) for x in (a, b)])
    known = total = 0
    for (places, contents), (expected, ids) in zip(loads.found, replayed(trace), strict=True):
        assert np.array_equal(places, expected), "another run has the same addresses"
        of_operands = (ids != NOWHERE) & (ids < len(flat)) & (places != NOWHERE)[:, None]
        byte = np.broadcast_to((places[:, None] + np.arange(ids.shape[1])) % a.itemsize, ids.shape)
        assert (contents[of_operands] == flat[ids[of_operands], byte[of_operands]]).all()
        known, total = known + np.count_nonzero(of_operands), total + ids.size
    assert known > total / 2 or not total


def assert_is_counted(trace, counter):
    """What each line's accesses take is what the reference GPU counts in all blocks, which do the same."""
    counted, shown = {}, {}
    for count in counter.counts():
        if count.launch == 1 and count.space in ("global", "shared"):
            key = (f"{count.file}:{count.line}", count.op, count.space, count.kind)
            taken = (count.sectors,) * 2 if count.space == "global" else (count.wavefronts, count.ideal)
            counted[key] = np.array(taken) + counted.get(key, 0)
    blocks = np.prod(trace.launches[0].grid)
    for number, entry in zip(trace.steps.operation, trace.steps.counts, strict=True):
        if entry != NOWHERE:
            about = trace.operations[number]
            key = (about.place, about.op, about.space, about.kind)
            shown[key] = trace.counts[entry].sum(axis=0).astype(int) * blocks + shown.get(key, 0)
    assert shown.keys() == counted.keys()
    for key, numbers in shown.items():
        assert numbers.tolist() == counted[key].tolist(), key


class Poison(ptx.Observer):
    """Sets all floats in one thread's registers to MAGIC when it has added its last product."""

    def __init__(self, block, thread, products, summing):
        self.block, self.thread, self.left, self.summing = block, thread, products, summing

    def on_instruction(self, instruction, mask, machine):
        lane = np.flatnonzero((machine.block_of_lane == self.block) & (machine.thread_of_lane == self.thread))
        if not lane.size or not machine.lanes_of(mask)[lane[0]]:
            return
        if instruction.parts[0] in self.summing and not {"load", "store", "fence"} & set(instruction.parts[:2]):
            self.left -= "commit_group" not in instruction.parts and "wait_group" not in instruction.parts
        elif self.left == 0 and (instruction.parts[0] in ("st", "stmatrix", "wmma") or instruction.parts[-1] == "f32"):
            self.left = -1
            for slot, value in enumerate(machine.registers):
                if value is not None and value.dtype == np.float32 and value.ndim:
                    machine.registers[slot] = value.copy()
                    machine.registers[slot][lane[0]] = MAGIC


def poison_of(trace):
    """For a thread of the block that is neither its first nor its last."""
    operations = [trace.operations[number] for number in trace.steps.operation]
    thread = int(trace.owners[trace.owners.shape[0] // 3, trace.owners.shape[1] // 5])
    summing = {operation.op.split(".")[0] for operation in operations}.intersection(UNITS) or SUMMING
    products = sum(
        int(times)
        for operation, times, pattern in zip(operations, trace.steps.times, trace.steps.pattern, strict=True)
        if operation.kind == "multiply"
        and operation.op.split(".")[0] in summing
        and trace.patterns[pattern][thread] != NOWHERE
    )
    return Poison(trace.block, thread, products, summing)


def assert_is_owned(trace, poison, c):
    """The registers of the poisoned thread reach the elements that it owns, and no others."""
    rows, columns = trace.owners.shape
    tile = c[trace.row : trace.row + rows, trace.column : trace.column + columns].float().numpy()
    assert np.array_equal(tile > HUGE, trace.owners == poison.thread)


TRANSPOSED = [
    item
    for item in gemm_ref.implementations()
    if item.stage.tma and item.dialect in item.stage.tma.transpose_tf32 and item.math == "tf32"
]


@pytest.mark.parametrize("transposed", TRANSPOSED[:1], ids=str)
def test_a_block_that_computes_the_transpose_owns_one_tile_too(transposed):
    trace = traced(transposed)
    assert len(trace.tiles) == np.prod(trace.launches[0].grid)
    poison = poison_of(trace)
    assert_is_owned(trace, poison, run(transposed, poison)[2])


@pytest.mark.parametrize("math", MATHS)
def test_ids_survive_the_operands_of_every_math_mode(math):
    ids, parts = Ids(Problem(48, 80, 32, math)), MATHS[math].parts
    for matrix, first, size in ((0, 0, parts * 48 * 32), (1, parts * 48 * 32, parts * 32 * 80)):
        contents = []
        for number in range(ids.passes):
            x = ids.operands(number)[matrix]
            x = x.parts if isinstance(x, Split) else x.contiguous()
            if math == "tf32":
                x = x.clone()
                assert torch.equal(x.view(torch.int32) & 0x1FFF, torch.zeros_like(x, dtype=torch.int32))
            contents.append(x.view(torch.uint8).numpy().reshape(-1, x.itemsize))
        assert np.array_equal(ids.origins(contents).ravel(), np.arange(first, first + size))
