"""Runs host code up to its launches, which `recorder.cpp` records, and passes their arguments to the reference GPU.

Sizes that a program sets itself, `int m = 4096;` or `#define N 4096`, are replaced by ours where there are any. A main
that exits early, because a file with its matrices is missing, can be made to continue, with our sizes as well.
"""

from __future__ import annotations

import functools
import re
import struct
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

import torch

from cuda_kernels.tensor_map import encode
from experiments.check import cage
from experiments.check.cuda.compile import Unit, compile_with_repairs
from experiments.check.cuda.host_code import calls
from experiments.check.cuda.host_code.compiled import compile_object
from experiments.check.cuda.launch import as_axes
from experiments.check.cuda.parameters import MATRICES, PLACES
from experiments.check.cuda.streams import Order
from experiments.check.subject import FEW_MULTIPROCESSORS
from experiments.records.request import UsageError
from gemm_ref import ptx
from gemm_ref.build import CACHE, BuildError, cached, digest, find_cxx, run_compiler, version_of
from gemm_ref.compute import ELEMENTS, TMA_TF32
from gemm_ref.inputs import LINE
from gemm_ref.launch import Launch
from gemm_ref.toolchain import REFERENCE_CAPABILITY, architecture, find_toolkit

PLACE = 40  # A, B, C and D are at 65, 66, 67 and 68 << PLACE, what the program allocates is at further multiples
_FIRST_PLACE = 65
_SOURCE = Path(__file__).resolve().parent / "recorder.cpp"
_UNDEFINED = re.compile(r"undefined reference to [`']([\w.$]+)'")
_PARAMETER = re.compile(r"\.param\s+(?:\.align\s+\d+\s+)?\.(\w+)\s+(?:\.ptr\s[^,\[]*)?\w+(?:\[(\d+)\])?")
_SECONDS = 15

_DECLARATIONS = """double checked_number(int which);
static inline double checked_size(int which, double own) { return checked_number(which) ? checked_number(which) : own; }
"""
# A compiler's message that may be due to sizes that are no longer constants
_BY_REPLACED_SIZES = re.compile(r"checked_(?:number|size)|constant|initializ|template argument|in device code")


@dataclass(frozen=True)
class RecordedLaunch:
    entry: str  # the kernel's name in PTX
    launch: Launch
    arguments: tuple[bytes, ...]
    tags: Mapping[int, str]  # the matrix that an allocation holds or is copied to, by its place
    allocated: Mapping[int, int]  # bytes, by place
    filled: Mapping[int, tuple[int, int]]  # by place: the byte of its last memset, and the length of that
    copied: frozenset[int]  # the places that something was copied to
    unknown_bytes: int  # that the host has read of device memory of which nothing says what it holds
    after: frozenset[int]  # the indices of the earlier launches that have ended for certain
    others: Mapping[str, set[int]]  # other kernels that the host code launches, with what they are passed, as integers
    more: tuple[RecordedLaunch, ...] = ()  # the next ones, with the same matrices and other arguments
    then: tuple[RecordedLaunch, ...] = ()  # those of other kernels behind them, which read what it stored in a buffer

    @property
    def pointed(self) -> list[int]:
        """The places that the arguments point to."""
        return [place for raw in self.arguments for _, place, _ in _pointers(raw, self)]

    def with_roles(self, roles: Sequence[str]) -> RecordedLaunch:
        """Returns the launch, and the next ones, with the matrices where those parameters of the first one point."""
        pairs = zip(roles, self.arguments, strict=True)
        found = {int.from_bytes(raw, "little") >> PLACE: role for role, raw in pairs if role in PLACES}
        tags = {**self.tags, **found}
        more, then = (tuple(replace(each, tags=tags) for each in launches) for launches in (self.more, self.then))
        return replace(self, tags=tags, more=more, then=then)

    def others_with_c(self) -> list[str]:
        """Returns the other kernels that are passed C, by their names in PTX."""
        where = {place for place, matrix in places(self).items() if matrix == "C" and place in self.pointed}
        followed = {each.entry for each in self.then}
        passed = {name: {value >> PLACE for value in values} for name, values in self.others.items()}
        return [name for name, values in passed.items() if where & values and name not in followed]

    def is_followed_by(self, other: RecordedLaunch) -> bool:
        """Whether `other`, of another kernel, is passed C and a buffer that this launch is passed, such as its sums."""
        shared, matrices = {*self.pointed} & {*other.pointed}, places(self)
        return "C" in map(matrices.get, other.pointed) and any(place not in matrices for place in shared)

    def bytes_of(self, roles: Sequence[str]) -> dict[str, int]:
        """The bytes of the allocations that parameters point to, by their roles."""
        pairs = (
            (role, int.from_bytes(raw, "little") >> PLACE) for role, raw in zip(roles, self.arguments, strict=True)
        )
        return {role: self.allocated[place] for role, place in pairs if role and place in self.allocated}

    def has_zeroed_c(self, bytes_: int) -> bool:
        """Whether the host has filled C with zeros; bytes_: the size of a C that it has not allocated itself."""
        where = [place for place, matrix in places(self).items() if matrix == "C" and place in self.pointed]
        filled = [(self.filled.get(place, (1, 0)), self.allocated.get(place, bytes_)) for place in where]
        return bool(filled) and all(value == 0 and length >= size for (value, length), size in filled)


@dataclass(frozen=True)
class Program:
    """A compiled file whose host code can be run; `ptx` has every kernel that it launches."""

    name: str  # of the file
    ptx: str
    path: Path
    sizes: str  # a line for each of the entries: its name and the bytes of its parameters
    entries: tuple[str, ...]  # the kernel's, one for each instance
    small_gpu: bool = False  # the GPU has little shared memory
    ignores_exit: bool = False  # its main continues where it would exit with an error
    multiprocessors: int = FEW_MULTIPROCESSORS  # of the GPU

    def run(self, call: int, m: int, n: int, k: int, alpha: float, beta: float, end: str) -> list[RecordedLaunch]:
        """Returns the kernel's launches by one call; end: the first of the flags of `recorder.cpp`."""
        scratch = self.path.parent.parent / "scratch"
        scratch.mkdir(exist_ok=True)
        numbers = [str(number) for number in (call, m, n, k, alpha, beta)]
        flags = f"{end}{int(self.small_gpu)}{int(self.ignores_exit)}{self.multiprocessors}"
        out = scratch / "out"
        command = [str(self.path), str(out), self.sizes, flags, *numbers]
        own = cage.cage_of(f"the code of {self.name}", scratch, [scratch.parent], has_data_limit=False)
        has_ended, written = own.call(cage.run_program, command, scratch, _SECONDS, out)
        with own.checked():
            return _read(written[0].decode().split("\n"), self.entries) if has_ended else []
        raise AssertionError


def build(unit: Unit, ways: Sequence[calls.HostCall], rewrite: Callable[[str], str] = str) -> tuple[Program, str]:
    """Returns (program, warnings). Raises UsageError where no kernel compiles, BuildError where it cannot be linked."""
    folder = unit.folder / f"program-{digest(str(unit.path))}"  # each of several files has its own
    folder.mkdir(exist_ok=True)
    source, made = folder / "checked.cu", folder / "checked.o"

    rejected: set[int] = set()

    def repair(message: str) -> bool:
        before = len(rejected)
        if unit.rewrite is not str and _BY_REPLACED_SIZES.search(message):
            unit.rewrite = str
            return True
        rejected.update(calls.rejected(message))
        return len(rejected) > before or unit.repair(message)

    def compile_() -> str:
        gone = {index for index, call in enumerate(ways) if call.function.name in unit.left_out} | rejected
        texts = ["" if index in gone else call.text for index, call in enumerate(ways)]
        before = "" if unit.rewrite is str else _DECLARATIONS
        source.write_text(unit.compose(before=before, after=calls.dispatcher(texts)), encoding="utf-8")
        arch = f"compute_{architecture(REFERENCE_CAPABILITY)}"
        host = ["-Dmain=checked_main", "-Xcompiler", "-O1,-w", "-gencode", f"arch={arch},code={arch}"]
        flags = [flag for flag in unit.arguments() if flag != "-O3"]  # nvcc's default, which would override -O1
        return compile_object(source, [*flags, *host])

    unit.rewrite = rewrite
    try:
        output = compile_with_repairs(unit, compile_, repair)
    finally:
        unit.rewrite = str
    text = (folder / "checked.ptx").read_text(encoding="utf-8")
    bytes_ = {name: _bytes(inside) for name, inside in re.findall(r"\.entry\s+(\w+)\s*\((.*?)\)", text, re.S)}
    wanted = tuple(name for name in bytes_ if ptx.is_called(name, unit.kernel))
    rows = ((name, " ".join(map(str, sizes)), " other" * (name not in wanted)) for name, sizes in bytes_.items())
    sizes = "".join(f"{name} {numbers}{other}\n" for name, numbers, other in rows)
    program = folder / "checked"
    with unit.confined():
        _link(made, program)
    return Program(unit.path.name, text, program, sizes, wanted), output


def _link(made: Path, program: Path) -> None:
    """Links with the stand-in runtime; functions that are still undefined do nothing. Raises BuildError."""
    recorder = _compiled_recorder()

    def linked() -> bytes:
        command = [find_cxx(), str(made), str(recorder), "-o", str(program), "-Wl,--no-demangle", "-lpthread", "-ldl"]
        try:
            run_compiler(command)
        except BuildError as error:
            undefined = sorted(set(_UNDEFINED.findall(str(error))))
            others = made.with_name("others.cpp")
            text = 'extern "C" long other_{0}() asm("{1}"); long other_{0}() {{ return 0; }}\n'
            others.write_text("".join(text.format(*each) for each in enumerate(undefined)), encoding="utf-8")
            run_compiler([*command, str(others)])
        return program.read_bytes()

    key = digest(made.read_bytes(), recorder.read_bytes(), version_of(find_cxx()))
    program.write_bytes(cached(CACHE / f"program-{key}", linked).read_bytes())
    program.chmod(0o755)


@functools.cache
def _compiled_recorder() -> Path:
    def compiled() -> bytes:
        include = f"-I{find_toolkit() / 'include'}"
        with tempfile.NamedTemporaryFile(suffix=".o") as file:
            run_compiler([find_cxx(), "-O1", "-std=c++17", include, "-c", str(_SOURCE), "-o", file.name])
            return Path(file.name).read_bytes()

    return cached(CACHE / f"recorder-{digest(_SOURCE.read_text(encoding='utf-8'))}.o", compiled)


def _bytes(parameters: str) -> list[int]:
    """The size of each parameter of a kernel in PTX."""
    return [int(re.sub(r"\D", "", kind)) // 8 * int(count or 1) for kind, count in _PARAMETER.findall(parameters)]


def _read(lines: Sequence[str], wanted: Sequence[str]) -> list[RecordedLaunch]:
    tags, allocated, filled, copied = dict(enumerate(PLACES, _FIRST_PLACE)), {}, {}, set()
    unknown, order = 0, Order()
    others: dict[str, set[int]] = {}
    found: list[RecordedLaunch] = []
    for line in lines:
        kind, *words = line.split() or [""]
        if kind == "alloc":
            allocated[int(words[0]) >> PLACE] = int(words[1])
        elif kind == "set":
            filled[int(words[0]) >> PLACE] = int(words[1]), int(words[2])
        elif kind == "copy":
            target, source = int(words[0]) >> PLACE, int(words[1]) >> PLACE
            copied.add(target)
            if source in tags:
                tags.setdefault(target, tags[source])
            elif target in tags:
                tags.setdefault(source, tags[target])
        elif kind == "unknown":
            unknown += int(words[0])
        elif kind in ("launch", "other"):
            numbers = [int(word) for word in words[1:11]]
            launch = Launch(as_axes(numbers[:3]), as_axes(numbers[3:6]), numbers[6], cluster=as_axes(numbers[7:]))
            arguments = tuple(bytes.fromhex(word) for word in words[12:])
            if kind == "other":
                others.setdefault(words[0], set()).update(int.from_bytes(raw, "little") for raw in arguments)
            if found or words[0] in wanted:
                state = dict(filled), frozenset(copied), unknown, order.start(len(found), words[11]), others
                found.append(RecordedLaunch(words[0], launch, arguments, tags, allocated, *state))
        else:
            order.read(kind, words)
    return found


_MARK = b"checked\0"  # how a CUtensorMap of `recorder.cpp` begins
_ENCODED = struct.Struct("<8sQ5Q4Q5H5H5B")
_SWIZZLES = (0, 32, 64, 128)  # by CUtensorMapSwizzle
# By CUtensorMapDataType; of 8 bits it says no more than that they are bytes.
_TYPES = {element.tma_code: element.dtype for element in ELEMENTS.values()}
_TYPES |= {0: torch.uint8, 8: torch.float64, TMA_TF32: torch.float32}
_POINTER = 8  # bytes
_LARGEST = 1 << 28  # bytes of a buffer
_UNWRITTEN = 0xFF  # the bytes of new memory: NaN as floats

Pointers: TypeAlias = dict[str | int, torch.Tensor]  # matrices by role, and buffers by their place
Value: TypeAlias = torch.Tensor | ptx.Struct | ptx.TensorMap | bytes | int


def places(record: RecordedLaunch) -> dict[int, str]:
    """Returns the matrix at each place that a launch has an address of; the one that is missing is at the one left."""
    known = record.tags
    used = [place for raw in record.arguments for _, place, _ in _pointers(raw, record)]
    missing = [role for role in MATRICES if role not in {known.get(place) for place in used}]
    left = list(dict.fromkeys(place for place in used if place not in known))
    return {**known, **({left[0]: missing[0]} if len(missing) == len(left) == 1 else {})}


def roles(record: RecordedLaunch) -> list[str]:
    """Returns the matrix that each argument points to; empty for others."""
    known = places(record)
    return [known.get(int.from_bytes(raw, "little") >> PLACE, "") for raw in record.arguments]


def tensor_map_types(record: RecordedLaunch) -> dict[str, torch.dtype]:
    found = {}
    for raw in record.arguments:
        if raw.startswith(_MARK):
            kind = _ENCODED.unpack_from(raw)[-5]
            for _, place, _ in _pointers(raw, record):
                found[places(record).get(place, "")] = _TYPES.get(kind, torch.float32)
    return found


def value(raw: bytes, kind: str, given: Pointers, record: RecordedLaunch) -> Value:
    """Returns one argument, of this type in PTX.

    given: the matrices by their roles, on the reference GPU or on this machine's; buffers are added by their places.
    Raises UsageError for what the reference GPU cannot be given.
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


def _tensor(place: int, offset: int, given: Pointers, record: RecordedLaunch) -> torch.Tensor:
    key = places(record).get(place, place)
    if key not in given:
        size = record.allocated[place]
        if not 0 < size <= _LARGEST:
            raise UsageError(f"the host code passes a buffer of {size} bytes: there may be {_LARGEST}")
        room = torch.full((size + LINE,), _UNWRITTEN, dtype=torch.uint8, device=given["A"].device)
        given[place] = room[-room.data_ptr() % LINE :][:size]  # at the line of an allocation of a GPU
        byte, length = record.filled.get(place, (0, size if place in record.copied else 0))
        given[place][:length] = byte
    whole = given[key]
    return whole.view(-1)[offset // whole.element_size() :] if offset else whole


def _tensor_map(raw: bytes, given: Pointers, record: RecordedLaunch) -> ptx.TensorMap | bytes:
    _, base, *numbers = _ENCODED.unpack_from(raw)
    place, offset = divmod(base, 1 << PLACE)
    kind, rank, interleave, swizzle, fill = numbers[-5:]
    if interleave or fill:
        raise UsageError(
            "the host code makes a tensor map that is interleaved or filled with NaN: neither is understood"
        )
    sizes, strides, boxes = numbers[:rank], numbers[5 : 5 + rank - 1], numbers[9 : 9 + rank]
    tensor = _tensor(place, offset, given, record)
    if tensor.is_cuda:
        return encode(tensor.data_ptr(), kind, tuple(sizes), tuple(strides), tuple(boxes), swizzle)
    try:
        return ptx.TensorMap(tensor, boxes, _SWIZZLES[swizzle], sizes, strides, to_tf32=kind == TMA_TF32)
    except ValueError as error:
        raise UsageError(f"the host code makes a tensor map that the driver refuses: {error}") from error
