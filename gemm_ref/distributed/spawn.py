"""Runs a function on every rank, a process each, passes on what rank 0 reports, and ends all ranks when one fails.

A pipe connects every rank to the process that started it. So the failure of a rank is reported at once, a silent rank
is noticed, and a rank whose starter has ended exits by itself: no process is left over.
"""

from __future__ import annotations

import importlib
import multiprocessing
import os
import pickle
import signal
import tempfile
import threading
import time
import traceback
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Final

REPORT, DONE, FAILED = "report", "done", "failed"  # kinds of messages
START_METHOD: Final = "spawn"  # a process that has used CUDA cannot be forked
HOST = "127.0.0.1"
COLLECTIVE_TIMEOUT_S = 40.0  # that a rank waits for another one in a collective
SILENCE_TIMEOUT_S = 55.0  # that the starter waits for a message of any rank
_FAILURES_S = 1.5  # within which the failures that follow from one are collected
_EXIT_S = 5.0  # that ranks have to exit by themselves

# NVLink multicast stays off: a program that leaves it in a bad state takes the links of the whole host with it.
_NO_MULTICAST = {"NCCL_NVLS_ENABLE": "0", "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1"}


class RanksFailed(RuntimeError):
    """A rank failed or was silent; the message says which one, and why."""


@dataclass
class _Rank:
    """What the starter knows of a rank."""

    name: str
    process: BaseProcess
    pipe: Connection
    last_message_s: float | None = None  # on the monotonic clock
    is_done: bool = False

    def receive(self) -> tuple[str, Any]:
        """The kind and the body of the next message; an end of the process without one is a failure too."""
        try:
            kind, body = pickle.loads(self.pipe.recv_bytes())
        except (EOFError, OSError):
            self.process.join(_EXIT_S)
            return FAILED, f"ended without a message (exit code {self.process.exitcode}): was it killed?"
        self.last_message_s = time.monotonic()
        self.is_done = kind == DONE
        return kind, body


def run_on_ranks(
    target: str, argument: Any, ranks: int, device: str, silence_timeout_s: float = SILENCE_TIMEOUT_S,
    collective_timeout_s: float = COLLECTIVE_TIMEOUT_S,
) -> Iterator[Any]:  # fmt: skip
    """Yield what rank 0 reports while `target`, such as "package.module:function", runs on all ranks.

    Each rank, a process with a default process group and, on "cuda", its own GPU, calls function(argument, report).
    report(None) says that the rank is alive. Closing the iterator ends the ranks.
    Raises RanksFailed once a rank has failed or ended, or no rank has sent a message for `silence_timeout_s`.
    """
    from torch.distributed import TCPStore

    context = multiprocessing.get_context(START_METHOD)
    store = TCPStore(HOST, 0, is_master=True, wait_for_workers=False)
    members: list[_Rank] = []
    with tempfile.NamedTemporaryFile() as output:
        try:
            for rank in range(ranks):
                pipe, far_end = context.Pipe()
                setup = (rank, ranks, store.port, device, collective_timeout_s, output.name)
                process = context.Process(target=_run_rank, args=(far_end, setup, target, argument), daemon=True)
                process.start()
                far_end.close()
                members.append(_Rank(f"rank {rank}", process, pipe))
            yield from _follow(members, silence_timeout_s)
        except RanksFailed as failed:
            text = Path(output.name).read_text(encoding="utf-8", errors="replace").strip()[-2000:]
            raise RanksFailed(f"{failed}; the ranks wrote: {text}" if text else str(failed)) from None
        finally:
            _end(members)


def _follow(members: Sequence[_Rank], silence_timeout_s: float) -> Iterator[Any]:
    while running := [member for member in members if not member.is_done]:
        ready = wait([member.pipe for member in running], silence_timeout_s)
        if not ready:
            raise RanksFailed(f"{_describe_silence(running)}; no rank has sent a message for {silence_timeout_s:.0f} s")
        for member in (member for member in running if member.pipe in ready):
            kind, body = member.receive()
            if kind == FAILED:
                raise RanksFailed(_describe_failures(members, member, body))
            if kind == REPORT and body is not None:
                yield body


def _describe_failures(members: Sequence[_Rank], first: _Rank, reason: str) -> str:
    """The failures in the order of their messages; one makes others fail, whose messages may come first."""
    failures = {first.name: reason}
    deadline = time.monotonic() + _FAILURES_S
    while running := [member for member in members if not member.is_done and member.name not in failures]:
        ready = wait([member.pipe for member in running], max(0.0, deadline - time.monotonic()))
        for member in (member for member in running if member.pipe in ready):
            kind, body = member.receive()
            if kind == FAILED:
                failures[member.name] = body
        if time.monotonic() > deadline:
            break
    reasons = [f"{name} of {len(members)}: {reason}" for name, reason in failures.items()]
    return "; ".join([*reasons, _describe_silence(running)] if running else reasons)


def _describe_silence(running: Sequence[_Rank]) -> str:
    """When each of these ranks sent its last message."""
    now = time.monotonic()
    return ", ".join(
        f"{member.name} never sent a message"
        if member.last_message_s is None
        else f"{member.name} last sent a message {now - member.last_message_s:.0f} s ago"
        for member in running
    )


def _end(members: Sequence[_Rank]) -> None:
    """End all ranks: those that are done exit by themselves, and the others once their pipe is closed."""
    deadline = time.monotonic() + _EXIT_S
    for member in members:
        member.pipe.close()
    for member in members:
        member.process.join(max(0.0, deadline - time.monotonic()))
        if member.process.exitcode is None:
            member.process.kill()
            member.process.join()


def _run_rank(pipe: Connection, setup: tuple[int, int, int, str, float, str], target: str, argument: Any) -> None:
    """Call the function on this rank, and send the starter its reports and the outcome."""
    rank, ranks, port, device, timeout_s, output = setup
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends the starter, which ends the ranks
    for stream in (1, 2):
        os.dup2(os.open(output, os.O_WRONLY | os.O_APPEND), stream)
    os.environ.update(_NO_MULTICAST)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")  # all ranks are on this host, whose name may not resolve
    threading.Thread(target=_exit_with_starter, args=(pipe,), daemon=True).start()

    def send(kind: str, body: Any) -> None:
        pipe.send_bytes(pickle.dumps((kind, body)))  # `send` would send tensors as handles to memory of this process

    try:
        send(REPORT, None)
        _join_group(rank, ranks, port, device, timedelta(seconds=timeout_s))
        module, _, name = target.partition(":")
        function = getattr(importlib.import_module(module), name)
        function(argument, lambda body: send(REPORT, None if rank else body))
        _wait_for_peers()
    except BaseException as error:
        send(FAILED, _describe(error))
        os._exit(1)  # without waiting for peers, or for a GPU that does not answer
    send(DONE, None)
    os._exit(0)  # torch would wait for its own threads, and Triton 3.9 reports leaks


def _join_group(rank: int, ranks: int, port: int, device: str, timeout: timedelta) -> None:
    import torch
    import torch.distributed as dist

    warnings.simplefilter("ignore", FutureWarning)
    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(1)  # the ranks share the cores
    backend = "gloo"
    if device == "cuda":
        torch.cuda.set_device(rank)
        backend = "cpu:gloo,cuda:nccl"
    store = dist.TCPStore(HOST, port, is_master=False, timeout=timeout)
    dist.init_process_group(backend, store=store, rank=rank, world_size=ranks, timeout=timeout)


def _wait_for_peers() -> None:
    """Wait until no rank needs the memory of another."""
    import torch
    import torch.distributed as dist

    if torch.cuda.is_initialized():
        torch.cuda.synchronize()
    dist.all_reduce(torch.zeros(1))


def _exit_with_starter(pipe: Connection) -> None:
    """End this process when its starter closes the pipe or ends."""
    try:
        pipe.recv_bytes()
    except (EOFError, OSError):
        os._exit(1)


def _describe(error: BaseException) -> str:
    """The error, and the line that raised it."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({os.path.basename(frames[-1].filename)}, line {frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {error}{where}"
