"""A GPU as the clock sees it. gpus.toml has each constant with its source and date; clocks are a multiprocessor's."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any


@dataclass(frozen=True)
class Gpu:
    """The constants of one card.

    The mappings from `latency` on are tables of the study `latencies`, by SASS opcode, of a card with the same chip;
    their entries are described in its latencies.csv. What concerns L2 and device memory as a whole is in `roof`.
    """

    name: str  # as the driver says it
    multiprocessors: int
    max_sm_clock_mhz: int
    l2_bytes: int
    memory_bytes: int
    power_limit_w: float
    idle_power_w: float  # the least that was seen with nothing running
    roof: Mapping[str, float]  # what `roofs` reached: TFLOP/s (`fma`, `wgmma_bf16`) and TB/s (`dram_read`, `l2_read`)
    roof_mhz: Mapping[str, float]  # the multiprocessors' clock meanwhile, which power may have held down
    latency: Mapping[str, float]  # clocks until the result is read; of a copy, until it is waited for
    interval: Mapping[str, float]  # clocks of a scheduler from one warp's instruction to the next one's
    pair: Mapping[str, float]  # and from one pair of two opcodes to the next, which shows what shares a pipe
    request: Mapping[str, float]  # clocks of a multiprocessor for one warp's instruction, where 16 warps issue them
    alone: Mapping[str, float]  # and where one warp does
    release: Mapping[str, float]  # clocks until the operands have been read
    bandwidth: Mapping[
        str, float
    ]  # bytes a clock of each multiprocessor where all are busy; `same`: with the same lines
    bandwidth_alone: Mapping[str, float]  # bytes a clock of a multiprocessor where no other is busy
    atomics: Mapping[str, float]  # operations a clock of each multiprocessor
    wgmma: Mapping[str, float]  # clocks of a multiprocessor for one instruction: `bf16 n64 shared`, by where A is
    barrier: Mapping[str, float]  # clocks of __syncthreads, by warps of the block
    launch: Mapping[
        str, float
    ]  # `empty` and `gap` in microseconds; `block` and `turnover` in clocks of a multiprocessor
    sources: Mapping[str, str]  # of each field: which measurement or document, and its date


@functools.cache
def cards() -> Mapping[str, Any]:
    """What gpus.toml says of each card, by the name of its folder of results."""
    return tomllib.loads(Path(__file__).with_name("gpus.toml").read_text(encoding="utf-8"))


@functools.cache
def read(name: str) -> Gpu:
    """The GPU of this name: `nvidia-h200`, or a part of it that no other card's name has (`h200`).

    Raises ValueError, with the names that are known, for another.
    """
    found = [card for card in cards() if name.lower() in card]
    if len(found) != 1:
        raise ValueError(f"{name!r} is not one of the GPUs with known constants: {', '.join(cards())}")
    card = cards()[found[0]]
    roofs, latencies = card["roofs"], card["latencies"]
    tables = cards()[latencies["of"]]["latencies"] if "of" in latencies else latencies
    measured = {"roof": roofs["value"], "roof_mhz": roofs["sm_mhz"]}
    measured |= {key: entries for key, entries in tables.items() if isinstance(entries, list)}
    facts = {key: fact for key, fact in card.items() if isinstance(fact, dict) and key not in ("roofs", "latencies")}
    origins = {**facts, **dict.fromkeys(measured, latencies), "roof": roofs, "roof_mhz": roofs}
    values: dict[str, Any] = {key: fact["value"] for key, fact in facts.items()}
    values |= {key: MappingProxyType(dict(entries)) for key, entries in measured.items()}
    sources = {key: f"{origin['source']}, {origin['date']}" for key, origin in origins.items()}
    return Gpu(name=card["name"], **values, sources=MappingProxyType(sources))
