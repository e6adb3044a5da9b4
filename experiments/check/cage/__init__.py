"""A process for strangers' code: it hands back data and can do nothing else.

The process is a fork of this one, so that nothing is imported again. What it may still do is limited by `confine`, and
by this process, which watches its time, memory and number of processes while it waits for an answer. Requests go to it
as functions with arguments; answers are JSON and bytes, since to unpickle them would run what they say.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import math
import os
import resource
import select
import shutil
import signal
import site
import socket
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import torch

from experiments.check.cage import confine
from experiments.check.cage.channel import Answer, Channel
from experiments.records.request import UsageError
from gemm_ref.build import CACHE, CHECKOUT, BuildError

SECONDS = 120  # that a request may take, without those in which this process works for it
MAX_PROCESSES = 64
MAX_BYTES = min(16 << 30, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2)
MAX_FILE_BYTES = 1 << 30
_WATCH_S = 0.02  # between two looks at a process that is waited for
_MAX_PRINTED = 1 << 18  # bytes of what a command prints
_KEPT = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_PATH", "OMP_NUM_THREADS")
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/opt", "/nix", "/proc", "/sys", "/etc/alternatives")
_FILES = ("/dev/zero", "/dev/urandom", "/dev/random", "/etc/ld.so.cache", "/etc/localtime")
_ESSENTIAL = {"Landlock": "could write to any file", "seccomp": "could reach the network"}


class Ended(UsageError):
    """The process ended, or was ended at a limit, without an answer."""


@dataclass
class Policy:
    """What holds for all cages: whether the code is trusted where the kernel has not all that confines it."""

    trusted: bool = False
    missing: set[str] = field(default_factory=set)  # of what is needed and is not there


policy = Policy()
_open: list[Cage] = []


class Cage:
    """A confined process that executes the functions of `call`, one after another.

    what: its code, for messages. scratch: the folder that it may write to. readable: files and folders that it may
    read, beside those of the system, of Python and of this project. has_data_limit: whether private memory is limited
    by the kernel too, which programs that reserve much of it do not stand.
    Raises UsageError where the kernel has not what the cage needs, and the user does not say that it may be trusted.
    """

    def __init__(self, what: str, scratch: Path, readable: Sequence[Path] = (), has_data_limit: bool = True) -> None:
        self.what = what
        self._scratch, self._readable = scratch, readable
        self._data_bytes = MAX_BYTES if has_data_limit else None
        self._temporary = Path(tempfile.mkdtemp(prefix="gemm-ladder-cage-"))
        self._left_s, self._why = 0.0, ""
        self.missing = ["namespaces"]  # of what confines a process, as far as it has not said what it has
        ours, theirs = socket.socketpair()
        ours.settimeout(SECONDS)  # for one that does not read
        self._channel = Channel(ours, self._wait)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of forks beside threads, none of which it needs
            parent, self._process = os.getpid(), os.fork()
        if not self._process:
            self._enter(theirs, parent)
        theirs.close()
        _open.append(self)
        self._left_s = SECONDS
        self.missing = [str(each) for each in self._receive()[0]]
        missing = [each for each in self.missing if each in _ESSENTIAL]
        policy.missing.update(missing)
        if missing and not policy.trusted:
            self.end()
            might = " and ".join(_ESSENTIAL[each] for each in missing)
            raise UsageError(
                f"{what} is not run: this kernel has no {' and no '.join(missing)}, so it {might}; "
                "pass --trust if you trust it as a program that you start yourself"
            )

    def call(self, function: Callable[..., Answer], *arguments: object, answer: Callable | None = None) -> Answer:
        """Returns what `function(*arguments)`, a function of a module, returns in the process.

        answer: a function for `ask` in the process, which is called here with data and bytes. Raises UsageError for
        one of the function, and for an end without an answer.
        """
        if self._why:
            raise Ended(self._why)
        self._left_s = SECONDS
        with self.checked():
            self._channel.send_object((function, arguments))
        while True:
            answered, blobs = self._receive()
            with self.checked():
                kind, data = answered
            if kind == "done":
                return data, blobs
            if kind == "ask" and answer:
                reply = answer(data, blobs)
                with self.checked():
                    self._channel.send_object((None, reply))
            else:
                self._raise(kind, data)

    @property
    def is_open(self) -> bool:
        """Whether it has not been ended, or has ended by itself, which every call says again."""
        return self in _open or bool(self._why)

    def end(self) -> None:
        """Ends all its processes and removes its temporary folder."""
        if self not in _open:
            return
        _open.remove(self)
        self._channel.close()
        ended: set[int] = set()
        while new := [each for each in _descendants(self._process) if each not in ended]:
            ended.update(new)
            for each in new:
                _kill(each)
        if "namespaces" in self.missing:  # else it ends with the first process of its namespace, whose time it counts
            _kill(self._process)
        os.waitpid(self._process, 0)
        shutil.rmtree(self._temporary, ignore_errors=True)

    # --- in this process

    @contextlib.contextmanager
    def checked(self) -> Iterator[None]:
        """Ends the cage with whatever is wrong inside: a process that breaks the protocol is never used again."""
        try:
            yield
        except Ended:
            raise
        except (OSError, EOFError):
            self._fail("ended its process without a result")
        except (ValueError, TypeError, LookupError, ArithmeticError, AttributeError, RuntimeError, MemoryError):
            self._fail("sent what is no result")
        except BaseException:
            self.end()
            raise

    def _receive(self) -> Answer:
        with self.checked():
            return self._channel.receive()
        raise AssertionError

    def _raise(self, kind: str, data: Any) -> NoReturn:
        with self.checked():
            text, line = str(data["text"]), float(data["line"])
        if kind == "mistake":
            raise RuntimeError(text)
        if kind == "build":
            raise BuildError(text)
        error = UsageError(text)
        error.line = line  # type: ignore[attr-defined]
        raise error

    def _fail(self, what: str) -> NoReturn:
        self.end()
        self._why = f"{self.what} {what}"
        raise Ended(self._why)

    def _wait(self, connection: socket.socket) -> None:
        """Waits until there is something to read. Raises Ended at a limit."""
        while True:
            start = time.monotonic()
            readable = select.select([connection], [], [], min(_WATCH_S, max(self._left_s, 0.0)))[0]
            self._left_s -= time.monotonic() - start
            if readable:
                return
            if self._left_s <= 0:
                self._fail(f"did not end within {SECONDS} s: does it loop for ever?")
            processes = _descendants(self._process)
            if len(processes) > MAX_PROCESSES:
                self._fail(f"started more than {MAX_PROCESSES} processes")
            if (
                sum(map(_resident_bytes, processes)) > MAX_BYTES
                and sum(map(_proportional_bytes, processes)) > MAX_BYTES
            ):
                self._fail(f"takes more than {MAX_BYTES >> 30} GiB of memory")

    # --- in the process

    def _enter(self, connection: socket.socket, parent: int) -> NoReturn:
        """Confines the new process and serves requests until there are no more."""
        status = 1
        try:
            os.setsid()
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            isolated = confine.enter_namespaces()
            confine.die_with_parent(parent)
            confine.adopt_orphans()
            between = os.getpid()
            if server := os.fork():
                confine.close_files()
                os.waitpid(server, 0)
                while not isolated:  # what it has started would become another's child, which nobody ends
                    signal.pause()
                os._exit(0)
            confine.die_with_parent(between)
            confine.close_files(connection.fileno())
            missing = self._confine()
            gc.freeze()
            torch.set_num_threads(1)  # the threads of a pool are not in a fork
            channel = Channel(connection)
            channel.send([*missing, *([] if isolated else ["namespaces"])], [])
            _serve(channel)
            status = 0
        finally:
            os._exit(status)

    def _confine(self) -> list[str]:
        kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
        kept |= {name: value for name, value in os.environ.items() if name.startswith("TRITON_")}
        kept |= dict.fromkeys(("HOME", "TMPDIR", "XDG_CACHE_HOME"), str(self._temporary))
        confine.reduce_environment(kept)
        tempfile.tempdir = None
        confine.limit(MAX_FILE_BYTES, self._data_bytes)
        own = [*sys.path, *site.getsitepackages(), sys.prefix, sys.base_prefix]
        own += [os.environ.get(name, "") for name in ("CUDA_HOME", "CUDA_PATH")]
        own += os.environ.get("LD_LIBRARY_PATH", "").split(":")
        private = (Path.cwd(), Path.home())  # which Python's path has where it is started as a module
        folders = [each for each in map(Path, filter(None, own)) if each.resolve() not in private]
        folders += [*map(Path, (*_SYSTEM, *_FILES)), *([CHECKOUT] if CHECKOUT else []), CACHE, *self._readable]
        return confine.restrict(folders, (self._scratch, self._temporary))


def _kill(process: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(process, signal.SIGKILL)


@contextlib.contextmanager
def session(trusted: bool = False) -> Iterator[set[str]]:
    """Ends the cages that are started in this context. Yields what is missing in their kernel.

    trusted: whether the code runs although the kernel has not what confines it, unless it does in the outer context.
    """
    before, outer = list(_open), (policy.trusted, policy.missing)
    policy.trusted, policy.missing = policy.trusted or trusted, set()
    try:
        yield policy.missing
    finally:
        policy.trusted, policy.missing = outer
        for each in [each for each in _open if each not in before]:
            each.end()


_kept: dict[Path, Cage] = {}


def cage_of(what: str, scratch: Path, readable: Sequence[Path], has_data_limit: bool = True) -> Cage:
    """Returns the cage that has this folder to write to, and which stays open as `session` says."""
    if scratch not in _kept or not _kept[scratch].is_open:
        _kept[scratch] = Cage(what, scratch, readable, has_data_limit)
    return _kept[scratch]


@atexit.register
def _end_all() -> None:
    for each in list(_open):
        each.end()


def _descendants(process: int) -> list[int]:
    found: list[int] = []
    left = [process]
    while left:
        each = left.pop()
        with contextlib.suppress(OSError, ValueError):
            for task in os.listdir(f"/proc/{each}/task"):
                children = Path(f"/proc/{each}/task/{task}/children").read_text().split()
                left += map(int, children)
                found += map(int, children)
    return found


def _resident_bytes(process: int) -> int:
    with contextlib.suppress(OSError, ValueError):
        return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * resource.getpagesize()
    return 0


def _proportional_bytes(process: int) -> int:
    """Its share of memory: what several processes have counts once in their sum."""
    with contextlib.suppress(OSError, ValueError):
        return int(Path(f"/proc/{process}/smaps_rollup").read_text().partition("\nPss:")[2].split()[0]) << 10
    return _resident_bytes(process)


# --- in the process ---------------------------------------------------------------------------------------------------


_served: Channel | None = None  # in a confined process, that to the one which started it


def _serve(channel: Channel) -> None:
    """Serves requests until there are no more."""
    global _served
    _served = channel
    with contextlib.suppress(EOFError):
        while True:
            _execute(channel, *channel.receive_object())


def _execute(channel: Channel, function: Callable[..., Answer], arguments: Sequence[Any]) -> None:
    try:
        data, blobs = function(*arguments)
        channel.send(["done", data], blobs)
    except BaseException as error:
        kind = "usage" if isinstance(error, UsageError) else "build" if isinstance(error, BuildError) else "mistake"
        text = str(error) if kind != "mistake" else traceback.format_exc()
        if not isinstance(error, Exception):
            kind, text = "usage", f"the code ended its process by {type(error).__name__}"
        channel.send([kind, {"text": text, "line": getattr(error, "line", math.inf)}], [])


def ask(data: object, blobs: Sequence[bytes]) -> Any:
    """Returns what the `answer` of the call says that is executed in this confined process."""
    assert _served, "there is somebody to ask in a cage alone"
    _served.send(["ask", data], blobs)
    while True:
        function, reply = _served.receive_object()
        if function is None:
            return reply
        _execute(_served, function, reply)  # what the answer depends on


def run_program(command: Sequence[str], folder: Path, seconds: float, written: Path) -> Answer:
    """Runs a program in a folder, for so long; returns what it has written to a file. To be called in a cage."""
    written.unlink(missing_ok=True)
    nothing = subprocess.DEVNULL
    with contextlib.suppress(OSError):
        process = subprocess.Popen(
            command, stdin=nothing, stdout=nothing, stderr=nothing, cwd=folder, start_new_session=True
        )
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(seconds)
        with contextlib.suppress(OSError):
            os.kill(-1, signal.SIGKILL) if os.getpid() == 1 else os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return True, [written.read_bytes()]
    return False, []


def run_command(command: Sequence[str] | str, environment: dict[str, str]) -> Answer:
    """Runs a command, of a shell if it is a text; returns its exit code and what it prints. To be called in a cage.

    It ends when it has printed too much.
    """
    process = subprocess.Popen(
        command, shell=isinstance(command, str), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, env=os.environ | environment,
    )  # fmt: skip
    assert process.stdout
    text = process.stdout.read(_MAX_PRINTED)
    process.stdout.close()
    return process.wait(), [text]
