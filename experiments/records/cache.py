"""Files of what can be computed again: rows, pictures and traces, in the folder where built files are kept too.

There is one rule of invalidation. An entry carries the digest of all that it follows from, sources, versions and data,
and is only read for the same digest. A later one replaces it, so that no outdated entry takes space.
"""

from __future__ import annotations

import functools
import os
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path

from experiments.records.source_lines import shared_files
from gemm_ref import build
from gemm_ref.registry import STAGES, get_stage

_ROOT = Path(__file__).resolve().parents[2]
_SOURCES = (".py", ".toml", ".cu", ".cuh", ".cpp")
# Files of a study from which nothing follows that is measured.
_PRESENTATION = ("picture.py", "text.py", "about.toml")
_COMPILER_PREFIXES = ("TRITON_", "NVCC_", "LLVM_", "MLIR_", "DISABLE_")  # of variables that may change compiled code,
_CACHE_FOLDERS = ("TRITON_CACHE_DIR", "TRITON_HOME")  # and those that do not


def load(name: str, digest: str) -> bytes | None:
    """The content of the entry, if it has this digest and is undamaged."""
    try:
        head, _, content = _path(name).read_bytes().partition(b"\n")
    except OSError:
        return None
    return content if head == _head(digest, content) else None


def save(name: str, digest: str, content: bytes) -> None:
    """Replaces the entry as a whole. Warns if it cannot be written: that costs later runs time, and nothing else."""
    try:
        build.write_whole(_path(name), _head(digest, content) + b"\n" + content)
    except build.CannotWrite as error:
        why = f"the next run does everything again: nothing can be cached in {_path(name).parent} ({error.__cause__})"
        warnings.warn(why, stacklevel=2)


def _path(name: str) -> Path:
    return build.CACHE / "cached" / name


def _head(digest: str, content: bytes) -> bytes:
    """The first line of a file; a damaged file has another."""
    return f"{digest} {build.digest(content)}".encode()


def digest_files(paths: Iterable[Path], *more: object) -> str:
    """A digest of the repo's files, with their paths in it, and of whatever else counts."""
    return build.digest(*(part for path in paths for part in (path.relative_to(_ROOT), _digest_file(path))), *more)


def _digest_file(path: Path) -> str:
    """The digest of a file's content, which is read again only where the file's inode, size or time has changed."""
    state = path.stat()
    return _digest_version(path, state.st_ino, state.st_size, state.st_mtime_ns)


@functools.lru_cache(maxsize=4096)
def _digest_version(path: Path, *state: int) -> str:
    return build.digest(path.read_bytes())


def digest_rung(folders: Sequence[str], stage: str, versions: Sequence[object]) -> str:
    """A digest of what a rung follows from: the folders' sources without rungs it does not use, versions, variables."""
    used = {path.stem for dialect in get_stage(stage).dialects for path in shared_files(stage, dialect)} | {stage}
    paths = [path for path in sources(*folders) if path.name not in _PRESENTATION]
    paths = [path for path in paths if path.stem in used or path.stem not in STAGES]
    names = [name for name in sorted(os.environ) if name.startswith(_COMPILER_PREFIXES) and name not in _CACHE_FOLDERS]
    return digest_files(paths, *versions, *((name, os.environ[name]) for name in names))


def direct_sources(folder: str) -> list[Path]:
    """The source files in one of the repo's folders, without those below it."""
    return [path for path in sorted((_ROOT / folder).glob("*")) if path.suffix in _SOURCES]


def sources(*folders: str) -> list[Path]:
    """The source files in the repo's folders and in those below them."""
    return [path for folder in folders for path in sorted((_ROOT / folder).rglob("*")) if path.suffix in _SOURCES]
