"""Starts a function on every rank with torchrun, hands on what it says, and ends all ranks when one fails.

Every rank is connected to the process that started it. So a rank that fails is heard at once, one that is silent is
noticed, and a rank whose starter is gone ends by itself: none is left over.
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
HELLO, SAYS, DONE, FAILED, GONE = "hello", "says", "done", "failed", "gone"
WAIT_S = 40.0  # that a rank waits for another in a collective,
PATIENCE_S = 55.0  # and the starter for a word of any rank
_TOGETHER_S = 1.5  # within which the failures that follow from one are heard
_LEAVE_S = 5.0  # for ranks to end by themselves

# NVLink multicast stays off: a program that leaves it in a bad state takes the links of the whole host with it.
_NO_MULTICAST = {"NCCL_NVLS_ENABLE": "0", "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1"}
_BY_DEFAULT = {"GLOO_SOCKET_IFNAME": "lo"}  # all ranks are on this host, whose own name may lead nowhere


def put(connection: Connection, message: Any) -> None:
    """Send a message whole; `Connection.send` would send tensors as handles to memory that ends with its process."""
    connection.send_bytes(pickle.dumps(message))


def take(connection: Connection) -> Any:
    """Receive what `put` sent. Raises EOFError or OSError at the end of the connection."""
    return pickle.loads(connection.recv_bytes())


class RanksFailed(RuntimeError):
    """A rank failed, or was not heard of; says which, and why."""


@dataclass
class _Heard:
    """What is known of the ranks."""

    inbox: queue.Queue[tuple[str, int, Any]] = field(default_factory=queue.Queue)
    connections: list[Connection] = field(default_factory=list)
    processes: dict[int, int] = field(default_factory=dict)  # rank -> process id
    last: dict[int, float] = field(default_factory=dict)  # rank -> when it was heard
    done: set[int] = field(default_factory=set)


def run(
    target: str, argument: Any, ranks: int, device: str, patience_s: float = PATIENCE_S, wait_s: float = WAIT_S
) -> Iterator[Any]:
    """What rank 0 says while `target`, as in "package.module:function", runs on all ranks.

    Each rank, a process with a default process group and, on "cuda", a GPU of its own, calls function(argument, say).
    say(None) tells that the rank is alive. Closing the iterator ends the ranks.
    Raises RanksFailed once a rank has failed, has ended, or none has said anything for `patience_s`.
    """
    with tempfile.TemporaryDirectory() as folder, Path(folder, "output").open("w+b") as output:
        key, heard = secrets.token_bytes(16), _Heard()
        with Listener(str(Path(folder, "ranks")), "AF_UNIX", backlog=ranks, authkey=key) as listener:
            setup = (target, argument, device, wait_s)
            threading.Thread(target=_accept, args=(listener, ranks, setup, heard), daemon=True).start()
            process = _start(ranks, {ADDRESS: str(listener.address), KEY: key.hex()}, output)
            try:
                yield from _follow(process, ranks, heard, patience_s, output)
            finally:
                _end(process, heard)


def _start(ranks: int, connection: Mapping[str, str], output: IO[bytes]) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--local-addr", "127.0.0.1"]
    command += ["--nproc-per-node", str(ranks), "-m", "gemm_ref.distributed.worker"]
    root = str(Path(__file__).resolve().parents[2])
    path = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH", ""))))
    environment = _BY_DEFAULT | dict(os.environ) | _NO_MULTICAST | {"PYTHONPATH": path} | dict(connection)
    # In a session of its own: Ctrl-C reaches the starter alone, which ends the ranks.
    return subprocess.Popen(
        command, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
    )


def _accept(listener: Listener, ranks: int, setup: tuple, heard: _Heard) -> None:
    for _ in range(ranks):
        try:
            connection = listener.accept()
        except OSError:  # closed
            return
        heard.connections.append(connection)
        threading.Thread(target=_listen, args=(connection, setup, heard), daemon=True).start()


def _listen(connection: Connection, setup: tuple, heard: _Heard) -> None:
    rank = -1
    with contextlib.suppress(OSError, EOFError):
        while True:
            kind, rank, body = take(connection)
            heard.inbox.put((kind, rank, body))
            if kind == HELLO:
                put(connection, setup)
    heard.inbox.put((GONE, rank, None))


def _follow(
    process: subprocess.Popen[bytes], ranks: int, heard: _Heard, patience_s: float, output: IO[bytes]
) -> Iterator[Any]:
    deadline = time.monotonic() + patience_s
    while len(heard.done) < ranks:
        try:
            kind, rank, body = heard.inbox.get(timeout=0.2)
        except queue.Empty:
            if process.poll() is not None and heard.inbox.empty():
                raise RanksFailed(f"torchrun ended with {process.returncode}: {_tail(output)}") from None
            if time.monotonic() > deadline:
                raise RanksFailed(
                    f"{_silent(heard, ranks)}; no rank has said anything for {patience_s:.0f} s"
                ) from None
            continue
        deadline = time.monotonic() + patience_s
        heard.last[rank] = time.monotonic()
        if kind == HELLO:
            heard.processes[rank] = body
        elif kind == DONE:
            heard.done.add(rank)
        elif kind == SAYS and body is not None:
            yield body
        elif kind == FAILED or (kind == GONE and rank not in heard.done):
            raise RanksFailed(_failures(kind, rank, body, heard, ranks))


def _failures(kind: str, rank: int, body: Any, heard: _Heard, ranks: int) -> str:
    """Why all end, in the order in which it was heard; others fail since one does, and often before it is heard of."""
    failures = {rank: body if kind == FAILED else "ended without a word: was it killed?"}
    deadline = time.monotonic() + _TOGETHER_S
    while (left := deadline - time.monotonic()) > 0:
        with contextlib.suppress(queue.Empty):
            kind, rank, body = heard.inbox.get(timeout=left)
            heard.last[rank] = time.monotonic()
            if kind == FAILED:
                failures.setdefault(rank, body)
            elif kind == GONE and rank not in heard.done:
                failures.setdefault(rank, "ended without a word: was it killed?")
    said = [f"rank {rank} of {ranks}: {why}" for rank, why in failures.items()]
    rest = set(range(ranks)) - set(failures) - heard.done
    return "; ".join([*said, _silent(heard, ranks)] if rest else said)


def _silent(heard: _Heard, ranks: int) -> str:
    """Who has not ended, and how long ago each was heard."""
    now = time.monotonic()
    said = [
        f"rank {rank} was last heard {now - heard.last[rank]:.0f} s ago"
        if rank in heard.last
        else f"rank {rank} never came"
        for rank in range(ranks)
        if rank not in heard.done
    ]
    return ", ".join(said)


def _end(process: subprocess.Popen[bytes], heard: _Heard) -> None:
    """End torchrun and all ranks: those that are done end by themselves, and the others when their connection does."""
    if not len(heard.done) == len(heard.processes) > 0:
        for connection in heard.connections:
            _hang_up(connection)
        process.send_signal(signal.SIGTERM)  # which it hands on, to ranks that are not connected yet too
    try:
        process.wait(_LEAVE_S)
    except subprocess.TimeoutExpired:
        for each in (*heard.processes.values(), process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(each, signal.SIGKILL)
        process.wait()


def _hang_up(connection: Connection) -> None:
    """End a connection that a thread of this process still reads, which `close` would not."""
    with contextlib.suppress(OSError), socket.socket(fileno=os.dup(connection.fileno())) as end:
        end.shutdown(socket.SHUT_RDWR)


def _tail(output: IO[bytes]) -> str:
    output.seek(0)
    return output.read().decode(errors="replace").strip()[-2000:]
