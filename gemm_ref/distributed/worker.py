"""One rank: torchrun starts `python -m gemm_ref.distributed.worker` for `gemm_ref.distributed.spawn`."""

from __future__ import annotations

import importlib
import os
import threading
import traceback
import warnings
from datetime import timedelta
from multiprocessing.connection import Client, Connection
from typing import Any

from gemm_ref.distributed.spawn import ADDRESS, DONE, FAILED, HELLO, KEY, REPORT, receive_message, send_message


def main() -> None:
    """Call the function that the starter names, and send it the outcome."""
    rank = int(os.environ["RANK"])
    connection = Client(os.environ[ADDRESS], "AF_UNIX", bytes.fromhex(os.environ[KEY]))
    send_message(connection, (HELLO, rank, os.getpid()))
    target, argument, device, collective_timeout_s = receive_message(connection)
    threading.Thread(target=_exit_with_starter, args=(connection,), daemon=True).start()
    try:
        _join_group(device, collective_timeout_s)
        module, _, name = target.partition(":")
        function = getattr(importlib.import_module(module), name)
        function(argument, lambda body: send_message(connection, (REPORT, rank, None if rank else body)))
        _wait_for_peers()
    except BaseException as error:
        send_message(connection, (FAILED, rank, _describe(error)))
        os._exit(1)  # without waiting for peers, or for a GPU that does not answer
    send_message(connection, (DONE, rank, None))
    os._exit(0)  # torch would wait for its own threads, and Triton 3.9 reports leaks


def _join_group(device: str, timeout_s: float) -> None:
    import torch
    import torch.distributed as dist

    warnings.simplefilter("ignore", FutureWarning)
    backend = "gloo"
    if device == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        backend = "cpu:gloo,cuda:nccl"
    dist.init_process_group(backend, timeout=timedelta(seconds=timeout_s))


def _wait_for_peers() -> None:
    """Wait until no rank needs the memory of another."""
    import torch
    import torch.distributed as dist

    if torch.cuda.is_initialized():
        torch.cuda.synchronize()
    dist.all_reduce(torch.zeros(1))


def _exit_with_starter(connection: Connection) -> None:
    """End this process when its starter does."""
    try:
        receive_message(connection)
    except (EOFError, OSError):
        os._exit(1)


def _describe(error: BaseException) -> str:
    """The error, and the line that raised it."""
    frames: list[Any] = traceback.extract_tb(error.__traceback__)
    where = f" ({os.path.basename(frames[-1].filename)}, line {frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {error}{where}"


if __name__ == "__main__":
    main()
