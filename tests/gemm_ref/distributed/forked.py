"""Ranks that are forked from the test's process, since torch takes seconds to import."""

from __future__ import annotations

import os
import socket
import subprocess
import time

from gemm_ref.distributed import worker


class Forked:
    """In place of torchrun: ranks that need not import torch again."""

    def __init__(self, ranks, connection, output):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            store = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1]), "WORLD_SIZE": str(ranks)}
        self.returncode, self._pids = None, []
        for rank in range(ranks):
            if not (pid := os.fork()):
                os.environ.update(dict(connection) | store | {"RANK": str(rank), "GLOO_SOCKET_IFNAME": "lo"})
                try:
                    worker.main()
                finally:
                    os._exit(1)
            self._pids.append(pid)
        self.pid = self._pids[0]

    def poll(self):
        self._pids = [pid for pid in self._pids if os.waitpid(pid, os.WNOHANG) == (0, 0)]
        self.returncode = None if self._pids else 1
        return self.returncode

    def wait(self, timeout=30.0):
        deadline = time.monotonic() + timeout
        while self.poll() is None:
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired("ranks", timeout)
            time.sleep(0.01)

    def send_signal(self, number):
        for pid in self._pids:
            os.kill(pid, number)
