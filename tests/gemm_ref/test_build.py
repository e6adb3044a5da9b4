"""Where files are kept and how they are written: a cache that cannot be written, a disk that is full."""

from __future__ import annotations

import os
import resource
import signal
import sys
import threading
import time
from pathlib import Path

import pytest

from gemm_ref import build

NOWHERE = Path("/proc/nowhere")  # not even root makes a folder there
needs_proc = pytest.mark.skipif(not NOWHERE.parent.is_dir(), reason="there is no /proc, where nobody can write")


@needs_proc
def test_a_cache_that_cannot_be_written_is_told(monkeypatch):
    monkeypatch.setattr(build, "CACHE", NOWHERE)
    monkeypatch.setattr(build, "version_of", lambda path: "1.0")
    for attempt in (lambda: build.keep(NOWHERE / "x.ptx", "text"), lambda: build.build_library("x", cpp="int x;")):
        with pytest.raises(build.BuildError, match="/proc/nowhere, which cannot be written .*set GEMM_LADDER_BUILD"):
            attempt()


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no limit on a file's size")
def test_a_full_disk_leaves_the_old_file(tmp_path):
    """A file that may not grow past 1 MB behaves as one on a full disk does: part of it is written, then no more."""
    path = tmp_path / "data.csv"
    build.write_whole(path, "old")
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2**20, limit[1]))
    try:
        with pytest.raises(build.CannotWrite, match="data.csv cannot be written: File too large"):
            build.write_whole(path, "x" * 2**21)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        signal.signal(signal.SIGXFSZ, before)
    assert path.read_text(encoding="utf-8") == "old" and list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("environ", "folder"),
    [
        ({"GEMM_LADDER_BUILD": "elsewhere"}, "elsewhere"),
        ({"XDG_CACHE_HOME": "caches"}, "caches/gemm-ladder"),
        ({"HOME": "home"}, "home/.cache/gemm-ladder"),
    ],
)
def test_built_files_go_to_the_users_cache(environ, folder, monkeypatch):
    for name in ("GEMM_LADDER_BUILD", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    assert build._cache() == Path(folder)


def test_a_file_is_made_once(monkeypatch, tmp_path):
    """By the first of two that want it at the same time: the other waits."""
    monkeypatch.setattr(build, "CACHE", tmp_path)
    path, made = tmp_path / "x.ptx", []
    other = threading.Thread(target=lambda: build.cached(path, lambda: made.append("by the other") or "text"))

    def make() -> str:
        other.start()
        other.join(0.1)
        made.append("by the first")
        return "text"

    assert build.cached(path, make).read_text(encoding="utf-8") == "text"
    other.join()
    assert made == ["by the first"]


@pytest.mark.parametrize("named", [False, True])
def test_a_large_cache_loses_what_was_not_used_for_long(named, monkeypatch, tmp_path):
    """In a folder that somebody has named, which may hold other files, nothing is removed."""
    monkeypatch.setattr(build, "CACHE", tmp_path)
    monkeypatch.setattr(build, "_users_cache", lambda: tmp_path / "another" if named else tmp_path)
    monkeypatch.setattr(build, "MAX_CACHE_BYTES", 250)
    old = {"triton/first/a.ptx", "triton/second/a.ptx", "old.ptx"}
    for hours, name in enumerate(["new.ptx", *sorted(old), "used.ptx"]):
        build.write_whole(tmp_path / name, "x" * 100)
        os.utime(tmp_path / name, (time.time() - 3700 * hours,) * 2)
    build.cached(tmp_path / "used.ptx", str)  # it is there, and is used now
    build.keep(tmp_path / "another.ptx", "")
    left = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.ptx")}
    assert left == {"new.ptx", "used.ptx", "another.ptx"} | (old if named else set())


@pytest.mark.parametrize("named", [{}, {"TRITON_CACHE_DIR": "a"}, {"TRITON_HOME": "b"}])
def test_triton_keeps_kernels_in_the_cache_unless_it_is_told_where(named, monkeypatch):
    for name in ("TRITON_CACHE_DIR", "TRITON_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in named.items():
        monkeypatch.setenv(name, value)
    build.share_cache_with_triton()
    default = None if named else str(build.CACHE / "triton")
    assert os.environ.get("TRITON_CACHE_DIR") == named.get("TRITON_CACHE_DIR", default)
