"""Where files are kept and how they are written: a cache that cannot be written, a disk that is full."""

from __future__ import annotations

import resource
import signal
import sys
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
    ("installed", "environ", "folder"),
    [
        (False, {}, "checkout/build"),
        (False, {"GEMM_LADDER_BUILD": "elsewhere"}, "elsewhere"),
        (True, {"GEMM_LADDER_BUILD": "elsewhere"}, "elsewhere"),
        (True, {"XDG_CACHE_HOME": "caches"}, "caches/gemm-ladder"),
        (True, {"HOME": "home"}, "home/.cache/gemm-ladder"),
    ],
)
def test_built_files_go_to_a_folder_of_ones_own(installed, environ, folder, monkeypatch):
    monkeypatch.setattr(build, "CHECKOUT", None if installed else Path("checkout"))
    for name in ("GEMM_LADDER_BUILD", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    assert build._cache() == Path(folder)
