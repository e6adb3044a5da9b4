"""`cp.async` and its groups (PTX ISA, 9.7.9.25): copies that land at the wait and not before."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from gemm_ref.ptx.core.access import Accessor, Piece, gather, scatter
from gemm_ref.ptx.core.decode import Decoder, Execute, Read
from gemm_ref.ptx.core.events import Access
from gemm_ref.ptx.text.dtypes import DTYPES, Value, per_lane
from gemm_ref.ptx.text.errors import ParseError, Unsupported
from gemm_ref.ptx.text.parser import Address, Instruction


@dataclass
class PendingCopy:
    """A cp.async that was issued: it lands when its lanes wait for its group."""

    access: Access | None  # for observers, where there are any
    place: Piece
    words: list[Value]
    lanes: np.ndarray | None
    group: Value  # number of the lane's cp.async group it belongs to


def async_copy(decoder: Decoder, instruction: Instruction) -> Execute:
    """`cp.async`: 4, 8 or 16 bytes from global to shared memory, landing at the wait and not before.

    With a source size below the copy's, the rest is filled with zeros and is not read.
    """
    parts = instruction.parts
    if "commit_group" in parts:
        return _commit
    if "wait_all" in parts:
        return lambda machine, mask: (_commit(machine, mask), _wait(machine, mask, 0))
    if "wait_group" in parts:
        keep = instruction.operands[0].value
        return lambda machine, mask: _wait(machine, mask, keep)
    if parts[2] not in ("ca", "cg") or "mbarrier" in parts:
        raise Unsupported(f"{instruction.place}: the reference GPU has no {instruction.name}")
    to, source, bytes_ = instruction.operands[:3]
    size = bytes_.value
    hinted = "L2::cache_hint" in parts
    extra = instruction.operands[3 : len(instruction.operands) - hinted]
    target = Accessor(decoder, instruction, to, "shared", size, 4)
    if size not in (4, 8, 16) or (parts[2] == "cg" and size != 16):
        raise ParseError(f"{instruction.place}: cp.async.{parts[2]} copies no {size} bytes")
    single = [
        Accessor(decoder, instruction, Address(source.base, source.offset + byte), "global", 1, 1)
        for byte in range(size)
    ]
    whole = Accessor(decoder, instruction, source, "global", size, 4)
    read_size: Read | None = decoder.source(extra[0], DTYPES["u32"]) if extra else None

    def padded(machine, mask: np.ndarray | None, wanted: np.ndarray) -> list[np.ndarray]:
        """The words of lanes that read `wanted` bytes: at once where that is all of them, else byte by byte."""
        here = machine.access_mask(mask)
        here = np.ones(machine.lanes, bool) if here is None else here
        full, partly = here & (wanted >= size), here & (wanted < size)
        pieces = whole.locate(machine, full, "load")
        values = [np.zeros(machine.lanes, np.uint32) for _ in range(size // 4)]
        if pieces:
            values = [np.where(full, gather(pieces, DTYPES["u32"], word), np.uint32(0)) for word in range(size // 4)]
        for byte in range(int(wanted[partly].max(initial=0))):
            lanes = partly & (wanted > byte)
            found = gather(single[byte].locate(machine, lanes, "load"), DTYPES["u8"], 0).astype(np.uint32)
            values[byte // 4] |= np.where(lanes, found << np.uint32(8 * (byte % 4)), np.uint32(0))
        return values

    def execute(machine, mask: np.ndarray | None) -> None:
        places = target.locate(machine, mask, "async store")
        wanted = None if read_size is None else read_size(machine)
        if wanted is None or (wanted.ndim == 0 and wanted >= size):
            pieces = whole.locate(machine, mask, "load")
            values = [gather(pieces, DTYPES["u32"], word) for word in range(size // 4)] if pieces else []
        else:
            values = padded(machine, mask, per_lane(wanted, machine.lanes))
        for piece in places:
            access = target.access(machine, "async store", piece.lanes) if machine.observers else None
            machine.pending.append(PendingCopy(access, piece, values, piece.lanes, machine.groups))

    return execute


def _commit(machine, mask: np.ndarray | None) -> None:
    machine.groups = machine.groups + 1 if mask is None else machine.groups + mask


def _wait(machine, mask: np.ndarray | None, keep: int) -> None:
    """Land the copies of all but the latest `keep` groups of each waiting lane."""
    still = []
    for copy in machine.pending:
        done = np.asarray(copy.group < machine.groups - keep)
        if mask is not None:
            done = done & mask
        if copy.lanes is not None:
            done = done & copy.lanes
        if done.any():
            lanes = None if done.all() else per_lane(done, machine.lanes)
            for observer in machine.observers:
                observer.on_landing(replace(copy.access, lanes=lanes))
            for word, value in enumerate(copy.words):
                scatter(copy.place.view(4, word), copy.place.index, value, lanes)
        if not done.all():
            rest = per_lane(~done, machine.lanes)
            copy.lanes = rest if copy.lanes is None else copy.lanes & rest
            if copy.lanes.any():
                still.append(copy)
    machine.pending = still
