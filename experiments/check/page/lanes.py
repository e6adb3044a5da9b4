"""One request of a warp as a picture: its lanes against the banks of shared memory, or the sectors that they touch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from experiments.check.report import Line, Request
from gemm_ref.ptx.count.banks import BANKS, WORD, turns
from gemm_ref.ptx.count.requests import joins
from gemm_ref.ptx.count.sectors import SECTOR, WARP

WIDE, HIGH = 440, 9  # of the picture, and of a lane's row
SIDE, HEAD = 44, 18  # beside the rows for the lanes' numbers, and above the columns for theirs


@dataclass(frozen=True)
class Box:
    """What one lane asks of one bank or sector."""

    x: float
    y: float
    wide: float
    share: float  # of a wavefront: from 0, the first, to 1, the last
    title: str


@dataclass(frozen=True)
class Picture:
    """What is drawn, and the sentence below it."""

    columns: str  # what they are
    labels: tuple[tuple[float, str], ...]  # x, text
    gaps: tuple[float, ...]  # where neighbours in the picture are none in memory
    boxes: tuple[Box, ...]
    high: int
    says: str
    touched: tuple[tuple[float, float], ...] = ()  # corners of the sectors that a lane has something of
    wide: float = 0.0  # of a column


def picture(line: Line) -> Picture | None:
    """The request of a line; None where none was kept."""
    if line.request is None or not any(at is not None for at in line.request.offsets):
        return None
    return _banks(line, line.request) if line.space == "shared" else _sectors(line.request)


def _banks(line: Line, request: Request) -> Picture:
    active = np.array([at is not None for at in request.offsets])
    addresses = np.array([at or 0 for at in request.offsets])
    served = turns(addresses, active, request.bytes, joins(request.op, line.kind, request.bytes))
    last = max(wavefront for _, _, wavefront in served)
    wide = (WIDE - SIDE) / BANKS
    boxes = tuple(
        Box(
            SIDE + word % BANKS * wide,
            HEAD + lane * HIGH,
            wide,
            wavefront / max(last, 1),
            f"lane {lane}: byte {word * WORD}, bank {word % BANKS}, wavefront {wavefront + 1}",
        )
        for lane, word, wavefront in served
    )
    banks, words = ({word % size for _, word, _ in served} for size in (BANKS, 1 << 62))
    says = (
        f"{_count(int(active.sum()), 'lane')} ask {_count(len(banks), 'bank')} for {_count(len(words), 'word')} of 4 "
        f"bytes, which {_take(len(words))} {_count(last + 1, 'wavefront')}."
    )
    labels = tuple((SIDE + (bank + 0.5) * wide, str(bank)) for bank in range(0, BANKS, 4))
    return Picture("bank", labels, (), boxes, HEAD + WARP * HIGH, says)


def _sectors(request: Request) -> Picture:
    lanes = [(lane, at) for lane, at in enumerate(request.offsets) if at is not None]
    sectors = sorted({at // SECTOR for _, at in lanes})
    wide = (WIDE - SIDE) / max(len(sectors), 8)
    boxes = tuple(
        Box(
            SIDE + (sectors.index(at // SECTOR) + at % SECTOR / SECTOR) * wide,
            HEAD + lane * HIGH,
            max(request.bytes / SECTOR * wide, 2),
            0,
            f"lane {lane}: bytes {at} to {at + request.bytes - 1}, sector {at // SECTOR}",
        )
        for lane, at in lanes
    )
    used = len({at + byte for _, at in lanes for byte in range(request.bytes)})
    says = (
        f"{_count(len(lanes), 'lane')} touch {_count(len(sectors), 'sector')}, of whose {SECTOR * len(sectors)} bytes "
        f"they use {used}."
    )
    every = -(-len(sectors) // 8)
    labels = tuple((SIDE + (at + 0.5) * wide, str(sectors[at])) for at in range(0, len(sectors), every))
    touched = tuple((SIDE + sectors.index(at // SECTOR) * wide, HEAD + lane * HIGH) for lane, at in lanes)
    return Picture("sector", labels, _gaps(sectors, wide), boxes, HEAD + WARP * HIGH, says, touched, wide)


def _gaps(sectors: Sequence[int], wide: float) -> tuple[float, ...]:
    return tuple(SIDE + at * wide for at in range(1, len(sectors)) if sectors[at] != sectors[at - 1] + 1)


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"


def _take(number: int) -> str:
    return "takes" if number == 1 else "take"
