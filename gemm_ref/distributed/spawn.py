"""Runs a function on every rank with torchrun, passes on what rank 0 reports, and ends all ranks when one fails.

Every rank is connected to the process that started it. So the failure of a rank is reported at once, a silent rank is
noticed, and a rank whose starter has ended exits by itself: no process is left over.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import queue
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, Listener
from pathlib import Path
from typing import IO, Any

ADDRESS, KEY = "GEMM_LADDER_RANKS", "GEMM_LADDER_RANKS_KEY"  # environment variables by which a rank finds its starter
HELLO, REPORT, DONE, FAILED, GONE = "hello", "report", "done", "failed", "gone"  # kinds of messages
COLLECTIVE_TIMEOUT_S = 40.0  # that a rank waits for another one in a collective
SILENCE_TIMEOUT_S = 55.0  # that the starter waits for a message of any rank
_FAILURES_S = 1.5  # within which the failures that follow from one are collected
_EXIT_S = 5.0  # that ranks have to exit by themselves
_NO_MESSAGE = "ended without a message: was it killed?"

# NVLink multicast stays off: a program that leaves it in a bad state takes the links of the whole host with it.
_NO_MULTICAST = {"NCCL_NVLS_ENABLE": "0", "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1"}
_DEFAULTS = {"GLOO_SOCKET_IFNAME": "lo"}  # all ranks are on this host, whose name may not resolve


def send_message(connection: Connection, message: Any) -> None:
    """Send a pickled message; `Connection.send` would send tensors as handles to memory that ends with its process."""
    connection.send_bytes(pickle.dumps(message))


def receive_message(connection: Connection) -> Any:
    """Receive what `send_message` sent. Raises EOFError or OSError at the end of the connection."""
    return pickle.loads(connection.recv_bytes())


class RanksFailed(RuntimeError):
    """A rank failed or was silent; the message says which one, and why."""


@dataclass
class _Ranks:
    """What the starter knows of its ranks; a thread per connection puts their messages into the inbox."""

    count: int
    inbox: queue.Queue[tuple[str, int, Any]] = field(default_factory=queue.Queue)
    connections: list[Connection] = field(default_factory=list)
    process_ids: dict[int, int] = field(default_factory=dict)  # by rank
    last_message_s: dict[int, float] = field(default_factory=dict)  # by rank, on the monotonic clock
    done: set[int] = field(default_factory=set)

    def accept(self, listener: Listener, setup: tuple) -> None:
        for _ in range(self.count):
            try:
                connection = listener.accept()
            except OSError:  # closed
                return
            self.connections.append(connection)
            threading.Thread(target=self._listen, args=(connection, setup), daemon=True).start()

    def _listen(self, connection: Connection, setup: tuple) -> None:
        rank = -1
        with contextlib.suppress(OSError, EOFError):
            while True:
                kind, rank, body = receive_message(connection)
                self.inbox.put((kind, rank, body))
                if kind == HELLO:
                    send_message(connection, setup)
        self.inbox.put((GONE, rank, None))

    def next_message(self, timeout_s: float) -> tuple[str, int, Any]:
        """The next message of any rank. Raises queue.Empty after `timeout_s`."""
        kind, rank, body = self.inbox.get(timeout=timeout_s)
        self.last_message_s[rank] = time.monotonic()
        if kind == HELLO:
            self.process_ids[rank] = body
        elif kind == DONE:
            self.done.add(rank)
        elif kind == GONE and rank not in self.done:
            return FAILED, rank, _NO_MESSAGE
        return kind, rank, body

    def describe_failures(self, rank: int, reason: str) -> str:
        """The failures in the order of their messages; one makes others fail, whose messages may come first."""
        failures = {rank: reason}
        deadline = time.monotonic() + _FAILURES_S
        while (left := deadline - time.monotonic()) > 0:
            with contextlib.suppress(queue.Empty):
                kind, rank, body = self.next_message(left)
                if kind == FAILED:
                    failures.setdefault(rank, body)
        reasons = [f"rank {rank} of {self.count}: {reason}" for rank, reason in failures.items()]
        silent = self.describe_silent(failures)
        return "; ".join([*reasons, silent] if silent else reasons)

    def describe_silent(self, failures: Mapping[int, str]) -> str:
        """When each rank that has neither ended nor failed sent its last message."""
        now, last = time.monotonic(), self.last_message_s
        return ", ".join(
            f"rank {rank} last sent a message {now - last[rank]:.0f} s ago"
            if rank in last
            else f"rank {rank} never came"
            for rank in range(self.count)
            if rank not in self.done and rank not in failures
        )

    def end(self, process: subprocess.Popen[bytes]) -> None:
        """End torchrun and all ranks: those that are done exit by themselves, and others once their connection ends."""
        if not len(self.done) == len(self.process_ids) > 0:
            for connection in self.connections:
                _shut_down(connection)
            process.send_signal(signal.SIGTERM)  # torchrun passes it on, also to ranks that are not connected yet
        try:
            process.wait(_EXIT_S)
        except subprocess.TimeoutExpired:
            for process_id in (*self.process_ids.values(), process.pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process_id, signal.SIGKILL)
            process.wait()


def run_on_ranks(
    target: str, argument: Any, ranks: int, device: str, silence_timeout_s: float = SILENCE_TIMEOUT_S,
    collective_timeout_s: float = COLLECTIVE_TIMEOUT_S,
) -> Iterator[Any]:  # fmt: skip
    """Yield what rank 0 reports while `target`, such as "package.module:function", runs on all ranks.

    Each rank, a process with a default process group and, on "cuda", its own GPU, calls function(argument, report).
    report(None) says that the rank is alive. Closing the iterator ends the ranks.
    Raises RanksFailed once a rank has failed or ended, or no rank has sent a message for `silence_timeout_s`.
    """
    with tempfile.TemporaryDirectory() as folder, Path(folder, "output").open("w+b") as output:
        key, state = secrets.token_bytes(16), _Ranks(ranks)
        with Listener(str(Path(folder, "ranks")), "AF_UNIX", backlog=ranks, authkey=key) as listener:
            setup = (target, argument, device, collective_timeout_s)
            threading.Thread(target=state.accept, args=(listener, setup), daemon=True).start()
            process = _start(ranks, {ADDRESS: str(listener.address), KEY: key.hex()}, output)
            try:
                yield from _follow(process, state, silence_timeout_s, output)
            finally:
                state.end(process)


def _start(ranks: int, connection: Mapping[str, str], output: IO[bytes]) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--local-addr", "127.0.0.1"]
    command += ["--nproc-per-node", str(ranks), "-m", "gemm_ref.distributed.worker"]
    root = str(Path(__file__).resolve().parents[2])
    path = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH", ""))))
    environment = _DEFAULTS | dict(os.environ) | _NO_MULTICAST | {"PYTHONPATH": path} | dict(connection)
    # In its own session: Ctrl-C reaches the starter alone, which ends the ranks.
    return subprocess.Popen(
        command, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
    )


def _follow(
    process: subprocess.Popen[bytes], state: _Ranks, silence_timeout_s: float, output: IO[bytes]
) -> Iterator[Any]:
    deadline = time.monotonic() + silence_timeout_s
    while len(state.done) < state.count:
        try:
            kind, rank, body = state.next_message(0.2)
        except queue.Empty:
            if process.poll() is not None and state.inbox.empty():
                output.seek(0)
                text = output.read().decode(errors="replace").strip()[-2000:]
                raise RanksFailed(f"torchrun ended with {process.returncode}: {text}") from None
            if time.monotonic() > deadline:
                raise RanksFailed(
                    f"{state.describe_silent({})}; no rank has sent a message for {silence_timeout_s:.0f} s"
                ) from None
            continue
        deadline = time.monotonic() + silence_timeout_s
        if kind == REPORT and body is not None:
            yield body
        elif kind == FAILED:
            raise RanksFailed(state.describe_failures(rank, body))


def _shut_down(connection: Connection) -> None:
    """End a connection that a thread of this process still reads, which `close` would not do."""
    with contextlib.suppress(OSError), socket.socket(fileno=os.dup(connection.fileno())) as end:
        end.shutdown(socket.SHUT_RDWR)
