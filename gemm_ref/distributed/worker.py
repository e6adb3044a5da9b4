"""One rank: `python -m gemm_ref.distributed.worker`, as torchrun starts it for `gemm_ref.distributed.launch`."""

from __future__ import annotations

import importlib
import os
import threading
import traceback
import warnings
from datetime import timedelta
from multiprocessing.connection import Client, Connection
from typing import Any

from gemm_ref.distributed.launch import ADDRESS, DONE, FAILED, HELLO, KEY, SAYS, put, take


def main() -> None:
    """Call what the starter asks for, and tell it how that went."""
    rank = int(os.environ["RANK"])
    connection = Client(os.environ[ADDRESS], "AF_UNIX", bytes.fromhex(os.environ[KEY]))
    put(connection, (HELLO, rank, os.getpid()))
    target, argument, device, wait_s = take(connection)
    threading.Thread(target=_leave_with, args=(connection,), daemon=True).start()
    try:
        _join(device, wait_s)
        module, _, name = target.partition(":")
        function = getattr(importlib.import_module(module), name)
        function(argument, lambda body: put(connection, (SAYS, rank, None if rank else body)))
        _part()
    except BaseException as error:
        put(connection, (FAILED, rank, _described(error)))
        os._exit(1)  # without waiting for peers, or for a GPU that does not answer
    put(connection, (DONE, rank, None))
    os._exit(0)  # torch would wait for its own threads, and Triton 3.9 tells of leaks


def _join(device: str, wait_s: float) -> None:
    import torch
    import torch.distributed as dist

    warnings.simplefilter("ignore", FutureWarning)
    backend = "gloo"
    if device == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        backend = "cpu:gloo,cuda:nccl"
    dist.init_process_group(backend, timeout=timedelta(seconds=wait_s))


def _part() -> None:
    """Wait until no rank needs another's memory any more."""
    import torch
    import torch.distributed as dist

    if torch.cuda.is_initialized():
        torch.cuda.synchronize()
    dist.all_reduce(torch.zeros(1))


def _leave_with(connection: Connection) -> None:
    """End this process when its starter does."""
    try:
        take(connection)
    except (EOFError, OSError):
        os._exit(1)


def _described(error: BaseException) -> str:
    """The error, and the line of ours or of the caller's that it came from."""
    frames: list[Any] = traceback.extract_tb(error.__traceback__)
    where = f" ({os.path.basename(frames[-1].filename)}, line {frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {error}{where}"


if __name__ == "__main__":
    main()
