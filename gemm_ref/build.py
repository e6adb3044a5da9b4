"""Compile C++ and CUDA text into a shared library through torch's `load_inline`, once, and open it with ctypes.

No torch headers are compiled (`no_implicit_headers`) and no Python module is made: measured on an H200, that is
1.6 s for a rung instead of 46 s. The library's name carries a hash of everything that goes into it, so nothing
stale is ever loaded; each build runs in a folder of its own and is renamed into place when it is whole, so a
build that died (or one running beside this one) leaves nothing that blocks or corrupts the next.
"""

from __future__ import annotations

import ctypes
import fcntl
import functools
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[1]
CHECKOUT = _ROOT if (_ROOT / "pyproject.toml").is_file() else None  # None where it is installed as a package


def _cache() -> Path:
    """Where built files are kept: $GEMM_LADDER_BUILD, else a folder in the user's cache."""
    return Path(os.environ.get("GEMM_LADDER_BUILD") or _users_cache())


def _users_cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gemm-ladder"


CACHE = _cache()
MAX_CACHE_BYTES = 2 * 2**30
_CHECK_EVERY_S = 3600  # whether the cache exceeds that
_MIN_AGE_S = 3600  # what was used within this time stays: another process may be using it


class BuildError(RuntimeError):
    """A compiler is missing or refused the source; the message says what to do or what it printed."""


class CannotWrite(OSError):
    """A file cannot be written; the message says which and why. What was there before is whole."""


def digest(*parts: object) -> str:
    """A short hash of all parts, for file names."""
    whole = hashlib.sha256()
    for part in parts:
        whole.update(part if isinstance(part, bytes) else str(part).encode())
        whole.update(b"\0")
    return whole.hexdigest()[:16]


def write_whole(path: Path, content: str | bytes) -> None:
    """Write `content`, a text in UTF-8, to `path` so that a reader sees the old file or the new one, never a part.

    Raises CannotWrite, on a full disk for one.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, beside = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content.encode() if isinstance(content, str) else content)
            os.chmod(beside, 0o644)
            os.replace(beside, path)
        except BaseException:
            os.unlink(beside)
            raise
    except OSError as error:
        raise CannotWrite(f"{path} cannot be written: {error.strerror or error}") from error


def keep(path: Path, content: str | bytes) -> None:
    """Write a built file into the cache. Raises BuildError where the cache cannot be written."""
    with writing_cache():
        write_whole(path, content)
    if CACHE == _users_cache():  # another folder may hold other files too
        _limit_cache(CACHE)


@functools.cache  # once per process
def _limit_cache(folder: Path) -> None:
    """Removes what was not used for the longest time while the cache exceeds its limit."""
    mark, now = folder / ".checked", time.time()
    with suppress(OSError):  # it is another process's to remove, or nobody's
        if mark.exists() and mark.stat().st_mtime > now - _CHECK_EVERY_S:
            return
        mark.touch()
        entries = sorted((*_last_used_and_bytes(path), path) for path in _entries(folder))
        total = sum(size for _, size, _ in entries)
        for last_used, size, path in entries:
            if total <= MAX_CACHE_BYTES or last_used > now - _MIN_AGE_S:
                break
            shutil.rmtree(path) if path.is_dir() else path.unlink()
            total -= size


def _entries(folder: Path) -> Iterator[Path]:
    """What is removed as a whole: a file of the cache, or what is in one of its folders, as Triton's kernels are."""
    for path in folder.iterdir():
        yield from path.iterdir() if path.is_dir() else (path,)


def _last_used_and_bytes(path: Path) -> tuple[float, int]:
    """When a file, or the one of a folder that was used last, was read or written, and all their bytes."""
    files = [os.path.join(folder, name) for folder, _, names in os.walk(path) for name in names] or [str(path)]
    found = [os.stat(file) for file in files]
    return max(max(stat.st_atime, stat.st_mtime) for stat in found), sum(stat.st_size for stat in found)


def cached(path: Path, make: Callable[[], str | bytes]) -> Path:
    """Returns `path`, a file in the cache, which `make` is called for if it is not there: in one process at a time.

    Raises BuildError where the cache cannot be written, and whatever `make` raises.
    """
    if not _is_cached(path):
        with _lock(path.name):
            if not _is_cached(path):
                keep(path, make())
    return path


@contextmanager
def _lock(name: str) -> Iterator[None]:
    """Inside, no other process or thread is in the lock of this name."""
    with writing_cache():
        path = CACHE / "locks" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("w")
    with file:  # closing it ends the lock
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _is_cached(path: Path) -> bool:
    """Whether there is such a file, which then counts as used now and is not removed to make room."""
    try:
        os.utime(path)
    except OSError:
        return path.is_file()  # it may be in a folder that is only read
    return True


def share_cache_with_triton() -> None:
    """Has Triton keep compiled kernels in the cache too, in this process and its children, unless told where."""
    if not {"TRITON_CACHE_DIR", "TRITON_HOME"} & os.environ.keys():
        os.environ["TRITON_CACHE_DIR"] = str(CACHE / "triton")


@contextmanager
def writing_cache() -> Iterator[None]:
    """Raises BuildError, with what to do, where something inside fails to write."""
    try:
        yield
    except OSError as error:
        reason = error.__cause__ if isinstance(error, CannotWrite) else error
        raise BuildError(
            f"built files are kept in {CACHE}, which cannot be written ({reason}): "
            "set GEMM_LADDER_BUILD to a folder that can be written, or free some space"
        ) from error


@functools.cache
def find_cxx() -> str:
    """The C++ compiler's path: $CXX if it is set, else g++, c++ or clang++.

    Raises BuildError when there is none, or when $CXX names none: a wish that cannot be met is not passed over.
    """
    wish = os.environ.get("CXX")
    if wish:
        if path := shutil.which(wish):
            return path
        raise BuildError(
            f"CXX is set to {wish!r}, which is not a program here: set it to a C++ compiler's path, or unset it"
        )
    for name in ("g++", "c++", "clang++"):
        if path := shutil.which(name):
            return path
    raise BuildError("no C++ compiler found: install g++ (on Debian, `apt install g++`) or set CXX to yours")


@functools.cache
def version_of(program: str) -> str:
    """What `program --version` prints. Raises BuildError when it does not run."""
    try:
        return subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError) as error:
        raise BuildError(
            f"{program} does not run ({error}): reinstall it, or point CXX or CUDA_HOME elsewhere"
        ) from error


def _run(command: Sequence[str] | str, environment: Mapping[str, str] | None) -> subprocess.CompletedProcess[str]:
    is_text = isinstance(command, str)
    return subprocess.run(  # errors: compilers quote sources, in any encoding
        command, shell=is_text, capture_output=True, text=True, errors="replace", env=environment, check=False
    )


compiler_runner = ContextVar("compiler_runner", default=_run)  # another one is for texts that are not trusted


def run_compiler(command: Sequence[str] | str, environment: Mapping[str, str] | None = None) -> str:
    """The warnings of a compiler's command, of a shell if it is a text. Raises BuildError with its output."""
    done = compiler_runner.get()(command, environment)
    if done.returncode:
        program = "nvcc" if isinstance(command, str) else Path(command[0]).name
        raise BuildError(f"{program} failed:\n{done.stdout}{done.stderr}")
    return done.stderr


def find_ninja() -> str:
    """The path of ninja, which load_inline drives; a virtual environment's own counts even when not activated.

    Raises BuildError when there is none.
    """
    own = Path(sys.executable).parent
    found = shutil.which("ninja") or shutil.which("ninja", path=str(own))
    if found is None:
        raise BuildError("ninja is missing, and load_inline needs it: `pip install ninja`")
    if str(Path(found).parent) not in os.environ["PATH"].split(os.pathsep):
        os.environ["PATH"] = os.pathsep.join([str(Path(found).parent), os.environ["PATH"]])
    return found


def build_library(
    name: str,
    *,
    cpp: str = "",
    cuda: str = "",
    cflags: tuple[str, ...] = (),
    cuda_cflags: tuple[str, ...] = (),
    cuda_home: Path | None = None,
) -> Path:
    """The path of the shared library built from this text, from the cache if it is there.

    name: its stem; cpp, cuda: source text; cuda_home: the CUDA toolkit, needed with `cuda`.
    Raises BuildError with the compiler's output when it does not compile.
    """
    import torch

    if cuda and cuda_home is None:
        raise ValueError(f"{name} has CUDA text and no toolkit to compile it: pass cuda_home=find_toolkit()")
    compilers = [version_of(find_cxx())]
    if cuda_home is not None:
        compilers.append(version_of(str(cuda_home / "bin" / "nvcc")))
    key = digest(cpp, cuda, cflags, cuda_cflags, compilers, torch.__version__)
    library = CACHE / f"{name}-{key}.so"
    if not _is_cached(library):
        with _lock(library.name), writing_cache(), _temporary_folder(f"{name}-") as folder:
            if not _is_cached(library):
                built = _load_inline(f"{name}_{key}", folder, cpp, cuda, cflags, cuda_cflags, cuda_home)
                os.replace(built, library)
    return library


@contextmanager
def _temporary_folder(prefix: str) -> Iterator[Path]:
    """Yields a new folder in the cache, from which a built file is renamed into place."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE, prefix=prefix) as folder:
        yield Path(folder)


@functools.cache
def open_library(path: Path) -> ctypes.CDLL:
    """The library at `path`, opened once."""
    return ctypes.CDLL(str(path))


def _load_inline(
    name: str,
    folder: Path,
    cpp: str,
    cuda: str,
    cflags: tuple[str, ...],
    cuda_cflags: tuple[str, ...],
    cuda_home: Path | None,
) -> Path:
    find_ninja()
    from torch.utils import cpp_extension  # slow to import, and it looks for compilers as it loads

    os.environ["CXX"] = find_cxx()  # what load_inline drives, and what the library's name was made from
    ldflags = []
    if cuda_home is not None:
        cpp_extension.CUDA_HOME = str(cuda_home)
        ldflags = _cudart_flags(cuda_home, folder)
    try:
        cpp_extension.load_inline(
            name,
            cpp_sources=cpp,
            cuda_sources=cuda or None,
            extra_cflags=list(cflags),
            extra_cuda_cflags=list(cuda_cflags),
            extra_ldflags=ldflags,
            build_directory=str(folder),
            no_implicit_headers=True,
            is_python_module=False,
        )
    except (RuntimeError, OSError, subprocess.SubprocessError) as error:
        raise BuildError(f"{name} did not build:\n{_compiler_message(str(error))}") from error
    return folder / f"{name}.so"


def _compiler_message(output: str) -> str:
    """Returns ninja's report without the command lines, which are longer than the compiler's own messages."""
    noise = ("[", "FAILED:", "ninja:", "Error building extension")
    lines = [line for line in output.splitlines() if not line.startswith(noise) and " -c " not in line]
    return "\n".join(lines).strip() or output


def _cudart_flags(cuda_home: Path, folder: Path) -> list[str]:
    """Give the linker a `libcudart.so` where the toolkit has only the versioned one, as its PyPI wheels do."""
    libraries = [path for lib in ("lib64", "lib") for path in sorted((cuda_home / lib).glob("libcudart.so*"))]
    if not libraries or any(path.name == "libcudart.so" for path in libraries):
        return []
    (folder / "libcudart.so").symlink_to(libraries[0])
    return [f"-L{folder}", f"-Wl,-rpath,{libraries[0].parent}"]
