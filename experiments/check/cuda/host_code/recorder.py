"""Runs host code up to its launches, which `recorder.cpp` records and does not carry out."""

from __future__ import annotations

import functools
import re
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from experiments.check.cuda.compiled import compile_with_repairs
from experiments.check.cuda.host_code import calls, program_sizes
from experiments.check.cuda.launch import as_axes
from experiments.check.cuda.roles import PLACES
from experiments.check.cuda.unit import Unit
from gemm_ref import ptx
from gemm_ref.build import CACHE, BuildError, digest, find_cxx, keep
from gemm_ref.launch import Launch
from gemm_ref.toolchain import REFERENCE_CAPABILITY, architecture, find_toolkit, run_nvcc

PLACE = 40  # A, B and C are at 1, 2 and 3 << PLACE, what the program allocates is at other multiples
_SOURCE = Path(__file__).resolve().parent / "recorder.cpp"
_UNDEFINED = re.compile(r"undefined reference to [`']([\w.$]+)'")
_PARAMETER = re.compile(r"\.param\s+(?:\.align\s+\d+\s+)?\.(\w+)\s+(?:\.ptr\s[^,\[]*)?\w+(?:\[(\d+)\])?")
_SECONDS = 15


@dataclass(frozen=True)
class RecordedLaunch:
    """One launch."""

    entry: str  # the kernel's name in PTX
    launch: Launch
    arguments: tuple[bytes, ...]
    tags: Mapping[int, str]  # the matrix that an allocation holds or is copied to, by its place
    allocated: Mapping[int, int]  # bytes, by place


@dataclass(frozen=True)
class Program:
    """A compiled file whose host code can be run; `ptx` has every kernel that it launches."""

    ptx: str
    path: Path
    sizes: Path
    entries: tuple[str, ...]  # the kernel's, one for each instance
    small_gpu: bool = False  # the GPU has little shared memory
    ignores_exit: bool = False  # its main continues where it would exit with an error

    def run(self, call: int, m: int, n: int, k: int, alpha: float = 1.0, beta: float = 0.0, record_all: bool = False):
        """Returns the kernel's first launch by one call, or all of them in order."""
        out = self.path.with_suffix(".out")
        out.unlink(missing_ok=True)
        numbers = [str(number) for number in (call, m, n, k, alpha, beta)]
        flags = f"{int(not record_all)}{int(self.small_gpu)}{int(self.ignores_exit)}"
        command = [str(self.path), str(out), str(self.sizes), flags, *numbers]
        try:
            subprocess.run(command, capture_output=True, timeout=_SECONDS, cwd=self.path.parent, check=False)
        except (OSError, subprocess.TimeoutExpired):
            return []
        return _read(out.read_text(encoding="utf-8").split("\n"), self.entries) if out.exists() else []


def build(unit: Unit, ways: Sequence[calls.HostCall], rewrite: Callable[[str], str] = str) -> tuple[Program, str]:
    """Returns (program, warnings) of a file and calls of its functions; `rewrite` changes the texts, if that compiles.

    Raises UsageError where not even the kernels compile, and BuildError where it cannot be linked.
    """
    folder = unit.folder / "program"
    folder.mkdir(exist_ok=True)
    source, made = folder / "checked.cu", folder / "checked.o"

    rejected: set[int] = set()

    def repair(message: str) -> bool:
        before = len(rejected)
        if unit.rewrite is not str and program_sizes.may_be_caused_by_rewrite(message):
            unit.rewrite = str
            return True
        rejected.update(calls.rejected(message))
        return len(rejected) > before or unit.repair(message)

    def compile_() -> str:
        texts = [
            "" if index in rejected or call.function.name in unit.left_out else call.text
            for index, call in enumerate(ways)
        ]
        before = "" if unit.rewrite is str else program_sizes.DECLARATIONS
        source.write_text(unit.compose(before=before, after=calls.dispatcher(texts)), encoding="utf-8")
        arch = f"compute_{architecture(REFERENCE_CAPABILITY)}"
        kept = ["-keep", "--keep-dir", str(folder), "-gencode", f"arch={arch},code={arch}"]
        host = ["-Dmain=checked_main", "-Xcompiler", "-O1,-w"]
        return run_nvcc([*unit.arguments(), *host, *kept, "-c", str(source), "-o", str(made)])

    unit.rewrite = rewrite
    try:
        output = compile_with_repairs(unit, compile_, repair)
    finally:
        unit.rewrite = str
    text = (folder / "checked.ptx").read_text(encoding="utf-8")
    bytes_ = {name: _bytes(inside) for name, inside in re.findall(r"\.entry\s+(\w+)\s*\((.*?)\)", text, re.S)}
    wanted = tuple(name for name in bytes_ if ptx.is_called(name, unit.kernel))
    sizes = folder / "sizes"
    sizes.write_text("".join(f"{name} {' '.join(map(str, bytes_[name]))}\n" for name in wanted))
    program = folder / "checked"
    _link(made, program)
    return Program(text, program, sizes, wanted), output


def _link(made: Path, program: Path) -> None:
    """Links with the stand-in runtime; functions that are still undefined do nothing. Raises BuildError."""
    recorder = _compiled_recorder()
    command = [find_cxx(), str(made), str(recorder), "-o", str(program), "-Wl,--no-demangle", "-lpthread", "-ldl"]
    try:
        _run(command)
    except BuildError as error:
        undefined = sorted(set(_UNDEFINED.findall(str(error))))
        others = made.with_name("others.cpp")
        text = 'extern "C" long other_{0}() asm("{1}"); long other_{0}() {{ return 0; }}\n'
        others.write_text("".join(text.format(*each) for each in enumerate(undefined)), encoding="utf-8")
        _run([*command, str(others)])


@functools.cache
def _compiled_recorder() -> Path:
    made = CACHE / f"recorder-{digest(_SOURCE.read_text(encoding='utf-8'))}.o"
    if not made.exists():
        beside = made.with_suffix(".part.o")
        CACHE.mkdir(parents=True, exist_ok=True)
        include = f"-I{find_toolkit() / 'include'}"
        _run([find_cxx(), "-O1", "-std=c++17", include, "-c", str(_SOURCE), "-o", str(beside)])
        keep(made, beside.read_bytes())
        beside.unlink()
    return made


def _run(command: Sequence[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode:
        raise BuildError(f"{command[0]} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def _bytes(parameters: str) -> list[int]:
    """The size of each parameter of a kernel in PTX."""
    return [int(re.sub(r"\D", "", kind)) // 8 * int(count or 1) for kind, count in _PARAMETER.findall(parameters)]


def _read(lines: Sequence[str], wanted: Sequence[str]) -> list[RecordedLaunch]:
    tags, allocated, launches = dict(enumerate(PLACES, 1)), {}, []
    for line in lines:
        kind, *words = line.split() or [""]
        if kind == "alloc":
            allocated[int(words[0]) >> PLACE] = int(words[1])
        if kind == "copy":
            target, source = int(words[0]) >> PLACE, int(words[1]) >> PLACE
            if source in tags:
                tags.setdefault(target, tags[source])
            elif target in tags:
                tags.setdefault(source, tags[target])
        if kind == "launch" and words[0] in wanted:
            launches.append(words)
    found = []
    for words in launches:
        numbers = [int(word) for word in words[1:11]]
        launch = Launch(as_axes(numbers[:3]), as_axes(numbers[3:6]), numbers[6], cluster=as_axes(numbers[7:]))
        arguments = tuple(bytes.fromhex(word) for word in words[11:])
        found.append(RecordedLaunch(words[0], launch, arguments, tags, allocated))
    return found
