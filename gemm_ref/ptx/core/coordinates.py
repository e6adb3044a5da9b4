"""Special registers (PTX ISA, chapter 10), and the order of blocks and clusters in a grid.

x is the fastest dimension: threads form warps in that order, and blocks have their ranks in a cluster in that order.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from gemm_ref.launch import REFERENCE_SMS, Launch
from gemm_ref.ptx.core.lanes import Lanes, coordinates
from gemm_ref.ptx.text.dtypes import Value

MAX_BLOCKS = 16  # of a cluster: the largest size, which is not portable
_CLUSTER = ("cluster_ctaid", "cluster_nctaid", "clusterid", "nclusterid")
SPECIAL_REGISTERS = {f"%{name}.{axis}" for name in ("tid", "ntid", "ctaid", "nctaid", *_CLUSTER) for axis in "xyz"}
SPECIAL_REGISTERS |= {"%laneid", "%warpid", "%nwarpid", "%dynamic_smem_size", "%total_smem_size"}
SPECIAL_REGISTERS |= {"%cluster_ctarank", "%cluster_nctarank", "%is_explicit_cluster"}
CLOCKS = {"%clock", "%clock_hi", "%clock64", "%globaltimer", "%globaltimer_lo", "%globaltimer_hi"}
ENVIRONMENT = "%envreg"  # 1 and 2 hold the address of the barrier of a grid
SPECIAL_REGISTERS |= CLOCKS | {"%smid", "%nsmid", "%warpsize", "%gridid", f"{ENVIRONMENT}1", f"{ENVIRONMENT}2"}
SPECIAL_REGISTERS |= {f"%lanemask_{order}" for order in ("eq", "lt", "le", "gt", "ge")}


def check_shape(launch: Launch) -> None:
    """Raise ValueError unless the grid consists of complete clusters of at most MAX_BLOCKS blocks."""
    if min(launch.cluster) < 1 or math.prod(launch.cluster) > MAX_BLOCKS:
        raise ValueError(f"a cluster has 1 to {MAX_BLOCKS} blocks, not {launch.cluster}")
    if any(blocks % size for blocks, size in zip(launch.grid, launch.cluster, strict=True)):
        raise ValueError(f"a grid of {launch.grid} blocks does not divide into clusters of {launch.cluster}")


def block_order(launch: Launch) -> np.ndarray:
    """Return the linear numbers of all blocks, cluster after cluster and by rank within each."""
    linear = np.arange(math.prod(launch.grid))
    if math.prod(launch.cluster) == 1:
        return linear
    inner, outer = _in_cluster(launch, linear)
    rank = _linear(inner, launch.cluster)
    return np.argsort(_linear(outer, _clusters(launch)) * math.prod(launch.cluster) + rank)


def special(machine: Lanes, name: str) -> Value:
    """Return the value of a special register of SPECIAL_REGISTERS, as one number where all lanes agree."""
    register, _, axis = name[1:].partition(".")
    values = _lane_masks(machine)[register[-2:]] if register.startswith("lanemask") else _identity(machine, register)
    value = np.asarray(values["xyz".index(axis)] if axis else values)
    kind = {"is_explicit_cluster": np.bool_, "gridid": np.uint64}.get(register, np.uint32)
    agree = register not in ("laneid", "warpid") and "lanemask" not in register and (value == value.flat[0]).all()
    return (value.flat[0] if agree else value).astype(kind)


def _lane_masks(machine: Lanes) -> dict[str, np.ndarray]:
    one = np.uint32(1) << (machine.thread_of_lane % 32).astype(np.uint32)
    below = one - np.uint32(1)
    return {"eq": one, "lt": below, "le": below | one, "gt": ~(below | one), "ge": ~below}


def _identity(machine: Lanes, register: str):
    """Return a register that says who the lanes are, or how large the launch is; with an axis, x, y and z of it."""
    launch, block, thread = machine.launch, machine.block_of_lane, machine.thread_of_lane
    sizes = {
        "ntid": launch.block,
        "nctaid": launch.grid,
        "cluster_nctaid": launch.cluster,
        "nclusterid": _clusters(launch),
        "cluster_nctarank": math.prod(launch.cluster),
        "is_explicit_cluster": math.prod(launch.cluster) > 1,
        "nsmid": REFERENCE_SMS,
        "warpsize": 32,
        "gridid": 0,
        "nwarpid": launch.num_warps,
        "dynamic_smem_size": launch.shared_bytes,
        "total_smem_size": machine.shared.size,
    }
    if register in sizes:
        return sizes[register]
    if "cluster" in register:
        inner, outer = _in_cluster(launch, block)
        ranks = _linear(inner, launch.cluster)
        return {"cluster_ctaid": inner, "clusterid": outer, "cluster_ctarank": ranks}[register]
    return {
        "tid": coordinates(thread, launch.block),
        "ctaid": coordinates(block, launch.grid),
        "smid": block % REFERENCE_SMS,
        "laneid": thread % 32,
        "warpid": thread // 32,
    }[register]


def clock(name: str, executed: int) -> Value:
    """Return a clock, which counts the executed instructions, since time is not modelled."""
    value = executed >> 32 if name.endswith("_hi") else executed
    return np.uint64(value) if name in ("%clock64", "%globaltimer") else np.uint32(value & 0xFFFFFFFF)


def _clusters(launch: Launch) -> list[int]:
    """Return the size of the grid in clusters."""
    return [blocks // size for blocks, size in zip(launch.grid, launch.cluster, strict=True)]


def _in_cluster(launch: Launch, linear: np.ndarray) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Return x, y and z of each block in its cluster, and of its cluster in the grid."""
    places = coordinates(linear, launch.grid)
    inner = [place % size for place, size in zip(places, launch.cluster, strict=True)]
    return inner, [place // size for place, size in zip(places, launch.cluster, strict=True)]


def _linear(places: list[np.ndarray], extent: Sequence[int]) -> np.ndarray:
    return places[0] + extent[0] * (places[1] + extent[1] * places[2])
