"""The time of a product in an emulated compute type: its operands are split, and s20's kernel multiplies the parts.

The costs were fitted to 420 published times of s20 on an H200; its tiles have the costs that s19's tiles had then. At
43 other shapes four predictions in five are within 25%. What is chosen there is slower than s14 at one, by 6% (in
CUDA), and takes 0 to 0.7% longer than the faster of both (geometric means).
"""

from __future__ import annotations

import torch

from gemm_ref.choice import Candidate, predict_ns
from gemm_ref.choice.costs import Device
from gemm_ref.choice.work import count_tiles
from gemm_ref.compute import MATHS
from gemm_ref.launch import cdiv
from gemm_ref.operands.split import THREADS, launch_of
from gemm_ref.problem import Problem
from gemm_ref.rung import Rung

# Of a launch that splits an operand: nanoseconds of a block, and of it for each vector of its threads; blocks on a
# multiprocessor; and the share of memory's bandwidth that it reaches.
BLOCK_NS, STEP_NS, RESIDENT, BANDWIDTH_SHARE = 1083, 1227, 4, 0.69
# s20's kernel over what as many slices of s19 take, since it adds outside of the tensor cores; and nanoseconds of a
# multiprocessor for each tile, which Triton's stores before it begins the next.
KERNEL = {
    "cuda": {"fp16x3": (1.30, 0), "bf16x6": (1.47, 0)},
    "triton": {"fp16x3": (1.24, 6680), "bf16x6": (1.22, 7240)},
    "gluon": {"fp16x3": (1.25, 0), "bf16x6": (1.32, 0)},
}


def predict_split_ns(shape: torch.Size, by_rows: bool, math: str, sms: int, device: Device) -> float:
    """Predicted nanoseconds to split a matrix of this shape, whose rows or columns are scaled."""
    launch, mode = launch_of(shape, by_rows, sms), MATHS[math]
    blocks = launch.grid[0]
    steps = cdiv(shape.numel(), 4 * THREADS * blocks)
    part_bytes = mode.dtype.itemsize + mode.parts * mode.part_dtype.itemsize
    memory_ns = shape.numel() * part_bytes / (BANDWIDTH_SHARE * device.bytes_per_ns)
    return max(memory_ns, max(1.0, blocks / (RESIDENT * sms)) * (BLOCK_NS + STEP_NS * steps))


def predict_kernel_ns(
    stage: Rung, dialect: str, candidate: Candidate, problem: Problem, sms: int, device: Device
) -> float:
    """Predicted nanoseconds of s20's kernel, which multiplies operands in parts."""
    slowdown, tile_ns = KERNEL[dialect][problem.math]
    down, right, _ = count_tiles(stage.config(candidate.tile, dialect), problem)
    return slowdown * predict_ns(stage, dialect, candidate, problem, sms, device) + tile_ns * cdiv(down * right, sms)
