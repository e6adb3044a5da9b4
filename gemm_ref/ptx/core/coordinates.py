"""Linear numbers of threads, blocks and clusters, their coordinates, and the special registers that tell of them.

PTX ISA, chapter 10. x runs fastest: the order in which threads form warps, and blocks their ranks in a cluster.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from gemm_ref.launch import REFERENCE_SMS, Launch
from gemm_ref.ptx.core.lanes import Lanes, coordinates
from gemm_ref.ptx.text.dtypes import Value

MAX_BLOCKS = 16  # of a cluster, the size that is not portable
_CLUSTER = ("cluster_ctaid", "cluster_nctaid", "clusterid", "nclusterid")
SPECIAL_REGISTERS = {f"%{name}.{axis}" for name in ("tid", "ntid", "ctaid", "nctaid", *_CLUSTER) for axis in "xyz"}
SPECIAL_REGISTERS |= {"%laneid", "%warpid", "%nwarpid", "%dynamic_smem_size", "%total_smem_size"}
SPECIAL_REGISTERS |= {"%cluster_ctarank", "%cluster_nctarank", "%is_explicit_cluster"}
CLOCKS = {"%clock", "%clock_hi", "%clock64", "%globaltimer", "%globaltimer_lo", "%globaltimer_hi"}
ENVIRONMENT = "%envreg"  # 1 and 2 hold the address of what the blocks of a grid meet at
SPECIAL_REGISTERS |= CLOCKS | {"%smid", "%nsmid", "%warpsize", "%gridid", f"{ENVIRONMENT}1", f"{ENVIRONMENT}2"}
SPECIAL_REGISTERS |= {f"%lanemask_{order}" for order in ("eq", "lt", "le", "gt", "ge")}


def check_shape(launch: Launch) -> None:
    """Raise ValueError unless the grid is made of whole clusters of at most MAX_BLOCKS blocks."""
    if min(launch.cluster) < 1 or math.prod(launch.cluster) > MAX_BLOCKS:
        raise ValueError(f"a cluster has 1 to {MAX_BLOCKS} blocks, not {launch.cluster}")
    if any(blocks % size for blocks, size in zip(launch.grid, launch.cluster, strict=True)):
        raise ValueError(f"a grid of {launch.grid} blocks does not divide into clusters of {launch.cluster}")


def block_order(launch: Launch) -> np.ndarray:
    """The linear numbers of all blocks, cluster after cluster and in the order of their ranks in each."""
    linear = np.arange(math.prod(launch.grid))
    if math.prod(launch.cluster) == 1:
        return linear
    inner, outer = _in_cluster(launch, linear)
    clusters = [blocks // size for blocks, size in zip(launch.grid, launch.cluster, strict=True)]
    rank = _linear(inner, launch.cluster)
    return np.argsort(_linear(outer, clusters) * math.prod(launch.cluster) + rank)


def special(machine: Lanes, name: str) -> Value:
    """The value of a special register of SPECIAL_REGISTERS, as one number where all lanes agree."""
    launch, thread = machine.launch, machine.thread_of_lane
    register, _, axis = name[1:].partition(".")
    if register.startswith(("cluster", "ncluster", "is_explicit")):
        values = np.asarray(_of_cluster(launch, machine.block_of_lane, register, axis))
        return _joined(values.astype(bool if register == "is_explicit_cluster" else np.uint32))
    if axis:
        extent = launch.block if register in ("tid", "ntid") else launch.grid
        if register in ("ntid", "nctaid"):
            return np.uint32(extent["xyz".index(axis)])
        linear = thread if register == "tid" else machine.block_of_lane
        return _joined(coordinates(linear, extent)["xyz".index(axis)].astype(np.uint32))
    lane = (thread % 32).astype(np.uint32)
    if register.startswith("lanemask"):
        one = np.uint32(1) << lane
        below = one - np.uint32(1)
        return {"eq": one, "lt": below, "le": below | one, "gt": ~(below | one), "ge": ~below}[register[-2:]]
    return {
        "smid": _joined((machine.block_of_lane % REFERENCE_SMS).astype(np.uint32)),
        "nsmid": np.uint32(REFERENCE_SMS),
        "warpsize": np.uint32(32),
        "gridid": np.uint64(0),
        "laneid": lane,
        "warpid": (thread // 32).astype(np.uint32),
        "nwarpid": np.uint32(launch.num_warps),
        "dynamic_smem_size": np.uint32(launch.shared_bytes),
        "total_smem_size": np.uint32(machine.shared.size),
    }[register]


def clock(name: str, executed: int) -> Value:
    """A clock: it counts the instructions that the machine has executed, since time is not modelled."""
    value = executed >> 32 if name.endswith("_hi") else executed
    return np.uint64(value) if name in ("%clock64", "%globaltimer") else np.uint32(value & 0xFFFFFFFF)


def _joined(values: np.ndarray) -> Value:
    return values[()] if values.ndim == 0 else values[0] if (values == values[0]).all() else values


def _of_cluster(launch: Launch, block_of_lane: np.ndarray, register: str, axis: str) -> np.ndarray | int:
    if register == "is_explicit_cluster":
        return np.full(block_of_lane.size, math.prod(launch.cluster) > 1)
    if register == "cluster_nctarank":
        return math.prod(launch.cluster)
    inner, outer = _in_cluster(launch, block_of_lane)
    if register == "cluster_ctarank":
        return _linear(inner, launch.cluster)
    which = "xyz".index(axis)
    found: dict[str, np.ndarray | int] = {
        "cluster_ctaid": inner[which],
        "cluster_nctaid": launch.cluster[which],
        "clusterid": outer[which],
        "nclusterid": launch.grid[which] // launch.cluster[which],
    }
    return found[register]


def _in_cluster(launch: Launch, linear: np.ndarray) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """x, y, z of each block in its cluster, and of its cluster in the grid."""
    places = coordinates(linear, launch.grid)
    inner = [place % size for place, size in zip(places, launch.cluster, strict=True)]
    return inner, [place // size for place, size in zip(places, launch.cluster, strict=True)]


def _linear(places: list[np.ndarray], extent: Sequence[int]) -> np.ndarray:
    return places[0] + extent[0] * (places[1] + extent[1] * places[2])
