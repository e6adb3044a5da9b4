"""Host code run up to its launches, which are written down and not carried out: `standins/recorder.cpp` from here."""

from __future__ import annotations

import functools
import re
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from experiments.check.cuda.launches import driver, own_sizes
from experiments.check.cuda.nvcc import mended
from experiments.check.cuda.roles import PLACES
from experiments.check.cuda.unit import Unit
from gemm_ref import ptx
from gemm_ref.build import CACHE, BuildError, digest, find_cxx, keep
from gemm_ref.launch import Launch
from gemm_ref.toolchain import REFERENCE_CAPABILITY, architecture, find_toolkit, run_nvcc

PLACE = 40  # A, B and C lie at 1, 2 and 3 << PLACE, what the program allocates at other multiples
_SOURCE = Path(__file__).resolve().parent.parent / "standins" / "recorder.cpp"
_UNDEFINED = re.compile(r"undefined reference to [`']([\w.$]+)'")
_PARAMETER = re.compile(r"\.param\s+(?:\.align\s+\d+\s+)?\.(\w+)\s+(?:\.ptr\s[^,\[]*)?\w+(?:\[(\d+)\])?")
_SECONDS = 15


@dataclass(frozen=True)
class Recorded:
    """One launch."""

    entry: str  # the kernel's name in PTX
    launch: Launch
    arguments: tuple[bytes, ...]
    tags: tuple[tuple[int, str], ...]  # what allocations hold or are copied to: A, B or C, by their place
    allocated: tuple[tuple[int, int], ...]  # bytes, by place


@dataclass(frozen=True)
class Program:
    """A compiled file whose host code can be run; `ptx` has every kernel that it launches."""

    ptx: str
    path: Path
    sizes: Path
    entries: tuple[str, ...]  # the kernel's, one for each instance
    small: bool = False  # on a GPU with little shared memory
    goes_on: bool = False  # where its main would end with an error

    def run(self, call: int, m: int, n: int, k: int, alpha: float = 1.0, beta: float = 0.0, all_: bool = False):
        """The kernel's first launch by one call, or all of them in order; none where it launches nothing."""
        out = self.path.with_suffix(".out")
        out.unlink(missing_ok=True)
        numbers = [str(number) for number in (call, m, n, k, alpha, beta)]
        flags = f"{int(not all_)}{int(self.small)}{int(self.goes_on)}"
        command = [str(self.path), str(out), str(self.sizes), flags, *numbers]
        try:
            subprocess.run(command, capture_output=True, timeout=_SECONDS, cwd=self.path.parent, check=False)
        except (OSError, subprocess.TimeoutExpired):
            return []
        return _read(out.read_text(encoding="utf-8").split("\n"), self.entries) if out.exists() else []


def build(unit: Unit, calls: Sequence[driver.Call], rewrite: Callable[[str], str] = str) -> tuple[Program, str]:
    """(program, warnings) of a file and calls of its functions; `rewrite` changes the texts, if that compiles.

    Raises UsageError where not even the kernels compile, and BuildError where it cannot be linked.
    """
    folder = unit.folder / "program"
    folder.mkdir(exist_ok=True)
    source, made = folder / "checked.cu", folder / "checked.o"

    refused: set[int] = set()

    def mend(message: str) -> bool:
        before = len(refused)
        if unit.rewrite is not str and own_sizes.spoils(message):
            unit.rewrite = str
            return True
        refused.update(driver.refused(message))
        return len(refused) > before or unit.mend(message)

    def compile_() -> str:
        gone = [index in refused or call.function.name in unit.left_out for index, call in enumerate(calls)]
        left = ["" if out else call.text for call, out in zip(calls, gone, strict=True)]
        before = "" if unit.rewrite is str else own_sizes.DECLARED
        source.write_text(unit.compose(before=before, after=driver.text(left)), encoding="utf-8")
        arch = f"compute_{architecture(REFERENCE_CAPABILITY)}"
        kept = ["-keep", "--keep-dir", str(folder), "-gencode", f"arch={arch},code={arch}"]
        host = ["-Dmain=checked_main", "-Xcompiler", "-O1,-w"]
        return run_nvcc([*unit.arguments(), *host, *kept, "-c", str(source), "-o", str(made)])

    unit.rewrite = rewrite
    try:
        said = mended(unit, compile_, mend)
    finally:
        unit.rewrite = str
    text = (folder / "checked.ptx").read_text(encoding="utf-8")
    bytes_ = {name: _bytes(inside) for name, inside in re.findall(r"\.entry\s+(\w+)\s*\((.*?)\)", text, re.S)}
    wanted = tuple(name for name in bytes_ if ptx.is_called(name, unit.kernel))
    sizes = folder / "sizes"
    sizes.write_text("".join(f"{name} {' '.join(map(str, bytes_[name]))}\n" for name in wanted))
    program = folder / "checked"
    _link(made, program)
    return Program(text, program, sizes, wanted), said


def _link(made: Path, program: Path) -> None:
    """Link with the stand-in runtime; what is still nowhere does nothing. Raises BuildError."""
    recorder = _compiled_recorder()
    command = [find_cxx(), str(made), str(recorder), "-o", str(program), "-Wl,--no-demangle", "-lpthread", "-ldl"]
    try:
        _run(command)
    except BuildError as error:
        lacking = sorted(set(_UNDEFINED.findall(str(error))))
        others = made.with_name("others.cpp")
        text = 'extern "C" long other_{0}() asm("{1}"); long other_{0}() {{ return 0; }}\n'
        others.write_text("".join(text.format(*each) for each in enumerate(lacking)), encoding="utf-8")
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


def _read(lines: Sequence[str], wanted: Sequence[str]) -> list[Recorded]:
    found, tags, allocated = [], dict(enumerate(PLACES, 1)), {}
    raw = []
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
            raw.append(words)
    for words in raw:
        numbers = [int(word) for word in words[1:11]]
        x, y, z, *rest = numbers
        launch = Launch((x, y, z), (rest[0], rest[1], rest[2]), rest[3], cluster=(rest[4], rest[5], rest[6]))
        arguments = tuple(bytes.fromhex(word) for word in words[11:])
        found.append(Recorded(words[0], launch, arguments, tuple(tags.items()), tuple(allocated.items())))
    return found
