"""The instructions of clusters: mapa, getctarank (PTX ISA, 9.7.9) and barrier.cluster (9.7.13.3)."""

from __future__ import annotations

import math

import numpy as np

from gemm_ref.ptx.core.access import REMOTE, rank_of, with_rank
from gemm_ref.ptx.core.decode import Decoder, match_form, require_form
from gemm_ref.ptx.core.machine import Control, Execute, Machine, Mask
from gemm_ref.ptx.core.memory import SHARED_WINDOW
from gemm_ref.ptx.text.dtypes import DTYPES, per_lane
from gemm_ref.ptx.text.errors import MemoryFault, Unsupported
from gemm_ref.ptx.text.parser import Instruction
from gemm_ref.ptx.units.barriers import ClusterBarrier


def map_address(decoder: Decoder, instruction: Instruction) -> Execute:
    """`mapa`: the address of the same place in the shared memory of the block of a given rank."""
    parts = instruction.parts
    match_form(r"mapa(\.shared::cluster)?\.(u32|u64)", instruction)
    dtype = DTYPES[parts[-1]]
    window = 0 if "shared::cluster" in parts else SHARED_WINDOW
    if window and dtype.itemsize < 8:
        raise Unsupported(f"{instruction.origin}: generic addresses have 64 bits here: use mapa.u64")
    write = decoder.destination(instruction.operands[0])
    address = decoder.source(instruction.operands[1], dtype)
    rank = decoder.source(instruction.operands[2], DTYPES["u32"])

    def execute(machine: Machine, mask: Mask) -> None:
        offset, to = address(machine).astype(np.int64) - window, rank(machine).astype(np.int64)
        lanes = machine.access_mask(mask)
        chosen = per_lane(to, machine.lanes)
        if (chosen if lanes is None else chosen[lanes]).max(initial=0) >= math.prod(machine.launch.cluster):
            raise MemoryFault(f"{instruction.origin}: the cluster {machine.launch.cluster} has no block of that rank")
        write(machine, np.asarray(window + with_rank(offset, to)).astype(dtype), mask)

    return execute


def rank_of_address(decoder: Decoder, instruction: Instruction) -> Execute:
    """`getctarank`: the rank of the block in whose shared memory an address is."""
    window = 0 if "shared::cluster" in instruction.parts else SHARED_WINDOW
    dtype = DTYPES["u64"] if window else DTYPES[instruction.parts[-1]]
    write, read = decoder.destination(instruction.operands[0]), decoder.source(instruction.operands[1], dtype)

    def execute(machine: Machine, mask: Mask) -> None:
        offset = read(machine).astype(np.int64) - window
        own = machine.special("%cluster_ctarank").astype(np.int64)
        write(machine, np.where(offset < REMOTE, own, rank_of(offset)).astype(np.uint32), mask)

    return execute


def cluster_barrier(decoder: Decoder, instruction: Instruction) -> Control:
    """`barrier.cluster.arrive` and `.wait`: the threads of all blocks of a cluster meet."""
    parts = set(instruction.parts[2:])
    arrives = "arrive" in parts
    known = {"arrive", "wait", "release", "relaxed", "acquire", "aligned"}
    require_form(parts <= known and bool(parts & {"arrive", "wait"}), instruction)

    def step(machine: Machine, mask: Mask, place: int) -> int:
        lanes, barrier = machine.lanes_of(mask), machine.unit(ClusterBarrier)
        if not arrives:
            return barrier.wait(instruction, lanes, place + 1)
        barrier.arrive(instruction, lanes)
        return place + 1

    return Control(step)
