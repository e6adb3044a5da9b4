"""A trace: what one block of a kernel touches in the first slices of K, as data, and as JSON.

Everything about a trace that its readers must know is said at these fields. In JSON a dataclass is an object with the
same names, and an array is an object of its own: {"type": "u8", "u16" or "i32", "shape": [...], "delta": true or false,
"data": "..."}. Its data is the base64 of a raw deflate stream of little-endian numbers; with `delta` each entry along
the first axis is the difference to the one before it, modulo 2^(bits of the type).

Steps refer to tables, since a kernel does the same thing again and again: two steps whose lanes stand in the same
places to each other have one pattern, and each its own base.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import numpy as np

from experiments.publish.pages import deflate

NOWHERE = -1  # in a pattern a thread that takes no part; in origins what is no element of A, B or C


@dataclass(frozen=True)
class KernelLaunch:
    """A kernel that was started for the product."""

    kernel: str  # its name in the source
    grid: tuple[int, int, int]  # blocks along x, y and z
    block: tuple[int, int, int]  # threads of a block along x, y and z; x runs fastest in the numbers of threads
    cluster: tuple[int, int, int]  # blocks of a cluster along x, y and z
    shared_bytes: int  # of shared memory that a block has


@dataclass(frozen=True)
class Array:
    """A matrix in global memory, or an array in a block's shared memory.

    Elements of A, B and C have ids: `first_id` + row * columns + column, in the rows and columns of the matrix, however
    it is stored.
    """

    name: str  # A, B, C or partials; in shared memory as the source calls it
    space: str  # global or shared
    offset: int  # bytes from the start of the block's shared memory; 0 in global memory
    bytes: int  # of all of it
    rows: int = 0  # of a matrix; 0 in shared memory
    columns: int = 0
    element_bytes: int = 0
    by_columns: bool = False  # whether the matrix is stored column after column, not row after row
    first_id: int = NOWHERE  # of the element in row 0 and column 0; NOWHERE where its elements have no ids


@dataclass(frozen=True)
class Tile:
    """A part of C, and the block that stores it."""

    block: int  # linear in the grid: x + grid x * (y + grid y * z)
    row: int  # of C
    column: int
    rows: int
    columns: int


@dataclass(frozen=True)
class Operation:
    """What steps have in common that come from one place in the source."""

    line: int  # of the kernel's file: where it is, or the innermost call there that leads to it; 0 where none does
    place: str  # file:line where it is, such as vector.cuh:30
    op: str  # the instruction of the PTX with its modifiers, such as ld.shared.v4.f32
    # load, store, atomic: lanes access memory, now. async load, async store: the two sides of a cp.async, one step
    # behind the other. bulk load, bulk store: the TMA unit copies a box, to and from shared memory. operand: wgmma
    # reads a tile of A or B from shared memory. multiply: arithmetic in registers. barrier: threads wait for each
    # other. mbarrier: it is initialised, arrived at, or waited for. wait: for copies or products under way. commit,
    # fence: as PTX calls them.
    kind: str
    space: str  # global, shared or local; empty where no memory is accessed
    array: str  # the name of an Array; empty where no memory is accessed, or shared memory that has no name
    bytes: int  # of a lane, or of each piece of a bulk copy or operand; 0 where no memory is accessed


@dataclass(frozen=True)
class Steps:
    """What the block does, one step behind the other, in the order in which the reference GPU does it; arrays (steps,).

    A step is one instruction of all threads of the block that execute it together. `pattern`, `counts` and `origin` are
    NOWHERE where a step has none.
    """

    operation: np.ndarray  # number in `Trace.operations`
    slice: np.ndarray  # the slice of K of the elements that it touches, the first of them; NOWHERE for none
    times: np.ndarray  # how often: a run of equal arithmetic is one step
    base: np.ndarray  # bytes from the start of the array (global) or of the block's shared memory
    pattern: np.ndarray  # number in `Trace.patterns`, whose offsets are added to the base
    counts: np.ndarray  # number in `Trace.counts`
    first_id: np.ndarray  # the id to which those of the origin are added
    origin: np.ndarray  # number in `Trace.origins`; for what writes to shared memory: what is there then
    # The step at which what was begun is done: a copy is in shared memory (or earlier, but nobody may rely on it), a
    # bulk store or an operand has been read. NOWHERE for a step that is done at once.
    done: np.ndarray
    thread: np.ndarray  # that issued it, of a bulk copy, or the first of an operand's warpgroup; NOWHERE otherwise
    block: (
        np.ndarray
    )  # linear in the grid, whose thread that is: with clusters another block may fill this one's memory
    mbarrier: np.ndarray  # byte in shared memory of the mbarrier at which a bulk copy completes; NOWHERE otherwise


@dataclass(frozen=True)
class Trace:
    """One kernel of the registry on the reference GPU, in a small problem of whole tiles."""

    stage: str  # its id
    variant: str
    dialect: str
    math: str
    compiler: str  # and its version
    file: str  # that defines the kernel, from the root of the repo
    m: int  # C[m, n] = A[m, k] @ B[k, n]
    n: int
    k: int
    depth: int  # elements of K in a slice
    ring: int  # slices that shared memory holds at a time; 0 where slices are not staged
    launches: tuple[KernelLaunch, ...]  # the steps are those of the first
    block: int  # the one that is shown, linear in the grid
    row: int  # of C: where its tile begins
    column: int
    tiles: tuple[Tile, ...]  # of all blocks
    owners: np.ndarray  # (rows, columns) of the block's tile: the thread, linear in the block, that had the element's
    # sum in its registers; `threads` of the block where that is not known
    arrays: tuple[Array, ...]
    operations: tuple[Operation, ...]
    steps: Steps
    # Each (threads,), or (pieces,) for bulk copies and operands: bytes after the step's base; NOWHERE takes no part.
    patterns: tuple[np.ndarray, ...]
    # (entries, warps, 2): sectors in global memory, twice the same; in shared memory wavefronts, and how many there
    # would be without bank conflicts. 0 for a warp that takes no part.
    counts: np.ndarray
    # Each (threads or pieces, elements of a lane or piece): ids after the step's `first_id`; NOWHERE is no element.
    origins: tuple[np.ndarray, ...]
    missing: tuple[str, ...]  # sentences: what this trace cannot show

    @property
    def name(self) -> str:
        """Of the kernel and of its trace's file: s09_conflict_free-cuda-two_blocks-fp32."""
        return "-".join((self.stage, self.dialect, self.variant, self.math))


def to_json(trace: Trace) -> str:
    """The text of a trace's file, the same for equal traces."""
    return json.dumps(plain(trace, _packed), separators=(",", ":"))


def from_json(text: str) -> Trace:
    """The inverse of `to_json`. Raises ValueError or TypeError for a text that is none of its."""
    found = json.loads(text)
    tables = {name: tuple(map(_unpacked, found[name])) for name in ("patterns", "origins")}
    rows: dict[str, Any] = {"launches": _kernel_launch, "tiles": Tile, "arrays": Array, "operations": Operation}
    lists = {name: tuple(make(**row) for row in found[name]) for name, make in rows.items()}
    steps = Steps(**{name: _unpacked(column) for name, column in found["steps"].items()})
    arrays = {name: _unpacked(found[name]) for name in ("owners", "counts")}
    return Trace(**{**found, **tables, **lists, **arrays, "steps": steps, "missing": tuple(found["missing"])})


def _kernel_launch(**values: Any) -> KernelLaunch:
    lists: dict[str, Any] = {name: tuple(value) for name, value in values.items() if isinstance(value, list)}
    return KernelLaunch(**values | lists)


def plain(value: Any, pack: Callable[[np.ndarray], dict]) -> Any:
    """What JSON can say of a trace or a part of it; `pack` makes an object of an array."""
    if is_dataclass(value):
        return {field.name: plain(getattr(value, field.name), pack) for field in fields(value)}
    if isinstance(value, np.ndarray):
        return pack(value)
    return [plain(item, pack) for item in value] if isinstance(value, tuple) else value


_TYPES: dict[str, np.dtype] = {name: np.dtype(kind) for name, kind in (("u8", "<u1"), ("u16", "<u2"), ("i32", "<i4"))}


def _packed(values: np.ndarray) -> dict:
    low, high = (int(values.min()), int(values.max())) if values.size else (0, 0)
    name = next(name for name, kind in _TYPES.items() if np.iinfo(kind).min <= low and high <= np.iinfo(kind).max)
    whole = values.astype(_TYPES[name])
    texts = [deflate(each.tobytes()) for each in (whole, np.diff(whole, axis=0, prepend=whole[:1] * 0))]
    delta = len(texts[1]) < len(texts[0])
    return {"type": name, "shape": list(values.shape), "delta": delta, "data": texts[delta]}


def _unpacked(packed: dict) -> np.ndarray:
    data = zlib.decompress(base64.b64decode(packed["data"]), -zlib.MAX_WBITS)
    values = np.frombuffer(data, _TYPES[packed["type"]]).reshape(packed["shape"])
    return np.cumsum(values, axis=0, dtype=values.dtype) if packed["delta"] else values
