"""Arguments of a launch as the host code made them: structs by value, tensor maps and buffers of its own."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from typing import TypeAlias

import torch

from experiments.check.cuda.host_code.recorder import PLACE, RecordedLaunch
from experiments.check.cuda.roles import MATRICES
from experiments.records.request import UsageError
from gemm_ref import ptx
from gemm_ref.compute import ELEMENTS, TMA_TF32

_MARK = b"checked\0"  # how a CUtensorMap of `recorder.cpp` begins
_ENCODED = struct.Struct("<8sQ5Q4Q5H5H5B")
_SWIZZLES = (0, 32, 64, 128)  # by CUtensorMapSwizzle
# By CUtensorMapDataType; of 8 bits it says no more than that they are bytes.
_TYPES = {element.tma_code: element.dtype for element in ELEMENTS.values()}
_TYPES |= {0: torch.uint8, 8: torch.float64, TMA_TF32: torch.float32}
_POINTER = 8  # bytes
_LARGEST = 1 << 28  # bytes of a buffer

Value: TypeAlias = torch.Tensor | ptx.Struct | ptx.TensorMap | int


def places(record: RecordedLaunch) -> dict[int, str]:
    """Returns the matrix at each place that a launch has an address of; the one that is missing is at the one left."""
    known = record.tags
    used = [place for raw in record.arguments for _, place, _ in _pointers(raw, record)]
    missing = [role for role in MATRICES if role not in {known.get(place) for place in used}]
    left = list(dict.fromkeys(place for place in used if place not in known))
    return {**known, **({left[0]: missing[0]} if len(missing) == len(left) == 1 else {})}


def tensor_map_types(record: RecordedLaunch) -> dict[str, torch.dtype]:
    """Returns the types of the matrices that tensor maps describe."""
    found = {}
    for raw in record.arguments:
        if raw.startswith(_MARK):
            kind = _ENCODED.unpack_from(raw)[-5]
            for _, place, _ in _pointers(raw, record):
                found[places(record).get(place, "")] = _TYPES.get(kind, torch.float32)
    return found


def value(raw: bytes, kind: str, given: Mapping[str, torch.Tensor], record: RecordedLaunch) -> Value:
    """Returns one argument for the reference GPU. kind: its type in PTX; given: the matrices by their roles.

    Raises UsageError for a pointer into the middle of a matrix.
    """
    if raw.startswith(_MARK):
        return _tensor_map(raw, given, record)
    found = {at: _tensor(place, offset, given, record) for at, place, offset in _pointers(raw, record)}
    if kind.startswith("b8["):
        words = [(at, "u64", tensor) for at, tensor in found.items()]
        rest = [(at, "u8", raw[at]) for at in range(len(raw)) if at - at % _POINTER not in found]
        known = places(record)
        names = [(at, known.get(place, "a buffer")) for at, place, _ in _pointers(raw, record)]
        return ptx.Struct((*words, *rest), tuple(names))
    return found[0] if 0 in found else int.from_bytes(raw, "little", signed=kind.startswith("s"))


def narrow(value: torch.Tensor | float, kind: str, dtype: torch.dtype) -> torch.Tensor | ptx.Struct | float:
    """Returns a number as the reference GPU takes it: halves, of this dtype, are two bytes by value."""
    if kind != "b8[2]" or isinstance(value, torch.Tensor):
        return value
    half = torch.tensor([value], dtype=dtype if dtype == torch.bfloat16 else torch.float16)
    return ptx.Struct(((0, "b16", half.view(torch.int16).item() & 0xFFFF),))


def _pointers(raw: bytes, record: RecordedLaunch) -> Iterator[tuple[int, int, int]]:
    """Yields (offset in the argument, place, offset from there) of each address of known memory."""
    known = {*record.tags, *record.allocated}
    first, end = (len(_MARK), 2 * _POINTER) if raw.startswith(_MARK) else (0, len(raw) - _POINTER + 1)
    for at in range(first, end, _POINTER):
        place, offset = divmod(int.from_bytes(raw[at : at + _POINTER], "little"), 1 << PLACE)
        if place in known:
            yield at, place, offset


def _tensor(place: int, offset: int, given: Mapping[str, torch.Tensor], record: RecordedLaunch) -> torch.Tensor:
    if matrix := places(record).get(place):
        if offset:
            raise UsageError(
                f"the host code passes a pointer to byte {offset} of {matrix}: only to its first is understood"
            )
        return given[matrix]
    size = record.allocated[place] - offset
    if not 0 < size <= _LARGEST:
        raise UsageError(f"the host code passes a buffer of {size} bytes: there may be {_LARGEST}")
    return torch.zeros(size, dtype=torch.uint8)


def _tensor_map(raw: bytes, given: Mapping[str, torch.Tensor], record: RecordedLaunch) -> ptx.TensorMap:
    _, base, *numbers = _ENCODED.unpack_from(raw)
    place, offset = divmod(base, 1 << PLACE)
    kind, rank, interleave, swizzle, fill = numbers[-5:]
    if interleave or fill:
        raise UsageError(
            "the host code makes a tensor map that is interleaved or filled with NaN: neither is understood"
        )
    sizes, strides, boxes = numbers[:rank], numbers[5 : 5 + rank - 1], numbers[9 : 9 + rank]
    try:
        return ptx.TensorMap(
            _tensor(place, offset, given, record), boxes, _SWIZZLES[swizzle], sizes, strides, to_tf32=kind == TMA_TF32
        )
    except ValueError as error:
        raise UsageError(f"the host code makes a tensor map that the driver refuses: {error}") from error
