"""What the vendor says a GPU reaches, and what the device's own properties allow at its highest clock."""

from __future__ import annotations

import functools
import tomllib
from dataclasses import dataclass
from pathlib import Path

from gemm_ref.compute import MATHS, NATIVE

FIGURES = (*NATIVE, "dram")

# The CUDA C++ Programming Guide, 'Throughput of Native Arithmetic Instructions': fp32 FMAs a clock, by capability.
FMAS_PER_CLOCK = {(7, 0): 64, (7, 5): 64, (8, 0): 64} | dict.fromkeys([(8, 6), (8, 9), (9, 0), (10, 0), (12, 0)], 128)
# From the whitepapers of the A100 and the H100, peak over multiprocessors and clock: 16-bit FLOP per clock. GPUs of
# one capability differ in this where it is not listed (an L40S has twice an RTX 4090's).
TENSOR_FLOP_PER_CLOCK = {(8, 0): 2048, (9, 0): 4096}
L1_BYTES_PER_CLOCK = 128  # a multiprocessor's L1 and shared memory: 32 banks of 4 bytes; and a warp's widest wavefront


@dataclass(frozen=True)
class Datasheet:
    """A vendor's figures, by the names of FIGURES: TFLOP/s dense, by arithmetic, and TB/s of device memory."""

    source: str
    figures: dict[str, float]


@functools.cache
def _entries() -> dict[str, Datasheet]:
    entries = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))["gpu"]
    return {
        name: Datasheet(entry["source"], {key: entry[key] for key in FIGURES if key in entry})
        for entry in entries
        for name in entry["names"]
    }


def find(device: str) -> Datasheet | None:
    """The figures of the GPU with exactly this name (an `H200 NVL` is no `H200`); None for an unknown one."""
    return _entries().get(device)


def by_clock(figure: str, gpu: dict) -> float | None:
    """What multiprocessors and highest clock allow of a figure, or of the L1 cache (`l1`); None where one is unknown.

    gpu: as in environment.json. TFLOP/s or TB/s.
    """
    if not gpu.get("max_sm_clock_mhz"):
        return None
    major, minor = gpu["capability"].split(".")
    capability = (int(major), int(minor))
    a_clock: float
    if figure == "fp32":
        a_clock = 2 * FMAS_PER_CLOCK.get(capability, 0)
    elif figure == "l1":
        a_clock = L1_BYTES_PER_CLOCK
    else:
        a_clock = (MATHS[figure].tensor_rate if figure in MATHS else 0.0) * TENSOR_FLOP_PER_CLOCK.get(capability, 0)
    return gpu["multiprocessors"] * gpu["max_sm_clock_mhz"] * 1e6 * a_clock / 1e12 or None
